"""`x[index]`, `x[index] = value`, `index_put`.

An index of ints, slices, None and Ellipsis is basic: one view op.  As soon as it holds a tensor, a list, a mask or a
bool it is advanced: first its basic part as a view (torch takes ints for basic here, numpy does not), then one op over
what is left, of integer arrays and full slices, where torch and numpy agree.  Masks become integer arrays (`nonzero`)
beforehand.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from engine import backends
from engine.autograd.graph import requires_grad_of
from engine.autograd.inplace import check_writable
from engine.autograd.versions import check_input, guard, guard_again
from engine.backends.cpu import relayout
from engine.core import dtypes
from engine.core.checks import broadcast_shapes, names_all, numel
from engine.core.grad_mode import mode
from engine.core.layouts import copy_preserved
from engine.dispatch import composite, derivative, op, samples
from engine.dispatch.runtime import check_overlap
from engine.ops.copying import copy_, fill_, move_array, number_for
from engine.ops.from_data import array_of
from engine.ops.gathering import accumulate_rows, all_below, places_of, rows_added, unflattened
from engine.ops.parts import add_indexed
from engine.ops.shape import alias, basic_index, item_index, unsqueeze
from engine.tensor import Tensor, wrap

_FULL = slice(None)
_NONE = type(None)
_BASIC = frozenset([int, slice, _NONE, type(Ellipsis)])
_LONG = np.dtype(np.int64)
_MANY = 32  # places whose rows may be many elements


# --- basic


@op(
    adds=add_indexed,
    view=True,
    public=False,
    method=False,
    node={
        "index[-1] is None or index[-1] is ... and index[-2] is None": "UnsqueezeBackward0",
        "": "SelectBackward0",
    },
    not_tensors=("index",),
)
@derivative(input=lambda grad, input_shape, index: basic_backward(grad, input_shape, index))
@samples(lambda t: [(t(3, 4), (slice(None), 2, ...))])
def select_index(xp, input, index):
    """As `basic_index`, for ints among full slices.  input (*) -> (*)."""
    return input[index]


def basic_backward(grad, shape, index):
    """Zeros with the gradient at `index`."""
    from engine.ops.shape import place

    return place(grad, shape, index)


def _basic(self: Tensor, index: tuple) -> Tensor:
    ints, partial = False, False
    for item in index:
        if item.__class__ is int:
            ints = True
        elif item.__class__ is slice:
            if item.step is not None:
                _check_slice(item)
            partial = partial or item != _FULL
    if Ellipsis not in index:
        index = (*index, ...)
    try:
        return select_index(self, index) if ints and not partial else basic_index(self, index)
    except IndexError as error:
        raise _index_error(error, self._array, index) from None


def _check_slice(item: slice) -> None:
    step = item.step
    if step is not None and step <= 0:
        if step == 0:
            raise ValueError("slice step cannot be zero")
        raise ValueError("step must be greater than zero")


def _index_error(error: IndexError, array: Any, index: tuple) -> Exception:
    text = str(error)
    if not array.ndim and len(index) == 1:
        if index[0].__class__ is slice:
            return IndexError("slice() cannot be applied to a 0-dim tensor.")
        return IndexError(
            "invalid index of a 0-dim tensor. Use `tensor.item()` in Python or `tensor.item<T>()` in C++ to convert a "
            "0-dim tensor to a number"
        )
    if text.startswith("too many indices"):
        return IndexError(f"too many indices for tensor of dimension {array.ndim}")
    if "only have a single ellipsis" in text:
        return IndexError(text)
    used = sum(i.__class__ in (int, slice) for i in index)
    dim = place = 0
    for item in index:
        if item is Ellipsis:
            dim, place = dim + array.ndim - used, place + array.ndim - used
        elif item is not None:
            n = array.shape[dim]
            if item.__class__ is int and not -n <= item < n:
                return IndexError(f"index {item} is out of bounds for dimension {place} with size {n}")
            dim, place = dim + 1, place + 1
        else:
            place += 1
    return IndexError(text)


def getitem(self: Tensor, index: Any) -> Tensor:
    """`x[index]`: a view for a basic index, else a copy.  (*) -> (*)."""
    kind = index.__class__
    if kind is int:
        return item_index(self, index)
    if kind is slice:
        step = index.step
        if step is not None:
            _check_slice(index)
        if not self._array.ndim:
            raise IndexError("slice() cannot be applied to a 0-dim tensor.")
        return basic_index(self, (index, ...))
    if kind is tuple:
        for item in index:
            if item.__class__ not in _BASIC:
                break
        else:
            return _basic(self, index) if index else alias(self)
    elif isinstance(index, Tensor):
        values = index._array
        if values.ndim and values.dtype is _LONG and type(values) is type(self._array) and self._array.ndim:
            version = index._vc[-1 if self._requires_grad and mode.enabled else 0]
            return _indexed(self, Indices((values,), ((index, version),)))
    elif index is None:
        return unsqueeze(self, 0)
    elif index is Ellipsis:
        return alias(self)
    basic, advanced = parse(self._array, index)
    if basic is not None:
        self = _basic(self, basic) if basic else alias(self)
    if advanced is None:
        return self
    result = _indexed(self, advanced)
    if result._requires_grad:
        masks = [t for t in (index if kind is tuple else (index,)) if isinstance(t, Tensor) and _is_mask(t)]
        if masks:
            guard_again(result, *masks)
    return result


# --- advanced


def _indexed(self: Tensor, indices: Indices) -> Tensor:
    """The elements at `indices`, which the node saves."""
    result = index_tensors(self, indices)
    return guard(result, *[t for t, _ in indices.tensors]) if result._requires_grad else result


def _is_mask(index: Tensor) -> bool:
    return index._array.ndim > 0 and index._array.dtype.name in ("bool", "uint8")


class Indices:
    """Integer arrays and full slices, one for each leading dim; the tensors they came from, with their versions.

    unique: no element is named twice (a mask).  flat: the same as places where those dims are one, if they are known.
    """

    __slots__ = ("arrays", "flat", "tensors", "unique")

    def __init__(self, arrays: tuple, tensors: tuple = (), unique: bool = False, flat: Any = None) -> None:
        self.arrays, self.tensors, self.unique, self.flat = arrays, tensors, unique, flat

    def __repr__(self) -> str:
        return f"Indices({', '.join(':' if a.__class__ is slice else str(a.tolist()) for a in self.arrays)})"

    def checked(self) -> Indices:
        """Itself; the error of a modified saved tensor when an index tensor was written to since."""
        for tensor, version in self.tensors:
            if tensor._vc[0] != version:
                check_input(tensor, version)
        return self


def _is_tuple_like(index: Any) -> bool:
    """Return whether torch still takes a sequence for a tuple of indices."""
    if not isinstance(index, Sequence) or (isinstance(index, str) and len(index) == 0) or len(index) >= 32:
        return False
    return any(x is None or x is Ellipsis or isinstance(x, Tensor | Sequence | slice | np.ndarray) for x in index)


def parse(array: Any, index: Any) -> tuple[tuple | None, Indices | None]:
    """The basic part of an index (None if it does nothing) and its advanced part (None if there is none)."""
    if not isinstance(index, tuple):
        if _is_tuple_like(index):
            warnings.warn(
                "Using a non-tuple sequence for multidimensional indexing is deprecated and will be changed in "
                "pytorch 2.9; use x[tuple(seq)] instead of x[seq]. In pytorch 2.9 this will be interpreted as tensor "
                "index, x[torch.tensor(seq)], which will result either in an error or a different result",
                stacklevel=3,
            )
            index = tuple(index)
        else:
            index = (index,)
    items = [_item(i, array) for i in index]
    used = 0
    for kind, value in items:
        used += value.ndim if kind == "mask" else kind in ("int", "slice", "index")
    if used > array.ndim:
        if not array.ndim and len(items) == 1 and items[0][0] in ("int", "slice"):
            raise _index_error(IndexError("too many indices"), array, (items[0][1],))
        raise IndexError(f"too many indices for tensor of dimension {array.ndim}")
    basic: list[Any] = []
    found: dict[int, Any] = {}  # result dim -> index array
    tensors: list[Any] = []
    flat: Any = None
    dim = place = 0  # of the input, of the result of the basic part
    for kind, value in items:
        if kind == "int":
            n = array.shape[dim]
            if not -n <= value < n:
                raise IndexError(f"index {value} is out of bounds for dimension {dim} with size {n}")
            basic.append(value)
            dim += 1
        elif kind == "slice":
            basic.append(value)
            dim, place = dim + 1, place + 1
        elif kind == "none":
            basic.append(None)
            place += 1
        elif kind == "ellipsis":
            rest = array.ndim - used if Ellipsis not in basic else 0
            if Ellipsis not in basic:
                basic.append(...)
            dim, place = dim + rest, place + rest
        elif kind == "flag":
            basic.append(None)
            found[place] = backends.xp_of(array).zeros(int(value), _LONG)
            place += 1
        elif kind == "mask":
            shape = value.shape
            if array.shape[dim : dim + len(shape)] != shape:
                raise IndexError(
                    f"The shape of the mask {list(shape)} at index {_mismatch(shape, array.shape[dim:])} does not "
                    f"match the shape of the indexed tensor {list(array.shape)} at index "
                    f"{dim + _mismatch(shape, array.shape[dim:])}"
                )
            if value.__class__ is not np.ndarray or not value.size:
                parts = value.nonzero()
            elif len(items) == 1 and array.__class__ is np.ndarray:
                flat = np.flatnonzero(value)
                parts = unflattened(flat, shape)
            else:
                parts = places_of(np, value)
            for part in parts:
                found[place] = part
                basic.append(_FULL)
                place += 1
            dim += len(shape)
        else:
            found[place] = value[0]
            if value[1] is not None:
                tensors.append((value[1], value[1]._vc[0]))
            basic.append(_FULL)
            dim, place = dim + 1, place + 1
    plain = all(b is Ellipsis or (b.__class__ is slice and b == _FULL) for b in basic)
    if not found:
        return tuple(basic), None
    arrays = tuple(found.get(d, _FULL) for d in range(max(found) + 1))
    masks = [kind for kind, _ in items if kind in ("mask", "index", "flag")]
    return None if plain else tuple(basic), Indices(arrays, tuple(tensors), masks == ["mask"], flat)


def _mismatch(shape: tuple, against: tuple) -> int:
    for d, n in enumerate(shape):
        if d >= len(against) or against[d] != n:
            return d
    return 0


def _item(item: Any, array: Any) -> tuple[str, Any]:
    """One entry of an index by kind: int, slice, none, ellipsis, flag (a bool), mask, index."""
    kind = item.__class__
    if kind is int:
        return "int", item
    if kind is slice:
        _check_slice(item)
        return "slice", item
    if item is None:
        return "none", None
    if item is Ellipsis:
        return "ellipsis", item
    if kind is bool:
        return "flag", item
    source = None
    if isinstance(item, Tensor):
        source, values = item, item._array
        if not values.ndim and values.dtype.kind in "iu" and values.dtype.itemsize > 1:
            return "int", int(values)
        if not values.ndim and values.dtype.kind == "i":
            return "int", int(values)
    elif isinstance(item, np.integer):
        return "int", int(item)
    elif isinstance(item, np.ndarray):
        values = item
        if values.dtype.kind in "iu" and values.dtype.itemsize > 1 and not values.ndim:
            return "int", int(values)
    elif isinstance(item, Sequence) and not isinstance(item, str):
        values = array_of(list(item))
        if values.dtype.kind != "b":
            values = values.astype(_LONG)
    elif isinstance(item, str):
        raise TypeError("new(): invalid data type 'str'")
    elif hasattr(item, "__index__") and not isinstance(item, np.bool_):
        return "int", item.__index__()
    else:
        raise IndexError(
            "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices (got "
            f"{_type_name(item)})"
        )
    if type(values) is not type(array) and (values.dtype.kind != "b" or backends.of_array(array).kind != "meta"):
        values = move_array(values, backends.of_array(array).device_of(array))
    if values.dtype.kind == "b" or values.dtype.name == "uint8":
        if values.dtype.kind != "b" and values.ndim:
            warnings.warn(
                "indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool instead.",
                stacklevel=4,
            )
        values = values != 0 if values.dtype.kind != "b" else values
        if not values.ndim:
            return "flag", bool(values)
        return "mask", values
    if values.dtype.name not in ("int64", "int32"):
        raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
    return "index", (values, source)


def _type_name(item: Any) -> str:
    kind = type(item)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__.rstrip('_')}"


def _refuse(error: IndexError, array: Any, arrays: tuple) -> Exception:
    """torch's sentence for a failed advanced index."""
    shapes = [a.shape for a in arrays if a.__class__ is not slice]
    try:
        broadcast_shapes(*shapes)
    except RuntimeError:
        shown = ", ".join(str(list(s)) for s in shapes)
        return IndexError(f"shape mismatch: indexing tensors could not be broadcast together with shapes {shown}")
    place = -1  # torch counts the indexed dims only
    for d, a in enumerate(arrays):
        place += a.__class__ is not slice
        if a.__class__ is not slice and a.size:
            n = array.shape[d]
            bad = a[(a >= n) | (a < -n)]
            if bad.size and not n:
                return IndexError("index is out of bounds for dimension with size 0")
            if bad.size:
                return IndexError(
                    f"index {int(bad.reshape(-1)[0])} is out of bounds for dimension {place} with size {n}"
                )
    return error


