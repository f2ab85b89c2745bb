"""Subscripts: what `x[key]` reads, and what `x[key] = value` writes."""

from __future__ import annotations

import ast
from typing import Any

from engine.jit.archive.kinds import INT, NONE, STR, TENSOR, Kind
from engine.jit.archive.schemas import MISSING, Value
from engine.jit.scripting.attributes import attribute_of, children
from engine.jit.scripting.context import Context, Writer
from engine.jit.scripting.methods import call_method
from engine.jit.scripting.sugared import Many, Py, Sugared
from engine.jit.scripting.values import constant, expr, held, operator, required, tuple_of, value_of

__all__ = ["assign_subscript", "sliced", "store", "subscript"]

_INDICES = Kind("List", (Kind("Optional", (TENSOR,)),))


def subscript(c: Context, found: Sugared, key: ast.expr, node: ast.AST | None) -> Sugared:
    if isinstance(found, Many):
        return known_items(c, found.items, key, node)
    if isinstance(found, Py):
        made = constant(c, found.obj)
        if made is None:
            raise c.error(f"{found.obj!r} cannot be subscripted", node)
        found = made
    value = value_of(c, found, node)
    name = value.kind.name
    if c.unit.is_module(value.kind):
        return child_of(c, value, key, node)
    if name == "Tuple" or c.unit.is_tuple(value.kind):
        return tuple_item(c, value, key, node)
    if name == "Tensor":
        return of_tensor(c, value, key, node)[0]
    if isinstance(key, ast.Slice):
        start, end, step = bounds(c, key, node)
        if name not in ("List", "str"):
            raise c.error(f"'{value.kind}' object is not sliceable", node)
        return operator(c, "slice", [value, start, end, step], node)
    index = expr(c, key)
    if name == "List":
        if index.kind != INT:
            raise c.error(f"list indices must be integers, not {index.kind}", node)
        return Value(f"{value.text}[{index.text}]", value.kind.inner[0])
    if name == "Dict":
        return Value(f"{value.text}[{required(c, index, value.kind.inner[0], node).text}]", value.kind.inner[1])
    if name == "str":
        return Value(f"ops.prim.StringIndex({value.text}, {index.text})", STR)
    if c.unit.is_class(value.kind):
        return call_method(c, value, "__getitem__", [index], {}, node)
    raise c.error(f"'{value.kind}' object is not subscriptable", node)


def bounds(c: Context, key: ast.Slice, node: ast.AST | None) -> list[Value]:
    none, one = Value("None", NONE, None), Value("1", INT, 1)
    parts = [none if p is None else expr(c, p) for p in (key.lower, key.upper)]
    return [*parts, one if key.step is None else expr(c, key.step)]


def constant_index(c: Context, key: ast.expr, count: int, node: ast.AST | None) -> int:
    index = expr(c, key)
    if not isinstance(index.const, int):
        raise c.error("tuple index must be a compile time constant", node)
    at = int(index.const)
    if not -count <= at < count:
        raise c.error("Tuple index out of range", node)
    return at % count


def known_items(c: Context, items: list[Sugared], key: ast.expr, node: ast.AST | None) -> Sugared:
    if isinstance(key, ast.Slice):
        return Many(items[constant_slice(c, key, node)])
    return items[constant_index(c, key, len(items), node)]


def constant_slice(c: Context, key: ast.Slice, node: ast.AST | None) -> slice:
    parts = []
    for part in (key.lower, key.upper, key.step):
        value = None if part is None else expr(c, part).const
        if value is MISSING:
            raise c.error("the bounds of a slice of a tuple must be constants", node)
        parts.append(value)
    return slice(*parts)


def tuple_item(c: Context, value: Value, key: ast.expr, node: ast.AST | None) -> Sugared:
    kinds = value.kind.inner or tuple(c.unit.classes[value.kind.name].attributes.values())
    if not isinstance(key, ast.Slice):
        index = expr(c, key)
        if index.kind == INT and not isinstance(index.const, int):
            if len(set(kinds)) != 1:
                raise c.error(
                    f"Cannot index into a {value.kind} with a non-integer literal because we cannot "
                    "resolve the output type",
                    node,
                )
            return Value(f"({value.text})[{index.text}]", kinds[0])
        at = constant_index(c, key, len(kinds), node)
        return value.parts[at] if value.parts is not None else Value(f"({value.text})[{at}]", kinds[at])
    value = held(c, value)
    whole = [Value(f"({value.text})[{i}]", k) for i, k in enumerate(kinds)]
    return tuple_of(whole[constant_slice(c, key, node)])


def child_of(c: Context, value: Value, key: ast.expr, node: ast.AST | None) -> Sugared:
    """A part of a ModuleList, ModuleDict, Sequential or ParameterList."""
    info = c.unit.classes[value.kind.name]
    if isinstance(key, ast.Slice):
        return Many(children(c, value)[constant_slice(c, key, node)])
    if c.unit.has_method(value.kind, "__getitem__"):
        return call_method(c, value, "__getitem__", [expr(c, key)], {}, node)
    index = expr(c, key)
    names = list(info.children) or list(info.module._parameters)
    if isinstance(index.const, str) and index.const in names:
        return attribute_of(c, value, index.const, node)
    if isinstance(index.const, int) and -len(names) <= index.const < len(names):
        return attribute_of(c, value, names[index.const], node)
    if index.const is MISSING and len({c.path for c in info.children.values()}) >= 1:
        raise c.error(
            "Unable to extract string literal index. ModuleDict indexing is only supported with string literals. "
            "For example, 'i = \"a\"; self.layers[i](x)' will fail because i is not a literal. Enumeration of "
            "ModuleDict is supported, e.g. 'for k, v in self.items(): ...'"
            if index.kind == STR
            else "Expected integer literal for index. ModuleList/Sequential indexing is only supported with "
            "integer literals. For example, 'i = 4; self.layers[i](x)' will fail because i is not a literal. "
            "Enumeration is supported, e.g. 'for index, v in enumerate(self): out = v(inp)'",
            node,
        )
    raise c.error(f"the module has no part {index.const!r}", node)


