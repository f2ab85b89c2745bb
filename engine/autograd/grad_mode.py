"""torch.autograd.grad_mode's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.core.grad_mode import _GradContext, enable_grad, inference_mode, no_grad, set_grad_enabled

__all__ = ["enable_grad", "inference_mode", "no_grad", "set_grad_enabled", "set_multithreading_enabled"]


class _DecoratorContextManager(_GradContext):
    """A context of the subclass's own `__enter__` and `__exit__`, which also decorates; `clone` makes a fresh one."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return object.__new__(cls)

    def __init__(self) -> None:
        pass

    def __enter__(self) -> None:
        raise NotImplementedError

    def __exit__(self, *exc: object) -> None:
        raise NotImplementedError


class _NoParamDecoratorContextManager(_DecoratorContextManager):
    """One without arguments, which also decorates without parentheses."""

    def __new__(cls, orig_func: Callable[..., Any] | None = None) -> Any:
        return object.__new__(cls) if orig_func is None else cls()(orig_func)


class set_multithreading_enabled(_DecoratorContextManager):
    """A context without effect: a backward pass runs in the thread that calls it."""

    def __init__(self, mode: bool) -> None:
        self.mode = mode

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        pass

    def clone(self) -> set_multithreading_enabled:
        """A fresh one."""
        return type(self)(self.mode)
