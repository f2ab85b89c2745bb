"""torch.overrides' names: `__torch_function__` is not consulted, so no argument has one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from engine.tensor import Tensor

__all__ = [
    "TorchFunctionMode", "get_ignored_functions", "get_overridable_functions", "get_testing_overrides",
    "handle_torch_function", "has_torch_function", "has_torch_function_unary", "has_torch_function_variadic",
    "is_tensor_like", "is_tensor_method_or_property", "resolve_name", "wrap_torch_function",
]  # fmt: skip


def has_torch_function(relevant_args: Any) -> bool:
    """False."""
    return False


def has_torch_function_unary(obj: Any) -> bool:
    """False."""
    return False


def has_torch_function_variadic(*args: Any) -> bool:
    """False."""
    return False


def handle_torch_function(public_api: Callable, relevant_args: Any, *args: Any, **kwargs: Any) -> Any:
    """NotImplementedError: reached only where `has_torch_function` is not asked first."""
    raise NotImplementedError("__torch_function__ is not supported: operations do not consult it")


def is_tensor_like(inp: Any) -> bool:
    """Whether `inp` is a Tensor."""
    return isinstance(inp, Tensor)


def is_tensor_method_or_property(func: Any) -> bool:
    """Whether `func` belongs to Tensor."""
    return getattr(Tensor, getattr(func, "__name__", ""), None) is func


def resolve_name(f: Any) -> str | None:
    """The dotted name of a function, or None."""
    name = getattr(f, "__qualname__", None)
    return None if name is None else f"{f.__module__.replace('engine', 'torch', 1)}.{name}"


def wrap_torch_function(dispatcher: Callable) -> Callable:
    """A decorator that leaves its function as it is."""

    def decorate(func: Callable) -> Callable:
        @functools.wraps(func)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            return func(*args, **kwargs)

        return wrapped

    return decorate


def get_ignored_functions() -> set:
    """Empty."""
    return set()


def get_default_nowrap_functions() -> set:
    """Empty."""
    return set()


def get_overridable_functions() -> dict:
    """Empty."""
    return {}


def get_testing_overrides() -> dict:
    """Empty."""
    return {}


class TorchFunctionMode:
    """NotImplementedError when entered: operations do not consult modes."""

    def __enter__(self) -> Any:
        raise NotImplementedError("TorchFunctionMode is not supported: operations do not consult modes")

    def __exit__(self, *exc: object) -> None:
        pass
