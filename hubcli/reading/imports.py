"""Imports of a repository from elsewhere, found by reading its hubconf and the modules that this leads to.

Only imports that run with the hubconf, or with an entrypoint and the functions and classes that it names, and that
nothing catches count: `try: import apex` and `if TYPE_CHECKING:` do not stop a load by themselves.  Modules of the
repository that such a function imports on some condition are read too: factories import what they make so.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from hubcli.errors import HubError
from hubcli.reading import source_files
from hubcli.reading.calls import last_name
from hubcli.reading.dynamic import never_runs
from hubcli.reading.inventory import inside_left_out
from hubcli.reading.names import Reader
from hubcli.reading.values import Imported as ImportedName
from hubcli.reading.values import Module, ModuleRef

# What a function imports in order to write a model down for somebody else.
_OTHER_FRAMEWORKS = {"coremltools", "jax", "keras", "mxnet", "onnx", "openvino", "paddle", "tensorflow", "tensorrt"}
_MOST_ROUNDS = 4  # of reading, each with the folders that the last one has found
# Names that say whether something is there.
_PRESENCE = re.compile(r"available|installed|find_spec|device_count|^_?(has|have)_|(^|_)(cuda|gpu)(_|$)", re.IGNORECASE)
_CAUGHT = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}


@dataclass(frozen=True)
class Imported:
    """A module from elsewhere, by its whole name, and where the repository imports it: `file:line`.

    `left_out`: it would be in a folder of the repository that is empty, as the folders of git submodules are.
    """

    name: str
    place: str
    left_out: bool = False


class Survey(NamedTuple):
    """The imports of a repository's code.

    `folders` are on `sys.path` besides its root, by its own doing; `unclear`: there may be more.  `provided` are
    modules that its code puts into `sys.modules` itself.
    """

    imports: tuple[Imported, ...] = ()
    folders: tuple[Path, ...] = ()
    unclear: bool = False
    provided: frozenset[str] = frozenset()


def read(root: Path) -> tuple[Imported, ...]:
    """Return the first import of every foreign top-level module; what cannot be read or followed is left out."""
    return survey(root).imports


def survey(root: Path) -> Survey:
    """Read the code that a hubconf leads to, again where it has put more folders on `sys.path`."""
    known: list[Path] = []
    parsed: dict[Path, tuple[ast.Module, bytes]] = {}
    for _ in range(_MOST_ROUNDS):
        walk = _Walk(root, known, parsed)
        walk.run()
        found = walk.reader.search
        if len(found) == len(known):
            break
        known = found
    path = walk.reader.search_path
    return Survey(tuple(walk.found.values()), tuple(found[1:]), path.unclear, frozenset(path.modules))


class _Walk:
    """The modules that a hubconf leads to, and of their functions and classes those that are named on the way."""

    def __init__(self, root: Path, folders: Sequence[Path], parsed: dict[Path, tuple[ast.Module, bytes]]) -> None:
        self.root = root
        self.reader = Reader(root, folders, parsed)
        self.found: dict[str, Imported] = {}
        self.pending: list[Path] = []
        self.seen: set[Path] = set()
        self.defined: dict[str, list[tuple[Module, ast.stmt]]] = {}
        self.named: set[str] = set()
        self.called: set[str] = set()
        self.deferred: set[Path] = set()  # reached by what a function imports

    def run(self) -> None:
        """Go on until nothing new is reached."""
        self.reach(self.root / "hubconf.py")
        while self.pending or self.waiting():
            if self.pending:
                self.enter(self.pending.pop(0))
            else:
                self.call(self.waiting().pop())
        self.reader.search_path.retry()

    def waiting(self) -> set[str]:
        """Names of definitions that are used and have not been looked into."""
        return (self.named - self.called) & self.defined.keys()

    def reach(self, *files: Path) -> None:
        """Read these files too."""
        for file in files:
            if file not in self.seen:
                self.seen.add(file)
                self.pending.append(file)

    def enter(self, file: Path) -> None:
        """Follow what a module does when it is imported; of the hubconf, what its functions do too."""
        own = file == self.root / "hubconf.py"
        try:
            module = self.reader.load(file)
            for node in _imports(module.tree.body, own):
                self.follow(module, node, foreign=True)
        except (HubError, OSError, RecursionError):
            return
        for statement in module.tree.body:
            if isinstance(statement, ast.FunctionDef | ast.ClassDef):
                self.defined.setdefault(statement.name, []).append((module, statement))
                self.called.discard(statement.name)
                if own:
                    self.named.add(statement.name)
            elif not (isinstance(statement, ast.If) and never_runs(statement.test)):
                self.note(module, statement)

    def call(self, name: str) -> None:
        """Follow what a function or a class may do: the modules that it imports are reached, if they are the
        repository's."""
        self.called.add(name)
        for module, definition in self.defined[name]:
            self.note(module, definition)
            runs = definition.body if isinstance(definition, ast.FunctionDef) else _initializer(definition)
            for node in _imports(runs, False):
                self.follow(module, node, foreign=True)
            for one in _unguarded([definition]):
                before = set(self.seen)
                self.follow(module, one, foreign=False)
                self.deferred |= self.seen - before

    def note(self, module: Module, node: ast.AST) -> None:
        """The names that code uses: its own, those it imports, and attributes of modules."""
        nodes = list(ast.walk(node))
        modules = {name for name, (value, _) in module.names.items() if isinstance(value, ModuleRef | ImportedName)}
        for one in nodes:
            if isinstance(one, ast.alias):
                self.named.add(one.name)
                modules.add(one.asname or one.name)
            elif isinstance(one, ast.Name):
                self.named.add(one.id)
        for one in nodes:
            if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name | ast.Attribute):
                owner = one.value.id if isinstance(one.value, ast.Name) else one.value.attr
                if owner in modules or ast.unparse(one.value) in modules:
                    self.named.add(one.attr)

    def follow(self, module: Module, node: ast.Import | ast.ImportFrom, foreign: bool) -> None:
        """Follow an import to the files that it reaches; `foreign` ones are recorded."""
        place = f"{module.file.relative_to(self.root).as_posix()}:{node.lineno}"
        for name, target in _targets(self.reader, module, node):
            if foreign and (empty := self.left_out(module, name, node)) is not None:
                self.found.setdefault(empty, Imported(empty, place, left_out=True))
                continue
            if target is not None:
                self.reach(*_files(self.root, target))
                continue
            top = name.partition(".")[0]
            exported = module.file in self.deferred and top in _OTHER_FRAMEWORKS
            foreign_name = top and top != "torch" and top not in sys.stdlib_module_names and not exported
            if foreign and foreign_name and not (isinstance(node, ast.ImportFrom) and node.level):
                self.found.setdefault(top, Imported(name, place))

    def left_out(self, module: Module, name: str, node: ast.Import | ast.ImportFrom) -> str | None:
        """Return the module name, from a folder of the search path on, of the empty folder that an import leads
        into."""
        level = node.level if isinstance(node, ast.ImportFrom) else 0
        bases = self.reader.search
        if level:
            bases = [module.file.parents[level - 1]] if level <= len(module.file.parents) else []
        parts = name.split(".") if name else []
        if isinstance(node, ast.ImportFrom) and (level or node.module):
            parts = [*(node.module.split(".") if node.module else []), node.names[0].name]
        empty = inside_left_out(self.root, bases, parts)
        if empty is None or (not level and source_files.installed(parts[0])):
            return None
        above = next(one for one in (*bases[::-1], self.root) if empty.is_relative_to(one))
        return ".".join(empty.relative_to(self.root if level else above).parts)


