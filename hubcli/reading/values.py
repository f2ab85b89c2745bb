"""What a name of a repository's module may stand for.  Lazy: `Imported` is looked up when somebody needs to know."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Data:
    """Not callable."""

    expression: ast.expr | None = None


@dataclass(frozen=True)
class Maybe:
    """Callable or not: only running the code tells."""


@dataclass(frozen=True)
class Function:
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    module: Module
    bound: int = 0  # leading parameters that are taken: self, cls, arguments of a partial
    keywords: tuple[tuple[str, str], ...] = ()  # defaults given by a partial
    doc: str | None = None  # assigned to __doc__ later


@dataclass(frozen=True)
class Class:
    node: ast.ClassDef
    module: Module
    instance: bool = False


@dataclass(frozen=True)
class External:
    """Something from outside the repository; `module` says that it is one."""

    dotted: str
    module: bool = False


@dataclass(frozen=True)
class Imported:
    """`from target import name`, inside the repository; `target` is a file or a bare folder."""

    target: Path
    name: str


@dataclass(frozen=True)
class ModuleRef:
    target: Path


@dataclass(frozen=True)
class Unknown:
    """Imported from a module of the repository that does not (statically) define it."""


Value = Data | Maybe | Function | Class | External | Imported | ModuleRef | Unknown


@dataclass(eq=False)
class Module:
    file: Path
    tree: ast.Module
    names: dict[str, tuple[Value, str]] = field(default_factory=dict)
    exported: list[str] | None = None  # __all__
    dependencies: list[str] = field(default_factory=list)
    dynamic: bool = False
    handled: set[int] = field(default_factory=set)  # id of every node whose effect on the namespace is known
    own: set[str] = field(default_factory=set)  # names that stand for the module itself or its namespace