def take_indices(xp: Any, array: Any, arrays: tuple) -> Any:
    """array[arrays] as a fresh array."""
    try:
        head = len(arrays) - 1
        if all(a is _FULL for a in arrays[:head]) and arrays[head].ndim:
            many = arrays[head].size >= _MANY and type(array) is type(arrays[head]) is np.ndarray
            if many and all_below(arrays[head], array.shape[head]):
                return relayout.taken(array, arrays[head], head)
            return array.take(arrays[head], axis=head)
        result = array[arrays]
        return result if result.flags.c_contiguous else xp.ascontiguousarray(result)
    except IndexError as error:
        raise _refuse(error, array, arrays) from None


@op(public=False, method=False, node="IndexBackward0", not_tensors=("indices",), out=False)
@derivative(input=lambda grad, input_shape, indices: _index_gradient(grad, input_shape, indices.checked()))
@samples(
    lambda t: [
        (t(3, 4), Indices((t.of([0, 2, 0])._array,))),
        (t(3, 4), Indices((_FULL, t.of([[1], [1]])._array))),
        (t(2, 3, 4), Indices((t.of([0, 1])._array, _FULL, t.of([[3], [0]])._array))),
    ]
)
def index_tensors(xp, input, indices):
    """Elements picked by integer arrays.  input (*) -> (*)."""
    if indices.flat is not None and input.__class__ is np.ndarray and input.flags.c_contiguous:
        return _as_one(input, indices).take(indices.flat, axis=0)
    return take_indices(xp, input, _moved(input, indices.arrays))


