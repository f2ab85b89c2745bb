"""The state of one function on its way to text.

Note [Scripted functions]
A function's tree is walked once; each expression becomes text in the form that archives have (`torch.add(x, y)`), with
its type.  The text is a program like any that `jit.load` reads, so that what is scripted runs, is shown and is saved by
what there is for archives.  Types decide what a name, a method or a condition means, as in torch: `x is None` of a
Tensor is False when the function is compiled, and the branch is not looked at.
Variables keep their names; break, continue and early returns stay as they are, which both readers understand.
The compiler is functions over a `Context`, in modules by subject; each imports those below it only.  `expressions` is
the highest that makes values: its table goes along in the context, so that a low module can compile any expression.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from engine.jit.archive.kinds import Kind
from engine.jit.scripting.frontend import CompileError, Source
from engine.jit.scripting.infos import ClassInfo, FunctionInfo
from engine.jit.scripting.sugared import Sugared

if TYPE_CHECKING:
    from engine.jit.scripting.unit import Unit

__all__ = ["Context", "Writer"]


@dataclass(eq=False, kw_only=True)
class Writer:
    """The lines of a function that is written, and the names that it uses."""

    unit: Unit
    owner: ClassInfo | None
    lines: list[str] = field(default_factory=list)
    depth: int = 1
    temporary: int = 0
    names: set[str] = field(default_factory=set)

    def put(self, text: str) -> None:
        """Add a line."""
        self.lines.append("  " * self.depth + text)

    def fresh(self) -> str:
        """Return a name that the function does not use."""
        while True:
            name = f"_{self.temporary}"
            self.temporary += 1
            if name not in self.names:
                return name

    def error(self, message: str, node: ast.AST | None = None) -> CompileError:
        """Return the error that says why the function cannot be written."""
        return CompileError(message)


@dataclass(eq=False, kw_only=True)
class Context(Writer):
    """A function of Python that is compiled.

    env: what names stand for here; gone: variables of one branch only, with the reason; frame: the variables of the
    blocks around this one, which keep their types; loops: how many are around the statement; returned: the type of
    the return statements so far; expressions: how each kind of expression is compiled.
    """

    info: FunctionInfo
    source: Source
    expressions: Mapping[type[ast.expr], Callable[[Context, Any, Kind | None], Sugared]]
    env: dict[str, Sugared] = field(default_factory=dict)
    gone: dict[str, str] = field(default_factory=dict)
    frame: dict[str, Kind] = field(default_factory=dict)
    loops: int = 0
    returned: Kind | None = None

    def __post_init__(self) -> None:
        self.names |= {n.id for n in ast.walk(self.source.node) if isinstance(n, ast.Name)}
        self.names |= {a.arg for a in ast.walk(self.source.node) if isinstance(a, ast.arg)}

    def error(self, message: str, node: ast.AST | None = None) -> CompileError:
        """Return the error with the line that it is about."""
        return CompileError(message, self.source, node)

    def in_init(self) -> bool:
        """Return whether this is the `__init__` of a class of the user's."""
        return self.info.name == "__init__"
