"""Follows the names of a repository's modules through its files, by their `ast` alone.

`hubconf.read` asks what each name of `hubconf.py` stands for; here are the statements that bind
names, the files that imports lead to, and the expressions that stand for something callable.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from hubcli.errors import RepositoryCodeError
from hubcli.reading import project, source_files
from hubcli.reading.calls import Calls, last_name, unclear
from hubcli.reading.dynamic import changed_names, fills_namespace, is_namespace, may_change_search_path, never_runs
from hubcli.reading.interpret import Interpreter, Unclear
from hubcli.reading.loops import Loops
from hubcli.reading.values import (
    Class,
    Data,
    External,
    Function,
    Imported,
    Maybe,
    Module,
    ModuleRef,
    Unknown,
    Value,
    as_value,
)

if TYPE_CHECKING:
    from hubcli.reading.search_path import SearchPath

# Ceilings far above what real repositories need; a hostile one meets them within seconds.
MAX_TOTAL_BYTES = 4 * 1024 * 1024
MAX_MODULES = 400
MAX_STEPS = 300_000


class Reader:
    """Follows names through the files of one repository."""

    def __init__(
        self, root: Path, folders: Sequence[Path] = (), parsed: dict[Path, tuple[ast.Module, bytes]] | None = None
    ) -> None:
        """`folders` are known to be on `sys.path`, too; `parsed` is what another reader has parsed of the files."""
        self.root = root
        self._parsed = {} if parsed is None else parsed
        self.search = list(dict.fromkeys([root, *project.read(root).sources, *folders]))
        self.modules: dict[Path, Module] = {}
        self._unread: list[Path] = []  # modules that others import, and nothing has asked for
        self.bytes = 0
        self.steps = 0
        self._methods: dict[int, dict[str, ast.FunctionDef | ast.AsyncFunctionDef]] = {}
        self._mutated: dict[Path, set[str]] = {}
        self.nesting = 0  # of expressions that are worked out
        self._calls = Calls(self)
        self._loops = Loops(self)

    @cached_property
    def search_path(self) -> SearchPath:
        """Return what the modules that have been read do to `sys.path`."""
        from hubcli.reading.search_path import SearchPath  # for start-up: most repositories leave the list alone

        return SearchPath(self)

    def spend(self, steps: int = 1) -> None:
        """Count work, so that no code takes more than a few seconds to read."""
        self.steps += steps
        if self.steps > MAX_STEPS:
            raise source_files.unreadable("hubconf.py", 1, "too much code to follow without running it")

    # Files

    def load(self, file: Path) -> Module:
        """Return the module in `file`, scanned (or being scanned, as Python sees a cycle)."""
        module = self.modules.get(file)
        if module is None:
            if file not in self._parsed:
                self._parsed[file] = self._parse(file)
            tree, source = self._parsed[file]
            module = Module(file, tree)
            self.modules[file] = module
            changes = may_change_search_path(source)
            if changes:
                self.search_path.read(module)
            self._scan(module, module.tree.body, conditional=False)
            if changes and self.search_path.retry():  # what its functions or other modules say of a folder
                self._scan(module, module.tree.body, conditional=False)
            if fills_namespace(module.tree, module.handled, module.own):
                module.dynamic = True
        return module

    def _parse(self, file: Path) -> tuple[ast.Module, bytes]:
        shown = self._shown(file)
        info = file.stat()
        self.bytes += info.st_size
        too_much = self.bytes > MAX_TOTAL_BYTES or len(self.modules) >= MAX_MODULES
        return source_files.parse(file, shown, info, too_much)

    def _shown(self, file: Path) -> str:
        return file.relative_to(self.root).as_posix()

    def find_import(self, module: Module, name: str, level: int) -> Path | None:
        """Return the file or bare folder in the repository that an import in `module` means; None: it leads outside."""
        parts = name.split(".") if name else []
        if level:
            base = module.file.parent
            for _ in range(level - 1):
                base = base.parent
            if not base.is_relative_to(self.root):
                return None
            if not parts:
                package = base / "__init__.py"
                return package if package.is_file() else base
            return source_files.find(base, parts)
        if parts[0] == "torch":
            return None
        for base in self.search:
            found = source_files.find(base, parts)
            # A bare folder is a package only where no installed one has its name.
            if found is not None and (found.is_file() or not source_files.installed(parts[0])):
                if found.is_file() and found not in self.modules:
                    self._unread.append(found)
                return found
        if (
            self._unread
            and parts[0] not in sys.stdlib_module_names
            and not source_files.installed(parts[0])
            and self._widen()
        ):
            return self.find_import(module, name, level)
        return None

    def _widen(self) -> bool:
        """Read the modules imported so far that change `sys.path`; whether that has added a folder."""
        before = len(self.search)
        pending, self._unread = self._unread, []
        for file in dict.fromkeys(pending):
            with contextlib.suppress(RepositoryCodeError, OSError):
                if file not in self.modules and may_change_search_path(
                    file.read_bytes()[: source_files.MAX_FILE_BYTES]
                ):
                    self.load(file)
        return len(self.search) > before

    # Names

    def lookup(self, target: Path, name: str) -> Value:
        """Attribute `name` of the module in `target`: a name it binds, else a sub-module."""
        if target.is_file():
            bound = self.load(target).names.get(name)
            if bound is not None:
                return bound[0]
        if target.is_dir() or target.name == "__init__.py":
            folder = target if target.is_dir() else target.parent
            found = source_files.find(folder, [name])
            if found is not None:
                return ModuleRef(found)
        return Unknown()

    def resolve(self, value: Value) -> Value:
        """Follow imports to what they stand for; a cycle stands for nothing known."""
        seen = set()
        while isinstance(value, Imported):
            if value in seen:
                return Unknown()
            seen.add(value)
            try:
                value = self.lookup(value.target, value.name)
            except RepositoryCodeError:
                return Unknown()  # a broken module says nothing of the names taken from it
        return value

    def evaluate(self, node: ast.expr, module: Module, scope: Mapping[str, Value] | None = None) -> Value:
        """Return what an expression means, as far as that is known; `scope` holds a function's own names."""
        self.spend()
        if isinstance(node, ast.Lambda):
            return Function(node, module)
        if isinstance(node, ast.Name):
            return self._named(node.id, module, scope)
        if isinstance(node, ast.Attribute):
            return self.attribute(self.resolve(self.evaluate(node.value, module, scope)), node.attr)
        if isinstance(node, ast.Call):
            return self._calls.value(node, module, scope)
        if isinstance(node, ast.Subscript):
            return self._subscript(node, module, scope)
        if isinstance(node, ast.IfExp | ast.BoolOp):
            options = [node.body, node.orelse] if isinstance(node, ast.IfExp) else node.values
            found = [self.evaluate(option, module, scope) for option in options]
            return next((one for one in found if not isinstance(one, Data | Maybe)), unclear(found) or Data(node))
        if isinstance(node, ast.Await | ast.NamedExpr | ast.Yield | ast.YieldFrom):
            return Maybe()
        return Data(node)

    def _named(self, name: str, module: Module, scope: Mapping[str, Value] | None) -> Value:
        if scope is not None and name in scope:
            return scope[name]
        if name in module.names:
            return module.names[name][0]
        if hasattr(builtins, name):
            return External(f"builtins.{name}")
        return Maybe() if module.dynamic else Data()

    def _subscript(self, node: ast.Subscript, module: Module, scope: Mapping[str, Value] | None) -> Value:
        owner = self.resolve(self.evaluate(node.value, module, scope))
        if isinstance(owner, External):  # List[int], Callable[..., None]
            generic = owner.dotted.startswith(("typing.", "collections.abc.", "builtins."))
            return owner if generic else Maybe()
        if isinstance(owner, Class) and not owner.instance:
            return owner
        try:
            found = Interpreter(self, module).evaluate(node, scope or {})
        except Unclear:
            return Maybe()
        return found if isinstance(found, Value) else Data(node)

    def attribute(self, value: Value, name: str) -> Value:
        """Attribute `name` of what a name stands for."""
        if isinstance(value, ModuleRef):
            return self.lookup(value.target, name)
        if isinstance(value, External):
            return External(f"{value.dotted}.{name}")
        if isinstance(value, Class):
            item = self.methods(value.node).get(name)
            if item is not None:
                kinds = {last_name(decorator) for decorator in item.decorator_list}
                if "property" in kinds and value.instance:
                    return Maybe()
                bound = "classmethod" in kinds or (value.instance and "staticmethod" not in kinds)
                return Function(item, value.module, bound=int(bound))
            for node in value.node.body:
                if isinstance(node, ast.Assign) and any(
                    isinstance(one, ast.Name) and one.id == name for one in node.targets
                ):
                    return self.resolve(self.evaluate(node.value, value.module))
            return Maybe() if value.node.bases or value.instance else Data()
        return Maybe() if isinstance(value, Maybe | Unknown) else Data()

    def methods(self, node: ast.ClassDef) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
        """Return the functions in a class body, by name."""
        found = self._methods.get(id(node))
        if found is None:
            self.spend(len(node.body))
            found = {item.name: item for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)}
            self._methods[id(node)] = found
        return found

    def mutated(self, module: Module) -> set[str]:
        """Return the names of a module whose containers something changes after they were made."""
        known = self._mutated.get(module.file)
        if known is None:
            known = changed_names(module.tree)
            self._mutated[module.file] = known
        return known

    # Statements

    def _bind(self, module: Module, name: str, value: Value, source: str, maybe: bool) -> None:
        if maybe and isinstance(value, Data) and name in module.names:
            return  # `except ImportError: net = None` does not take the name away
        module.names[name] = (value, source)

    def _scan(self, module: Module, body: list[ast.stmt], *, conditional: bool) -> None:
        for node in body:
            self.statement(module, node, conditional)

    def statement(self, module: Module, node: ast.stmt, maybe: bool = False) -> None:
        """Follow one statement; `maybe`: it may not run."""
        self.spend()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self._bind(module, node.name, Function(node, module), "def", maybe)
        elif isinstance(node, ast.ClassDef):
            self._bind(module, node.name, Class(node, module), "def", maybe)
        elif isinstance(node, ast.Import):
            self._import(module, node, maybe)
        elif isinstance(node, ast.ImportFrom):
            self._import_from(module, node, maybe)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self._assign(module, target, node.value, maybe)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self._assign(module, node.target, node.value, maybe)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            self._extend(module, node.target.id, node.value)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            if not self._loops.call(module, node.value, {}):
                self._bare_call(module, node.value)
        elif isinstance(node, ast.Delete) and not maybe:
            for gone in node.targets:
                if isinstance(gone, ast.Name):
                    module.names.pop(gone.id, None)
        else:
            self._compound(module, node, maybe)

    def _compound(self, module: Module, node: ast.stmt, maybe: bool) -> None:
        while isinstance(node, ast.If):  # a loop: a chain of elif is as deep as it is long
            if not never_runs(node.test):
                self._scan(module, node.body, conditional=True)
            if len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
                node = node.orelse[0]
                continue
            self._scan(module, node.orelse, conditional=True)
            return
        if isinstance(node, ast.Try | ast.TryStar):
            self._scan(module, node.body, conditional=True)
            for handler in node.handlers:
                self._scan(module, handler.body, conditional=True)
            self._scan(module, node.orelse, conditional=True)
            self._scan(module, node.finalbody, conditional=maybe)
        elif isinstance(node, ast.With | ast.AsyncWith):
            for item in node.items:
                if item.optional_vars is not None:
                    self._assign(module, item.optional_vars, ast.Constant(value=None), maybe)
            self._scan(module, node.body, conditional=maybe)
        elif isinstance(node, ast.For) and self._loops.run(module, node):
            return
        elif isinstance(node, ast.For | ast.AsyncFor | ast.While):
            self._scan(module, node.body, conditional=True)
            self._scan(module, node.orelse, conditional=True)
        elif isinstance(node, ast.Match):
            for case in node.cases:
                self._scan(module, case.body, conditional=True)

    def _import(self, module: Module, node: ast.Import, maybe: bool) -> None:
        for alias in node.names:
            dotted = alias.name if alias.asname else alias.name.partition(".")[0]
            found = self.find_import(module, dotted, 0)
            value: Value = External(dotted, module=True) if found is None else ModuleRef(found)
            bound = alias.asname or dotted
            self._bind(module, bound, value, "import", maybe)

    def _import_from(self, module: Module, node: ast.ImportFrom, maybe: bool) -> None:
        found = self.find_import(module, node.module or "", node.level)
        for alias in node.names:
            if alias.name == "*":
                self._star(module, found, maybe)
                continue
            if found == module.file:  # `from . import x` in a package that is being read
                if alias.name in module.names:
                    continue
                inner = source_files.find(found.parent, [alias.name])
                value: Value = Unknown() if inner is None else ModuleRef(inner)
            elif found is None:
                dotted = "." * node.level + (node.module or "") + "." + alias.name
                value = External(dotted)
            else:
                value = Imported(found, alias.name)
                part = found.parent / f"{alias.name}.py" if found.name == "__init__.py" else found / f"{alias.name}.py"
                if part.is_file():
                    self._unread.append(part)
            self._bind(module, alias.asname or alias.name, value, "import", maybe)

    def _star(self, module: Module, found: Path | None, maybe: bool) -> None:
        if found is None or not found.is_file():
            module.dynamic = True
            return
        other = self.load(found)
        module.dynamic = module.dynamic or other.dynamic
        names = other.exported
        if names is None:
            names = [name for name in other.names if not name.startswith("_")]
        self.spend(len(names))
        for name in names:
            value = other.names[name][0] if name in other.names else self.lookup(found, name)
            if not isinstance(value, Unknown):
                self._bind(module, name, value, "star", maybe)
        if "dependencies" in names:
            module.dependencies = list(other.dependencies)

    def _assign(self, module: Module, target: ast.expr, node: ast.expr, maybe: bool) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            if isinstance(node, ast.Tuple | ast.List) and len(node.elts) == len(target.elts):
                for one, given in zip(target.elts, node.elts):
                    self._assign(module, one, given, maybe)
            else:
                self._unpack(module, target, node, maybe)
        elif isinstance(target, ast.Attribute) and target.attr == "__doc__":
            self._assign_doc(module, target.value, node)
        elif isinstance(target, ast.Subscript):
            self._loops.store(module, target, node, {})
        elif isinstance(target, ast.Name):
            if is_namespace(node, module.own):
                module.own.add(target.id)
            if target.id == "dependencies":
                found = self._strings(node, module, "dependencies")
                kept = module.dependencies if maybe else []
                module.dependencies = list(dict.fromkeys(kept + (found or [])))
                module.dynamic = module.dynamic or found is None
            if target.id == "__all__":
                module.exported = self._strings(node, module, "__all__")
                if module.exported is None and module.file != self.root / "hubconf.py":
                    module.dynamic = True
            value = self.evaluate(node, module)
            self._bind(module, target.id, value, "assign", maybe)

    def _unpack(self, module: Module, target: ast.Tuple | ast.List, node: ast.expr, maybe: bool) -> None:
        """`a, b = f()`: each of them as far as it is known."""
        interpreter = Interpreter(self, module)
        try:
            bound = dict(interpreter.bind(target, interpreter.evaluate(node, {})))
        except (Unclear, TypeError):
            bound = {one.id: Maybe() for one in ast.walk(target) if isinstance(one, ast.Name)}
        for name, value in bound.items():
            self._bind(module, name, as_value(value), "assign", maybe)

    def _assign_doc(self, module: Module, target: ast.expr, node: ast.expr) -> None:
        if (
            isinstance(target, ast.Name)
            and isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and target.id in module.names
        ):
            value, source = module.names[target.id]
            value = self.resolve(value)
            if isinstance(value, Function):
                module.names[target.id] = (value.but(doc=node.value), source)

    def _extend(self, module: Module, name: str, node: ast.expr) -> None:
        more = self._strings(node, module, name)
        if name == "dependencies":
            module.dependencies += more or []
            module.dynamic = module.dynamic or more is None
        elif name == "__all__" and module.exported is not None:
            module.exported += more or []

    def _bare_call(self, module: Module, node: ast.Call) -> None:
        """`__all__.append("x")`, `dependencies.extend([...])`."""
        if not isinstance(node.func, ast.Attribute) or not node.args:
            return
        owner, method = node.func.value, node.func.attr
        if isinstance(owner, ast.Name) and owner.id in ("__all__", "dependencies"):
            if method == "append":
                self._extend(module, owner.id, ast.List(elts=node.args[:1], ctx=ast.Load()))
            elif method == "extend":
                self._extend(module, owner.id, node.args[0])

    def _strings(self, node: ast.expr, module: Module, name: str) -> list[str] | None:
        """Return the strings of a literal list, of sums of such, or of another module's `name`."""
        self.spend(1 + len(module.dependencies) // 100)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return [node.value]
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            found: list[str] = []
            for item in node.elts:
                inner = item.value if isinstance(item, ast.Starred) else item
                more = self._strings(inner, module, name)
                if more is None:
                    return None
                found += more
            return found
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left = self._strings(node.left, module, name)
            right = self._strings(node.right, module, name)
            return None if left is None or right is None else left + right
        if isinstance(node, ast.Name | ast.Attribute):
            if isinstance(node, ast.Attribute):
                owner = self.resolve(self.evaluate(node.value, module))
                if isinstance(owner, ModuleRef) and owner.target.is_file():
                    other = self.load(owner.target)
                    if node.attr == "__all__":
                        return other.exported
                    node, module = ast.Name(id=node.attr, ctx=ast.Load()), other
            if isinstance(node, ast.Name) and node.id in module.names:
                value = self.resolve(module.names[node.id][0])
                if isinstance(value, Data) and isinstance(value.expression, ast.List | ast.Tuple):
                    return self._strings(value.expression, module, name)
        if isinstance(node, ast.Call) and last_name(node.func) in ("list", "tuple", "sorted") and not node.args:
            return []
        try:
            value = Interpreter(self, module).evaluate(node, {})
        except Unclear:
            return None
        plain = isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)
        return list(value) if plain else None

    def text(self, node: ast.expr) -> str:
        """Return an expression in the source's own words, or `...` where that would be long."""
        lines = (node.end_lineno or node.lineno) - node.lineno
        length = 80 * lines + (node.end_col_offset or 0) - node.col_offset
        self.spend(1 + min(abs(length), 400) // 20)
        if length > 400 or lines > 5:
            return "..."
        try:
            return ast.unparse(node)
        except RecursionError:
            return "..."
