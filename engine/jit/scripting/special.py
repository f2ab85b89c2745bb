"""Functions of torch and Python that the compiler understands itself, by the function."""

from __future__ import annotations

import ast
import collections
import functools
import typing
import warnings
from collections.abc import Callable
from typing import Any

from engine.core.device import device as Device
from engine.core.size import Size
from engine.jit.archive import futures
from engine.jit.archive.kinds import BOOL, INT, NONE, Kind
from engine.jit.archive.schemas import Value
from engine.jit.scripting import markers
from engine.jit.scripting.assignments import annotated
from engine.jit.scripting.calls import call, hints_of
from engine.jit.scripting.context import Context
from engine.jit.scripting.methods import arguments
from engine.jit.scripting.python_functions import dict_of, is_instance_value
from engine.jit.scripting.statements import assertion
from engine.jit.scripting.sugared import Sugared
from engine.jit.scripting.values import expr, held, required, single, sugared, text_of, tuple_of, value_of
from engine.nn.modules import utils
from engine.ops import functions as torch
from engine.torch_names.facade import facade
from engine.utils import checkpoint

__all__ = ["special_form"]


def _annotate(c: Context, node: ast.Call, hint: Kind | None) -> Value:
    kind = annotated(c, node.args[0])
    value = required(c, expr(c, node.args[1], kind), kind, node)
    return Value(f"annotate({kind}, {value.text})" if not value.text.startswith("annotate(") else value.text, kind)


def _typing_cast(c: Context, node: ast.Call, hint: Kind | None) -> Value:
    kind = annotated(c, node.args[0])
    return Value(f"unchecked_cast({kind}, {expr(c, node.args[1], kind).text})", kind)


def _unwrap_optional(c: Context, node: ast.Call, hint: Kind | None) -> Value:
    value = single(c, node)
    if value.kind.name != "Optional":
        return value
    return Value(f"unwrap_optional({value.text})", value.kind.inner[0])


def _fork(c: Context, node: ast.Call, hint: Kind | None) -> Value:
    """A call that may run beside others: here and in the text, one that runs at once, in a Future."""
    found = sugared(c, node.args[0])
    inner = ast.copy_location(ast.Call(node.args[0], list(node.args[1:]), node.keywords), node)
    args, named = arguments(c, inner, hints_of(c, found))
    args = [held(c, value_of(c, a, node)) for a in args]
    named = {k: held(c, value_of(c, v, node)) for k, v in named.items()}
    name = c.fresh()
    c.depth += 1
    outer_lines, c.lines = c.lines, []
    value = value_of(c, call(c, found, args, named, node), node)
    c.put(f"return {value.text}")
    c.depth -= 1
    body, c.lines = c.lines, outer_lines
    c.put(f"def {name}():")
    c.lines += body
    return Value(f"fork({name})", Kind("Future", (value.kind,)))


def _wait(c: Context, node: ast.Call, hint: Kind | None) -> Value:
    value = single(c, node)
    if value.kind.name != "Future":
        raise c.error(f"wait is given a {value.kind}, not a Future", node)
    return Value(f"torch.wait({value.text})", value.kind.inner[0])


def _scripting(c: Context, node: ast.Call, hint: Kind | None) -> Value:
    return Value("True", BOOL, True)


def _not_so(c: Context, node: ast.Call, hint: Kind | None) -> Value:
    return Value("False", BOOL, False)


def _nothing(c: Context, node: ast.Call, hint: Kind | None) -> Value:
    return Value("None", NONE, None)


def _device(c: Context, node: ast.Call, hint: Kind | None) -> Value:
    values = [expr(c, a) for a in node.args]
    if len(values) == 1 and values[0].kind == Kind("Device"):
        return values[0]
    return Value(f"torch.device({', '.join(v.text for v in values)})", Kind("Device"))


def _checkpoint(c: Context, node: ast.Call, hint: Kind | None) -> Sugared:
    raise c.error("torch.utils.checkpoint cannot be compiled: it takes a function as an argument", node)


def _warn(c: Context, node: ast.Call, hint: Kind | None) -> Value:
    return Value(f"torch.warn({text_of(expr(c, node.args[0])).text})", NONE)


def _size(c: Context, node: ast.Call, hint: Kind | None) -> Sugared:
    value = single(c, node)
    return required(c, value, Kind("List", (INT,)), node)


def _as_many(count: int, c: Context, node: ast.Call, hint: Kind | None) -> Value:
    """`_pair(x)`: one number as several."""
    value = single(c, node)
    if value.kind.name in ("List", "Tuple"):
        return value
    return tuple_of([held(c, value)] * count)


def _asserted(c: Context, node: ast.Call, hint: Kind | None) -> Value:
    made = ast.copy_location(ast.Assert(node.args[0], node.args[1] if len(node.args) > 1 else None), node)
    assertion(c, made)
    return Value("None", NONE, None)


def special_form(obj: Any) -> Callable[[Context, ast.Call, Kind | None], Sugared] | None:
    """How a call of this function is compiled, if it is one that the compiler understands itself."""
    try:
        return _special().get(obj)
    except TypeError:  # not hashable
        return None


@functools.cache
def _special() -> dict[Any, Callable[[Context, ast.Call, Kind | None], Sugared]]:
    """Functions that the compiler understands itself."""
    return {
        warnings.warn: _warn,
        collections.OrderedDict: dict_of,
        markers.annotate: _annotate,
        typing.cast: _typing_cast,
        markers._unwrap_optional: _unwrap_optional,
        futures.fork: _fork,
        futures.wait: _wait,
        markers.is_scripting: _scripting,
        markers.is_tracing: _not_so,
        markers._is_tracing: _not_so,
        Device: _device,
        Size: _size,
        checkpoint.checkpoint: _checkpoint,
        **{
            getattr(utils, f"_{name}"): functools.partial(_as_many, n)
            for n, name in ((1, "single"), (2, "pair"), (3, "triple"), (4, "quadruple"))
        },
        facade()._assert: _asserted,
        torch.is_tensor: is_instance_value,
    }
