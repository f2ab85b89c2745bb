"""Picking and placing by index tensors: `gather`, `scatter`, `index_*`, `take`, `masked_*`, `nonzero`.

Note [Writes by index]
These ops write into `out` when they are called in place (`x.index_add_(...)` costs what it touches, not a copy of x), so
every check stands before the first write.  Where places may repeat, values are added with one flat `add.at`.
"""

from __future__ import annotations

import builtins
import warnings
from typing import Any

import numpy as np

from engine import backends, dtypes
from engine._checks import broadcast_shapes, numel, wrap_dim
from engine.dispatch import composite, derivative, op, samples
from engine.layouts import copy_preserved
from engine.ops.copying import number_for
from engine.ops.indexing import accumulate_rows
from engine.ops.shape import PREFIX, basic_index, place, select
from engine.tensor import Tensor, wrap

_LONG = np.dtype(np.int64)


def scalar_name(array: Any) -> str:
    """`Float`, `Long`: the dtype as torch's messages name it."""
    return dtypes.scalar_name(dtypes.from_numpy(array.dtype))


def check_bounds(index: Any, n: int, dim: int, low: int = 0, error: Any = RuntimeError, prefix: str = "") -> None:
    """torch's error for an index outside [low, n).  On CUDA unchecked, as there it would wait for the device."""
    if type(index) is np.ndarray and index.size and not all_below(index, n, low):
        bad = index[(index < low) | (index >= n)].reshape(-1)[0]
        raise error(f"{prefix}index {int(bad)} is out of bounds for dimension {dim} with size {n}")


def all_below(index: Any, n: int, low: int = 0) -> bool:
    """Whether low <= index < n: one reduction where low is 0, negative numbers being large when read without sign."""
    if not low and index.flags.c_contiguous:
        return bool(index.view(_UNSIGNED[index.dtype.itemsize]).max() < n)
    return bool(index.min() >= low and index.max() < n)


_UNSIGNED = {4: np.dtype(np.uint32), 8: np.dtype(np.uint64)}


def _index_dtype(index: Any, name: str, sentence: str = "{}(): Expected dtype int32/int64 for index") -> None:
    if index.dtype.name not in ("int64", "int32"):
        raise RuntimeError(sentence.format(name))


def _writable(input: Any, out: Any) -> Any:
    return input.copy("C") if out is None else out


def cells_of(xp: Any, shape: Any, index: Any, dim: int) -> Any:
    """For `index` along `dim` of a contiguous array of `shape`: the flat number of each element's cell."""
    strides = [1] * len(shape)
    for d in range(len(shape) - 2, -1, -1):
        strides[d] = strides[d + 1] * shape[d + 1]
    cells = index.astype(_LONG) * strides[dim] if len(shape) else index.astype(_LONG)
    for d, n in enumerate(index.shape):
        if d != dim and n > 1:
            steps = xp.arange(n) * strides[d]
            cells = cells + steps.reshape((n,) + (1,) * (index.ndim - d - 1))
    return cells


def _flat(xp: Any, array: Any) -> Any:
    return array.reshape(-1) if array.flags.c_contiguous else xp.ascontiguousarray(array).reshape(-1)


# --- gather and scatter


def _check_gather(input: Any, index: Any, dim: int) -> int:
    dim = wrap_dim(dim, input.ndim)
    if index.size and builtins.max(input.ndim, 1) != builtins.max(index.ndim, 1):
        raise RuntimeError("Index tensor must have the same number of dimensions as input tensor")
    for d in range(builtins.min(index.ndim, input.ndim)):
        if index.size and d != dim and index.shape[d] > input.shape[d]:
            raise RuntimeError(
                f"Size does not match at dimension {d} expected index {list(index.shape)} to be no larger than self "
                f"{list(input.shape)} apart from dimension {dim}"
            )
    return dim


@op()
@derivative(input=lambda grad, input_shape, dim, index: scatter_add(zeros_of(grad, input_shape), dim, index, grad))
@samples(
    lambda t: [
        (t(3, 4), 1, t.integers(0, 4, 3, 2)), (t(3, 4), 0, t.integers(0, 3, 5, 4)), (t(3, 4), 0, t.integers(0, 3, 2, 2)),
        (t(), 0, t.of(0)), (t(3), 0, t.integers(0, 1, 0)),
    ]
)  # fmt: skip
def gather(xp, input, dim, index, *, sparse_grad=False):
    """Values along `dim` at the places `index` gives.  input (*, n, *), index (*i) -> (*i)."""
    _index_dtype(index, "gather")
    dim = _check_gather(input, index, dim)
    if not index.size:
        return xp.empty(index.shape, input.dtype)
    check_bounds(index, input.shape[dim] if input.ndim else 1, dim)
    if not input.ndim:
        return xp.full(index.shape, input, input.dtype)
    return xp.ascontiguousarray(_flat(xp, input)[cells_of(xp, input.shape, index, dim)])


