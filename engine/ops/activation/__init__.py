"""Activation functions, each with a fused backward that is an op of its own."""

from __future__ import annotations

import functools
import math
import sys
from typing import Any

import numpy as np

from engine.autograd.graph import name_node
from engine.backends.cpu.exact import summed
from engine.backends.cpu.select import outside, where
from engine.core import dtypes
from engine.core.grad_mode import mode
from engine.core.layouts import ChannelsLast
from engine.dispatch import array_derivative, composite, derivative, joint_derivative, op, samples
from engine.dispatch.choosing import quickly
from engine.ops._vjp import WHY, vjp
from engine.ops.copying import number_for
from engine.ops.pointwise.arithmetic import conj_if_complex as _conj
from engine.ops.pointwise.arithmetic import keep_where, not_implemented, refuse, zeros_of
from engine.ops.special.erf import erf_of
from engine.tensor import Tensor

_OFTEN = 1 << 13  # elements from which oneDNN's kernel of several steps is the faster
PRIVATE = {"public": False, "method": False}  # of nn.functional only, and the fused backwards


def _floats_only(name: str, input: Any) -> None:
    if input.dtype.kind in "iub":
        raise not_implemented(name, input)


# --- saturating: sigmoid, tanh and kin


@op(**PRIVATE, half=True, channels_last=True, blocks="elements", generated="many")
@derivative(
    grad_output=lambda grad, output: tanh_backward(grad, _conj(output)),
    output=lambda grad, grad_output, output: _conj(grad) * grad_output * _conj(output) * -2,
)
@samples(lambda t: [(t(3, 4), t(3, 4)), (t(), t()), (t.complex(3), t.complex(3))])
def tanh_backward(xp, grad_output, output):
    """grad_output * (1 - conj(output) ** 2).  grad_output (*), output (*) -> (*)."""
    if output.dtype.kind == "c":
        output = xp.conj(output)
    slope = xp.multiply(output, output)
    return xp.multiply(grad_output, xp.subtract(1, slope))


@op(
    promote="float",
    inplace=True,
    channels_last=True,
    blocks="elements",
    direct=True,
    generated="some",
    float16_in_numpy=True,
    keeps_zero=True,
)
@derivative(input=lambda grad, result: tanh_backward(grad, result))
@array_derivative(input=quickly(tanh_backward, lambda grad, result: grad * (1 - result * result)))
@samples(lambda t: [(t(3, 4),), (t(),), (t(0, 2),), (t.complex(3),), (t.integers(-2, 3, 3),)])
def tanh(xp, input):
    """The hyperbolic tangent.  input (*) -> (*)."""
    return xp.tanh(input)


@op(**PRIVATE, half=True, channels_last=True, blocks="elements", generated="many")
@derivative(
    grad_output=lambda grad, output: sigmoid_backward(grad, _conj(output)),
    output=lambda grad, grad_output, output: _conj(grad) * grad_output * (1 - _conj(output) * 2),
)
@samples(lambda t: [(t(3, 4), t(3, 4)), (t(), t()), (t.complex(3), t.complex(3))])
def sigmoid_backward(xp, grad_output, output):
    """grad_output * conj(output * (1 - output)).  grad_output (*), output (*) -> (*)."""
    if output.dtype.kind == "c":
        output = xp.conj(output)
    return xp.multiply(grad_output, xp.multiply(output, xp.subtract(1, output)))


_SOME = 1 << 11  # elements from which what has no branches is faster than numpy's where
_FEW = 4096  # elements below which numpy's maximum is faster than its clip
# numpy's clip is three times as fast as its maximum, but np.clip takes longer to begin than a small array to do; where
# a later numpy has moved the ufunc, that is what is left.
_clip = getattr(sys.modules.get("numpy._core.umath"), "clip", None)
_NATIVE = frozenset(map(np.dtype, ("float32", "float64")))


@functools.lru_cache(256)
def _bound(value: float, dtype: Any) -> Any:
    return np.full((), value, dtype)  # beside an array this is faster than a number


