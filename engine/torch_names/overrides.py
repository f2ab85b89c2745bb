"""torch.overrides: who handles calls of torch's functions, and which functions can be handled.

How calls reach handlers: Note [Calls that a class handles] in `engine/dispatch/overriding.py`.
https://docs.pytorch.org/docs/2.13/torch.overrides.html
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any

from engine.dispatch.gate import without_listeners
from engine.dispatch.overriding import (
    HANDLES,
    Without,
    asks,
    handled,
    handling,
    kind_of,
    overriding,
    state,
    unwrapped,
)
from engine.tensor import Tensor
from engine.torch_names import _overriding
from engine.torch_names.facade import facade

__all__ = [
    "BaseTorchFunctionMode",
    "TorchFunctionMode",
    "enable_reentrant_dispatch",
    "get_default_nowrap_functions",
    "get_ignored_functions",
    "get_overridable_functions",
    "get_testing_overrides",
    "handle_torch_function",
    "has_torch_function",
    "has_torch_function_unary",
    "has_torch_function_variadic",
    "is_tensor_like",
    "is_tensor_method_or_property",
    "resolve_name",
    "wrap_torch_function",
]


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Return whether one of the arguments, or a mode, handles calls."""
    values = tuple(relevant_args)
    if asks(values):
        handling.start()
    return bool(state.modes) or (not state.without and any(kind_of(type(v)) == HANDLES for v in values))


def has_torch_function_unary(obj: Any) -> bool:
    """Return whether `obj`, or a mode, handles calls."""
    return has_torch_function((obj,))


def has_torch_function_variadic(*args: Any) -> bool:
    """Return whether one of `args`, or a mode, handles calls."""
    return has_torch_function(args)


