"""torch.autograd.grad_mode's names."""

from __future__ import annotations

from engine.grad_mode import enable_grad, inference_mode, no_grad, set_grad_enabled
from engine.utils._contextlib import _DecoratorContextManager, _NoParamDecoratorContextManager  # noqa: F401

__all__ = ["enable_grad", "inference_mode", "no_grad", "set_grad_enabled", "set_multithreading_enabled"]


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
