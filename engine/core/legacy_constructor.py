"""The arrays of `Tensor(...)` and `FloatTensor(...)`, by sizes or from data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from engine.core import dtypes
from engine.core.size import Size
from engine.core.storage import Storage, UntypedStorage

if TYPE_CHECKING:
    from engine.core.arrays import Array
    from engine.tensor import Tensor

__all__ = ["legacy_array", "listed", "tensor_array"]


def tensor_array(source: Tensor, dtype: dtypes.dtype) -> Array:
    """Return the array of a tensor of the same dtype.  TypeError for another one."""
    if source.dtype is not dtype:
        raise TypeError(f"expected {dtypes.tensor_type(dtype)} (got {source.type()})")
    array: Array = source._array
    return array


def legacy_array(data: tuple[object, ...], dtype: dtypes.dtype) -> np.ndarray:
    """Return an array of zeros of the sizes in `data`, or one of its numbers.

    Raises TypeError for anything else, RuntimeError for numbers that the dtype does not have and for storages of
    another one, ValueError for sequences that do not give their items.
    """
    np_dtype = dtypes.to_numpy(dtype)
    if len(data) != 1 or isinstance(data[0], int):
        if any(not isinstance(s, int) for s in data):
            kinds = ", ".join(type(s).__name__ for s in data)
            raise TypeError(
                f"new() received an invalid combination of arguments - got ({kinds}), but expected one of:\n"
                " * (int ... size)\n * (sequence data)\n"
            )
        return np.zeros(data or (0,), np_dtype)  # type: ignore[arg-type]  # all are ints
    source = data[0]
    if isinstance(source, float):
        raise TypeError("new(): data must be a sequence (got float)")
    if isinstance(source, str):
        raise TypeError("new(): invalid data type 'str'")
    if isinstance(source, Size):
        return np.zeros(source, np_dtype)
    if isinstance(source, UntypedStorage):
        if isinstance(source, Storage) and source.dtype is not dtype:
            raise RuntimeError(
                f"Expected a Storage of type {dtypes.scalar_name(dtype)} or an UntypedStorage, but got type "
                f"{dtypes.scalar_name(source.dtype)} for argument 1 'storage'"
            )
        elements: np.ndarray = source._memory.flat(dtype)
        return elements
    return _from_sequence(source, dtype, np_dtype)


def listed(data: Any) -> list[object]:
    """Return the items of a user's sequence.  ValueError if it does not give them."""
    try:
        return [data[i] for i in range(len(data))]
    except Exception:
        raise ValueError(f"could not determine the shape of object type '{type(data).__name__}'") from None


def _from_sequence(source: object, dtype: dtypes.dtype, np_dtype: np.dtype) -> np.ndarray:
    if isinstance(source, list | tuple):
        source = [s.tolist() if hasattr(s, "_array") else s for s in source]
    elif not hasattr(source, "__array__") and hasattr(source, "__len__"):
        source = listed(source)
    try:
        return np.array(source, dtype=np_dtype)
    except OverflowError:
        wide, limits = np.array(source), dtypes.iinfo(dtype)
        if wide.dtype.kind == "i" and not dtype.is_signed and wide.min() >= -limits.max and wide.max() <= limits.max:
            return wide.astype(np_dtype)  # negative numbers wrap around
        raise RuntimeError(f"value cannot be converted to type {dtype.name} without overflow") from None
