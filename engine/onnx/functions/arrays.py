"""Operators on shapes, indices, and tensors made of sizes."""

from __future__ import annotations

from typing import Any

from engine import nn
from engine.core import dtypes
from engine.onnx.functions.registry import implements, ints, of_code, tensor_of
from engine.ops import functions as torch
from engine.tensor import Tensor


@implements("Shape")
def _shape(x: Tensor, *, start: int = 0, end: Any = None) -> Any:
    return tensor_of([int(n) for n in x.shape][start:end])


@implements("Size")
def _size(x: Tensor) -> Any:
    return tensor_of(int(x.numel()))


@implements("Reshape")
def _reshape(x: Tensor, shape: Any, *, allowzero: int = 0) -> Any:
    sizes = ints(shape)
    if not allowzero:
        sizes = [int(x.shape[d]) if n == 0 else n for d, n in enumerate(sizes)]
    return torch.reshape(x, sizes)


@implements("Flatten")
def _flatten(x: Tensor, *, axis: int = 1) -> Any:
    at = axis + x.dim() if axis < 0 else axis
    rows = 1
    for n in x.shape[:at]:
        rows *= int(n)
    return torch.reshape(x, [rows, -1] if x.numel() else [rows, x.numel() // max(rows, 1)])


@implements("Transpose")
def _transpose(x: Tensor, *, perm: Any = None) -> Any:
    return torch.permute(x, list(range(x.dim()))[::-1] if perm is None else perm)


@implements("Unsqueeze")
def _unsqueeze(x: Tensor, given: Any = None, *, axes: Any = None) -> Any:
    dims = ints(given if axes is None else axes)
    for d in sorted(d % (x.dim() + len(dims)) for d in dims):
        x = torch.unsqueeze(x, d)
    return x


@implements("Squeeze")
def _squeeze(x: Tensor, given: Any = None, *, axes: Any = None) -> Any:
    if given is None and axes is None:
        return torch.squeeze(x)
    for d in sorted((d % x.dim() for d in ints(given if axes is None else axes)), reverse=True):
        if x.shape[d] != 1:
            raise RuntimeError(f"Squeeze of dim {d} of a tensor {list(x.shape)}")
        x = torch.squeeze(x, d)
    return x


@implements("Concat")
def _concat(*xs: Tensor, axis: int) -> Any:
    return torch.cat(list(xs), axis)


@implements("Split")
def _split(
    x: Tensor, given: Any = None, *, axis: int = 0, split: Any = None, num_outputs: Any = None, outputs: int
) -> Any:
    sizes = ints(given if split is None else split)
    if not sizes:
        each = -(-int(x.shape[axis]) // (num_outputs or outputs))
        return torch.split(x, each, axis)
    return torch.split(x, sizes, axis)


@implements("Slice")
def _slice(
    x: Tensor,
    first: Any = None,
    last: Any = None,
    given: Any = None,
    steps: Any = None,
    *,
    starts: Any = None,
    ends: Any = None,
    axes: Any = None,
) -> Any:
    begins, stops = ints(first if starts is None else starts), ints(last if ends is None else ends)
    dims = ints(given if axes is None else axes) or list(range(len(begins)))
    paces = ints(steps) or [1] * len(begins)
    index: list[Any] = [slice(None)] * x.dim()
    flipped = []
    for d, begin, end, step in zip(dims, begins, stops, paces, strict=True):
        n = int(x.shape[d])
        if step < 0:  # the engine's slices go forwards: the same places from the other end
            flipped.append(d % x.dim())
            at = list(range(n))[slice(begin, None if end < -n else end, step)]
            index[d] = slice(n - 1 - at[0], n - at[-1], -step) if at else slice(0, 0)
        else:
            index[d] = slice(*slice(begin, end, step).indices(n))
    if flipped:
        x = torch.flip(x, flipped)
    return x[tuple(index)]


@implements("Expand")
def _expand(x: Tensor, shape: Any) -> Any:
    return torch.broadcast_to(x, torch.broadcast_shapes(tuple(x.shape), tuple(ints(shape))))


@implements("Tile")
def _tile(x: Tensor, repeats: Any) -> Any:
    return x.repeat(ints(repeats))


@implements("Pad")
def _pad(
    x: Tensor,
    given: Any = None,
    fill: Any = None,
    axes: Any = None,
    *,
    mode: str = "constant",
    pads: Any = None,
    value: float = 0.0,
) -> Any:
    sides = ints(given if pads is None else pads)
    dims = [d % x.dim() for d in ints(axes)] or list(range(x.dim()))
    before, after = [0] * x.dim(), [0] * x.dim()
    for i, d in enumerate(dims):
        before[d], after[d] = sides[i], sides[len(dims) + i]
    fill_with = value if fill is None else fill.item()
    if mode == "constant":
        return nn.functional.pad(x, _pairs(before, after), value=fill_with)
    for d in range(x.dim()):  # each dim by its positions
        if before[d] or after[d]:
            x = torch.index_select(x, d, tensor_of(_positions(int(x.shape[d]), before[d], after[d], mode)))
    return x


def _pairs(before: list[int], after: list[int]) -> tuple[int, ...]:
    return tuple(n for pair in zip(before[::-1], after[::-1]) for n in pair)


def _positions(n: int, before: int, after: int, mode: str) -> list[int]:
    at = range(-before, n + after)
    if mode == "edge":
        return [min(max(i, 0), n - 1) for i in at]
    if mode == "wrap":
        return [i % n for i in at]
    period = max(2 * (n - 1), 1)
    return [n - 1 - abs(i % period - (n - 1)) if n > 1 else 0 for i in at]


@implements("Constant")
def _constant(
    *,
    value: Any = None,
    value_float: Any = None,
    value_floats: Any = None,
    value_int: Any = None,
    value_ints: Any = None,
) -> Any:
    if value is not None:
        return value
    if value_float is not None or value_floats is not None:
        return tensor_of(value_float if value_floats is None else value_floats, dtypes.float32)
    return tensor_of(value_int if value_ints is None else value_ints)


@implements("ConstantOfShape")
def _constant_of_shape(shape: Any, *, value: Any = None) -> Any:
    if value is None:
        return torch.zeros(ints(shape))
    return torch.full(ints(shape), value.reshape(-1)[0].item(), dtype=value.dtype)


@implements("EyeLike")
def _eye_like(x: Tensor, *, dtype: Any = None, k: int = 0) -> Any:
    made = torch.ones(tuple(x.shape), dtype=x.dtype if dtype is None else of_code(dtype))
    return torch.triu(torch.tril(made, k), k)


@implements("Range")
def _range(start: Tensor, limit: Tensor, delta: Tensor) -> Any:
    return torch.arange(start.item(), limit.item(), delta.item(), dtype=start.dtype)


@implements("OneHot")
def _one_hot(indices: Tensor, depth: Any, values: Tensor, *, axis: int = -1) -> Any:
    (n,) = ints(depth)
    places = indices.to(dtypes.int64)
    places = torch.where(places < 0, places + n, places)
    at = axis % (indices.dim() + 1)
    shape = [1] * (indices.dim() + 1)
    shape[at] = n
    hot = torch.unsqueeze(places, at) == torch.arange(n).reshape(shape)
    return torch.where(hot, values[1], values[0])


@implements("Trilu")
def _trilu(x: Tensor, k: Any = None, *, upper: int = 1) -> Any:
    diagonal = ints(k)[0] if k is not None else 0
    return torch.triu(x, diagonal) if upper else torch.tril(x, diagonal)


# --- indices


def _positive(indices: Tensor, n: int) -> Any:
    indices = indices.to(dtypes.int64)
    return torch.where(indices < 0, indices + n, indices)


@implements("Gather")
def _gather(x: Tensor, indices: Tensor, *, axis: int = 0) -> Any:
    d = axis % x.dim()
    flat = torch.index_select(x, d, _positive(indices, int(x.shape[d])).reshape(-1))
    return torch.reshape(flat, [*x.shape[:d], *indices.shape, *x.shape[d + 1 :]])


@implements("GatherElements")
def _gather_elements(x: Tensor, indices: Tensor, *, axis: int = 0) -> Any:
    return torch.gather(x, axis, _positive(indices, int(x.shape[axis])))


@implements("GatherND")
def _gather_nd(x: Tensor, indices: Tensor, *, batch_dims: int = 0) -> Any:
    count = int(indices.shape[-1])
    places = indices.to(dtypes.int64)
    index: list[Any] = []
    for d in range(batch_dims):
        shape = [1] * (places.dim() - 1)
        shape[d] = int(x.shape[d])
        index.append(torch.arange(int(x.shape[d])).reshape(shape))
    index += [places[..., i] for i in range(count)]
    return x[tuple(index)]


def _combined(reduction: str, before: Tensor, update: Tensor) -> Any:
    return {"add": torch.add, "mul": torch.mul, "max": torch.maximum, "min": torch.minimum}[reduction](before, update)


@implements("ScatterND")
def _scatter_nd(x: Tensor, indices: Tensor, updates: Tensor, *, reduction: str = "none") -> Any:
    places = indices.to(dtypes.int64)
    index = tuple(places[..., i] for i in range(int(places.shape[-1])))
    if reduction == "none":
        return torch.index_put(x, index, updates)
    if reduction == "add":
        return torch.index_put(x, index, updates, accumulate=True)
    raise NotImplementedError(f"ONNX ScatterND(reduction={reduction!r}) is not supported")


@implements("ScatterElements", "Scatter")
def _scatter_elements(x: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none") -> Any:
    places = _positive(indices, int(x.shape[axis]))
    if reduction == "none":
        return torch.scatter(x, axis, places, updates)
    how = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}[reduction]
    return torch.scatter_reduce(x, axis, places, updates, how)


@implements("NonZero")
def _nonzero(x: Tensor) -> Any:
    return torch.nonzero(x).t()


@implements("Compress")
def _compress(x: Tensor, condition: Tensor, *, axis: Any = None) -> Any:
    kept = torch.nonzero(condition).reshape(-1)
    return torch.index_select(x.reshape(-1) if axis is None else x, axis or 0, kept)
