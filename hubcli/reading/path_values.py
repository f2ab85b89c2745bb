"""Works out the values of path expressions: `os.path.join(os.path.dirname(__file__), "src")`, `Path(__file__).parent`.

A name may have been bound in several places, so an expression has several values; all are followed, up to a limit.
Strings, `pathlib` paths, numbers and sequences of them are known, and the repository's own functions that return such.
What depends on the environment, the user's arguments or anything else raises Unclear.
"""

from __future__ import annotations

import ast
import fnmatch
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hubcli.reading import bindings
from hubcli.reading.bindings import Binding, Function
from hubcli.reading.interpret import Unclear
from hubcli.reading.values import Module

if TYPE_CHECKING:
    from hubcli.reading.names import Reader

MAX_VALUES = 64  # of one expression
MAX_ENTRIES = 400  # of a folder that is listed
MAX_STEPS = 40_000  # of one repository
_MAX_DEPTH = 24
_STRING_METHODS = frozenset(
    "format join lower lstrip partition removeprefix removesuffix replace rpartition rsplit rstrip split strip upper "
    "startswith endswith".split()
)
_PATHS = ("pathlib.Path", "pathlib.PurePath", "pathlib.PosixPath", "pathlib.PurePosixPath")
_SAME = ("list", "tuple", "set", "frozenset", "sorted", "reversed", "dict.fromkeys")
_TEXT = (
    "str",
    "os.fspath",
    "os.fsdecode",
    "os.path.abspath",
    "os.path.realpath",
    "os.path.normpath",
    "os.path.expanduser",
    "os.path.expandvars",
    "os.path.normcase",
)
_SAME_PATH = frozenset("resolve absolute expanduser as_posix __str__ __fspath__".split())
_OWN_FILE = ("inspect.getfile", "inspect.getsourcefile", "inspect.getabsfile")


class Scope(NamedTuple):
    """The scope of an expression: its module, the functions around it, and the arguments that are known of them."""

    module: Module
    functions: tuple[Function, ...] = ()
    given: Mapping[str, tuple[Any, ...]] = {}


class OwnFile(NamedTuple):
    """A module of the repository as a value: `pkg` in `pkg.__file__`."""

    file: Path