def _as_one(array: Any, indices: Indices) -> Any:
    """The array with the dims that are indexed as one.  (*a, *b) -> (n, *b)."""
    dims = len(indices.arrays)
    return array.reshape(numel(array.shape[:dims]), *array.shape[dims:])


def _index_gradient(grad: Tensor, shape: Any, indices: Indices) -> Tensor:
    found = None if mode.enabled or indices.unique else rows_added(grad, shape, indices.arrays)
    return index_backward(grad, shape, indices) if found is None else found


def _moved(like: Any, arrays: tuple) -> tuple:
    """Index arrays on the device of `like`."""
    kind = type(like)
    for a in arrays:
        if a.__class__ is not slice and a.__class__ is not kind:
            where = backends.of_array(like).device_of(like)
            return tuple(i if i.__class__ is slice else move_array(i, where) for i in arrays)
    return arrays


@op(public=False, method=False, not_tensors=("indices",), out=False)
@derivative(grad_output=lambda grad, indices: index_tensors(grad, indices.checked()))
@samples(
    lambda t: [
        (t(3, 4), (3, 4), Indices((t.of([0, 2, 0])._array,))),
        (t(3, 2, 1), (3, 4), Indices((_FULL, t.of([[1], [1]])._array))),
    ]
)
def index_backward(xp, grad_output, shape, indices):
    """Zeros with `grad_output` added at the indices.  grad_output (*) -> (*shape)."""
    result = xp.zeros(shape, grad_output.dtype)
    arrays = _moved(grad_output, indices.arrays)
    if indices.flat is not None and result.__class__ is np.ndarray:
        _as_one(result, indices)[indices.flat] = grad_output
    elif indices.unique:
        result[arrays] = grad_output
    else:
        accumulate_at(xp, result, arrays, grad_output)
    return result


