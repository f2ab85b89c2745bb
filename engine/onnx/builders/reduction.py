"""Reductions, scans, sorting, and products of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.core import dtypes
from engine.onnx.builders.registry import along, axes, builds, is_float, numeric, operands
from engine.onnx.errors import OnnxExporterError
from engine.onnx.writer import Value, Writer


def reduced(w: Writer, kind: str, x: Any, dim: Any, keepdim: bool) -> Any:
    """A Reduce node; its axes became an input in opset 18, those of ReduceSum in 13."""
    dims, x = axes(dim, x.rank), numeric(w, x) if kind in ("ReduceMax", "ReduceMin") else x
    if not dims:
        return w.op("Identity", x)
    if kind == "ReduceSum" or w.opset >= 18:
        return w.op(kind, x, w.ints(dims), keepdims=bool(keepdim))
    return w.op(kind, x, axes=dims, keepdims=bool(keepdim))


@builds("sum")
def _sum(w: Writer, input: Any, dim: Any, keepdim: Any, dtype: Any, result: Any) -> Any:
    del dtype
    return reduced(w, "ReduceSum", w.cast(input, result.dtype), dim, keepdim)


@builds("mean")
def _mean(w: Writer, input: Any, dim: Any, keepdim: Any, dtype: Any, result: Any) -> Any:
    del dtype
    return reduced(w, "ReduceMean", w.cast(input, result.dtype), dim, keepdim)


@builds("amax")
def _amax(w: Writer, input: Any, dim: Any, keepdim: Any) -> Any:
    return reduced(w, "ReduceMax", input, dim, keepdim)


@builds("amin")
def _amin(w: Writer, input: Any, dim: Any, keepdim: Any) -> Any:
    return reduced(w, "ReduceMin", input, dim, keepdim)


@builds("max_all")
def _max_all(w: Writer, input: Any) -> Any:
    return reduced(w, "ReduceMax", input, None, False)


@builds("min_all")
def _min_all(w: Writer, input: Any) -> Any:
    return reduced(w, "ReduceMin", input, None, False)


@builds("prod_all")
def _prod_all(w: Writer, input: Any, dtype: Any, result: Any) -> Any:
    del dtype
    return reduced(w, "ReduceProd", w.cast(input, result.dtype), None, False)


@builds("prod_dim")
def _prod_dim(w: Writer, input: Any, dim: Any, keepdim: Any, dtype: Any, result: Any) -> Any:
    del dtype
    return reduced(w, "ReduceProd", w.cast(input, result.dtype), dim, keepdim)


@builds("logsumexp")
def _logsumexp(w: Writer, input: Any, dim: Any, keepdim: Any, result: Any) -> Any:
    return reduced(w, "ReduceLogSumExp", w.cast(input, result.dtype), dim, keepdim)


@builds("linalg_vector_norm")
def _vector_norm(w: Writer, input: Any, ord: Any, dim: Any, keepdim: Any, dtype: Any, result: Any) -> Any:
    del dtype
    x = w.cast(input, result.dtype)
    if ord == 2:
        return reduced(w, "ReduceL2", x, dim, keepdim)
    if ord == 1:
        return reduced(w, "ReduceL1", x, dim, keepdim)
    size = w.op("Abs", x)
    if ord in (float("inf"), float("-inf")):
        return reduced(w, "ReduceMax" if ord > 0 else "ReduceMin", size, dim, keepdim)
    power = w.const(ord, x.dtype)
    return w.op("Pow", reduced(w, "ReduceSum", w.op("Pow", size, power), dim, keepdim), w.const(1 / ord, x.dtype))


def variance(w: Writer, x: Any, dim: Any, correction: Any, keepdim: Any) -> Any:
    """The mean square deviation from the mean, with divisor n - correction."""
    deviation = w.op("Sub", x, reduced(w, "ReduceMean", x, dim, True))
    square = w.op("Mul", deviation, deviation, shape=x.shape)
    if not correction:
        return reduced(w, "ReduceMean", square, dim, keepdim)
    count: Any = 1
    varying = []
    for d in axes(dim, x.rank):
        n = w.size(x, d)
        if isinstance(n, Value):
            varying.append(n)
        else:
            count *= n
    total = w.const(count, x.dtype)
    for n in varying:
        total = w.op("Mul", total, w.cast(n, x.dtype))
    return w.op("Div", reduced(w, "ReduceSum", square, dim, keepdim), w.op("Sub", total, w.const(correction, x.dtype)))


@builds("var_of")
def _var(w: Writer, input: Any, dim: Any, correction: Any, keepdim: Any) -> Any:
    return variance(w, input, dim, correction, keepdim)


@builds("std_of")
def _std(w: Writer, input: Any, dim: Any, correction: Any, keepdim: Any) -> Any:
    return w.op("Sqrt", variance(w, input, dim, correction, keepdim))


@builds("any")
def _any(w: Writer, input: Any, dim: Any, keepdim: Any) -> Any:
    truth = w.cast(input, dtypes.bool)
    if isinstance(dim, list | tuple) and not dim:
        return truth
    return w.cast(reduced(w, "ReduceSum", w.cast(truth, dtypes.int32), dim, keepdim), dtypes.bool)


@builds("all")
def _all(w: Writer, input: Any, dim: Any, keepdim: Any) -> Any:
    return w.op("Not", _any(w, w.op("Not", w.cast(input, dtypes.bool)), dim, keepdim))


def _argument(name: str, kind: str) -> None:
    def build(w: Writer, input: Any, dim: Any, keepdim: Any) -> Any:
        x = input
        if dim is None:
            if keepdim:
                raise OnnxExporterError("keepdim without dim has no ONNX form")
            return w.op(
                "Squeeze", w.op(kind, w.op("Reshape", x, w.ints([-1])), axis=0, keepdims=False), dtype=dtypes.int64
            )
        return w.op(kind, x, axis=along(x, dim), keepdims=bool(keepdim))

    builds(name)(build)


_argument("argmax", "ArgMax")
_argument("argmin", "ArgMin")


def _extreme(name: str, reduce: str, argument: str) -> None:
    def build(w: Writer, input: Any, dim: Any, keepdim: Any) -> Any:
        found = w.op(argument, numeric(w, input), axis=along(input, dim), keepdims=bool(keepdim))
        return [reduced(w, reduce, input, dim, keepdim), found]

    builds(name)(build)


_extreme("max_dim", "ReduceMax", "ArgMax")
_extreme("min_dim", "ReduceMin", "ArgMin")


@builds("cumsum")
def _cumsum(w: Writer, input: Any, dim: Any, dtype: Any, result: Any) -> Any:
    del dtype
    return w.op("CumSum", w.cast(input, result.dtype), w.const(np.int64(along(input, dim))))


@builds("topk")
def _topk(w: Writer, input: Any, k: Any, dim: Any, largest: Any, sorted: Any) -> Any:
    count = w.sizes([k])
    made = w.op(
        "TopK", numeric(w, input), count, axis=along(input, dim), largest=bool(largest), sorted=bool(sorted), outputs=2
    )
    made[1].dtype = dtypes.int64
    return made


@builds("sort")
def _sort(w: Writer, input: Any, dim: Any, descending: Any) -> Any:
    d = along(input, dim)
    return _topk(w, input, w.size(input, d), d, descending, True)


@builds("argsort")
def _argsort(w: Writer, input: Any, dim: Any, descending: Any) -> Any:
    return _sort(w, input, dim, descending)[1]


# --- matrices


@builds("matmul", "batched")
def _matmul(w: Writer, input: Any, other: Any) -> Any:
    return w.op("MatMul", input, other)


@builds("mm", "bmm")
def _mm(w: Writer, input: Any, mat2: Any) -> Any:
    return w.op("MatMul", input, mat2)


@builds("mv")
def _mv(w: Writer, input: Any, vec: Any) -> Any:
    return w.op("MatMul", input, vec)


@builds("dot")
def _dot(w: Writer, input: Any, tensor: Any) -> Any:
    return w.op("MatMul", input, tensor)


@builds("linear")
def _linear(w: Writer, input: Any, weight: Any, bias: Any) -> Any:
    if input.rank == 2 and weight.rank == 2 and is_float(input.dtype):
        return w.op("Gemm", input, weight, bias, transB=1)
    transposed = w.op("Transpose", weight, perm=[1, 0]) if weight.rank == 2 else weight
    made = w.op("MatMul", input, transposed)
    return made if bias is None else w.op("Add", made, bias)


def _plus(w: Writer, input: Any, product: Any, beta: Any, alpha: Any) -> Any:
    if alpha != 1:
        product = w.op("Mul", product, w.const(alpha, product.dtype))
    if beta == 0:
        return product
    return w.op("Add", input if beta == 1 else w.op("Mul", input, w.const(beta, input.dtype)), product)


@builds("addmm")
def _addmm(w: Writer, input: Any, mat1: Any, mat2: Any, beta: Any, alpha: Any) -> Any:
    return _plus(w, input, w.op("MatMul", mat1, mat2), beta, alpha)


@builds("baddbmm")
def _baddbmm(w: Writer, input: Any, batch1: Any, batch2: Any, beta: Any, alpha: Any) -> Any:
    return _plus(w, input, w.op("MatMul", batch1, batch2), beta, alpha)


@builds("einsum")
def _einsum(w: Writer, args: Any, result: Any) -> Any:
    equation, tensors = args[0], args[1:]
    if not isinstance(equation, str):
        raise OnnxExporterError("einsum of lists of dims has no ONNX form; write an equation")
    if len(tensors) == 1 and isinstance(tensors[0], list | tuple):
        tensors = tensors[0]
    return w.op("Einsum", *operands(w, result.dtype, *tensors), equation=equation.replace(" ", ""))


@builds("scaled_dot_product_attention")
def _attention(w: Writer, query: Any, key: Any, value: Any, attn_mask: Any, is_causal: Any, scale: Any) -> Any:
    order = [*range(key.rank - 2), key.rank - 1, key.rank - 2]
    if scale is None:
        scale = query.dim(-1) ** -0.5
    transposed = w.op("Transpose", key, perm=order)
    scores = w.op("MatMul", w.op("Mul", query, w.const(scale, query.dtype)), transposed)
    low = w.const(-np.inf, query.dtype)
    if is_causal:
        ones = w.op("Expand", w.const(True), w.sizes([w.size(query, -2), w.size(key, -2)]))
        seen = w.op("Trilu", ones, upper=0)
        scores = w.op("Where", seen, scores, low)
    if attn_mask is not None:
        if attn_mask.dtype is dtypes.bool:
            scores = w.op("Where", attn_mask, scores, low)
        else:
            scores = w.op("Add", scores, w.cast(attn_mask, query.dtype))
    weights = w.op("Softmax", scores, axis=-1)
    if attn_mask is not None and attn_mask.dtype is dtypes.bool:  # where nothing may be seen, nothing is given
        weights = w.op("Where", w.op("IsNaN", weights), w.const(0, query.dtype), weights)
    return w.op("MatMul", weights, value)


@builds("softmax")
def _softmax(w: Writer, input: Any, dim: Any, dtype: Any, result: Any) -> Any:
    del dtype
    return w.op("Softmax", w.cast(input, result.dtype), axis=along(input, dim))


@builds("log_softmax")
def _log_softmax(w: Writer, input: Any, dim: Any, dtype: Any, result: Any) -> Any:
    del dtype
    return w.op("LogSoftmax", w.cast(input, result.dtype), axis=along(input, dim))
