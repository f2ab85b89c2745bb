"""Tells from a module's `ast` whether it fills its namespace in ways that only running it shows."""

from __future__ import annotations

import ast
from collections.abc import Iterator


def fills_namespace(tree: ast.Module) -> bool:
    """Whether code may add names when it runs: globals(), exec, setattr on the module itself."""
    return any(_mutates_globals(node) for node in ast.walk(tree)) or any(
        _mutates_locals(node) for node in _at_module_level(tree)
    )


def _at_module_level(tree: ast.Module) -> Iterator[ast.AST]:
    pending: list[ast.AST] = list(tree.body)
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            pending.extend(ast.iter_child_nodes(node))


_MUTATORS = {"update", "setdefault", "__setitem__", "__ior__"}


def _is_call(node: ast.AST, names: set[str]) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names


def _is_own_module(node: ast.AST) -> bool:
    """`sys.modules[__name__]`, or its `__dict__`."""
    if isinstance(node, ast.Attribute) and node.attr == "__dict__":
        node = node.value
    if _is_call(node, {"import_module", "__import__"}):
        assert isinstance(node, ast.Call)
        return bool(node.args) and _is_name(node.args[0], "__name__")
    return isinstance(node, ast.Subscript) and _is_name(node.slice, "__name__")


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _mutates(node: ast.AST, names: set[str]) -> bool:
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        return _is_call(node.value, names) or _is_own_module(node.value)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        owner = node.func.value
        return node.func.attr in _MUTATORS and (_is_call(owner, names) or _is_own_module(owner))
    return False


def _mutates_globals(node: ast.AST) -> bool:
    if _is_call(node, {"setattr"}):
        assert isinstance(node, ast.Call)
        return bool(node.args) and _is_own_module(node.args[0])
    if _is_call(node, {"exec"}):
        assert isinstance(node, ast.Call)
        return any(_is_call(argument, {"globals"}) for argument in node.args[1:2])
    return _mutates(node, {"globals"})


def _mutates_locals(node: ast.AST) -> bool:
    if _is_call(node, {"exec"}):
        assert isinstance(node, ast.Call)
        return len(node.args) < 2 or any(
            _is_call(argument, {"globals", "locals", "vars"}) for argument in node.args[1:]
        )
    if isinstance(node, ast.Assign) and any(_is_call(node.value, {kind}) for kind in ("globals", "locals", "vars")):
        return True  # g = globals(): whatever is done to g is done to the namespace
    if isinstance(node, ast.Assign) and _is_own_module(node.value):
        return True
    return _mutates(node, {"locals", "vars"})
