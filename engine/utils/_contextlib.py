"""torch.utils._contextlib's names: contexts that decorate functions, generators and classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.autograd.grad_mode import _DecoratorContextManager, _NoParamDecoratorContextManager  # noqa: F401

__all__ = ["context_decorator"]


def context_decorator(ctx: Any, func: Callable) -> Callable:
    """`func` run inside `ctx`, or inside what `ctx()` gives at each call."""

    class Made(_DecoratorContextManager):
        def __enter__(self) -> None:
            self.inside = ctx() if callable(ctx) else ctx
            self.inside.__enter__()

        def __exit__(self, *exc: object) -> None:
            self.inside.__exit__(*exc)

    return Made()(func)