def accumulate_at(xp: Any, result: Any, arrays: tuple, values: Any) -> None:
    """result[arrays] += values, counting repeated cells.  result contiguous."""
    shape = result.shape
    head = [a for a in arrays if a.__class__ is not slice]
    if len(head) == len(arrays):  # leading dims are indexed: whole rows are added
        index = xp.zeros((), _LONG)
        for a, n in zip(head, shape):
            index = index * n + xp.where(a < 0, a + n, a)
        width = numel(shape[len(head) :])
        values = xp.broadcast_to(values, (*index.shape, *shape[len(head) :]))
        if width and index.size:
            target = result.reshape(-1, width)
            accumulate_rows(xp, target, index.reshape(-1), values.reshape(-1, width))
        return
    cells = xp.arange(result.size).reshape(shape)[arrays]
    values = xp.broadcast_to(values, cells.shape).astype(result.dtype, copy=False)
    xp.add.at(result.reshape(-1), cells.reshape(-1), values.reshape(-1))


@op(
    inplace=True,
    expanded="index_put_",
    public=False,
    method=False,
    node="IndexPutBackward0",
    not_tensors=("indices",),
    tensors=("values",),
    out=False,
)
@derivative(
    input=lambda grad, indices, accumulate: grad if accumulate else zero_at(grad, indices.checked()),
    values=lambda grad, indices, values_shape: index_tensors(grad, indices.checked()).sum_to_size(values_shape),
)
@samples(
    lambda t: [
        (t(3, 4), Indices((t.of([0, 2])._array,)), t(4)),
        (t(3, 4), Indices((t.of([0, 0])._array,)), t(2, 1), True),
        (t(3, 4), Indices((_FULL, t.of([1, 2])._array)), t(3, 2)),
    ]
)
def put_indices(xp, input, indices, values, accumulate=False, *, out=None):
    """`values` stored (or added) where integer arrays say.  input (*), values (*b) -> (*)."""
    if values.dtype != input.dtype:
        have, want = (dtypes.scalar_name(dtypes.from_numpy(a.dtype)) for a in (input, values))
        if values.ndim:
            spot = input[_moved(input, indices.arrays)].shape
            if not _fits(values.shape, spot):
                raise _shape_mismatch(values.shape, spot)
            raise RuntimeError(
                f"Index put requires the source and destination dtypes match, got {have} for the destination and "
                f"{want} for the source."
            )
        values = values.astype(input.dtype)
    arrays = _moved(input, indices.arrays)
    result = copy_preserved(xp, input) if out is None else out
    try:
        if not accumulate:
            result[arrays] = values
        elif result.flags.c_contiguous:
            accumulate_at(xp, result, arrays, values)
        else:
            dense = xp.ascontiguousarray(result)
            accumulate_at(xp, dense, arrays, values)
            result[...] = dense
    except IndexError as error:
        raise _refuse(error, input, arrays) from None
    except ValueError:
        raise _shape_mismatch(values.shape, input[arrays].shape) from None
    return result


