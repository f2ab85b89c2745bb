"""torch._prims_common's questions about tensors."""

from __future__ import annotations

from engine.tensor import Tensor

__all__ = ["is_contiguous", "is_contiguous_or_false"]


def is_contiguous(a: Tensor) -> bool:
    """`a.is_contiguous()`."""
    return a.is_contiguous()


is_contiguous_or_false = is_contiguous
