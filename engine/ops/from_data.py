"""Tensors from Python data, numpy, buffers and other array libraries."""

from __future__ import annotations

import builtins
import operator
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from engine import backends
from engine.core import dtypes
from engine.core.device import device
from engine.core.legacy_constructor import listed
from engine.core.storage import UntypedStorage
from engine.core.tensor_messages import outside, warn_once
from engine.dispatch import composite
from engine.ops.copying import cast_array, converted, copy_in_format, move_array, number_for
from engine.ops.creation import _default_device, finish, numpy_dtype, place_of
from engine.tensor import Tensor, wrap

# --- from data

_COPY_WARNING = (
    "To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() or "
    "sourceTensor.detach().clone().requires_grad_(True), rather than {}."
)
_NUMBERS = {builtins.bool, builtins.int, builtins.float, builtins.complex}


def array_of(data: Any, dtype: Any = None, copy: builtins.bool = True) -> np.ndarray:
    """Numbers, nested sequences, numpy arrays or one-element Tensors as a host array, typed as torch does."""
    kind = type(data)
    if kind is list or kind is tuple:
        return _of_sequence(data, dtype)
    if kind in _NUMBERS:
        target = dtypes.to_numpy(dtypes.of_number(data) if dtype is None else dtype)
        if kind is builtins.int and target.kind in "iu":
            return np.array(_checked_int(data, target), target)
        if kind is builtins.complex and target.kind not in "cW":
            raise TypeError("must be real number, not complex")
        if target.kind not in "fV":
            return np.array(number_for(data, target, {}), target)
        return _quietly(data, target)
    if isinstance(data, np.ndarray):
        array = data
        found = dtypes.from_numpy(array.dtype)
        if dtype is not None and dtype is not found:
            return cast_array(np, array, dtypes.to_numpy(dtype))
        if not array.dtype.isnative:
            return array.astype(array.dtype.newbyteorder("="))
        return array.copy("K") if copy else array
    if isinstance(data, np.generic):
        array = np.array(data)
        dtypes.from_numpy(array.dtype)
        return array if dtype is None else cast_array(np, array, dtypes.to_numpy(dtype))
    if isinstance(data, UntypedStorage):
        return np.array(data.tolist(), dtypes.to_numpy(dtype or getattr(data, "dtype", dtypes.uint8)))
    if hasattr(data, "__array_interface__") and not isinstance(data, list | tuple):
        return array_of(np.asarray(data), dtype, copy)
    if isinstance(data, str | bytes):
        raise TypeError(f"new(): invalid data type '{kind.__name__}'")
    if isinstance(data, dict | set) or (not isinstance(data, Sequence) and not hasattr(data, "__len__")):
        if hasattr(data, "__index__"):
            return array_of(operator.index(data), dtype)
        if hasattr(data, "__float__"):
            return array_of(builtins.float(data), dtype)
        if dtype is None:
            raise RuntimeError(f"Could not infer dtype of {kind.__name__}")
        raise TypeError(f"new(): invalid data type '{kind.__name__}'")
    if not isinstance(data, list | tuple | builtins.range):
        data = listed(data)
    return _of_sequence(data, dtype)


def _quietly(data: Any, target: Any) -> np.ndarray:
    """np.array(data, target), with infinity for what is too large even where the user made warnings errors."""
    try:
        return np.array(data, target)
    except RuntimeWarning:
        with np.errstate(all="ignore"):
            return np.array(data, target)


def _checked_int(value: builtins.int, target: Any) -> builtins.int:
    if not -(2**63) <= value < 2**63 and target.name != "uint64":
        raise ValueError("Overflow when unpacking long long")
    return number_for(value, target, {})


