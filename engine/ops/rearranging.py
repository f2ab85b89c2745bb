"""Copies in another arrangement: repeated, flipped, rolled, triangles and diagonals of matrices."""

from __future__ import annotations

import builtins
import itertools
from typing import Any

import numpy as np

from engine import backends
from engine.autograd.graph import name_node
from engine.backends.cpu import empty, threads
from engine.backends.cpu.relayout import contiguous, joined
from engine.core import dtypes
from engine.core.checks import numel, wrap_dim
from engine.dispatch import composite, derivative, op, samples
from engine.dispatch.arguments import argument_error, by_name, sizes_of
from engine.ops.along import index_select
from engine.ops.creation import zeros
from engine.ops.gathering import zeros_of
from engine.ops.shape import reshape_to
from engine.ops.strides import diagonal
from engine.tensor import Tensor, wrap

# --- repeated


@op(varargs="repeats", public=False, out=False, large=1 << 11, generated="some")
@derivative(input=lambda grad, input_shape, repeats: repeat_backward(grad, input_shape, repeats))
@samples(lambda t: [(t(2, 3), (2, 1)), (t(3), (4, 2)), (t(), (2,)), (t(2), (0,)), (t(1, 2), (1, 1))])
def repeat(xp, input, repeats):
    """Copies of `input` side by side, `repeats` of them along each dim.  input (*) -> (* times repeats)."""
    if len(repeats) < input.ndim:
        raise RuntimeError("Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor")
    lead = len(repeats) - input.ndim
    shape = (1,) * lead + input.shape
    for r, n in zip(repeats, shape):
        if r < 0:
            sizes = [r * n for r, n in zip(repeats, shape)]
            raise RuntimeError(f"Trying to create tensor with negative dimension {r * n}: {sizes}")
    spread = [x for r, n in zip(repeats, shape) for x in (r, n)]
    split = [x for n in shape for x in (1, n)]
    wide = xp.broadcast_to(input.reshape(split), spread)
    made = [r * n for r, n in zip(repeats, shape)]
    if type(wide) is np.ndarray and wide.size > input.size:
        return contiguous(wide).reshape(made)
    found = xp.ascontiguousarray(wide).reshape(made)
    return found.copy() if wide.size == input.size or not wide.size else found


def repeat_backward(grad, shape, repeats):
    """The copies' gradients added up."""
    lead = len(repeats) - len(shape)
    if 0 in repeats:
        return zeros_of(grad, shape)
    full = (1,) * lead + tuple(shape)
    several = [d for d, r in enumerate(repeats) if r != 1]
    if len(several) == 1:
        (d,) = several
        return grad.reshape(numel(full[:d]), repeats[d], numel(full[d:])).sum(1).reshape(shape)
    grad = grad.reshape([x for r, n in zip(repeats, full) for x in (r, n)])
    dims = [d for d in builtins.range(0, grad._array.ndim, 2) if grad._array.shape[d] != 1]
    if dims:
        grad = grad.sum(dims, True)
    return grad.reshape(shape)


@op(public=False, method=False, out=False, node="CloneBackward0", large=1 << 11, generated="some")
@derivative(input=lambda grad, dim: grad.sum(dim + 1))
@samples(lambda t: [(t(2, 3), 2, 1), (t(2, 3), 3, 0), (t(0, 2), 2, 1)])
def repeat_each(xp, input, repeats: int, dim: int):
    """Each entry of `dim` beside itself.  input (*, n, *) -> (*, n, repeats, *)."""
    shape = (*input.shape[: dim + 1], repeats, *input.shape[dim + 1 :])
    wide = xp.broadcast_to(xp.expand_dims(input, dim + 1), shape)
    return contiguous(wide) if type(wide) is np.ndarray else wide.copy("C")


@composite(recorded="size")
def tile(input: Tensor, *dims, **more):
    """As `repeat`, with missing leading counts taken as 1.  input (*) -> (* times dims)."""
    if not isinstance(input, Tensor):
        raise argument_error("tile", 1, "input", "Tensor", input)
    counts = sizes_of("tile", "dims", dims or (by_name("tile", "dims", more),))
    lead = input._array.ndim - len(counts)
    return repeat(input, (1,) * builtins.max(lead, 0) + counts)


def _check_size(given: int | None, size: int) -> None:
    if given is not None and given != size:
        raise RuntimeError("allocated size does not match required size")


def _meta_size(given: int | None) -> int:
    if given is None:
        raise RuntimeError("cannot repeat_interleave a meta tensor without output_size")
    return given