def handle_torch_function(public_api: Callable, relevant_args: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
    """Return the result that the handlers among `relevant_args` give for `public_api(*args, **kwargs)`.  TypeError if
    all decline."""
    found = [] if state.without else overriding(relevant_args)
    modes = state.modes
    result = handled(public_api, found, args, kwargs)
    if result is NotImplemented:
        name = f"{public_api.__module__}.{public_api.__name__}"
        text = (
            f"no implementation found for '{name}' on types that implement __torch_function__: "
            f"{[type(value) for value in found]}"
        )
        raise TypeError(text + (f" nor in mode {modes[-1]}" if modes else ""))
    return result


def wrap_torch_function(dispatcher: Callable) -> Callable:
    """A decorator: dispatcher(*args, **kwargs) gives the arguments that may handle the call of the function."""

    def decorate(func: Callable) -> Callable:
        @functools.wraps(func)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            relevant = dispatcher(*args, **kwargs)
            if has_torch_function(relevant):
                return handle_torch_function(wrapped, relevant, *args, **kwargs)
            return func(*args, **kwargs)

        return wrapped

    return decorate


def is_tensor_like(inp: Any) -> bool:
    """Return whether `inp` is a Tensor, or its class has `__torch_function__`."""
    return type(inp) is Tensor or hasattr(inp, "__torch_function__")


# --- which functions there are


def _spaces() -> dict[Any, ModuleType | type]:
    from engine import fft, linalg, special
    from engine.nn import functional, init

    return {
        facade(): facade(),
        functional: functional,
        init: init,
        Tensor: Tensor,
        linalg: linalg,
        fft: fft,
        special: special,
    }


@functools.cache
def get_overridable_functions() -> dict[Any, list[Callable]]:
    """The functions that can be handled, by where they are: `torch`, `torch.nn.functional`, `torch.Tensor`, ..."""
    known = _overriding.functions()
    found: dict[Any, list[Callable]] = {}
    for space in _spaces():
        if space is Tensor:
            rows: list[Any] = list(_overriding.methods().values())
            rows += [value.__get__ for value in _overriding.properties().values()]
        else:
            rows = [
                value
                for name, value in sorted(vars(space).items())
                if name[0] != "_" and isinstance(value, FunctionType) and value in known
            ]
        found[space] = list(dict.fromkeys(rows))
    return found


@functools.cache
def get_ignored_functions() -> set[Callable]:
    """Public functions that can not be handled."""
    known = _overriding.functions()
    found: set[Callable] = set()
    for space in _spaces():
        if space is Tensor:
            names = _overriding._IGNORED_METHODS - {"__torch_function__"}
            found.update(getattr(Tensor, name) for name in names if hasattr(Tensor, name))
            found.update((Tensor.__torch_function__, Tensor._make_subclass))  # type: ignore[attr-defined]
        else:
            found.update(
                value
                for name, value in vars(space).items()
                if name[0] != "_" and isinstance(value, FunctionType) and value not in known
            )
    return found


def get_default_nowrap_functions() -> set[Callable]:
    """The functions whose results Tensor's own handler gives as they are: `Tensor.grad.__get__`."""
    _overriding.functions()
    return set(unwrapped)


@functools.cache
def get_testing_overrides() -> dict[Callable, Callable]:
    """A function that does nothing, of the same parameters, for each that can be handled."""
    found: dict[Callable, Callable] = {}
    for functions in get_overridable_functions().values():
        for function in functions:
            found[function] = _dummy(function)
    return found


def _dummy(function: Any) -> Callable:
    """A function of the parameters of `function` that returns -1."""
    record = getattr(function, "op", None)
    if record is not None:
        names = [p if p != record.varargs else "*" + p for p in record.positional]
        text = ", ".join(f"{p}=None" if p in record.defaults else p for p in names)
        more = ", ".join(f"{p}=None" for p in record.keyword)
        star = ", *" if more and not record.varargs else ""
        return eval(f"lambda {text}{star}{', ' + more if more else ''}: -1", {})  # type: ignore[no-any-return]
    try:
        signature: inspect.Signature | None = inspect.signature(
            getattr(function, "__wrapped__", without_listeners(function))
        )
    except (TypeError, ValueError):
        signature = None

    def dummy(*args: Any, **kwargs: Any) -> int:
        return -1

    if signature is not None:
        dummy.__signature__ = signature  # type: ignore[attr-defined]
    return dummy


def is_tensor_method_or_property(func: Any) -> bool:
    """Return whether `func` is a method of Tensor, or the `__get__` of one of its properties."""
    if getattr(func, "__name__", "") in ("__get__", "__set__") or isinstance(getattr(func, "__self__", None), property):
        return True
    return any(value is func for value in vars(Tensor).values())


def resolve_name(f: Any) -> str | None:
    """The dotted name of a function that can be handled (`torch.add`, `torch.Tensor.shape.__get__`), or None.

    A function that is a method too has its name as a function.
    """
    return _overriding.name_of(f) or None


# --- modes


class TorchFunctionMode:
    """`with Mode():` its `__torch_function__(func, types, args, kwargs)` is called instead of torch's functions.

    Inside that method the mode is disabled and those outside of it are enabled, so that `func(*args, **kwargs)` goes
    on."""

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        raise NotImplementedError

    def __enter__(self) -> Any:
        _overriding.entered(self)
        return self

    def __exit__(self, *exc: object) -> None:
        _overriding.left()

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> TorchFunctionMode:
        """`cls(...)`, as of older versions: use the class itself."""
        return cls(*args, **kwargs)


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that calls the function."""

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        return func(*args, **(kwargs or {}))


def _get_current_function_mode() -> TorchFunctionMode | None:
    return state.modes[-1] if state.modes else None


def _get_current_function_mode_stack() -> list[TorchFunctionMode]:
    return list(state.modes)


_push_mode, _pop_mode = _overriding.entered, _overriding.left


@contextmanager
def _pop_mode_temporarily() -> Iterator[TorchFunctionMode]:
    before = state.modes
    state.modes = before[:-1]
    try:
        yield before[-1]
    finally:
        state.modes = before


@contextmanager
def enable_reentrant_dispatch() -> Iterator[None]:
    """A context in which handlers are called again, inside of one."""
    before, state.without = state.without, False
    try:
        yield
    finally:
        state.without = before


_without = Without
