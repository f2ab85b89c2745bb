"""Elementwise operators, reductions and products."""

from __future__ import annotations

import functools
import operator
from typing import Any

from engine.core import dtypes
from engine.nn import functional
from engine.onnx.functions.registry import implements, ints, of_code
from engine.ops import functions as torch
from engine.tensor import Tensor

_PLAIN = {
    "Abs": torch.abs, "Neg": torch.neg, "Exp": torch.exp, "Log": torch.log, "Sqrt": torch.sqrt,
    "Sin": torch.sin, "Cos": torch.cos, "Tan": torch.tan, "Asin": torch.asin, "Acos": torch.acos,
    "Atan": torch.atan, "Sinh": torch.sinh, "Cosh": torch.cosh, "Asinh": torch.asinh, "Acosh": torch.acosh,
    "Atanh": torch.atanh, "Tanh": torch.tanh, "Sigmoid": torch.sigmoid, "Erf": torch.erf, "Floor": torch.floor,
    "Ceil": torch.ceil, "Round": torch.round, "Sign": torch.sign, "Reciprocal": torch.reciprocal,
    "Relu": torch.relu, "Softsign": functional.softsign, "HardSwish": functional.hardswish,
    "Mish": functional.mish, "Not": torch.logical_not, "IsNaN": torch.isnan, "BitwiseNot": torch.bitwise_not,
    "Softplus": functional.softplus, "Det": torch.det,
}  # fmt: skip


def _of_one(function: Any) -> Any:
    return lambda x: function(x)


for _name, _function in _PLAIN.items():
    implements(_name)(_of_one(_function))

_PAIRS = {
    "Add": torch.add,
    "Sub": torch.sub,
    "Mul": torch.mul,
    "And": torch.logical_and,
    "Or": torch.logical_or,
    "Xor": torch.logical_xor,
    "Equal": torch.eq,
    "Greater": torch.gt,
    "GreaterOrEqual": torch.ge,
    "Less": torch.lt,
    "LessOrEqual": torch.le,
    "BitwiseAnd": torch.bitwise_and,
    "BitwiseOr": torch.bitwise_or,
    "BitwiseXor": torch.bitwise_xor,
    "MatMul": torch.matmul,
}


def _of_two(function: Any) -> Any:
    return lambda a, b: function(a, b)


for _name, _function in _PAIRS.items():
    implements(_name)(_of_two(_function))


@implements("Div")
def _div(a: Tensor, b: Tensor) -> Any:
    """Of integers: rounded towards zero."""
    return torch.div(a, b) if a.is_floating_point() else torch.div(a, b, rounding_mode="trunc")


@implements("Mod")
def _mod(a: Tensor, b: Tensor, *, fmod: int = 0) -> Any:
    return torch.fmod(a, b) if fmod else torch.remainder(a, b)


@implements("Pow")
def _pow(a: Tensor, b: Tensor) -> Any:
    return torch.pow(a, b).to(a.dtype)


@implements("Identity")
def _identity(x: Any) -> Any:
    return x


@implements("Dropout")
def _dropout(x: Tensor, share: Any = None, training_mode: Any = None, *, ratio: Any = None, seed: int = 0) -> Any:
    del seed, ratio, share
    if training_mode is not None and bool(training_mode):
        raise NotImplementedError("ONNX Dropout in training mode is not supported")
    return x, torch.ones_like(x, dtype=dtypes.bool)


@implements("Sum")
def _sum(*xs: Tensor) -> Any:
    return functools.reduce(operator.add, xs)


@implements("Mean")
def _mean(*xs: Tensor) -> Any:
    return functools.reduce(operator.add, xs) / len(xs)


@implements("Max")
def _max(*xs: Tensor) -> Any:
    return functools.reduce(torch.maximum, xs)


@implements("Min")
def _min(*xs: Tensor) -> Any:
    return functools.reduce(torch.minimum, xs)


@implements("Clip")
def _clip(x: Tensor, low: Any = None, high: Any = None, *, min: Any = None, max: Any = None) -> Any:
    low, high = (given if attribute is None else attribute for given, attribute in ((low, min), (high, max)))
    return x if low is None and high is None else torch.clamp(x, low, high)


@implements("Where")
def _where(condition: Tensor, a: Tensor, b: Tensor) -> Any:
    return torch.where(condition, a, b)


