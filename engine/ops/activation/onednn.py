"""oneDNN's kernels of activation functions.

Its relu, clip and exp are not used: they lose nan.  Nor are its elu, soft relu and mish: near zero or far below it
few of their digits are right.  What loses nan in a gradient is asked of finite input only.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from engine.backends.cpu.exact import summed
from engine.backends.cpu.fast import fast
from engine.backends.onednn import _abi, arrays
from engine.backends.onednn.operands import alike, dense, flat, like, takes, target
from engine.backends.onednn.primitives import usable
from engine.dispatch import OPS, kernel
from engine.ops import activation
from engine.ops.activation import elu
from engine.ops.reduction.onednn import finite


@kernel(activation.relu, "onednn")
def _relu(xp, input, *, into=None):
    return _limited(input, 0, math.inf, into)


@kernel(activation.hardtanh, "onednn")
def _hardtanh(xp, input, min_val=-1.0, max_val=1.0, *, into=None):
    return NotImplemented if min_val > max_val else _limited(input, min_val, max_val, into)


def _limited(input: Any, low: float, high: float, into: Any) -> Any:
    """The input between two bounds: numpy's clip, four times as fast as its maximum, keeps nan."""
    if not usable(input):
        return NotImplemented
    x = dense(input)
    made = target(x, into)
    np.clip(flat(x), np.float32(low), np.float32(high), out=flat(made))
    return made


def _forward(op: Any, algorithm: int, alpha: float = 0.0) -> None:
    @kernel(op, "onednn")
    def _(xp, input, *, into=None):
        return _apply(input, algorithm, alpha, into)


def _apply(input: Any, algorithm: int, alpha: float = 0.0, into: Any = None, beta: float = 0.0) -> Any:
    if not takes(input):
        return NotImplemented
    x = dense(input)
    made = target(x, into)
    return made if arrays.eltwise(x, made, algorithm, alpha, beta) else NotImplemented


def _backward(op: Any, algorithm: int, alpha: float = 0.0) -> None:
    @kernel(op, "onednn")
    def _(xp, grad_output, data):
        return _chain(grad_output, data, algorithm, alpha)


def _chain(
    grad_output: Any, data: Any, algorithm: int, alpha: float = 0.0, beta: float = 0.0, careful: bool = False
) -> Any:
    """`careful`: of nan in the data oneDNN makes something else than numpy."""
    if not takes(grad_output, data) or grad_output.shape != data.shape:
        return NotImplemented
    x = dense(data)
    if careful and not finite(x):
        return NotImplemented
    g = alike(grad_output, x)
    made = like(x)
    served = arrays.eltwise_backward(g, x, made, algorithm, alpha, beta)
    return made if served else NotImplemented


_forward(activation.sigmoid, _abi.LOGISTIC)
_forward(activation.silu, _abi.SWISH, 1.0)
_backward(activation.tanh_backward, _abi.TANH_RESULT)
_backward(activation.sigmoid_backward, _abi.LOGISTIC_RESULT)
_backward(activation.silu_backward, _abi.SWISH, 1.0)


@kernel(activation.threshold_backward, "onednn")
def _threshold_backward(xp, grad_output, output, threshold):
    return NotImplemented if threshold else _chain(grad_output, output, _abi.RELU_RESULT)


@kernel(activation.gelu, "onednn")
def _gelu(xp, input, *, approximate="none"):
    kinds = {"none": _abi.GELU_ERF, "tanh": _abi.GELU_TANH}
    if approximate not in kinds:
        return NotImplemented
    made = _apply(input, kinds[approximate])
    return made if made is NotImplemented or finite(made) else NotImplemented  # of inf it makes nan


@kernel(activation.leaky_relu, "onednn")
def _leaky_relu(xp, input, negative_slope=0.01, *, into=None):
    return _apply(input, _abi.RELU, negative_slope, into) if negative_slope else NotImplemented


@kernel(activation.leaky_relu_backward, "onednn")
def _leaky_relu_backward(xp, grad_output, input, negative_slope):
    return _chain(grad_output, input, _abi.RELU, negative_slope, careful=True)


_ONE_SLOPE = 1 << 14  # elements from which oneDNN is faster than numpy where there is one weight
_PARTS = 16  # as many "channels" an array of one weight is given: of one oneDNN has no vector code


def _by_slopes(input: Any, weight: Any) -> Any:
    """(array, weights) as oneDNN takes them: of each channel one.  None where it has no such form, or multiplies 0
    and inf."""
    if not math.isfinite(np.add.reduce(weight, axis=None)):
        return None
    if input.ndim > 1 and weight.size > 1 and weight.shape == (1, input.shape[1], *(1,) * (input.ndim - 2)):
        return dense(input), np.ascontiguousarray(weight)
    parts = math.gcd(input.size, _PARTS)
    if weight.size != 1 or parts == 1:
        return None
    return fast.ascontiguousarray(input).reshape(1, parts, -1), np.full((1, parts, 1), weight.item(), np.float32)


