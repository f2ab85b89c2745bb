"""torch.func's names: `functional_call` works; the function transforms raise when their result is called."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from engine.nn.utils.stateless import _functional_call

__all__ = [
    "functional_call", "functionalize", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize",
    "stack_module_state", "vjp", "vmap",
]  # fmt: skip


def functional_call(
    module: Any,
    parameter_and_buffer_dicts: Any,
    args: Any = None,
    kwargs: dict | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """What `module(*args, **kwargs)` gives with other parameters and buffers, named as in its state_dict.

    parameter_and_buffer_dicts: a dict or a tuple of dicts with no name twice (ValueError).
    """
    given = parameter_and_buffer_dicts
    if not isinstance(given, dict):
        if not isinstance(given, tuple | list) or not all(isinstance(one, dict) for one in given):
            raise ValueError(
                f"Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got {type(given)}"
            )
        names = [name for one in given for name in one]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise ValueError(f"{min(twice)} appears in multiple dictionaries; behavior of functional call is ambiguous")
        given = {name: value for one in given for name, value in one.items()}
    return _functional_call(module, given, args, kwargs, tie_weights=tie_weights, strict=strict)


def _transform(name: str) -> Callable:
    def transform(func: Callable, *args: Any, **kwargs: Any) -> Callable:
        @functools.wraps(func, updated=())
        def refuse(*values: Any, **more: Any) -> Any:
            raise NotImplementedError(
                f"torch.func.{name} is not supported; write the batch or the derivative with torch.autograd.grad"
            )

        return refuse

    transform.__name__ = transform.__qualname__ = name
    transform.__doc__ = f"A function that raises NotImplementedError: `{name}` is not supported."
    return transform


grad, grad_and_value, vmap = _transform("grad"), _transform("grad_and_value"), _transform("vmap")
jacrev, jacfwd, hessian = _transform("jacrev"), _transform("jacfwd"), _transform("hessian")
functionalize = _transform("functionalize")


def _direct(name: str) -> Callable:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"torch.func.{name} is not supported; use torch.autograd.functional.{name}")

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = "NotImplementedError."
    return refuse


jvp, vjp, linearize, stack_module_state = map(_direct, ["jvp", "vjp", "linearize", "stack_module_state"])
