"""Expressions as values: the text and type of each, constants, and a value as one of another type."""

from __future__ import annotations

import ast
import enum
from typing import Any

from engine.core import dtypes
from engine.core.device import device as Device
from engine.jit.archive.kinds import FLOAT, INT, NONE, STR, TENSOR, Kind, number_of
from engine.jit.archive.operators import why_not
from engine.jit.archive.schemas import MISSING, Mismatch, Value, converted, find, match, subtype, unified
from engine.jit.scripting.context import Context, Writer
from engine.jit.scripting.frontend import unsupported
from engine.jit.scripting.sugared import Bound, Many, Py, Sugared
from engine.tensor import Tensor

__all__ = [
    "builtin",
    "constant",
    "expr",
    "fitted",
    "held",
    "in_order",
    "list_of",
    "operator",
    "refine",
    "required",
    "single",
    "spelt_as",
    "sugared",
    "taken_apart",
    "text_of",
    "tuple_of",
    "value_of",
]


def expr(c: Context, node: ast.expr, hint: Kind | None = None) -> Value:
    """The value of an expression."""
    return value_of(c, sugared(c, node, hint), node)


def sugared(c: Context, node: ast.expr, hint: Kind | None = None) -> Sugared:
    """The value of an expression, or what is no value: a function, a method, a list of modules."""
    step = c.expressions.get(type(node))
    if step is None:
        raise unsupported(c.source, node)
    return step(c, node, hint)


def value_of(c: Writer, found: Sugared, node: ast.AST | None = None) -> Value:
    if isinstance(found, Value):
        return found
    if isinstance(found, Many):
        return tuple_of([value_of(c, item, node) for item in found.items])
    if isinstance(found, Py):
        made = constant(c, found.obj)
        if made is not None:
            return made
        raise c.error(
            f"Python value of type '{type(found.obj).__name__}' cannot be used as a value. Perhaps it "
            "is a closed over global variable? If so, please consider passing it in as an argument or "
            "use a local varible instead.",
            node,
        )
    if isinstance(found, Bound):
        what = "module method" if c.unit.is_class(found.value.kind) else "builtin"
        raise c.error(f"{what} cannot be used as a value: call {found.name}", node)
    if found is None:
        return Value("None", NONE, None)
    raise c.error(f"{found} cannot be used as a value", node)


def tuple_of(parts: list[Value]) -> Value:
    text = ", ".join(p.text for p in parts) + ("," if len(parts) == 1 else "")
    return Value(f"({text})", Kind("Tuple", tuple(p.kind for p in parts)), parts=tuple(parts))


def list_of(c: Writer, parts: list[Value], inner: Kind | None, node: ast.AST | None = None) -> Value:
    if not parts:
        return Value("[]", Kind("List", (inner or TENSOR,)))
    kind = parts[0].kind
    for part in parts[1:]:
        common = unified(kind, part.kind)
        if common is None or (common != kind and not {common.name, kind.name} & {"Optional", "Tuple"}):
            raise c.error(
                f"Could not unify type list subtypes {kind} and {part.kind}: all elements of a list have one type",
                node,
            )
        kind = common
    if inner is not None and all(subtype(p.kind, inner) for p in parts):
        kind = inner
    text = f"[{', '.join(p.text for p in parts)}]"
    made = Kind("List", (kind,))
    if any(p.kind != kind for p in parts):
        text = f"annotate({made}, {text})"
    return Value(text, made, parts=tuple(parts))


def constant(c: Writer, obj: Any) -> Value | None:
    """A Python value as a constant of the program."""
    if obj is None:
        return Value("None", NONE, None)
    if isinstance(obj, enum.Enum):
        kind = c.unit.named(type(obj))
        return None if kind is None else Value(f"{kind.name}.{obj.name}", kind)
    for of in (bool, int, str):
        if type(obj) is of:
            return Value(repr(obj), Kind(of.__name__), obj)
    if type(obj) is float:
        return Value({"-inf": "torch.neg(inf)"}.get(repr(obj), repr(obj)), FLOAT, obj)  # inf and nan as they are
    if type(obj) is complex:
        return Value(f"complex({obj.real!r}, {obj.imag!r})", Kind("complex"), obj)
    if isinstance(obj, dtypes.dtype):
        return Value(str(number_of(obj)), INT, number_of(obj))
    if isinstance(obj, Device):
        return Value(f"torch.device({str(obj)!r})", Kind("Device"))
    if type(obj).__name__ in ("memory_format", "layout"):
        names = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")
        number = next((i for i, n in enumerate(names) if str(obj).endswith("." + n)), 0)
        return Value(str(number), INT, number)
    if isinstance(obj, Tensor) and not obj.requires_grad:
        return Value(c.unit.constant(obj), TENSOR)
    if isinstance(obj, list | tuple) and not hasattr(obj, "_fields"):
        parts = [constant(c, one) for one in obj]
        if None in parts:
            return None
        if isinstance(obj, tuple) and type(obj).__name__ != "Size":
            return tuple_of([p for p in parts if p is not None])
        return list_of(c, [p for p in parts if p is not None], None)
    if isinstance(obj, dict) and obj:
        keys, values = ([constant(c, o) for o in part] for part in (obj.keys(), obj.values()))
        if None in keys or None in values:
            return None
        text = ", ".join(f"{k.text}: {v.text}" for k, v in zip(keys, values))  # type: ignore[union-attr]
        return Value(f"{{{text}}}", Kind("Dict", (keys[0].kind, values[0].kind)))  # type: ignore[union-attr]
    return None