def zeros_of(grad: Tensor, shape: Any) -> Tensor:
    """Zeros of a shape in the dtype and on the device of `grad`."""
    return wrap(backends.xp_of(grad._array).zeros(tuple(shape), grad._array.dtype))


def _check_scatter(input: Any, dim: int, index: Any, src: Any, name: str) -> int:
    dim = wrap_dim(dim, input.ndim)
    _index_dtype(index, name)
    if not index.size:
        return dim
    if builtins.max(index.ndim, 1) != builtins.max(input.ndim, 1):
        raise RuntimeError("Index tensor must have the same number of dimensions as self tensor")
    if src is not None:
        if src.dtype != input.dtype:
            raise RuntimeError("scatter(): Expected self.dtype to be equal to src.dtype")
        if builtins.max(index.ndim, 1) != builtins.max(src.ndim, 1):
            raise RuntimeError("Index tensor must have the same number of dimensions as src tensor")
    bad = any(d != dim and index.shape[d] > input.shape[d] for d in range(builtins.min(index.ndim, input.ndim)))
    if src is None:
        if bad:
            raise RuntimeError(
                f"Expected index {list(index.shape)} to be no larger than self {list(input.shape)} apart from dimension {dim}"
            )
    elif bad or any(i > s for i, s in zip(index.shape, src.shape)):
        raise RuntimeError(
            f"Expected index {list(index.shape)} to be no larger than self {list(input.shape)} apart from dimension {dim} "
            f"and to be no larger size than src {list(src.shape)}"
        )
    check_bounds(index, input.shape[dim] if input.ndim else 1, dim)
    return dim


def _cut(array: Any, shape: Any) -> Any:
    return array[tuple(slice(0, n) for n in shape)] if array.shape != shape else array


def _apply_cells(xp: Any, result: Any, index: Any, dim: int, change: Any) -> Any:
    """`change(flat array, cells)`, on a dense twin where `result` is not contiguous."""
    if not index.size:
        return result
    cells = cells_of(xp, result.shape, index, dim)
    if result.flags.c_contiguous:
        change(result.reshape(-1), cells)
    else:
        dense = xp.ascontiguousarray(result)
        change(dense.reshape(-1), cells)
        result[...] = dense
    return result


@op(inplace=True, public=False, method=False, node="ScatterBackward0", tensors=("src",))
@derivative(
    input=lambda grad, dim, index: scatter_zero(grad, dim, index),
    src=lambda grad, dim, index, src_shape: widen(grad.gather(dim, index), src_shape),
)
@samples(lambda t: [(t(3, 4), 1, t.of([[0, 2], [1, 3]]), t(2, 2)), (t(3), 0, t.of([2, 0]), t(3)), (t(), 0, t.of(0), t())])
def scatter_src(xp, input, dim, index, src, *, out=None):
    """`src` stored along `dim` at the places `index` gives.  input (*), index (*i), src (*s) -> (*)."""
    dim = _check_scatter(input, dim, index, src, "scatter")
    result = _writable(input, out)
    values = _cut(src, index.shape)

    def change(flat, cells):
        flat[cells] = values

    return _apply_cells(xp, result, index, dim, change)


@op(inplace=True, public=False, method=False, node="ScatterBackward1", plain=("value",))
@derivative(input=lambda grad, dim, index: scatter_zero(grad, dim, index))
@samples(lambda t: [(t(3, 4), 1, t.of([[0, 2], [1, 3]]), 2.5), (t(), 0, t.of(0), 2.5)])
def scatter_value(xp, input, dim, index, value, *, out=None):
    """A number stored along `dim` at the places `index` gives.  input (*), index (*i) -> (*)."""
    dim = _check_scatter(input, dim, index, None, "scatter")
    value = number_for(value, input.dtype)
    result = _writable(input, out)

    def change(flat, cells):
        flat[cells] = value

    return _apply_cells(xp, result, index, dim, change)


def scatter_zero(grad, dim, index):
    """`grad` with zeros where `index` wrote."""
    return scatter_value(grad, dim, index, 0)


def widen(grad, shape):
    """The gradient of what was used of `src`, with zeros for the rest."""
    if grad._array.shape == tuple(shape):
        return grad
    return place(grad, tuple(shape), tuple(slice(0, n) for n in grad._array.shape))


@op(inplace=True, tensors=("src",))
@derivative(
    input=lambda grad: grad, src=lambda grad, dim, index, src_shape: widen(grad.gather(dim, index), src_shape)
)
@samples(lambda t: [(t(3, 4), 1, t.integers(0, 4, 2, 3), t(2, 3)), (t(3), 0, t.of([1, 1]), t(3)), (t(), 0, t.of(0), t())])
def scatter_add(xp, input, dim, index, src, *, out=None):
    """`src` added along `dim` at the places `index` gives.  input (*), index (*i), src (*s) -> (*)."""
    dim = _check_scatter(input, dim, index, src, "scatter")
    result = _writable(input, out)
    values = _cut(src, index.shape)
    return _apply_cells(
        xp, result, index, dim, lambda flat, cells: xp.add.at(flat, cells.reshape(-1), _flat(xp, values))
    )