def choose(xp, mask, x, y):
    """xp.where; of many floats of numpy's by their bits, without branches."""
    if xp is np and mask.size >= _SOME:
        return where(mask, x, y)
    return xp.where(mask, x, y)


def logistic(xp, input):
    """1 / (1 + e ** -input) of a float array: right at both ends, since 1 / inf is 0."""
    if xp is np and input.ndim and input.dtype in _NATIVE:
        e = np.negative(input)
        np.exp(e, e)
        np.add(e, _bound(1, e.dtype), e)
        return np.reciprocal(e, e)
    e = xp.exp(xp.negative(input))
    e += e.dtype.type(1)
    return xp.reciprocal(e)


@op(
    promote="float",
    inplace=True,
    names=("special_expit",),
    half=True,
    channels_last=True,
    blocks="elements",
    generated="many",
)
@derivative(input=lambda grad, result: sigmoid_backward(grad, result))
@array_derivative(input=quickly(sigmoid_backward, lambda grad, result: grad * (result * (1 - result))))
@samples(lambda t: [(t(3, 4),), (t(),), (t(0, 2),), (t.complex(3),), (t.integers(-2, 3, 3),)])
def sigmoid(xp, input):
    """1 / (1 + e ** -input).  input (*) -> (*)."""
    return logistic(xp, input)


# --- rectifiers


def between(xp, x, low, high):
    """A float array limited to [low, high]; nan stays."""
    if xp is np and x.dtype in _NATIVE and _clip is not None:
        bounds = _bound(low, x.dtype), _bound(high, x.dtype)
        if type(x) is ChannelsLast:  # numpy is slower on a class of its own
            return _clip(x.view(np.ndarray), *bounds).view(ChannelsLast)
        return _clip(x, *bounds)
    kind = x.dtype.type
    if x.size < _FEW:
        return xp.minimum(xp.maximum(x, kind(low)), kind(high))
    return xp.clip(x, kind(low), kind(high))


def over(xp, x):
    """max(x, 0) of a float array; nan stays."""
    return between(xp, x, 0, math.inf)


def under(xp, x):
    """min(x, 0) of a float array; nan stays."""
    return between(xp, x, -math.inf, 0)


@op(**PRIVATE, channels_last=True, blocks="elements", generated="some")
@derivative(
    grad_output=lambda grad, output, threshold: threshold_backward(grad, output, threshold),
    output=lambda grad: zeros_of(grad),
)
@samples(lambda t: [(t(3, 4), t.constant(t(3, 4)), 0), (t(), t.constant(t()), 0.5)])
def threshold_backward(xp, grad_output, output, threshold):
    """grad_output where output > threshold, else 0.  grad_output (*), output (*) -> (*)."""
    return choose(xp, output <= threshold, grad_output.dtype.type(0), grad_output)


@op(inplace=True, channels_last=True, blocks="elements", direct=True, generated="one", keeps_zero=True)
@derivative(input=lambda grad, result: threshold_backward(grad, result, 0))
@array_derivative(input=quickly(threshold_backward, lambda grad, result: np.where(result <= 0, 0, grad), 0))
@samples(lambda t: [(t.distinct(3, 4),), (t.distinct(),), (t(0, 2),), (t.integers(-3, 3, 4),)])
def relu(xp, input):
    """max(input, 0); gradient 0 at 0.  input (*) -> (*)."""
    kind = input.dtype.kind
    if kind == "b":
        raise RuntimeError("Boolean inputs not supported for relu")
    if kind == "c":
        raise NotImplementedError("clamp is not supported for complex types")
    return over(xp, input) if kind == "f" else xp.maximum(input, 0)


