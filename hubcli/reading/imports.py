"""What a repository imports from elsewhere, found by reading: its hubconf, and the modules that this leads to.

Only imports that run with the hubconf, or with an entry point's own body, and that nothing catches count:
`try: import apex`, `if TYPE_CHECKING:` and the bodies of other modules' functions do not stop a load by themselves.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hubcli.errors import HubError
from hubcli.reading.names import Reader, never_runs
from hubcli.reading.values import Module

_CAUGHT = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}


@dataclass(frozen=True)
class Imported:
    """A module from elsewhere, by its whole name, and where the repository imports it: `file:line`."""

    name: str
    place: str


def read(root: Path) -> tuple[Imported, ...]:
    """The first import of every foreign top-level module; what cannot be read or followed is left out."""
    reader = Reader(root)
    pending = [root / "hubconf.py"]
    seen: set[Path] = set()
    found: dict[str, Imported] = {}
    while pending:
        file = pending.pop(0)
        if file in seen:
            continue
        seen.add(file)
        try:
            module = reader.load(file)
            everything = list(_imports(module.tree.body, inside=file == root / "hubconf.py"))
        except (HubError, OSError, RecursionError):
            continue
        for node in everything:
            for name, target in _targets(reader, module, node):
                if target is None:
                    top = name.partition(".")[0]
                    if top and top != "torch" and top not in sys.stdlib_module_names:
                        place = f"{file.relative_to(root).as_posix()}:{node.lineno}"
                        found.setdefault(top, Imported(name, place))
                else:
                    pending += _files(root, target)
    return tuple(found.values())


def _targets(reader: Reader, module: Module, node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, Path | None]]:
    """Each module that a statement imports, with its file in the repository."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.name, reader.find_import(module, alias.name, 0)
        return
    target = reader.find_import(module, node.module or "", node.level)
    if target is None and node.level:
        return  # a relative import that leads nowhere: the repository's own fault
    yield node.module or "", target
    if target is not None and (target.is_dir() or target.name == "__init__.py"):
        folder = target if target.is_dir() else target.parent
        for alias in node.names:  # `from package import module`
            if alias.name != "*" and (inner := reader.find(folder, [alias.name])) is not None:
                yield alias.name, inner


def _files(root: Path, target: Path) -> Iterator[Path]:
    """The files that importing `target` runs: those of the packages around it first."""
    around = [folder / "__init__.py" for folder in target.parents if folder.is_relative_to(root) and folder != root]
    yield from (file for file in reversed(around) if file.is_file())
    if target.is_file():
        yield target


def _imports(body: Sequence[ast.stmt], inside: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    """The import statements that run, and that nothing would catch; `inside`: those of functions too."""
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.With | ast.ClassDef):
            yield from _imports(node.body, inside)
        elif isinstance(node, ast.FunctionDef) and inside:
            yield from _imports(node.body, False)
        elif isinstance(node, ast.Try) and not any(_catches(handler) for handler in node.handlers):
            yield from _imports([*node.body, *node.finalbody], inside)
        elif isinstance(node, ast.If) and isinstance(node.test, ast.Constant) and not never_runs(node.test):
            yield from _imports(node.body, inside)


def _catches(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(isinstance(kind, ast.Name) and kind.id in _CAUGHT for kind in kinds)
