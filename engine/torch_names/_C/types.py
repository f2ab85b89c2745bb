"""The types of schemas and of TorchScript by torch's names, and the parts of its compiler, never made."""

from __future__ import annotations

from typing import Any

from engine.library.schema import Type

__all__ = ["TYPES"]


class _Kind(type):
    """Instances of `TensorType` are the schema's types of that kind."""

    kinds: tuple[str, ...]

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, Type) and value.kind in cls.kinds

    def get(cls) -> Type:
        """The type."""
        return Type(cls.kinds[0])


def _kind(name: str, *kinds: str) -> _Kind:
    return _Kind(name, (), {"kinds": kinds, "__module__": "torch._C", "__doc__": f"The type {kinds[0]}."})


TensorType, AnyType, NoneType = _kind("TensorType", "Tensor"), _kind("AnyType", "Any"), _kind("NoneType", "NoneType")
IntType, SymIntType = _kind("IntType", "int"), _kind("SymIntType", "SymInt")
FloatType, ComplexType = _kind("FloatType", "float"), _kind("ComplexType", "complex")
BoolType, StringType = _kind("BoolType", "bool"), _kind("StringType", "str")
NumberType, DeviceObjType = _kind("NumberType", "Scalar"), _kind("DeviceObjType", "Device")
ListType, OptionalType = _kind("ListType", "List"), _kind("OptionalType", "Optional")
TupleType, DictType = _kind("TupleType", "Tuple"), _kind("DictType", "Dict")
JitType = Type


def _refused(name: str, why: str) -> type:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(f"torch._C.{name} is not supported: {why}")

    return type(name, (), {"__init__": __init__, "__module__": "torch._C", "__doc__": f"Never made: {why}."})


PyTorchFileReader = _refused("PyTorchFileReader", "torch.load has a reader of its own")
PyTorchFileWriter = _refused("PyTorchFileWriter", "torch.save has a writer of its own")
TYPES = frozenset(name for name in globals() if name[0].isupper() and name not in ("Any", "TYPES", "Type"))
