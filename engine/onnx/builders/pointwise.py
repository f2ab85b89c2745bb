"""Elementwise operators."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from engine.core import dtypes
from engine.onnx.builders.registry import builds, common, is_float, numeric, operands
from engine.onnx.errors import OnnxExporterError
from engine.onnx.writer import Value, Writer
from engine.ops import activation
from engine.ops import functions as torch

_UNARY = {
    torch.abs: "Abs",
    torch.neg: "Neg",
    torch.exp: "Exp",
    torch.log: "Log",
    torch.sqrt: "Sqrt",
    torch.sin: "Sin",
    torch.cos: "Cos",
    torch.tan: "Tan",
    torch.asin: "Asin",
    torch.acos: "Acos",
    torch.atan: "Atan",
    torch.sinh: "Sinh",
    torch.cosh: "Cosh",
    torch.asinh: "Asinh",
    torch.acosh: "Acosh",
    torch.atanh: "Atanh",
    torch.tanh: "Tanh",
    torch.sigmoid: "Sigmoid",
    torch.erf: "Erf",
    torch.floor: "Floor",
    torch.ceil: "Ceil",
    torch.sign: "Sign",
    torch.reciprocal: "Reciprocal",
    torch.relu: "Relu",
    activation.softsign: "Softsign",
    activation.hardswish: "HardSwish",
}
_KEEP_INTEGERS = frozenset([f.__name__ for f in (torch.floor, torch.ceil, torch.trunc)])  # which do nothing to integers


def _unary(name: str, kind: str) -> None:
    def build(w: Writer, input: Any, result: Any) -> Any:
        if name in _KEEP_INTEGERS and not is_float(result.dtype):
            return w.op("Identity", input)
        x = numeric(w, w.cast(input, result.dtype))
        if kind == "Relu" and not is_float(x.dtype):
            return w.op("Max", x, w.const(0, x.dtype))
        return w.op(kind, x)

    builds(name)(build)


for _function, _kind in _UNARY.items():
    _unary(_function.__name__, _kind)
_unary("det", "Det")


def _composed(name: str, make: Any) -> None:
    def build(w: Writer, input: Any, result: Any) -> Any:
        dtype = result.dtype
        if name in _KEEP_INTEGERS and not is_float(dtype):
            return w.op("Identity", input)
        return make(w, w.cast(input, dtype), lambda v: w.const(v, dtype))

    builds(name)(build)


for _function, _make in {
    torch.square: lambda w, x, c: w.op("Mul", x, x),
    torch.rsqrt: lambda w, x, c: w.op("Reciprocal", w.op("Sqrt", x)),
    torch.exp2: lambda w, x, c: w.op("Pow", c(2), x),
    torch.expm1: lambda w, x, c: w.op("Sub", w.op("Exp", x), c(1)),
    torch.log1p: lambda w, x, c: w.op("Log", w.op("Add", x, c(1))),
    torch.log2: lambda w, x, c: w.op("Mul", w.op("Log", x), c(1 / math.log(2))),
    torch.log10: lambda w, x, c: w.op("Mul", w.op("Log", x), c(1 / math.log(10))),
    torch.erfc: lambda w, x, c: w.op("Sub", c(1), w.op("Erf", x)),
    torch.trunc: lambda w, x, c: w.op("Mul", w.op("Sign", x), w.op("Floor", w.op("Abs", x))),
    torch.frac: lambda w, x, c: w.op("Sub", x, w.op("Mul", w.op("Sign", x), w.op("Floor", w.op("Abs", x)))),
    activation.silu: lambda w, x, c: w.op("Mul", x, w.op("Sigmoid", x)),
    activation.mish: lambda w, x, c: w.op("Mul", x, w.op("Tanh", w.op("Softplus", x))),
    activation.logsigmoid: lambda w, x, c: w.op("Neg", w.op("Softplus", w.op("Neg", x))),
    torch.deg2rad: lambda w, x, c: w.op("Mul", x, c(math.pi / 180)),
    torch.rad2deg: lambda w, x, c: w.op("Mul", x, c(180 / math.pi)),
    activation.tanhshrink: lambda w, x, c: w.op("Sub", x, w.op("Tanh", x)),
    torch.sgn: lambda w, x, c: w.op("Sign", x),
}.items():
    _composed(_function.__name__, _make)


@builds("round")
def _round(w: Writer, input: Any, decimals: Any) -> Any:
    if not is_float(input.dtype):
        return w.op("Identity", input)
    if not decimals:
        return w.op("Round", input)
    by = w.const(10.0**decimals, input.dtype)
    return w.op("Div", w.op("Round", w.op("Mul", input, by)), by)


@builds("hardsigmoid")
def _hardsigmoid(w: Writer, input: Any) -> Any:
    return w.op("HardSigmoid", input, alpha=1 / 6, beta=0.5)


@builds("gelu")
def _gelu(w: Writer, input: Any, approximate: Any) -> Any:
    if w.opset >= 20:
        return w.op("Gelu", input, approximate=approximate)
    half, one = (w.const(v, input.dtype) for v in (0.5, 1))
    if approximate == "tanh":
        cube = w.op("Mul", w.op("Mul", input, input), input)
        inner = w.op("Add", input, w.op("Mul", cube, w.const(0.044715, input.dtype)))
        bent = w.op("Tanh", w.op("Mul", inner, w.const(math.sqrt(2 / math.pi), input.dtype)))
    else:
        bent = w.op("Erf", w.op("Div", input, w.const(math.sqrt(2), input.dtype)))
    return w.op("Mul", w.op("Mul", input, w.op("Add", bent, one)), half)


@builds("leaky_relu")
def _leaky_relu(w: Writer, input: Any, negative_slope: Any) -> Any:
    return w.op("LeakyRelu", input, alpha=float(negative_slope))


@builds("elu")
def _elu(w: Writer, input: Any, alpha: Any, scale: Any, input_scale: Any) -> Any:
    x = input
    if input_scale != 1:  # of the exponent: elu(x * s) / s for what is positive
        x = w.op("Mul", input, w.const(input_scale, input.dtype))
    negative = w.op("Elu", x, alpha=float(alpha))
    made = negative if input_scale == 1 else w.op("Where", w.op("Greater", x, w.const(0, x.dtype)), input, negative)
    return made if scale == 1 else w.op("Mul", made, w.const(scale, input.dtype))


@builds("softplus")
def _softplus(w: Writer, input: Any, beta: Any, threshold: Any) -> Any:
    scaled = input if beta == 1 else w.op("Mul", input, w.const(beta, input.dtype))
    made = w.op("Softplus", scaled)
    if beta != 1:
        made = w.op("Div", made, w.const(beta, input.dtype))
    return w.op("Where", w.op("Greater", scaled, w.const(threshold, input.dtype)), input, made)


@builds("hardtanh")
def _hardtanh(w: Writer, input: Any, min_val: Any, max_val: Any) -> Any:
    return w.op("Clip", input, w.const(min_val, input.dtype), w.const(max_val, input.dtype))


@builds("hardshrink")
def _hardshrink(w: Writer, input: Any, lambd: Any) -> Any:
    inside = w.op("LessOrEqual", w.op("Abs", input), w.const(lambd, input.dtype))
    return w.op("Where", inside, w.const(0, input.dtype), input, dtype=input.dtype)


@builds("softshrink")
def _softshrink(w: Writer, input: Any, lambd: Any) -> Any:
    return w.op("Shrink", input, lambd=float(lambd), bias=float(lambd))


@builds("threshold")
def _threshold(w: Writer, input: Any, threshold: Any, value: Any) -> Any:
    above = w.op("Greater", input, w.const(threshold, input.dtype))
    return w.op("Where", above, input, w.const(value, input.dtype), dtype=input.dtype)


@builds("prelu_kernel")
def _prelu_kernel(w: Writer, input: Any, weight: Any) -> Any:
    return w.op("PRelu", input, weight)


@builds("prelu")
def _prelu(w: Writer, input: Any, weight: Any) -> Any:
    slope = weight
    if input.rank > 2 and weight.shape not in ((), (1,)):  # one per channel
        slope = w.op("Reshape", weight, w.ints([-1] + [1] * (input.rank - 2)))
    return w.op("PRelu", input, slope)


@builds("logit")
def _logit(w: Writer, input: Any, eps: Any) -> Any:
    x = input
    if eps is not None:
        x = w.op("Clip", x, w.const(eps, x.dtype), w.const(1 - eps, x.dtype))
    return w.op("Log", w.op("Div", x, w.op("Sub", w.const(1, x.dtype), x)))


# --- two operands


def _scaled(w: Writer, other: Any, alpha: Any, dtype: Any) -> Any:
    other = w.value(other, dtype)
    return other if alpha == 1 else w.op("Mul", other, w.const(alpha, dtype))


@builds("add")
def _add(w: Writer, input: Any, other: Any, alpha: Any, result: Any) -> Any:
    if result.dtype is dtypes.bool:
        return w.op("Or", *operands(w, dtypes.bool, input, other))
    return w.op("Add", w.value(input, result.dtype), _scaled(w, other, alpha, result.dtype))


@builds("sub")
def _sub(w: Writer, input: Any, other: Any, alpha: Any, result: Any) -> Any:
    return w.op("Sub", w.value(input, result.dtype), _scaled(w, other, alpha, result.dtype))


@builds("rsub")
def _rsub(w: Writer, input: Any, other: Any, alpha: Any, result: Any) -> Any:
    return w.op("Sub", w.value(other, result.dtype), _scaled(w, input, alpha, result.dtype))


@builds("mul")
def _mul(w: Writer, input: Any, other: Any, result: Any) -> Any:
    return w.op("And" if result.dtype is dtypes.bool else "Mul", *operands(w, result.dtype, input, other))


@builds("true_div")
def _true_div(w: Writer, input: Any, other: Any, result: Any) -> Any:
    return w.op("Div", *operands(w, result.dtype, input, other))


@builds("floor_div", "floor_divide")
def _floor_div(w: Writer, input: Any, other: Any, result: Any) -> Any:
    a, b = operands(w, result.dtype, input, other)
    if is_float(result.dtype):
        return w.op("Floor", w.op("Div", a, b))
    return w.op("Div", w.op("Sub", a, w.op("Mod", a, b)), b)


@builds("trunc_divide")
def _trunc_divide(w: Writer, input: Any, other: Any, result: Any) -> Any:
    made = w.op("Div", *operands(w, result.dtype, input, other))
    if is_float(result.dtype):
        made = w.op("Mul", w.op("Sign", made), w.op("Floor", w.op("Abs", made)))
    return made


@builds("remainder")
def _remainder(w: Writer, input: Any, other: Any, result: Any) -> Any:
    a, b = operands(w, result.dtype, input, other)
    if is_float(result.dtype):
        return w.op("Sub", a, w.op("Mul", w.op("Floor", w.op("Div", a, b)), b))
    return w.op("Mod", a, b)


@builds("fmod")
def _fmod(w: Writer, input: Any, other: Any, result: Any) -> Any:
    return w.op("Mod", *operands(w, result.dtype, input, other), fmod=1)


@builds("pow")
def _pow(w: Writer, input: Any, exponent: Any, result: Any) -> Any:
    if isinstance(exponent, int | float) and exponent == 2:
        x = w.value(input, result.dtype)
        return w.op("Mul", x, x)
    return w.op("Pow", *operands(w, result.dtype, input, exponent))


@builds("atan2")
def _atan2(w: Writer, input: Any, other: Any, result: Any) -> Any:
    y, x = operands(w, result.dtype, input, other)
    zero, pi = w.const(0, result.dtype), w.const(math.pi, result.dtype)
    angle = w.op("Atan", w.op("Div", y, x))
    shifted = w.op("Where", w.op("Less", y, zero), w.op("Sub", angle, pi), w.op("Add", angle, pi))
    made = w.op("Where", w.op("Less", x, zero), shifted, angle)
    none = w.op("And", w.op("Equal", x, zero), w.op("Equal", y, zero))
    return w.op("Where", none, zero, made)


def _picks(name: str, kind: str) -> None:
    def build(w: Writer, input: Any, other: Any, result: Any) -> Any:
        return w.op(kind, *operands(w, result.dtype, input, other))

    builds(name)(build)


for _name, _kind in {"maximum": "Max", "minimum": "Min"}.items():
    _picks(_name, _kind)


def _compares(name: str, kind: str) -> None:
    def build(w: Writer, input: Any, other: Any) -> Any:
        a, b = operands(w, common(input, other), input, other)
        if kind in ("Less", "Greater", "LessOrEqual", "GreaterOrEqual") and a.dtype is dtypes.bool:
            a, b = (w.cast(x, dtypes.int32) for x in (a, b))
        if kind == "Differs":
            return w.op("Not", w.op("Equal", a, b, dtype=dtypes.bool))
        return w.op(kind, a, b, dtype=dtypes.bool)

    builds(name)(build)


for _function, _kind in {
    torch.eq: "Equal",
    torch.ne: "Differs",
    torch.lt: "Less",
    torch.le: "LessOrEqual",
    torch.gt: "Greater",
    torch.ge: "GreaterOrEqual",
}.items():
    _compares(_function.__name__, _kind)


def _logical(name: str, kind: str) -> None:
    def build(w: Writer, input: Any, other: Any) -> Any:
        return w.op(kind, *operands(w, dtypes.bool, input, other))

    builds(name)(build)


for _function, _kind in {torch.logical_and: "And", torch.logical_or: "Or", torch.logical_xor: "Xor"}.items():
    _logical(_function.__name__, _kind)


@builds("logical_not")
def _logical_not(w: Writer, input: Any) -> Any:
    return w.op("Not", w.cast(input, dtypes.bool))


def _bitwise(name: str, kind: str) -> None:
    def build(w: Writer, input: Any, other: Any, result: Any) -> Any:
        if result.dtype is dtypes.bool:
            return w.op(kind, *operands(w, dtypes.bool, input, other))
        _needs(w, 18, "bits of integers")
        return w.op("Bitwise" + kind, *operands(w, result.dtype, input, other))

    builds(name)(build)


for _function, _kind in {torch.bitwise_and: "And", torch.bitwise_or: "Or", torch.bitwise_xor: "Xor"}.items():
    _bitwise(_function.__name__, _kind)


def _needs(w: Writer, opset: int, what: str) -> None:
    if w.opset < opset:
        raise OnnxExporterError(f"{what} need opset {opset}; this export is of opset {w.opset}")


@builds("bitwise_not")
def _bitwise_not(w: Writer, input: Any) -> Any:
    if input.dtype is dtypes.bool:
        return w.op("Not", input)
    _needs(w, 18, "bits of integers")
    return w.op("BitwiseNot", input)


@builds("isnan")
def _isnan(w: Writer, input: Any) -> Any:
    return w.op("IsNaN", w.cast(input, input.dtype if is_float(input.dtype) else dtypes.float32), dtype=dtypes.bool)


@builds("isinf")
def _isinf(w: Writer, input: Any) -> Any:
    return w.op("IsInf", w.cast(input, dtypes.float32), dtype=dtypes.bool)


@builds("isfinite")
def _isfinite(w: Writer, input: Any) -> Any:
    x = w.cast(input, dtypes.float32)
    return w.op("Not", w.op("Or", w.op("IsInf", x, dtype=dtypes.bool), w.op("IsNaN", x, dtype=dtypes.bool)))


# --- three


@builds("clamp", "clamp_numbers", "clamp_tensors")
def _clamp(w: Writer, input: Any, min: Any, max: Any, result: Any) -> Any:
    x, dtype = w.cast(input, result.dtype), result.dtype
    if any(isinstance(v, Value) and v.shape != () for v in (min, max)):
        x = x if min is None else w.op("Max", x, w.value(min, dtype))
        return x if max is None else w.op("Min", x, w.value(max, dtype))
    return w.op("Clip", x, *(None if v is None else w.value(v, dtype) for v in (min, max)))


@builds("clamp_min")
def _clamp_min(w: Writer, input: Any, min: Any, result: Any) -> Any:
    return w.op("Max", *operands(w, result.dtype, input, min))


@builds("clamp_max")
def _clamp_max(w: Writer, input: Any, max: Any, result: Any) -> Any:
    return w.op("Min", *operands(w, result.dtype, input, max))


@builds("where_tensors", "where")
def _where(w: Writer, condition: Any, input: Any, other: Any, result: Any) -> Any:
    return w.op("Where", w.cast(condition, dtypes.bool), *operands(w, result.dtype, input, other), dtype=result.dtype)


@builds("masked_fill_value", "masked_fill_tensor", "masked_fill")
def _masked_fill(w: Writer, input: Any, mask: Any, value: Any, result: Any) -> Any:
    return w.op("Where", w.cast(mask, dtypes.bool), *operands(w, result.dtype, value, input), dtype=result.dtype)


@builds("lerp_number", "lerp_tensor", "lerp")
def _lerp(w: Writer, input: Any, end: Any, weight: Any, result: Any) -> Any:
    a, b, c = operands(w, result.dtype, input, end, weight)
    return w.op("Add", a, w.op("Mul", c, w.op("Sub", b, a)))


@builds("addcmul")
def _addcmul(w: Writer, input: Any, tensor1: Any, tensor2: Any, value: Any, result: Any) -> Any:
    a, b, c = operands(w, result.dtype, input, tensor1, tensor2)
    return w.op("Add", a, _scaled(w, w.op("Mul", b, c), value, result.dtype))


@builds("addcdiv")
def _addcdiv(w: Writer, input: Any, tensor1: Any, tensor2: Any, value: Any, result: Any) -> Any:
    a, b, c = operands(w, result.dtype, input, tensor1, tensor2)
    return w.op("Add", a, _scaled(w, w.op("Div", b, c), value, result.dtype))


@builds("nan_to_num")
def _nan_to_num(w: Writer, input: Any, nan: Any, posinf: Any, neginf: Any) -> Any:
    if not is_float(input.dtype):
        return w.op("Identity", input)
    limits = np.finfo(dtypes.to_numpy(input.dtype))
    low, high = (limits.min if neginf is None else neginf), (limits.max if posinf is None else posinf)
    zero = w.const(0 if nan is None else nan, input.dtype)
    made = w.op("Where", w.op("IsNaN", input, dtype=dtypes.bool), zero, input, dtype=input.dtype)
    infinite = w.op("IsInf", input, dtype=dtypes.bool)
    bound = w.op(
        "Where",
        w.op("Less", input, w.const(0, input.dtype)),
        w.const(low, input.dtype),
        w.const(high, input.dtype),
        dtype=input.dtype,
    )
    return w.op("Where", infinite, bound, made, dtype=input.dtype)


@builds("to_copy")
def _to_copy(w: Writer, input: Any, dtype: Any, result: Any) -> Any:
    del dtype
    return w.op("Identity", input) if input.dtype is result.dtype else w.cast(input, result.dtype)


@builds("clone")
@builds("alias", back="reshape")
def _identity(w: Writer, input: Any) -> Any:
    return input


@builds("copy_")
def _copy_(w: Writer, input: Any, src: Any, result: Any) -> Any:
    return w.op("Expand", w.value(src, result.dtype), w.shape_of(input), dtype=result.dtype)


@builds("fill_")
def _fill_(w: Writer, input: Any, value: Any, result: Any) -> Any:
    return w.op("Expand", w.value(value, result.dtype), w.shape_of(input), dtype=result.dtype)


@builds("zero_")
def _zero_(w: Writer, input: Any, result: Any) -> Any:
    return w.op("Expand", w.const(0, result.dtype), w.shape_of(input), dtype=result.dtype)
