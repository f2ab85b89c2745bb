"""`gather` and `scatter`, and what the other ops by index tensors share.

Note [Writes by index]
Ops by index write into `out` when they are called in place (`x.index_add_(...)` costs what it touches, not a copy of
x), so every check stands before the first write.  Where places may repeat, values are added with one flat `add.at`.
"""

from __future__ import annotations

import builtins
import warnings
from typing import Any

import numpy as np

from engine import backends
from engine.autograd.versions import guard
from engine.core import dtypes
from engine.core.checks import numel, wrap_dim
from engine.core.grad_mode import mode
from engine.dispatch import OPS, composite, derivative, op, samples
from engine.dispatch.choosing import generated
from engine.dispatch.out import store
from engine.ops.copying import number_for
from engine.ops.shape import basic_index, place
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
    """Return whether low <= index < n: one reduction where low is 0, negative numbers being large when read without
    sign.
    """
    if not low and index.flags.c_contiguous:
        return bool(index.view(_UNSIGNED[index.dtype.itemsize]).max() < n)
    return bool(index.min() >= low and index.max() < n)


_UNSIGNED = {4: np.dtype(np.uint32), 8: np.dtype(np.uint64)}


def check_index_dtype(index: Any, name: str, sentence: str = "{}(): Expected dtype int32/int64 for index") -> None:
    if index.dtype.name not in ("int64", "int32") and (index.size or name == "index_select"):
        raise RuntimeError(sentence.format(name))


def target_of(input: Any, out: Any) -> Any:
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


def flat_of(xp: Any, array: Any) -> Any:
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


@op(keeps=("input",), out_as="disjoint", large=1 << 11, generated="many")
@derivative(input=lambda grad, input_shape, dim, index: scatter_add(zeros_of(grad, input_shape), dim, index, grad))
@samples(
    lambda t: [
        (t(3, 4), 1, t.integers(0, 4, 3, 2)),
        (t(3, 4), 0, t.integers(0, 3, 5, 4)),
        (t(3, 4), 0, t.integers(0, 3, 2, 2)),
        (t(), 0, t.of(0)),
        (t(3), 0, t.integers(0, 1, 0)),
    ]
)
def gather(xp, input, dim: int, index, *, sparse_grad: bool = False):
    """Values along `dim` at the places `index` gives.  input (*, n, *), index (*i) -> (*i)."""
    check_index_dtype(index, "gather")
    dim = _check_gather(input, index, dim)
    if not index.size:
        return xp.empty(index.shape, input.dtype)
    check_bounds(index, input.shape[dim] if input.ndim else 1, dim)
    if not input.ndim:
        return xp.full(index.shape, input, input.dtype)
    if not index.ndim:  # one place of a vector
        return input[index.reshape(1)].reshape(())
    return xp.ascontiguousarray(flat_of(xp, input)[cells_of(xp, input.shape, index, dim)])


def zeros_of(grad: Tensor, shape: Any) -> Tensor:
    """Zeros of a shape in the dtype and on the device of `grad`."""
    return wrap(backends.xp_of(grad._array).zeros(tuple(shape), grad._array.dtype))


_MANY = 1 << 13  # elements of rows from which they are added by the gradient of an embedding, which is generated code


def rows_added(grad: Tensor, shape: Any, arrays: Any) -> Tensor | None:
    """Zeros of a shape with rows added at the cells of its first dims that index arrays name; None for what is left.

    grad (*i, *rest), arrays (*i) each -> (*shape).
    """
    size = numel(grad.shape)
    embedded = OPS["embedding_dense_backward"] if size >= _MANY else None
    if embedded is None or not generated(embedded) or not grad.is_floating_point():
        return None
    if not all([a.__class__ is np.ndarray and a.dtype == _LONG for a in arrays]):
        return None
    rows, width = numel(shape[: len(arrays)]), numel(shape[len(arrays) :])
    index: Any = np.zeros((), _LONG)
    for a, n in zip(arrays, shape):
        index = index * n + (a if a.size and all_below(a, n) else np.where(a < 0, a + n, a))
    if index.size * width != size:
        return None
    at = wrap(np.ascontiguousarray(index).reshape(-1))
    found: Tensor = embedded.function(grad.reshape(-1, width), at, rows)
    return found.reshape(shape)


