"""Order: sort, topk, medians and modes, unique values, searches in sorted sequences."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from engine import backends
from engine.autograd.versions import guard, own
from engine.backends.cpu import threads
from engine.core import dtypes
from engine.core.checks import wrap_dim
from engine.dispatch import composite, derivative, op, overload, samples
from engine.dispatch.out import store
from engine.ops.extremes import at_index, put_along
from engine.ops.pointwise.arithmetic import keep_where, refuse
from engine.ops.reduction import nonempty
from engine.tensor import Tensor, wrap

_SEARCHED = 1 << 12  # values that a thread looks up at once
_SHORT = 100  # numbers of a sorted row that are compared with each value
_PACKED = 1024  # elements from which keys, ten calls more, are sorted sooner


def _keys(xp: Any, input: Any, axis: int, descending: bool, ordered: bool = False) -> Any:
    """int64 whose order is the stable one of `input` along `axis`: its value above, its index in the lower 32 bits.

    numpy sorts and partitions these many at a time: (256, 1000) float32 in 1.9 and 0.5 ms, where its stable argsort
    takes 14 and argpartition 1.3.  None where there are few elements, or values have more than 32 bits.
    ordered: it is known that none is nan.
    """
    n, kind = input.shape[axis], input.dtype.kind
    if input.size < _PACKED or n >= 1 << 31:
        return None
    if input.dtype.itemsize > 4:
        if kind != "i":
            return None
        least = int(input.min())
        if int(input.max()) - least >= 1 << 31:
            return None
        keys = input - least
    elif kind in "fV":
        bits = 8 * input.dtype.itemsize
        most = (1 << (bits - 1)) - 1
        keys = input.view(f"int{bits}")
        sign = keys >> (bits - 1)
        keys = (keys ^ (sign & most)) - sign  # sign and size as a number: both zeros are 0
        if not ordered and (nan := input != input).any():
            keys = xp.where(nan, most, keys)
        keys = keys.astype("int64")
    elif input.dtype == "uint32":
        return None
    else:
        keys = input.astype("int64")
    if descending:
        xp.invert(keys, out=keys)
    keys <<= 32
    keys |= xp.arange(n).reshape(-1, *(1,) * (input.ndim - axis - 1))
    return keys


def _indices(keys: Any) -> Any:
    keys &= 0xFFFFFFFF
    return keys


def _order(xp: Any, input: Any, axis: int, descending: bool) -> Any:
    """Stable sorting indices along `axis`; nan counts as the largest."""
    keys = _keys(xp, input, axis, descending)
    if keys is not None:
        keys.sort(axis=axis)
        return _indices(keys)
    if input.dtype.kind == "V":  # bfloat16, whose nan numpy leaves where they are
        input = input.astype("float32")
    if not descending:
        return xp.argsort(input, axis=axis, kind="stable")
    n = input.shape[axis]
    return n - 1 - xp.flip(xp.argsort(xp.flip(input, axis), axis=axis, kind="stable"), axis)


def _sortable(input: Any) -> None:
    if input.dtype.kind in "cW":
        raise RuntimeError(" Sort does not support complex dtypes on CPU")


def _sort_samples(t: Any) -> list[Any]:
    return [
        (t.distinct(3, 4),),
        (t.distinct(3, 4), 0, True),
        (t(),),
        (t(0, 2), 0),
        (t.integers(0, 3, 9),),
        (t.integers(0, 3, 9), 0, True),
        (t.boolean(4),),
    ]


@op(returns=("values", "indices"), nondifferentiable=("indices",), several=((1, 4), (2, 5)), blocks="rows")
@derivative(input=lambda grad0, result1, input_shape, dim: _unsorted(grad0, result1, input_shape, dim))
@samples(_sort_samples)
def sort(xp, input, dim: int = -1, descending: bool = False, stable: bool | None = False):
    """(values, indices) in order along `dim`; equals keep their order.  input (*) -> (*), (*)."""
    _sortable(input)
    axis = wrap_dim(dim, input.ndim)
    if not input.ndim:
        return input.copy(), xp.zeros((), "int64")
    index = _order(xp, input, axis, descending)
    return _taken(xp, input, index, axis), index


def _taken(xp: Any, input: Any, index: Any, axis: int) -> Any:
    """xp.take_along_axis(input, index, axis); along the last dim of much in a third of its time."""
    if axis < input.ndim - 1 or input.size < _PACKED or index.shape[:-1] != input.shape[:-1]:
        return xp.take_along_axis(input, index, axis)
    n = input.shape[axis]
    places = index + (xp.arange(input.size // n) * n).reshape(*input.shape[:-1], 1)
    return xp.take(input.reshape(-1), places)


def _unsorted(grad: Tensor, index: Tensor, shape: Any, dim: int) -> Tensor:
    return put_along(grad, index, shape, dim) if shape else guard(own(grad), index)


@op(several=((1, 3), (2, 5)), blocks="rows")
@samples(_sort_samples)
def argsort(xp, input, dim: int = -1, descending: bool = False, stable: bool = False):
    """The indices that sort `input` along `dim`.  input (*) -> (*) int64."""
    _sortable(input)
    axis = wrap_dim(dim, input.ndim)
    return _order(xp, input, axis, descending) if input.ndim else xp.zeros((), "int64")


@composite()
@samples(lambda t: [(t.distinct(3, 4),)])
def msort(input: Tensor, *, out=None):
    """The values sorted along the first dim.  input (*) -> (*)."""
    if out is not None:
        return store(out, "msort", msort, input)
    return sort(input, 0)[0]


def _part(xp: Any, array: Any, axis: int, start: int, stop: int) -> Any:
    index = [slice(None)] * array.ndim
    index[axis] = slice(start, stop)
    return array[tuple(index)]


def _first(xp: Any, input: Any, k: int, axis: int, descending: bool) -> Any:
    """The first k of the sorting indices; of long rows of 64-bit values equals may be others."""
    n, keys = input.shape[axis], _keys(xp, input, axis, descending)
    if keys is None:
        if not (n > 1000 and 4 * k < n and k):
            return _part(xp, _order(xp, input, axis, descending), axis, 0, k).copy()
        index = xp.argpartition(input, n - k if descending else k - 1, axis=axis)
        index = _part(xp, index, axis, n - k, n) if descending else _part(xp, index, axis, 0, k)
        index = xp.sort(index, axis=axis)
        order = _order(xp, xp.take_along_axis(input, index, axis), axis, descending)
        return xp.take_along_axis(index, order, axis)
    if 0 < k < n:
        keys = xp.partition(keys, k - 1, axis=axis)
    keys = _part(xp, keys, axis, 0, k).copy()
    keys.sort(axis=axis)
    return _indices(keys)


def _of_groups(xp: Any, input: Any, k: int, largest: bool) -> Any:
    """`_first` along the last dim, of the k groups of columns whose own first elements come first.

    Of (256, 1000) and k = 5 it looks at 147 columns.  None where another group begins with the k-th value, too.
    """
    n = input.shape[-1]
    size = int((n / k) ** 0.5)
    count = n // size
    body = input[..., : size * count].reshape(*input.shape[:-1], size, count)
    heads = body.max(axis=-2) if largest else body.min(axis=-2)
    if not largest and heads.dtype.kind in "fV" and (heads != heads).any():
        return None
    groups = _first(xp, heads, k + 1, heads.ndim - 1, largest)
    ends = xp.take_along_axis(heads, groups[..., k - 1 :], -1)
    kth, other = ends[..., 0], ends[..., 1]
    if not ((kth < other) | (kth > other) | ((kth != kth) & (other == other))).all():
        return None
    groups = xp.sort(groups[..., :k], axis=-1)
    columns = groups[..., None, :] + xp.arange(size).reshape(-1, 1) * count  # in the order of their places
    columns = columns.reshape(*input.shape[:-1], size * k)
    if size * count < n:
        rest = xp.broadcast_to(xp.arange(size * count, n), (*input.shape[:-1], n - size * count))
        columns = xp.concatenate([columns, rest], axis=-1)
    found = _first(xp, _taken(xp, input, columns, input.ndim - 1), k, input.ndim - 1, largest)
    return _taken(xp, columns, found, input.ndim - 1)


@op(returns=("values", "indices"), nondifferentiable=("indices",), large=512, generated="many")
@derivative(input=lambda grad0, result1, input_shape, dim: _unsorted(grad0, result1, input_shape, dim))
@samples(
    lambda t: [
        (t.distinct(3, 4), 2),
        (t.distinct(3, 4), 2, 0, False),
        (t(), 1),
        (t.distinct(3), 0),
        (t.integers(0, 99, 2, 2000), 3),
        (t.integers(0, 99, 2000), 3, -1, False),
    ]
)
def topk(xp, input, k: int, dim: int = -1, largest: bool = True, sorted: bool = True):
    """(values, indices) of the k largest (or smallest) along `dim`, in order.  input (*) -> (*, k along dim), same.

    RuntimeError when `k` exceeds the size.
    """
    for kind, label in (
        ("c", " topk does not support complex"),
        ("b", "topk does not support bool"),
    ):
        if input.dtype.kind == kind:
            raise RuntimeError(f"{label} dtypes on CPU")
    axis = wrap_dim(dim, input.ndim)
    n = input.shape[axis] if input.ndim else 1
    if not 0 <= k <= n:
        raise RuntimeError("selected index k out of range")
    if not input.ndim:
        return input.copy(), xp.zeros((), "int64")
    index = None
    if axis == input.ndim - 1 and 16 * k < n and k and input.size >= _PACKED and input.dtype.kind != "V":
        index = _of_groups(xp, input, k, largest)
    if index is None:
        index = _first(xp, input, k, axis, largest)
    return _taken(xp, input, index, axis), index


def _picked(xp: Any, input: Any, order: Any, place: Any, axis: int, keepdim: bool) -> tuple[Any, Any]:
    """(values, indices) at `place` (size 1 along axis) of the order."""
    index = xp.take_along_axis(order, place, axis)
    values = xp.take_along_axis(input, index, axis)
    if keepdim:
        return values, index
    return values.squeeze(axis), index.squeeze(axis)


def _at_place(xp: Any, input: Any, place: int, axis: int, keepdim: bool, ordered: bool = False) -> tuple[Any, Any]:
    """(values, indices) at one place of the order.  ordered: it is known that none is nan."""
    keys = _keys(xp, input, axis, False, ordered)
    if keys is None:
        return _picked(xp, input, _order(xp, input, axis, False), _one_place(xp, input, axis, place), axis, keepdim)
    keys.partition(place, axis=axis)
    index = _indices(_part(xp, keys, axis, place, place + 1).copy())
    values = _taken(xp, input, index, axis)
    return (values, index) if keepdim else (values.squeeze(axis), index.squeeze(axis))


def _one_place(xp: Any, input: Any, axis: int, place: int) -> Any:
    shape = list(input.shape)
    shape[axis] = 1
    return xp.full(shape, place, "int64")


def _index_backward(grad0: Tensor, result1: Tensor, input_shape: Any, dim: int) -> Tensor:
    return at_index(grad0, result1, input_shape, dim)


@op(
    returns=("values", "indices"),
    nondifferentiable=("indices",),
    blocks="rows",
    out_as="disjoint",
    generated="many",
    large=512,
)
@derivative(input=_index_backward)
@samples(lambda t: [(t.distinct(3, 4), 2), (t.distinct(3, 4), 1, 0, True), (t(), 1)])
def kthvalue(xp, input, k: int, dim: int = -1, keepdim: bool = False):
    """(values, indices) of the k-th smallest along `dim`, counted from 1.  input (*) -> (* without dim), same."""
    refuse("kthvalue_cpu", input, "bc")
    axis = wrap_dim(dim, input.ndim)
    n = input.shape[axis] if input.ndim else 1
    if not input.size and not n:
        raise IndexError(f"kthvalue(): Expected reduction dim {axis} to have non-zero size.")
    if not 1 <= k <= n:
        raise RuntimeError(f"kthvalue(): selected number k out of range for dimension {axis}")
    if not input.ndim:
        return input.copy(), xp.zeros((), "int64")
    return _at_place(xp, input, k - 1, axis, keepdim)


# --- medians, modes


def _shared(grad: Tensor, input: Tensor, result: Tensor) -> Tensor:
    """The gradient shared among the elements that equal the result."""
    mask = (input == result) | ((input != input) & (result != result))
    return keep_where((grad / mask.sum().to(grad.dtype)).expand(input._array.shape), mask)


def _lower_median(xp: Any, input: Any, axis: int, skip_nan: bool, keepdim: bool) -> tuple[Any, Any]:
    """(values, indices) of the lower medians; of a row with nan the first nan, or the median of the others."""
    n = input.shape[axis]
    nan = input != input if input.dtype.kind in "fV" else None
    if nan is None or not nan.any():
        return _at_place(xp, input, (n - 1) // 2, axis, keepdim, nan is not None)
    nans = nan.sum(axis=axis, keepdims=True).astype("int64")
    place = xp.maximum(n - nans - 1, 0) // 2 if skip_nan else xp.where(nans > 0, n - nans, (n - 1) // 2)
    return _picked(xp, input, _order(xp, input, axis, False), place, axis, keepdim)


def _median_of_all(xp: Any, input: Any, skip_nan: bool) -> Any:
    refuse("median_cpu", input, "bc")
    if not input.size:
        return xp.full((), float("nan") if input.dtype.kind in "fV" else 0).astype(input.dtype)
    flat = input.reshape(-1)
    return _lower_median(xp, flat, 0, skip_nan, False)[0].copy()


@op(form="median", node="MedianBackward0")
@derivative(input=_shared)
@samples(lambda t: [(t.distinct(3, 4),), (t(),), (t.integers(0, 9, 5),)])
def median_all(xp, input):
    """The lower median of all elements; nan if one is.  input (*) -> ()."""
    return _median_of_all(xp, input, False)


@op(form="nanmedian")
@derivative(input=_shared)
@samples(lambda t: [(t.distinct(3, 4),), (t(),), (t.of([1.0, float("nan"), 3]),)])
def nanmedian_all(xp, input):
    """The lower median of the elements that are not nan.  input (*) -> ()."""
    return _median_of_all(xp, input, True)


def _median_along(xp: Any, name: str, input: Any, dim: int, keepdim: bool) -> tuple[Any, Any]:
    refuse("median_out", input, "bc")
    axis = wrap_dim(dim, input.ndim)
    if not input.ndim:
        return input.copy(), xp.zeros((), "int64")
    nonempty(name, input, axis)
    return _lower_median(xp, input, axis, name == "nanmedian", keepdim)


def _median_samples(t: Any) -> list[Any]:
    return [
        (t.distinct(3, 4), 1),
        (t.distinct(2, 3, 4), 0, True),
        (t(), 0),
        (t.integers(0, 3, 5), 0),
    ]


@op(
    form="median",
    returns=("values", "indices"),
    nondifferentiable=("indices",),
    node="MedianBackward1",
    blocks="rows",
    generated="many",
    large=512,
)
@derivative(input=_index_backward)
@samples(_median_samples)
def median_dim(xp, input, dim: int, keepdim: bool = False):
    """(values, indices) of the lower medians along `dim`.  input (*) -> (* without dim), same."""
    return _median_along(xp, "median", input, dim, keepdim)


@op(
    form="nanmedian",
    returns=("values", "indices"),
    nondifferentiable=("indices",),
    node="NanmedianBackward1",
    blocks="rows",
)
@derivative(input=_index_backward)
@samples(_median_samples)
def nanmedian_dim(xp, input, dim: int, keepdim: bool = False):
    """(values, indices) of the lower medians along `dim`, nan left out.  input (*) -> (* without dim), same."""
    return _median_along(xp, "nanmedian", input, dim, keepdim)


@overload(several=((1, 1), (2, 4)))
@samples(lambda t: [(t.distinct(3, 4),), (t.distinct(3, 4), 1)])
def median(input: Tensor, dim: int | None = None, keepdim: bool = False, *, out=None) -> Any:
    """The lower median of all elements, or (values, indices) along `dim`.  input (*) -> (* without dim)."""
    return median_all(input, out=out) if dim is None else median_dim(input, dim, keepdim, out=out)


@overload(several=((1, 1), (2, 4)))
@samples(lambda t: [(t.distinct(3, 4),), (t.distinct(3, 4), 1)])
def nanmedian(input: Tensor, dim: int | None = None, keepdim: bool = False, *, out=None) -> Any:
    """`median` of what is not nan.  input (*) -> (* without dim)."""
    return nanmedian_all(input, out=out) if dim is None else nanmedian_dim(input, dim, keepdim, out=out)


@op(returns=("values", "indices"), nondifferentiable=("indices",))
@derivative(input=_index_backward)
@samples(
    lambda t: [
        (t.distinct(3, 4),),
        (t.integers(0, 3, 3, 9), 1, True),
        (t(),),
        (t.integers(0, 3, 9, 2), 0),
    ]
)
def mode(xp, input, dim: int = -1, keepdim: bool = False):
    """(values, indices) of the commonest value along `dim`, the smallest of equally common ones.

    input (*) -> (* without dim), same.
    """
    refuse("mode_cpu", input, "c")
    axis = wrap_dim(dim, input.ndim)
    if not input.ndim:
        return input.copy(), xp.zeros((), "int64")
    nonempty("mode", input, axis)
    order = _order(xp, input, axis, False)
    values = xp.take_along_axis(input, order, axis)
    n = input.shape[axis]
    places = xp.arange(n).reshape([n if d == axis else 1 for d in range(input.ndim)])
    fresh = xp.ones(input.shape, "bool")
    _part(xp, fresh, axis, 1, n)[...] = _part(xp, values, axis, 1, n) != _part(xp, values, axis, 0, n - 1)
    starts = xp.maximum.accumulate(xp.where(fresh, places, 0), axis=axis)
    place = xp.argmax(places - starts, axis=axis, keepdims=True)  # the end of the first longest run
    return _picked(xp, input, order, place, axis, keepdim)


# --- unique values


def _results(arrays: list[Any]) -> Any:
    found = [wrap(a) for a in arrays]
    return found[0] if len(found) == 1 else tuple(found)


@composite(arrays=True, recorded="arrays")
@samples(lambda t: [(t.integers(0, 4, 9),), (t.integers(0, 2, 5, 2), {"dim": 0, "return_counts": True})])
def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The distinct elements, or slices along `dim`, in order; with the inverse and the counts if asked.

    input (*) -> (n) or (*, n along dim); inverse (*) or (size of dim); counts (n).
    """
    _has_values("unique", input)
    array = input._array
    refuse("unique", array, "c")
    xp = backends.xp_of(array)
    axis = None if dim is None else wrap_dim(dim, array.ndim)
    _with_dims(array, dim)
    asked = dict(return_inverse=bool(return_inverse), return_counts=bool(return_counts))
    found = xp.unique(array, axis=axis, equal_nan=False, **asked)
    results = list(found) if True in asked.values() else [found]
    if return_inverse:
        results[1] = results[1].reshape(array.shape if axis is None else (array.shape[axis],))
    return _results(results)