def _reduce_named(name: Any) -> str:
    if name not in ("add", "multiply"):
        raise RuntimeError("reduce argument must be either add or multiply.")
    return "sum" if name == "add" else "prod"


def _scatter(input, dim, index, value, reduce, inplace):
    if reduce is not None:
        kind = _reduce_named(reduce)
        if isinstance(value, Tensor):
            warnings.warn(
                "The reduce argument of torch.scatter with Tensor src is deprecated and will be removed in a future PyTorch "
                "release. Use torch.scatter_reduce instead for more reduction options.",
                stacklevel=3,
            )
        else:
            xp = backends.xp_of(input._array)
            value = wrap(xp.full(index._array.shape, number_for(value, input._array.dtype), input._array.dtype))
        return (scatter_reduce_ if inplace else scatter_reduce)(input, dim, index, value, kind)
    if isinstance(value, Tensor):
        if not value._array.ndim and index._array.ndim:
            value = value.expand(index._array.shape)
        return (scatter_src_ if inplace else scatter_src)(input, dim, index, value)
    return (scatter_value_ if inplace else scatter_value)(input, dim, index, value)


scatter_src_, scatter_value_ = scatter_src.op.inplace_function, scatter_value.op.inplace_function


@composite()
def scatter(input, dim, index, src=None, *, value=None, reduce=None):
    """`src` (a Tensor or a number) stored along `dim` where `index` says.  input (*), index (*i), src (*s) -> (*).

    reduce="add" or "multiply" combines with what is there.
    """
    return _scatter(input, dim, index, src if value is None else value, reduce, False)


@composite(public=False)
def scatter_(input, dim, index, src=None, *, value=None, reduce=None):
    """In place: `scatter`.  input (*), index (*i), src (*s) -> (*)."""
    return _scatter(input, dim, index, src if value is None else value, reduce, True)


@op(inplace=True, tensors=("src",))
@derivative(
    input=lambda grad, dim, index, src, reduce, include_self, input, result: reduce_backward(
        grad, input, dim, index, src, reduce, include_self, result
    )[0],
    src=lambda grad, input, dim, index, src, reduce, include_self, result: reduce_backward(
        grad, input, dim, index, src, reduce, include_self, result
    )[1],
)
@samples(
    lambda t: [
        (t(3, 4), 1, t.of([[0, 2], [2, 2]]), t(2, 2), "sum"), (t(3, 4), 1, t.of([[0, 2], [2, 2]]), t(2, 2), "mean"),
        (t(3), 0, t.of([1, 1]), t(2), "prod"), (t.distinct(3), 0, t.of([1, 1, 0]), t.distinct(3), "amax", {"include_self": False}),
        (t(3), 0, t.of([1, 1]), t(2), "mean", {"include_self": False}), (t.uniform(1, 2, 3), 0, t.of([1]), t.uniform(-2, -1, 1), "amin"),
    ]
)  # fmt: skip
def scatter_reduce(xp, input, dim, index, src, reduce, *, include_self=True, out=None):
    """`src` combined along `dim` where `index` says: sum, prod, mean, amax, amin.  input (*), index (*i), src (*s) -> (*)."""
    if reduce not in ("sum", "prod", "mean", "amax", "amin"):
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}")
    dim = _check_scatter(input, dim, index, src, "scatter")
    result = _writable(input, out)
    values = _cut(src, index.shape)

    def change(flat, cells):
        cells = cells.reshape(-1)
        combine_at(xp, flat, cells, _flat(xp, values), reduce, include_self)

    return _apply_cells(xp, result, index, dim, change)


def combine_at(xp: Any, flat: Any, cells: Any, values: Any, reduce: str, include_self: bool) -> None:
    """flat[cells] combined with values, by the reductions of scatter_reduce."""
    if not include_self:
        kind = flat.dtype.kind
        if reduce in ("sum", "mean"):
            start = 0
        elif reduce == "prod":
            start = 1
        elif kind in "iu":
            info = np.iinfo(flat.dtype)
            start = info.min if reduce == "amax" else info.max
        else:
            start = -np.inf if reduce == "amax" else np.inf
        flat[cells] = start
    if reduce in ("sum", "mean"):
        xp.add.at(flat, cells, values)
        if reduce == "mean":
            count = xp.bincount(cells, minlength=flat.size)
            count = xp.maximum(count + 1 if include_self else count, 1)
            if flat.dtype.kind in "iu":
                flat[...] = flat // count.astype(flat.dtype)
            else:
                flat[...] = (flat / count.astype(flat.dtype)).astype(flat.dtype)
    elif reduce == "prod":
        xp.multiply.at(flat, cells, values)
    elif reduce == "amax":
        xp.maximum.at(flat, cells, values)
    else:
        xp.minimum.at(flat, cells, values)


