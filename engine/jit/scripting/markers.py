"""What scripted code is marked with, and what it asks of the compiler: the lowest module of `torch.jit`."""

from __future__ import annotations

import functools
from typing import Any, TypeVar

__all__ = [
    "Attribute",
    "TracerWarning",
    "TracingCheckError",
    "annotate",
    "export",
    "ignore",
    "interface",
    "is_scripting",
    "is_tracing",
    "unused",
]

T = TypeVar("T")


class TracerWarning(Warning):
    """A trace fixes something that Python computed from the values of tensors."""

    __module__ = "engine.jit"

    @staticmethod
    def ignore_lib_warnings() -> None:
        """Nothing."""


class TracingCheckError(Exception):
    """A trace that does not give what the function gives."""

    __module__ = "engine.jit"


def _marked(fn: T, modifier: str) -> T:
    inner: Any = fn.fget if isinstance(fn, property) else fn
    inner._torchscript_modifier = modifier
    return fn


def export(fn: T) -> T:
    """Mark a method: `script` compiles it although `forward` does not call it."""
    return _marked(fn, "export")


def unused(fn: T) -> T:
    """Mark a function: in a compiled program, calling it raises."""
    return _marked(fn, "unused")


def interface(obj: Any) -> Any:
    """Mark a class: its methods are what a module or an object must have to stand where it is the declared type."""
    obj._is_interface = True
    return obj


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """Mark a function: a compiled program calls it as Python (and cannot be saved); `drop=True` is `unused`."""
    if callable(drop):
        return _marked(drop, "ignore")
    return lambda fn: _marked(fn, "unused" if drop else "ignore")


_overloads: dict[tuple[str, str], list[Any]] = {}  # module and qualified name -> the declarations


def _overload(fn: T) -> T:
    """One of the forms of a function, before the function itself: its annotations stay, its body is empty."""
    function: Any = fn
    _overloads.setdefault((function.__module__, function.__qualname__), []).append(function)
    return fn


_overload_method = _overload


def is_scripting() -> bool:
    """False: this is Python; in a compiled program the same call is True."""
    return False


_tracing: list[Any] = []  # the traces that run


def is_tracing() -> bool:
    """Whether `trace` is recording."""
    return bool(_tracing)


_is_tracing = is_tracing


def annotate(the_type: Any, the_value: T) -> T:
    """The value; in a compiled program it has the type."""
    return the_value


_unwrap_optional = functools.partial(lambda x: x)


class Attribute:
    """A value with its type, as ScriptModules declare them."""

    __module__ = "engine.jit"

    def __init__(self, value: Any, type: Any) -> None:
        self.value, self.type = value, type
