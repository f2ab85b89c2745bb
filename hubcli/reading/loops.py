"""Follows what module-level code puts into its own namespace by name: `globals()[name] = ...`, in loops too."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hubcli.reading.dynamic import is_call, is_namespace
from hubcli.reading.interpret import Interpreter, Unclear
from hubcli.reading.values import Data, Maybe, Module, Value

if TYPE_CHECKING:
    from hubcli.reading.names import Reader

Scope = dict[str, Any]


class _Continue(Exception):
    pass


class _Break(Exception):
    pass


class Loops:
    """The statements that write to a module's namespace, and the loops around them."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader

    def run(self, module: Module, node: ast.For) -> bool:
        """Go through a loop item by item; False where that takes running it, and nothing was done then."""
        interpreter = Interpreter(self.reader, module)
        before, handled = dict(module.names), set(module.handled)
        try:
            self._for(interpreter, node, {})
        except (Unclear, _Continue, _Break):
            module.names.clear()
            module.names.update(before)
            module.names.update((name, (Maybe(), "assign")) for name in _targets(node))
            module.handled.clear()
            module.handled.update(handled)
            return False
        module.handled.update(id(inner) for inner in ast.walk(node))
        return True

    def _for(self, interpreter: Interpreter, node: ast.For, scope: Scope) -> None:
        for item in interpreter.items(node.iter, scope):
            interpreter.reader.spend(3)
            for name, value in interpreter.bind(node.target, item):
                self._set(interpreter, scope, name, value)
            try:
                self._body(interpreter, node.body, scope)
            except _Continue:
                continue
            except _Break:
                return
        self._body(interpreter, node.orelse, scope)

    def _set(self, interpreter: Interpreter, scope: Scope, name: str, value: Any) -> None:
        scope[name] = value
        interpreter.module.names[name] = (value if isinstance(value, Value) else Data(), "assign")

    def _body(self, interpreter: Interpreter, body: list[ast.stmt], scope: Scope) -> None:
        for node in body:
            self._statement(interpreter, node, scope)

    def _statement(self, interpreter: Interpreter, node: ast.stmt, scope: Scope) -> None:
        module = interpreter.module
        if isinstance(node, ast.For):
            self._for(interpreter, node, scope)
        elif isinstance(node, ast.If):
            chosen = interpreter.evaluate(node.test, scope)
            self._body(interpreter, node.body if chosen else node.orelse, scope)
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
            if isinstance(target, ast.Subscript):
                if not self.store(module, target, node.value, scope):
                    raise Unclear("a container is filled")
            elif isinstance(target, ast.Attribute):
                if is_namespace(target.value, module.own):
                    raise Unclear("attribute")
            else:
                for name, value in interpreter.bind(target, self._value(interpreter, node.value, scope)):
                    self._set(interpreter, scope, name, value)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            if not self.call(module, node.value, scope) and not self._harmless(node.value):
                raise Unclear("call")
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            self.reader.statement(module, node)
            scope[node.name] = module.names[node.name][0]
        elif isinstance(node, ast.Delete) and all(isinstance(one, ast.Name) for one in node.targets):
            for one in node.targets:
                assert isinstance(one, ast.Name)
                scope.pop(one.id, None)
                module.names.pop(one.id, None)
        elif isinstance(node, ast.Continue):
            raise _Continue
        elif isinstance(node, ast.Break):
            raise _Break
        elif not isinstance(node, ast.Pass):
            raise Unclear(type(node).__name__)

    def _harmless(self, node: ast.Call) -> bool:
        return is_call(node, {"print"})

    def _value(self, interpreter: Interpreter, node: ast.expr, scope: Scope) -> Any:
        """Return what an expression gives: a literal, or what a name may stand for."""
        try:
            return interpreter.evaluate(node, scope)
        except Unclear:
            known = {name: value if isinstance(value, Value) else Data() for name, value in scope.items()}
            return self.reader.resolve(self.reader.evaluate(node, interpreter.module, known))

    def store(self, module: Module, target: ast.Subscript, value: ast.expr, scope: Scope) -> bool:
        """`globals()[name] = value`; False if it is none such, or the name is not known."""
        if not is_namespace(target.value, module.own):
            return False
        interpreter = Interpreter(self.reader, module)
        try:
            name = interpreter.evaluate(target.slice, scope)
            self._write(interpreter, name, self._value(interpreter, value, scope), scope)
        except Unclear:
            if scope:
                raise
            return False
        module.handled.update(id(inner) for inner in ast.walk(target))
        return True

    def call(self, module: Module, node: ast.Call, scope: Scope) -> bool:
        """`setattr(module, name, value)` and `globals().update(...)`; False if it is none such, or not known."""
        interpreter = Interpreter(self.reader, module)
        try:
            written = list(self._written(interpreter, node, scope))
            for name, value in written:
                self._write(interpreter, name, value, scope)
        except (Unclear, TypeError, ValueError, AttributeError):
            if scope:
                raise Unclear("call") from None
            return False
        if not written:
            return False
        module.handled.update(id(inner) for inner in ast.walk(node))
        return True

    def _written(self, interpreter: Interpreter, node: ast.Call, scope: Scope) -> Iterator[tuple[Any, Any]]:
        module = interpreter.module
        if is_call(node, {"setattr"}) and len(node.args) == 3 and is_namespace(node.args[0], module.own):
            yield interpreter.evaluate(node.args[1], scope), self._value(interpreter, node.args[2], scope)
        elif (
            isinstance(node.func, ast.Attribute)
            and node.func.attr in ("update", "__setitem__", "setdefault")
            and is_namespace(node.func.value, module.own)
        ):
            if node.func.attr != "update":
                yield interpreter.evaluate(node.args[0], scope), self._value(interpreter, node.args[1], scope)
                return
            for argument in node.args:
                found = interpreter.evaluate(argument, scope)
                yield from found.items() if isinstance(found, dict) else (tuple(pair) for pair in found)
            for keyword in node.keywords:
                if keyword.arg is None:
                    yield from interpreter.evaluate(keyword.value, scope).items()
                else:
                    yield keyword.arg, self._value(interpreter, keyword.value, scope)

    def _write(self, interpreter: Interpreter, name: Any, value: Any, scope: Scope) -> None:
        if not isinstance(name, str):
            raise Unclear("a name that is no string")
        self._set(interpreter, scope, name, value)


def _targets(node: ast.For) -> Iterator[str]:
    for one in ast.walk(node.target):
        if isinstance(one, ast.Name):
            yield one.id