def of_tensor(c: Context, value: Value, key: ast.expr, node: ast.AST | None) -> tuple[Value, Value | None, str]:
    """`x[key]`; for writing, what is indexed and the indices as text."""
    parts = list(key.elts) if isinstance(key, ast.Tuple) else [key]
    made: list[Any] = []
    for part in parts:
        if isinstance(part, ast.Slice):
            made.append(bounds(c, part, node))
        elif isinstance(part, ast.Constant) and part.value in (None, Ellipsis):
            made.append(part.value)
        elif isinstance(part, ast.Name) and part.id == "Ellipsis":
            made.append(Ellipsis)
        else:
            given = expr(c, part)
            if given.kind.name == "Tuple" and len(parts) == 1:
                made += [Value(f"({held(c, given).text})[{i}]", k) for i, k in enumerate(given.kind.inner)]
            elif given.kind == NONE:
                made.append(None)
            else:
                made.append(given)
    if Ellipsis not in made:
        return sliced(c, value, made, [], node)
    at = made.index(Ellipsis)
    return sliced(c, value, made[:at], made[at + 1 :], node)


def sliced(
    c: Writer, value: Value, front: list[Any], back: list[Any], node: ast.AST | None
) -> tuple[Value, Value | None, str]:
    """Index the first dims by `front`, the last by `back`."""
    indices: dict[int, Value] = {}
    dim = 0

    def step(current: Value, item: Any, at: int) -> tuple[Value, int]:
        where = Value(str(at), INT, at)
        if item is None:
            return operator(c, "unsqueeze", [current, where], node), 1
        if isinstance(item, list):
            if item[0].const is None and item[1].const is None and item[2].const == 1:
                return current, 1
            return operator(c, "slice", [current, where, *item], node), 1
        if item.kind == INT or item.kind.name == "number":
            return operator(c, "select", [current, where, item], node), 0
        if item.kind.name == "List":
            item = operator(c, "tensor", [item], node)
        elif item.kind == Kind("bool"):
            item = operator(c, "scalar_tensor", [item], node)
        elif item.kind != TENSOR:
            raise c.error(
                f"Unsupported operation: indexing tensor with unsupported index type '{item.kind}'. "
                "Only ints, slices, lists and tensors are supported",
                node,
            )
        indices[at] = item
        return current, 1

    for item in front:
        value, further = step(value, item, dim)
        dim += further
    from_end = -1
    for item in reversed(back):
        if item is None:
            value = operator(c, "unsqueeze", [value, Value(str(from_end), INT, from_end)], node)
            from_end -= 1
            continue
        value, further = step(value, item, from_end)
        from_end -= further
    if not indices:
        if not value.text.startswith("torch.") and (front or back):
            value = operator(c, "alias", [value], node)
        return value, None, ""
    if any(at < 0 for at in indices):
        raise c.error("a tensor index after ... is not supported", node)
    inside = ", ".join(indices[i].text if i in indices else "None" for i in range(max(indices) + 1))
    text = f"annotate({_INDICES}, [{inside}])"
    return Value(f"torch.index({value.text}, {text})", TENSOR), value, text


def assign_subscript(c: Context, target: ast.Subscript, value: Value, node: ast.AST | None) -> None:
    container = expr(c, target.value)
    store(c, container, target.slice, value, node)


def store(c: Context, container: Value, key: ast.expr, value: Value, node: ast.AST | None) -> None:
    """`container[key] = value`."""
    if container.kind == TENSOR:
        whole, base, indices = of_tensor(c, container, key, node)
        if base is not None:
            if value.kind != TENSOR:
                like = f"dtype=ops.prim.dtype({base.text}), device=ops.prim.device({base.text})"
                value = Value(f"torch.tensor({value.text}, {like})", TENSOR)
            c.put(f"{c.fresh()} = torch.index_put_({base.text}, {indices}, {value.text})")
        elif value.kind == TENSOR:
            c.put(f"{c.fresh()} = torch.copy_({whole.text}, {value.text})")
        else:
            c.put(f"{c.fresh()} = torch.fill_({whole.text}, {required(c, value, Kind('number'), node).text})")
        return
    if c.unit.is_class(container.kind):
        c.put(f"{c.fresh()} = {call_method(c, container, '__setitem__', [expr(c, key), value], {}, node).text}")
        return
    if container.kind.name not in ("List", "Dict"):
        raise c.error(f"'{container.kind}' object does not support item assignment", node)
    index = expr(c, key)
    value = required(c, value, container.kind.inner[-1], node)
    c.put(f"{c.fresh()} = torch._set_item({container.text}, {index.text}, {value.text})")
