"""Targets of assignments: names, tuples of them, attributes, subscripts."""

from __future__ import annotations

import ast

from engine.jit.archive.kinds import TENSOR, Kind
from engine.jit.archive.schemas import Value
from engine.jit.scripting.attributes import assign_attribute
from engine.jit.scripting.context import Context
from engine.jit.scripting.frontend import CompileError, annotation, unsupported
from engine.jit.scripting.names import spelt
from engine.jit.scripting.subscripts import assign_subscript
from engine.jit.scripting.sugared import Many, Sugared
from engine.jit.scripting.values import fitted, held, value_of

__all__ = ["annotated", "assign_name", "bind", "retyped"]


def bind(c: Context, target: ast.expr, value: Sugared, node: ast.AST | None) -> None:
    """Give a target a value, or what is no value, under its name."""
    if isinstance(target, ast.Tuple | ast.List):
        if sum(isinstance(one, ast.Starred) for one in target.elts) > 1:
            raise c.error("Only one starred expression is allowed on the lhs", target)
        parts = parts_of(c, value, len(target.elts), node, target)
        if parts is None:
            return
        for one, part in zip(target.elts, parts):
            bind(c, one, part, node)
        return
    if not isinstance(value, Value):
        if isinstance(target, ast.Name):
            c.env[target.id] = value
            return
        value = value_of(c, value, node)
    if isinstance(target, ast.Name):
        assign_name(c, target.id, value, node)
    elif isinstance(target, ast.Attribute):
        assign_attribute(c, target, value, node)
    elif isinstance(target, ast.Subscript):
        assign_subscript(c, target, value, node)
    else:
        raise unsupported(c.source, target)


def parts_of(c: Context, value: Sugared, count: int, node: ast.AST | None, target: ast.expr) -> list[Sugared] | None:
    """What an unpacking gives each of `count` targets."""
    if isinstance(value, Many):
        found = list(value.items)
    elif isinstance(value, Value) and value.kind.name == "Tuple":
        if value.parts is not None:
            found = [held(c, p) for p in value.parts]
        else:
            name = held(c, value).text
            found = [Value(f"({name})[{i}]", k) for i, k in enumerate(value.kind.inner)]
    elif isinstance(value, Value) and c.unit.is_tuple(value.kind):
        name = held(c, value).text
        kinds = list(c.unit.classes[value.kind.name].attributes.values())
        found = [Value(f"({name})[{i}]", k) for i, k in enumerate(kinds)]
    elif isinstance(value, Value) and value.kind.name == "List":
        names = [c.fresh() for _ in range(count)]
        c.put(f"{', '.join(names)}, = {value.text}")
        return [Value(n, value.kind.inner[0]) for n in names]
    elif isinstance(value, Value) and value.kind == TENSOR:
        names = [c.fresh() for _ in range(count)]
        c.put(f"{', '.join(names)}, = torch.unbind({value.text}, 0)")
        return [Value(n, TENSOR) for n in names]
    else:
        shown = value.kind if isinstance(value, Value) else value
        raise c.error(f"{shown} cannot be used as a tuple", node)
    if len(found) != count:
        raise c.error(
            f"{'Too many' if len(found) > count else 'need'} values to unpack: need {count} but found {len(found)}",
            node,
        )
    return found


def assign_name(c: Context, name: str, value: Value, node: ast.AST | None, written: bool = False) -> None:
    before = c.env.get(name)
    wanted = c.frame.get(name) if isinstance(before, Value) else None
    if wanted is not None:
        fit = fitted(c, value, wanted)
        if fit is None:
            raise retyped(c, name, wanted, value.kind, node)
        value = fit
    if value.text == "[]" and value.kind.name == "List":
        value = Value(f"annotate({value.kind}, [])", value.kind)
    text = spelt(name)
    if value.text != text and not written:
        c.put(f"{text} = {value.text}")
    c.env[name] = Value(text, value.kind)
    c.gone.pop(name, None)


def annotated(c: Context, node: ast.AST) -> Kind:
    """The type that an annotation in the body means."""
    try:
        return annotation(ast.unparse(node), c.unit.named, c.source.names)
    except ValueError as e:
        raise c.error(str(e), node) from None


def retyped(c: Context, name: str, was: Kind, now: Kind, node: ast.AST | None) -> CompileError:
    if c.unit.is_module(now):
        return c.error(
            f"Cannot re-assign '{name}' to a value of type module because {name} is not a first-class value.  Only "
            "reassignments to first-class values are allowed",
            node,
        )
    return c.error(
        f"Variable '{name}' previously had type {was} but is now being assigned to a value of type {now}", node
    )
