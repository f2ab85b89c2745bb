"""Calls of what an expression gave: operators, functions that are compiled, classes."""

from __future__ import annotations

import ast
import contextlib
import functools
import math
from typing import Any

from engine import fft, linalg, special
from engine.jit.archive.kinds import ANY, INT, NONE, TENSOR, Kind
from engine.jit.archive.objects import ScriptModule
from engine.jit.archive.schemas import Value, find, names
from engine.jit.scripting import library
from engine.jit.scripting.context import Context, Writer
from engine.jit.scripting.frontend import CompileError
from engine.jit.scripting.infos import script_source
from engine.jit.scripting.methods import arguments, bound, call_info, call_method, values_of
from engine.jit.scripting.sugared import Bound, Py, Sugared
from engine.jit.scripting.values import builtin, required, value_of
from engine.library import operators
from engine.nn import functional
from engine.tensor import Tensor
from engine.torch_names.facade import facade

__all__ = ["call", "call_forms", "hints_of", "super_call"]


@functools.cache
def _functional_as_aten() -> frozenset[str]:
    """Functions of `nn.functional` whose parameters are those of aten's operator of that name."""
    return frozenset(
        """adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d avg_pool1d avg_pool2d avg_pool3d bilinear celu_
        channel_shuffle conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d
        cosine_similarity elu_ gelu hardshrink hardtanh_ leaky_relu_ linear native_channel_shuffle one_hot
        pairwise_distance pdist pixel_shuffle pixel_unshuffle prelu relu_ rms_norm rrelu_
        scaled_dot_product_attention selu_ sigmoid softplus softshrink tanh threshold_""".split()
    )


@functools.cache
def _operators() -> dict[int, tuple[Any, str]]:
    """The names of operators by the Python functions that are them."""
    found: dict[int, tuple[Any, str]] = {}
    homes: list[tuple[Any, str, Any]] = [
        (facade(), "", None),
        (linalg, "linalg_", None),
        (fft, "fft_", None),
        (special, "special_", None),
        (functional, "", _functional_as_aten()),
        (Tensor, "", None),
        (math, "", None),
    ]
    for home, prefix, only in homes:
        for name in names():
            if not name.startswith(prefix) or (only is not None and name not in only):
                continue
            obj = getattr(home, name[len(prefix) :], None)
            if callable(obj) and not isinstance(obj, type):
                own = getattr(obj, "__name__", "") == name[len(prefix) :]  # cat, and not concat
                found[id(obj)] = (obj, name) if own else found.get(id(obj), (obj, name))
    for name, aten in (("logsigmoid", "log_sigmoid"),):
        found.setdefault(id(getattr(functional, name)), (getattr(functional, name), aten))
    found[id(math.remainder)] = (math.remainder, "mathremainder")
    return found


def builtin_of(obj: Any) -> tuple[str, str] | None:
    """(namespace, name) of the operator that a Python function is, None if it is none."""
    if isinstance(obj, operators.OpOverloadPacket | operators.OpOverload):
        qualified = str(getattr(obj, "_qualified_op_name", None) or obj._name).partition(".")[0]
        space, _, name = qualified.partition("::")
        return (space, name) if find(qualified) else None
    known = _operators().get(id(obj))
    return None if known is None else ("aten", known[1])


def hints_of(c: Context, found: Sugared) -> list[tuple[str, Kind]] | None:
    """The parameters of a function that is compiled, so that `[]` gets its type."""
    info = None
    if isinstance(found, Bound) and c.unit.is_class(found.value.kind):
        info = c.unit.method(found.value.kind, found.name)
    elif isinstance(found, Value) and c.unit.is_class(found.kind):
        info = c.unit.method(found.kind, "forward" if c.unit.is_module(found.kind) else "__call__")
    if isinstance(found, Bound) and found.value.kind.name == "List" and found.name in ("append", "insert", "extend"):
        kind = found.value.kind if found.name == "extend" else found.value.kind.inner[0]
        return [("", INT)] * (found.name == "insert") + [("", kind)]
    return None if info is None else [(n, k) for n, k, _ in info.parameters[1:]]


