"""Arguments of a call put in the order of the parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from engine.dispatch.gate import without_listeners

__all__ = ["ArgsKwargsPair", "normalize_function", "normalize_module"]


class ArgsKwargsPair(NamedTuple):
    """Arguments by position and by keyword."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def normalize_function(
    target: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    arg_types: Any = None,
    kwarg_types: Any = None,
    normalize_to_only_use_kwargs: bool = False,
) -> ArgsKwargsPair | None:
    """All arguments of a call with its defaults; None where the function has no readable signature."""
    try:
        signature = inspect.signature(without_listeners(target))
        bound = signature.bind(*args, **(kwargs or {}))
    except (TypeError, ValueError):
        return None
    bound.apply_defaults()
    if not normalize_to_only_use_kwargs:
        return ArgsKwargsPair(bound.args, bound.kwargs)
    by_name: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = signature.parameters[name].kind
        if kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY):
            return None
        by_name.update(value if kind is inspect.Parameter.VAR_KEYWORD else {name: value})
    return ArgsKwargsPair((), by_name)


def normalize_module(
    root: Any,
    target: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    normalize_to_only_use_kwargs: bool = False,
) -> ArgsKwargsPair | None:
    """`normalize_function` of a submodule's forward."""
    forward = root.get_submodule(target).forward
    return normalize_function(forward, args, kwargs, normalize_to_only_use_kwargs=normalize_to_only_use_kwargs)
