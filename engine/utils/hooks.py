"""torch.utils.hooks: handles of hooks, and what pickling says of hooks on tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from engine.core.hooks import RemovableHandle, warn_if_unserializable
from engine.tensor import Tensor

__all__ = ["RemovableHandle", "unserializable_hook", "warn_if_has_hooks"]

_Hook = TypeVar("_Hook", bound=Callable[..., Any])


def unserializable_hook(f: _Hook) -> _Hook:
    """Mark a hook as one that need not be saved: pickling a tensor that has it does not warn.  Return it."""
    f.__torch_unserializable__ = True  # type: ignore[attr-defined]
    return f


def warn_if_has_hooks(tensor: Tensor) -> None:
    """Warn of the hooks on `tensor` that pickling would leave out."""
    warn_if_unserializable(tensor._backward_hooks)
