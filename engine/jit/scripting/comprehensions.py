"""Comprehensions, and lists of what a loop goes over."""

from __future__ import annotations

import ast

from engine.jit.archive.kinds import STR, TENSOR, Kind
from engine.jit.archive.schemas import Value
from engine.jit.scripting.assignments import bind
from engine.jit.scripting.conditions import condition
from engine.jit.scripting.context import Context
from engine.jit.scripting.frontend import unsupported
from engine.jit.scripting.iteration import iterable
from engine.jit.scripting.sugared import Iterated, Many, Sugared
from engine.jit.scripting.values import expr, held, list_of, refine, value_of

__all__ = ["comprehension", "gathered"]


def comprehension(c: Context, node: ast.ListComp | ast.DictComp | ast.GeneratorExp, hint: Kind | None) -> Value:
    if len(node.generators) != 1:
        raise unsupported(c.source, node, "with several for clauses")
    part = node.generators[0]
    source = iterable(c, part.iter)
    outer = dict(c.env)
    if isinstance(source, Many):
        return unrolled(c, node, part, source, hint, outer)
    name, outer_lines, c.lines = c.fresh(), c.lines, []
    index = c.fresh()
    c.depth += 1
    bind(c, part.target, source.item(index), node)
    tests = 0
    for one in part.ifs:
        test = condition(c, one)
        c.put(f"if {test.text}:")
        c.depth += 1
        refine(c, test.true)
        tests += 1
    if isinstance(node, ast.DictComp):
        key, value = expr(c, node.key), expr(c, node.value)
        kind = Kind("Dict", (key.kind, value.kind))
        c.put(f"{c.fresh()} = torch._set_item({name}, {key.text}, {value.text})")
    else:
        inner = hint.inner[0] if hint is not None and hint.name == "List" else None
        value = expr(c, node.elt, inner)
        kind = Kind("List", (value.kind,))
        c.put(f"{c.fresh()} = torch.append({name}, {value.text})")
    for _ in range(tests):
        c.depth -= 1
        c.put("else:")
        c.put("  pass")
    c.depth -= 1
    body, c.lines, c.env = c.lines, outer_lines, outer
    c.put(f"{name} = annotate({kind}, {'{}' if kind.name == 'Dict' else '[]'})")
    c.put(f"for {index} in range({source.length}):")
    c.lines += body
    return Value(name, kind)


def unrolled(
    c: Context,
    node: ast.ListComp | ast.DictComp | ast.GeneratorExp,
    part: ast.comprehension,
    source: Many,
    hint: Kind | None,
    outer: dict[str, Sugared],
) -> Value:
    """A comprehension over modules: each in turn."""
    found = []
    for item in source.items:
        bind(c, part.target, item, node)
        if any(condition(c, one).static is not True for one in part.ifs):
            continue
        if isinstance(node, ast.DictComp):
            found.append((held(c, expr(c, node.key)), held(c, expr(c, node.value))))
        else:
            found.append(held(c, expr(c, node.elt)))  # type: ignore[arg-type]
    c.env = outer
    if isinstance(node, ast.DictComp):
        kind = Kind("Dict", (found[0][0].kind, found[0][1].kind)) if found else Kind("Dict", (STR, TENSOR))
        return Value("{" + ", ".join(f"{k.text}: {v.text}" for k, v in found) + "}", kind)
    inner = hint.inner[0] if hint is not None and hint.name == "List" else None
    return list_of(c, found, inner, node)  # type: ignore[arg-type]


def gathered(c: Context, source: Iterated, node: ast.AST | None) -> Value:
    """What a loop goes over, in a list."""
    name, index, outer_lines, c.lines = c.fresh(), c.fresh(), c.lines, []
    c.depth += 1
    value = value_of(c, source.item(index), node)
    c.put(f"{c.fresh()} = torch.append({name}, {value.text})")
    c.depth -= 1
    body, c.lines = c.lines, outer_lines
    kind = Kind("List", (value.kind,))
    c.put(f"{name} = annotate({kind}, [])")
    c.put(f"for {index} in range({source.length}):")
    c.lines += body
    return Value(name, kind)