def _check_scatter(input: Any, dim: int, index: Any, src: Any, name: str) -> int:
    dim = wrap_dim(dim, input.ndim)
    check_index_dtype(index, name)
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
                f"Expected index {list(index.shape)} to be no larger than self {list(input.shape)} apart from "
                f"dimension {dim}"
            )
    elif bad or any(i > s for i, s in zip(index.shape, src.shape or (1,))):
        raise RuntimeError(
            f"Expected index {list(index.shape)} to be no larger than self {list(input.shape)} apart from dimension "
            f"{dim} and to be no larger size than src {list(src.shape)}"
        )
    check_bounds(index, input.shape[dim] if input.ndim else 1, dim)
    return dim


def _cut(array: Any, shape: Any) -> Any:
    if array.ndim != len(shape):  # a number beside a vector: they pass for each other
        array, shape = array.reshape(array.shape or (1,)), shape or (1,)
    return array[tuple(slice(0, n) for n in shape)] if array.shape != shape else array


def apply_cells(xp: Any, result: Any, index: Any, dim: int, change: Any) -> Any:
    """`change(flat array, cells)`, on a dense twin where `result` is not contiguous."""
    if not index.size:
        return result
    cells = cells_of(xp, result.shape or (1,), index.reshape(index.shape or (1,)), dim)
    if result.flags.c_contiguous:
        change(result.reshape(-1), cells)
    else:
        dense = xp.ascontiguousarray(result)
        change(dense.reshape(-1), cells)
        result[...] = dense
    return result


@op(inplace=True, form="scatter", node="ScatterBackward0", tensors=("src",))
@derivative(
    input=lambda grad, dim, index: scatter_zero(grad, dim, index),
    src=lambda grad, dim, index, src_shape: widen(grad.gather(dim, index), src_shape),
)
@samples(
    lambda t: [
        (t(3, 4), 1, t.of([[0, 2], [1, 3]]), t(2, 2)),
        (t(3), 0, t.of([2, 0]), t(3)),
        (t(), 0, t.of(0), t()),
    ]
)
def scatter_src(xp, input, dim: int, index, src, *, out=None):
    """`src` stored along `dim` at the places `index` gives.  input (*), index (*i), src (*s) -> (*)."""
    dim = _check_scatter(input, dim, index, src, "scatter")
    result = target_of(input, out)
    values = _cut(src, index.shape)

    def change(flat, cells):
        flat[cells] = values

    return apply_cells(xp, result, index, dim, change)


@op(inplace=True, form="scatter", node="ScatterBackward1", not_tensors=("value",))
@derivative(input=lambda grad, dim, index: scatter_zero(grad, dim, index))
@samples(lambda t: [(t(3, 4), 1, t.of([[0, 2], [1, 3]]), 2.5), (t(), 0, t.of(0), 2.5)])
def scatter_value(xp, input, dim: int, index, value: complex, *, out=None):
    """A number stored along `dim` at the places `index` gives.  input (*), index (*i) -> (*)."""
    dim = _check_scatter(input, dim, index, None, "scatter")
    value = number_for(value, input.dtype)
    result = target_of(input, out)

    def change(flat, cells):
        flat[cells] = value

    return apply_cells(xp, result, index, dim, change)


def scatter_zero(grad, dim, index):
    """`grad` with zeros where `index` wrote."""
    return scatter_value(grad, dim, index, 0)


def widen(grad, shape):
    """The gradient of what was used of `src`, with zeros for the rest."""
    if grad._array.ndim != len(shape):
        grad = grad.reshape((1,) * len(shape))
    if grad._array.shape == tuple(shape):
        return grad
    return place(grad, tuple(shape), tuple(slice(0, n) for n in grad._array.shape))


@op(inplace=True, tensors=("src",), autocast={"cuda": "widest"}, large=1 << 11, generated="many")
@derivative(
    input=lambda grad: grad,
    src=lambda grad, dim, index, src_shape: widen(grad.gather(dim, index), src_shape),
)
@samples(
    lambda t: [
        (t(3, 4), 1, t.integers(0, 4, 2, 3), t(2, 3)),
        (t(3), 0, t.of([1, 1]), t(3)),
        (t(), 0, t.of(0), t()),
    ]
)
def scatter_add(xp, input, dim: int, index, src, *, out=None):
    """`src` added along `dim` at the places `index` gives.  input (*), index (*i), src (*s) -> (*)."""
    dim = _check_scatter(input, dim, index, src, "scatter")
    result = target_of(input, out)
    values = _cut(src, index.shape)
    return apply_cells(
        xp,
        result,
        index,
        dim,
        lambda flat, cells: xp.add.at(flat, cells.reshape(-1), flat_of(xp, values)),
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
                "The reduce argument of torch.scatter with Tensor src is deprecated and will be removed in a future "
                "PyTorch release. Use torch.scatter_reduce instead for more reduction options.",
                stacklevel=3,
            )
        else:
            xp = backends.xp_of(input._array)
            value = wrap(xp.full(index._array.shape, number_for(value, input._array.dtype), input._array.dtype))
        return (scatter_reduce_ if inplace else scatter_reduce)(input, dim, index, value, kind)
    if value is None:
        given = [type(x).__name__ for x in (dim, index, value)]
        raise TypeError(
            f"scatter{'_' * inplace}() received an invalid combination of arguments - got "
            f"({', '.join(['Tensor'] * (not inplace) + given)}), but expected one of:\n"
            " * (Tensor input, int dim, Tensor index, Tensor src)\n"
            " * (Tensor input, int dim, Tensor index, Number value)\n"
        )
    if isinstance(value, Tensor):
        if not value._array.ndim and index._array.ndim:
            value = value.expand(index._array.shape)
        return (scatter_src_ if inplace else scatter_src)(input, dim, index, value)
    return (scatter_value_ if inplace else scatter_value)(input, dim, index, value)


