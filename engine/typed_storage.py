"""The typed storages' old names: `FloatStorage(3)` is a Storage of float32."""

from __future__ import annotations

from typing import Any

from engine import dtypes
from engine.storage import Storage

__all__ = ["TypedStorage"]

TypedStorage = Storage
_KINDS = {
    "Double": "float64", "Float": "float32", "Half": "float16", "BFloat16": "bfloat16", "Long": "int64", "Int": "int32",
    "Short": "int16", "Char": "int8", "Byte": "uint8", "Bool": "bool", "ComplexFloat": "complex64",
    "ComplexDouble": "complex128",
}  # fmt: skip


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


for _name, _dtype in _KINDS.items():
    globals()[f"{_name}Storage"] = _Kind(
        f"{_name}Storage",
        (),
        {"dtype": getattr(dtypes, _dtype), "__doc__": f"A storage of {_dtype}.", "__module__": "torch"},
    )
    __all__.append(f"{_name}Storage")
