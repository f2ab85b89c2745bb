"""torch._custom_ops, the form of 2023: `custom_op`, then `impl` and `impl_backward`; torch.library replaced it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine import library
from engine.library.infer_schema import infer_schema

__all__ = ["custom_op", "impl", "impl_abstract", "impl_backward", "impl_save_for_backward"]

_saving: dict[str, Any] = {}


def custom_op(qualname: str, func_or_schema: Any = None) -> Any:
    """Define an operator from a prototype function, or from a schema; a decorator without either."""

    def define(prototype: Any) -> Any:
        text = prototype if isinstance(prototype, str) else infer_schema(prototype, mutates_args=())
        library.define(qualname, text)
        return prototype

    return define if func_or_schema is None else define(func_or_schema)


def impl(qualname: str, *, device_types: Any = ("cpu", "cuda"), func: Any = None) -> Any:
    """Register a kernel for devices."""
    return library.impl(qualname, device_types, func)


def impl_abstract(qualname: str, *, func: Any = None) -> Any:
    """Register the function that describes an operator's results without computing them."""
    return library.register_fake(qualname, func)


def impl_save_for_backward(qualname: str, *, func: Any = None) -> Any:
    """`save(inputs, output)`: what `impl_backward` gets as `saved`."""

    def register(function: Callable[..., Any]) -> Any:
        _saving[qualname] = function
        return function

    return register if func is None else register(func)


def impl_backward(qualname: str, output_differentiability: Any = None, *, func: Any = None) -> Any:
    """`backward(ctx, saved, *grads)`: a dict of gradients by the name of the argument."""

    def register(function: Callable[..., Any]) -> Any:
        one = library._ops.find(qualname)
        names = [a.name for a in one._schema.arguments]

        def setup(ctx: Any, inputs: Any, output: Any) -> None:
            from types import SimpleNamespace

            ctx.saved = _saving[qualname](SimpleNamespace(**dict(zip(names, inputs))), output)

        def backward(ctx: Any, *grads: Any) -> Any:
            found = function(ctx, ctx.saved, *grads)
            return tuple(found.get(name) for name in names)

        library.register_autograd(qualname, backward, setup_context=setup)
        return function

    return register if func is None else register(func)
