"""`torch.sparse.FloatTensor` and its like: the names from before `sparse_coo_tensor`."""

from __future__ import annotations

from typing import Any

from engine.core import dtypes
from engine.sparse.factories import legacy
from engine.tensor import Tensor

__all__ = ["CLASSES"]


class _Typed(type):
    """`sparse.FloatTensor(indices, values, size)`, and isinstance by dtype: the names before `sparse_coo_tensor`."""

    dtype: dtypes.dtype
    is_cuda, is_sparse = False, True

    def __call__(cls, *data: Any, device: Any = None) -> Any:
        return legacy(cls.dtype, data, device, "cpu")

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, Tensor) and value.is_sparse and value.dtype is cls.dtype


_TYPED = ("Double", "Float", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte")
_DTYPES = (
    dtypes.float64,
    dtypes.float32,
    dtypes.float16,
    dtypes.bfloat16,
    dtypes.int64,
    dtypes.int32,
    dtypes.int16,
    dtypes.int8,
    dtypes.uint8,
)
CLASSES: dict[str, type] = {}
for _word, _dtype in zip(_TYPED, _DTYPES):
    _body = {"dtype": _dtype, "__module__": "torch.sparse", "__doc__": f"Sparse tensors of {_dtype}."}
    CLASSES[f"{_word}Tensor"] = _Typed(f"{_word}Tensor", (), _body)
