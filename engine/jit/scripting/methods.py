"""Arguments in the order of parameters, and calls of methods."""

from __future__ import annotations

import ast
from typing import Any

from engine.jit.archive.kinds import FLOAT, INT, NONE, STR, TENSOR, Kind
from engine.jit.archive.schemas import MISSING, Value, converted, find
from engine.jit.scripting.context import Context, Writer
from engine.jit.scripting.frontend import CompileError, unstarred, unsupported
from engine.jit.scripting.infos import FunctionInfo
from engine.jit.scripting.sugared import Sugared
from engine.jit.scripting.values import builtin, fitted, held, in_order, operator, taken_apart, value_of

__all__ = ["arguments", "bound", "call_info", "call_method", "method_info", "values_of"]

_CASTS = {
    "byte": 0,
    "char": 1,
    "short": 2,
    "int": 3,
    "long": 4,
    "half": 5,
    "float": 6,
    "double": 7,
    "bool": 11,
    "bfloat16": 15,
}
_METHODS = {"ndimension": "dim", "nelement": "numel", "absolute": "abs", "multiply": "mul", "type_as": "type_as"}


def arguments(c: Context, node: ast.Call, hints: Any = None) -> tuple[list[Sugared], dict[str, Sugared]]:
    """The arguments in order; a starred tuple is taken apart."""
    nodes = [*map(unstarred, node.args), *(k.value for k in node.keywords)]
    if any(k.arg is None for k in node.keywords):
        raise unsupported(c.source, node, "with keyword-arg expansion")
    known = [h[1] for h in hints or ()]
    by_name = dict(hints or ())
    given = [known[i] if i < len(known) else None for i in range(len(node.args))]
    given += [by_name.get(k.arg) for k in node.keywords]
    found = in_order(c, nodes, given)
    args = taken_apart(c, node.args, found, node)
    return args, dict(zip([str(k.arg) for k in node.keywords], found[len(node.args) :]))


def values_of(
    c: Writer, args: list[Sugared], named: dict[str, Sugared], node: ast.AST | None
) -> tuple[list[Value], dict[str, Value]]:
    return [value_of(c, a, node) for a in args], {k: value_of(c, v, node) for k, v in named.items()}


def bound(
    c: Writer, info: FunctionInfo, args: list[Sugared], named: dict[str, Sugared], node: ast.AST | None, skip: int
) -> str:
    """Arguments in the order of the parameters, as text."""
    parameters = info.parameters[skip:]
    values, keys = values_of(c, args, named, node)
    if len(values) > len(parameters):
        raise c.error(
            f"{info.name}() expected at most {len(parameters)} arguments but found {len(values)} positional "
            f"arguments. Declaration: {info.schema}",
            node,
        )
    out: list[str] = []
    for i, (name, kind, default) in enumerate(parameters):
        value = values[i] if i < len(values) else keys.pop(name, None)
        if value is None:
            if default is None:
                raise c.error(f"{info.name}() is missing value for argument '{name}'. Declaration: {info.schema}", node)
            value = default
        fit = fitted(c, value, kind)
        if fit is None and name in info.counts:
            fit = broadcast(c, value, kind, info.counts[name])
        if fit is None:
            raise c.error(
                f"\n{info.schema}:\nExpected a value of type '{kind}' for argument '{name}' but instead found type "
                f"'{value.kind}'",
                node,
            )
        out.append(fit.text)
    if keys:
        raise c.error(f"{info.schema}:\nUnknown keyword argument '{next(iter(keys))}'", node)
    return ", ".join(out)


def broadcast(c: Writer, value: Value, kind: Kind, count: int) -> Value | None:
    """One number, or none, where a list of `count` is declared."""
    inside = kind.inner[0] if kind.name == "Optional" else kind
    if value.kind == INT and inside == Kind("List", (FLOAT,)):
        number = MISSING if value.const is MISSING else float(value.const)
        value = Value(f"float({value.text})" if number is MISSING else repr(number), FLOAT, number)
    if value.kind.name != "Optional" or kind.name != "Optional":
        return converted(value, kind, True, count)
    one, name = held(c, value), c.fresh()
    inner = converted(
        Value(f"unchecked_cast({value.kind.inner[0]}, {one.text})", value.kind.inner[0]), kind, True, count
    )
    if inner is None:
        return None
    c.put(f"if torch.__isnot__({one.text}, None):")
    c.put(f"  {name} = annotate({kind}, {inner.text})")
    c.put("else:")
    c.put(f"  {name} = annotate({kind}, None)")
    return Value(name, kind)