def held(c: Writer, value: Value) -> Value:
    """The value under a name, so that it is computed once."""
    text = value.text
    if text.isidentifier() or value.const is not MISSING or text.startswith("CONSTANTS."):
        return value
    name = c.fresh()
    if text in ("[]", "{}"):
        text = f"annotate({value.kind}, {text})"
    c.put(f"{name} = {text}")
    return Value(name, value.kind)


def fitted(c: Writer, value: Value, kind: Kind) -> Value | None:
    """The value as one of a type, None if it is none."""
    if kind.name in ("List", "Dict") and value.text in ("[]", "{}"):
        return Value(f"annotate({kind}, {value.text})", kind)
    if kind.name == "Optional" and value.text in ("[]", "{}") and kind.inner[0].name == value.kind.name:
        return Value(f"annotate({kind.inner[0]}, {value.text})", kind.inner[0])
    if c.unit.conforms(value.kind, kind):
        return value
    if kind.name == "Tuple" and value.parts is not None and len(value.parts) == len(kind.inner):
        made = [fitted(c, p, k) for p, k in zip(value.parts, kind.inner)]
        if None not in made:
            return Value(tuple_of([m for m in made if m is not None]).text, kind, parts=tuple(made))  # type: ignore[arg-type]
    if kind.name == "List" and value.parts is not None and value.kind.name == "List":
        made = [fitted(c, p, kind.inner[0]) for p in value.parts]
        if None not in made:
            text = ", ".join(m.text for m in made if m is not None)
            return Value(f"annotate({kind}, [{text}])", kind)
    return converted(value, kind, True)


def required(c: Writer, value: Value, kind: Kind, node: ast.AST | None) -> Value:
    fit = fitted(c, value, kind)
    if fit is None:
        raise c.error(f"Expected a value of type '{kind}' but instead found type '{value.kind}'", node)
    return fit


def in_order(c: Context, nodes: list[ast.expr], hints: list[Kind | None] | None = None) -> list[Sugared]:
    """Expressions one after the other; statements that a later one needs come after the earlier ones."""
    found: list[Any] = []
    for i, node in enumerate(nodes):
        mark = len(c.lines)
        made = sugared(c, node, hints[i] if hints else None)
        if len(c.lines) > mark:
            late, c.lines = c.lines[mark:], c.lines[:mark]
            found = [held(c, f) if isinstance(f, Value) and "(" in f.text and f.parts is None else f for f in found]
            c.lines += late
        found.append(made)
    return found


def taken_apart(c: Context, nodes: list[ast.expr], found: list[Any], node: ast.expr) -> list[Sugared]:
    """What was found for the nodes, the elements of a tuple for a starred one."""
    made: list[Any] = []
    for one, value in zip(nodes, found):
        if not isinstance(one, ast.Starred):
            made.append(value)
        elif isinstance(value, Many):
            made += value.items
        else:
            value = value_of(c, value, node)
            if value.kind.name != "Tuple":
                raise c.error(f"cannot use a {value.kind} with *: only tuples are unpacked", node)
            whole = held(c, value) if value.parts is None else value
            made += whole.parts or [Value(f"({whole.text})[{i}]", k) for i, k in enumerate(value.kind.inner)]
    return made


def operator(
    c: Writer, name: str, args: list[Value], node: ast.AST | None, named: dict[str, Value] | None = None
) -> Value:
    """A call of `aten::name`."""
    return builtin(c, "aten", name, args, named or {}, node)


def builtin(
    c: Writer, space: str, name: str, args: list[Value], named: dict[str, Value], node: ast.AST | None
) -> Value:
    """A call of an operator of the list."""
    forms = find(f"{space}::{name}")
    if not forms:
        raise c.error(f"Unknown builtin op: {space}::{name}: {why_not(space, name)}", node)
    if "input" in named and any(p.name == "self" for p in forms[0].parameters):
        named = {("self" if key == "input" else key): value for key, value in named.items()}
    try:
        _, text, kind = match(forms, args, named)
    except Mismatch as e:
        raise c.error(str(e), node) from None
    called = f"torch.{name}" if space == "aten" else f"ops.{space}.{name}"
    return Value(f"{called}({text})", kind)


def refine(c: Context, refined: dict[str, Kind]) -> None:
    """Let variables have the types that a condition told."""
    for name, kind in refined.items():
        value = c.env.get(name)
        if isinstance(value, Value) and value.kind != kind:
            if kind == NONE:
                c.env[name] = Value(value.text, NONE, None)
                continue
            c.put(f"{value.text} = unchecked_cast({kind}, {value.text})")
            c.env[name] = Value(value.text, kind)


def text_of(value: Value) -> Value:
    """The value as text."""
    return value if value.kind == STR else Value(f"str({value.text})", STR)


def single(c: Context, node: ast.Call, hint: Kind | None = None) -> Value:
    if len(node.args) != 1 or node.keywords:
        raise c.error("one argument is expected here", node)
    return expr(c, node.args[0], hint)


def spelt_as(value: Value, kind: Kind) -> str:
    return value.text if value.kind == kind and value.text not in ("[]", "{}") else f"annotate({kind}, {value.text})"
