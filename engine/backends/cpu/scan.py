"""Running sums of floats, added up in float64 and rounded once, as torch does it.

What is not negative has running sums that do not fall, and programs rely on it (a cumulative distribution that is
searched).  So sums are added in order.  Products with triangles of ones take a third of the time for 1e6 elements of
one row, but BLAS adds up different columns in different orders, and neighbours fall by a last place here and there.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from engine.backends.cpu.allocator import empty

__all__ = ["LARGE", "running_sums"]

LARGE = 1 << 12  # elements from which another route than numpy's is faster
_MANY = 1 << 9  # elements that are added at once, from which a call for each step along the dim pays
_INNER = 64  # elements that lie side by side
_PIECE = 1 << 13  # numbers of a row that wait in the cache
_F32, _F64 = np.dtype("float32"), np.dtype("float64")


def running_sums(x: Any, axis: int) -> Any:
    """The running sums of a float32 or float64 array along a dim; None where numpy's own is as good."""
    if x.dtype not in (_F32, _F64) or x.size < LARGE or not x.flags.c_contiguous:
        return None
    length, inner = x.shape[axis], math.prod(x.shape[axis + 1 :])
    if inner >= _INNER and x.size >= _MANY * length:
        return _step_by_step(x, length, inner)
    if inner == 1 and x.dtype == _F32 and length >= _PIECE:
        return _row_by_row(x, length)
    return None


def _step_by_step(x: Any, length: int, inner: int) -> Any:
    """Each place along the dim is the one before it plus its own, for all others at once."""
    made = empty(x.shape, x.dtype)
    source, target = x.reshape(-1, length, inner), made.reshape(-1, length, inner)
    sums = source[:, 0].astype(_F64)
    target[:, 0] = sums
    for i in range(1, length):
        sums += source[:, i]
        target[:, i] = sums
    return made


def _row_by_row(x: Any, length: int) -> Any:
    """Long rows of float32 in pieces, each behind the last sum of the one before it."""
    made = empty(x.shape, x.dtype)
    sums = np.empty(_PIECE + 1)
    for source, target in zip(x.reshape(-1, length), made.reshape(-1, length)):
        last = 0.0
        for start in range(0, length, _PIECE):
            piece = source[start : start + _PIECE]
            some = sums[: len(piece) + 1]
            some[0], some[1:] = last, piece
            np.add.accumulate(some, out=some)
            target[start : start + _PIECE] = some[1:]
            last = some[-1]
    return made
