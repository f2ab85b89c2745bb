"""Find from a module's `ast` whether it fills its namespace with names that only running it shows."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Set

OWN_NAMES = {"globals", "locals", "vars"}
_READERS = {"dir", "getattr", "hasattr", "id", "isinstance", "len", "list", "print", "repr", "sorted", "str", "vars"}
_CONTAINER_METHODS = {"add", "append", "clear", "extend", "insert", "pop", "remove", "setdefault", "update"}
_MUTATORS = {"update", "setdefault", "__setitem__", "__ior__"}


def fills_namespace(tree: ast.Module, handled: Set[int] = frozenset(), own: Set[str] = frozenset()) -> bool:
    """Return whether code may add names when it runs: globals(), exec, setattr on the module itself.

    `handled` holds the ids of nodes whose effect is known, `own` the names that stand for the module or its namespace.
    """
    return any(_mutates_globals(node, own) for node in ast.walk(tree) if id(node) not in handled) or any(
        _mutates_locals(node) for node in _at_module_level(tree) if id(node) not in handled
    )


def may_change_search_path(source: bytes) -> bool:
    """Return whether the text of a module may change where imports are looked for."""
    return (
        re.search(
            rb"\bsys\s*\.\s*(path|modules|meta_path|path_hooks)\b|from\s+sys\s+import|\bsys\s+as\b|=\s*sys\b|addsitedir",
            source,
        )
        is not None
    )


def never_runs(test: ast.expr) -> bool:
    """`if TYPE_CHECKING:`, `if __name__ == "__main__":` and `if False:`."""
    if isinstance(test, ast.Constant):
        return not test.value
    if isinstance(test, ast.Compare):
        return isinstance(test.left, ast.Name) and test.left.id == "__name__"
    return (test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", "")) == "TYPE_CHECKING"


def _at_module_level(tree: ast.Module) -> Iterator[ast.AST]:
    pending: list[ast.AST] = list(tree.body)
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            pending.extend(ast.iter_child_nodes(node))


def is_call(node: ast.AST, names: Set[str]) -> bool:
    """Return whether the node calls one of these names."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names


def is_own_module(node: ast.AST, own: Set[str] = frozenset()) -> bool:
    """`sys.modules[__name__]`, its `__dict__`, or a name for either."""
    if isinstance(node, ast.Attribute) and node.attr == "__dict__":
        node = node.value
    if is_call(node, {"vars"}) and isinstance(node, ast.Call) and len(node.args) == 1:
        node = node.args[0]
    if isinstance(node, ast.Name):
        return node.id in own
    if is_call(node, {"import_module", "__import__"}):
        assert isinstance(node, ast.Call)
        return bool(node.args) and _is_name(node.args[0], "__name__")
    return isinstance(node, ast.Subscript) and _is_name(node.slice, "__name__")


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def is_namespace(node: ast.AST, own: Set[str], calls: Set[str] = OWN_NAMES) -> bool:
    """Return whether an expression is the module's namespace or the module."""
    return (is_call(node, calls) and isinstance(node, ast.Call) and not node.args) or is_own_module(node, own)


def _mutates(node: ast.AST, names: Set[str], own: Set[str]) -> bool:
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        return is_call(node.value, names) or is_own_module(node.value, own)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        owner = node.func.value
        return node.func.attr in _MUTATORS and (is_call(owner, names) or is_own_module(owner, own))
    return False


def _mutates_globals(node: ast.AST, own: Set[str]) -> bool:
    if is_call(node, {"setattr"}):
        assert isinstance(node, ast.Call)
        return bool(node.args) and is_own_module(node.args[0], own)
    if is_call(node, {"exec"}):
        assert isinstance(node, ast.Call)
        return any(is_call(argument, {"globals"}) for argument in node.args[1:2])
    handed_over = isinstance(node, ast.Call) and any(isinstance(one, ast.Name) and one.id in own for one in node.args)
    if handed_over and not is_call(node, _READERS):
        return True
    return _mutates(node, {"globals"}, own)


def _mutates_locals(node: ast.AST) -> bool:
    if is_call(node, {"exec"}):
        assert isinstance(node, ast.Call)
        return len(node.args) < 2 or any(is_call(argument, OWN_NAMES) for argument in node.args[1:])
    return _mutates(node, {"locals", "vars"}, frozenset())


def changed_names(tree: ast.Module) -> set[str]:
    """Return the names of a module whose containers something changes after they were made."""
    known: set[str] = set()
    for node in ast.walk(tree):
        owner: ast.expr | None = None
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            owner = node.value
        elif isinstance(node, ast.AugAssign):
            owner = node.target
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value if node.func.attr in _CONTAINER_METHODS else None
        if isinstance(owner, ast.Name):
            known.add(owner.id)
    return known