def _fits(shape: tuple[int, ...], spot: tuple[int, ...]) -> bool:
    """Return whether values of `shape` broadcast to the shape `spot`."""
    return len(shape) <= len(spot) and all(n in (1, m) for n, m in zip(shape[::-1], spot[::-1]))


def _shape_mismatch(shape: tuple[int, ...], spot: tuple[int, ...]) -> RuntimeError:
    return RuntimeError(
        f"shape mismatch: value tensor of shape {list(shape)} cannot be broadcast to indexing result of shape "
        f"{list(spot)}"
    )


put_indices_ = put_indices.op.inplace_function


def zero_at(grad, indices):
    """`grad` with zeros at the indices."""
    xp = backends.xp_of(grad._array)
    return put_indices(grad, indices, wrap(xp.zeros((), grad._array.dtype)))


def _indices_of(array: Any, indices: Any) -> Indices:
    """The `indices=` of index_put: a sequence of Tensors and None."""
    if isinstance(indices, Tensor) or not isinstance(indices, Sequence):
        raise TypeError(
            f"index_put_(): argument 'indices' (position 1) must be tuple of Tensors, not {type(indices).__name__}"
        )
    index = tuple(_FULL if i is None else i for i in indices)
    items = [i if i is _FULL else i.unsqueeze(0) if isinstance(i, Tensor) and not i._array.ndim else i for i in index]
    _, found = parse(array, tuple(items))
    if found is None:
        raise IndexError("at least one index must be given")
    return found