@composite(recorded="size")
def repeat_interleave(
    input: Tensor, repeats: Tensor | int | None = None, dim: int | None = None, *, output_size: int | None = None
):
    """Each entry of `dim` (of the flat tensor if None) repeated.

    input (*, n, *), repeats int or (n) -> (*, sum, *).
    """
    if repeats is None:
        array = input._array
        if array.ndim != 1:
            raise RuntimeError("repeat_interleave only accept 1D vector as repeat")
        if array.dtype.name not in ("int64", "int32"):
            raise RuntimeError("repeats has to be Long or Int tensor")
        if input.device.type == "meta":
            return input.new_empty((_meta_size(output_size),))
        xp, values = backends.xp_of(array), array.tolist()
        if values and builtins.min(values) < 0:
            raise RuntimeError("repeats can not be negative")
        _check_size(output_size, builtins.sum(values))
        return wrap(xp.repeat(xp.arange(array.size), values).astype(array.dtype))
    if dim is None:
        input, dim = input.reshape(-1), 0
    dim = wrap_dim(dim, input._array.ndim)
    if not input._array.ndim:
        input = input.reshape(1)
    n = input._array.shape[dim]
    if isinstance(repeats, Tensor):
        counts = repeats._array
        if counts.ndim > 1:
            raise RuntimeError("repeats must be 0-dim or 1-dim tensor")
        if counts.dtype.name not in ("int64", "int32"):
            raise RuntimeError("repeats has to be Long or Int tensor")
        if repeats.device.type == "meta":
            return index_select(input, dim, repeats.new_zeros((_meta_size(output_size),)))
        values = counts.tolist()
        values = values if isinstance(values, list) else [values]
        if values and builtins.min(values) < 0:
            raise RuntimeError("repeats can not be negative")
        if len(values) == 1:
            values = values * n
        if len(values) != n:
            raise RuntimeError(
                f"repeats must have the same size as input along dim, but got repeats.size(0) = {len(values)} and "
                f"input.size({dim}) = {n}"
            )
    else:
        if repeats < 0:
            raise RuntimeError("Repeats must be non-negative")
        values = [repeats] * n
    if builtins.min(values, default=0) < 0:
        raise RuntimeError("repeats can not be negative")
    if isinstance(repeats, Tensor):
        _check_size(output_size, builtins.sum(values))
    elif output_size is not None and output_size != repeats * n:
        raise RuntimeError(f"repeat_interleave: Invalid output_size, expected {repeats * n} but got {output_size}")
    if not isinstance(repeats, Tensor):  # copies of a view, whose gradient is a sum; not entries picked one by one
        shape = input._array.shape
        return repeat_each(input, repeats, dim).view(*shape[:dim], n * repeats, *shape[dim + 1 :])
    xp, counted = backends.xp_of(input._array), np.repeat(np.arange(n), values if n else 0)
    index = wrap(xp.asarray(counted))
    return name_node(index_select(input, dim, index), "ViewBackward0")


# --- flipped and rolled


def flip_dims(dims: Any, ndim: int) -> list[int]:
    """The dims counted from the first; RuntimeError where one appears twice."""
    found = [wrap_dim(d, ndim) for d in dims]
    if len(set(found)) != len(found):
        repeated = next(d for i, d in enumerate(found) if d in found[:i])
        raise RuntimeError(f"dim {repeated} appears multiple times in the list of dims")
    return found


@op(varargs="dims", out=False, large=1 << 11, generated="some")
@derivative(input=lambda grad, dims: grad.flip(dims))
@samples(lambda t: [(t(2, 3), (0,)), (t(2, 3), (0, -1)), (t(3), ()), (t(), ())])
def flip(xp, input, dims):
    """The order along `dims` reversed.  input (*) -> (*)."""
    if not input.ndim:
        flip_dims(dims, 0)
        return input.copy()
    cut = [slice(None)] * input.ndim
    for d in flip_dims(dims, input.ndim):
        cut[d] = slice(None, None, -1)
    return input[tuple(cut)].copy("C") if input.flags.c_contiguous else _in_layout(xp, input, input[tuple(cut)])


def _in_layout(xp: Any, like: Any, values: Any) -> Any:
    from engine.core.layouts import empty_preserved

    result = empty_preserved(xp, like, like.dtype)
    result[...] = values
    return result


@composite()
def fliplr(input: Tensor):
    """Columns reversed.  input (n, m, *) -> (n, m, *)."""
    if input._array.ndim < 2:
        raise RuntimeError("Input must be >= 2-d.")
    return flip(input, (1,))


@composite()
def flipud(input: Tensor):
    """Rows reversed.  input (n, *) -> (n, *)."""
    if input._array.ndim < 1:
        raise RuntimeError("Input must be >= 1-d.")
    return flip(input, (0,))


