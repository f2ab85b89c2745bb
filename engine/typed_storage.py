"""The typed storages' old names: `FloatStorage(3)` is a Storage of float32."""

from __future__ import annotations

from typing import Any

from engine import dtypes
from engine.storage import Storage

__all__ = [
    "BFloat16Storage", "BoolStorage", "ByteStorage", "CharStorage", "ComplexDoubleStorage", "ComplexFloatStorage",
    "DoubleStorage", "FloatStorage", "HalfStorage", "IntStorage", "LongStorage", "ShortStorage", "TypedStorage",
]  # fmt: skip

TypedStorage = Storage


class _Kind(type):
    """`isinstance(storage, FloatStorage)` asks the dtype."""

    dtype: Any

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Storage) and instance.dtype is cls.dtype

    def __call__(cls, source: Any = 0, **kwargs: Any) -> Storage:
        if isinstance(source, int):
            return Storage(source, cls.dtype)
        if isinstance(source, list | tuple):
            result = Storage(len(source), cls.dtype)
            result._flat()[...] = source
            return result
        return Storage(getattr(source, "_memory", source), cls.dtype)


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