def _targets(reader: Reader, module: Module, node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, Path | None]]:
    """Each module that a statement imports, with its file in the repository."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.name, reader.find_import(module, alias.name, 0)
        return
    target = reader.find_import(module, node.module or "", node.level)
    yield node.module or "", target
    if target is not None and (target.is_dir() or target.name == "__init__.py"):
        folder = target if target.is_dir() else target.parent
        for alias in node.names:  # `from package import module`
            if alias.name != "*" and (inner := source_files.find(folder, [alias.name])) is not None:
                yield alias.name, inner


def _files(root: Path, target: Path) -> Iterator[Path]:
    """Yield the files that importing `target` runs: the files of the packages around it first."""
    around = [folder / "__init__.py" for folder in target.parents if folder.is_relative_to(root) and folder != root]
    yield from (file for file in reversed(around) if file.is_file())
    if target.is_file():
        yield target


def _imports(body: Sequence[ast.stmt], inside: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the import statements that run, and that nothing would catch; `inside`: statements in functions too."""
    for node in body:
        if _returns_without(node):
            return
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.ClassDef) or (isinstance(node, ast.With) and not _suppresses(node)):
            yield from _imports(node.body, inside)
        elif isinstance(node, ast.FunctionDef) and inside:
            yield from _imports(node.body, False)
        elif isinstance(node, ast.Try) and not any(_catches(handler) for handler in node.handlers):
            yield from _imports([*node.body, *node.finalbody], inside)
        elif isinstance(node, ast.If) and isinstance(node.test, ast.Constant) and not never_runs(node.test):
            yield from _imports(node.body, inside)


