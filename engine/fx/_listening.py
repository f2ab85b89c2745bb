"""Calls of the engine's functions with a Proxy among their arguments.

Note [Listening for proxies]
The generated functions of ops look for Tensors and nothing else, and nothing is added to them for tracing.  Instead,
while a Proxy is alive anywhere, every public function is listened to (`dispatch/gate.py`): the listener looks at the
arguments, hands those of a call that holds a Proxy to the Proxy's tracer, and else lets the call go on.  It ends when
the last Proxy dies, so that a program which traced once runs as fast as before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

from engine import dispatch
from engine.core.slots import Slot, Slots
from engine.dispatch.gate import Listener, without_listeners
from engine.fx._names import INITIALIZERS, _names, called_as
from engine.ops import from_data
from engine.tensor import Tensor
from engine.torch_names.facade import facade

__all__ = ["alive", "died", "is_proxy", "listened"]

_methods: dict[FunctionType, str | None] = {}  # what is listened to; for operators the name of the method


class Registered(Slots):
    """The class of `proxy.py` that listening needs; `proxy.py` itself imports this module."""

    proxy: Slot[type]  # the class Proxy


registered = Registered()


# functions of the type of their argument, not of its value
_DEAF = frozenset(
    [
        "is_tensor",
        "is_storage",
        "is_grad_enabled",
        "manual_seed",
        "set_grad_enabled",
        "save",
        "load",
        "typename",
        "broadcast_shapes",
    ]
)
# what makes a tensor of a value that is there
_DATA = frozenset([from_data.as_tensor, from_data.asarray, from_data.from_numpy, from_data.tensor])
# how torch names the methods behind Python's operators
_OPERATORS = {
    "__add__": "add",
    "__radd__": "add",
    "__iadd__": "add_",
    "__sub__": "sub",
    "__isub__": "sub_",
    "__mul__": "mul",
    "__rmul__": "mul",
    "__imul__": "mul_",
    "__truediv__": "div",
    "__itruediv__": "div_",
    "__pow__": "pow",
    "__matmul__": "matmul",
    "__mod__": "remainder",
    "__gt__": "gt",
    "__ge__": "ge",
    "__lt__": "lt",
    "__le__": "le",
    "__eq__": "eq",
    "__ne__": "ne",
    "__floordiv__": "__floordiv__",
    "__and__": "__and__",
    "__or__": "__or__",
    "__xor__": "__xor__",
    "__lshift__": "__lshift__",
    "__rshift__": "__rshift__",
    "__getitem__": "__getitem__",
    "__setitem__": "__setitem__",
}


def is_proxy(value: Any) -> bool:
    """Return whether a value is a Proxy."""
    return isinstance(value, registered.proxy)


def first_proxy(values: Any, depth: int = 2) -> Any:
    """The first Proxy among arguments and in their lists, tuples, dicts and slices; None if there is none."""
    for value in values:
        if value.__class__ is Tensor:
            continue
        if is_proxy(value):
            return value
        if depth and isinstance(value, list | tuple):
            inner: Any = value
        elif depth and isinstance(value, dict):
            inner = value.values()
        elif value.__class__ is slice:
            inner = (value.start, value.stop, value.step)
        else:
            continue
        if (found := first_proxy(inner, depth - 1)) is not None:
            return found
    return None


def listened() -> Iterator[tuple[FunctionType, str | None]]:
    """Every function that is listened to, with the name of the method behind an operator."""
    names = _names()
    seen: set[int] = set()
    methods = [(getattr(Tensor, name, None), method) for name, method in _OPERATORS.items()]
    for function, method in methods:
        if isinstance(function, FunctionType) and id(function) not in names and id(function) not in seen:
            seen.add(id(function))
            yield function, method
    for function in _public():
        if id(function) not in seen:
            seen.add(id(function))
            yield function, None


def _public() -> list[FunctionType]:
    from engine import autograd, fft, linalg, special
    from engine.nn import functional, init

    found: list[Any] = [*dispatch.PUBLIC.values(), *vars(facade()).values()]
    for module in (functional, linalg, fft, special):
        found += [value for name, value in vars(module).items() if name[0] != "_"]
    found += [autograd.grad, facade()._assert, *(getattr(init, n) for n in INITIALIZERS)]  # type: ignore[attr-defined]
    return [f for f in found if isinstance(f, FunctionType) and f.__name__ not in _DEAF]


def _heard(function: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any], proceed: Callable[..., Any]) -> Any:
    """Look for a Proxy, whose tracer records the call; else the call goes on."""
    found = first_proxy(args)
    if found is None and kwargs:
        found = first_proxy(kwargs.values())
    if found is None:
        return proceed(*args, **kwargs)
    name = function.__name__
    if function in _DATA:
        raise TypeError(f"{name}(): the data are the {type(found).__name__} {found!r}, a value that is traced")
    method = _methods[function]
    if method is not None:
        return found.tracer.create_proxy("call_method", method, args, kwargs)
    target, args, kwargs = called_as(function, without_listeners(function), args, kwargs)
    kind = "call_method" if isinstance(target, str) else "call_function"
    return found.tracer.create_proxy(kind, target, args, kwargs)


_listener = Listener(_heard, stubs=True)


def alive() -> None:
    """A Proxy has been made."""
    if not _methods:
        dispatch.import_lazy()
        _methods.update(dict(listened()))
    _listener.begin(_methods)


def died() -> None:
    """A Proxy is gone."""
    _listener.end()