@op(inplace=True, method=False, not_tensors=("value",), refuse="bc", blocks="elements", generated="some")
@derivative(input=lambda grad, input, threshold: threshold_backward(grad, input, threshold))
@samples(lambda t: [(t.distinct(3, 4), 0.1, 20), (t.distinct(), -0.2, 3.0), (t(0, 2), 0, 0)])
def threshold(xp, input, threshold: complex, value: complex):
    """input where it is above `threshold`, else `value`.  input (*) -> (*)."""
    limit = number_for(threshold, input.dtype)
    return choose(xp, input <= limit, input.dtype.type(value), input)


@op(**PRIVATE, half=True, channels_last=True, large=_OFTEN, blocks="elements", generated="one")
@derivative(
    grad_output=lambda grad, input, negative_slope: leaky_relu_backward(grad, input, negative_slope),
    input=lambda grad: zeros_of(grad),
)
@samples(lambda t: [(t(3, 4), t.constant(t(3, 4)), 0.1)])
def leaky_relu_backward(xp, grad_output, input, negative_slope):
    """grad_output, times `negative_slope` where input <= 0.  grad_output (*), input (*) -> (*)."""
    return xp.where(input > 0, grad_output, grad_output * negative_slope)


@op(
    inplace=True,
    **PRIVATE,
    half=True,
    refuse="iubc",
    channels_last=True,
    large=1 << 14,
    blocks="elements",
    generated="one",
)
@derivative(input=lambda grad, input, negative_slope: leaky_relu_backward(grad, input, negative_slope))
@samples(lambda t: [(t.distinct(3, 4),), (t.distinct(), 0.2), (t(0, 2),)])
def leaky_relu(xp, input, negative_slope: complex = 0.01):
    """input where positive, else negative_slope * input.  input (*) -> (*)."""
    if 0 < negative_slope <= 1:
        return xp.maximum(input, input * negative_slope)
    return xp.where(input > 0, input, input * negative_slope)


def _prelu_shape(input: Tensor, weight: Tensor) -> tuple[int, ...]:
    """The shape in which `weight` (one per channel, or one for all) broadcasts over `input`."""
    if weight._array.ndim == 0:
        return ()
    if weight._array.ndim != 1:
        raise RuntimeError(
            f"prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {weight._array.ndim}"
        )
    count = weight._array.shape[0]
    if count != 1:
        if not input._array.ndim:
            raise RuntimeError("Not allow zero-dim input tensor.")
        channels = input._array.shape[1] if input._array.ndim > 1 else 1
        if channels != count:
            raise RuntimeError(
                f"Mismatch of parameter numbers and input channel size. Found parameter numbers = {count} and channel "
                f"size = {channels}."
            )
    ndim = input._array.ndim
    return (1, count, *[1] * (ndim - 2)) if ndim > 1 else (count,) if ndim else ()