def method_info(c: Writer, value: Value, name: str, node: ast.AST | None) -> FunctionInfo:
    info = c.unit.method(value.kind, name)
    if info is None:
        raise c.error(f"Tried to access nonexistent attribute or method '{name}' of type '{value.kind}'.", node)
    return info


def call_method(
    c: Writer, value: Value, name: str, args: list[Sugared], named: dict[str, Sugared], node: ast.AST | None
) -> Value:
    if c.unit.is_class(value.kind):
        forms = c.unit.forms(value.kind, name)
        for info in forms[:-1]:
            try:
                text = bound(c, info, args, named, node, 1)
            except CompileError:
                continue
            return Value(f"{value.text}.{info.name}({text})", c.unit.result(info))
        info = forms[-1] if forms else method_info(c, value, name, node)
        if info.python is not None:
            return call_ignored(c, info, [value, *args], named, node)
        text = bound(c, info, args, named, node, 1)
        return Value(f"{value.text}.{info.name}({text})", c.unit.result(info))
    if value.kind == TENSOR:
        return tensor_method(c, value, name, args, named, node)
    values, keys = values_of(c, args, named, node)
    if value.kind == STR and name == "format":
        return Value(f"torch.format({', '.join([value.text, *(v.text for v in values)])})", STR)
    if value.kind == STR and name == "join" and values and values[0].kind.name == "Tuple":
        values = [Value(f"[{', '.join(p.text for p in values[0].parts or ())}]", Kind("List", (STR,)))]
    if value.kind.name == "Optional" or value.kind == NONE:
        raise c.error(f"'{value.kind}' object has no attribute or method '{name}'.", node)
    return builtin(c, "aten", name, [value, *values], keys, node)


def call_ignored(
    c: Writer, info: FunctionInfo, args: list[Sugared], named: dict[str, Sugared], node: ast.AST | None
) -> Value:
    """A call of Python code that is not compiled (`@torch.jit.ignore`)."""
    text = bound(c, info, args, named, node, 0)
    return Value(f"ops.python.{info.python}({text})", info.returns or TENSOR)


def tensor_method(
    c: Writer, value: Value, name: str, args: list[Sugared], named: dict[str, Sugared], node: ast.AST | None
) -> Value:
    values, keys = values_of(c, args, named, node)
    name = _METHODS.get(name, name)
    if name in _CASTS and not values and not keys:
        return Value(f"torch.to({value.text}, {_CASTS[name]})", TENSOR)
    if name in ("is_contiguous", "contiguous") and values:
        keys["memory_format"] = values.pop()
    if name == "type" and len(values) == 1 and values[0].kind == INT:
        name = "to"
    if name == "split" and values and values[0].kind.name == "List":
        name = "split_with_sizes"
    if name == "apply_" or name == "register_hook":
        raise c.error(f"the method Tensor.{name} takes a Python function, which TorchScript cannot pass", node)
    if name == "nonzero" and keys.get("as_tuple") is not None and keys.pop("as_tuple").const is True:
        name = "nonzero_numpy"
    if name == "cpu":
        return operator(c, "cpu", [value], node)
    if not find(f"aten::{name}"):
        raise c.error(f"'Tensor' object has no attribute or method '{name}'.", node)
    return operator(c, name, [value, *values], node, keys)


def call_info(
    c: Writer, path: str, info: FunctionInfo, args: list[Sugared], named: dict[str, Sugared], node: ast.AST | None
) -> Value:
    """A call of a function that is compiled."""
    text = bound(c, info, args, named, node, 0)
    return Value(f"{path}({text})", c.unit.result(info))