def _unguarded(body: Sequence[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the import statements in a body and the functions in it, but those that are optional.

    Optional is what catches its own failure, and what runs only where something is there: a GPU, a package.
    """
    for node in body:
        if _returns_without(node):
            return
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.Try | ast.TryStar):
            if not any(_catches(handler) for handler in node.handlers):
                yield from _unguarded([*node.body, *node.orelse])
            for handler in node.handlers:
                yield from _unguarded(handler.body)
            yield from _unguarded(node.finalbody)
        elif isinstance(node, ast.With) and _suppresses(node):
            continue
        elif isinstance(node, ast.If):
            if not (never_runs(node.test) or _asks_what_is_there(node.test)):
                yield from _unguarded(node.body)
            if not (isinstance(node.test, ast.UnaryOp) and _asks_what_is_there(node.test.operand)):
                yield from _unguarded(node.orelse)
        else:
            for name in ("body", "orelse"):
                inner = getattr(node, name, None)
                yield from _unguarded(inner) if isinstance(inner, list) else ()
            if isinstance(node, ast.Match):
                for case in node.cases:
                    yield from _unguarded(case.body)


def _asks_what_is_there(test: ast.expr) -> bool:
    """`torch.cuda.is_available()`, `HAS_APEX`, `find_spec("x") is not None`; not its negation."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return False
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is | ast.Eq):
        return False  # `find_spec("x") is None`
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or):
        return all(_asks_what_is_there(one) for one in test.values)
    if isinstance(test, ast.BoolOp):
        return any(_asks_what_is_there(one) for one in test.values)
    names = (last_name(one) for one in ast.walk(test) if isinstance(one, ast.Name | ast.Attribute))
    return any(_PRESENCE.search(name) for name in names)


def _returns_without(node: ast.stmt) -> bool:
    """`if not torch.cuda.is_available(): return ...`: what follows is optional."""
    if not (isinstance(node, ast.If) and isinstance(node.test, ast.UnaryOp) and isinstance(node.test.op, ast.Not)):
        return False
    return _asks_what_is_there(node.test.operand) and isinstance(node.body[-1], ast.Return)


def _initializer(node: ast.stmt) -> list[ast.stmt]:
    """Return what making an object of a class runs."""
    body = node.body if isinstance(node, ast.ClassDef) else []
    return [one for made in body if isinstance(made, ast.FunctionDef) and made.name == "__init__" for one in made.body]


def _suppresses(node: ast.With) -> bool:
    """`with contextlib.suppress(ImportError):`"""
    calls = [item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call)]
    given = [one for call in calls if last_name(call.func) == "suppress" for one in call.args]
    return any(isinstance(one, ast.Name) and one.id in _CAUGHT for one in given)


def _catches(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(isinstance(kind, ast.Name) and kind.id in _CAUGHT for kind in kinds)
