"""Indexing, gathering and scattering."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.core import dtypes
from engine.onnx.builders.reduction import reduced
from engine.onnx.builders.registry import along, builds
from engine.onnx.builders.shape import cut
from engine.onnx.errors import OnnxExporterError
from engine.onnx.writer import Value, Writer

_END = 2**62


def _is_array(item: Any) -> bool:
    return (isinstance(item, Value) and item.shape != ()) or isinstance(item, list | np.ndarray)


def _plain(index: Any, rank: int) -> list[Any]:
    """The index as a list with an entry for each dim of the input, None where a dim is added."""
    items = list(index) if isinstance(index, tuple) else [index]
    taken = sum(
        0 if i is None or i is Ellipsis else i.rank if isinstance(i, Value) and i.dtype is dtypes.bool else 1
        for i in items
    )
    for at, item in enumerate(items):
        if item is Ellipsis:
            items[at : at + 1] = [slice(None)] * (rank - taken)
            return items
    return items + [slice(None)] * (rank - taken)


def indexed(w: Writer, x: Value, index: Any) -> Value:
    """x[index]: slices, ints, None and Ellipsis; then one integer array, or several of one place, or a mask."""
    items = _plain(index, x.rank)
    value, d, arrays, squeezed, added = x, 0, {}, [], []
    starts: list[Any] = []
    ends, at, steps = [], [], []
    out = 0
    for item in items:
        if item is None:
            added.append(out)
            out += 1
            continue
        if isinstance(item, bool):
            raise OnnxExporterError("a bool as an index has no ONNX form")
        if isinstance(item, slice):
            if not (item.start in (None, 0) and item.stop is None and item.step in (None, 1)):
                starts.append(0 if item.start is None else item.start)
                ends.append(_END if item.stop is None else item.stop)
                at.append(d)
                steps.append(1 if item.step is None else item.step)
            out += 1
        elif _is_array(item):
            arrays[d] = item
            out += 1
        else:  # an int, a size or a 0-dim tensor
            if isinstance(item, Value):
                arrays[d] = w.op("Reshape", w.cast(item, dtypes.int64), w.ints([]), shape=(), dtype=dtypes.int64)
            else:
                starts.append(item)
                ends.append(item + 1 if item != -1 else _END)
                at.append(d)
                steps.append(1)
                squeezed.append(d)
        d += item.rank if isinstance(item, Value) and item.dtype is dtypes.bool and item.rank > 1 else 1
    rank = x.rank
    if at:
        value = w.op("Slice", value, w.sizes(starts), w.sizes(ends), w.ints(at), w.ints(steps))
    if arrays:
        return _advanced(w, value, rank, arrays, squeezed, added)
    if squeezed:
        value = w.op("Squeeze", value, w.ints(squeezed))
    if added:
        value = w.op("Unsqueeze", value, w.ints(added))
    return value


def _advanced(w: Writer, value: Any, rank: int, arrays: dict[int, Any], squeezed: list[int], added: list[int]) -> Value:
    """The part of an index that is arrays: dims from 0, of the input before ints have taken theirs away."""
    if squeezed:
        value = w.op("Squeeze", value, w.ints(squeezed))
        arrays = {d - sum(s < d for s in squeezed): item for d, item in arrays.items()}
        rank -= len(squeezed)
    if len(arrays) == 1:
        ((d, item),) = arrays.items()
        if isinstance(item, Value) and item.dtype is dtypes.bool:
            return _masked(w, value, rank, d, item, added)
        value = w.op("Gather", value, w.cast(w.value(item), dtypes.int64), axis=d)
        if added:
            value = w.op("Unsqueeze", value, w.ints(added))
        return value
    if added:
        raise OnnxExporterError("None beside several index tensors has no ONNX form")
    dims = sorted(arrays)
    if dims != list(range(dims[0], dims[-1] + 1)):
        raise OnnxExporterError("index tensors that are not side by side have no ONNX form")
    order = [*dims, *(i for i in range(rank) if i not in dims)]
    if order != list(range(rank)):
        value = w.op("Transpose", value, perm=order)
    indices = [w.cast(w.value(arrays[d]), dtypes.int64) for d in dims]
    shapes = max((i.rank for i in indices), default=0)
    together = indices[0]
    for i in indices[1:]:
        together = w.op("Add", together, i)
    shape = w.op("Shape", together)
    parts = [w.op("Unsqueeze", w.op("Expand", i, shape), w.ints([shapes])) for i in indices]
    value = w.op("GatherND", value, w.op("Concat", *parts, axis=shapes))
    if dims[0]:  # what the arrays give stands where the first of them stood
        back = [*range(shapes, shapes + dims[0]), *range(shapes), *range(shapes + dims[0], shapes + rank - len(dims))]
        value = w.op("Transpose", value, perm=back)
    return value


def _masked(w: Writer, value: Any, rank: int, d: int, mask: Value, added: list[int]) -> Value:
    if added:
        raise OnnxExporterError("None beside a mask has no ONNX form")
    if mask.rank == 1:
        return w.op("Compress", value, mask, axis=d)
    if d:
        raise OnnxExporterError("a mask of several dims behind other dims has no ONNX form")
    del rank
    return w.op("GatherND", value, w.op("Transpose", w.op("NonZero", mask), perm=[1, 0]))


@builds("__getitem__", back="index")
def _getitem(w: Writer, self: Any, index: Any) -> Any:
    return indexed(w, self, index)


@builds("basic_index", "select_index", "item_index")
def _basic_index(w: Writer, input: Any, index: Any) -> Any:
    return indexed(w, input, index)


@builds("select", back="index")
def _select(w: Writer, input: Any, dim: Any, index: Any) -> Any:
    return w.op("Gather", input, w.value(index, dtypes.int64), axis=dim % input.rank)


def write_at(w: Writer, x: Value, index: Any, value: Any) -> Value:
    """`x` with `value` written at `index`: of ints, slices, a mask or one array of rows."""
    if isinstance(index, Value) and index.dtype is dtypes.bool:
        if isinstance(value, Value) and value.shape not in ((), (1,)):
            raise OnnxExporterError("writing a tensor where a mask is true has no ONNX form")
        mask = index
        for _ in range(x.rank - mask.rank):
            mask = w.op("Unsqueeze", mask, w.ints([mask.rank]), shape=(*(mask.shape or ()), 1))
        return w.op("Where", mask, w.value(value, x.dtype), x)
    items = [i for i in _plain(index, x.rank) if i is not None]
    where = [_positions(w, x, d, item) for d, item in enumerate(items)]
    last = max((d for d, item in enumerate(items) if item != slice(None)), default=-1)
    if last < 0:
        return w.op("Expand", w.value(value, x.dtype), w.shape_of(x), dtype=x.dtype)
    if sum(map(_is_array, items)) > 1:
        raise OnnxExporterError("writing at several index tensors has no ONNX form")
    # positions [sizes..., last + 1] of what is written, for ScatterND
    grid = []
    kept = [d for d in range(last + 1) if where[d][1]]
    for d in range(last + 1):
        position = where[d][0]
        after = len([k for k in kept if k > d])
        if where[d][1] and after:
            position = w.op("Unsqueeze", position, w.ints(list(range(1, after + 1))))
        grid.append(position)
    total = grid[0]
    for position in grid[1:]:
        total = w.op("Add", total, position)
    shape = w.op("Shape", total)
    parts = [w.op("Unsqueeze", w.op("Expand", position, shape), w.ints([-1])) for position in grid]
    indices = parts[0] if len(parts) == 1 else w.op("Concat", *parts, axis=-1)
    rest = [w.size(x, d) for d in range(last + 1, x.rank)]
    sizes = shape if not rest else w.op("Concat", shape, w.sizes(rest), axis=0)
    update = w.op("Expand", w.value(value, x.dtype), sizes, dtype=x.dtype)
    return w.op("ScatterND", x, indices, update)


def _positions(w: Writer, x: Value, d: int, item: Any) -> tuple[Any, bool]:
    """(positions along a dim, whether the dim is kept)."""
    n = w.size(x, d)
    if isinstance(item, slice):
        if isinstance(n, int) and not any(isinstance(v, Value) for v in (item.start, item.stop)):
            return w.const(np.arange(n)[item]), True
        whole = w.op("Range", *(w.value(v, dtypes.int64) for v in (0, n, 1)), shape=(None,))
        if item == slice(None):
            return whole, True
        ends = (item.start or 0, _END if item.stop is None else item.stop, item.step or 1)
        return cut(w, whole, 0, *ends), True
    if _is_array(item):
        index = w.cast(w.value(item), dtypes.int64)
        if index.dtype is dtypes.bool or index.rank != 1:
            raise OnnxExporterError("writing at an index tensor of several dims has no ONNX form")
        return index, True
    if isinstance(item, Value):
        return w.op("Reshape", w.cast(item, dtypes.int64), w.ints([]), shape=()), False
    if item < 0:
        item = n + item if isinstance(n, int) else w.op("Add", n, w.const(np.int64(item)), shape=())
    return w.value(item, dtypes.int64), False


# --- by tensors of positions


@builds("index_select")
def _index_select(w: Writer, input: Any, dim: Any, index: Any) -> Any:
    where = w.cast(index, dtypes.int64)
    return w.op("Gather", input, where if index.rank else w.op("Unsqueeze", where, w.ints([0])), axis=along(input, dim))


@builds("gather")
def _gather(w: Writer, input: Any, dim: Any, index: Any) -> Any:
    return w.op("GatherElements", input, w.cast(index, dtypes.int64), axis=along(input, dim))


@builds("take_along")
def _take_along(w: Writer, input: Any, index: Any, dim: Any) -> Any:
    return w.op("GatherElements", input, w.cast(index, dtypes.int64), axis=dim % input.rank)


@builds("take")
def _take(w: Writer, input: Any, index: Any) -> Any:
    return w.op("Gather", w.op("Reshape", input, w.ints([-1])), w.cast(index, dtypes.int64), axis=0)


@builds("embedding")
def _embedding(w: Writer, weight: Any, indices: Any) -> Any:
    return w.op("Gather", weight, w.cast(indices, dtypes.int64), axis=0)


@builds("pooled_rows")
def _pooled_rows(
    w: Writer,
    weight: Any,
    indices: Any,
    offsets: Any,
    per_sample_weights: Any,
    mean: Any,
    padding_idx: Any,
    include_last: Any,
) -> Any:
    """Sums over the places of equal bags; of others products with a matrix of which index is in which bag."""
    at, kind = w.cast(indices, dtypes.int64), weight.dtype
    rows = w.op("Gather", weight, at, axis=0, shape=(*indices.shape, weight.shape[1]))
    used = None
    if padding_idx >= 0:
        used = w.cast(w.op("Not", w.op("Equal", at, w.const(padding_idx, dtypes.int64))), kind)
    shares = [x for x in (used, per_sample_weights) if x is not None]
    if offsets is not None:
        members = w.cast(_in_bags(w, at, w.cast(offsets, dtypes.int64), include_last), kind)
        counts = members if used is None else w.op("Mul", members, used)
        for share in shares:
            members = w.op("Mul", members, share)
        made = w.op("MatMul", members, rows)
    elif mean and used is None:
        return reduced(w, "ReduceMean", rows, 1, False)
    else:
        counts = used
        for share in shares:
            rows = w.op("Mul", rows, w.op("Unsqueeze", share, w.ints([2]), shape=(*indices.shape, 1)))
        made = reduced(w, "ReduceSum", rows, 1, False)
    if not mean:
        return made
    count = w.op("ReduceSum", counts, w.ints([1]), keepdims=True)
    return w.op("Div", made, w.op("Max", count, w.const(1, kind)))


def _in_bags(w: Writer, at: Value, offsets: Value, include_last: bool) -> Value:
    """bool (bags, indices): whether an index is in a bag."""
    size = w.value(w.size(at, 0), dtypes.int64)
    place = w.op("Range", *(w.value(v, dtypes.int64) for v in (0, size, 1)), dtype=dtypes.int64)
    begin, end = offsets, w.op("Slice", offsets, w.ints([1]), w.ints([_END]), w.ints([0]))
    if include_last:
        begin = w.op("Slice", offsets, w.ints([0]), w.ints([-1]), w.ints([0]))
    else:
        end = w.op("Concat", end, w.op("Reshape", size, w.ints([1])), axis=0)
    begin, end = (w.op("Unsqueeze", x, w.ints([1])) for x in (begin, end))
    return w.op("And", w.op("GreaterOrEqual", place, begin), w.op("Less", place, end))  # type: ignore[no-any-return]


@builds("scatter_src")
def _scatter_src(w: Writer, input: Any, dim: Any, index: Any, src: Any) -> Any:
    return w.op("ScatterElements", input, index, _as_large(w, src, index, input.dtype), axis=along(input, dim))


def _as_large(w: Writer, src: Any, index: Any, dtype: Any) -> Any:
    """The part of `src` that an index of that shape reads: ONNX wants one shape."""
    src = w.cast(src, dtype)
    if src.shape == index.shape:
        return src
    n = index.rank
    return w.op("Slice", src, w.ints([0] * n), w.shape_of(index), w.ints(list(range(n))))


@builds("scatter_value")
def _scatter_value(w: Writer, input: Any, dim: Any, index: Any, value: Any) -> Any:
    update = w.op("Expand", w.value(value, input.dtype), w.shape_of(index), dtype=input.dtype)
    return w.op("ScatterElements", input, index, update, axis=along(input, dim))


@builds("scatter_add")
def _scatter_add(w: Writer, input: Any, dim: Any, index: Any, src: Any) -> Any:
    return w.op(
        "ScatterElements", input, index, _as_large(w, src, index, input.dtype), axis=along(input, dim), reduction="add"
    )


@builds("nonzero_rows")
def _nonzero(w: Writer, input: Any) -> Any:
    if not input.rank:
        raise OnnxExporterError("a 0-dim tensor has no positions in ONNX")
    return w.op("Transpose", w.op("NonZero", w.cast(input, dtypes.bool)), perm=[1, 0])


@builds("masked_select")
def _masked_select(w: Writer, input: Any, mask: Any) -> Any:
    shape = w.op("Shape", w.op("Or", mask, w.op("Expand", w.const(False), w.shape_of(input))))
    return w.op("Compress", w.op("Expand", input, shape), w.op("Reshape", w.op("Expand", mask, shape), w.ints([-1])))


@builds("diagonal")
def _diagonal(w: Writer, input: Any, offset: Any, dim1: Any, dim2: Any) -> Any:
    first, second = dim1 % input.rank, dim2 % input.rank
    order = [first, second, *(d for d in range(input.rank) if d not in (first, second))]
    rows, columns = input.dim(first), input.dim(second)
    start, shift = (0, offset) if offset >= 0 else (-offset, 0)
    n = max(0, min(rows - start, columns - shift))
    at = np.stack([np.arange(n) + start, np.arange(n) + shift], -1)
    made = w.op("GatherND", w.op("Transpose", input, perm=order), w.const(at))
    return w.op("Transpose", made, perm=[*range(1, input.rank - 1), 0]) if input.rank > 2 else made