def _has_values(name: str, input: Tensor) -> None:
    if input.device.type == "meta":
        raise NotImplementedError(
            f"aten::{name}: attempted to run this operator with Meta tensors, but there was no fake impl or Meta "
            "kernel registered for this operator. The shape of its result depends on values."
        )


def _with_dims(array: Any, dim: int | None) -> None:
    if dim is not None and not array.ndim:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")


@composite(arrays=True, recorded="arrays")
@samples(lambda t: [(t.integers(0, 2, 9),), (t.integers(0, 2, 5, 2), True, True, 0)])
def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """The elements (or slices along `dim`) without equal neighbours; with the inverse and the counts if asked.

    input (*) -> (n) or (*, n along dim); inverse (*) or (size of dim); counts (n).
    """
    _has_values("unique_consecutive", input)
    array = input._array
    refuse("unique", array, "c")
    xp = backends.xp_of(array)
    rows = array.reshape(-1) if dim is None else array
    axis = 0 if dim is None else wrap_dim(dim, array.ndim)
    _with_dims(array, dim)
    n = rows.shape[axis] if rows.ndim else 1
    if not rows.ndim:
        rows = rows.reshape(1)
    fresh = xp.ones((n,), "bool")
    if n > 1:
        differs = _part(xp, rows, axis, 1, n) != _part(xp, rows, axis, 0, n - 1)
        fresh[1:] = differs.any(axis=tuple(d for d in range(rows.ndim) if d != axis))
    starts = xp.nonzero(fresh)[0]
    results = [xp.take(rows, starts, axis=axis)]
    if return_inverse:
        inverse = xp.cumsum(fresh) - 1
        results.append(inverse.reshape(array.shape if dim is None else (n,)).astype("int64"))
    if return_counts:
        results.append(xp.diff(xp.concatenate((starts, xp.asarray([n], starts.dtype)))).astype("int64"))
    return _results(results)


