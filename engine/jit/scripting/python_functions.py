"""Python's builtins, by name."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from engine.jit.archive.kinds import BOOL, INT, NONE, STR, TENSOR, Kind
from engine.jit.archive.schemas import MISSING, Value
from engine.jit.scripting.attributes import attribute_of, has
from engine.jit.scripting.comprehensions import gathered
from engine.jit.scripting.conditions import told_by_call
from engine.jit.scripting.context import Context
from engine.jit.scripting.iteration import iterable, range_of
from engine.jit.scripting.methods import arguments, call_method, values_of
from engine.jit.scripting.sugared import Many, Py, Sugared
from engine.jit.scripting.values import builtin, expr, list_of, operator, single, sugared, tuple_of, value_of

__all__ = ["dict_of", "is_instance_value", "python_builtin"]

_PYTHON = {
    "len": "len",
    "ord": "ord",
    "chr": "chr",
    "hex": "hex",
    "oct": "oct",
    "bin": "bin",
    "hash": "hash",
    "round": "round",
    "pow": "pow",
    "sorted": "sorted",
    "divmod": "divmod",
}


def python_builtin(c: Context, name: str, node: ast.Call, hint: Kind | None) -> Sugared | None:
    """A call of one of Python's builtins; None for one that TorchScript treats as any function."""
    step = _STEPS.get(name)
    if step is not None:
        return step(c, node, hint)
    if name in _PYTHON:
        args, named = arguments(c, node)
        values, keys = values_of(c, args, named, node)
        if name == "len" and len(values) == 1:
            return length(c, args[0], values[0], node)
        return operator(c, _PYTHON[name], values, node, keys)
    obj = c.source.names.get(name)
    if isinstance(obj, type) and issubclass(obj, BaseException):
        return None
    raise c.error(f"Python builtin {obj!r} is currently not supported in Torchscript", node)


def length(c: Context, given: Any, value: Value, node: ast.AST | None) -> Value:
    if isinstance(given, Many):
        return Value(str(len(given.items)), INT, len(given.items))
    if value.kind.name == "Tuple":
        return Value(str(len(value.kind.inner)), INT, len(value.kind.inner))
    if c.unit.is_module(value.kind):
        info = c.unit.classes[value.kind.name]
        if not c.unit.has_method(value.kind, "__len__"):
            count = len(info.children) or len(info.module._parameters)
            return Value(str(count), INT, count)
    if c.unit.is_class(value.kind):
        return call_method(c, value, "__len__", [], {}, node)
    return operator(c, "len", [value], node)


def _cast(c: Context, name: str, node: ast.Call) -> Value:
    if not node.args:
        return value_of(c, Py({"int": 0, "float": 0.0, "bool": False, "str": ""}[name]), node)
    value = single(c, node)
    if c.unit.is_class(value.kind) and not c.unit.is_enum(value.kind):
        return call_method(c, value, f"__{name}__", [], {}, node)
    if name != "str" and value.kind.name not in ("Tensor", "int", "float", "bool", "str", "number", "complex"):
        raise c.error(f"{name}() has no form for a value of type {value.kind}", node)
    const: Any = MISSING
    if value.const is not MISSING and value.const is not None and name != "str":
        const = {"int": int, "float": float, "bool": bool}[name](value.const)
    return Value(f"{name}({value.text})", Kind(name), const)


def _py_int(c: Context, node: ast.Call, hint: Kind | None) -> Value:
    return _cast(c, "int", node)


def _py_float(c: Context, node: ast.Call, hint: Kind | None) -> Value:
    if len(node.args) == 1 and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str):
        return value_of(c, Py(float(node.args[0].value)), node)
    return _cast(c, "float", node)


def _py_bool(c: Context, node: ast.Call, hint: Kind | None) -> Value:
    return _cast(c, "bool", node)


def _py_str(c: Context, node: ast.Call, hint: Kind | None) -> Value:
    return _cast(c, "str", node)


def _py_complex(c: Context, node: ast.Call, hint: Kind | None) -> Value:
    values = [expr(c, a) for a in node.args]
    return Value(f"complex({', '.join(v.text for v in values)})", Kind("complex"))


def _py_print(c: Context, node: ast.Call, hint: Kind | None) -> Value:
    values, _ = values_of(c, *arguments(c, node), node)
    return Value(f"print({', '.join(v.text for v in values)})", NONE)


def _py_abs(c: Context, node: ast.Call, hint: Kind | None) -> Value:
    value = single(c, node)
    return builtin(c, "aten" if value.kind == TENSOR else "prim", "abs", [value], {}, node)


