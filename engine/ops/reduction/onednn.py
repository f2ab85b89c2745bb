"""oneDNN's kernels of sums over rows and over all but channels: gradients of biases."""

from __future__ import annotations

import functools
import math
from math import prod
from typing import Any

import numpy as np

from engine.backends.cpu.exact import summed
from engine.backends.onednn import arrays
from engine.backends.onednn.operands import flat, rows_of_channels
from engine.backends.onednn.primitives import usable
from engine.core.checks import wrap_dims
from engine.core.layouts import lies_channels_last
from engine.dispatch import kernel
from engine.ops import reduction


def column_sums(matrix: Any) -> Any:
    """The sums over the rows of (n, m) -> (m), in runs: Note [Sums in runs] in `engine/backends/cpu/exact.py`."""
    n, m = matrix.shape
    runs = _runs(n)
    made = np.empty(m if runs == 1 else (runs, m), np.float32)
    whole = n // runs * runs
    rows = matrix if whole == n else matrix[:whole]
    if not arrays.column_sums(rows.reshape(-1, runs * m), made):
        return NotImplemented
    if runs == 1:
        return made
    found = np.add.reduce(made, 0) if runs <= _RUN else summed(made, 0)
    if whole < n:
        found += summed(matrix[whole:], 0)
    return found


_RUN = 128  # rows that one product with ones adds up, or up to twice as many


@functools.lru_cache(256)
def _runs(n: int) -> int:
    """Return in how many runs n rows are added: a divisor of n where there is one, so that no rows are left over."""
    runs = max(1, n // _RUN)
    return next((count for count in range(runs, runs + min(runs, 16)) if not n % count), runs)


def finite(array: Any) -> bool:
    """Return whether no element of a dense array is nan or infinite.  (Or its sum overflows, by chance.)"""
    line = flat(array)
    if line.itemsize == 2:  # by the bits of the exponent
        top = 0x7C00 if line.dtype.kind == "f" else 0x7F80
        return bool(np.maximum.reduce(np.bitwise_and(line.view(np.uint16), 0x7FFF), initial=0) < top)
    several = line.size // 64 * 64 if line.size >= 1 << 15 else 0
    total = float(np.add.reduce(line[several:]))
    if several:
        total += float(np.add.reduce(column_sums(line[:several].reshape(-1, 64))))
    return math.isfinite(total)


def _summed(array: Any, axes: tuple[int, ...]) -> Any:
    """The sums over `axes`, flat, where the other dims are contiguous."""
    ndim = array.ndim
    if len(axes) == ndim or not axes:
        return NotImplemented
    if axes == tuple(range(len(axes))) and array.flags.c_contiguous:
        return column_sums(array.view(np.ndarray).reshape(prod(array.shape[: len(axes)]), -1))
    if ndim > 2 and axes == (0, *range(2, ndim)) and lies_channels_last(array):
        return column_sums(rows_of_channels(array))
    return NotImplemented


@kernel(reduction.sum, "onednn")
def _sum(xp, input, dim=None, keepdim=False, *, dtype=None):
    if dtype is not None or dim is None or not usable(input):
        return NotImplemented
    axes = tuple(sorted(wrap_dims(dim, input.ndim)))
    found = _summed(input, axes)
    if found is NotImplemented:
        return found
    kept = [1 if d in axes else n for d, n in enumerate(input.shape)]
    return found.reshape(kept if keepdim else [n for d, n in enumerate(input.shape) if d not in axes])


@kernel(reduction.mean, "onednn")
def _mean(xp, input, dim=None, keepdim=False, *, dtype=None):
    found = _sum(xp, input, dim, keepdim, dtype=dtype)
    if found is NotImplemented:
        return found
    found /= found.dtype.type(reduction.count_of(input.shape, dim))
    return found


@kernel(reduction.sum_to_size, "onednn")
def _sum_to_size(xp, input, size):
    if not usable(input):
        return NotImplemented
    lead, ones = reduction.summed_dims(input.shape, size)
    found = _summed(input, tuple(sorted((*lead, *ones))))
    return found if found is NotImplemented else found.reshape(size)