def _prelu_twin(grad: Tensor, input: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    above = input > 0
    zero = zeros_of(grad)
    return grad.where(above, grad * weight), zero.where(above, grad * input).sum_to_size(weight.shape)


@op(**PRIVATE, out=False, half=True, returns=("input", "weight"), why=WHY, large=1 << 8, generated="many")
@joint_derivative(
    "grad_output",
    "input",
    "weight",
    by=lambda grads, grad_output, input, weight, needs: vjp(_prelu_twin, (grad_output, input, weight), grads, needs),
)
def prelu_backward(xp, grad_output, input, weight):
    """The gradients of prelu_kernel.  grad_output, input (*), weight (broadcasts) -> (*), as weight."""
    above = xp.greater(input, 0)
    of_input = choose(xp, above, grad_output, xp.multiply(grad_output, weight))
    each = xp.multiply(grad_output, input)
    each = choose(xp, above, each.dtype.type(0), each)
    lead = each.ndim - weight.ndim
    axes = tuple([d for d, n in enumerate(each.shape) if d < lead or (weight.shape[d - lead] == 1 != n)])
    return of_input, xp.asarray(summed(each, axes) if axes else each).reshape(weight.shape)


@op(broadcast=True, **PRIVATE, half=True, large=1 << 11, generated="many")
@joint_derivative("input", "weight", by=lambda grad, input, weight: prelu_backward(grad, input, weight))
@samples(lambda t: [(t.distinct(3, 4), t(1, 4)), (t.distinct(3), t(1)), (t.distinct(4, 2), t.uniform(1, 3, 1, 2))])
def prelu_kernel(xp, input, weight):
    """input where positive, else weight * input.  input (*), weight (broadcasts) -> (*)."""
    count = weight.size
    if (
        weight.__class__ is np.ndarray
        and weight.dtype in _NATIVE
        and (count == 1 or _SOME <= input.size > 4 * count > 0)
    ):
        least, most = (weight.item(),) * 2 if count == 1 else (weight.min(), weight.max())
        scaled = xp.multiply(input, weight)
        if least > 0 and most <= 1:
            return xp.maximum(input, scaled)
        if least >= 1 and most < math.inf:
            return xp.minimum(input, scaled)
        if -math.inf < least and most < math.inf:
            return xp.add(over(xp, input), xp.multiply(under(xp, input), weight))
    return choose(xp, input > 0, input, xp.multiply(input, weight))


@composite(autocast="lower")
@samples(lambda t: [(t.distinct(2, 3, 4), t(3)), (t.distinct(3), t(1)), (t.distinct(), t())])
def prelu(input: Tensor, weight: Tensor):
    """input where positive, else weight * input, one weight a channel or one for all.

    input (N, C, *), weight (C) -> (N, C, *).
    """
    if input.dtype is not weight.dtype:
        raise RuntimeError(
            f"prelu: Type promoting not supported. Got {dtypes.cpp_name(input.dtype)} and "
            f"{dtypes.cpp_name(weight.dtype)}"
        )
    array, factors = input._array, weight._array
    refuse("prelu_cpu", array, "iubc")
    if factors.shape == (1,) and array.ndim and not (mode.enabled and weight.requires_grad):
        return prelu_kernel(input, weight)  # torch's graph shows how it is reshaped
    return prelu_kernel(input, weight.reshape(_prelu_shape(input, weight)))


@composite(draws=True, elementwise=True)
def rrelu(input: Tensor, lower: complex = 1.0 / 8, upper: complex = 1.0 / 3, training: bool = False, generator=None):
    """leaky_relu with slopes drawn from [lower, upper] in training, their mean otherwise.  input (*) -> (*)."""
    if lower > upper:
        raise RuntimeError("Lower bound should be less than or equal to the upper bound")
    if not training:
        return leaky_relu(input, (lower + upper) / 2)
    slopes = input.detach().clone().uniform_(lower, upper, generator=generator)
    return name_node(prelu_kernel(input, slopes), "RreluWithNoiseBackward0")


@composite(public=True)
def rrelu_(input: Tensor, lower: complex = 1.0 / 8, upper: complex = 1.0 / 3, training: bool = False, generator=None):
    """In place: see `rrelu`."""
    if not training:
        return leaky_relu_(input, (lower + upper) / 2)
    slopes = input.detach().clone().uniform_(lower, upper, generator=generator)
    input.mul_(slopes.where(input.detach() <= 0, slopes * 0 + 1))
    return name_node(input, "RreluWithNoiseBackward1")


leaky_relu_ = leaky_relu.op.inplace_function
threshold_ = threshold.op.inplace_function


# --- smooth gates


@op(**PRIVATE, half=True, channels_last=True, large=_OFTEN, blocks="elements", generated="many")
@derivative(
    grad_output=lambda grad, input: silu_backward(grad, input),
    input=lambda grad, grad_output, input: grad * grad_output * _silu_curve(input),
)
@samples(lambda t: [(t(3, 4), t(3, 4)), (t(), t())])
def silu_backward(xp, grad_output, input):
    """grad_output * s * (1 + input * (1 - s)), s = sigmoid(input).  grad_output (*), input (*) -> (*)."""
    s = logistic(xp, input)
    return grad_output * (s * (1 + input * (1 - s)))


def _silu_curve(x: Tensor) -> Tensor:
    s = sigmoid(x)
    return s * (1 - s) * (2 + x * (1 - s * 2))


@op(inplace=True, **PRIVATE, half=True, channels_last=True, large=_OFTEN, blocks="elements", generated="many")
@derivative(input=lambda grad, input: silu_backward(grad, input))
@samples(lambda t: [(t(3, 4),), (t(),), (t(0, 2),)])
def silu(xp, input):
    """input * sigmoid(input).  input (*) -> (*)."""
    _floats_only("silu_cpu", input)
    return xp.multiply(input, logistic(xp, input))


def softplus_of(xp, x):
    """log(1 + e ** x) of an array, without overflow."""
    found = xp.negative(xp.absolute(x))
    found = xp.log1p(xp.exp(found))
    return xp.add(found, over(xp, x))


@op(**PRIVATE, half=True, channels_last=True, large=64, blocks="elements", generated="many")
@derivative(
    grad_output=lambda grad, input: mish_backward(grad, input),
    input=lambda grad, grad_output, input: grad * grad_output * _mish_curve(input),
)
@samples(lambda t: [(t(3, 4), t(3, 4)), (t(), t())])
def mish_backward(xp, grad_output, input):
    """The gradient of `mish`.  grad_output (*), input (*) -> (*)."""
    e, gate, rest = _mish_gate(xp, input)
    slope = e + 1  # of the gate: 4 e (e + 1) / (e (e + 2) + 2) ** 2
    slope *= e
    slope *= 4
    slope /= rest
    slope /= rest
    slope *= xp.clip(input, -math.inf, _MISH_LINEAR)
    slope += gate
    return xp.multiply(grad_output, slope)


_MISH_LINEAR = 20.0  # above, the gate is 1


def _mish_gate(xp, x):
    """e ** x, tanh(softplus(x)) = n / (n + 2) with n = e ** x (e ** x + 2), and n + 2."""
    e = xp.exp(xp.clip(x, -math.inf, _MISH_LINEAR))
    gate = e + 2
    gate *= e
    rest = gate + 2
    gate /= rest
    return e, gate, rest


def _mish_curve(x: Tensor) -> Tensor:
    s = sigmoid(x)
    gate = tanh(softplus(x))
    slope = (1 - gate * gate) * s  # the derivative of the gate
    return slope * 2 + x * (slope * (1 - s) - gate * slope * s * 2)


@op(inplace=True, **PRIVATE, half=True, refuse="iubc", channels_last=True, blocks="elements", generated="many")
@derivative(input=lambda grad, input: mish_backward(grad, input))
@samples(lambda t: [(t(3, 4),), (t(),), (t(0, 2),)])
def mish(xp, input):
    """input * tanh(softplus(input)) (https://arxiv.org/abs/1908.08681).  input (*) -> (*)."""
    return xp.multiply(input, _mish_gate(xp, input)[1])


ROOT_2_OVER_PI = math.sqrt(2 / math.pi)
CUBIC = 0.044715


def _check_gelu(input: Any, approximate: str) -> bool:
    if approximate not in ("none", "tanh"):
        raise RuntimeError("approximate argument must be either none or tanh.")
    return approximate == "tanh"


def _gelu_curve(x: Tensor, approximate: str) -> Tensor:
    """The second derivative of gelu."""
    if approximate == "none":
        return (x * x * -0.5).exp() * (2 - x * x) * (1 / math.sqrt(2 * math.pi))
    square = x * x
    gate = tanh((x + square * x * CUBIC) * ROOT_2_OVER_PI)
    inner = (1 + square * (3 * CUBIC)) * ROOT_2_OVER_PI  # of the argument
    sech = 1 - gate * gate
    return sech * inner + x * 0.5 * (sech * (x * (6 * CUBIC * ROOT_2_OVER_PI)) - gate * sech * inner * inner * 2)


@op(**PRIVATE, half=True, channels_last=True, large=16, blocks="elements", generated="many")
@derivative(
    grad_output=lambda grad, input, approximate: gelu_backward(grad, input, approximate),
    input=lambda grad, grad_output, input, approximate: grad * grad_output * _gelu_curve(input, approximate),
)
@samples(lambda t: [(t(3, 4), t(3, 4), "none"), (t(3), t(3), "tanh")])
def gelu_backward(xp, grad_output, input, approximate):
    """The gradient of `gelu`.  grad_output (*), input (*) -> (*)."""
    if approximate == "tanh":
        square = input * input
        gate = xp.tanh((input + square * input * CUBIC) * ROOT_2_OVER_PI)
        inner = (1 + square * (3 * CUBIC)) * ROOT_2_OVER_PI
        return grad_output * (0.5 * (1 + gate) + 0.5 * input * (1 - gate * gate) * inner)
    below = 0.5 * (1 + erf_of(xp, input * math.sqrt(0.5)))
    return grad_output * (below + input * xp.exp(input * input * -0.5) * (1 / math.sqrt(2 * math.pi)))


@op(
    inplace=True, **PRIVATE, half=True, refuse="iubc", label="GeluKernelImpl", channels_last=True, large=16,
    blocks="elements",
    generated="many",)  # fmt: skip
@derivative(input=lambda grad, input, approximate: gelu_backward(grad, input, approximate))
@samples(lambda t: [(t(3, 4),), (t(3), {"approximate": "tanh"}), (t(),), (t(0, 2),)])
def gelu(xp, input, *, approximate: str = "none"):
    """input times the normal distribution function, or its tanh approximation (https://arxiv.org/abs/1606.08415).

    input (*) -> (*).
    """
    if _check_gelu(input, approximate):
        inner = (input + input * input * input * CUBIC) * ROOT_2_OVER_PI
        return input * (xp.tanh(inner) + 1) * 0.5
    found = erf_of(xp, input * math.sqrt(0.5))
    found += 1
    found *= input
    found *= 0.5
    return found


@op(**PRIVATE, half=True, channels_last=True, large=1 << 10, blocks="elements", generated="many")
@derivative(
    grad_output=lambda grad, input, beta, threshold: softplus_backward(grad, input, beta, threshold),
    input=lambda grad, grad_output, input, beta, threshold: keep_where(
        sigmoid_backward(grad * grad_output, sigmoid(input * beta)) * beta,
        input * beta <= threshold,
    ),
)
@samples(lambda t: [(t(3, 4), t(3, 4), 1, 20), (t(3), t.distinct(3), 2.0, 0.02)])
def softplus_backward(xp, grad_output, input, beta, threshold):
    """grad_output * sigmoid(beta * input), 1 above `threshold`.  grad_output (*), input (*) -> (*)."""
    scaled = input * beta
    return xp.where(scaled > threshold, grad_output, grad_output * logistic(xp, scaled))


@op(
    **PRIVATE,
    half=True,
    refuse="iubc",
    channels_last=True,
    blocks="elements",
    generated="many",
    autocast={"cuda": "float32"},
)
@derivative(input=lambda grad, input, beta, threshold: softplus_backward(grad, input, beta, threshold))
@samples(lambda t: [(t(3, 4),), (t.distinct(3), 2.0, 0.02), (t(),), (t(0, 2),)])
def softplus(xp, input, beta: complex = 1, threshold: complex = 20):
    """log(1 + exp(beta * input)) / beta, input itself where beta * input > threshold.  input (*) -> (*)."""
    scaled = input if beta == 1 else input * beta
    found = softplus_of(xp, scaled)
    if beta != 1:
        found = found / beta
    elif threshold >= 40 or (threshold >= 20 and input.dtype.itemsize == 4):
        return found  # equal to the input above the threshold
    return xp.where(scaled > threshold, input, found)


@op(
    **PRIVATE,
    half=True,
    refuse="iubc",
    label="log_sigmoid_cpu",
    node="LogSigmoidBackward0",
    blocks="elements",
    generated="many",
)
@derivative(input=lambda grad, input: softplus_backward(grad, input, -1, math.inf))
@samples(lambda t: [(t(3, 4),), (t(),), (t(0, 2),)])
def logsigmoid(xp, input):
    """log(sigmoid(input)), stable at both ends.  input (*) -> (*)."""
    found = xp.negative(xp.absolute(input))
    found = xp.log1p(xp.exp(found))
    return xp.subtract(under(xp, input), found)


@composite(**PRIVATE, elementwise=True)
@samples(lambda t: [(t.distinct(3, 4),), (t(),)])
def softsign(input):
    """input / (1 + |input|).  input (*) -> (*)."""
    return input / (input.abs() + 1)


@composite(**PRIVATE, elementwise=True)
@samples(lambda t: [(t(3, 4),), (t(),)])
def tanhshrink(input):
    """input - tanh(input).  input (*) -> (*)."""
    return input - tanh(input)


# --- piecewise linear


def beyond(xp, values, x, low, high):
    """values where x < low, x > high or x is nan; else 0."""
    if (
        low == -high <= 0 and x.__class__ is np.ndarray and values.__class__ is np.ndarray and x.ndim
        and x.dtype in _NATIVE and (values is x or (values.dtype == x.dtype and values.shape == x.shape))
    ):  # fmt: skip
        return outside(values, x, high) if xp is np else xp.outside(values, x, high)
    return choose(xp, (x >= low) & (x <= high), values.dtype.type(0), values)


@op(**PRIVATE, half=True, channels_last=True, large=_OFTEN, blocks="elements", generated="some")
@derivative(
    grad_output=lambda grad, input, low, high, slope: inside_backward(grad, input, low, high, slope),
    input=lambda grad: zeros_of(grad),
)
@samples(lambda t: [(t(3, 4), t.constant(t(3, 4)), -0.5, 0.5, 0.3)])
def inside_backward(xp, grad_output, input, low, high, slope):
    """slope * grad_output where low < input < high, else 0.  grad_output (*), input (*) -> (*)."""
    value = grad_output if slope == 1 else grad_output * slope
    return xp.where((input <= low) | (input >= high), grad_output.dtype.type(0), value)


@op(**PRIVATE, half=True, channels_last=True, blocks="elements", generated="some")
@derivative(
    grad_output=lambda grad, input, low, high: outside_backward(grad, input, low, high),
    input=lambda grad: zeros_of(grad),
)
@samples(lambda t: [(t(3, 4), t.constant(t(3, 4)), -0.5, 0.5)])
def outside_backward(xp, grad_output, input, low, high):
    """grad_output where input < low or input > high, else 0.  grad_output (*), input (*) -> (*)."""
    return beyond(xp, grad_output, input, low, high)


@op(inplace=True, **PRIVATE, half=True, channels_last=True, blocks="elements", generated="one")
@derivative(input=lambda grad, input, min_val, max_val: inside_backward(grad, input, min_val, max_val, 1))
@samples(lambda t: [(t.distinct(3, 4),), (t.distinct(3, 4), -0.2, 0.33), (t.distinct(),), (t(0, 2),)])
def hardtanh(xp, input, min_val: complex = -1.0, max_val: complex = 1.0):
    """input limited to [min_val, max_val]; gradient 0 at the bounds.  input (*) -> (*)."""
    if input.dtype.kind == "b":
        raise RuntimeError("Bool inputs not supported for hardtanh")
    if input.dtype.kind == "c":
        raise NotImplementedError("clamp is not supported for complex types")
    if min_val > max_val:
        raise ValueError("min_val cannot be greater than max_val")
    if input.dtype.kind == "f":
        return between(xp, input, min_val, max_val)
    return xp.minimum(xp.maximum(input, input.dtype.type(min_val)), input.dtype.type(max_val))


@composite(**PRIVATE, elementwise=True)
@samples(lambda t: [(t.uniform(-9, 9, 3, 4),)])
def relu6(input: Tensor):
    """input limited to [0, 6].  input (*) -> (*)."""
    return hardtanh(input, 0.0, 6.0)


@op(
    inplace=True,
    **PRIVATE,
    half=True,
    refuse="iubc",
    channels_last=True,
    large=1 << 15,
    blocks="elements",
    generated="some",
)
@derivative(input=lambda grad, input: inside_backward(grad, input, -3, 3, 1 / 6))
@samples(lambda t: [(t.uniform(-5, 5, 3, 4),), (t(),), (t(0, 2),)])
def hardsigmoid(xp, input):
    """input / 6 + 1 / 2 limited to [0, 1].  input (*) -> (*)."""
    return between(xp, input + 3, 0, 6) / 6


@op(**PRIVATE, half=True, channels_last=True, large=_OFTEN, blocks="elements", generated="many")
@derivative(
    grad_output=lambda grad, input: hardswish_backward(grad, input),
    input=lambda grad, grad_output, input: inside_backward(grad * grad_output, input, -3, 3, 1 / 3),
)
@samples(lambda t: [(t(3, 4), t.uniform(-5, 5, 3, 4))])
def hardswish_backward(xp, grad_output, input):
    """The gradient of `hardswish`.  grad_output (*), input (*) -> (*)."""
    zero = grad_output.dtype.type(0)
    return xp.where(input <= -3, zero, xp.where(input < 3, grad_output * (input / 3 + 0.5), grad_output))


@op(
    inplace=True,
    **PRIVATE,
    half=True,
    refuse="iubc",
    channels_last=True,
    large=_OFTEN,
    blocks="elements",
    generated="many",
)
@derivative(input=lambda grad, input: hardswish_backward(grad, input))
@samples(lambda t: [(t.uniform(-5, 5, 3, 4),), (t(),), (t(0, 2),)])
def hardswish(xp, input):
    """input * relu6(input + 3) / 6 (https://arxiv.org/abs/1905.02244).  input (*) -> (*)."""
    found = xp.multiply(input, between(xp, input + 3, 0, 6))
    return xp.true_divide(found, 6)


@op(half=True, refuse="iubc", blocks="elements", generated="some")
@derivative(input=lambda grad, input, lambd: outside_backward(grad, input, -lambd, lambd))
@samples(lambda t: [(t(3, 4),), (t(3), 0.2), (t(),), (t(0, 2),)])
def hardshrink(xp, input, lambd: complex = 0.5):
    """input where |input| > lambd, else 0.  input (*) -> (*)."""
    return beyond(xp, input, input, -lambd, lambd)


@op(**PRIVATE, half=True, refuse="iubc", label="softshrink_check", blocks="elements", generated="some")
@derivative(input=lambda grad, input, lambd: outside_backward(grad, input, -lambd, lambd))
@samples(lambda t: [(t(3, 4),), (t(3), 0.2), (t(),), (t(0, 2),)])
def softshrink(xp, input, lambd: complex = 0.5):
    """input moved towards 0 by `lambd`, 0 where it is nearer.  input (*) -> (*)."""
    _floats_only("softshrink_cpu", input)
    if lambd < 0:
        kind = dtypes.from_numpy(input.dtype)
        raise RuntimeError(
            f"lambda must be in range [0, {dtypes.finfo(kind).max:g}] for input dtype {dtypes.scalar_name(kind)}, but "
            f"found {lambd:g}"
        )
    found = between(xp, input, -lambd, lambd)
    return xp.subtract(input, found, out=found) if xp is np and input.ndim else xp.subtract(input, found)


gelu_ = gelu.op.inplace_function
hardsigmoid_ = hardsigmoid.op.inplace_function
hardswish_ = hardswish.op.inplace_function
hardtanh_ = hardtanh.op.inplace_function
mish_ = mish.op.inplace_function
relu_ = relu.op.inplace_function
silu_ = silu.op.inplace_function
