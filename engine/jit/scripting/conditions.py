"""Conditions: their text, what is known of them, and the types that they tell of variables."""

from __future__ import annotations

import ast
from typing import Any

from engine.jit.archive.kinds import ANY, BOOL, NONE, TENSOR, Kind
from engine.jit.archive.schemas import MISSING, Value, subtype, unified
from engine.jit.scripting.arithmetic import truth
from engine.jit.scripting.attributes import has
from engine.jit.scripting.context import Context
from engine.jit.scripting.frontend import annotation
from engine.jit.scripting.methods import call_method
from engine.jit.scripting.sugared import Py, Sugared, Test
from engine.jit.scripting.values import constant, expr, held, in_order, operator, refine, sugared, value_of
from engine.tensor import Tensor

__all__ = ["condition", "told_by_call"]


def condition(c: Context, node: ast.expr) -> Test:
    """An expression as a condition."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        inner = condition(c, node.operand)
        return Test(
            f"torch.__not__({inner.text})",
            None if inner.static is None else not inner.static,
            inner.false,
            inner.true,
        )
    if isinstance(node, ast.BoolOp):
        found = condition(c, node.values[0])
        for part in node.values[1:]:
            found = combined(c, isinstance(node.op, ast.And), found, part)
        return found
    if isinstance(node, ast.Compare):
        special = comparison(c, node)
        if special is not None:
            return special
    if isinstance(node, ast.Call):
        told = told_by_call(c, node)
        if told is not None:
            return told
    value = expr(c, node)
    if value.const is not MISSING and not isinstance(node, ast.Compare):
        return Test(value.text if value.kind == BOOL else repr(bool(value.const)), bool(value.const))
    true = truth(c, value, node)
    return Test(true.text, None if true.const is MISSING else bool(true.const))


def combined(c: Context, both: bool, first: Test, node: ast.expr) -> Test:
    """`first and node`, or `first or node`; the second is looked at where the first lets it."""
    if first.static is not None and first.static != both:
        return first
    taken = first.true if both else first.false
    outer, outer_lines = dict(c.env), c.lines
    c.lines = []
    c.depth += 1
    if first.static is None:
        refine(c, taken)
    second = condition(c, node)
    c.depth -= 1
    prelude, c.lines, c.env = c.lines, outer_lines, outer
    if first.static is not None:
        c.lines += [line[2:] for line in prelude]
        return second
    true = {**first.true, **second.true} if both else {}
    false = {**first.false, **second.false} if not both else {}
    if second.static is not None:
        return first if second.static == both else Test(repr(second.static), second.static, true, false)
    if prelude or "(" in second.text or "[" in second.text:
        name = c.fresh()
        inside = [*prelude, "  " * (c.depth + 1) + f"{name} = {second.text}"]
        short = ["  " * (c.depth + 1) + f"{name} = {not both}"]
        c.put(f"if {first.text}:")
        c.lines += inside if both else short
        c.put("else:")
        c.lines += short if both else inside
        return Test(name, None, true, false)
    return Test(f"torch.{'__and__' if both else '__or__'}({first.text}, {second.text})", None, true, false)


def comparison(c: Context, node: ast.Compare) -> Test | None:
    """`is None`, `in`, and chains; None for plain comparisons."""
    if len(node.ops) > 1:
        parts, left = [], node.left
        for op, right in zip(node.ops, node.comparators):
            parts.append(ast.copy_location(ast.Compare(left, [op], [right]), node))
            left = right
        return condition(c, ast.copy_location(ast.BoolOp(ast.And(), list(parts)), node))
    op, right = node.ops[0], node.comparators[0]
    if isinstance(op, ast.Is | ast.IsNot):
        return identity(c, node, isinstance(op, ast.IsNot))
    if isinstance(op, ast.In | ast.NotIn):
        item, container = in_order(c, [node.left, right])
        found = contains(c, container, value_of(c, item, node), node)
        return negated(found) if isinstance(op, ast.NotIn) else found
    return None


def negated(test: Test) -> Test:
    return Test(f"torch.__not__({test.text})", None if test.static is None else not test.static, test.false, test.true)


def contains(c: Context, container: Sugared, item: Value, node: ast.AST | None) -> Test:
    if isinstance(container, Py) and isinstance(container.obj, set | frozenset | dict):
        container = Py(list(container.obj))
    if isinstance(container, Value) and c.unit.is_module(container.kind):
        names = list(c.unit.classes[container.kind.name].module._modules)
        if isinstance(item.const, str):
            return Test("True", item.const in names)
    container = value_of(c, container, node)
    if container.kind.name == "Tuple":
        parts = container.parts or tuple(
            Value(f"({container.text})[{i}]", k) for i, k in enumerate(container.kind.inner)
        )
        item = held(c, item)
        tests = [operator(c, "eq", [item, p], node).text for p in parts if p.kind == item.kind]
        text = tests[0] if tests else "False"
        for test in tests[1:]:
            text = f"torch.__or__({text}, {test})"
        return Test(text, None if tests else False)
    if c.unit.is_class(container.kind):
        return Test(call_method(c, container, "__contains__", [item], {}, node).text)
    return Test(operator(c, "__contains__", [container, item], node).text)


def identity(c: Context, node: ast.Compare, negative: bool) -> Test:
    left, right = node.left, node.comparators[0]
    if isinstance(left, ast.Constant) and left.value is None:
        left, right = right, left
    a, b = sugared(c, left), sugared(c, right)
    if isinstance(a, Py) and isinstance(b, Py):
        same = a.obj is b.obj
        return Test(repr(same != negative), same != negative)
    if not isinstance(a, Value) and isinstance(b, Value) and b.kind == NONE:
        same = isinstance(a, Py) and a.obj is None
        return Test(repr(same != negative), same != negative)
    x, y = value_of(c, a, node), value_of(c, b, node)
    name = "__isnot__" if negative else "__is__"
    text = f"torch.{name}({x.text}, {y.text})"
    if y.kind != NONE:
        return Test(text)
    if x.kind == NONE:
        return Test(repr(not negative), not negative)
    if x.kind.name == "Union" and NONE in x.kind.inner:
        rest = tuple(k for k in x.kind.inner if k != NONE)
        inner = rest[0] if len(rest) == 1 else Kind("Union", rest)
    elif x.kind.name == "Optional":
        inner = x.kind.inner[0]
    elif x.kind.name == "Any":
        return Test(text)
    else:
        return Test(repr(negative), negative)
    refined = {left.id: inner} if isinstance(left, ast.Name) else {}
    empty = {left.id: NONE} if isinstance(left, ast.Name) else {}
    return Test(text, None, refined if negative else empty, empty if negative else refined)


def told_by_call(c: Context, node: ast.Call) -> Test | None:
    """`isinstance`, `hasattr`, `is_scripting`: what is known at compile time; None for other calls."""
    function = node.func
    if isinstance(function, ast.Name) and function.id == "isinstance" and len(node.args) == 2:
        return is_instance(c, node.args[0], node.args[1], node)
    if isinstance(function, ast.Name) and function.id == "hasattr" and len(node.args) == 2:
        name = expr(c, node.args[1]).const
        if not isinstance(name, str):
            raise c.error("hasattr's second argument must be a string literal", node)
        found = has(c, sugared(c, node.args[0]), name)
        return Test(repr(found), found)
    if isinstance(function, ast.Name | ast.Attribute):
        name = function.attr if isinstance(function, ast.Attribute) else function.id
        if name == "isinstance" and len(node.args) == 2:  # torch.jit.isinstance
            return is_instance(c, node.args[0], node.args[1], node)
        known = {
            "is_scripting": True,
            "is_tracing": False,
            "_is_tracing": False,
            "is_compiling": False,
            "is_exporting": False,
            "_get_tracing_state": False,
            "is_dynamo_compiling": False,
            "is_in_onnx_export": False,
            "has_torch_function": False,
            "has_torch_function_unary": False,
            "has_torch_function_variadic": False,
        }.get(name)
        if known is not None:
            return Test(repr(known), known)
        if name in ("is_tensor", "is_storage") and len(node.args) == 1 and not isinstance(function, ast.Name):
            value = expr(c, node.args[0])
            if value.kind.name not in ("Optional", "Any", "Union"):
                return Test(repr(value.kind == TENSOR), value.kind == TENSOR and name == "is_tensor")
            return is_instance(c, node.args[0], ast.copy_location(ast.Name("Tensor", ast.Load()), node), node, Tensor)
    return None


def is_instance(c: Context, given: ast.expr, types: ast.expr, node: ast.AST | None, of: Any = None) -> Test:
    found = sugared(c, given)
    wanted = [of] if of is not None else python_types(c, types)
    if isinstance(found, Py) and constant(c, found.obj) is None:
        plain = tuple(t for t in wanted if isinstance(t, type))
        static = isinstance(found.obj, plain)
        return Test(repr(static), static)
    value = value_of(c, found, node)
    if c.unit.is_module(value.kind):
        static = isinstance(c.unit.classes[value.kind.name].module, tuple(t for t in wanted if isinstance(t, type)))
        return Test(repr(static), static)
    kinds: list[Kind] = []
    for one in wanted:
        try:
            kinds.append(annotation(one, c.unit.named_or_none, c.source.names))
        except ValueError:
            continue  # a class that no value of the program can be of
    parts = parts_of_kind(value.kind)
    yes = [p for p in parts if any(_is(p, k) for k in kinds)]
    no = [p for p in parts if p not in yes]
    if value.kind == ANY:
        name = {given.id: kinds[0]} if isinstance(given, ast.Name) and len(kinds) == 1 else {}
        return Test(instance_text(value, kinds), None, name, {})
    if not yes or not no:
        refined = {given.id: value.kind} if isinstance(given, ast.Name) else {}
        return Test(repr(bool(yes)), bool(yes), refined, refined)
    true = {given.id: _joined(yes)} if isinstance(given, ast.Name) else {}
    false = {given.id: _joined(no)} if isinstance(given, ast.Name) else {}
    return Test(instance_text(value, yes), None, true, false)


def instance_text(value: Value, kinds: list[Kind]) -> str:
    names = ", ".join(map(str, kinds))
    return f"isinstance({value.text}, ({names},))" if len(kinds) > 1 else f"isinstance({value.text}, {names})"


def parts_of_kind(kind: Kind) -> list[Kind]:
    if kind.name == "Optional":
        return [*parts_of_kind(kind.inner[0]), NONE]
    if kind.name == "Union":
        return list(kind.inner)
    return [Kind("int"), Kind("float"), Kind("complex")] if kind.name in ("number", "Scalar") else [kind]


def python_types(c: Context, node: ast.expr) -> list[Any]:
    """The classes that `isinstance` is given."""
    if isinstance(node, ast.Tuple | ast.List):
        return [t for part in node.elts for t in python_types(c, part)]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return [*python_types(c, node.left), *python_types(c, node.right)]
    if isinstance(node, ast.Subscript):
        return [ast.unparse(node)]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "type":
        return [type(None)]
    found = sugared(c, node)
    if isinstance(found, Value) and found.kind == NONE:
        return [type(None)]
    if not isinstance(found, Py):
        raise c.error("isinstance is given something that is no type", node)
    return list(found.obj) if isinstance(found.obj, tuple) else [found.obj]


def _joined(kinds: list[Kind]) -> Kind:
    found: Kind | None = kinds[0]
    for kind in kinds[1:]:
        found = None if found is None else unified(found, kind)
    return found if found is not None else Kind("Union", tuple(kinds))


def _is(kind: Kind, of: Kind) -> bool:
    if of.name == "list" and kind.name == "List":
        return True
    if of.name == "tuple" and (kind.name == "Tuple" or kind.name.startswith("__torch__")):
        return True
    if {kind.name, of.name} <= {"int", "bool"} and kind != of:
        return False
    return subtype(kind, of) and of != ANY