def call(
    c: Context,
    found: Sugared,
    args: list[Sugared],
    named: dict[str, Sugared],
    node: ast.AST | None,
    hint: Kind | None = None,
) -> Sugared:
    """The call of what an expression gave."""
    if isinstance(found, Bound):
        return call_method(c, found.value, found.name, args, named, node)
    if isinstance(found, Value):
        if c.unit.is_module(found.kind):
            return call_method(c, found, "forward", args, named, node)
        if c.unit.is_class(found.kind):
            return call_method(c, found, "__call__", args, named, node)
        raise c.error(f"'{found.kind}' object is not callable", node)
    if not isinstance(found, Py):
        raise c.error("something that is no function is called", node)
    return call_python(c, found.obj, args, named, node)


def call_python(c: Context, obj: Any, args: list[Sugared], named: dict[str, Sugared], node: ast.AST | None) -> Sugared:
    given = script_source(obj)
    if given is not None:
        obj = given
    if forms := library.forms(obj, args, named):
        return call_forms(c, forms, node)
    known = builtin_of(obj)
    if known is not None:
        values, keys = values_of(c, args, named, node)
        keys.pop("out", None) if keys.get("out", Value("", ANY)).kind == NONE else None
        if known[1] in ("max", "min") and len(values) == 2 and TENSOR not in (values[0].kind, values[1].kind):
            return builtin(c, "prim", known[1], values, keys, node)
        return builtin(c, *known, values, keys, node)
    if isinstance(obj, type):
        return construct(c, obj, args, named, node)
    return call_function(c, obj, args, named, node)


def call_forms(c: Writer, forms: list[tuple[Any, list[Any], dict[str, Any]]], node: ast.AST | None) -> Value:
    """A call of the first of several functions, each with its arguments, that takes them."""
    for form, args, named in forms[:-1]:
        with contextlib.suppress(CompileError):
            return call_function(c, form, args, named, node)
    return call_function(c, *forms[-1], node)


def call_function(c: Writer, obj: Any, args: list[Sugared], named: dict[str, Sugared], node: ast.AST | None) -> Value:
    """A call of a Python function that is compiled for it."""
    info = c.unit.function(obj)
    if info is None and isinstance(obj, ScriptModule):
        raise c.error("Cannot call a ScriptModule that is not a submodule of the caller", node)
    if info is None:
        raise c.error(
            f"Python function {getattr(obj, '__name__', obj)!r} of {getattr(obj, '__module__', '?')} "
            "cannot be compiled",
            node,
        )
    return call_info(c, info.path, info, args, named, node)


def construct(c: Context, cls: type, args: list[Sugared], named: dict[str, Sugared], node: ast.AST | None) -> Value:
    """An object of a class of the user's; a named tuple."""
    if issubclass(cls, Exception):
        raise c.error("an exception is made but not raised", node)
    kind = c.unit.named(cls)
    if kind is None:
        raise c.error(
            f"Class {cls.__name__} does not have an __init__ function defined, or is not compiled as a TorchScript "
            "class",
            node,
        )
    info = c.unit.classes[kind.name]
    if info.kind == "tuple":
        values, keys = values_of(c, args, named, node)
        out = []
        for i, (name, of) in enumerate(info.attributes.items()):
            value = values[i] if i < len(values) else keys.get(name)
            if value is None:
                if name not in info.constants:
                    raise c.error(f"{info.name} is missing value for argument '{name}'", node)
                value = value_of(c, Py(info.constants[name]), node)
            out.append(required(c, value, of, node))
        return Value(f"{kind.name}({', '.join(v.text for v in out)})", kind)
    init = c.unit.method(kind, "__init__")
    if init is None:
        if args or named:
            raise c.error(f"{info.name} takes no arguments", node)
        return Value(f"{kind.name}()", kind)
    return Value(f"{kind.name}({bound(c, init, args, named, node, 1)})", kind)


def super_call(c: Context, function: ast.Attribute, node: ast.Call) -> Value:
    """`super().method(...)`: the method of a base class under a name of its own."""
    assert c.owner is not None
    info = c.unit.base_method(c.owner, c.info, c.source.function, function.attr)
    if info is None:
        raise c.error(f"super() has no method '{function.attr}'", node)
    args, named = arguments(c, node)
    own = value_of(c, c.env[c.info.parameters[0][0]])
    return Value(f"{own.text}.{info.name}({bound(c, info, args, named, node, 1)})", c.unit.result(info))