def _of_sequence(data: Any, dtype: Any) -> np.ndarray:
    types = _leaf_types(data, 0)
    if types <= _NUMBERS:
        if dtype is None:
            found = (
                dtypes.default_complex()
                if builtins.complex in types
                else dtypes.get_default_dtype()
                if builtins.float in types or not types
                else dtypes.int64
                if builtins.int in types
                else dtypes.bool
            )
        else:
            found = dtype
        target = dtypes.to_numpy(found)
        try:
            if found.category == dtypes.INTEGER and (builtins.float in types):
                return _whole(np.array(data, np.float64), found)
            return _quietly(data, target)
        except OverflowError:
            for value in _leaves(data):
                _checked_int(value, target)
            return np.array(data, np.int64).astype(target)  # negative numbers wrap around in unsigned types
        except (ValueError, TypeError):
            _refuse_ragged(data, 0, _lengths(data))
            if builtins.complex in types and target.kind not in "cW":
                raise TypeError("must be real number, not complex") from None
            raise
    if builtins.str in types or types & {builtins.bytes, type(None), dict, set}:
        bad = next(t for t in types if t in (builtins.str, builtins.bytes, type(None), dict, set))
        if dtype is None and bad is not builtins.str:
            raise RuntimeError(f"Could not infer dtype of {bad.__name__}")
        if dtype is None and isinstance(next(_leaves(data)), builtins.str):
            raise ValueError("too many dimensions 'str'")
        raise TypeError(f"new(): invalid data type '{bad.__name__}'")
    if np.ndarray in types:
        warn_once(
            "list of arrays",
            "Creating a tensor from a list of numpy.ndarrays is extremely slow. Please consider converting the list to "
            "a single numpy.ndarray with numpy.array() before converting to a tensor.",
        )
    return _of_objects(data, dtype)


def _whole(values: np.ndarray, dtype: dtypes.dtype) -> np.ndarray:
    """Floating point numbers cut to a whole type; RuntimeError for those that it does not have."""
    limits = dtypes.iinfo(dtype)
    if ((values < limits.min) | (values > limits.max)).any():
        raise RuntimeError(f"value cannot be converted to type {dtype.name} without overflow")
    return values.astype(dtypes.to_numpy(dtype))


def _holds_itself(data: Any, above: tuple[builtins.int, ...] = ()) -> builtins.bool:
    """Return whether a list is among its own parts."""
    if not isinstance(data, list | tuple):
        return False
    return id(data) in above or any(_holds_itself(part, (*above, id(data))) for part in data)


def _leaves(data: Any) -> Any:
    for x in data:
        if isinstance(x, Sequence) and not isinstance(x, builtins.str | builtins.bytes):
            yield from _leaves(x)
        else:
            yield x


def _leaf_types(data: Any, depth: builtins.int) -> set[type]:
    types = set(map(type, data))
    if depth > 64:
        if _holds_itself(data):
            raise TypeError("new(): self-referential lists are incompatible")
        raise ValueError("too many dimensions")
    for nested in (list, tuple, builtins.range):
        if nested in types:
            types.discard(nested)
            for x in data:
                if type(x) is nested:
                    types |= _leaf_types(x, depth + 1)
    return types


def _lengths(data: Any) -> list[builtins.int]:
    lengths = []
    while isinstance(data, Sequence) and not isinstance(data, str):
        lengths.append(len(data))
        if not data:
            break
        data = data[0]
    return lengths


def _refuse_ragged(data: Any, dim: builtins.int, lengths: list[builtins.int]) -> None:
    if dim == len(lengths):
        if isinstance(data, Sequence):
            raise TypeError("'list' object cannot be interpreted as an integer")
        return
    if not isinstance(data, Sequence):
        raise TypeError("not a sequence")
    if len(data) != lengths[dim]:
        raise ValueError(f"expected sequence of length {lengths[dim]} at dim {dim} (got {len(data)})")
    for x in data:
        _refuse_ragged(x, dim + 1, lengths)


