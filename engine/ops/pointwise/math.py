"""Elementwise mathematics: exponentials, logarithms, trigonometry, rounding, signs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from engine.autograd.versions import guard, own
from engine.dispatch import array_derivative, derivative, kernel, op, samples
from engine.ops.pointwise.arithmetic import conj_if_complex as _conj
from engine.ops.pointwise.arithmetic import (
    keep_where,
    no_derivative,
    not_implemented,
    one_edge,
    refuse,
    zeros_of,
)
from engine.tensor import Tensor

LN2, LN10 = math.log(2), math.log(10)

# --- exponentials and logarithms


@op(
    promote="float",
    inplace=True,
    channels_last=True,
    blocks="elements",
    direct=True,
    generated="some",
    autocast={"cuda": "float32"},
    float16_in_numpy=True,
)
@derivative(input=lambda grad, result: grad * _conj(result))
@array_derivative()
@samples(lambda t: [(t(3, 4),), (t(),), (t(0, 2),), (t.complex(3),), (t.integers(-2, 3, 3),)])
def exp(xp, input):
    """e ** input.  input (*) -> (*)."""
    return xp.exp(input)


@op(promote="float", inplace=True, names=("special_exp2",), blocks="elements", generated="some", float16_in_numpy=True)
@derivative(input=lambda grad, result: grad * (_conj(result) * LN2))
@samples(lambda t: [(t(3, 4),), (t(),), (t(0, 2),)])
def exp2(xp, input):
    """2 ** input.  input (*) -> (*)."""
    return xp.exp2(input)


@op(
    promote="float",
    inplace=True,
    blocks="elements",
    generated="some",
    autocast={"cuda": "float32"},
    float16_in_numpy=True,
    keeps_zero=True,
)
@derivative(input=lambda grad, result: grad * (_conj(result) + 1))
@samples(lambda t: [(t(3, 4),), (t(),), (t(0, 2),), (t.complex(3),)])
def expm1(xp, input):
    """e ** input - 1, accurate near 0.  input (*) -> (*)."""
    return xp.expm1(input)


@op(
    promote="float",
    inplace=True,
    blocks="elements",
    direct=True,
    generated="some",
    autocast={"cuda": "float32"},
    float16_in_numpy=True,
)
@derivative(input=lambda grad, input: grad / _conj(input))
@array_derivative()
@samples(
    lambda t: [
        (t.positive(3, 4),),
        (t.positive(),),
        (t(0, 2),),
        (t.complex(3),),
        (t.integers(1, 9, 3),),
    ]
)
def log(xp, input):
    """The natural logarithm; nan for negative input.  input (*) -> (*)."""
    return xp.log(input)


@op(
    promote="float",
    inplace=True,
    blocks="elements",
    generated="some",
    autocast={"cuda": "float32"},
    float16_in_numpy=True,
)
@derivative(input=lambda grad, input: grad / (_conj(input) * LN2))
@samples(lambda t: [(t.positive(3, 4),), (t.positive(),), (t(0, 2),), (t.complex(3),)])
def log2(xp, input):
    """The logarithm to base 2.  input (*) -> (*)."""
    return xp.log2(input)


@op(
    promote="float",
    inplace=True,
    blocks="elements",
    generated="some",
    autocast={"cuda": "float32"},
    float16_in_numpy=True,
)
@derivative(input=lambda grad, input: grad / (_conj(input) * LN10))
@samples(lambda t: [(t.positive(3, 4),), (t.positive(),), (t(0, 2),), (t.complex(3),)])
def log10(xp, input):
    """The logarithm to base 10.  input (*) -> (*)."""
    return xp.log10(input)


@op(
    promote="float",
    inplace=True,
    node="Log1PBackward0",
    blocks="elements",
    generated="some",
    autocast={"cuda": "float32"},
    float16_in_numpy=True,
    keeps_zero=True,
)
@derivative(input=lambda grad, input: grad / (_conj(input) + 1))
@samples(lambda t: [(t.positive(3, 4),), (t.uniform(-0.5, 0.5),), (t(0, 2),), (t.complex(3),)])
def log1p(xp, input):
    """log(1 + input), accurate near 0.  input (*) -> (*)."""
    return xp.log1p(input)


# --- trigonometry


@op(
    promote="float",
    inplace=True,
    blocks="elements",
    direct=True,
    generated="some",
    float16_in_numpy=True,
    keeps_zero=True,
)
@derivative(input=lambda grad, input: grad * _conj(input.cos()))
@array_derivative(input=lambda grad, input: grad * np.cos(input))
@samples(lambda t: [(t(3, 4),), (t(),), (t(0, 2),), (t.complex(3),)])
def sin(xp, input):
    """The sine; input in radians (*) -> (*)."""
    return xp.sin(input)


@op(promote="float", inplace=True, blocks="elements", direct=True, generated="some", float16_in_numpy=True)
@derivative(input=lambda grad, input: grad * -_conj(input.sin()))
@array_derivative(input=lambda grad, input: grad * -np.sin(input))
@samples(lambda t: [(t(3, 4),), (t(),), (t(0, 2),), (t.complex(3),)])
def cos(xp, input):
    """The cosine; input in radians (*) -> (*)."""
    return xp.cos(input)


def _of_float32(public: Any) -> None:
    """Give an op the kernel of engine/ops/generated/angles.py."""

    @kernel(public, "cpu")
    def _(xp, input):
        from engine.ops.generated import angles  # for the weight: few programs ask

        return getattr(angles, public.__name__)(xp, input)


for _public in (sin, cos):
    _of_float32(_public)


@op(
    promote="float",
    inplace=True,
    blocks="elements",
    autocast={"cuda": "float32"},
    float16_in_numpy=True,
    keeps_zero=True,
)
@derivative(input=lambda grad, result: grad * _conj(result * result + 1))
@samples(lambda t: [(t.uniform(-1.2, 1.2, 3, 4),), (t.uniform(-1, 1),), (t(0, 2),), (t.complex(3),)])
def tan(xp, input):
    """The tangent; input in radians (*) -> (*)."""
    return xp.tan(input)


@op(
    promote="float",
    inplace=True,
    names=("arcsin",),
    blocks="elements",
    autocast={"cuda": "float32"},
    float16_in_numpy=True,
    keeps_zero=True,
)
@derivative(input=lambda grad, input: grad * _conj((1 - input * input).rsqrt()))
@samples(lambda t: [(t.uniform(-0.9, 0.9, 3, 4),), (t.uniform(-0.9, 0.9),), (t(0, 2),), (t.complex(3),)])
def asin(xp, input):
    """The arc sine in radians; nan outside [-1, 1].  input (*) -> (*)."""
    return xp.arcsin(input)


@op(
    promote="float",
    inplace=True,
    names=("arccos",),
    blocks="elements",
    autocast={"cuda": "float32"},
    float16_in_numpy=True,
)
@derivative(input=lambda grad, input: grad * -_conj((1 - input * input).rsqrt()))
@samples(lambda t: [(t.uniform(-0.9, 0.9, 3, 4),), (t.uniform(-0.9, 0.9),), (t(0, 2),), (t.complex(3),)])
def acos(xp, input):
    """The arc cosine in radians; nan outside [-1, 1].  input (*) -> (*)."""
    return xp.arccos(input)


@op(promote="float", inplace=True, names=("arctan",), blocks="elements", float16_in_numpy=True, keeps_zero=True)
@derivative(input=lambda grad, input: grad / _conj(input * input + 1))
@samples(lambda t: [(t(3, 4),), (t(),), (t(0, 2),), (t.complex(3),)])
def atan(xp, input):
    """The arc tangent in radians.  input (*) -> (*)."""
    return xp.arctan(input)


def _per_square(y: Tensor, x: Tensor) -> Tensor:
    """1 / (x^2 + y^2), 0 where both are 0."""
    size = y * y + x * x
    return keep_where(size.reciprocal(), size != 0)


@op(broadcast=True, promote="float", inplace=True, names=("arctan2",), numbers=())
@derivative(
    input=lambda grad, input, other: grad * other * _per_square(input, other),
    other=lambda grad, input, other: grad * -input * _per_square(input, other),
)
@samples(lambda t: [(t(3, 4), t(3, 4)), (t(2, 1), t(3)), (t(), t()), (t(0), t(0))])
def atan2(xp, input, other):
    """The angle of the point (other, input), in (-pi, pi].  input (*a), other (*b) -> (broadcast of a and b)."""
    return xp.arctan2(input, other)


@op(
    promote="float",
    inplace=True,
    blocks="elements",
    autocast={"cuda": "float32"},
    float16_in_numpy=True,
    keeps_zero=True,
)
@derivative(input=lambda grad, input: grad * _conj(input.cosh()))
@samples(lambda t: [(t(3, 4),), (t(),), (t(0, 2),), (t.complex(3),)])
def sinh(xp, input):
    """The hyperbolic sine.  input (*) -> (*)."""
    return xp.sinh(input)


@op(promote="float", inplace=True, blocks="elements", autocast={"cuda": "float32"}, float16_in_numpy=True)
@derivative(input=lambda grad, input: grad * _conj(input.sinh()))
@samples(lambda t: [(t(3, 4),), (t(),), (t(0, 2),), (t.complex(3),)])
def cosh(xp, input):
    """The hyperbolic cosine.  input (*) -> (*)."""
    return xp.cosh(input)


@op(
    node={"_inplace": "AsinhBackward1"},
    promote="float",
    inplace=True,
    names=("arcsinh",),
    blocks="elements",
    float16_in_numpy=True,
    keeps_zero=True,
)
@derivative(input=lambda grad, input: grad * _conj((input * input + 1).rsqrt()))
@samples(lambda t: [(t(3, 4),), (t(),), (t(0, 2),), (t.complex(3),)])
def asinh(xp, input):
    """The inverse hyperbolic sine.  input (*) -> (*)."""
    return xp.arcsinh(input)


def _acosh_slope(x: Tensor) -> Tensor:
    if x._array.dtype.kind == "c":
        return (x - 1).rsqrt() * (x + 1).rsqrt()
    return (x * x - 1).rsqrt()


@op(
    node={"_inplace": "AcoshBackward1"},
    promote="float",
    inplace=True,
    names=("arccosh",),
    blocks="elements",
    float16_in_numpy=True,
)
@derivative(input=lambda grad, input: grad * _conj(_acosh_slope(input)))
@samples(lambda t: [(t.uniform(1.2, 3, 3, 4),), (t.uniform(1.2, 3),), (t(0, 2),)])
def acosh(xp, input):
    """The inverse hyperbolic cosine; nan below 1.  input (*) -> (*)."""
    return xp.arccosh(input)


@op(
    node={"_inplace": "AtanhBackward1"},
    promote="float",
    inplace=True,
    names=("arctanh",),
    blocks="elements",
    float16_in_numpy=True,
    keeps_zero=True,
)
@derivative(input=lambda grad, input: own(grad) / _conj(1 - input * input))
@samples(lambda t: [(t.uniform(-0.9, 0.9, 3, 4),), (t.uniform(-0.9, 0.9),), (t(0, 2),), (t.complex(3),)])
def atanh(xp, input):
    """The inverse hyperbolic tangent; nan outside [-1, 1].  input (*) -> (*)."""
    return xp.arctanh(input)


def _real_only(name: str, input: Any) -> None:
    if input.dtype.kind == "c":
        raise RuntimeError(f"{name} is not supported for complex tensors.")


@op(
    promote="float",
    inplace=True,
    half=True,
    node="Deg2RadBackward0",
    blocks="elements",
    keeps_zero=True,
    generated="one",
)
@derivative(input=lambda grad: grad * (math.pi / 180))
@samples(lambda t: [(t(3, 4),), (t(),), (t(0, 2),), (t.integers(-90, 90, 3),)])
def deg2rad(xp, input):
    """Degrees as radians.  input (*) -> (*)."""
    _real_only("deg2rad", input)
    return xp.multiply(input, input.dtype.type(math.pi / 180))


@op(
    promote="float",
    inplace=True,
    half=True,
    node="Rad2DegBackward0",
    blocks="elements",
    keeps_zero=True,
    generated="one",
)
@derivative(input=lambda grad: grad * (180 / math.pi))
@samples(lambda t: [(t(3, 4),), (t(),), (t(0, 2),), (t.integers(-3, 3, 3),)])
def rad2deg(xp, input):
    """Radians as degrees.  input (*) -> (*)."""
    _real_only("rad2deg", input)
    return xp.multiply(input, input.dtype.type(180 / math.pi))


def _sinc_backward(grad: Tensor, input: Tensor) -> Tensor:
    x = input * math.pi
    return keep_where(grad * _conj((x * x.cos() - x.sin()) / (x * input)), input != 0)


@op(promote="float", inplace=True, half=True, blocks="elements")
@derivative(input=_sinc_backward)
@samples(lambda t: [(t.distinct(3, 4),), (t(),), (t(0, 2),)])
def sinc(xp, input):
    """sin(pi input) / (pi input), 1 at 0.  input (*) -> (*)."""
    x = xp.multiply(input, input.dtype.type(math.pi))
    return xp.where(input == 0, input.dtype.type(1), xp.true_divide(xp.sin(x), x))


# --- pairs


@op(broadcast=True, inplace=True, numbers=(), half=True, generated="one")
@derivative(
    input=lambda grad, input, result: grad * (input / result),
    other=lambda grad, other, result: grad * (other / result),
)
@samples(lambda t: [(t(3, 4), t(3, 4)), (t(2, 1), t(3)), (t(), t()), (t(0), t(0))])
def hypot(xp, input, other):
    """sqrt(input ** 2 + other ** 2) without overflow.  input (*a), other (*b) -> (broadcast of a and b)."""
    if input.dtype.kind in "iubc":
        raise not_implemented("hypot_cpu", input)
    return xp.hypot(input, other)


@op(broadcast=True, inplace=False, numbers=(), half=True, generated="many")
@derivative(
    input=lambda grad, input, other: grad / _conj(1 + (other - input).exp()),
    other=lambda grad, input, other: grad / _conj(1 + (input - other).exp()),
)
@samples(lambda t: [(t(3, 4), t(3, 4)), (t(2, 1), t(3)), (t(), t()), (t(0), t(0))])
def logaddexp(xp, input, other):
    """log(exp(input) + exp(other)) without overflow.  input (*a), other (*b) -> (broadcast of a and b)."""
    if input.dtype.kind in "iub":
        raise not_implemented("logaddexp_cpu", input)
    if input.dtype.kind == "c":
        first, second = (
            xp.where(input.real < other.real, other, input),
            xp.where(input.real < other.real, input, other),
        )
        return xp.log1p(xp.exp(second - first)) + first
    return xp.logaddexp(input, other)


@op(broadcast=True, inplace=False, numbers=(), half=True)
@derivative(
    input=lambda grad, input, other: grad / (1 + (other - input).exp2()),
    other=lambda grad, input, other: grad / (1 + (input - other).exp2()),
)
@samples(lambda t: [(t(3, 4), t(3, 4)), (t(2, 1), t(3)), (t(), t()), (t(0), t(0))])
def logaddexp2(xp, input, other):
    """log2(2 ** input + 2 ** other) without overflow.  input (*a), other (*b) -> (broadcast of a and b)."""
    if input.dtype.kind in "iubc":
        raise not_implemented("logaddexp2_cpu", input)
    return xp.logaddexp2(input, other)


def _xlogy_input(grad: Tensor, input: Any, other: Any) -> Tensor:
    logs = other.log() if isinstance(other, Tensor) else _number_log(grad, other)
    product = grad * logs
    mask = ~((input == 0) & (other <= 0))
    found = keep_where(product, mask.expand(product.shape))
    return found if isinstance(other, Tensor) else guard(found, grad)


def _number_log(like: Tensor, value: Any) -> Any:
    return math.log(value) if value > 0 else float("nan") if value < 0 or value != value else float("-inf")


@op(
    shows=one_edge,
    node={
        "not isinstance(other, Tensor)": "XlogyBackward2",
        "isinstance(input, Tensor)": "XlogyBackward0",
        "": "XlogyBackward1",
    },
    broadcast=True,
    promote="float",
    inplace=True,
    names=("special_xlogy",),
    half=True,
    generated="many",
    refuse="c",
    several=((2, 3), (2, 3), (2, 3)),
)
@derivative(input=_xlogy_input, other=lambda grad, input, other: grad * input / other)
@samples(
    lambda t: [(t(3, 4), t.positive(3, 4)), (t(2, 1), t.positive(3)), (t(3), 2.5), (1.5, t.positive(3)), (t(0), t(0))]
)
def xlogy(xp, input, other):
    """input * log(other), 0 where input is 0 (and other is not nan).  input (*a), other (*b) -> (broadcast)."""
    product = xp.multiply(input, xp.log(other if hasattr(other, "dtype") else input.dtype.type(other)))
    return xp.where((input == 0) & (other == other), product.dtype.type(0), product)


@op(
    shows=one_edge,
    node={"isinstance(other, Tensor)": "CopysignBackward0", "": "CopysignBackward1"},
    broadcast=True,
    promote="float",
    inplace=True,
    numbers=("other",),
    generated="one",
    several=((2, 3), (2, 3)),
)
@derivative(
    input=lambda grad, input, result: grad * keep_where(result / input, (input != 0).expand(result.shape)),
    other=lambda grad: zeros_of(grad),
)
@samples(
    lambda t: [
        (t.distinct(3, 4), t.distinct(3, 4)),
        (t.distinct(2, 1), t.distinct(3)),
        (t.distinct(3), -1.0),
        (t(0), t(0)),
    ]
)
def copysign(xp, input, other):
    """|input| with the sign of `other`.  input (*a), other (*b) or number -> (broadcast of a and b)."""
    return xp.copysign(input, other)


@op(broadcast=True, inplace=True, numbers=())
@derivative(
    input=lambda grad, input, other: keep_where(grad, input != other),
    other=lambda grad: zeros_of(grad),
)
@samples(lambda t: [(t.distinct(3, 4), t.distinct(3, 4) + 20), (t(), t()), (t(0), t(0))])
def nextafter(xp, input, other):
    """The next number after `input` towards `other`.  input (*a), other (*b) -> (broadcast of a and b)."""
    if input.dtype.kind in "iubc":
        raise not_implemented("nextafter_cpu", input)
    return xp.nextafter(input, other)


def _heaviside_check(arrays: list[Any]) -> None:
    first, second = arrays
    if "c" in (getattr(first, "dtype", first).kind, getattr(second, "dtype", second).kind):
        raise RuntimeError("heaviside is not yet implemented for complex tensors.")
    if getattr(first, "dtype", None) != getattr(second, "dtype", None):
        raise RuntimeError("heaviside is not yet implemented for tensors with different dtypes.")


@op(broadcast=True, inplace=True, tensors=("values",), check=_heaviside_check, numbers=())
@derivative(input=no_derivative("heaviside"), values=no_derivative("heaviside"))
@samples(
    lambda t: [
        (t.constant(t(3, 4)), t.constant(t(3, 4))),
        (t.integers(-2, 2, 3), t.integers(5, 9)),
        (t.constant(t(0)), t.constant(t(0))),
    ]
)
def heaviside(xp, input, values):
    """0 below zero, 1 above, `values` at zero.  input (*a), values (*b) -> (broadcast of a and b)."""
    _heaviside_check([input, values])
    return xp.where(input == 0, values, (input > 0).astype(input.dtype))


@op(returns=("mantissa", "exponent"), nondifferentiable=("exponent",), elementwise=True)
@derivative(input=lambda grad, result1: grad / _power_of_two(grad, result1))
@samples(lambda t: [(t(3, 4),), (t(),), (t(0),)])
def frexp(xp, input):
    """(mantissa in [0.5, 1), exponent int32) with input = mantissa * 2 ** exponent.  input (*) -> (*), (*)."""
    if input.dtype.kind in "iubc":
        raise RuntimeError("torch.frexp() only supports floating-point dtypes")
    mantissa, exponent = xp.frexp(input)
    return mantissa, exponent.astype("int32")


def _power_of_two(like: Tensor, exponent: Tensor) -> Tensor:
    return exponent.detach().to(like.dtype).exp2()


# --- signs


@op(inplace=True, names=("absolute",), blocks="elements", direct=True, generated="one", keeps_zero=True)
@derivative(input=lambda grad, input: grad * sgn(input))
@samples(lambda t: [(t.distinct(3, 4),), (t(),), (t(0, 2),), (t.complex(3),), (t.integers(-3, 3, 4),)])
def abs(xp, input):
    """|input|; of complex numbers the modulus, a real.  Gradient 0 at 0.  input (*) -> (*)."""
    if input.dtype.kind == "b":
        raise not_implemented("abs_cpu", input)
    return xp.absolute(input)


@op(inplace=True, blocks="elements", generated="some", keeps_zero=True)
@derivative(input=lambda grad: zeros_of(grad))
@samples(lambda t: [(t.distinct(3, 4),), (t(),), (t(0, 2),), (t.integers(-3, 3, 4),), (t.boolean(3),)])
def sign(xp, input):
    """-1, 0 or 1.  input (*) -> (*)."""
    kind = input.dtype.kind
    if kind == "b":
        return input.copy()
    if kind == "c":
        raise NotImplementedError(
            "Unlike NumPy, torch.sign is not intended to support complex numbers. Please use torch.sgn instead."
        )
    result = xp.sign(input)
    if kind in "fV":
        result = xp.where(input == input, result, input.dtype.type(0))  # torch: the sign of nan is 0
    return result


def _sgn_backward(grad: Tensor, input: Tensor, result: Tensor) -> Tensor:
    if input._array.dtype.kind != "c":
        return zeros_of(grad)
    size = abs(input)
    found = grad / size - (grad / result).real * result / size
    return keep_where(found, size != 0)


@op(inplace=True, blocks="elements", generated="many", keeps_zero=True)
@derivative(input=_sgn_backward)
@samples(lambda t: [(t.distinct(3, 4),), (t(),), (t(0, 2),), (t.complex(3),)])
def sgn(xp, input):
    """input / |input|, 0 at 0: the sign, of complex numbers too.  input (*) -> (*)."""
    if input.dtype.kind == "b":
        return input.copy()
    result = xp.sign(input)
    if input.dtype.kind in "fV":
        result = xp.where(input == input, result, input.dtype.type(0))
    return result


@op(blocks="elements", keeps_zero=True)
@samples(lambda t: [(t(3, 4),), (t(),), (t(0, 2),), (t.integers(-3, 3, 4),)])
def signbit(xp, input):
    """Return whether the sign bit is set, of -0.0 too.  input (*) -> (*) bool."""
    if input.dtype.kind == "c":
        raise NotImplementedError("signbit is not implemented for complex tensors.")
    return xp.signbit(input) if input.dtype.kind in "fV" else input < 0


# --- rounding


def _rounded(xp: Any, name: str, ufunc: Any, input: Any) -> Any:
    kind = input.dtype.kind
    if kind in "iubc":
        if kind == "b":
            raise not_implemented(f"{name}_vml_cpu", input)
        if kind == "c":
            raise NotImplementedError(f"{name} is not supported for complex inputs")
        return input.copy()
    return ufunc(input)


@op(inplace=True, blocks="elements", direct=True, generated="one", keeps_zero=True)
@derivative(input=lambda grad: zeros_of(grad))
@samples(lambda t: [(t.distinct(3, 4),), (t(),), (t(0, 2),), (t.integers(-3, 3, 4),)])
def floor(xp, input):
    """The largest whole number not above input.  input (*) -> (*)."""
    return _rounded(xp, "floor", xp.floor, input)


@op(inplace=True, blocks="elements", direct=True, generated="one", keeps_zero=True)
@derivative(input=lambda grad: zeros_of(grad))
@samples(lambda t: [(t.distinct(3, 4),), (t(),), (t(0, 2),), (t.integers(-3, 3, 4),)])
def ceil(xp, input):
    """The smallest whole number not below input.  input (*) -> (*)."""
    return _rounded(xp, "ceil", xp.ceil, input)


@op(inplace=True, names=("fix",), blocks="elements", direct=True, generated="one", keeps_zero=True)
@derivative(input=lambda grad: zeros_of(grad))
@samples(lambda t: [(t.distinct(3, 4),), (t(),), (t(0, 2),), (t.integers(-3, 3, 4),)])
def trunc(xp, input):
    """The whole part, towards 0.  input (*) -> (*)."""
    return _rounded(xp, "trunc", xp.trunc, input)


@op(
    node={"decimals": "RoundBackward1", "": "RoundBackward0"},
    inplace=True,
    half=True,
    several=((1, 2), (2, 3)),
    blocks="elements",
    generated="one",
    keeps_zero=True,
)
@derivative(input=lambda grad: zeros_of(grad))
@samples(
    lambda t: [
        (t.distinct(3, 4),),
        (t(),),
        (t(0, 2),),
        (t.integers(-3, 3, 4),),
        (t.distinct(4), {"decimals": 1}),
        (t(4), {"decimals": -1}),
    ]
)
def round(xp, input, *, decimals: int = 0):
    """The nearest whole number, ties to even; with `decimals` that many digits are kept.  input (*) -> (*)."""
    if decimals:
        refuse("round_cpu", input, "iub")
    if not decimals or input.dtype.kind == "c":
        return _rounded(xp, "round", xp.rint, input)
    scale = input.dtype.type(10.0 ** (decimals if decimals > 0 else -decimals))
    return xp.rint(input * scale) / scale if decimals > 0 else xp.rint(input / scale) * scale


@op(inplace=True, half=True, blocks="elements", keeps_zero=True, generated="one")
@derivative(input=lambda grad: grad)
@samples(lambda t: [(t.distinct(3, 4),), (t(),), (t(0, 2),)])
def frac(xp, input):
    """The part after the point, with the sign of input.  input (*) -> (*)."""
    if input.dtype.kind in "iubc":
        raise not_implemented("frac_cpu", input)
    return xp.subtract(input, xp.trunc(input))


Tensor.__abs__ = abs
