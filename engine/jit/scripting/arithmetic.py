"""Operators of Python between values: arithmetic, comparison, truth."""

from __future__ import annotations

import ast
from typing import Any

from engine.jit.archive.kinds import BOOL, NONE, STR, TENSOR
from engine.jit.archive.schemas import Value
from engine.jit.scripting.context import Context
from engine.jit.scripting.frontend import unsupported
from engine.jit.scripting.methods import call_method
from engine.jit.scripting.values import held, operator, tuple_of

__all__ = ["COMPARED", "binary", "compared", "truth"]

_BINARY = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floordiv",
    ast.Mod: "remainder",
    ast.Pow: "pow",
    ast.MatMult: "matmul",
    ast.BitAnd: "__and__",
    ast.BitOr: "__or__",
    ast.BitXor: "__xor__",
    ast.LShift: "__lshift__",
    ast.RShift: "__rshift__",
}
_SPECIAL = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "truediv",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.MatMult: "matmul",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
    ast.LShift: "lshift",
    ast.RShift: "rshift",
}
COMPARED = {ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}


def binary(c: Context, op: Any, left: Value, right: Value, node: ast.AST | None) -> Value:
    name = _BINARY.get(op)
    if name is None:
        raise unsupported(c.source, node)
    if c.unit.is_class(left.kind):
        return call_method(c, left, f"__{_SPECIAL[op]}__", [right], {}, node)
    if op is ast.Mod and left.kind == STR:
        parts = right.parts if right.parts is not None else (right,)
        return Value(f"torch.percentFormat({', '.join([left.text, *(p.text for p in parts)])})", STR)
    if left.kind.name == "Tuple" and op in (ast.Mult, ast.Add):
        parts = left.parts or tuple(Value(f"({held(c, left).text})[{i}]", k) for i, k in enumerate(left.kind.inner))
        if op is ast.Mult and isinstance(right.const, int):
            return tuple_of([held(c, p) for p in parts] * right.const)
        if op is ast.Add and right.kind.name == "Tuple":
            more = right.parts or tuple(
                Value(f"({held(c, right).text})[{i}]", k) for i, k in enumerate(right.kind.inner)
            )
            return tuple_of([*parts, *more])
    if op is ast.FloorDiv and TENSOR in (left.kind, right.kind):
        name = "floor_divide"
    if right.kind == TENSOR and left.kind.name in ("int", "float", "number", "complex", "bool"):
        swapped = {"add": "add", "mul": "mul", "sub": "rsub"}.get(name)
        if swapped is not None:
            return operator(c, swapped, [right, left], node)
        if name == "div":
            return operator(c, "mul", [operator(c, "reciprocal", [right], node), left], node)
        if name in ("floor_divide", "remainder"):
            left = operator(c, "scalar_tensor", [left], node)
    return operator(c, name, [left, right], node)


def compared(c: Context, op: Any, left: Value, right: Value, node: ast.AST | None) -> Value:
    name = COMPARED[op]
    if c.unit.is_class(left.kind) and not c.unit.is_tuple(left.kind) and not c.unit.is_enum(left.kind):
        return call_method(c, left, f"__{name}__", [right], {}, node)
    if c.unit.is_enum(left.kind):
        return Value(f"torch.{name}({left.text}, {right.text})", BOOL)
    if right.kind == TENSOR and left.kind != TENSOR:
        name = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}.get(name, name)
        left, right = right, left
    if left.kind == right.kind and left.kind.name == "Tuple":
        return tuples_compared(c, name, left, right, node)
    return operator(c, name, [left, right], node)


def tuples_compared(c: Context, name: str, left: Value, right: Value, node: ast.AST | None) -> Value:
    left, right = held(c, left), held(c, right)
    parts = [
        operator(c, "eq", [Value(f"({left.text})[{i}]", k), Value(f"({right.text})[{i}]", k)], node).text
        for i, k in enumerate(left.kind.inner)
    ]
    text = parts[0] if parts else "True"
    for part in parts[1:]:
        text = f"torch.__and__({text}, {part})"
    return Value(text if name == "eq" else f"torch.__not__({text})", BOOL)


def truth(c: Context, value: Value, node: ast.AST | None) -> Value:
    """`bool(value)`, as a condition takes it."""
    if value.kind == BOOL:
        return value
    if value.kind == NONE:
        return Value("False", BOOL, False)
    if value.kind.name in ("Tensor", "int", "float", "number"):
        return Value(f"bool({value.text})", BOOL)
    if value.kind.name in ("List", "Dict", "str"):
        return Value(f"torch.ne(torch.len({value.text}), 0)", BOOL)
    if c.unit.is_class(value.kind) and c.unit.has_method(value.kind, "__bool__"):
        return call_method(c, value, "__bool__", [], {}, node)
    raise c.error(f"Could not cast value of type {value.kind} to bool", node)