def _of_objects(data: Any, dtype: Any) -> np.ndarray:
    """Sequences whose leaves are Tensors, arrays or numpy scalars."""
    found: list[dtypes.dtype] = []

    def plain(x: Any) -> Any:
        if isinstance(x, Tensor):
            if x._array.size != 1:
                if x._array.dtype.kind in "iu":
                    raise TypeError("only integer tensors of a single element can be converted to an index")
                raise ValueError("only one element tensors can be converted to Python scalars")
            found.append(x.dtype)
            return x.item()
        if isinstance(x, np.ndarray):
            found.append(dtypes.from_numpy(x.dtype))
            return x.tolist()
        if isinstance(x, np.generic):
            found.append(dtypes.from_numpy(x.dtype))
            return x.item()
        if isinstance(x, Sequence) and not isinstance(x, str):
            return [plain(y) for y in x]
        if type(x) in _NUMBERS:
            found.append(dtypes.of_number(x))
            return x
        return array_of(x, None).tolist()

    values = plain(list(data))
    if dtype is None:
        dtype = found[0] if found else dtypes.get_default_dtype()
        for d in found[1:]:
            dtype = dtypes.promote_types(dtype, d)
    return _of_sequence(values, dtype)


@composite(method=False)
def tensor(data, *, dtype=None, device=None, requires_grad=False, pin_memory=False, names=None, _warn=True):
    """A leaf with a copy of `data`.  -> shape of data.

    Args:
        data: Numbers, nested sequences, numpy arrays, one Tensor.
        dtype: By default int64 of integers, the default dtype of floats, bool of bools.
        device: By default the default device.
        requires_grad: Whether operations on it are recorded.
        pin_memory: Put it where copies to a GPU are asynchronous.

    Returns:
        The Tensor.

    Raises:
        ValueError: ragged sequences.
        RuntimeError: objects without a dtype.
        TypeError: text.
    """
    if isinstance(data, Tensor):
        if _warn:
            warnings.warn(_COPY_WARNING.format("torch.tensor(sourceTensor)"), stacklevel=outside())
        xp = backends.xp_of(data._array)
        if dtype is None or dtype is data.dtype:
            array = copy_in_format(xp, data._array, None)
        else:
            array = cast_array(xp, data._array, dtypes.to_numpy(dtype))
        if device is not None:
            array = move_array(array, place_of(device)[1])
        return finish(array, requires_grad)
    if dtype is not None and not isinstance(dtype, dtypes.dtype):
        dtype = dtypes.from_numpy(numpy_dtype(dtype))
    array = array_of(data, dtype)
    if device is not None or _default_device[0] is not None:
        array = move_array(array, place_of(device)[1])
    return finish(array, requires_grad) if requires_grad else wrap(array)


@composite(method=False)
def as_tensor(data, dtype=None, device=None):
    """`data` as a Tensor, without copying where that is possible (Tensors, numpy arrays).  -> shape of data."""
    dtype = dtypes.of_type(dtype)
    if isinstance(data, Tensor):
        return converted(data, dtype, None if device is None else place_of(device)[1])
    if type(data) not in (list, tuple, *_NUMBERS) and hasattr(data, "__dlpack__") and not isinstance(data, np.ndarray):
        return converted(from_dlpack(data), dtype, None if device is None else place_of(device)[1])
    if isinstance(data, np.ndarray):
        _check_strides(data)
    array = array_of(data, dtype, copy=False)
    if device is not None or _default_device[0] is not None:
        array = move_array(array, place_of(device)[1])
    return wrap(array)