def _ints(value: Any) -> tuple[int, ...]:
    return (value,) if isinstance(value, int) else tuple(value)


@op(out=False, generated="one")
@derivative(input=lambda grad, shifts, dims: grad.roll([-s for s in _ints(shifts)], dims))
@samples(lambda t: [(t(5), 2), (t(2, 3), (1, -1), (0, 1)), (t(2, 3), 4, 1), (t(2, 3), 1)])
def roll(xp, input, shifts: int | tuple[int, ...], dims: int | tuple[int, ...] | None = ()):
    """Elements shifted cyclically along `dims` (of the flat tensor without dims).  input (*) -> (*)."""
    shifts, dims = _ints(shifts), () if dims is None else _ints(dims)
    if not shifts:
        raise RuntimeError("`shifts` required")
    if not dims and len(shifts) == 1:
        if type(input) is np.ndarray:
            return _rolled(input.reshape(-1), shifts, (0,)).reshape(input.shape)
        return xp.roll(input, shifts[0])
    if len(shifts) != len(dims):
        raise RuntimeError(f"shifts and dimensions must align. shifts: {len(shifts)}, dims:{len(dims)}")
    if not input.ndim:
        raise IndexError(f"Dimension specified as {dims[0]} but tensor has no dimensions")
    dims = tuple(wrap_dim(d, input.ndim) for d in dims)
    return _rolled(input, shifts, dims) if type(input) is np.ndarray else xp.roll(input, shifts, dims)


_SHARE = 1 << 20  # bytes from which threads share the corners


def _rolled(input: np.ndarray, shifts: tuple[int, ...], dims: tuple[int, ...]) -> np.ndarray:
    """`roll` of a numpy array: the two ends of a dim change places, or the corners of several dims."""
    if len(dims) == 1:
        return _ends_changed(input, shifts[0], dims[0])
    by = {d: builtins.sum(s for s, dim in zip(shifts, dims) if dim == d) % (input.shape[d] or 1) for d in {*dims}}
    ends = {d: [(slice(s), slice(-s, None)), (slice(s, None), slice(-s))] for d, s in by.items() if s}
    made = empty(input.shape, input.dtype)

    def copy(corner: tuple[tuple[slice, slice], ...]) -> None:
        made[tuple(to for to, _ in corner)] = input[tuple(of for _, of in corner)]

    whole = [(slice(None), slice(None))]
    corners = list(itertools.product(*[ends.get(d, whole) for d in range(input.ndim)]))
    if input.nbytes > _SHARE:
        threads.run(copy, corners)
    else:
        for corner in corners:
            copy(corner)
    return made


def _ends_changed(input: np.ndarray, shift: int, dim: int) -> np.ndarray:
    """`roll` of one dim."""
    shift %= input.shape[dim] or 1
    if not shift:
        return input.copy("C")
    before = (slice(None),) * dim
    ends = input[*before, slice(-shift, None)], input[*before, slice(-shift)]
    made = joined(ends, dim) if input.nbytes > _SHARE else NotImplemented
    return np.concatenate(ends, dim) if made is NotImplemented else made  # type: ignore[no-any-return]


@composite()
def rot90(input: Tensor, k: int = 1, dims: tuple[int, ...] = (0, 1)):
    """Rotated by k times 90 degrees in the plane of two dims.  input (*) -> (*)."""
    dims = tuple(dims)
    ndim = input._array.ndim
    if len(dims) != 2:
        raise RuntimeError(f"expected total rotation dims == 2, but got dims = {len(dims)}")
    if ndim < 2:
        raise RuntimeError(f"expected total dims >= 2, but got total dims = {ndim}")
    if dims[0] == dims[1] or builtins.abs(dims[0] - dims[1]) == ndim:
        raise RuntimeError(f"expected rotation dims to be different, but got dim0 = {dims[0]} and dim1 = {dims[1]}")
    for i, d in enumerate(dims):
        if not -ndim <= d < ndim:
            raise RuntimeError(f"Rotation dim{i} out of range, dim{i} = {d}")
    k %= 4
    if k == 0:
        result = input.clone()
    elif k == 2:
        result = flip(input, dims)
    else:
        result = flip(input, (dims[k % 3],)).transpose_(*dims)
    return name_node(result, "Rot90Backward0")


# --- triangles


def _triangle(xp: Any, input: Any, diagonal: int, lower: bool, name: str) -> Any:
    if input.ndim < 2:
        raise RuntimeError(f"{name}: input tensor must have at least 2 dimensions")
    n, m = input.shape[-2:]
    gap = xp.arange(m) - xp.arange(n).reshape(-1, 1)
    keep = gap <= diagonal if lower else gap >= diagonal
    result = xp.zeros(input.shape, input.dtype)
    if type(result) is np.ndarray:
        np.copyto(result, input, where=keep)
        return result
    return xp.where(keep, input, result)


