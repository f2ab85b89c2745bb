"""torch.utils._contextlib's names: contexts that decorate functions, generators and classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.grad_mode import _GradContext

__all__ = ["context_decorator"]


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

    def __new__(cls, orig_func: Callable | None = None) -> Any:
        return object.__new__(cls) if orig_func is None else cls()(orig_func)


def context_decorator(ctx: Any, func: Callable) -> Callable:
    """`func` run inside `ctx`, or inside what `ctx()` gives at each call."""

    class Made(_DecoratorContextManager):
        def __enter__(self) -> None:
            self.inside = ctx() if callable(ctx) else ctx
            self.inside.__enter__()

        def __exit__(self, *exc: object) -> None:
            self.inside.__exit__(*exc)

    return Made()(func)
