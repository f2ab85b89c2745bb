"""Shapes, joins and cuts, and tensors made of sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.core import dtypes
from engine.onnx.builders.registry import along, builds
from engine.onnx.errors import OnnxExporterError
from engine.onnx.writer import Value, Writer


def flat(sizes: Any) -> list[Any]:
    """Sizes given one by one, or as one tuple."""
    items = list(sizes)
    return list(items[0]) if len(items) == 1 and isinstance(items[0], list | tuple) else items


def target(sizes: Sequence[Any], result: Any) -> list[Any]:
    """The sizes of a reshape; a -1 whose size is known is that size."""
    items = [*sizes]
    if result.shape is not None and len(result.shape) == len(items):
        for i, n in enumerate(result.shape):
            if not isinstance(items[i], Value) and items[i] == -1 and n is not None:
                items[i] = n
    return items


@builds("reshape", back="reshape")
@builds("reshape_copy")
def _reshape(w: Writer, input: Any, shape: Any, result: Any) -> Any:
    return w.reshape(input, target(flat(shape), result))


@builds("view_size", back="reshape")
def _view_size(w: Writer, input: Any, size: Any, result: Any) -> Any:
    return w.reshape(input, target(flat([size]), result))


@builds("view", back="reshape")
def _view(w: Writer, input: Any, size: Any, result: Any) -> Any:
    return w.reshape(input, target(flat(size), result))


def described(w: Writer, x: Any, result: Any) -> Any:
    """`x` in the shape that the operator gave."""
    varying = [i for i, n in enumerate(result.shape) if n is None]
    if len(varying) > 1:
        return None
    return w.op("Reshape", x, w.ints([-1 if n is None else n for n in result.shape]))


@builds("flatten", back="reshape")
def _flatten(w: Writer, input: Any, start_dim: Any, end_dim: Any, result: Any) -> Any:
    made = described(w, input, result)
    if made is not None:
        return made
    first, last = start_dim % input.rank, end_dim % input.rank
    return w.reshape(
        input, [*(w.size(input, d) for d in range(first)), -1, *(w.size(input, d) for d in range(last + 1, input.rank))]
    )


@builds("unflatten", back="reshape")
def _unflatten(w: Writer, input: Any, dim: Any, sizes: Any, result: Any) -> Any:
    made = described(w, input, result)
    if made is not None:
        return made
    d = dim % input.rank
    around = [w.size(input, i) for i in range(input.rank)]
    return w.reshape(input, target([*around[:d], *sizes, *around[d + 1 :]], result))


@builds("reshape_as", "view_as", back="reshape")
def _reshape_as(w: Writer, input: Any, other: Any) -> Any:
    return w.op("Reshape", input, w.shape_of(other))


@builds("expand_as")
def _expand_as(w: Writer, input: Any, other: Any) -> Any:
    return w.op("Expand", input, w.shape_of(other))


@builds("unsqueeze", back="reshape")
def _unsqueeze(w: Writer, input: Any, dim: Any) -> Any:
    return w.op("Unsqueeze", input, w.ints([dim % (input.rank + 1)]))


@builds("squeeze", back="reshape")
def _squeeze(w: Writer, input: Any, result: Any, dim: Any = ()) -> Any:
    del dim
    kept = list(result.shape)
    gone = []
    for d in range(input.rank):  # which dims went, told by the sizes
        if len(kept) and input.shape[d] == kept[0] and input.rank - d == len(kept):
            kept.pop(0)
        elif input.shape[d] == 1 and (not kept or input.rank - d > len(kept)):
            gone.append(d)
        elif kept:
            kept.pop(0)
    return w.op("Squeeze", input, w.ints(gone)) if gone else w.op("Identity", input)


@builds("transpose")
def _transpose(w: Writer, input: Any, dim0: Any, dim1: Any) -> Any:
    order = list(range(input.rank))
    if order:
        order[dim0], order[dim1] = order[dim1], order[dim0]
    return w.op("Transpose", input, perm=order)


@builds("t")
def _t(w: Writer, input: Any) -> Any:
    return w.op("Transpose", input, perm=list(range(input.rank))[::-1])


@builds("permute")
def _permute(w: Writer, input: Any, dims: Any) -> Any:
    return w.op("Transpose", input, perm=[d % input.rank for d in flat(dims)])


@builds("expand", "broadcast_to")
def _expand(w: Writer, input: Any, size: Any) -> Any:
    items = flat(size)  # -1 keeps a size, as 1 does in ONNX
    return w.op("Expand", input, w.sizes([1 if not isinstance(n, Value) and n == -1 else n for n in items]))


def _repeated(w: Writer, input: Any, repeats: Any) -> Any:
    items = flat(repeats)
    x = input
    if len(items) > x.rank:
        x = w.op("Unsqueeze", x, w.ints(list(range(len(items) - x.rank))))
    elif len(items) < x.rank:
        items = [1] * (x.rank - len(items)) + items
    return w.op("Tile", x, w.sizes(items))


@builds("repeat")
def _repeat(w: Writer, input: Any, repeats: Any) -> Any:
    return _repeated(w, input, repeats)


@builds("tile")
def _tile(w: Writer, input: Any, dims: Any) -> Any:
    return _repeated(w, input, dims)


@builds("repeat_interleave")
def _repeat_interleave(w: Writer, input: Any, repeats: Any, dim: Any) -> Any:
    if not isinstance(repeats, int):
        raise OnnxExporterError("repeats that are a tensor have no ONNX form")
    x = input
    if dim is None:
        x, dim = w.op("Reshape", x, w.ints([-1]), shape=(None,)), 0
    d = dim % x.rank
    twice = w.op("Unsqueeze", x, w.ints([d + 1]))
    times = [1] * (x.rank + 1)
    times[d + 1] = repeats
    sizes = [w.size(input, i) if input.rank == x.rank else -1 for i in range(x.rank)]
    sizes[d] = -1
    return w.op("Reshape", w.op("Tile", twice, w.ints(times)), w.sizes(sizes))


# --- joining and cutting


@builds("cat")
def _cat(w: Writer, tensors: Any, dim: Any, result: Any) -> Any:
    given = [w.value(t, result.dtype) for t in tensors if t.shape != (0,)]
    return given[0] if len(given) == 1 else w.op("Concat", *given, axis=dim % len(result.shape))


@builds("stack_tensors")
def _stack(w: Writer, tensors: Any, dim: Any, result: Any) -> Any:
    d = dim % len(result.shape)
    parts = [w.op("Unsqueeze", w.value(t, result.dtype), w.ints([d])) for t in tensors]
    return parts[0] if len(parts) == 1 else w.op("Concat", *parts, axis=d)


def cut(w: Writer, x: Any, d: int, start: Any, end: Any, step: int = 1) -> Any:
    """x[start:end:step] along one dim."""
    return w.op("Slice", x, w.sizes([start]), w.sizes([end]), w.ints([d % x.rank]), w.ints([step]))


def _pieces(w: Writer, x: Any, d: int, sizes: Sequence[Any]) -> list[Any]:
    if len(sizes) == 1:
        return [w.op("Identity", x)]
    made = w.op("Split", x, w.sizes(sizes), axis=d % x.rank, outputs=len(sizes))
    return list(made)


def split_sizes(n: int, each: int) -> list[int]:
    """The sizes of the parts of `each`, the last of what is left."""
    return [min(each, n - i) for i in range(0, n, each)] or [0]


@builds("chunk", "unsafe_chunk")
def _chunk(w: Writer, input: Any, chunks: Any, dim: Any) -> Any:
    n = input.dim(dim)
    return _pieces(w, input, dim, split_sizes(n, -(-n // chunks)) if n else [0] * chunks)


@builds("split_every", "unsafe_split_every")
def _split_every(w: Writer, input: Any, split_size: Any, dim: Any) -> Any:
    return _pieces(w, input, dim, split_sizes(input.dim(dim), split_size))


@builds("split_with_sizes", "unsafe_split_with_sizes")
def _split_with_sizes(w: Writer, input: Any, split_sizes: Any, dim: Any) -> Any:
    return _pieces(w, input, dim, list(split_sizes))


@builds("unbind")
def _unbind(w: Writer, input: Any, dim: Any) -> Any:
    return [w.op("Gather", input, w.const(np.int64(i)), axis=dim % input.rank) for i in range(input.dim(dim))]


@builds("narrow", back="index")
def _narrow(w: Writer, input: Any, dim: Any, start: Any, length: Any) -> Any:
    if isinstance(start, Value) or isinstance(length, Value):
        first, count = (w.value(v, dtypes.int64) for v in (start, length))
        return cut(w, input, dim, first, w.op("Add", first, count, shape=()))
    return cut(w, input, dim, start, start + length)


@builds("cut")
def _cut(w: Writer, input: Any, dim: Any, start: Any, length: Any) -> Any:
    return _narrow(w, input, dim, start, length)


@builds("flip")
def _flip(w: Writer, input: Any, dims: Any) -> Any:
    at = [along(input, d) for d in flat(dims)]
    n = len(at)
    return w.op("Slice", input, w.ints([-1] * n), w.ints([-(2**62)] * n), w.ints(at), w.ints([-1] * n)) if n else input


@builds("roll")
def _roll(w: Writer, input: Any, shifts: Any, dims: Any, result: Any) -> Any:
    steps = [shifts] if isinstance(shifts, int) else list(shifts)
    at = [dims] if isinstance(dims, int) else list(dims)
    x = input
    if not at:
        x, at = w.op("Reshape", x, w.ints([-1]), shape=(None,)), [0]
    for step, d in zip(steps, at):
        n = w.size(x, d) if x.shape != (None,) else None
        if isinstance(n, int):
            step %= n or 1
        ends = [cut(w, x, d, -step, 2**62), cut(w, x, d, 0, -step)]
        if step:
            x = w.op("Concat", *ends, axis=d % x.rank, shape=x.shape)
    return x if x.rank == input.rank else w.op("Reshape", x, w.shape_of(input))


@builds("unfold")
def _unfold(w: Writer, input: Any, dimension: Any, size: Any, step: Any) -> Any:
    d = dimension % input.rank
    starts = np.arange(0, input.dim(d) - size + 1, step)
    made = w.op("Gather", input, w.const(starts[:, None] + np.arange(size)), axis=d)
    order = [*range(d + 1), *range(d + 2, input.rank + 1), d + 1]
    return w.op("Transpose", made, perm=order)


def _triangle(name: str, upper: int) -> None:
    def build(w: Writer, input: Any, diagonal: Any) -> Any:
        x = w.cast(input, dtypes.int64) if input.dtype is dtypes.bool else input
        return w.cast(w.op("Trilu", x, w.const(np.int64(diagonal)), upper=upper), input.dtype)

    builds(name)(build)


_triangle("tril", 0)
_triangle("triu", 1)


# --- of sizes


def filled(w: Writer, sizes: Any, number: Any, dtype: Any) -> Any:
    return w.op("Expand", w.value(number, dtype), w.sizes(flat(sizes)), dtype=dtype)


def _makes(name: str, number: int) -> None:
    def of_sizes(w: Writer, sizes: Any, size: Any, dtype: Any, result: Any) -> Any:
        del dtype
        return filled(w, sizes or [size], number, result.dtype)

    def like(w: Writer, input: Any, dtype: Any, result: Any) -> Any:
        del dtype
        return w.op("Expand", w.const(number, result.dtype), w.shape_of(input), dtype=result.dtype)

    def new(w: Writer, self: Any, sizes: Any, size: Any, dtype: Any, result: Any) -> Any:
        del dtype, self
        return filled(w, sizes or [size], number, result.dtype)

    builds(name)(of_sizes)
    builds(f"{name}_like")(like)
    builds(f"new_{name}")(new)


_makes("zeros", 0)
_makes("ones", 1)
_makes("empty", 0)


@builds("full")
def _full(w: Writer, size: Any, fill_value: Any, dtype: Any, result: Any) -> Any:
    del dtype
    return filled(w, [size], fill_value, result.dtype)


@builds("full_like")
def _full_like(w: Writer, input: Any, fill_value: Any, dtype: Any, result: Any) -> Any:
    del dtype
    return w.op("Expand", w.value(fill_value, result.dtype), w.shape_of(input), dtype=result.dtype)


@builds("new_full")
def _new_full(w: Writer, self: Any, size: Any, fill_value: Any, dtype: Any, result: Any) -> Any:
    del dtype, self
    return filled(w, [size], fill_value, result.dtype)


@builds("scalar_tensor")
def _scalar_tensor(w: Writer, s: Any, dtype: Any, result: Any) -> Any:
    del dtype
    return w.value(s, result.dtype)


@builds("arange")
def _arange(w: Writer, args: Any, start: Any, end: Any, step: Any, dtype: Any, result: Any) -> Any:
    del dtype
    given = list(args)
    if len(given) == 1:
        end = given[0]
    elif given:
        start, end, *rest = given
        step = rest[0] if rest else step
    return w.op("Range", *(w.value(v, result.dtype) for v in (start, end, step)), dtype=result.dtype)


@builds("eye")
def _eye(w: Writer, n: Any, m: Any, dtype: Any, result: Any) -> Any:
    del dtype
    rows = w.op("Range", *(w.value(v, dtypes.int64) for v in (0, n, 1)))
    columns = rows if m is None else w.op("Range", *(w.value(v, dtypes.int64) for v in (0, m, 1)))
    return w.cast(w.op("Equal", w.op("Unsqueeze", rows, w.ints([1])), columns), result.dtype)


@builds("one_hot")
def _one_hot(w: Writer, tensor: Any, num_classes: Any) -> Any:
    if num_classes == -1:
        raise OnnxExporterError("num_classes=-1 reads the values; give the number of classes")
    return w.op("OneHot", tensor, w.const(np.int64(num_classes)), w.ints([0, 1]), axis=-1, dtype=dtypes.int64)