def reduce_backward(grad, input, dim, index, src, reduce, include_self, result):
    """The gradients of `scatter_reduce` for input and src."""
    if reduce == "sum":
        mine, yours = grad, grad.gather(dim, index)
    elif reduce == "mean":
        count = zeros_of(grad, input._array.shape)
        ones = wrap(backends.xp_of(grad._array).ones(index._array.shape, grad._array.dtype))
        count = scatter_add(count, dim, index, ones)
        count = count + 1 if include_self else count.clamp(min=1)
        mine, yours = grad / count, (grad / count).gather(dim, index)
    elif reduce == "prod":
        mine, yours = _prod_backward(grad, input, dim, index, src, include_self, result)
    else:
        hit = (result.gather(dim, index) == widen_back(src, index)).to(grad.dtype)
        count = scatter_add(zeros_of(grad, input._array.shape), dim, index, hit.detach())
        same = (input == result).to(grad.dtype) if include_self else None
        count = count + same if include_self else count
        share = grad / count.clamp(min=1)
        mine, yours = (share * same if include_self else grad), share.gather(dim, index) * hit
    if not include_self:
        mine = scatter_zero(mine, dim, index)
    return mine, widen(yours, src._array.shape)


def widen_back(src, index):
    """What was used of `src`."""
    shape = index._array.shape
    return src if src._array.shape == shape else basic_index(src, (*(slice(0, n) for n in shape), ...))


def _prod_backward(grad, input, dim, index, src, include_self, result):
    used = widen_back(src, index)
    zero = (used == 0).detach()
    safe = used.masked_fill(zero, 1)
    base = input if include_self else scatter_value(input, dim, index, 1)
    ones = scatter_value(input * 0 + 1, dim, index, 1)
    others = scatter_reduce(ones, dim, index, used, "prod")
    mine = grad * others
    masked = scatter_reduce(base, dim, index, safe, "prod")
    zeros = scatter_add(zeros_of(grad, input._array.shape), dim, index, zero.to(grad.dtype))
    count = zeros.gather(dim, index)
    picked = masked.gather(dim, index)
    without = (picked / safe).masked_fill(zero, 0) * (count == 0).to(grad.dtype)
    alone = picked * (zero & (count == 1)).to(grad.dtype)
    return mine, grad.gather(dim, index) * (without + alone)


scatter_reduce_ = scatter_reduce.op.inplace_function


# --- along one dim


def _vector(index: Any, name: str, error: Any = IndexError) -> Any:
    if index.ndim > 1:
        raise error(f"{name}(): Index is supposed to be a vector")
    return index.reshape(-1)


@op()
@derivative(input=lambda grad, input_shape, dim, index: index_add(zeros_of(grad, input_shape), dim, index, grad))
@samples(lambda t: [(t(3, 4), 0, t.of([0, 2, 0])), (t(3, 4), 1, t.of([3, 1])), (t(), 0, t.of([0])), (t(3), 0, t.of(1))])
def index_select(xp, input, dim, index):
    """The entries of `dim` named by a vector of indices.  input (*, n, *), index (k) -> (*, k, *)."""
    dim = wrap_dim(dim, input.ndim)
    if index.ndim > 1:
        raise IndexError("index_select(): Index is supposed to be a vector")
    _index_dtype(index, "index_select", "{}(): Expected dtype int32 or int64 for index")
    if not input.ndim:
        if index.size != 1:
            raise RuntimeError(f"index_select(): Index to scalar can have only 1 value, got {index.size} value(s)")
        return input.copy()
    n = input.shape[dim]
    if type(index) is np.ndarray and index.size and not all_below(index, n):
        raise IndexError("index out of range in self")
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


@op(inplace=True)
@derivative(
    input=lambda grad: grad,
    source=lambda grad, dim, index, alpha, source_shape: _scaled(picked(grad, dim, index, source_shape), alpha),
)
@samples(
    lambda t: [
        (t(3, 4), 0, t.of([0, 2, 0]), t(3, 4)), (t(3, 4), 1, t.of([3, 1]), t(3, 2), {"alpha": 2}), (t(), 0, t.of([0]), t(1)),
        (t(3), 0, t.of(1), t()),
    ]
)  # fmt: skip
def index_add(xp, input, dim, index, source, *, alpha=1, out=None):
    """alpha * source added at the entries of `dim` that `index` names.  input (*, n, *), index (k), source (*, k, *) -> (*, n, *)."""
    _check_along(input, dim, index, source, "index_add_")
    dim = wrap_dim(dim, input.ndim)
    index = index.reshape(-1)
    check_bounds(index, input.shape[dim] if input.ndim else 1, dim)
    result = _writable(input, out)
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