@composite(method=False)
def asarray(obj, *, dtype=None, device=None, copy=None, requires_grad=None):
    """`obj` as a Tensor; copy=None copies only if it must, False never (ValueError), True always.  -> shape of obj."""
    source, dtype = obj, dtypes.of_type(dtype)
    if isinstance(obj, bytes | bytearray | memoryview):
        result = frombuffer(obj, dtype=dtype or dtypes.get_default_dtype())
    elif isinstance(obj, UntypedStorage):
        wanted = dtype or getattr(obj, "dtype", dtypes.uint8)
        result = source = wrap(obj._flat().view(dtypes.to_numpy(wanted)))
        if device is not None:
            result = result.to(device)
    else:
        result = as_tensor(obj, dtype=dtype, device=device)
    shares = (
        result is source
        or (isinstance(source, np.ndarray) and np.shares_memory(result._array, source))
        or (isinstance(source, Tensor) and result._array is source._array)
    )
    if copy and (shares or isinstance(source, bytes | bytearray | memoryview)):
        result = result.clone()
    elif copy is False and not shares and not isinstance(source, bytes | bytearray | memoryview):
        raise ValueError("can't alias arbitrary sequence into a tensor.")
    if isinstance(source, Tensor) and requires_grad is None and result.requires_grad:
        warnings.warn(
            "torch.asarray: unspecified requires_grad now defaults to obj.requires_grad; pass requires_grad to choose",
            stacklevel=2,
        )
    if requires_grad is False and result.requires_grad:
        result = result.detach()
    if requires_grad and not result.requires_grad:
        result = (result if result is not source else result.detach()).requires_grad_()
    return result


def _check_strides(array: np.ndarray) -> None:
    for s, n in zip(array.strides, array.shape):
        if s < 0 and n > 1:
            raise ValueError(
                "At least one stride in the given numpy array is negative, and tensors with negative strides are not "
                "currently supported. (You can probably work around this by making a copy of your array  with "
                "array.copy().) "
            )
        if s % array.dtype.itemsize and array.size:
            raise ValueError(
                "given numpy array strides not a multiple of the element byte size. Copy the numpy array to reallocate "
                "the memory."
            )


@composite(method=False)
def from_numpy(ndarray):
    """A Tensor that shares the memory of a numpy array.  ndarray (*) -> (*).

    Args:
        ndarray: The array; writes to it are seen by the Tensor, and the other way round.

    Returns:
        The Tensor.

    Raises:
        TypeError: other objects, and dtypes that torch lacks.
        ValueError: a foreign byte order, or negative strides.
    """
    if not isinstance(ndarray, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(ndarray).__name__})")
    if not ndarray.dtype.isnative:
        raise ValueError(
            "given numpy array has byte order different from the native byte order. Conversion between byte orders is "
            "currently not supported."
        )
    dtypes.from_numpy(ndarray.dtype)
    _check_strides(ndarray)
    if not ndarray.flags.writeable:
        warnings.warn(
            "The given NumPy array is not writable, and PyTorch does not support non-writable tensors. This means "
            "writing to this tensor will result in undefined behavior. You may want to copy the array to protect its "
            "data or make it writable before converting it to a tensor. This type of warning will be suppressed for "
            "the rest of this program.",
            stacklevel=2,
        )
    return wrap(ndarray if type(ndarray) is np.ndarray else ndarray.view(np.ndarray))


@composite(method=False)
def from_file(
    filename: str,
    shared: Any = None,
    size: int = 0,
    *,
    dtype=None,
    layout=None,
    device=None,
    pin_memory=False,
    requires_grad=False,
):
    """A 1-d Tensor over the first `size` elements of a file, mapped into memory.  -> (size).

    If `shared`, what is written reaches the file, which is made or grown to that size first.  RuntimeError for a file
    that is too small or cannot be opened.
    """
    target = numpy_dtype(dtype)
    storage = UntypedStorage.from_file(filename, bool(shared), size * target.itemsize)
    result = finish(storage._flat().view(target), requires_grad)
    return result if device is None else result.to(device)


