"""What a loop or a comprehension goes over."""

from __future__ import annotations

import ast
from collections.abc import Callable

from engine.jit.archive.kinds import INT, STR, TENSOR
from engine.jit.archive.schemas import Value
from engine.jit.scripting.attributes import children
from engine.jit.scripting.context import Context
from engine.jit.scripting.methods import call_method
from engine.jit.scripting.sugared import Bound, Iterated, Many, Py, Sugared
from engine.jit.scripting.values import constant, expr, held, in_order, operator, required, sugared, value_of
from engine.nn.modules.container import ModuleDict

__all__ = ["iterable", "of_container", "range_of"]


def iterable(c: Context, node: ast.expr) -> Iterated | Many:
    """What `for x in node` goes over."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id not in c.env:
        made = _BUILTINS.get(node.func.id)
        if made is not None:
            return made(c, node)
    found = sugared(c, node)
    return over(c, found, node)


def over(c: Context, found: Sugared, node: ast.AST | None) -> Iterated | Many:
    if isinstance(found, Many | Iterated):
        return found
    if isinstance(found, Bound):
        raise c.error("a method is not iterable", node)
    if isinstance(found, Py) and isinstance(found.obj, list | tuple | range) and constant(c, list(found.obj)) is None:
        return Many([value_of(c, Py(o), node) for o in found.obj])
    value = value_of(c, found, node)
    kind = value.kind
    if c.unit.is_module(kind):
        info = c.unit.classes[kind.name]
        if isinstance(info.module, ModuleDict):
            return Many([Value(repr(n), STR, n) for n in info.children])
        return Many(children(c, value))
    if kind.name == "Tuple":
        if value.parts is None:
            value = held(c, value)
            return Many([Value(f"({value.text})[{i}]", k) for i, k in enumerate(kind.inner)])
        return Many(list(value.parts))
    if kind.name == "Dict":
        value = operator(c, "keys", [value], node)
        kind = value.kind
    value = held(c, value)
    if kind.name == "List":
        return Iterated(f"torch.len({value.text})", lambda i: Value(f"{value.text}[{i}]", kind.inner[0]))
    if kind == TENSOR:
        return Iterated(f"torch.len({value.text})", lambda i: Value(f"torch.select({value.text}, 0, {i})", TENSOR))
    if kind == STR:
        return Iterated(f"torch.len({value.text})", lambda i: Value(f"ops.prim.StringIndex({value.text}, {i})", STR))
    if c.unit.is_class(kind) and c.unit.has_method(kind, "__len__"):
        count = call_method(c, value, "__len__", [], {}, node)
        return Iterated(count.text, lambda i: call_method(c, value, "__getitem__", [Value(i, INT)], {}, node))
    raise c.error(f"'{kind}' object is not iterable", node)


def range_of(c: Context, node: ast.Call) -> Iterated:
    args = [required(c, value_of(c, v, node), INT, node) for v in in_order(c, list(node.args))]
    if not 1 <= len(args) <= 3 or node.keywords:
        some = "1 argument" if not args else "at most 3 arguments"
        raise c.error(f"range() expects {some} but got {len(args) + len(node.keywords)}", node)
    if len(args) == 1:
        return Iterated(args[0].text, lambda i: Value(i, INT), plain=True)
    start, stop = held(c, args[0]), args[1]
    step = held(c, args[2]) if len(args) == 3 else Value("1", INT, 1)
    return Iterated(
        f"torch.__range_length({start.text}, {stop.text}, {step.text})",
        lambda i: Value(f"torch.__derive_index({i}, {start.text}, {step.text})", INT),
    )


def _enumerate(c: Context, node: ast.Call) -> Iterated | Many:
    inner = iterable(c, node.args[0])
    first = expr(c, node.args[1]) if len(node.args) > 1 else None
    for keyword in node.keywords:
        first = expr(c, keyword.value)
    if isinstance(inner, Many):
        if first is not None and not isinstance(first.const, int):
            raise c.error("enumerate of modules begins with a constant", node)
        begin = 0 if first is None else int(first.const)
        return Many([Many([Value(str(i), INT, i), item]) for i, item in enumerate(inner.items, begin)])

    def item(i: str) -> Many:
        number = Value(i, INT) if first is None else Value(f"torch.add({i}, {first.text})", INT)
        return Many([number, inner.item(i)])

    return Iterated(inner.length, item)


def _zip(c: Context, node: ast.Call) -> Iterated | Many:
    parts = [iterable(c, arg) for arg in node.args]
    known = [p for p in parts if isinstance(p, Many)]
    if len(known) == len(parts):
        return Many([Many(list(group)) for group in zip(*(p.items for p in known))])
    if known:
        count = min(len(p.items) for p in known)
        return Many(
            [Many([p.items[i] if isinstance(p, Many) else p.item(str(i)) for p in parts]) for i in range(count)]
        )
    lengths = ", ".join(p.length for p in parts if isinstance(p, Iterated))
    return Iterated(f"ops.prim.min([{lengths}])", lambda i: Many([p.item(i) for p in parts if isinstance(p, Iterated)]))


def _reversed(c: Context, node: ast.Call) -> Iterated | Many:
    inner = iterable(c, node.args[0])
    if isinstance(inner, Many):
        return Many(inner.items[::-1])
    count = held(c, Value(inner.length, INT)).text
    return Iterated(count, lambda i: inner.item(f"torch.sub(torch.sub({count}, 1), {i})"))


def of_container(c: Context, value: Value, name: str) -> Many:
    """`keys()`, `values()`, `items()` of a ModuleDict."""
    info = c.unit.classes[value.kind.name]
    names = [Value(repr(n), STR, n) for n in info.children]
    parts = children(c, value)
    if name == "keys":
        return Many(list(names))
    return Many(parts) if name == "values" else Many([Many([n, p]) for n, p in zip(names, parts)])


_BUILTINS: dict[str, Callable[[Context, ast.Call], Iterated | Many]] = {
    "range": range_of,
    "enumerate": _enumerate,
    "zip": _zip,
    "reversed": _reversed,
}
