"""The types of TorchScript: read from annotations, written back, and what fits them.

`Kind("List", (Kind("int"),))` is `List[int]`; a class of the archive is a Kind whose name begins with `__torch__.`.
"""

from __future__ import annotations

import ast
import enum
from dataclasses import dataclass, field
from typing import Any

from engine.core import dtypes
from engine.core.device import device as Device
from engine.library.schema import DTYPE_NUMBERS
from engine.nn.modules.module import Module
from engine.tensor import Tensor

__all__ = [
    "ANY",
    "BOOL",
    "FLOAT",
    "INT",
    "NONE",
    "STR",
    "TENSOR",
    "Kind",
    "convert",
    "dotted",
    "fits",
    "number_of",
    "parse_kind",
]

_SIMPLE = frozenset(
    """
Tensor int float bool str complex number Scalar NoneType None Any Device Layout ScalarType Storage Generator QScheme
Stream AnyListType AnyTupleType AnyClassType AnyEnumType Capsule list tuple Future
""".split()
)
_GENERIC = frozenset(("List", "Optional", "Dict", "Tuple", "Union", "Future", "RRef", "Await", "Final"))
_MOST_PARTS = 512


@dataclass(frozen=True)
class Kind:
    """A type: its name and, of a container, what it holds; names: of the parts of an operator's several results."""

    name: str
    inner: tuple[Kind, ...] = ()
    names: tuple[str, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        if self.name in _GENERIC:
            return f"{self.name}[{', '.join(map(str, self.inner)) or '()'}]"
        return self.name

    @property
    def schema_text(self) -> str:
        """The type as graphs and schemas print it: `int[]`, `(Tensor, int)`, `Tensor?`, `Dict(str, Tensor)`."""
        inner = [kind.schema_text for kind in self.inner]
        if self.name == "List":
            return f"{inner[0]}[]"
        if self.name == "Optional":
            return f"{inner[0]}?"
        if self.name == "Tuple":
            return f"({', '.join(inner)})"
        if self.name in _GENERIC:
            return f"{self.name}({', '.join(inner)})"
        return self.name


TENSOR, NONE, ANY = Kind("Tensor"), Kind("NoneType"), Kind("Any")
INT, FLOAT, BOOL, STR = Kind("int"), Kind("float"), Kind("bool"), Kind("str")


def dotted(node: ast.AST) -> str | None:
    """`a.b.c` of a chain of attributes, None for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    parts.append(node.id)
    return ".".join(reversed(parts))


def parse_kind(node: ast.AST | None, depth: int = 0) -> Kind:
    """The type that an annotation names; ValueError, with the reason, for anything that is none."""
    if node is None:
        return TENSOR
    if depth > 32:
        raise ValueError("a type is nested more than 32 deep")
    if isinstance(node, ast.Constant) and node.value is None:
        return NONE
    if isinstance(node, ast.Subscript):
        name = dotted(node.value)
        if name not in _GENERIC:
            raise ValueError(f"{name or 'an expression'} is not a generic type of TorchScript")
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if len(parts) > _MOST_PARTS:
            raise ValueError(f"a type has more than {_MOST_PARTS} parts")
        return Kind(name, tuple(parse_kind(part, depth + 1) for part in parts))
    name = dotted(node)
    if name is None:
        raise ValueError(f"a type is written as {type(node).__name__}")
    if name in _SIMPLE:
        return NONE if name == "None" else Kind(name)
    if name.startswith("__torch__."):
        return Kind(name)
    if name.startswith("torch.") and name.rpartition(".")[2] in _SIMPLE:  # older archives: torch.Device
        return Kind(name.rpartition(".")[2])
    raise ValueError(f"{name} is not a type of TorchScript")


_OF_PYTHON: dict[str, Any] = {
    "Tensor": Tensor,
    "bool": bool,
    "str": str,
    "complex": (complex,),
    "NoneType": type(None),
    "Device": Device,
    "list": list,
    "tuple": tuple,
    "AnyListType": list,
    "AnyTupleType": tuple,
    "AnyEnumType": enum.Enum,
    "number": (int, float, complex),
    "Scalar": (int, float, complex),
    "Layout": int,
    "ScalarType": int,
}


def fits(value: Any, kind: Kind) -> bool:
    """Whether a value is of a type."""
    name = kind.name
    if name == "Any":
        return True
    if name == "int":
        return type(value) is int
    if name == "float":
        return type(value) is float
    if name == "Optional":
        return value is None or fits(value, kind.inner[0])
    if name == "Union":
        return any(fits(value, part) for part in kind.inner)
    if name == "List":
        return isinstance(value, list) and all(fits(item, kind.inner[0]) for item in value)
    if name == "Dict":
        return isinstance(value, dict) and all(
            fits(k, kind.inner[0]) and fits(v, kind.inner[1]) for k, v in dict.items(value)
        )
    if name == "Tuple":
        return isinstance(value, tuple) and len(value) == len(kind.inner) and all(map(fits, value, kind.inner))
    if name.startswith("__torch__."):
        return getattr(type(value), "Λname", None) in (name, None)
    return isinstance(value, _OF_PYTHON.get(name, object))


def convert(value: Any, kind: Kind) -> Any:
    """A value that a user passes, as a program has it: lists of tuples, dtypes as numbers; TypeError if it is none."""
    name = kind.name
    if name == "Tensor":
        if isinstance(value, Tensor):
            return value
    elif name == "Optional":
        return None if value is None else convert(value, kind.inner[0])
    elif name in ("int", "float", "bool") and isinstance(value, Tensor):
        if value.numel() == 1:
            return {"int": int, "float": float, "bool": bool}[name](value.item())
    elif name == "int":
        if type(value) is int:
            return value
        number = _index(value)
        if number is not None:
            return number
    elif name == "float":
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        if hasattr(value, "dtype") and not isinstance(value, Tensor) and not getattr(value, "shape", ()):
            return float(value)
    elif name == "bool":
        if isinstance(value, bool) or type(value).__name__ in ("bool_", "bool"):
            return bool(value)
    elif name == "List":
        if isinstance(value, list | tuple):
            return [convert(item, kind.inner[0]) for item in value]
    elif name == "Tuple":
        if isinstance(value, list | tuple) and len(value) == len(kind.inner):
            return tuple(map(convert, value, kind.inner))
    elif name == "Dict":
        if isinstance(value, dict):
            return {convert(k, kind.inner[0]): convert(v, kind.inner[1]) for k, v in value.items()}
    elif name == "Union":
        for part in sorted(kind.inner, key=lambda part: not fits(value, part)):
            try:
                return convert(value, part)
            except TypeError:
                continue
    elif name == "Device":
        if isinstance(value, str | Device):
            return Device(value)
    elif name.startswith("__torch__."):
        own = getattr(type(value), "Λname", None)
        if own == name or isinstance(value, Module):
            return value
        if isinstance(value, tuple):
            return value
    elif fits(value, kind):
        return value
    raise TypeError(f"a value of type '{kind}' is needed, not '{type(value).__name__}'")


_NUMBER_OF = {getattr(dtypes, name): number for name, number in DTYPE_NUMBERS.items() if hasattr(dtypes, name)}


def number_of(dtype: dtypes.dtype) -> int:
    """torch's number of a dtype."""
    return _NUMBER_OF[dtype]


def _index(value: Any) -> int | None:
    if isinstance(value, dtypes.dtype):
        return number_of(value)
    if isinstance(value, bool | float | str | Tensor) or not hasattr(value, "__index__"):
        return None
    return int(value)