scatter_src_, scatter_value_ = scatter_src.op.inplace_function, scatter_value.op.inplace_function


@composite(several=((4, 5), (4, 5), (5, 6), (5, 6)))
def scatter(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor | complex | None = None,
    *,
    value: complex | None = None,
    reduce: str | None = None,
    out: Tensor | None = None,
):
    """`src` (a Tensor or a number) stored along `dim` where `index` says.  input (*), index (*i), src (*s) -> (*).

    reduce="add" or "multiply" combines with what is there.
    """
    if out is not None:
        return store(out, "scatter", scatter, input, dim, index, src, value=value, reduce=reduce)
    return _scatter(input, dim, index, src if value is None else value, reduce, False)


@composite(public=False, several=((4, 5), (4, 5), (5, 6), (5, 6)))
def scatter_(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor | complex | None = None,
    *,
    value: complex | None = None,
    reduce: str | None = None,
):
    """In place: `scatter`.  input (*), index (*i), src (*s) -> (*)."""
    return _scatter(input, dim, index, src if value is None else value, reduce, True)


def _of_mean(grad, reduce, slope):
    """`slope`; that of a mean saves `grad`."""
    return guard(slope, grad) if reduce == "mean" else slope


@op(inplace=True, tensors=("src",))
@derivative(
    input=lambda grad, dim, index, src, reduce, include_self, input, result: _of_mean(
        grad, reduce, reduce_backward(grad, input, dim, index, src, reduce, include_self, result)[0]
    ),
    src=lambda grad, input, dim, index, src, reduce, include_self, result: _of_mean(
        grad, reduce, reduce_backward(grad, input, dim, index, src, reduce, include_self, result)[1]
    ),
)
@samples(
    lambda t: [
        (t(3, 4), 1, t.of([[0, 2], [2, 2]]), t(2, 2), "sum"),
        (t(3, 4), 1, t.of([[0, 2], [2, 2]]), t(2, 2), "mean"),
        (t(3), 0, t.of([1, 1]), t(2), "prod"),
        (t.distinct(3), 0, t.of([1, 1, 0]), t.distinct(3), "amax", {"include_self": False}),
        (t(3), 0, t.of([1, 1]), t(2), "mean", {"include_self": False}),
        (t.uniform(1, 2, 3), 0, t.of([1]), t.uniform(-2, -1, 1), "amin"),
    ]
)
def scatter_reduce(xp, input, dim: int, index, src, reduce: str, *, include_self: bool = True, out=None):
    """`src` combined along `dim` where `index` says: sum, prod, mean, amax, amin.

    input (*), index (*i), src (*s) -> (*).
    """
    if reduce not in ("sum", "prod", "mean", "amax", "amin"):
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}")
    dim = _check_scatter(input, dim, index, src, "scatter")
    result = target_of(input, out)
    values = _cut(src, index.shape)

    def change(flat, cells):
        cells = cells.reshape(-1)
        combine_at(xp, flat, cells, flat_of(xp, values), reduce, include_self)

    return apply_cells(xp, result, index, dim, change)


def combine_at(xp: Any, flat: Any, cells: Any, values: Any, reduce: str, include_self: bool) -> None:
    """flat[cells] combined with values, by the reductions of scatter_reduce."""
    if not include_self:
        kind = flat.dtype.kind
        if reduce in ("sum", "mean"):
            start = 0
        elif reduce == "prod":
            start = 1
        elif kind == "b":
            start = reduce == "amin"
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
    yours = widen(yours, src._array.shape)
    return (mine, yours) if reduce != "prod" else (guard(mine, input, result), guard(yours, input, result))


