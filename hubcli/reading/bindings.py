"""The names that a module or a function binds, and the parameters and arguments of calls, by their `ast` alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Binding = tuple[ast.expr, bool]  # what a name is bound to; True: to an item of it


def of(body: ast.AST) -> dict[str, list[Binding]]:
    """Return the expressions that each name of a module or function is bound to."""
    known: dict[str, list[Binding]] = {}
    for node in own_nodes(body):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                bind(known, target, node.value)
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            bind(known, node.target, node.value)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            name = ast.Name(node.target.id, ast.Load())
            known.setdefault(node.target.id, []).append((ast.BinOp(name, node.op, node.value), False))
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            bind(known, node.target, node.iter, item=True)
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            bind(known, node.optional_vars, node.context_expr)
    return known


def own_nodes(body: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a module or function without the nodes of the functions in it; class bodies count."""
    for node in ast.iter_child_nodes(body):
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from own_nodes(node)


def bind(known: dict[str, list[Binding]], target: ast.expr, value: ast.expr, item: bool = False) -> None:
    """Note what assigning `value`, or an item of it, binds."""
    if isinstance(target, ast.Name):
        known.setdefault(target.id, []).append((value, item))
    elif isinstance(target, ast.Tuple | ast.List):
        matching = isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts) and not item
        for at, one in enumerate(target.elts):
            if matching:
                assert isinstance(value, ast.Tuple | ast.List)
                bind(known, one, value.elts[at])
            elif item:  # `for root, folders, files in os.walk(here)`: the part of each
                name = ast.Name("_", ast.Load())
                part = ast.Subscript(name, ast.Constant(at), ast.Load())
                generator = ast.comprehension(ast.Name("_", ast.Store()), value, [], 0)
                bind(known, one, ast.ListComp(part, [generator]), item=True)
            else:
                bind(known, one, ast.Subscript(value, ast.Constant(at), ast.Load()))


def parameters(function: Function) -> list[ast.arg]:
    """Return all parameters of a function."""
    spec = function.args
    return [*spec.posonlyargs, *spec.args, *spec.kwonlyargs, *(one for one in (spec.vararg, spec.kwarg) if one)]


def default_of(function: Function, name: str) -> ast.expr | None:
    """Return the default of a parameter, or None."""
    spec = function.args
    positional = [*spec.posonlyargs, *spec.args]
    pairs = [*zip(reversed(positional), reversed(spec.defaults)), *zip(spec.kwonlyargs, spec.kw_defaults)]
    return next((value for one, value in pairs if one.arg == name and value is not None), None)


def argument_values(function: Function, call: ast.Call) -> dict[str, ast.expr]:
    """Return the arguments of a call by the names of the parameters."""
    spec = function.args
    names = [one.arg for one in (*spec.posonlyargs, *spec.args)]
    if names[:1] == ["self"]:
        names.pop(0)
    plain = [one for one in call.args if not isinstance(one, ast.Starred)]
    found = dict(zip(names, plain))
    if spec.vararg is not None:
        found[spec.vararg.arg] = ast.List(call.args[len(names) :], ast.Load())
    found.update((one.arg, one.value) for one in call.keywords if one.arg)
    return found