@kernel(activation.prelu_kernel, "onednn")
def _prelu(xp, input, weight):
    if weight.size == 1 and input.size < _ONE_SLOPE:
        return OPS["prelu_kernel"].kernel(np, input, weight)
    if not usable(input, weight):
        return NotImplemented
    found = _by_slopes(input, weight)
    if found is None:
        return NotImplemented
    x, slopes = found
    made = like(x)
    return made.reshape(input.shape) if arrays.prelu(x, slopes, made) else NotImplemented


_RUN = 1 << 12  # elements of a slope's gradient that are added by one call


@kernel(activation.prelu_backward, "onednn")
def _prelu_backward(xp, grad_output, input, weight):
    if not usable(grad_output, input, weight):
        return NotImplemented
    found = _by_slopes(input, weight)
    if found is None:
        return NotImplemented
    x, slopes = found
    g = alike(grad_output if x.shape == input.shape else fast.ascontiguousarray(grad_output).reshape(x.shape), x)
    made, of_slopes = like(x), np.empty_like(slopes)
    count = max(1, _RUN * slopes.size * len(x) // max(1, x.size))  # of the first dim: oneDNN adds one after the other
    if len(x) <= 2 * count:
        if not arrays.prelu_backward(g, x, slopes, made, of_slopes):
            return NotImplemented
    else:
        pieces = [slice(i, i + count) for i in range(0, len(x), count)]
        parts = np.empty((len(pieces), *slopes.shape), slopes.dtype)
        for part, piece in zip(parts, pieces):
            if not arrays.prelu_backward(g[piece], x[piece], slopes, made[piece], part):
                return NotImplemented
        of_slopes = summed(parts, 0)
    if weight.size != slopes.size:
        of_slopes = np.add.reduce(of_slopes, axis=None, keepdims=True)
    return made.reshape(input.shape), of_slopes.reshape(weight.shape)


_SIXTH = (1 / 6, 0.5)  # of hardsigmoid: input / 6 + 1 / 2


@kernel(activation.hardswish, "onednn")
def _hardswish(xp, input, *, into=None):
    return _apply(input, _abi.HARDSWISH, _SIXTH[0], into, _SIXTH[1])


@kernel(activation.hardswish_backward, "onednn")
def _hardswish_backward(xp, grad_output, input):
    return _chain(grad_output, input, _abi.HARDSWISH, *_SIXTH, careful=True)


@kernel(activation.hardsigmoid, "onednn")
def _hardsigmoid(xp, input, *, into=None):
    if not usable(input) or not finite(dense(input)):
        return NotImplemented
    return _apply(input, _abi.HARDSIGMOID, _SIXTH[0], into, _SIXTH[1])


@kernel(activation.inside_backward, "onednn")
def _inside_backward(xp, grad_output, input, low, high, slope):
    if (low, high, slope) == (-3, 3, _SIXTH[0]):
        return _chain(grad_output, input, _abi.HARDSIGMOID, *_SIXTH, careful=True)
    made = _chain(grad_output, input, _abi.CLIP_INSIDE, low, high, careful=True)
    return _times(made, slope)


def _times(made: Any, number: float) -> Any:
    """An array of ours times a number."""
    if made is NotImplemented or number == 1:
        return made
    if made.itemsize == 2:
        return NotImplemented  # it would be rounded twice
    if not arrays.scale(made, number, made):
        made *= np.float32(number)
    return made


@kernel(elu.elu_backward, "onednn")
def _elu_backward(xp, grad_output, input, alpha, scale, input_scale):
    if input_scale != 1:
        return NotImplemented
    return _times(_chain(grad_output, input, _abi.ELU, alpha, careful=True), scale)


@kernel(activation.mish_backward, "onednn")
def _mish_backward(xp, grad_output, input):
    made = _chain(grad_output, input, _abi.MISH)
    return made if made is NotImplemented or finite(made) else NotImplemented


@kernel(activation.softplus_backward, "onednn")
def _softplus_backward(xp, grad_output, input, beta, threshold):
    if threshold < 20 or not beta:
        return NotImplemented
    return _chain(grad_output, input, _abi.SOFT_RELU, beta)


@kernel(activation.gelu_backward, "onednn")
def _gelu_backward(xp, grad_output, input, approximate):
    algorithm = _abi.GELU_TANH if approximate == "tanh" else _abi.GELU_ERF
    return _chain(grad_output, input, algorithm)
