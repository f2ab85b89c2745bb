"""Expressions by kind of node."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable
from typing import Any

from engine.jit.archive.kinds import BOOL, STR, TENSOR, Kind
from engine.jit.archive.schemas import MISSING, Value, unified
from engine.jit.scripting.arithmetic import COMPARED, binary, compared
from engine.jit.scripting.attributes import MODULE_METHODS, attribute_of
from engine.jit.scripting.calls import call, hints_of, super_call
from engine.jit.scripting.comprehensions import comprehension
from engine.jit.scripting.conditions import condition
from engine.jit.scripting.context import Context
from engine.jit.scripting.frontend import unstarred, unsupported
from engine.jit.scripting.iteration import of_container
from engine.jit.scripting.methods import arguments, call_method
from engine.jit.scripting.python_functions import python_builtin
from engine.jit.scripting.special import special_form
from engine.jit.scripting.subscripts import subscript
from engine.jit.scripting.sugared import Bound, Py, Sugared
from engine.jit.scripting.values import (
    constant,
    expr,
    held,
    in_order,
    list_of,
    operator,
    refine,
    spelt_as,
    sugared,
    taken_apart,
    tuple_of,
    value_of,
)
from engine.nn.modules.container import ModuleDict

__all__ = ["EXPRESSIONS"]


def _constant(c: Context, node: ast.Constant, hint: Kind | None) -> Value:
    made = constant(c, node.value)
    if made is None:
        raise unsupported(c.source, node, repr(node.value))
    return made


def _name(c: Context, node: ast.Name, hint: Kind | None) -> Sugared:
    name = node.id
    if name in c.env:
        return c.env[name]
    if name in c.gone:
        raise c.error(c.gone[name], node)
    if name in c.source.names:
        return Py(c.source.names[name])
    raise c.error(f"undefined value {name}", node)


def _tuple(c: Context, node: ast.Tuple, hint: Kind | None) -> Sugared:
    hints = (
        list(hint.inner) if hint is not None and hint.name == "Tuple" and len(hint.inner) == len(node.elts) else None
    )
    found = in_order(c, [*map(unstarred, node.elts)], hints)  # type: ignore[arg-type]
    return tuple_of([value_of(c, p, node) for p in taken_apart(c, node.elts, found, node)])


def _list(c: Context, node: ast.List, hint: Kind | None) -> Value:
    inner = hint.inner[0] if hint is not None and hint.name in ("List", "Optional") else None
    if inner is not None and inner.name == "List" and hint is not None and hint.name == "Optional":
        inner = inner.inner[0]
    hints = [None if isinstance(n, ast.Starred) else inner for n in node.elts]
    parts = taken_apart(c, node.elts, in_order(c, [*map(unstarred, node.elts)], hints), node)
    return list_of(c, [value_of(c, p, node) for p in parts], inner, node)


def _dict(c: Context, node: ast.Dict, hint: Kind | None) -> Value:
    kinds = hint.inner if hint is not None and hint.name == "Dict" else (STR, TENSOR)
    if not node.keys:
        return Value("{}", Kind("Dict", tuple(kinds)))
    if None in node.keys:
        raise unsupported(c.source, node, "with unpacking")
    found = [
        value_of(c, f, node)
        for f in in_order(c, [n for kv in zip(node.keys, node.values) for n in kv if n is not None])
    ]
    keys, values = found[::2], found[1::2]
    kind = values[0].kind
    for value in values:
        kind = unified(kind, value.kind)  # type: ignore[assignment]
        if kind is None:
            raise c.error(
                f"Dict values must contain only a single type, expected: {values[0].kind} but found {value.kind} "
                "instead",
                node,
            )
    if hint is not None and hint.name == "Dict":
        kind = hint.inner[1]
    made = Kind("Dict", (keys[0].kind, kind))
    inside = ", ".join(f"{k.text}: {v.text}" for k, v in zip(keys, values))
    text = f"{{{inside}}}"
    return Value(text if all(v.kind == kind for v in values) else f"annotate({made}, {text})", made)


def _joined(c: Context, node: ast.JoinedStr, hint: Kind | None) -> Value:
    form, parts = "", []
    for piece in node.values:
        if isinstance(piece, ast.Constant):
            form += str(piece.value)
            continue
        if not isinstance(piece, ast.FormattedValue) or piece.format_spec is not None:
            raise unsupported(c.source, node, "with a format specification")
        form += "{}"
        parts.append(piece.value)
    if not parts:
        return Value(repr(form), STR, form)
    values = [value_of(c, v, node) for v in in_order(c, parts)]
    return Value(f"torch.format({', '.join([repr(form), *(v.text for v in values)])})", STR)


def _binop(c: Context, node: ast.BinOp, hint: Kind | None) -> Value:
    left, right = (value_of(c, v, node) for v in in_order(c, [node.left, node.right]))
    return binary(c, type(node.op), left, right, node)


def _unary(c: Context, node: ast.UnaryOp, hint: Kind | None) -> Value:
    if isinstance(node.op, ast.Not):
        return _bool(c, node, hint)
    if isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        made = constant(c, -node.operand.value)  # type: ignore[operator]
        if made is not None:
            return made
    value = expr(c, node.operand)
    if isinstance(node.op, ast.UAdd):
        return value
    if c.unit.is_class(value.kind):
        return call_method(c, value, "__neg__" if isinstance(node.op, ast.USub) else "__invert__", [], {}, node)
    return operator(c, "neg" if isinstance(node.op, ast.USub) else "bitwise_not", [value], node)


def _bool(c: Context, node: ast.expr, hint: Kind | None) -> Value:
    test = condition(c, node)
    if test.static is not None:
        return Value(repr(test.static), BOOL, test.static)
    return Value(test.text, BOOL)


def _boolop(c: Context, node: ast.BoolOp, hint: Kind | None) -> Value:
    return _bool(c, node, hint)


def _compare(c: Context, node: ast.Compare, hint: Kind | None) -> Value:
    if len(node.ops) == 1 and type(node.ops[0]) in COMPARED:
        left, right = (value_of(c, v, node) for v in in_order(c, [node.left, node.comparators[0]]))
        return compared(c, type(node.ops[0]), left, right, node)
    return _bool(c, node, hint)


def _ternary(c: Context, node: ast.IfExp, hint: Kind | None) -> Sugared:
    test = condition(c, node.test)
    if test.static is not None:
        refine(c, test.true if test.static else test.false)
        return sugared(c, node.body if test.static else node.orelse, hint)
    name, made = c.fresh(), []
    for branch, refined in ((node.body, test.true), (node.orelse, test.false)):
        outer, outer_lines, c.lines = dict(c.env), c.lines, []
        c.depth += 1
        refine(c, refined)
        value = expr(c, branch, hint)
        c.depth -= 1
        made.append((value, c.lines))
        c.lines, c.env = outer_lines, outer
    (a, before_a), (b, before_b) = made
    kind = unified(a.kind, b.kind)
    if kind is None:
        raise c.error(f"Type mismatch: the branches of an if-expression have the types {a.kind} and {b.kind}", node)
    indent = "  " * (c.depth + 1)
    c.put(f"if {test.text}:")
    c.lines += [*before_a, f"{indent}{name} = {spelt_as(a, kind)}"]
    c.put("else:")
    c.lines += [*before_b, f"{indent}{name} = {spelt_as(b, kind)}"]
    return Value(name, kind)


def _attribute(c: Context, node: ast.Attribute, hint: Kind | None) -> Sugared:
    found = sugared(c, node.value)
    return attribute_of(c, found, node.attr, node)


def _subscript(c: Context, node: ast.Subscript, hint: Kind | None) -> Sugared:
    return subscript(c, sugared(c, node.value), node.slice, node)


def _starred(c: Context, node: ast.Starred, hint: Kind | None) -> Sugared:
    raise unsupported(c.source, node)


def _call(c: Context, node: ast.Call, hint: Kind | None) -> Sugared:
    function = node.func
    if isinstance(function, ast.Name) and function.id not in c.env and function.id not in c.gone:
        obj = c.source.names.get(function.id, MISSING)
        if getattr(builtins, function.id, None) is obj and obj is not MISSING:
            made = python_builtin(c, function.id, node, hint)
            if made is not None:
                return made
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Call):
        inner = function.value.func
        if isinstance(inner, ast.Name) and inner.id == "super" and c.owner is not None:
            return super_call(c, function, node)
    found = sugared(c, function)
    if isinstance(found, Bound) and found.name == "tolist" and found.value.kind == TENSOR:
        if hint is None:
            raise c.error("Expected type hint for result of tolist()", node)
        return Value(f"annotate({hint}, {held(c, found.value).text}.tolist())", hint)
    if isinstance(found, Py):
        special = special_form(found.obj)
        if special is not None:
            return special(c, node, hint)
    if (
        isinstance(found, Bound)
        and found.name in MODULE_METHODS
        and c.unit.is_module(found.value.kind)
        and (isinstance(c.unit.classes[found.value.kind.name].module, ModuleDict))
    ):
        return of_container(c, found.value, found.name)
    args, named = arguments(c, node, hints_of(c, found))
    return call(c, found, args, named, node, hint)


EXPRESSIONS: dict[type[ast.expr], Callable[[Context, Any, Kind | None], Sugared]] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.Tuple: _tuple,
    ast.List: _list,
    ast.Dict: _dict,
    ast.JoinedStr: _joined,
    ast.BinOp: _binop,
    ast.UnaryOp: _unary,
    ast.BoolOp: _boolop,
    ast.Compare: _compare,
    ast.IfExp: _ternary,
    ast.ListComp: comprehension,
    ast.DictComp: comprehension,
    ast.GeneratorExp: comprehension,
    ast.Attribute: _attribute,
    ast.Subscript: _subscript,
    ast.Starred: _starred,
    ast.Call: _call,
}
