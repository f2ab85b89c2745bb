"""Calls of the engine's functions with a Proxy among their arguments.

Note [Listening for proxies]
The generated functions of ops look for Tensors and nothing else, and nothing is added to them for tracing.  Instead,
while a Proxy is alive anywhere, every public function carries the code of a listener: it looks at the arguments, hands
those of a call that holds a Proxy to the Proxy's tracer, and else calls the function as it was.  When the last Proxy
dies the functions get their own code back, so that a program which traced once runs as fast as before.
A function that is written anew meanwhile (at its first call, or at the first converted tensor) is listened to again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

from engine import dispatch
from engine.dispatch.arguments import after_compiling
from engine.dispatch.listeners import copied, listener_code
from engine.fx._names import INITIALIZERS, _names, called_as
from engine.tensor import Tensor

__all__ = ["alive", "died", "is_proxy", "listened"]

_lock = threading.RLock()
_count = 0
_kept: dict[FunctionType, tuple[CodeType, CodeType]] = {}  # the function's own code and the listener's
_methods: dict[FunctionType, str | None] = {}  # what is listened to; for operators the name of the method
proxy_class: list[type] = []  # Proxy, once it is there


# what asks about its argument, not for its value
_DEAF = frozenset(
    ["is_tensor", "is_storage", "is_grad_enabled", "manual_seed", "set_grad_enabled", "save", "load", "typename",
     "broadcast_shapes"]
)  # fmt: skip
# what makes a tensor of a value that is there
_DATA = frozenset(["as_tensor", "asarray", "from_numpy", "tensor"])
# how torch names the methods behind Python's operators
_OPERATORS = {
    "__add__": "add", "__radd__": "add", "__iadd__": "add_", "__sub__": "sub", "__isub__": "sub_", "__mul__": "mul",
    "__rmul__": "mul", "__imul__": "mul_", "__truediv__": "div", "__itruediv__": "div_", "__pow__": "pow",
    "__matmul__": "matmul", "__mod__": "remainder", "__gt__": "gt", "__ge__": "ge", "__lt__": "lt", "__le__": "le",
    "__eq__": "eq", "__ne__": "ne", "__floordiv__": "__floordiv__", "__and__": "__and__", "__or__": "__or__",
    "__xor__": "__xor__", "__lshift__": "__lshift__", "__rshift__": "__rshift__", "__getitem__": "__getitem__",
    "__setitem__": "__setitem__",
}  # fmt: skip


def is_proxy(value: Any) -> bool:
    """Whether a value is a Proxy."""
    return isinstance(value, proxy_class[0])


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
    import engine
    from engine import autograd, fft, linalg, special
    from engine.nn import functional, init

    found: list[Any] = [*dispatch.PUBLIC.values(), *vars(engine).values()]
    for module in (functional, linalg, fft, special):
        found += [value for name, value in vars(module).items() if name[0] != "_"]
    found += [autograd.grad, engine._assert, *(getattr(init, n) for n in INITIALIZERS)]  # type: ignore[attr-defined]
    return [f for f in found if isinstance(f, FunctionType) and f.__name__ not in _DEAF]


def _listener(function: FunctionType, method: str | None, code: CodeType) -> CodeType:
    """The code that looks for a Proxy, then runs `code`."""
    own = copied(function, code)
    name = function.__name__
    plain = dispatch.overriding.plain(function, code)
    plain = own if plain is function else plain

    def heard(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        found = first_proxy(args)
        if found is None and kwargs:
            found = first_proxy(kwargs.values())
        if found is None:
            return own(*args, **kwargs)
        if name in _DATA:
            raise TypeError(f"{name}(): the data are the {type(found).__name__} {found!r}, a value that is traced")
        if method is not None:
            return found.tracer.create_proxy("call_method", method, args, kwargs)
        target, args, kwargs = called_as(function, plain, args, kwargs)
        kind = "call_method" if isinstance(target, str) else "call_function"
        return found.tracer.create_proxy(kind, target, args, kwargs)

    return listener_code(code, heard)


def _listen(function: FunctionType, method: str | None) -> None:
    code = function.__code__
    known = _kept.get(function)
    if known is None or (known[0] is not code and known[1] is not code):
        known = _kept[function] = (code, _listener(function, method, code))
    function.__code__ = known[1]


def _begin() -> None:
    if not _methods:
        dispatch.import_lazy()
        _methods.update(listened())
    for function, method in _methods.items():
        _listen(function, method)
    after_compiling.append(_again)


def _again(function: FunctionType) -> None:
    """Listen to a function that has just been compiled."""
    if function in _methods:
        _listen(function, _methods[function])


def _end() -> None:
    after_compiling.remove(_again)
    for function, (code, listener) in _kept.items():
        if function.__code__ is listener:
            function.__code__ = code


def alive() -> None:
    """A Proxy has been made."""
    global _count
    with _lock:
        _count += 1
        if _count == 1:
            _begin()


def died() -> None:
    """A Proxy is gone."""
    global _count
    with _lock:
        _count -= 1
        if _count == 0:
            _end()