def _check_along(input: Any, dim: int, index: Any, source: Any, name: str) -> None:
    dim = wrap_dim(dim, input.ndim)
    if index.ndim > 1:
        raise IndexError(f"{name}(): Index is supposed to be a vector, but got dim: {index.ndim} with type: {scalar_name(index)} and size: {list(index.shape)}")
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
                f"{name}(): Number of indices ({index.size}) should be equal to source.size(dim): ({source.shape[dim]}), for "
                f"dim: {dim}"
            )
    elif index.size != 1:
        raise RuntimeError(
            f"{name}(): When source is scalar, index should have one element (got {index.size})"
        )
    mine, yours = list(input.shape), list(source.shape)
    if mine and yours:
        del mine[dim], yours[dim]
    if mine != yours and input.ndim and source.ndim:
        raise RuntimeError(
            "source tensor shape must match self tensor shape, excluding the specified dimension. Got self.shape = "
            f"{list(input.shape)} source.shape = {list(source.shape)}"
        )


@op(inplace=True)
@derivative(
    input=lambda grad, dim, index: index_fill_value(grad, dim, index, 0),
    source=lambda grad, dim, index, source_shape: picked(grad, dim, index, source_shape),
)
@samples(lambda t: [(t(3, 4), 0, t.of([0, 2]), t(2, 4)), (t(3, 4), 1, t.of([3, 1]), t(3, 2)), (t(3), 0, t.of(1), t())])
def index_copy(xp, input, dim, index, source, *, out=None):
    """`source` stored at the entries of `dim` that `index` names.  input (*, n, *), index (k), source (*, k, *) -> (*, n, *)."""
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
            "index_copy_(): self and source expected to have the same dtype, but got (self) "
            f"{scalar_name(input)} and (source) {scalar_name(source)}"
        )
    mine, yours = list(input.shape), list(source.shape)
    if mine and yours:
        del mine[dim], yours[dim]
        if mine != yours:
            raise RuntimeError(
                "index_copy_(): Source/destination tensor must have same slice shapes. Destination slice shape: "
                f"{' '.join(map(str, mine))} at dimension {dim} and source slice shape: {' '.join(map(str, yours))} at "
                f"dimension 0."
            )
        if index.size != source.shape[dim]:
            raise IndexError(
                f"index_copy_(): Number of indices ({index.size}) should be equal to source.size(dim) ({source.shape[dim]})"
            )
    check_bounds(index, input.shape[dim] if input.ndim else 1, dim, 0, IndexError, "index_copy_(): ")
    result = _writable(input, out)
    if not result.ndim:
        result[...] = source.reshape(())
    elif not source.ndim:
        result[(*PREFIX[dim], index.reshape(-1))] = source
    else:
        result[(*PREFIX[dim], index.reshape(-1))] = source
    return result


@op(inplace=True, public=False, method=False, node="IndexFillBackward0", plain=("value",))
@derivative(input=lambda grad, dim, index: index_fill_value(grad, dim, index, 0))
@samples(lambda t: [(t(3, 4), 0, t.of([0, 2]), 1.5), (t(3, 4), 1, t.of([-1]), 1.5), (t(), 0, t.of([0]), 2.0)])
def index_fill_value(xp, input, dim, index, value, *, out=None):
    """A number stored at the entries of `dim` that `index` names.  input (*, n, *), index (k) -> (*, n, *)."""
    dim = _check_fill(input, dim, index)
    value = number_for(value, input.dtype)
    result = copy_preserved(xp, input) if out is None else out
    result[(*PREFIX[dim], index.reshape(-1)) if result.ndim else ...] = value
    return result


def _check_fill(input, dim, index):
    dim = wrap_dim(dim, input.ndim)
    if index.dtype.name not in ("int64", "int32"):
        raise IndexError("index_fill_(): Expected dtype int64 for index.")
    if index.ndim > 1:
        raise IndexError("index_fill_(): Index is supposed to be a vector")
    n = input.shape[dim] if input.ndim else 1
    check_bounds(index, n, dim, -n, IndexError)
    return dim


@op(inplace=True, public=False, method=False, node="IndexFillBackward1", tensors=("value",))
@derivative(
    input=lambda grad, dim, index: index_fill_value(grad, dim, index, 0),
    value=lambda grad, dim, index: index_select(grad, dim, unique_index(index)).sum(),
)
@samples(lambda t: [(t(3, 4), 0, t.of([0, 2]), t())])
def index_fill_tensor(xp, input, dim, index, value, *, out=None):
    """A 0-dim tensor stored at the entries of `dim` that `index` names.  input (*, n, *), index (k), value () -> (*, n, *)."""
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