@op(inplace=True, expanded="allowed", large=1 << 11, generated="some")
@derivative(input=lambda grad, diagonal: grad.tril(diagonal))
@samples(lambda t: [(t(3, 4),), (t(2, 3, 3), -1), (t(3, 2), 1), (t(0, 3),)])
def tril(xp, input, diagonal: int = 0):
    """The lower triangle of matrices, zeros above.  input (*, n, m) -> (*, n, m)."""
    return _triangle(xp, input, diagonal, True, "tril")


@op(inplace=True, expanded="allowed", large=1 << 11, generated="some")
@derivative(input=lambda grad, diagonal: grad.triu(diagonal))
@samples(lambda t: [(t(3, 4),), (t(2, 3, 3), -1), (t(3, 2), 1), (t(0, 3),)])
def triu(xp, input, diagonal: int = 0):
    """The upper triangle of matrices, zeros below.  input (*, n, m) -> (*, n, m)."""
    return _triangle(xp, input, diagonal, False, "triu")


# --- diagonals


@op(out_as="graph")
@derivative(input=lambda grad, offset, dim1, dim2: grad.diagonal(offset, dim1, dim2))
@samples(lambda t: [(t(3),), (t(2, 3), 1), (t(2, 3), -1, 0, 2)])
def diag_embed(xp, input, offset: int = 0, dim1: int = -2, dim2: int = -1):
    """Matrices with the last dim on a diagonal.

    input (*, n) -> (*, n + |offset|, n + |offset|), new dims at dim1 and dim2.
    """
    ndim = input.ndim + 1
    a, b = wrap_dim(dim1, ndim), wrap_dim(dim2, ndim)
    if a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    size = input.shape[-1] + builtins.abs(offset)
    shape = list(input.shape[:-1])
    for d in sorted((a, b)):
        shape.insert(d, size)
    result = xp.zeros(shape, input.dtype)
    diagonal.op.kernel(xp, result, offset, a, b)[...] = input
    return result


@op(public=False, method=False, node="DiagonalBackward0", out_as="graph")
@derivative(input=lambda grad, input_shape, diagonal: _diag_backward(grad, input_shape, diagonal))
@samples(lambda t: [(t(3, 4),), (t(3, 4), 1), (t(4, 3), -1)])
def matrix_diagonal(xp, input, diagonal=0):
    """A diagonal of a matrix.  input (n, m) -> (k)."""
    from engine.ops import strides

    return strides.diagonal.op.kernel(xp, input, diagonal, 0, 1).copy()


def _diag_backward(grad, shape, offset):
    from engine.ops.strides import diagonal_backward

    return diagonal_backward(grad, shape, offset, 0, 1)


@composite(method=True)
def diag(input: Tensor, diagonal: int = 0, *, out=None):
    """A matrix with the vector on a diagonal, or the diagonal of a matrix.  input (n) -> (n, n); (n, m) -> (k)."""
    ndim = input._array.ndim
    if ndim not in (1, 2):
        raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {ndim}D")
    if ndim == 1:
        return diag_embed(input, diagonal, out=out)
    return name_node(matrix_diagonal(input, diagonal, out=out), "DiagonalBackward0_copy")


@composite()
def diagflat(input: Tensor, offset: int = 0):
    """A matrix with all elements on a diagonal.  input (*) -> (n, n)."""
    return diag_embed(reshape_to(input, (input._array.size,)), offset)


# --- of nn


@composite(method=False, public=False)
def one_hot(tensor: Tensor, num_classes: int = -1):
    """Ones at the class numbers.  tensor (*) int64 -> (*, num_classes) int64.

    RuntimeError for numbers out of range.
    """
    array = tensor._array
    if tensor.dtype is not dtypes.int64:
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")
    if not array.size:
        if num_classes <= 0:
            raise RuntimeError("Can not infer total number of classes from empty tensor.")
        return zeros(*array.shape, num_classes, dtype=dtypes.int64, device=tensor.device)
    if int(array.min()) < 0:
        raise RuntimeError("Class values must be non-negative.")
    top = int(array.max())
    if num_classes == -1:
        num_classes = top + 1
    elif num_classes < 1:
        raise RuntimeError("num_classes should be positive")
    elif top >= num_classes:
        raise RuntimeError("Class values must be smaller than num_classes.")
    xp = backends.xp_of(array)
    return wrap((array[..., None] == xp.arange(num_classes)).astype(np.int64))
