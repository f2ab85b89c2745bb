"""The values that a name of a repository's module may stand for.  Lazy: `Imported` is looked up when somebody needs
to know.

Plain classes, never changed once made: to generate nine dataclasses would take a twentieth of `hub list SPEC`.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any, Self


class _Known:
    """The facts about a name; its fields are its slots."""

    __slots__: tuple[str, ...] = ()

    def but(self, **changes: Any) -> Self:
        """Return the same with other values of some fields."""
        fields = type(self).__slots__
        return type(self)(**{**{name: getattr(self, name) for name in fields}, **changes})


class Data(_Known):
    """Not callable."""

    __slots__ = ("expression",)

    def __init__(self, expression: ast.expr | None = None) -> None:
        self.expression = expression


class Maybe(_Known):
    """Callable or not: only running the code shows it."""

    __slots__ = ()


class Function(_Known):
    """A function, method or lambda of `module`.

    `bound` leading parameters are taken (self, cls, arguments of a partial), `keywords` are the defaults that a partial
    gives, `doc` is what was assigned to __doc__ later.
    """

    __slots__ = ("bound", "doc", "keywords", "module", "node")

    def __init__(
        self,
        node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda,
        module: Module,
        bound: int = 0,
        keywords: tuple[tuple[str, str], ...] = (),
        doc: str | None = None,
    ) -> None:
        self.node, self.module, self.bound, self.keywords, self.doc = node, module, bound, keywords, doc


class Class(_Known):
    """A class of `module`, or an instance of it."""

    __slots__ = ("instance", "module", "node")

    def __init__(self, node: ast.ClassDef, module: Module, instance: bool = False) -> None:
        self.node, self.module, self.instance = node, module, instance


class External(_Known):
    """Something from outside the repository; `module` says that it is one."""

    __slots__ = ("dotted", "module")

    def __init__(self, dotted: str, module: bool = False) -> None:
        self.dotted, self.module = dotted, module


class Imported(_Known):
    """`from target import name`, inside the repository; `target` is a file or a bare folder."""

    __slots__ = ("name", "target")

    def __init__(self, target: Path, name: str) -> None:
        self.target, self.name = target, name


class ModuleRef(_Known):
    """A module of the repository."""

    __slots__ = ("target",)

    def __init__(self, target: Path) -> None:
        self.target = target


class Unknown(_Known):
    """Imported from a module of the repository that does not (statically) define it."""

    __slots__ = ()


Value = Data | Maybe | Function | Class | External | Imported | ModuleRef | Unknown


class Module:
    """A file of the repository, and what its names stand for.

    `exported` is __all__; `handled` has the id of every node whose effect on the namespace is known; `own` the names
    that stand for the module itself or its namespace.
    """

    def __init__(self, file: Path, tree: ast.Module) -> None:
        self.file, self.tree = file, tree
        self.names: dict[str, tuple[Value, str]] = {}
        self.exported: list[str] | None = None
        self.dependencies: list[str] = []
        self.dynamic = False
        self.handled: set[int] = set()
        self.own: set[str] = set()


def as_value(found: object) -> Value:
    """Return what the interpreter made, as a name's value."""
    return found if isinstance(found, Value) else Data()
