"""The value of a call: an object of a class, what a function returns, a partial, a decorated function."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from hubcli.reading.externals import returns
from hubcli.reading.values import Class, Data, External, Function, Maybe, Module, ModuleRef, Unknown, Value

if TYPE_CHECKING:
    from hubcli.reading.names import Reader

_PARTIAL = {"functools.partial", "functools.partialmethod"}
# Bases whose objects cannot be called, unless the class says so itself.
_PLAIN_BASES = frozenset(
    "ABC BaseException BaseModel Enum Exception Generic IntEnum NamedTuple OrderedDict Path Protocol StrEnum TypedDict "
    "defaultdict dict float int list namedtuple object set str tuple".split()
)


class Calls:
    """Follows calls in the code of one repository."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self._depth = 0

    def value(self, node: ast.Call, module: Module, scope: Mapping[str, Value] | None) -> Value:
        """Return what a call stands for."""
        callee = self.reader.resolve(self.reader.evaluate(node.func, module, scope))
        arguments = [self.reader.resolve(self.reader.evaluate(argument, module, scope)) for argument in node.args[:8]]
        if isinstance(callee, External):
            return self._foreign(callee, node, module, arguments)
        if isinstance(callee, Class) and not callee.instance:
            return self._instance(callee, node)
        if isinstance(callee, Function):
            return self._returned(callee, node, arguments)
        given = [one for one in arguments if isinstance(one, Function)]
        if isinstance(callee, Maybe) and given:
            return given[0]  # decorator(options)(function)
        return Maybe() if isinstance(callee, Maybe | Unknown | Class) else Data(node)

    def _foreign(self, callee: External, node: ast.Call, module: Module, arguments: list[Value]) -> Value:
        if callee.dotted in _PARTIAL and arguments:
            return self._partial(arguments[0], node)
        if callee.dotted in ("importlib.import_module", "builtins.__import__") and node.args:
            name: ast.expr | None = node.args[0]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                found = self.reader.find_import(module, name.value.lstrip("."), int(name.value.startswith(".")))
                return External(name.value, module=True) if found is None else ModuleRef(found)
            return Data(node)  # a module, whichever
        if callee.dotted == "builtins.type":
            return External("builtins.type")
        if callee.dotted == "builtins.getattr" and arguments:
            name = node.args[1] if len(node.args) > 1 else None
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                return self.reader.attribute(arguments[0], name.value)
        kind = returns(callee.dotted)
        if kind == "callable":
            return External(f"{callee.dotted}.made")
        if kind == "argument":
            for value in arguments:
                if isinstance(value, Function) or (isinstance(value, Class) and not value.instance):
                    return value
        return Data(node) if kind == "data" else Maybe()

    def _instance(self, made: Class, node: ast.Call) -> Value:
        """Return an object of a class: callable where the class or a base of it says so."""
        current = made
        for _ in range(16):
            if self.reader.methods(current.node).keys() & {"__call__", "forward"}:
                return made.but(instance=True)
            bases = [base for base in current.node.bases if last_name(_bare(base)) not in _PLAIN_BASES]
            if not bases:
                return Data(node)
            base = self.reader.resolve(self.reader.evaluate(_bare(bases[0]), current.module))
            if isinstance(base, External):
                if returns(base.dotted) == "callable":
                    return made.but(instance=True)
                return Data(node) if returns(base.dotted) == "data" else Maybe()
            if not isinstance(base, Class):
                return Maybe()
            current = base
        return Maybe()

    def _partial(self, target: Value, node: ast.Call) -> Value:
        if isinstance(target, Class):
            made = initializer(self.reader, target)
            if made is None:
                return target
            doc = ast.get_docstring(target.node)
            target = made.but(doc=doc) if doc else made
        if not isinstance(target, Function):
            return target if isinstance(target, External) else Unknown()
        keywords = [(item.arg, self.reader.text(item.value)) for item in node.keywords if item.arg]
        self.reader.spend(len(target.keywords))
        positional = len(node.args) - 1
        return target.but(bound=target.bound + positional, keywords=(*target.keywords, *keywords))

    def _returned(self, function: Function, call: ast.Call, arguments: list[Value]) -> Value:
        """Return what a function of the repository returns for these arguments."""
        if self._depth >= 8:
            return Maybe()
        self._depth += 1
        try:
            scope = _parameters(function, call, arguments)
            if isinstance(function.node, ast.Lambda):
                return self.reader.evaluate(function.node.body, function.module, scope)
            return self._find_returned(function.node, function.module, scope)
        finally:
            self._depth -= 1

    def _find_returned(
        self, function: ast.FunctionDef | ast.AsyncFunctionDef, module: Module, scope: dict[str, Value]
    ) -> Value:
        nodes = list(own_nodes(function))
        self.reader.spend(len(nodes))
        if isinstance(function, ast.AsyncFunctionDef) or any(
            isinstance(one, ast.Yield | ast.YieldFrom) for one in nodes
        ):
            return Data()
        for item in nodes:  # the order of ast: what is bound twice counts as it was bound last
            if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
                scope[item.name] = Function(item, module)
            elif isinstance(item, ast.ClassDef):
                scope[item.name] = Class(item, module)
            elif isinstance(item, ast.Assign) and len(item.targets) == 1 and isinstance(item.targets[0], ast.Name):
                scope[item.targets[0].id] = self.reader.resolve(self.reader.evaluate(item.value, module, scope))
            elif isinstance(item, ast.Import | ast.ImportFrom):
                for alias in item.names:
                    scope[alias.asname or alias.name.partition(".")[0]] = self._imported_in(module, item, alias)
            elif isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store) and item.id not in scope:
                scope[item.id] = Maybe()
        found = [
            self.reader.resolve(self.reader.evaluate(item.value, module, scope))
            for item in nodes
            if isinstance(item, ast.Return) and item.value is not None
        ]
        return next((one for one in found if not isinstance(one, Data | Maybe)), unclear(found) or Data())

    def _imported_in(self, module: Module, node: ast.Import | ast.ImportFrom, alias: ast.alias) -> Value:
        """Return what an import in a function binds."""
        if isinstance(node, ast.Import):
            dotted = alias.name if alias.asname else alias.name.partition(".")[0]
            found = self.reader.find_import(module, dotted, 0)
            return External(dotted, module=True) if found is None else ModuleRef(found)
        found = self.reader.find_import(module, node.module or "", node.level)
        return External(f"{node.module}.{alias.name}") if found is None else self.reader.lookup(found, alias.name)


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function in their order, without the nodes of the functions and classes in it."""
    for node in ast.iter_child_nodes(function):
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield from own_nodes(node)


def unclear(found: list[Value]) -> Maybe | None:
    return next((one for one in found if isinstance(one, Maybe)), None)


def _bare(node: ast.expr) -> ast.expr:
    """Return a base class without its parameters: `Generic` of `Generic[T]`."""
    return node.value if isinstance(node, ast.Subscript) else node


def _parameters(function: Function, call: ast.Call, arguments: list[Value]) -> dict[str, Value]:
    """Return a function's parameters, as far as a call gives them something known."""
    spec = function.node.args
    names = [one.arg for one in (*spec.posonlyargs, *spec.args)]
    scope: dict[str, Value] = {one.arg: Maybe() for one in ast.walk(spec) if isinstance(one, ast.arg)}
    for default, name in zip(reversed(spec.defaults), reversed(names)):
        if isinstance(default, ast.Constant):
            scope[name] = Data(default)
    for name, value, node in zip(names[function.bound :], arguments, call.args):
        if not isinstance(node, ast.Starred):
            scope[name] = value
    return scope


def last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def initializer(reader: Reader, value: Class) -> Function | None:
    """`__init__` of a class or of the base in the repository that it comes from."""
    for _ in range(16):
        found = reader.methods(value.node).get("__init__")
        if found is not None:
            return Function(found, value.module, bound=1)
        bases = [base for base in value.node.bases if last_name(base) != "object"]
        if not bases and not value.node.decorator_list:
            empty = ast.parse("def __init__(self): pass").body[0]
            assert isinstance(empty, ast.FunctionDef)
            return Function(empty, value.module, bound=1)
        if not bases:
            return None
        base = reader.resolve(reader.evaluate(bases[0], value.module))
        if not isinstance(base, Class):
            return None
        value = base
    return None
