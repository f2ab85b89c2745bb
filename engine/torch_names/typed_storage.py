"""The typed storages' old names: `FloatStorage(3)` is a Storage of float32."""

from __future__ import annotations

import sys
from typing import Any

from engine.core import dtypes
from engine.core.storage import Storage, TypedStorage, UntypedStorage

__all__ = [
    "BFloat16Storage",
    "BoolStorage",
    "ByteStorage",
    "CharStorage",
    "ComplexDoubleStorage",
    "ComplexFloatStorage",
    "DoubleStorage",
    "FloatStorage",
    "HalfStorage",
    "IntStorage",
    "LongStorage",
    "ShortStorage",
    "TypedStorage",
]


class _Kind(type):
    """`isinstance(storage, FloatStorage)` asks the dtype."""

    dtype: Any
    is_cuda = is_sparse = False

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Storage) and instance.dtype is cls.dtype

    def __call__(cls, source: Any = 0, *, wrap_storage: UntypedStorage | None = None, **kwargs: Any) -> Storage:
        source = source if wrap_storage is None else wrap_storage
        if isinstance(source, int):
            return Storage(source, cls.dtype)
        if isinstance(source, list | tuple):
            result = Storage(len(source), cls.dtype)
            result._flat()[...] = source
            return result
        if not isinstance(source, UntypedStorage):
            raise TypeError(f"{cls.__name__}(): expected a number of elements, a sequence or a storage, got {source!r}")
        return Storage(source._memory, cls.dtype)

    def __getattr__(cls, name: str) -> Any:
        """The methods of its storages: `FloatStorage.is_shared`."""
        return getattr(TypedStorage, name)

    def from_file(cls, filename: Any, shared: bool = False, size: int = 0) -> Storage:
        """Return the first `size` elements of a file, mapped into memory: see `UntypedStorage.from_file`."""
        nbytes = size * dtypes.to_numpy(cls.dtype).itemsize
        return Storage(UntypedStorage.from_file(filename, shared, nbytes)._memory, cls.dtype)

    def from_buffer(
        cls, buffer: Any, byte_order: str | None = None, *, count: int = -1, offset: int = 0, dtype: Any = None
    ) -> Storage:
        """A storage with a copy of the values in `buffer` (bytes, bytearray, ...), which have this type.

        byte_order: "native", "little" or "big", of types with more than one byte; count: how many values, -1 for all
        that follow `offset` bytes.  Raises ValueError for what does not fit into the buffer, or no byte order.
        """
        import numpy as np

        kind = dtypes.to_numpy(cls.dtype)
        if byte_order not in ("native", "little", "big") and kind.itemsize > 1:
            raise ValueError(f"byte_order must be 'native', 'little' or 'big', not {byte_order!r}")
        values = np.frombuffer(buffer, np.uint8, offset=offset)
        if count < 0 and values.size % kind.itemsize:
            raise ValueError(f"buffer of {values.size} bytes after offset {offset} holds no whole number of {kind}")
        count = values.size // kind.itemsize if count < 0 else count
        if count * kind.itemsize > values.size:
            raise ValueError(f"buffer has only {values.size} bytes after offset {offset}, {count} {kind} need more")
        array = np.frombuffer(values[: count * kind.itemsize].tobytes(), kind)
        if byte_order in ("little", "big") and byte_order != sys.byteorder:
            array = array.byteswap()
        result = Storage(count, cls.dtype)
        result._flat()[...] = array
        return result


def _kind(name: str, dtype: dtypes.dtype) -> _Kind:
    text = f"A storage of {str(dtype).removeprefix('torch.')}."
    return _Kind(name, (), {"dtype": dtype, "__doc__": text, "__module__": "torch"})


DoubleStorage = _kind("DoubleStorage", dtypes.float64)
FloatStorage = _kind("FloatStorage", dtypes.float32)
HalfStorage = _kind("HalfStorage", dtypes.float16)
BFloat16Storage = _kind("BFloat16Storage", dtypes.bfloat16)
LongStorage = _kind("LongStorage", dtypes.int64)
IntStorage = _kind("IntStorage", dtypes.int32)
ShortStorage = _kind("ShortStorage", dtypes.int16)
CharStorage = _kind("CharStorage", dtypes.int8)
ByteStorage = _kind("ByteStorage", dtypes.uint8)
BoolStorage = _kind("BoolStorage", dtypes.bool)
ComplexFloatStorage = _kind("ComplexFloatStorage", dtypes.complex64)
ComplexDoubleStorage = _kind("ComplexDoubleStorage", dtypes.complex128)


def kind_of(dtype: dtypes.dtype) -> _Kind:
    """Return the class of the storages of a dtype: `FloatStorage` for float32."""
    return globals()[f"{dtypes.scalar_name(dtype)}Storage"]  # type: ignore[no-any-return]