@composite(autocast={"cuda": "widest"}, recorded="size")
def index_put(input: Tensor, indices, values: Tensor, accumulate: bool = False):
    """`values` stored (accumulate: added) at the places a tuple of index tensors names.

    input (*), values (*b) -> (*).
    """
    places = _indices_of(input._array, indices)
    save = guard_again if values._requires_grad or not accumulate else guard
    return save(put_indices(input, places, values, accumulate), *[i for i in indices if isinstance(i, Tensor)])


@composite(public=True, recorded="size")
def index_put_(input: Tensor, indices, values: Tensor, accumulate: bool = False):
    """In place: `index_put`.  input (*), values (*b) -> (*)."""
    if accumulate:
        check_writable(input)  # a sum in a cell of an expanded tensor depends on the order of the writes
    return put_indices_(input, _indices_of(input._array, indices), values, accumulate)


# --- assignment


def setitem(self: Tensor, index: Any, value: Any) -> None:
    """`x[index] = value`: `value` (a number or a Tensor) broadcast to the place that the index names."""
    kind = index.__class__
    advanced = None
    if kind is tuple:
        for item in index:
            if item.__class__ not in _BASIC:
                index, advanced = _target(self, index)
                break
    elif kind not in _BASIC:
        index, advanced = _target(self, index)
    else:
        index = (index,)
    is_tensor = isinstance(value, Tensor)
    if not is_tensor and not isinstance(value, int | float | complex | np.number | np.bool_):
        raise TypeError(f"can't assign a {_type_name(value)} to a {self.type()}")
    if advanced is _UNKNOWN:
        self._vc[0] += 1
        return
    if advanced is None:
        if index:
            for item in index:
                if item.__class__ is slice and item.step is not None:
                    _check_slice(item)
        (_set_basic if isinstance(self._array, np.ndarray) else _set_there)(self, index, value, is_tensor)
        return
    target = self if index is None else _basic(self, index)
    if is_tensor:
        if target._array.dtype.kind == "b" or value._array.ndim == 0:
            value = value if value.dtype is target.dtype else value.to(target.dtype)
        shape = value._array.shape
        if shape and shape[0] == 1:
            lead = next((i for i, n in enumerate(shape) if n != 1), len(shape))
            value = value.reshape(shape[lead:])
        if type(value._array) is not type(target._array) and not value._array.ndim:
            value = value.to(target.device)
        put_indices_(target, advanced, value)
        return
    array = target._array
    number = number_for(value.item() if isinstance(value, np.generic) else value, array.dtype)
    if (target._requires_grad and (mode.enabled or target.is_inference())) or 0 in array.strides:
        put_indices_(target, advanced, wrap(backends.xp_of(array).asarray(number, array.dtype)))
        return
    try:
        array[advanced.arrays] = number
    except IndexError as error:
        raise _refuse(error, array, advanced.arrays) from None
    target._vc[0] += 1