class PathValues:
    """Evaluates path expressions of one repository's modules."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self._bound: dict[int, dict[str, list[Binding]]] = {}
        self._aliases: dict[Path, dict[str, str]] = {}
        self._before: dict[int, int] = {}  # of the bindings of a name, those that count while one of them is worked out
        self._depth = 0
        self._steps = 0

    def _spend(self, steps: int = 1) -> None:
        """Count work: beyond the limit nothing is clear, and reading goes on without."""
        self._steps += steps
        if self._steps > MAX_STEPS:
            raise Unclear("too much")

    # Names

    def dotted(self, node: ast.AST, module: Module) -> str:
        """`os.path.join` for `osp.join`, `join`, `os.path.join`, whatever the module has imported it as; else ""."""
        if isinstance(node, ast.Name):
            return self.aliases(module).get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            owner = self.dotted(node.value, module)
            return f"{owner}.{node.attr}" if owner else ""
        return ""

    def aliases(self, module: Module) -> dict[str, str]:
        """Return what each name that the module imports, or gives another name at its top, stands for."""
        known = self._aliases.get(module.file)
        if known is None:
            known = self._aliases[module.file] = {}
            for node in ast.walk(module.tree):
                if isinstance(node, ast.Import):
                    known.update((one.asname, one.name) for one in node.names if one.asname)
                elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                    known.update((one.asname or one.name, f"{node.module}.{one.name}") for one in node.names)
            for statement in module.tree.body:
                if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Name | ast.Attribute):
                    dotted = self.dotted(statement.value, module)
                    for target in statement.targets:
                        if isinstance(target, ast.Name) and dotted.startswith(("os.", "sys.", "pathlib.", "site.")):
                            known.setdefault(target.id, dotted)
        return known

    def _bindings(self, body: ast.AST) -> dict[str, list[Binding]]:
        """Return what each name of a module or function is bound to; True: to an item of it."""
        known = self._bound.get(id(body))
        if known is not None:
            return known
        known = self._bound[id(body)] = bindings.of(body)
        return known

    def _named(self, node: ast.Name, scope: Scope) -> Iterator[Any]:
        name, module = node.id, scope.module
        if name in scope.given:
            yield from scope.given[name]
            return
        for function in scope.functions:
            if bound := self._bindings(function).get(name):
                yield from self._all(bound, scope)
                return
            if name in {one.arg for one in bindings.parameters(function)}:
                yield from self._argument(function, name, scope)
                return
        if name == "__file__":
            yield str(module.file)
        elif name == "__path__":
            yield [str(module.file.parent)]
        elif bound := self._bindings(module.tree).get(name):
            yield from self._all(bound, Scope(module))
        elif (dotted := self.dotted(node, module)) != name and not dotted.startswith(f"{name}."):
            yield from self._foreign(dotted, module)
        else:
            yield from self._own_module(name, module)

    def _all(self, bound: Sequence[Binding], scope: Scope) -> Iterator[Any]:
        """Yield the values of every binding that is clear; Unclear where none is.

        Where a name is bound to something made of itself, those bindings that stand before count there.
        """
        clear = False
        outer = self._before.get(id(bound))
        for at, (expression, item) in enumerate(bound[:outer]):
            self._before[id(bound)] = at
            try:
                found = self.values(expression, scope)
            except Unclear:
                continue
            finally:
                if outer is None:
                    del self._before[id(bound)]
                else:
                    self._before[id(bound)] = outer
            for value in found:
                clear = True
                yield from islice(value, MAX_ENTRIES) if item and _is_sequence(value) else [value]
        if not clear:
            raise Unclear("no clear value")

    def _argument(self, function: Function, name: str, scope: Scope) -> Iterator[Any]:
        """Yield what the calls of a function give for a parameter, wherever they stand, and its default."""
        clear = False
        if (default := bindings.default_of(function, name)) is not None:
            with_default = self.values(default, Scope(scope.module))
            clear = True
            yield from with_default
        called = getattr(function, "name", None)
        for call, where in self.reader.search_path.calls(called) if called else ():
            given = bindings.argument_values(function, call).get(name)
            if given is not None:
                try:
                    for value in self.values(given, where):
                        clear = True
                        yield value
                except Unclear:
                    continue
        if not clear:
            raise Unclear(name)

    def _foreign(self, dotted: str, module: Module) -> Iterator[Any]:
        """`from config import ROOT`, and names of the standard library that are paths."""
        constant = {"os.sep": "/", "os.path.sep": "/", "os.curdir": ".", "os.pardir": "..", "os.path.pardir": ".."}
        if dotted in constant:
            yield constant[dotted]
            return
        if dotted == "sys.path":
            yield [str(self.reader.root)]
            return
        if dotted == "sys.argv":
            yield [str(self.reader.root / "hubconf.py")]
            return
        owner, _, name = dotted.rpartition(".")
        target = self.reader.find_import(module, owner, 0) if owner else None
        if target is not None and target.is_file() and target != module.file:
            other = self.reader.load(target)
            yield from self._named(ast.Name(name, ast.Load()), Scope(other))
            return
        yield from self._own_module(dotted, module)

    def _own_module(self, name: str, module: Module) -> Iterator[Any]:
        target = self.reader.find_import(module, name, 0) if name else None
        if target is None:
            raise Unclear(name)
        yield OwnFile(target if target.is_file() else target / "__init__.py")

    # Expressions

    def values(self, node: ast.expr, scope: Scope) -> list[Any]:
        """Return the values that an expression may have, each once; raises Unclear."""
        self._spend()
        method = getattr(self, "_" + type(node).__name__.lower(), None)
        if method is None or self._depth >= _MAX_DEPTH:
            raise Unclear(type(node).__name__)
        self._depth += 1
        found: list[Any] = []
        try:
            for value in islice(method(node, scope), MAX_VALUES):
                if value not in found:
                    found.append(value)
        except (TypeError, ValueError, LookupError, AttributeError, OSError) as error:
            raise Unclear(str(error)) from None
        finally:
            self._depth -= 1
        return found

    def _each(self, nodes: Iterable[ast.expr], scope: Scope) -> Iterator[tuple[Any, ...]]:
        return islice(product(*(self.values(one, scope) for one in nodes)), MAX_VALUES)

    _name = _named

    def _constant(self, node: ast.Constant, scope: Scope) -> Iterator[Any]:
        yield node.value

    def _joinedstr(self, node: ast.JoinedStr, scope: Scope) -> Iterator[str]:
        inner = [one.value if isinstance(one, ast.FormattedValue) else one for one in node.values]
        for parts in self._each(inner, scope):
            yield "".join(map(str, parts))

    def _list(self, node: ast.List | ast.Tuple | ast.Set, scope: Scope) -> Iterator[list[Any]]:
        """Yield a sequence of everything that its elements may be: those that are unclear are left out."""
        found: list[Any] = []
        for one in node.elts:
            try:
                values = self.values(one.value if isinstance(one, ast.Starred) else one, scope)
            except Unclear:
                continue
            for value in values:
                found += value if isinstance(one, ast.Starred) and _is_sequence(value) else [value]
        if node.elts and not found:
            raise Unclear("elements")
        yield found

    _tuple = _set = _list

    def _listcomp(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp, scope: Scope) -> Iterator[list[Any]]:
        given = dict(scope.given)
        for part in node.generators:
            bound: dict[str, list[Binding]] = {}
            bindings.bind(bound, part.target, part.iter, item=True)
            for name, sources in bound.items():
                given[name] = tuple(self._all(sources, scope._replace(given=given)))
        yield self.values(node.elt, scope._replace(given=given))

    _generatorexp = _setcomp = _listcomp

    def _ifexp(self, node: ast.IfExp, scope: Scope) -> Iterator[Any]:
        yield from self._all([(node.body, False), (node.orelse, False)], scope)

    def _boolop(self, node: ast.BoolOp, scope: Scope) -> Iterator[Any]:
        yield from self._all([(one, False) for one in node.values], scope)

    def _namedexpr(self, node: ast.NamedExpr, scope: Scope) -> Iterator[Any]:
        yield from self.values(node.value, scope)

    def _binop(self, node: ast.BinOp, scope: Scope) -> Iterator[Any]:
        for left, right in self._each([node.left, node.right], scope):
            if isinstance(node.op, ast.Div):
                yield Path(left) / str(right)
            elif isinstance(node.op, ast.Add):
                yield [*left, *right] if _is_sequence(left) or _is_sequence(right) else left + right
            elif isinstance(node.op, ast.Mod) and isinstance(left, str):
                yield left % (tuple(right) if isinstance(right, list) else right)
            elif isinstance(node.op, ast.Sub) and isinstance(left, int):
                yield left - right
            else:
                raise Unclear("operator")

    def _unaryop(self, node: ast.UnaryOp, scope: Scope) -> Iterator[Any]:
        for value in self.values(node.operand, scope):
            if not (isinstance(node.op, ast.USub) and isinstance(value, int)):
                raise Unclear("operator")
            yield -value

    def _subscript(self, node: ast.Subscript, scope: Scope) -> Iterator[Any]:
        if isinstance(node.value, ast.Attribute) and node.value.attr == "parents":
            for value, index in self._each([node.value.value, node.slice], scope):
                yield Path(value).parents[index]
            return
        if self.dotted(node.value, scope.module) == "sys.modules":
            yield OwnFile(scope.module.file)  # sys.modules[__name__]
            return
        owners = self.values(node.value, scope)
        if isinstance(node.slice, ast.Slice):
            yield from owners  # whichever part of it
            return
        for owner, index in product(owners, self.values(node.slice, scope)):
            yield owner[index]

    def _attribute(self, node: ast.Attribute, scope: Scope) -> Iterator[Any]:
        dotted = self.dotted(node, scope.module)
        if dotted.startswith(("os.", "sys.")):
            yield from self._foreign(dotted, scope.module)
            return
        if node.attr in ("parent", "parents", "name", "stem"):
            for value in self.values(node.value, scope):
                found = getattr(Path(value), node.attr)
                yield list(found) if node.attr == "parents" else found
            return
        try:
            owners = self.values(node.value, scope)
        except Unclear:
            if not dotted:
                raise
            yield from self._own_module(dotted, scope.module)
            return
        for owner in owners:
            if not isinstance(owner, OwnFile):
                raise Unclear(node.attr)
            if node.attr in ("__file__", "origin"):
                yield str(owner.file)
            elif node.attr == "__path__":
                yield [str(owner.file.parent)]
            elif node.attr == "__spec__":
                yield owner
            elif owner.file.is_file():
                yield from self._named(ast.Name(node.attr, ast.Load()), Scope(self.reader.load(owner.file)))
            else:
                raise Unclear(node.attr)

    def _call(self, node: ast.Call, scope: Scope) -> Iterator[Any]:
        dotted = self.dotted(node.func, scope.module)
        if dotted in _PATHS or dotted in ("os.path.join", "posixpath.join"):
            join: Callable[..., Any] = Path if dotted in _PATHS else os.path.join
            for parts in self._arguments(node.args, scope):
                made = join(*(str(one.file) if isinstance(one, OwnFile) else one for one in parts)) if parts else "."
                yield made
        elif dotted in _SAME and node.args:
            yield from self.values(node.args[0], scope)
        elif dotted in _TEXT and node.args:
            for value in self.values(node.args[0], scope):
                yield str(value.file if isinstance(value, OwnFile) else value)
        elif dotted in ("os.path.dirname", "os.path.basename", "os.path.split", "os.path.splitext"):
            for value in self.values(node.args[0], scope):
                found = getattr(os.path, dotted.rpartition(".")[2])(str(value))
                yield list(found) if isinstance(found, tuple) else found
        elif dotted in _OWN_FILE:
            yield str(scope.module.file)
        elif dotted in ("os.getcwd", "pathlib.Path.cwd"):
            yield os.getcwd() if dotted == "os.getcwd" else Path.cwd()
        elif dotted in ("os.environ.get", "os.getenv") and len(node.args) > 1:
            yield from self.values(node.args[1], scope)
        elif dotted in ("os.listdir", "os.scandir", "os.walk", "glob.glob", "glob.iglob"):
            for value in self.values(node.args[0], scope):
                yield self._listed(dotted, str(value))
        elif dotted in ("enumerate", "zip"):
            yield (
                [list(one) for one in zip(*(self.values(one, scope)[0] for one in node.args))]
                if (dotted == "zip")
                else [[at, one] for at, one in enumerate(self.values(node.args[0], scope)[0])]
            )
        elif dotted in ("map", "filter") and len(node.args) == 2:
            yield from self._mapped(node, scope)
        elif dotted == "next" and node.args:
            for value in self.values(node.args[0], scope):
                yield next(iter(value))
        else:
            yield from self._method(node, scope)

    def _arguments(self, nodes: Sequence[ast.expr], scope: Scope) -> Iterator[list[Any]]:
        """Yield the arguments of a call, `*parts` as parts."""
        for values in self._each([one.value if isinstance(one, ast.Starred) else one for one in nodes], scope):
            made: list[Any] = []
            for value, one in zip(values, nodes):
                made += value if isinstance(one, ast.Starred) else [value]
            yield made

    def _mapped(self, node: ast.Call, scope: Scope) -> Iterator[list[Any]]:
        function, items = node.args
        if self.dotted(node.func, scope.module) == "filter" or self.dotted(function, scope.module) in (*_SAME, *_TEXT):
            yield from self.values(items, scope)
            return
        found = []
        for sequence in self.values(items, scope):
            for item in islice(sequence, MAX_ENTRIES):
                made = ast.Call(function, [ast.Constant(item)], [])
                found += self.values(made, scope)
        yield found

    def _method(self, node: ast.Call, scope: Scope) -> Iterator[Any]:
        """Yield a method of a string or a path, or one of the repository's own functions."""
        own = self.reader.search_path.function(node.func, scope)
        if own is not None:
            yield from self._returned(*own, node, scope)
            return
        if not isinstance(node.func, ast.Attribute):
            raise Unclear("call")
        name = node.func.attr
        for owner in self.values(node.func.value, scope):
            if name in _SAME_PATH and isinstance(owner, Path | str):
                yield owner if isinstance(owner, Path) and name[0] != "_" else str(owner)
            elif isinstance(owner, Path) and name in ("joinpath", "with_name", "relative_to"):
                for parts in self._arguments(node.args, scope):
                    yield getattr(owner, name)(*parts)
            elif isinstance(owner, Path) and name in ("iterdir", "glob", "rglob"):
                patterns = [str(one) for one in self.values(node.args[0], scope)] if node.args else ["*"]
                folders = self._below(owner) if name == "rglob" else [owner]
                yield [made for folder in folders for made in self._entries(folder, patterns)]
            elif isinstance(owner, str) and name in _STRING_METHODS:
                for parts in self._arguments(node.args, scope):
                    found = getattr(owner, name)(*map(_text, parts))
                    yield list(found) if isinstance(found, tuple) else found
            elif isinstance(owner, list) and name in ("copy", "keys", "values"):
                yield owner
            else:
                raise Unclear(name)

    def _returned(self, function: Function, module: Module, call: ast.Call, scope: Scope) -> Iterator[Any]:
        """Yield what a function returns for the arguments of a call."""
        given: dict[str, tuple[Any, ...]] = {}
        for name, node in bindings.argument_values(function, call).items():
            try:
                given[name] = tuple(self.values(node, scope))
            except Unclear:
                continue
        inner = Scope(module, (function,), given)
        if isinstance(function, ast.Lambda):
            yield from self.values(function.body, inner)
            return
        results = [
            one.value for one in bindings.own_nodes(function) if isinstance(one, ast.Return) and one.value is not None
        ]
        yield from self._all([(one, False) for one in results], inner)

    # Folders of the repository

    def _listed(self, dotted: str, path: str) -> list[Any]:
        if dotted.startswith("glob."):
            folder, pattern = os.path.split(path)
            folders = [Path(folder)]
            if "*" in folder:
                above, _, _ = folder.partition("*")
                folders = list(self._below(Path(os.path.dirname(above))))
            return [str(one) for each in folders for one in self._entries(each, [pattern])]
        if dotted == "os.walk":
            return [
                [str(one), [each.name for each in self._entries(one, ["*"]) if each.is_dir()], []]
                for one in self._below(Path(path))
            ]
        found = self._entries(Path(path), ["*"])
        return [one.name for one in found] if dotted == "os.listdir" else list(found)

    def _entries(self, folder: Path, patterns: Sequence[str]) -> list[Path]:
        if not self._inside(folder):
            raise Unclear("outside the repository")
        last = [one.rstrip("/").rpartition("/")[2] for one in patterns]
        with os.scandir(folder) as found:
            names = sorted(one.name for one in islice(found, MAX_ENTRIES))
        self._spend(len(names))
        return [folder / name for name in names if any(fnmatch.fnmatch(name, one) for one in last)]

    def _below(self, folder: Path) -> Iterator[Path]:
        """Yield a folder and those below it, hidden ones left out."""
        if not self._inside(folder):
            raise Unclear("outside the repository")
        for count, (parent, folders, _) in enumerate(os.walk(folder)):
            if count >= MAX_ENTRIES:
                return
            folders[:] = sorted(one for one in folders if not one.startswith("."))
            self._spend(1 + len(folders))
            yield Path(parent)

    def _inside(self, folder: Path) -> bool:
        return Path(os.path.normpath(folder)).is_relative_to(self.reader.root)


def _is_sequence(value: Any) -> bool:
    return isinstance(value, list | tuple) and not isinstance(value, OwnFile)


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value
