"""What is known of a function or class while it is compiled."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from engine.jit.archive import objects
from engine.jit.archive.kinds import NONE, TENSOR, Kind
from engine.jit.archive.schemas import Value
from engine.jit.scripting.frontend import Source
from engine.jit.scripting.names import spelt

__all__ = ["ClassInfo", "FunctionInfo", "modifier", "script_source"]


@dataclass
class FunctionInfo:
    """A function or method that is compiled: its text when it is, its types at once."""

    name: str
    path: str
    parameters: list[tuple[str, Kind, Value | None]] = field(default_factory=list)
    returns: Kind | None = None
    lines: list[str] | None = None
    source: Source | None = None
    counts: dict[str, int] = field(default_factory=dict)  # of lists for which one number may stand
    foreign: list[str] | None = None  # the text of one that was compiled before
    python: str | None = None  # the number of a Python function that is called as it is

    @property
    def schema(self) -> str:
        """`forward(Tensor x, int n=1) -> Tensor`."""
        parts = [f"{kind} {name}" + ("" if d is None else f"={d.text}") for name, kind, d in self.parameters]
        return f"{self.name}({', '.join(parts)}) -> {self.returns or TENSOR}"

    def text(self, indent: str) -> list[str]:
        """The definition."""
        if self.foreign is not None:
            return self.foreign
        parts = [
            f"{spelt(name)}: {kind}" + ("" if default is None else f"={default.text}")
            for name, kind, default in self.parameters
        ]
        head = f"{indent}def {self.name}({', '.join(parts)}) -> {self.returns or NONE}:"
        return [head, *(indent + line for line in self.lines or ["  pass"])]


@dataclass
class ClassInfo:
    """A class.  kind: module, object, tuple, interface or enum; attributes: types by name."""

    name: str
    path: str
    kind: str
    python: Any
    module: Any = None
    attributes: dict[str, Kind] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    children: dict[str, ClassInfo] = field(default_factory=dict)
    interfaces: dict[str, Kind] = field(default_factory=dict)  # of children that are declared by one
    failed: dict[str, str] = field(default_factory=dict)
    methods: dict[str, FunctionInfo] = field(default_factory=dict)
    lists: dict[str, list[str]] = field(default_factory=dict)
    foreign: list[str] | None = None  # the text of a class that was compiled before


def modifier(function: Any) -> str:
    """What the decorators of torch.jit said of a function: "export", "ignore", "unused" or ""."""
    return str(getattr(function, "_torchscript_modifier", ""))


def script_source(obj: Any) -> Any:
    """The Python function that a ScriptFunction was compiled from; None of anything else."""
    return getattr(obj, "_python", None) if isinstance(obj, objects.ScriptFunction) else None