_UNKNOWN: Any = object()


def _target(self: Tensor, index: Any) -> tuple[Any, Any]:
    """The parts of an index that is written to; (None, _UNKNOWN) for a mask without values, of the device meta."""
    try:
        return parse(self._array, index)
    except NotImplementedError:
        return None, _UNKNOWN


def _set_basic(self: Tensor, index: tuple, value: Any, is_tensor: bool) -> None:
    array = self._array
    if self._vc.__class__ is not list:
        check_writable(self)
    recorded = mode.enabled and (
        (self._requires_grad and requires_grad_of(self))
        or (is_tensor and value._requires_grad and requires_grad_of(value) and array.dtype.kind in "fcVW")
    )
    if recorded or 0 in array.strides:
        target = self
        if not names_all(index, array.shape):
            target = getitem(self, index[0] if len(index) == 1 else index)
        if not is_tensor:
            if 0 in target._array.strides:  # fill_ alone would write it
                check_writable(target)
            if target is self:  # torch makes a tensor of the number
                value = wrap(backends.xp_of(array).asarray(number_for(value, array.dtype), array.dtype))
            (fill_ if array.ndim or target is not self else copy_)(target, value)
            return
        copy_(target, _expandable(value, target._array))
        return
    try:
        if not is_tensor:
            array[index] = number_for(value.item() if isinstance(value, np.generic) else value, array.dtype)
        else:
            values = value._array
            if value._vc is self._vc:
                spot = array[(*index, ...) if Ellipsis not in index else index]
                if values.shape == spot.shape:
                    check_overlap(spot, values)
            if values.dtype is array.dtype and type(values) is type(array):
                array[index] = values
            else:
                spot = array[(*index, ...) if Ellipsis not in index else index]
                copy_(wrap(spot), _expandable(value, spot))
    except IndexError as error:
        raise _index_error(error, array, index) from None
    except ValueError:  # leading dims of size 1, which numpy keeps, or what does not fit
        spot = array[(*index, ...) if Ellipsis not in index else index]
        copy_(wrap(spot), _expandable(value, spot))
    self._vc[0] += 1


_set_there = backends.follows(_set_basic)


def _expandable(value: Tensor, spot: Any) -> Tensor:
    """`value` without leading dims of size 1; torch's error when it does not broadcast to `spot`."""
    shape = value._array.shape
    if shape != spot.shape and shape and shape[0] == 1:
        lead = next((i for i, n in enumerate(shape) if n != 1), len(shape))
        value = value.reshape(shape[lead:])
        shape = shape[lead:]
    if shape != spot.shape:
        value.expand(spot.shape)
    return value


Tensor.__getitem__ = getitem
Tensor.__setitem__ = setitem