# --- searches


def _places(row: np.ndarray, values: np.ndarray, side: str) -> np.ndarray:
    """np.searchsorted; of a short row by a comparison with each of its numbers, which takes no branches."""
    if len(row) > _SHORT or values.size < _SEARCHED // 4 or (row[-1:] != row[-1:]).any():
        return np.searchsorted(row, values, side=side)
    behind = np.greater_equal if side == "left" else np.greater  # none is behind nan
    found, one = np.full(values.shape, len(row), np.int8), np.empty(values.shape, np.bool_)
    for number in row:
        np.subtract(found, behind(number, values, out=one).view(np.int8), out=found)
    return found


@op(form="searchsorted", tensors=("sorted_sequence", "sorter"), generated="many", large=1 << 12, large_by=("input",))
@samples(
    lambda t: [
        (t.of([1.0, 2, 3]), t(2, 3), False, None, True),
        (t.of([[1.0, 2], [0, 4]]), t(2, 3), True, None, False),
    ]
)
def search_sorted(xp, sorted_sequence, input, right: bool, sorter=None, out_int32: bool = False):
    """Return the insertion points of `input` in sorted rows. sorted_sequence (*, n) or (n), input (*, m) -> (*, m)."""
    if not sorted_sequence.ndim:
        raise RuntimeError(
            "torch.searchsorted(): boundaries tensor should have positive dimension, but got 0 dimension"
        )
    refuse("searchsorted_out_cpu", input, "bc")
    if sorter is not None:
        sorted_sequence = xp.take_along_axis(sorted_sequence, sorter, -1)
    side = "right" if right else "left"
    many = isinstance(input, np.ndarray) and input.size >= _SEARCHED
    if sorted_sequence.ndim > 1:
        count = prod(sorted_sequence.shape[:-1])
        rows = sorted_sequence.reshape(count, sorted_sequence.shape[-1])
        values = input.reshape(count, input.shape[-1])
    elif many:
        values = input.reshape(-1)
        values = np.array_split(values, -(-input.size // _SEARCHED))
        rows = [sorted_sequence] * len(values)
    else:
        return xp.searchsorted(sorted_sequence, input, side=side).astype("int32" if out_int32 else "int64")
    found = xp.empty(input.shape, "int64")
    made = found.reshape(values.shape) if sorted_sequence.ndim > 1 else np.array_split(found.reshape(-1), len(values))

    def search(i: int) -> None:
        made[i][...] = _places(rows[i], values[i], side) if many else xp.searchsorted(rows[i], values[i], side=side)

    if many:
        threads.run(search, list(range(len(rows))))
    else:
        for i in range(len(rows)):
            search(i)
    return found.astype("int32" if out_int32 else "int64")


@composite(method=False, several=((2, 7), (2, 7)))
@samples(lambda t: [(t.of([1.0, 2, 3]), t.constant(t(2, 3)))])
def searchsorted(
    sorted_sequence: Tensor,
    input: Tensor | complex,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
    out=None,
):
    """The indices at which `input` keeps the innermost dim of `sorted_sequence` sorted.

    sorted_sequence (*, n), input (*, m) -> (*, m).
    """
    if side not in (None, "left", "right"):
        raise RuntimeError(f"torch.searchsorted(): side can only be 'left' or 'right' but got {side}")
    if side == "left" and right:
        raise RuntimeError(
            "torch.searchsorted(): side and right can't be set to opposites, got side of left while right was True"
        )
    if not isinstance(sorted_sequence, Tensor):
        raise TypeError(
            "searchsorted(): argument 'sorted_sequence' (position 1) must be Tensor, not "
            f"{type(sorted_sequence).__name__}"
        )
    first = sorted_sequence._array
    if not isinstance(input, Tensor):
        input = wrap(backends.xp_of(first).asarray(input, first.dtype if first.dtype.kind == "f" else None))
    second = input._array
    if first.ndim > 1 and (first.ndim != second.ndim or first.shape[:-1] != second.shape[:-1]):
        raise RuntimeError(
            "torch.searchsorted(): boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries "
            f"tensor and input value tensor must match, but we got boundaries tensor {list(first.shape)} and input "
            f"value tensor {list(second.shape)}"
        )
    for x in (second, first):
        refuse("searchsorted_out_cpu", x, "c")
    return search_sorted(sorted_sequence, input, right or side == "right", sorter, out_int32, out=out)


@composite(method=False, several=((2, 4), (2, 5)))
@samples(lambda t: [(t.constant(t(2, 3)), t.of([-1.0, 0, 1]))])
def bucketize(input: Tensor | complex, boundaries: Tensor, *, out_int32: bool = False, right: bool = False, out=None):
    """The index of the interval between `boundaries` that holds each element.  input (*), boundaries (n) -> (*)."""
    if boundaries._array.ndim != 1:
        raise RuntimeError(f"bucketize(): boundaries tensor must be 1 dimension, but got dim({boundaries._array.ndim})")
    return searchsorted(boundaries, input, out_int32=out_int32, right=right, out=out)


def _comparable(array: Any) -> Any:
    return array.astype("float32") if array.dtype.kind == "V" else array


def _as_tensor(x: Any, like: Any) -> Tensor:
    return x if isinstance(x, Tensor) else wrap(backends.xp_of(like).asarray(x))


@composite(method=False, several=((2, 5), (2, 5), (2, 5)), arrays=True, recorded="arrays", elementwise=True)
@samples(lambda t: [(t.integers(0, 9, 3, 4), t.integers(0, 9, 5))])
def isin(
    elements: Tensor | complex,
    test_elements: Tensor | complex,
    *,
    assume_unique: bool = False,
    invert: bool = False,
    out: Tensor | None = None,
):
    """Return whether each element is among `test_elements`.  elements (*), test_elements (*b) -> (*) bool."""
    if out is not None:
        return store(out, "isin", isin, elements, test_elements, assume_unique=assume_unique, invert=invert)
    for x in (elements, test_elements):
        kind = dtypes.of_number(x) if not isinstance(x, Tensor) else x.dtype
        if kind is dtypes.bool or kind.is_complex:
            raise RuntimeError(f"Unsupported input type encountered for isin(): {dtypes.scalar_name(kind)}")
    like = (elements if isinstance(elements, Tensor) else test_elements)._array
    first, second = (_comparable(_as_tensor(x, like)._array) for x in (elements, test_elements))
    found = backends.xp_of(like).isin(first, second, assume_unique=assume_unique, invert=invert)
    return wrap(found if hasattr(found, "strides") and found.ndim else backends.xp_of(like).asarray(found))
