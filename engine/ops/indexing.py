"""`x[index]` and `x[index] = value`."""

from __future__ import annotations

from engine.tensor import Tensor
from engine.ops.shape import basic_index


def _getitem(self, index):
    return basic_index(self, index if isinstance(index, tuple) else (index, ...))


Tensor.__getitem__ = _getitem