@composite()
def index_fill(input, dim, index, value):
    """`value` (a number or 0-dim tensor) stored at the entries of `dim` that `index` names.  input (*, n, *) -> (*, n, *)."""
    if isinstance(value, Tensor):
        return index_fill_tensor(input, dim, index, value)
    return index_fill_value(input, dim, index, value)


@composite(public=False)
def index_fill_(input, dim, index, value):
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
        (t.positive(3, 2), 0, t.of([0, 2, 0]), t.positive(3, 2), "prod"), (t(3, 2), 0, t.of([0, 2, 0]), t(3, 2), "mean"),
        (t.uniform(0, 1, 3), 0, t.of([0, 2]), t.uniform(2, 3, 2), "amax"),
    ]
)  # fmt: skip
def index_reduce(xp, input, dim, index, source, reduce, *, include_self=True, out=None):
    """`source` combined (prod, mean, amax, amin) at the entries that `index` names.  input (*, n, *), source (*, k, *) -> (*, n, *)."""
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise RuntimeError(f"reduce argument must be either prod, mean, amax or amin, got {reduce}.")
    _check_along(input, dim, index, source, "index_reduce_")
    dim = wrap_dim(dim, input.ndim)
    check_bounds(index, input.shape[dim] if input.ndim else 1, dim)
    result = _writable(input, out)
    wide = xp.broadcast_to(_along(index, dim, input.ndim), source.shape)
    return _apply_cells(
        xp, result, wide, dim,
        lambda flat, cells: combine_at(xp, flat, cells.reshape(-1), _flat(xp, source), reduce, include_self),
    )  # fmt: skip


def _along(index, dim, ndim):
    return index.reshape((1,) * dim + (-1,) + (1,) * (ndim - dim - 1)) if ndim else index.reshape(())


def index_reduce_backward(grad, input, dim, index, source, reduce, include_self, result):
    """The gradients of `index_reduce`, by those of `scatter_reduce`."""
    dim = wrap_dim(dim, input._array.ndim)
    wide = index.reshape(_along(index._array, dim, input._array.ndim).shape).expand(source._array.shape)
    return reduce_backward(grad, input, dim, wide, source, reduce, include_self, result)


# --- by flat index


def _flat_index(index: Any, size: int, name: str) -> None:
    if index.dtype.name != "int64":
        raise RuntimeError(f"{name}(): Expected a long tensor for index, but got {scalar_name(index)}")
    if type(index) is np.ndarray and index.size and (index.min() < -size or index.max() >= size):
        bad = index[(index < -size) | (index >= size)].reshape(-1)[0]
        raise IndexError(f"out of range: tried to access index {int(bad)} on a tensor of {size} elements.")


@op()
@derivative(input=lambda grad, input_shape, index: take_backward(grad, input_shape, index))
@samples(lambda t: [(t(3, 4), t.of([[0, 5], [11, 5]])), (t(3), t.of([-1])), (t(), t.of([0, 0]))])
def take(xp, input, index):
    """The elements with these numbers, counted row by row.  input (*), index (*i) -> (*i)."""
    _flat_index(index, input.size, "take")
    if not input.size and index.size:
        raise IndexError("take(): tried to take from an empty tensor")
    return _flat(xp, input)[index] if index.size else xp.empty(index.shape, input.dtype)


def take_backward(grad, shape, index):
    """Zeros with `grad` added at flat indices."""
    return put(zeros_of(grad, shape), index, grad, accumulate=True)


@op(inplace=True)
@derivative(
    input=lambda grad, index, accumulate: grad if accumulate else put(grad, index, zeros_of(grad, index._array.shape)),
    source=lambda grad, index, source_shape: take(grad, index).reshape(source_shape),
)
@samples(lambda t: [(t(3, 4), t.of([0, 5]), t(2)), (t(3, 4), t.of([0, 0]), t(2), True), (t(3), t.of([-1]), t(1))])
def put(xp, input, index, source, accumulate=False, *, out=None):
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
    flat, cells, values = dense.reshape(-1), index.reshape(-1), _flat(xp, source)
    if accumulate:
        xp.add.at(flat, xp.where(cells < 0, cells + flat.size, cells), values)
    else:
        flat[cells] = values
    if dense is not result:
        result[...] = dense
    return result


@composite(method=True)
def take_along_dim(input, indices, dim=None, *, out=None):
    """Values along `dim` at `indices`, broadcast against each other; dim None: of the flat tensor.  input (*), indices (*i) -> (*)."""
    if indices.dtype.name != "int64" and indices.dtype.name != "int32":
        raise RuntimeError(f"torch.take_along_dim(): dtype of indices should be Long but got {dtypes.scalar_name(indices.dtype)}")
    if dim is None:
        result = gather(input.reshape(-1), 0, indices.reshape(-1))
    else:
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
        result = gather(
            input.expand([*common[:dim], keep[0], *common[dim + 1 :]]), dim,
            indices.expand([*common[:dim], keep[1], *common[dim + 1 :]]),
        )  # fmt: skip
    if out is not None:
        out._array[...] = result._array
        out._vc[0] += 1
        return out
    return result


