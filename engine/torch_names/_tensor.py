"""torch._tensor's name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.tensor import Tensor

__all__ = ["Tensor", "_rebuild_from_type_v2"]


def _rebuild_from_type_v2(func: Callable, new_type: type, args: tuple, state: Any) -> Any:
    """func(*args) as a `new_type` with the attributes of `state`, as pickles of subclasses of Tensor say it."""
    result = func(*args)
    if type(result) is not new_type:
        result = result.as_subclass(new_type)
    if isinstance(state, tuple):  # of __dict__ and of __slots__
        for part in state:
            result.__dict__.update(part or {})
    elif state:
        result.__dict__.update(state)
    return result
