"""Sums of squared deviations from a mean, for `var` and `std`: one pass through buffers that stay in a core's cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from engine.backends.cpu import threads
from engine.backends.cpu.exact import column_sums, summed

__all__ = ["squared_deviations"]

_FLOATS = frozenset(map(np.dtype, ("float32", "float64")))
_BUFFER = 1 << 16  # elements of a buffer, which is written, read and written again while it is in the cache of a core
_RUN = 64  # rows that are added one after the other: Note [Sums in runs] in exact.py
_WIDE = 1 << 10  # elements of the rows that are made of short ones laid side by side


def squared_deviations(array: Any, center: Any, axes: Sequence[int] | None, keepdim: bool = False) -> Any:
    """Return the sums over `axes` (None = all) of `(array - center) ** 2`, added in runs.  Real floats.

    array (*), center (* with 1 in place of axes) -> (* without axes, or with 1 there).
    """
    if not isinstance(array, np.ndarray) or not array.flags.c_contiguous or array.dtype not in _FLOATS:
        gap = array - center
        return summed(gap * gap, axes, keepdim)
    ndim, shape = array.ndim, array.shape
    added = range(ndim) if axes is None else sorted([d % ndim for d in axes])
    last = 0  # dims at the end that are added
    while last < len(added) and added[-1 - last] == ndim - 1 - last:
        last += 1
    if last and prod(shape[ndim - last :]) <= _BUFFER:
        centers = np.broadcast_to(center, (*shape[: ndim - last], *center.shape[ndim - last :]))
        rows = _of_rows(array.reshape(-1, prod(shape[ndim - last :])), centers.reshape(-1, 1))
        found = (
            summed(rows.reshape(shape[: ndim - last]), tuple(added[: len(added) - last])) if last < len(added) else rows
        )
    elif last == ndim:
        found = _of_all(array.reshape(-1), center.reshape(()))
    elif added and added[-1] == len(added) - 1:
        found = _of_columns(array.reshape(prod(shape[: len(added)]), -1), center.reshape(-1))
    else:
        gap = array - center
        return summed(gap * gap, axes, keepdim)
    return found.reshape([1 if d in added else n for d, n in enumerate(shape) if keepdim or d not in added])[()]


def _in_buffers(rows: np.ndarray, step: int, each: Callable[[np.ndarray, np.ndarray, slice], None]) -> None:
    """Call `each(rows[at], buffer of that shape, at)` for every `step` rows, on all threads."""

    def work(start: int) -> None:
        at = slice(start, min(start + step * 4, len(rows)))
        buffer = np.empty((step, rows.shape[1]), rows.dtype)
        with np.errstate(all="ignore"):
            for i in range(at.start, at.stop, step):
                piece = slice(i, min(i + step, at.stop))
                each(rows[piece], buffer[: piece.stop - i], piece)

    threads.run(work, list(range(0, len(rows), step * 4)))


def _of_all(array: np.ndarray, center: np.ndarray) -> Any:
    """Return the sum of the squared deviations of all elements.  (n), () -> ()."""
    whole = array.size // _BUFFER * _BUFFER
    found = np.add.reduce(_of_rows(array[:whole].reshape(-1, _BUFFER), center))
    if whole < array.size:
        gap = array[whole:] - center
        found = found + np.add.reduce(gap * gap)
    return found


def _of_rows(rows: np.ndarray, center: np.ndarray) -> np.ndarray:
    """Return the sums of the squared deviations of each row.  (n, m), (n, 1) or () -> (n)."""
    found = np.empty(len(rows), rows.dtype)

    def each(block: np.ndarray, gap: np.ndarray, at: slice) -> None:
        np.subtract(block, center[at] if center.ndim else center, out=gap)
        np.multiply(gap, gap, out=gap)
        np.add.reduce(gap, axis=1, out=found[at])

    _in_buffers(rows, min(len(rows), max(1, _BUFFER // rows.shape[1])), each)
    return found


def _of_columns(rows: np.ndarray, center: np.ndarray) -> np.ndarray:
    """Return the sums of the squared deviations of each column.  (n, m), (m) -> (m)."""
    n, m = rows.shape
    if m > 2 * _WIDE:
        pieces = [slice(i, i + _WIDE) for i in range(0, m, _WIDE)]
        return np.concatenate([_of_columns(rows[:, at], center[at]) for at in pieces])
    side_by_side = max(1, _WIDE // m) if rows.flags.c_contiguous else 1
    whole = n // side_by_side * side_by_side
    wide = rows[:whole].reshape(-1, side_by_side * m)
    centers = np.tile(center, side_by_side)
    step = max(1, _BUFFER // (_RUN * wide.shape[1])) * _RUN
    parts = np.empty((-(-len(wide) // step), wide.shape[1]), rows.dtype)

    def each(block: np.ndarray, gap: np.ndarray, at: slice) -> None:
        np.subtract(block, centers, out=gap)
        np.multiply(gap, gap, out=gap)
        parts[at.start // step] = column_sums(gap[None])[0]

    _in_buffers(wide, step, each)
    found = summed(column_sums(parts[None]).reshape(side_by_side, m), 0)
    if whole < n:
        gap = rows[whole:] - center
        found = found + np.add.reduce(gap * gap, axis=0)
    return found