@implements("IsInf")
def _isinf(x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Any:
    found = torch.isinf(x)
    if not detect_negative:
        found = found & (x > 0)
    return found if detect_positive else found & (x < 0)


@implements("Cast")
def _cast(x: Tensor, *, to: int, saturate: int = 1) -> Any:
    del saturate
    return x.to(of_code(to))


@implements("CastLike")
def _cast_like(x: Tensor, like: Tensor, *, saturate: int = 1) -> Any:
    del saturate
    return x.to(like.dtype)


@implements("BitShift")
def _bit_shift(a: Tensor, b: Tensor, *, direction: str) -> Any:
    return torch.bitwise_left_shift(a, b) if direction == "LEFT" else torch.bitwise_right_shift(a, b)


# --- activations


@implements("LeakyRelu")
def _leaky_relu(x: Tensor, *, alpha: float = 0.01) -> Any:
    return functional.leaky_relu(x, alpha)


@implements("Elu")
def _elu(x: Tensor, *, alpha: float = 1.0) -> Any:
    return functional.elu(x, alpha)


@implements("Selu")
def _selu(x: Tensor, *, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875) -> Any:
    return torch.where(x > 0, gamma * x, gamma * alpha * torch.expm1(x))


@implements("Celu")
def _celu(x: Tensor, *, alpha: float = 1.0) -> Any:
    return functional.celu(x, alpha)


@implements("ThresholdedRelu")
def _thresholded_relu(x: Tensor, *, alpha: float = 1.0) -> Any:
    return functional.threshold(x, alpha, 0)


@implements("HardSigmoid")
def _hard_sigmoid(x: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Any:
    return torch.clamp(x * alpha + beta, 0, 1)


@implements("Gelu")
def _gelu(x: Tensor, *, approximate: str = "none") -> Any:
    return functional.gelu(x, approximate=approximate)


@implements("PRelu")
def _prelu(x: Tensor, slope: Tensor) -> Any:
    return torch.where(x < 0, x * slope, x)


@implements("Shrink")
def _shrink(x: Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> Any:
    zero = torch.zeros_like(x)
    return torch.where(x < -lambd, x + bias, torch.where(x > lambd, x - bias, zero))


@implements("Softmax")
def _softmax(x: Tensor, *, axis: Any = None, opset: int) -> Any:
    return _along(functional.softmax, x, axis, opset)


@implements("LogSoftmax")
def _log_softmax(x: Tensor, *, axis: Any = None, opset: int) -> Any:
    return _along(functional.log_softmax, x, axis, opset)


def _along(function: Any, x: Tensor, axis: Any, opset: int) -> Any:
    if opset >= 13:
        return function(x, -1 if axis is None else axis)
    at = (1 if axis is None else axis) % max(1, x.dim())  # older: over all dims from there on
    return function(x.flatten(at), at).reshape(x.shape) if x.dim() else function(x, 0)


# --- reductions

_REDUCTIONS: dict[str, Any] = {
    "ReduceSum": lambda x, d, k: torch.sum(x, d, keepdim=k).to(x.dtype),
    "ReduceMean": lambda x, d, k: torch.mean(x, d, keepdim=k),
    "ReduceMax": lambda x, d, k: torch.amax(x, d, keepdim=k),
    "ReduceMin": lambda x, d, k: torch.amin(x, d, keepdim=k),
    "ReduceL1": lambda x, d, k: torch.sum(torch.abs(x), d, keepdim=k),
    "ReduceL2": lambda x, d, k: torch.sqrt(torch.sum(x * x, d, keepdim=k)),
    "ReduceSumSquare": lambda x, d, k: torch.sum(x * x, d, keepdim=k),
    "ReduceLogSum": lambda x, d, k: torch.log(torch.sum(x, d, keepdim=k)),
    "ReduceLogSumExp": lambda x, d, k: torch.logsumexp(x, d, keepdim=k),
    "ReduceProd": lambda x, d, k: _product(x, d, k),
}


def _product(x: Tensor, dims: list[int], keepdim: bool) -> Any:
    for d in sorted((d % x.dim() for d in dims), reverse=True):
        x = torch.prod(x, d, keepdim=keepdim).to(x.dtype)
    return x


def _reduction(function: Any) -> Any:
    def reduce(
        x: Tensor, given: Any = None, *, axes: Any = None, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Any:
        dims = ints(given if axes is None else axes)
        if not dims:
            if noop_with_empty_axes:
                return x
            dims = list(range(x.dim()))
        return function(x, dims, bool(keepdims)) if dims else function(x.reshape(1), [0], False).reshape(())

    return reduce


for _name, _function in _REDUCTIONS.items():
    implements(_name)(_reduction(_function))


def _argument(function: Any, x: Tensor, axis: int, keepdims: int, last: int) -> Any:
    if last:
        return x.shape[axis] - 1 - function(torch.flip(x, [axis]), axis, keepdim=bool(keepdims))
    return function(x, axis, keepdim=bool(keepdims))


@implements("ArgMax")
def _argmax(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Any:
    return _argument(torch.argmax, x, axis, keepdims, select_last_index)


@implements("ArgMin")
def _argmin(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Any:
    return _argument(torch.argmin, x, axis, keepdims, select_last_index)


@implements("CumSum")
def _cumsum(x: Tensor, axis: Tensor, *, exclusive: int = 0, reverse: int = 0) -> Any:
    (d,) = ints(axis)
    x = torch.flip(x, [d]) if reverse else x
    made = torch.cumsum(x, d).to(x.dtype)
    made = made - x if exclusive else made
    return torch.flip(made, [d]) if reverse else made


@implements("TopK")
def _topk(x: Tensor, k: Any, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> Any:
    (count,) = ints(k)
    return tuple(torch.topk(x, count, axis, largest=bool(largest), sorted=bool(sorted)))


# --- products


@implements("Gemm")
def _gemm(
    a: Tensor, b: Tensor, c: Any = None, *, alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0
) -> Any:
    a = a.t() if transA else a
    if transB and alpha == beta == 1 and (c is None or c.dim() == 1):
        return functional.linear(a, b, c)
    made = a @ (b.t() if transB else b)
    made = made if alpha == 1 else made * alpha
    return made if c is None else made + (c if beta == 1 else c * beta)


@implements("Einsum")
def _einsum(*xs: Tensor, equation: str) -> Any:
    return torch.einsum(equation, *xs)
