"""Works out what module-level code makes of literals: the names that a loop puts into its namespace, mostly.

A small part of Python on known values: strings, numbers, containers of them, comprehensions, the usual methods, and
the functions and classes that `_names` follows.  Whatever is beyond raises `Unclear`: then only running it shows.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from hubcli.reading.dynamic import OWN_NAMES, is_own_module
from hubcli.reading.values import Class, Data, External, Function, Imported, Maybe, Module, ModuleRef, Unknown

if TYPE_CHECKING:
    from hubcli.reading.names import Reader

Scope = Mapping[str, Any]

MAX_ITEMS = 5000  # of one container or loop
MAX_NESTING = 100
_SYMBOLS = (Class, External, Function, Imported, Maybe, ModuleRef, Unknown)
_STRING_METHODS = frozenset(
    "capitalize casefold endswith format isdigit isupper islower join lower lstrip partition removeprefix removesuffix "
    "replace rpartition rsplit rstrip split startswith strip title upper zfill".split()
)
_OPERATORS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mod: operator.mod,
    ast.FloorDiv: operator.floordiv,
    ast.Mult: operator.mul,
    ast.BitOr: operator.or_,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, whole: item in whole,
    ast.NotIn: lambda item, whole: item not in whole,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
_CONVERSIONS: Mapping[int, Callable[[object], str]] = {97: ascii, 114: repr, 115: str}
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "bool": bool,
    "dict": dict,
    "enumerate": enumerate,
    "frozenset": frozenset,
    "int": int,
    "len": len,
    "list": list,
    "max": max,
    "min": min,
    "range": range,
    "reversed": lambda whole: list(reversed(whole)),
    "set": set,
    "sorted": sorted,
    "str": str,
    "sum": sum,
    "tuple": tuple,
    "zip": zip,
}


class Unclear(Exception):
    """Only running the code shows the value."""


class Interpreter:
    """Evaluates expressions of one module."""

    def __init__(self, reader: Reader, module: Module) -> None:
        self.reader = reader
        self.module = module

    def evaluate(self, node: ast.expr, scope: Scope) -> Any:
        """Return a literal, a container of such, or what `_names` knows of a name; raises Unclear."""
        self.reader.spend(5)
        method = getattr(self, "_" + type(node).__name__.lower(), None)
        if method is None or self.reader.nesting > MAX_NESTING:
            raise Unclear(type(node).__name__)
        self.reader.nesting += 1
        try:
            value = method(node, scope)
        except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError) as error:
            raise Unclear(str(error)) from None
        finally:
            self.reader.nesting -= 1
        if isinstance(value, str | list | tuple | dict | set) and len(value) > MAX_ITEMS:
            raise Unclear("too much")
        return value

    def items(self, node: ast.expr, scope: Scope) -> list[Any]:
        """Return what a loop over the expression goes through."""
        value = self.evaluate(node, scope)
        if isinstance(value, _SYMBOLS):
            raise Unclear("no container")
        found = []
        for item in value:
            found.append(item)
            if len(found) > MAX_ITEMS:
                raise Unclear("too much")
        return found

    def bind(self, target: ast.expr, value: Any) -> Iterator[tuple[str, Any]]:
        """Yield the names that assigning `value` to `target` binds."""
        if isinstance(target, ast.Name):
            yield target.id, value
        elif isinstance(target, ast.Tuple | ast.List):
            parts = list(value) if isinstance(value, str | list | tuple) else []
            if len(parts) != len(target.elts):
                raise Unclear("unpacking")
            for one, part in zip(target.elts, parts):
                yield from self.bind(one, part)
        else:
            raise Unclear("target")

    def _constant(self, node: ast.Constant, scope: Scope) -> Any:
        return node.value

    def _name(self, node: ast.Name, scope: Scope) -> Any:
        if node.id in scope:
            return scope[node.id]
        if node.id == "__name__" or node.id not in self.module.names:
            raise Unclear(node.id)
        return self._known(self.module, node.id)

    def _known(self, module: Module, name: str) -> Any:
        """Return what a module's name stands for."""
        bound = module.names[name][0]
        if isinstance(bound, Imported):
            if bound.target.is_file():
                other = self.reader.load(bound.target)
                if bound.name in other.names:
                    return Interpreter(self.reader, other)._known(other, bound.name)
            bound = self.reader.resolve(bound)
        if not isinstance(bound, Data):
            return bound
        if bound.expression is None or name in self.reader.mutated(module):
            raise Unclear(name)
        value = Interpreter(self.reader, module).evaluate(bound.expression, {})
        if isinstance(value, list | dict | set) and not value:
            raise Unclear(name)  # somebody fills it
        return value

    def _joinedstr(self, node: ast.JoinedStr, scope: Scope) -> str:
        parts = []
        for part in node.values:
            if isinstance(part, ast.Constant):
                parts.append(str(part.value))
                continue
            assert isinstance(part, ast.FormattedValue)
            value = self._plain(part.value, scope)
            text = "" if part.format_spec is None else str(self.evaluate(part.format_spec, scope))
            conversion = _CONVERSIONS.get(part.conversion)
            parts.append(format(value if conversion is None else conversion(value), text))
        return "".join(parts)

    def _plain(self, node: ast.expr, scope: Scope) -> Any:
        value = self.evaluate(node, scope)
        if isinstance(value, _SYMBOLS):
            raise Unclear("no literal")
        return value

    def _elements(self, nodes: list[ast.expr], scope: Scope) -> list[Any]:
        found: list[Any] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                found += self.items(node.value, scope)
            else:
                found.append(self._element(node, scope))
        return found

    def _element(self, node: ast.expr, scope: Scope) -> Any:
        """Return a part of a container, which may be anything as long as nobody asks what it is."""
        try:
            return self.evaluate(node, scope)
        except Unclear:
            return self.reader.evaluate(node, self.module)

    def _list(self, node: ast.List, scope: Scope) -> list[Any]:
        return self._elements(node.elts, scope)

    def _tuple(self, node: ast.Tuple, scope: Scope) -> tuple[Any, ...]:
        return tuple(self._elements(node.elts, scope))

    def _set(self, node: ast.Set, scope: Scope) -> Any:
        return dict.fromkeys(self._elements(node.elts, scope)).keys()

    def _dict(self, node: ast.Dict, scope: Scope) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values):
            if key is None:
                found.update(self._plain(value, scope))
            else:
                found[self._plain(key, scope)] = self._element(value, scope)
        return found

    def _binop(self, node: ast.BinOp, scope: Scope) -> Any:
        left, right = self._plain(node.left, scope), self._plain(node.right, scope)
        if isinstance(node.op, ast.Mult):
            size = (len(one) if isinstance(one, str | list | tuple) else abs(one) for one in (left, right))
            if any(one > MAX_ITEMS for one in size):
                raise Unclear("too much")
        return _OPERATORS[type(node.op)](left, right)

    def _compare(self, node: ast.Compare, scope: Scope) -> bool:
        left = self.evaluate(node.left, scope)
        for kind, one in zip(node.ops, node.comparators):
            right = self.evaluate(one, scope)
            if not _OPERATORS[type(kind)](left, right):
                return False
            left = right
        return True

    def _boolop(self, node: ast.BoolOp, scope: Scope) -> Any:
        value: Any = None
        for one in node.values:
            value = self._plain(one, scope)
            if bool(value) == isinstance(node.op, ast.Or):
                break
        return value

    def _unaryop(self, node: ast.UnaryOp, scope: Scope) -> Any:
        value = self._plain(node.operand, scope)
        if isinstance(node.op, ast.Not):
            return not value
        return -value if isinstance(node.op, ast.USub) else +value

    def _ifexp(self, node: ast.IfExp, scope: Scope) -> Any:
        return self.evaluate(node.body if self._plain(node.test, scope) else node.orelse, scope)

    def _subscript(self, node: ast.Subscript, scope: Scope) -> Any:
        if is_own_module(node):
            raise Unclear("the module itself")
        return self._plain(node.value, scope)[self._index(node.slice, scope)]

    def _index(self, node: ast.expr, scope: Scope) -> Any:
        if not isinstance(node, ast.Slice):
            return self._plain(node, scope)
        return slice(*(None if one is None else self._plain(one, scope) for one in (node.lower, node.upper, node.step)))

    def _attribute(self, node: ast.Attribute, scope: Scope) -> Any:
        owner = self.evaluate(node.value, scope)
        return self._member(owner, node.attr)

    def _member(self, owner: Any, name: str) -> Any:
        if isinstance(owner, ModuleRef) and owner.target.is_file():
            if name == "__dict__":
                return self._names_of(owner)
            other = self.reader.load(owner.target)
            if name in other.names:
                return Interpreter(self.reader, other)._known(other, name)
        if isinstance(owner, Function | Class) and name in ("__name__", "__qualname__"):
            if isinstance(owner.node, ast.Lambda):
                return "<lambda>"
            return owner.node.name
        if isinstance(owner, _SYMBOLS):
            found = self.reader.resolve(self.reader.attribute(owner, name))
            if not isinstance(found, Data | Maybe):
                return found
        raise Unclear(name)

    def _names_of(self, owner: Any) -> dict[str, Any]:
        """Return a module's namespace."""
        other = self.reader.load(owner.target)
        if other.dynamic:
            raise Unclear("dynamic")
        return {name: self.reader.lookup(owner.target, name) for name in other.names}

    def _comprehension(self, node: Any, scope: Scope, made: Callable[[Scope], None]) -> None:
        def go(generators: list[ast.comprehension], inner: dict[str, Any]) -> None:
            if not generators:
                made(inner)
                return
            first = generators[0]
            for item in self.items(first.iter, inner):
                here = {**inner, **dict(self.bind(first.target, item))}
                if all(self._plain(test, here) for test in first.ifs):
                    go(generators[1:], here)

        go(node.generators, dict(scope))

    def _listcomp(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp, scope: Scope) -> list[Any]:
        found: list[Any] = []
        self._comprehension(node, scope, lambda inner: found.append(self._element(node.elt, inner)))
        return found

    _generatorexp = _setcomp = _listcomp

    def _dictcomp(self, node: ast.DictComp, scope: Scope) -> dict[Any, Any]:
        found: dict[Any, Any] = {}

        def add(inner: Scope) -> None:
            found[self._plain(node.key, inner)] = self._element(node.value, inner)

        self._comprehension(node, scope, add)
        return found

    def _call(self, node: ast.Call, scope: Scope) -> Any:
        if isinstance(node.func, ast.Name) and node.func.id not in scope and node.func.id not in self.module.names:
            return self._builtin(node, node.func.id, scope)
        if isinstance(node.func, ast.Attribute):
            owner = self.evaluate(node.func.value, scope)
            name = node.func.attr
            string = isinstance(owner, str) and name in _STRING_METHODS
            if string or (isinstance(owner, dict) and name in ("items", "keys", "values", "get", "copy")):
                result = getattr(owner, name)(*self._elements(node.args, scope), **self._keywords(node, scope))
                return list(result) if name in ("items", "keys", "values") else result
        return self._symbol(node, scope)

    def _symbol(self, node: ast.Call, scope: Scope) -> Any:
        """Return a call that makes a function or an object: what `_names` makes of it."""
        found = self.reader.resolve(self.reader.evaluate(node, self.module, _values(scope)))
        if isinstance(found, Data | Maybe):
            raise Unclear("call")
        return found

    def _keywords(self, node: ast.Call, scope: Scope) -> dict[str, Any]:
        if any(one.arg is None for one in node.keywords):
            raise Unclear("**")
        return {str(one.arg): self._plain(one.value, scope) for one in node.keywords}

    def _builtin(self, node: ast.Call, name: str, scope: Scope) -> Any:
        if name in ("map", "filter") and len(node.args) == 2 and not node.keywords:
            return self._mapped(name, node.args[0], self.items(node.args[1], scope), scope)
        if name == "getattr" and len(node.args) >= 2:
            return self._member(self.evaluate(node.args[0], scope), str(self._plain(node.args[1], scope)))
        if name in ("dir", "vars", *OWN_NAMES) and len(node.args) <= 1:
            names = self._namespace(node.args[0] if node.args else None, scope)
            return sorted(names) if name == "dir" else names
        if name in _FUNCTIONS:
            arguments = self._elements(node.args, scope)
            if any(isinstance(one, int) and abs(one) > MAX_ITEMS for one in arguments) and name == "range":
                raise Unclear("too much")
            result = _FUNCTIONS[name](*arguments, **self._keywords(node, scope))
            return list(result) if isinstance(result, zip | enumerate) else result
        return self._symbol(node, scope)

    def _namespace(self, node: ast.expr | None, scope: Scope) -> dict[str, Any]:
        if node is None:
            if self.module.dynamic:
                raise Unclear("dynamic")
            return {name: self.reader.resolve(value) for name, (value, _) in self.module.names.items()}
        owner = self.evaluate(node, scope)
        if not (isinstance(owner, ModuleRef) and owner.target.is_file()):
            raise Unclear("namespace")
        return self._names_of(owner)

    def _mapped(self, name: str, function: ast.expr, items: list[Any], scope: Scope) -> list[Any]:
        if isinstance(function, ast.Lambda) and len(function.args.args) == 1:
            parameter, body = function.args.args[0].arg, function.body
            results = [self.evaluate(body, {**scope, parameter: item}) for item in items]
        elif isinstance(function, ast.Name) and function.id in _FUNCTIONS:
            results = [_FUNCTIONS[function.id](item) for item in items]
        elif isinstance(function, ast.Constant) and function.value is None:
            results = list(items)
        else:
            raise Unclear(name)
        return results if name == "map" else [item for item, kept in zip(items, results) if kept]


def _values(scope: Scope) -> dict[str, Any]:
    """Return what of a scope `_names` can use."""
    return {name: value if isinstance(value, _SYMBOLS) else Data() for name, value in scope.items()}
