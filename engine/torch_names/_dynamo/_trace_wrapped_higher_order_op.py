"""One name: a context in which torch can index by tensors while it maps a function; here indexing always can."""

from __future__ import annotations

from contextlib import nullcontext

__all__ = ["TransformGetItemToIndex"]

TransformGetItemToIndex = nullcontext
