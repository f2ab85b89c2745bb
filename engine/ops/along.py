"""Entries of one dim, or of the flat tensor, named by an index vector: `index_*`, `take`, `put`.

See Note [Writes by index] in gathering.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine import backends
from engine.autograd.graph import name_node
from engine.autograd.versions import guard
from engine.backends.cpu import relayout
from engine.core import dtypes
from engine.core.checks import broadcast_shapes, wrap_dim
from engine.core.layouts import copy_preserved
from engine.dispatch import composite, derivative, op, samples
from engine.dispatch.out import store
from engine.ops.copying import number_for
from engine.ops.gathering import (
    accumulate_rows,
    all_below,
    apply_cells,
    check_bounds,
    check_index_dtype,
    combine_at,
    flat_of,
    gather,
    reduce_backward,
    scalar_name,
    target_of,
    zeros_of,
)
from engine.ops.shape import PREFIX
from engine.tensor import Tensor, wrap

# --- along one dim


def _vector(index: Any, name: str, error: Any = IndexError) -> Any:
    if index.ndim > 1:
        raise error(f"{name}(): Index is supposed to be a vector")
    return index.reshape(-1)


@op(out_as="disjoint unexpanded")
@derivative(input=lambda grad, input_shape, dim, index: index_add(zeros_of(grad, input_shape), dim, index, grad))
@samples(
    lambda t: [
        (t(3, 4), 0, t.of([0, 2, 0])),
        (t(3, 4), 1, t.of([3, 1])),
        (t(), 0, t.of([0])),
        (t(3), 0, t.of(1)),
    ]
)
def index_select(xp, input, dim: int, index):
    """The entries of `dim` named by a vector of indices.  input (*, n, *), index (k) -> (*, k, *)."""
    dim = wrap_dim(dim, input.ndim)
    if index.ndim > 1:
        raise IndexError("index_select(): Index is supposed to be a vector")
    check_index_dtype(index, "index_select", "{}(): Expected dtype int32 or int64 for index")
    if not input.ndim:
        if index.size != 1:
            raise RuntimeError(f"index_select(): Index to scalar can have only 1 value, got {index.size} value(s)")
        return input.copy()
    n = input.shape[dim]
    if type(index) is np.ndarray and index.size and not all_below(index, n):
        raise IndexError("index out of range in self")
    if type(input) is type(index) is np.ndarray:
        return relayout.taken(input, index.reshape(-1), dim)
    return input.take(index.reshape(-1), axis=dim)


def _moved_rows(xp: Any, array: Any, dim: int) -> Any:
    """`array` as (n, rest) with `dim` first."""
    return xp.ascontiguousarray(xp.moveaxis(array, dim, 0)).reshape(array.shape[dim], -1)


def _add_rows(xp: Any, result: Any, dim: int, index: Any, source: Any) -> None:
    if not source.size:
        return
    if not result.ndim:
        result[...] += source.reshape(-1).sum()
        return
    if dim == 0 and result.flags.c_contiguous:
        accumulate_rows(xp, result.reshape(result.shape[0], -1), index, _rows(xp, source))
        return
    rows = _moved_rows(xp, result, dim)
    accumulate_rows(xp, rows, index, _moved_rows(xp, source, dim))
    moved = xp.moveaxis(result, dim, 0)
    moved[...] = rows.reshape(moved.shape)


def _rows(xp: Any, source: Any) -> Any:
    return xp.ascontiguousarray(source).reshape(source.shape[0], -1)


@op(inplace=True, large=512, generated="many")
@derivative(
    input=lambda grad: grad,
    source=lambda grad, dim, index, alpha, source, source_shape: guard(
        _scaled(picked(grad, dim, index, source_shape), alpha), index
    ),
)
@samples(
    lambda t: [
        (t(3, 4), 0, t.of([0, 2, 0]), t(3, 4)),
        (t(3, 4), 1, t.of([3, 1]), t(3, 2), {"alpha": 2}),
        (t(), 0, t.of([0]), t()),
        (t(3), 0, t.of(1), t(1)),
    ]
)
def index_add(xp, input, dim: int, index, source, *, alpha: complex = 1, out=None):
    """alpha * source added at the entries of `dim` that `index` names.

    input (*, n, *), index (k), source (*, k, *) -> (*, n, *).
    """
    check_along(input, dim, index, source, "index_add_")
    dim = wrap_dim(dim, input.ndim)
    index = index.reshape(-1)
    check_bounds(index, input.shape[dim] if input.ndim else 1, dim)
    result = target_of(input, out)
    if not source.ndim and input.ndim:
        source = source.reshape(1)
    if alpha != 1:
        source = source * (int(alpha) if source.dtype.kind in "iu" else alpha)
    if result.dtype.kind == "b":
        grown = result.astype(np.int8)
        _add_rows(xp, grown, dim, index, source.astype(np.int8))
        result[...] = grown
        return result
    _add_rows(xp, result, dim, index, source)
    return result


def picked(grad, dim, index, shape):
    """The entries of a gradient that `index` names, in the shape of the source."""
    return grad.expand(shape) if not grad._array.ndim else index_select(grad, dim, index).reshape(shape)


def _scaled(grad, alpha):
    return grad if alpha == 1 else grad * alpha


def check_along(input: Any, dim: int, index: Any, source: Any, name: str) -> None:
    dim = wrap_dim(dim, input.ndim)
    if index.ndim > 1:
        raise IndexError(
            f"{name}(): Index is supposed to be a vector, but got dim: {index.ndim} with type: {scalar_name(index)} "
            f"and size: {list(index.shape)}"
        )
    if index.dtype.name not in ("int64", "int32"):
        raise RuntimeError(f"{name}(): Expected dtype int32/int64 for index but got: {scalar_name(index)}")
    if input.dtype != source.dtype:
        raise RuntimeError(
            f"{name}(): self ({scalar_name(input)}) and source ({scalar_name(source)}) must have the same scalar type"
        )
    if source.ndim:
        if (source.ndim > 1 and source.ndim != input.ndim) or dim >= source.ndim:
            raise RuntimeError(
                f"{name}(): Indexing dim {dim} is out of bounds of the source tensor with dim {source.ndim}"
            )
        if index.size != source.shape[dim]:
            raise RuntimeError(
                f"{name}(): Number of indices ({index.size}) should be equal to source.size(dim): "
                f"({source.shape[dim]}), for dim: {dim}"
            )
    elif index.size != 1:
        raise RuntimeError(f"{name}(): When source is scalar, index should have one element (got {index.size})")
    mine, yours = list(input.shape), list(source.shape)
    whole = name == "index_add_" and len(mine) != len(yours)
    if mine and yours:
        del mine[dim], yours[dim]
    if whole or (mine != yours and input.ndim and source.ndim):
        raise RuntimeError(
            "source tensor shape must match self tensor shape, excluding the specified dimension. Got self.shape = "
            f"{list(input.shape)} source.shape = {list(source.shape)}"
        )


@op(inplace=True)
@derivative(
    input=lambda grad, dim, index: index_fill_value(grad, dim, index, 0),
    source=lambda grad, dim, index, source, source_shape: picked(grad, dim, index, source_shape),
)
@samples(
    lambda t: [
        (t(3, 4), 0, t.of([0, 2]), t(2, 4)),
        (t(3, 4), 1, t.of([3, 1]), t(3, 2)),
        (t(3), 0, t.of(1), t()),
    ]
)
def index_copy(xp, input, dim: int, index, source, *, out=None):
    """`source` stored at the entries of `dim` that `index` names.

    input (*, n, *), index (k), source (*, k, *) -> (*, n, *).
    """
    dim = wrap_dim(dim, input.ndim)
    if index.ndim > 1:
        raise IndexError("index_copy_(): Index should have dimension 1 or 0 (got " + f"{index.ndim})")
    if source.ndim == 0 and index.size != 1:
        raise IndexError(f"index_copy_(): When source is scalar, index should have one element (got {index.size})")
    if source.ndim and input.ndim and source.ndim != input.ndim:
        raise IndexError(
            "index_copy_(): When source and destination are not scalars, their dimensionality must match. Source "
            f"dimensionality ({source.ndim}), destination dimensionality ({input.ndim})"
        )
    if index.dtype.name != "int64":
        raise IndexError("index_copy_(): Expected a long tensor for index, but got " + scalar_name(index))
    if input.dtype != source.dtype:
        raise RuntimeError(
            f"index_copy_(): self and source expected to have the same dtype, but got (self) {scalar_name(input)} and "
            f"(source) {scalar_name(source)}"
        )
    mine, yours = list(input.shape), list(source.shape)
    if mine and yours:
        del mine[dim], yours[dim]
        if mine != yours:
            raise RuntimeError(
                "index_copy_(): Source/destination tensor must have same slice shapes. Destination slice shape: "
                f"{' '.join(map(str, mine))} at dimension {dim} and source slice shape: {' '.join(map(str, yours))} "
                "at dimension 0."
            )
        if index.size != source.shape[dim]:
            raise IndexError(
                f"index_copy_(): Number of indices ({index.size}) should be equal to source.size(dim) "
                f"({source.shape[dim]})"
            )
    check_bounds(index, input.shape[dim] if input.ndim else 1, dim, 0, IndexError, "index_copy_(): ")
    result = target_of(input, out)
    if not result.ndim:
        result[...] = source.reshape(())
    elif not source.ndim:
        result[(*PREFIX[dim], index.reshape(-1))] = source
    else:
        result[(*PREFIX[dim], index.reshape(-1))] = source
    return result


@op(inplace=True, expanded="index_fill_", form="index_fill", node="IndexFillBackward0", not_tensors=("value",))
@derivative(input=lambda grad, dim, index: index_fill_value(grad, dim, index, 0))
@samples(
    lambda t: [
        (t(3, 4), 0, t.of([0, 2]), 1.5),
        (t(3, 4), 1, t.of([-1]), 1.5),
        (t(), 0, t.of([0]), 2.0),
    ]
)
def index_fill_value(xp, input, dim: int, index, value: complex | Tensor, *, out=None):
    """A number stored at the entries of `dim` that `index` names.  input (*, n, *), index (k) -> (*, n, *)."""
    dim = _check_fill(input, dim, index)
    value = number_for(value, input.dtype)
    result = copy_preserved(xp, input) if out is None else out
    if result.ndim or index.size:
        result[(*PREFIX[dim], index.reshape(-1)) if result.ndim else ...] = value
    return result


def _check_fill(input, dim, index):
    dim = wrap_dim(dim, input.ndim)
    if index.dtype.name != "int64":
        raise IndexError("index_fill_(): Expected dtype int64 for index.")
    if index.ndim > 1:
        raise IndexError("index_fill_(): Index is supposed to be a vector")
    n = input.shape[dim] if input.ndim else 1
    check_bounds(index, n, dim, -n, IndexError)
    return dim


@op(inplace=True, expanded="index_fill_", form="index_fill", node="IndexFillBackward1", tensors=("value",))
@derivative(
    input=lambda grad, dim, index: index_fill_value(grad, dim, index, 0),
    value=lambda grad, dim, index: index_select(grad, dim, unique_index(index)).sum(),
)
@samples(lambda t: [(t(3, 4), 0, t.of([0, 2]), t())])
def index_fill_tensor(xp, input, dim: int, index, value, *, out=None):
    """A 0-dim tensor stored at the entries of `dim` that `index` names.

    input (*, n, *), index (k), value () -> (*, n, *).
    """
    dim = _check_fill(input, dim, index)
    if value.ndim:
        raise RuntimeError(
            f"index_fill_ only supports a 0-dimensional value tensor, but got tensor with {value.ndim} dimension(s)."
        )
    result = copy_preserved(xp, input) if out is None else out
    result[(*PREFIX[dim], index.reshape(-1)) if result.ndim else ...] = value
    return result


def unique_index(index):
    """An index vector without repeats."""
    array = index._array.reshape(-1)
    return wrap(backends.xp_of(array).unique(array))


@composite(several=((4, 4), (4, 4)))
def index_fill(input: Tensor, dim: int, index: Tensor, value: complex | Tensor):
    """`value` (a number or 0-dim tensor) stored at the entries of `dim` that `index` names.

    input (*, n, *) -> (*, n, *).
    """
    if isinstance(value, Tensor):
        return index_fill_tensor(input, dim, index, value)
    return index_fill_value(input, dim, index, value)


@composite(public=False, several=((4, 4), (4, 4)))
def index_fill_(input: Tensor, dim: int, index: Tensor, value: complex | Tensor):
    """In place: `index_fill`.  input (*, n, *) -> (*, n, *)."""
    record = index_fill_tensor.op if isinstance(value, Tensor) else index_fill_value.op
    return record.inplace_function(input, dim, index, value)


@op(inplace=True)
@derivative(
    input=lambda grad, input, dim, index, source, reduce, include_self, result: index_reduce_backward(
        grad, input, dim, index, source, reduce, include_self, result
    )[0],
    source=lambda grad, input, dim, index, source, reduce, include_self, result: index_reduce_backward(
        grad, input, dim, index, source, reduce, include_self, result
    )[1],
)
@samples(
    lambda t: [
        (t.positive(3, 2), 0, t.of([0, 2, 0]), t.positive(3, 2), "prod"),
        (t(3, 2), 0, t.of([0, 2, 0]), t(3, 2), "mean"),
        (t.uniform(0, 1, 3), 0, t.of([0, 2]), t.uniform(2, 3, 2), "amax"),
    ]
)
def index_reduce(xp, input, dim: int, index, source, reduce: str, *, include_self: bool = True, out=None):
    """`source` combined (prod, mean, amax, amin) at the entries that `index` names.

    input (*, n, *), source (*, k, *) -> (*, n, *).
    """
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise RuntimeError(f"reduce argument must be either prod, mean, amax or amin, got {reduce}.")
    check_along(input, dim, index, source, "index_reduce_")
    dim = wrap_dim(dim, input.ndim)
    check_bounds(index, input.shape[dim] if input.ndim else 1, dim)
    result = target_of(input, out)
    wide = xp.broadcast_to(_along(index, dim, input.ndim), source.shape)
    return apply_cells(
        xp,
        result,
        wide,
        dim,
        lambda flat, cells: combine_at(xp, flat, cells.reshape(-1), flat_of(xp, source), reduce, include_self),
    )


def _along(index, dim, ndim):
    return index.reshape((1,) * dim + (-1,) + (1,) * (ndim - dim - 1)) if ndim else index.reshape(())


def index_reduce_backward(grad, input, dim, index, source, reduce, include_self, result):
    """The gradients of `index_reduce`, by those of `scatter_reduce`."""
    dim = wrap_dim(dim, input._array.ndim)
    wide = index.reshape(_along(index._array, dim, input._array.ndim).shape).expand(source._array.shape)
    return reduce_backward(grad, input, dim, wide, source, reduce, include_self, result)


# --- segments


_SEGMENTS = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": float("-inf"), "min": float("inf")}


@backends.follows
def _segment_lengths(data: Tensor, lengths: Any, offsets: Any, axis: int, unsafe: bool) -> Tensor:
    if lengths is None and offsets is None:
        raise RuntimeError("segment_reduce(): Either lengths or offsets must be defined.")
    if offsets is not None:
        lengths = offsets[..., 1:] - offsets[..., :-1]
    if lengths._array.dtype.kind != "i":
        kind = dtypes.scalar_name(lengths.dtype)
        raise NotImplementedError(f"\"_segment_reduce_lengths_cpu_kernel1\" not implemented for '{kind}'")
    if wrap_dim(axis, data._array.ndim) != lengths._array.ndim - 1:
        raise RuntimeError(f"segment_reduce(): Expected axis to be the last dimension of lengths but got {axis}.")
    counts = lengths._array
    if not unsafe and data.device.type != "meta":
        if (counts < 0).any():
            raise RuntimeError("lengths contains negative value!")
        if (counts.sum(axis=-1) != data._array.shape[axis]).any():
            raise RuntimeError(
                "segment_reduce(): Expected all rows of lengths along axis to sum to data.size(lengths.dim()-1) when "
                "!unsafe."
            )
    return lengths


def _segment_rows(counts: Tensor, offsets: Any, size: int, segments: int) -> Tensor:
    """Return the positions of the elements of segments that need not cover all of the `size` elements of their line."""
    lengths = counts._array.reshape(-1, segments)
    ends = lengths.cumsum(1)
    starts = ends - lengths if offsets is None else offsets._array[..., :-1].reshape(lengths.shape)
    first = starts + np.arange(len(lengths))[:, None] * size
    places = [np.arange(a, a + n) for a, n in zip(first.ravel().tolist(), lengths.ravel().tolist())]
    return wrap(np.concatenate([np.zeros(0, np.int64), *places]))


@composite(method=False)
@samples(
    lambda t: [
        (t(6), "sum", {"lengths": t.of([2, 0, 4])}),
        (t(3, 2), "mean", {"offsets": t.of([0, 1, 3])}),
        (t.distinct(2, 3), "max", {"lengths": t.of([[1, 2], [2, 1]]), "axis": 1}),
        (t.distinct(4), "min", {"lengths": t.of([3, 1]), "initial": 0.05}),
        (t(4), "prod", {"lengths": t.of([3, 1])}),
    ]
)
def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
):
    """sum, mean, max, min or prod of each segment of `axis`, given by lengths or by offsets.

    data (*a, n, *b), lengths (*a, k) or offsets (*a, k + 1) -> (*a, k, *b).  RuntimeError for lengths that do not fit.
    """
    if reduce not in _SEGMENTS:
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}")
    lengths = _segment_lengths(data, lengths, offsets, axis, unsafe)
    counts = lengths.reshape(-1)
    lead = lengths._array.shape
    rest = data._array.shape[len(lead) :]
    rows = data.reshape(-1, *rest)
    if data.device.type == "meta":
        at = counts.new_zeros(rows.shape[:1])
    else:
        at = counts.new_tensor(range(counts.numel())).repeat_interleave(counts)
    if unsafe and data.device.type != "meta":
        rows = rows.index_select(0, _segment_rows(counts, offsets, data._array.shape[axis], lead[-1]))
    start = _SEGMENTS[reduce] if initial is None else initial
    found = data.detach().new_full((counts.numel(), *rest), start)
    if reduce in ("sum", "mean"):
        found = found.index_add(0, at, rows)
        if reduce == "mean":
            share = counts.to(data.dtype).reshape(-1, *(1,) * len(rest))
            empty = float("nan") if initial is None else initial
            found = (found / share).masked_fill(share == 0, empty)
    else:
        found = found.index_reduce(0, at, rows, {"max": "amax", "min": "amin"}.get(reduce, reduce))
    guard(found, data, lengths, offsets, found)
    return name_node(found.reshape(*lead, *rest), "SegmentReduceBackward0")


# --- by flat index


def _flat_index(index: Any, size: int, name: str) -> None:
    if index.dtype.name != "int64":
        raise RuntimeError(f"{name}(): Expected a long tensor for index, but got {scalar_name(index)}")
    if type(index) is np.ndarray and index.size and (index.min() < -size or index.max() >= size):
        bad = index[(index < -size) | (index >= size)].reshape(-1)[0]
        raise IndexError(f"out of range: tried to access index {int(bad)} on a tensor of {size} elements.")


@op(keeps=("input",), out_as="disjoint unexpanded")
@derivative(input=lambda grad, input_shape, index: take_backward(grad, input_shape, index))
@samples(lambda t: [(t(3, 4), t.of([[0, 5], [11, 5]])), (t(3), t.of([-1])), (t(), t.of([0, 0]))])
def take(xp, input, index):
    """The elements with these numbers, counted row by row.  input (*), index (*i) -> (*i)."""
    _flat_index(index, input.size, "take")
    if not input.size and index.size:
        raise IndexError("take(): tried to take from an empty tensor")
    return flat_of(xp, input)[index] if index.size else xp.empty(index.shape, input.dtype)


def take_backward(grad, shape, index):
    """Zeros with `grad` added at flat indices."""
    return put(zeros_of(grad, shape), index, grad, accumulate=True)


@op(inplace=True)
@derivative(
    input=lambda grad, index, accumulate: grad if accumulate else put(grad, index, zeros_of(grad, index._array.shape)),
    source=lambda grad, index, source, source_shape: take(grad, index).reshape(source_shape),
)
@samples(
    lambda t: [
        (t(3, 4), t.of([0, 5]), t(2)),
        (t(3, 4), t.of([0, 0]), t(2), True),
        (t(3), t.of([-1]), t(1)),
    ]
)
def put(xp, input, index, source, accumulate: bool = False, *, out=None):
    """`source` stored (or added) at elements counted row by row.  input (*), index (*i), source (*i) -> (*)."""
    if index.dtype.name != "int64":
        raise RuntimeError(f"put_(): Expected a long tensor for index, but got {scalar_name(index)}")
    if input.dtype != source.dtype:
        raise RuntimeError(
            f"put_(): self and source expected to have the same dtype, but got self.dtype = {scalar_name(input)} and "
            f"source.dtype = {scalar_name(source)}"
        )
    if source.size != index.size:
        raise IndexError(
            "put_(): Expected source and index to have the same number of elements, but got source.numel() = "
            f"{source.size}, index.numel() = {index.size}"
        )
    _flat_index(index, input.size, "put_")
    result = copy_preserved(xp, input) if out is None else out
    if not index.size:
        return result
    dense = result if result.flags.c_contiguous else xp.ascontiguousarray(result)
    flat, cells, values = dense.reshape(-1), index.reshape(-1), flat_of(xp, source)
    if accumulate:
        xp.add.at(flat, xp.where(cells < 0, cells + flat.size, cells), values)
    else:
        flat[cells] = values
    if dense is not result:
        result[...] = dense
    return result


@composite(method=True)
def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None, *, out=None):
    """Values along `dim` at `indices`, broadcast against each other; dim None: of the flat tensor.

    input (*), indices (*i) -> (*).
    """
    if out is not None:
        return store(out, "take_along_dim", take_along_dim, input, indices, dim)
    if indices._array.dtype.name != "int64":
        raise RuntimeError(
            f"torch.take_along_dim(): dtype of indices should be Long but got {dtypes.scalar_name(indices.dtype)}"
        )
    if dim is None:
        return gather(input.reshape(-1), 0, indices.reshape(-1))
    if input.dim() != indices.dim():
        raise RuntimeError(
            "torch.take_along_dim(): input and indices should have the same number of dimensions, but got "
            f"{input.dim()} dimensions for input, and {indices.dim()} dimensions for indices"
        )
    dim = wrap_dim(dim, input.dim())
    mine, yours = list(input._array.shape), list(indices._array.shape)
    keep = (mine[dim], yours[dim])
    mine[dim] = yours[dim] = 1
    common = list(broadcast_shapes(mine, yours))
    mine[dim], yours[dim] = keep
    return gather(
        input.expand([*common[:dim], keep[0], *common[dim + 1 :]]),
        dim,
        indices.expand([*common[:dim], keep[1], *common[dim + 1 :]]) % keep[0],
    )