# --- by mask


def _fill_mask(mask: Any) -> None:
    if mask.dtype.kind != "b":
        from engine.ops.blas import cpp_name

        name = {"uint8": "unsigned char"}.get(mask.dtype.name) or cpp_name(mask)
        raise RuntimeError(f"masked_fill_ only supports boolean masks, but got mask with dtype {name}")


@op(inplace=True, public=False, method=False, node="MaskedFillBackward0", plain=("value",))
@derivative(input=lambda grad, mask, input_shape: back_to(masked_fill_value(grad, mask, 0), input_shape))
@samples(lambda t: [(t(3, 4), t.boolean(3, 4), 2.5), (t(3, 4), t.boolean(4), 2.5), (t(), t.of(True), 1.0), (t(3), t.boolean(2, 3), 1.0)])
def masked_fill_value(xp, input, mask, value, *, out=None):
    """A number where the mask is true.  input (*), mask (*b) -> (broadcast)."""
    _fill_mask(mask)
    value = number_for(value, input.dtype)
    result = _masked_target(xp, input, mask, out)
    if type(result) is np.ndarray:
        np.copyto(result, value, where=mask, casting="unsafe")
    else:
        result[xp.broadcast_to(mask, result.shape)] = value
    return result


def _masked_target(xp: Any, input: Any, mask: Any, out: Any) -> Any:
    if out is None and mask.shape == input.shape:
        return input.copy("C")
    shape = broadcast_shapes(input.shape, mask.shape)
    if out is not None:
        if shape != out.shape:
            raise RuntimeError(
                f"output with shape {list(out.shape)} doesn't match the broadcast shape {list(shape)}"
            )
        return out
    if shape == input.shape:
        return input.copy("C")
    return xp.broadcast_to(input, shape).copy("C")


def back_to(grad, shape):
    """A gradient summed back to the shape before broadcasting."""
    return grad if grad._array.shape == tuple(shape) else grad.sum_to_size(shape)


@op(inplace=True, public=False, method=False, node="MaskedFillBackward1", tensors=("value",))
@derivative(
    input=lambda grad, mask, input_shape: back_to(masked_fill_value(grad, mask, 0), input_shape),
    value=lambda grad, mask: masked_fill_value(grad, ~mask, 0).sum(),
)
@samples(lambda t: [(t(3, 4), t.boolean(3, 4), t()), (t(3, 4), t.boolean(4), t())])
def masked_fill_tensor(xp, input, mask, value, *, out=None):
    """A 0-dim tensor where the mask is true.  input (*), mask (*b), value () -> (broadcast)."""
    if value.ndim:
        raise RuntimeError(
            f"masked_fill_ only supports a 0-dimensional value tensor, but got tensor with {value.ndim} dimension(s)."
        )
    _fill_mask(mask)
    result = _masked_target(xp, input, mask, out)
    mask = xp.broadcast_to(mask, result.shape)
    result[mask] = value.astype(result.dtype)
    return result


def _masked_fill(input, mask, value, inplace):
    if isinstance(value, Tensor):
        if value.dtype is not input.dtype and not value._array.ndim:
            if not dtypes.can_cast(value.dtype, input.dtype):
                raise RuntimeError(
                    f"value cannot be converted to type {dtypes.scalar_name(input.dtype)} without overflow"
                )
            value = value.to(input.dtype)
        if type(value._array) is not type(input._array) and not value._array.ndim:
            value = value.to(input.device)
        function = masked_fill_tensor
    else:
        function = masked_fill_value
    return (function.op.inplace_function if inplace else function)(input, mask, value)


@composite()
def masked_fill(input, mask, value):
    """`value` (a number or 0-dim tensor) where the mask is true.  input (*), mask (*b) -> (broadcast)."""
    return _masked_fill(input, mask, value, False)


@composite(public=False)
def masked_fill_(input, mask, value):
    """In place: `masked_fill`.  input (*), mask (*b) -> (*)."""
    return _masked_fill(input, mask, value, True)


@op()
@derivative(input=lambda grad, input_shape, mask: masked_select_backward(grad, input_shape, mask))
@samples(lambda t: [(t(3, 4), t.boolean(3, 4)), (t(3, 4), t.boolean(4)), (t(3), t.boolean(2, 3))])
def masked_select(xp, input, mask):
    """The elements where the mask is true, in one dim.  input (*), mask (*b) -> (count)."""
    if mask.dtype.kind != "b":
        raise RuntimeError("masked_select: expected BoolTensor for mask")
    if mask.shape != input.shape:
        shape = broadcast_shapes(input.shape, mask.shape)
        input, mask = xp.broadcast_to(input, shape), xp.broadcast_to(mask, shape)
    return input[mask]