@composite(method=False)
def frombuffer(buffer, *, dtype, count=-1, offset=0, requires_grad=False):
    """A 1-d Tensor that shares the memory of a buffer.  -> (count).  ValueError when the buffer is too short."""
    target = numpy_dtype(dtype)
    size = memoryview(buffer).nbytes
    item = target.itemsize
    if size == 0:
        raise ValueError(f"both buffer length ({size}) and count ({count}) must not be 0")
    if not 0 <= offset < size:
        raise ValueError(
            f"offset ({offset} bytes) must be non-negative and no greater than buffer length ({size} bytes) minus 1"
        )
    if count == 0:
        raise ValueError(f"both buffer length ({size}) and count ({count}) must not be 0")
    if count < 0 and (size - offset) % item:
        raise ValueError(
            f"buffer length ({size - offset} bytes) after offset ({offset} bytes) must be a multiple of element size "
            f"({item})"
        )
    if count > 0 and offset + count * item > size:
        raise ValueError(
            f"requested buffer length ({count} * {item} bytes) after offset ({offset} bytes) must not be greater than "
            f"actual buffer length ({size} bytes)"
        )
    raw = np.frombuffer(buffer, np.uint8)[offset : offset + count * item if count > 0 else None]
    array = raw.view(target) if raw.ctypes.data % target.alignment == 0 else raw.copy().view(target)
    if not raw.flags.writeable:
        warnings.warn(
            "The given buffer is not writable, and PyTorch does not support non-writable tensors. This means you can "
            "write to the underlying (supposedly non-writable) buffer using the tensor. You may want to copy the "
            "buffer to protect its data or make it writable before converting it to a tensor. This type of warning "
            "will be suppressed for the rest of this program.",
            stacklevel=2,
        )
    return finish(array, requires_grad)


# --- other array libraries


@composite(method=False)
def from_dlpack(ext_tensor):
    """A Tensor that shares the memory of another library's array, by DLPack.  -> its shape."""
    if isinstance(ext_tensor, Tensor):
        return ext_tensor.detach()
    where = ext_tensor.__dlpack_device__()
    if where[0] == 2:
        xp = backends.of_device(device("cuda", where[1])).xp
        return wrap(xp.from_dlpack(ext_tensor))
    return wrap(np.from_dlpack(ext_tensor))


def _dlpack(
    self: Tensor,
    *,
    stream: Any = None,
    max_version: Any = None,
    dl_device: Any = None,
    copy: Any = None,
) -> Any:
    """A DLPack capsule of this tensor.  RuntimeError if it requires grad."""
    if self.requires_grad:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    array = self._array
    if type(array) is np.ndarray:
        return array.__dlpack__(max_version=max_version, dl_device=dl_device, copy=copy)
    return array.__dlpack__(stream=stream)


def _dlpack_device(self: Tensor) -> tuple[int, int]:
    """(device type, device number) as DLPack counts them."""
    array = self._array
    return (1, 0) if type(array) is np.ndarray else tuple(map(builtins.int, array.__dlpack_device__()))


Tensor.__dlpack__, Tensor.__dlpack_device__ = _dlpack, _dlpack_device


def _new_tensor(
    self: Tensor,
    data: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: builtins.bool = False,
    layout: Any = None,
    pin_memory: builtins.bool = False,
) -> Tensor:
    """A copy of `data` in the dtype and on the device of this tensor.  -> shape of data."""
    if isinstance(data, Tensor):
        warnings.warn(_COPY_WARNING.format("tensor.new_tensor(sourceTensor)"), stacklevel=outside())
    return tensor(
        data,
        dtype=self.dtype if dtype is None else dtype,
        device=self.device if device is None else device,
        requires_grad=requires_grad,
        _warn=False,
    )


Tensor.new_tensor = _new_tensor


def _array_wrap(self: Tensor, array: Any, context: Any = None, return_scalar: bool = False) -> Tensor:
    """The tensor of what a function of numpy made of this one, bool as uint8, as torch does."""
    array = np.asarray(array)
    dtypes.from_numpy(array.dtype)  # refuses what no tensor holds
    return wrap(array.astype(np.uint8) if array.dtype == np.bool_ else array)


Tensor.__array_wrap__ = _array_wrap  # type: ignore[attr-defined]
