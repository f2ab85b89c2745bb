"""The legacy typed tensors: `FloatTensor(2, 3)`, `isinstance(x, LongTensor)`, `x.type("torch.HalfTensor")`."""

from __future__ import annotations

from typing import Any

from engine.core import dtypes
from engine.core.device import device
from engine.core.tensor_messages import warn_once
from engine.dispatch import PUBLIC, composite
from engine.ops.copying import type_named
from engine.ops.creation import set_default_device
from engine.tensor import Tensor, _legacy_new


class tensortype(type):
    """The class of legacy types: calling one makes a Tensor of its dtype, isinstance looks at dtype and device."""

    dtype: dtypes.dtype
    _where: device
    is_cuda = property(lambda cls: cls._where.type == "cuda")
    is_sparse = False

    def __call__(cls, *data: Any, device: Any = None) -> Tensor:
        if len(data) == 1 and isinstance(data[0], float):
            raise TypeError("new(): data must be a sequence (got float)")
        if len(data) == 1 and isinstance(data[0], Tensor) and data[0].dtype is not cls.dtype:
            raise TypeError(f"expected {dtypes.tensor_type(cls.dtype, cls._where.type)} (got {data[0].type()})")
        return _legacy_new(Tensor, cls.dtype, data, cls._where if device is None else device)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor) and instance.dtype is cls.dtype and instance.device.type == cls._where.type

    def __repr__(cls) -> str:
        return f"<class '{dtypes.tensor_type(cls.dtype, cls._where.type)}'>"

    def __reduce__(cls) -> Any:
        return typed, (cls.dtype, cls._where.type)


_made: dict[tuple[str, str], tensortype] = {}


def typed(dtype: dtypes.dtype, where: str = "cpu") -> tensortype:
    """The legacy type of a dtype on "cpu" or "cuda"."""
    key = (dtype.name, where)
    if key not in _made:
        name = dtypes.scalar_name(dtype) + "Tensor"
        body = {
            "dtype": dtype,
            "_where": device(where),
            "__module__": "torch.cuda" if where == "cuda" else "torch",
        }
        _made[key] = tensortype(name, (), body)
    return _made[key]


NAMES = {
    dtypes.scalar_name(d) + "Tensor": d
    for d in (
        dtypes.float32,
        dtypes.float64,
        dtypes.float16,
        dtypes.bfloat16,
        dtypes.int64,
        dtypes.int32,
        dtypes.int16,
        dtypes.int8,
        dtypes.uint8,
        dtypes.bool,
    )
}
PUBLIC.update({name: typed(d) for name, d in NAMES.items()})


@composite(method=False)
def set_default_tensor_type(t) -> None:
    """The default dtype and device by a legacy type or its name.  TypeError unless it is a floating one."""
    warn_once(
        "set_default_tensor_type",
        "torch.set_default_tensor_type() is deprecated as of PyTorch 2.1, please use torch.set_default_dtype() and "
        "torch.set_default_device() as alternatives.",
    )
    if isinstance(t, str):
        dtype, where = type_named(t)
    elif isinstance(t, tensortype):
        dtype, where = t.dtype, t._where
    else:
        raise TypeError("invalid type object")
    if not dtype.is_floating_point:
        raise TypeError(f"only floating-point types are supported as the default type, got {t}")
    dtypes.set_default_dtype(dtype)
    set_default_device(None if where.type == "cpu" else where)