def masked_select_backward(grad, shape, mask):
    """Zeros with `grad` where the mask is true, summed back to `shape`."""
    full = broadcast_shapes(tuple(shape), mask._array.shape)
    return back_to(masked_scatter(zeros_of(grad, full), mask, grad), shape)


@op(inplace=True)
@derivative(
    input=lambda grad, mask, input_shape: back_to(masked_fill_value(grad, mask, 0), input_shape),
    source=lambda grad, mask, source_shape: masked_scatter_backward(grad, mask, source_shape),
)
@samples(lambda t: [(t(3, 4), t.boolean(3, 4), t(12)), (t(3, 4), t.boolean(4), t(3, 4)), (t(3), t.boolean(2, 3), t(6))])
def masked_scatter(xp, input, mask, source, *, out=None):
    """The elements of `source`, in order, where the mask is true.  input (*), mask (*b), source (*s) -> (broadcast)."""
    if mask.dtype.kind != "b":
        raise RuntimeError(f"masked_scatter_ only supports boolean masks, but got mask with dtype {scalar_name(mask)}")
    if input.dtype != source.dtype:
        raise RuntimeError(
            f"masked_scatter: expected self and source to have same dtypes but got{scalar_name(input)} and "
            f"{scalar_name(source)}"
        )
    shape = broadcast_shapes(input.shape, mask.shape)
    wide = xp.broadcast_to(mask, shape)
    count = int(wide.sum())
    if source.size < count:
        raise RuntimeError("Number of elements of source < number of ones in mask")
    result = _masked_target(xp, input, mask, out)
    result[wide] = _flat(xp, source)[:count]
    return result


def masked_scatter_backward(grad, mask, shape):
    """The gradients of the elements that were used, zeros for the rest."""
    used = masked_select(grad, mask).reshape(-1)
    return widen(used, (numel(shape),)).reshape(shape)


# --- where elements are


@op(public=False, method=False)
@samples(lambda t: [(t.of([[0, 1], [2, 0]]),), (t.of(5),), (t.of([]),)])
def nonzero_rows(xp, input):
    """The indices of elements other than zero, one row each.  input (*) -> (count, ndim)."""
    if not input.ndim:
        return xp.zeros((int(bool(input)), 0), _LONG)
    return xp.stack(xp.nonzero(input)).astype(_LONG, copy=False).T


@composite()
def nonzero(input, *, as_tuple=False, out=None):
    """The indices of elements other than zero: a row each, or a tuple of vectors.  input (*) -> (count, ndim)."""
    if as_tuple:
        array = input._array
        if not array.ndim:
            array = array.reshape(1)
        return tuple(wrap(part.copy()) for part in array.nonzero())
    return nonzero_rows(input) if out is None else nonzero_rows(input, out=out)


@composite(method=True)
def argwhere(input):
    """The indices of elements other than zero, one row each.  input (*) -> (count, ndim)."""
    return nonzero_rows(input)


# --- slices replaced


@composite()
def select_scatter(input, src, dim, index):
    """A copy of `input` with `src` as the slice at `index` of `dim`.  input (*, n, *), src (*, *) -> (*, n, *)."""
    result = input.clone()
    spot = select(result, dim, index)
    if spot._array.shape != src._array.shape:
        raise RuntimeError(
            f"expected src to have a size equal to the slice of self. src size = {list(src._array.shape)}, slice size = "
            f"{list(spot._array.shape)}"
        )
    spot.copy_(src)
    return result


@composite()
def slice_scatter(input, src, dim=0, start=None, end=None, step=1):
    """A copy of `input` with `src` as a slice of `dim`.  input (*, n, *), src (*, m, *) -> (*, n, *)."""
    result = input.clone()
    spot = basic_index(result, (*PREFIX[wrap_dim(dim, input._array.ndim)], slice(start, end, step), ...))
    if spot._array.shape != src._array.shape:
        raise RuntimeError(
            f"expected src to have a size equal to the slice of self. src size = {list(src._array.shape)}, slice size = "
            f"{list(spot._array.shape)}"
        )
    spot.copy_(src)
    return result


@composite()
def diagonal_scatter(input, src, offset=0, dim1=0, dim2=1):
    """A copy of `input` with `src` as a diagonal.  input (*), src (*, k) -> (*)."""
    result = input.clone()
    spot = result.diagonal(offset, dim1, dim2)
    if spot._array.shape != src._array.shape:
        raise RuntimeError(
            f"expected src to have a size equal to the slice of self. src size = {list(src._array.shape)}, slice size = "
            f"{list(spot._array.shape)}"
        )
    spot.copy_(src)
    return result