def _extreme(c: Context, name: str, node: ast.Call) -> Value:
    args, named = arguments(c, node)
    values, keys = values_of(c, args, named, node)
    space = "aten" if values and all(v.kind == TENSOR for v in values) else "prim"
    if len(values) > 2:
        found = values[0]
        for value in values[1:]:
            found = builtin(c, space, name, [found, value], {}, node)
        return found
    if len(values) == 1 and values[0].kind.name == "Tuple":
        parts = values[0].parts or ()
        values = [list_of(c, list(parts), None, node)]
    return builtin(c, space, name, values, keys, node)


def _py_max(c: Context, node: ast.Call, hint: Kind | None) -> Value:
    return _extreme(c, "max", node)


def _py_min(c: Context, node: ast.Call, hint: Kind | None) -> Value:
    return _extreme(c, "min", node)


def _reduced(c: Context, name: str, node: ast.Call) -> Value:
    return operator(c, name, [expr(c, a) for a in node.args], node)


def _py_sum(c: Context, node: ast.Call, hint: Kind | None) -> Value:
    return _reduced(c, "sum", node)


def _py_any(c: Context, node: ast.Call, hint: Kind | None) -> Value:
    return _reduced(c, "any", node)


def _py_all(c: Context, node: ast.Call, hint: Kind | None) -> Value:
    return _reduced(c, "all", node)


def _py_list(c: Context, node: ast.Call, hint: Kind | None) -> Sugared:
    if not node.args:
        return Value("[]", Kind("List", (hint.inner[0] if hint is not None and hint.name == "List" else TENSOR,)))
    source = iterable(c, node.args[0])
    if isinstance(source, Many):
        values = [i for i in source.items if isinstance(i, Value) and not c.unit.is_module(i.kind)]
        return list_of(c, values, None, node) if len(values) == len(source.items) else source
    return gathered(c, source, node)


def dict_of(c: Context, node: ast.Call, hint: Kind | None) -> Value:
    kinds = hint.inner if hint is not None and hint.name == "Dict" else (STR, TENSOR)
    if not node.args and not node.keywords:
        return Value("{}", Kind("Dict", tuple(kinds)))
    if node.keywords and not node.args:
        made = ast.Dict([ast.Constant(k.arg) for k in node.keywords], [k.value for k in node.keywords])
        return expr(c, ast.copy_location(ast.fix_missing_locations(made), node), hint)
    return operator(c, "dict", [single(c, node)], node)


def _py_tuple(c: Context, node: ast.Call, hint: Kind | None) -> Sugared:
    if not node.args:
        return tuple_of([])
    found = sugared(c, node.args[0])
    if isinstance(found, Many):
        return found
    value = value_of(c, found, node)
    if value.kind.name == "Tuple":
        return value
    if value.parts is not None:
        return tuple_of(list(value.parts))
    if value.kind.name == "List":
        return value  # its length is not known: torch needs a declared type here, a list serves where one may stand
    raise c.error(f"cannot statically infer the expected size of a {value.kind} in this context", node)


def _py_range(c: Context, node: ast.Call, hint: Kind | None) -> Value:
    source = range_of(c, node)
    return gathered(c, source, node)


def is_instance_value(c: Context, node: ast.Call, hint: Kind | None) -> Value:
    test = told_by_call(c, node)
    assert test is not None
    return Value(test.text, BOOL, MISSING if test.static is None else test.static)


def _py_type(c: Context, node: ast.Call, hint: Kind | None) -> Py:
    value = single(c, node)
    if not c.unit.is_class(value.kind):
        raise c.error(f"type() of a {value.kind} is not a value of TorchScript", node)
    return Py(c.unit.classes[value.kind.name].python)


def _py_getattr(c: Context, node: ast.Call, hint: Kind | None) -> Sugared:
    name = expr(c, node.args[1])
    if not isinstance(name.const, str):
        raise c.error("getattr's second argument must be a string literal", node)
    owner = sugared(c, node.args[0])
    if len(node.args) == 3 and not has(c, owner, name.const):
        return sugared(c, node.args[2])
    return attribute_of(c, owner, name.const, node)


def _gathered(c: Context, node: ast.Call, hint: Kind | None) -> Sugared:
    source = iterable(c, node)
    return source if isinstance(source, Many) else gathered(c, source, node)


_STEPS: dict[str, Callable[[Context, ast.Call, Kind | None], Sugared]] = {
    "int": _py_int,
    "float": _py_float,
    "bool": _py_bool,
    "str": _py_str,
    "complex": _py_complex,
    "print": _py_print,
    "abs": _py_abs,
    "max": _py_max,
    "min": _py_min,
    "sum": _py_sum,
    "any": _py_any,
    "all": _py_all,
    "list": _py_list,
    "tuple": _py_tuple,
    "range": _py_range,
    "type": _py_type,
    "getattr": _py_getattr,
    "dict": dict_of,
    "enumerate": _gathered,
    "zip": _gathered,
    "reversed": _gathered,
    "isinstance": is_instance_value,
    "hasattr": is_instance_value,
}
