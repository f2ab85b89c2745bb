"""Page-locked memory for copies to a device; on the CPU nothing is done."""

from __future__ import annotations

from typing import Any

from engine.tensor import Tensor
from engine.utils._pytree import tree_map

__all__ = ["pin_memory"]


def pin_memory(data: Any, device: Any = None) -> Any:
    """`data` with its Tensors in page-locked memory, where the backend has any; objects may bring a `pin_memory()`."""

    def pinned(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value
        own = getattr(value, "pin_memory", None)
        return own() if callable(own) else value

    return tree_map(pinned, data)