def widen_back(src, index):
    """Return the part of `src` that was used."""
    shape = index._array.shape
    return src if src._array.shape == shape else basic_index(src, (*(slice(0, n) for n in shape), ...))


_PAIRS = 1 << 24  # elements beside each other up to which the products of all others are made one by one


def _products_of_others(base: Tensor, used: Tensor, index: Tensor, dim: int) -> Tensor:
    """For each of `used` the product of all others that go to the same place, and of `base` there; with any zeros.

    base (*n), used (*i), index (*i) -> (*i).
    """
    dim = wrap_dim(dim, used._array.ndim)
    at, values = index.movedim(dim, -1), used.movedim(dim, -1)
    length = at._array.shape[-1] if at._array.ndim else 1
    if length * at._array.size > _PAIRS:
        raise RuntimeError(
            "scatter_reduce(): Double backward is unsupported for src when >1 zeros in src are scattered to the same "
            f"position in self, for more than {_PAIRS} pairs of elements"
        )
    if not at._array.ndim:
        return base.gather(dim, index)
    same = at.unsqueeze(-1) == at.unsqueeze(-2)
    xp = backends.xp_of(at._array)
    others = same & wrap(~xp.eye(length, dtype=bool))
    rows = values.unsqueeze(-2).expand(others._array.shape).masked_fill(~others, 1)
    return rows.prod(-1).movedim(-1, dim) * base.gather(dim, index)


def _prod_backward(grad, input, dim, index, src, include_self, result):
    used = widen_back(src, index)
    zero = (used == 0).detach()
    safe = used.masked_fill(zero, 1)
    base = input if include_self else scatter_value(input, dim, index, 1)
    ones = scatter_value(input * 0 + 1, dim, index, 1)
    others = scatter_reduce(ones, dim, index, used, "prod")
    mine = grad * others
    if mode.enabled and src.device.type != "meta" and bool(zero._array.any()):  # what is 0 here has a slope of its own
        return mine, grad.gather(dim, index) * _products_of_others(base, used, index, dim)
    masked = scatter_reduce(base, dim, index, safe, "prod")
    zeros = scatter_add(zeros_of(grad, input._array.shape), dim, index, zero.to(grad.dtype))
    count = zeros.gather(dim, index)
    picked = masked.gather(dim, index)
    without = (picked / safe).masked_fill(zero, 0) * (count == 0).to(grad.dtype)
    alone = picked * (zero & (count == 1)).to(grad.dtype)
    return mine, grad.gather(dim, index) * (without + alone)


scatter_reduce_ = scatter_reduce.op.inplace_function


_CHUNK = 1 << 22


def accumulate_rows(xp: Any, result: Any, rows: Any, values: Any) -> None:
    """result[rows[i]] += values[i].  result (n, d) contiguous, rows (k) not negative, values (k, d).

    One flat `add.at`: numpy walks 1-d operands of one dtype in a tight loop.
    """
    _n, width = result.shape
    flat = result.reshape(-1)
    values = values.astype(result.dtype, copy=False)
    if width == 1:
        xp.add.at(flat, rows, values.reshape(-1))
        return
    step = builtins.max(_CHUNK // builtins.max(width, 1), 1)
    columns = xp.arange(width)
    for start in builtins.range(0, rows.shape[0], step):
        cells = rows[start : start + step].reshape(-1, 1) * width + columns
        xp.add.at(flat, cells.reshape(-1), values[start : start + step].reshape(-1))


# --- where elements are


def places_of(xp: Any, array: Any) -> Any:
    """The indices of elements other than zero.  (*) -> (ndim, count)."""
    if type(array) is not np.ndarray or array.dtype.kind not in "biufc" or not array.size:
        return xp.stack(xp.nonzero(array)).astype(_LONG, copy=False)
    return unflattened(np.flatnonzero(array if array.dtype.kind == "b" else array != 0), array.shape)


def unflattened(rest: Any, shape: Any) -> Any:
    """Places in a flat array as indices of each dim.  (count) -> (ndim, count).

    numpy counts along every dim at each element that it finds: places of the flat array, divided, take a fifth.
    """
    found = np.empty((len(shape), rest.size), _LONG)
    for d in builtins.range(len(shape) - 1, 0, -1):
        above = rest // shape[d]
        np.multiply(above, -shape[d], out=found[d])
        found[d] += rest
        rest = above
    found[0] = rest
    return found
