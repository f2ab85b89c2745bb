"""torch.fx._compatibility's decorator."""

from __future__ import annotations

from typing import Any

__all__ = ["compatibility"]


def compatibility(is_backward_compatible: bool) -> Any:
    """A decorator that returns what it is given: it says what may change between releases."""
    return lambda fn: fn
