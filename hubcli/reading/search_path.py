"""The folders of a repository that its code puts on `sys.path`: read, not run.

Every way that changes the list counts, wherever it stands: `append`, `insert`, `extend`, assignments to the list and
to slices of it, `site.addsitedir` with its .pth files, loops, functions and their callers, other modules.  A block
that never runs in a hub (`if __name__ == "__main__":`) does not.  Where a value cannot be read, `unclear` says so: then
every folder of the repository may be meant.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hubcli.errors import HubError
from hubcli.reading.bindings import Function
from hubcli.reading.calls import last_name
from hubcli.reading.dynamic import never_runs
from hubcli.reading.interpret import Unclear
from hubcli.reading.path_values import PathValues, Scope
from hubcli.reading.values import Function as FunctionValue
from hubcli.reading.values import Module, ModuleRef

if TYPE_CHECKING:
    from hubcli.reading.names import Reader

MAX_FOLDERS = 200
MAX_SEARCHES = 500  # modules that are searched for calls
_LARGEST = 64 * 1024  # bytes of a .pth file
_ADDING = {"append", "insert", "extend", "__iadd__", "__setitem__", "__add__"}
_ARCHIVES = (".zip", ".egg", ".whl", ".pyz")


class _Change(NamedTuple):
    """A statement that changes the list: the expression of what it adds, or None where it is not known."""

    added: ast.expr | None
    scope: Scope
    site: bool = False


class SearchPath:
    """The folders that a repository's modules put on `sys.path`, as far as the modules have been read.

    `finders`: code has an import finder of its own.  `modules` are names that code puts into `sys.modules` itself.
    """

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.finders = False
        self.modules: set[str] = set()
        self._values = PathValues(reader)
        self._searches = 0
        self._index: dict[Path, dict[str, list[tuple[ast.Call, Scope]]]] = {}
        self._open: list[_Change] = []  # those that more of the code may make clear

    def read(self, module: Module) -> None:
        """Follow what a module does to `sys.path`."""
        for change in self._changes(module.tree.body, Scope(module)):
            if not self._add(change):
                self._open.append(change)

    def retry(self) -> bool:
        """Try again what was not clear, now that more of the code is known; whether that has added a folder."""
        before = len(self.reader.search)
        self._open = [change for change in self._open if not self._add(change)]
        return len(self.reader.search) > before

    @property
    def unclear(self) -> bool:
        """Return whether the code may import from folders that are not known."""
        return self.finders or bool(self._open)

    def calls(self, name: str) -> Iterator[tuple[ast.Call, Scope]]:
        """Every call of a function of that name, in the modules that have been read, a few times at most."""
        self._searches += len(self.reader.modules)
        if self._searches > MAX_SEARCHES:
            return
        for module in list(self.reader.modules.values()):
            if module.file not in self._index:
                known = self._index[module.file] = {}
                for call, where in _calls(module.tree.body, Scope(module)):
                    known.setdefault(last_name(call.func), []).append((call, where))
            yield from self._index[module.file].get(name, ())

    def function(self, node: ast.expr, scope: Scope) -> tuple[Function, Module] | None:
        """Return the function of the repository that an expression names, with its module."""
        try:
            found = self.reader.resolve(self.reader.evaluate(node, scope.module))
        except HubError:
            return None
        if isinstance(found, FunctionValue):
            return found.node, found.module
        name = last_name(node) if isinstance(node, ast.Name) else ""
        for one in scope.module.tree.body:  # not scanned yet: the module is being read
            if isinstance(one, ast.FunctionDef) and one.name == name:
                return one, scope.module
        if isinstance(node, ast.Attribute):  # `paths.here()`, of a module that is being read
            with_owner = self.reader.resolve(self.reader.evaluate(node.value, scope.module))
            if isinstance(with_owner, ModuleRef) and with_owner.target.is_file():
                other = self.reader.load(with_owner.target)
                defined = (one for one in other.tree.body if isinstance(one, ast.FunctionDef))
                return next(((one, other) for one in defined if one.name == node.attr), None)
        return None

    # Statements

    def _changes(self, body: list[ast.stmt], scope: Scope) -> Iterator[_Change]:
        for statement in body:
            yield from self._in(statement, scope)

    def _in(self, node: ast.AST, scope: Scope) -> Iterator[_Change]:
        if isinstance(node, ast.If) and never_runs(node.test):
            for one in node.orelse:
                yield from self._in(one, scope)
            return
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            scope = scope._replace(functions=(node, *scope.functions))
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            yield from self._assignment(node, scope)
        elif isinstance(node, ast.Call):
            yield from self._call(node, scope)
        for child in ast.iter_child_nodes(node):
            yield from self._in(child, scope)

    def _is_path(self, node: ast.AST, scope: Scope) -> bool:
        return self._values.dotted(node, scope.module) == "sys.path"

    def _assignment(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign, scope: Scope) -> Iterator[_Change]:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        pairs = [(target, node.value) for target in targets]
        for target, value in list(pairs):
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs += zip(target.elts, value.elts)
        for target, value in pairs:
            whole = target.value if isinstance(target, ast.Subscript) else target
            if self._values.dotted(whole, scope.module) == "sys.modules" and isinstance(target, ast.Subscript):
                self._provide(target.slice, scope)
            elif isinstance(whole, ast.Attribute | ast.Subscript | ast.Name) and self._is_path(whole, scope):
                alias = isinstance(whole, ast.Name) and value is not None and self._is_path(value, scope)
                if value is not None and not alias:
                    yield _Change(value, scope)

    def _call(self, node: ast.Call, scope: Scope) -> Iterator[_Change]:
        dotted = self._values.dotted(node.func, scope.module)
        owner, _, method = dotted.rpartition(".")
        if owner == "sys.path" and method in _ADDING and (node.args or node.keywords):
            yield _Change(node.args[-1] if node.args else node.keywords[-1].value, scope)
        elif owner == "list" and method in _ADDING and node.args and self._is_path(node.args[0], scope):
            yield _Change(node.args[-1], scope)
        elif dotted == "map" and len(node.args) == 2 and self._is_adding(node.args[0], scope):
            yield _Change(node.args[1], scope)
        elif dotted in ("site.addsitedir", "addsitedir") and node.args:
            yield _Change(node.args[0], scope, site=True)
        elif dotted.startswith(("sys.meta_path.", "sys.path_hooks.")):
            self.finders = True

    def _is_adding(self, node: ast.expr, scope: Scope) -> bool:
        dotted = self._values.dotted(node, scope.module)
        return dotted in ("sys.path.append", "site.addsitedir")

    def _provide(self, name: ast.expr, scope: Scope) -> None:
        """`sys.modules["name"] = module`."""
        try:
            found = self._values.values(name, scope)
        except Unclear:
            return
        self.modules.update(one for one in found if isinstance(one, str))

    # Values

    def _add(self, change: _Change) -> bool:
        """Add the folders of a change; False where their names are not clear (yet)."""
        try:
            found = [] if change.added is None else self._values.values(change.added, change.scope)
        except (Unclear, HubError, RecursionError):
            return False
        clear = True
        for value in found:
            for one in value if isinstance(value, list | tuple) else [value]:
                clear = self._add_folder(one, change) and clear
        return clear

    def _add_folder(self, value: Any, change: _Change) -> bool:
        if not isinstance(value, str | Path):
            return False
        text = str(value)
        if "\0" in text:
            return True
        here = change.scope.module.file.parent
        bases = [here] if os.path.isabs(text) else [here, self.reader.root]
        for base in bases:  # a relative one means the current folder: the repository, where it works
            folder = Path(os.path.normpath(base / text))
            if self._admit(folder):
                for line in _pth_lines(folder) if change.site else ():
                    self._admit(Path(os.path.normpath(folder / line)))
                break
        return True

    def _admit(self, folder: Path) -> bool:
        search = self.reader.search
        try:
            if folder in search:
                return True
            if not folder.is_relative_to(self.reader.root) or len(search) >= MAX_FOLDERS:
                return False
            if folder.suffix in _ARCHIVES and folder.is_file():
                self.finders = True
                return True
            if not folder.is_dir() or not folder.resolve().is_relative_to(self.reader.root.resolve()):
                return False
        except (OSError, ValueError, RuntimeError):
            return False
        search.append(folder)
        return True


def _pth_lines(folder: Path) -> Iterator[str]:
    """Yield the folders that the .pth files of a site directory name; lines of code are left out."""
    for file in sorted(folder.glob("*.pth"))[:20]:
        try:
            text = file.read_text(encoding="utf-8") if file.stat().st_size <= _LARGEST else ""
        except (OSError, ValueError):
            continue
        for line in text.splitlines():
            if line.strip() and not line.startswith(("#", "import ", "import\t")):
                yield line.strip()


def _calls(body: list[ast.stmt], scope: Scope) -> Iterator[tuple[ast.Call, Scope]]:
    pending: list[tuple[ast.AST, Scope]] = [(one, scope) for one in reversed(body)]
    while pending:
        node, here = pending.pop()
        if isinstance(node, ast.If) and never_runs(node.test):
            pending += [(one, here) for one in reversed(node.orelse)]
            continue
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            here = here._replace(functions=(node, *here.functions))
        if isinstance(node, ast.Call):
            yield node, here
        pending += [(one, here) for one in ast.iter_child_nodes(node)]
