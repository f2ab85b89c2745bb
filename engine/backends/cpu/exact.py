"""Sums of floats in short runs whose sums are added again, so that the error does not grow with the number of elements.

Note [Sums in runs]
numpy adds along the last dim in memory in pairs, and along every other dim one row after the other: 20,000,000 ones in
a column give 16,777,216 in float32, and the mean of a million rows is off by 1e-5.  So rows are added in runs of
`_RUN` to twice as many, the sums of runs are rows again, and so on: the rounding errors of some 64 * log64(n)
additions, not of n, meet in a result.  Short rows are first laid side by side (`w` rows of m as one of w * m), which
numpy and products with ones add at the speed of memory: 1,000,000 rows of 4 in a hundredth of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

__all__ = ["column_sums", "dots", "summed", "sums"]

_EXACT = frozenset(map(np.dtype, ("float32", "float64", "complex64", "complex128")))
_RUN = 64  # rows that are added one after the other
_WIDE = 1 << 10  # elements of the rows that are made of short ones
_DOT = 1 << 12  # products that are added at once
_SHORT = 32  # elements along the last dim in memory that are better left for the end
_LARGE = 1 << 14  # elements from which that is worth its calls for a few hundred rows, too
_ROWS, _ROWS_OF_FEW = 4 * _RUN, 8 * _RUN  # rows that are added as they are, of many elements and of few


def summed(array: Any, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Any:
    """`array.sum` of floats of at least 32 bits, on this processor in runs: Note [Sums in runs]."""
    if array.size <= _ROWS_OF_FEW or not isinstance(array, np.ndarray) or array.dtype not in _EXACT:
        return array.sum(axis=axis, keepdims=keepdims)
    ndim = array.ndim
    if axis is None:
        if array.flags.c_contiguous:
            return np.add.reduce(array, None, keepdims=keepdims)  # in pairs
        axes = tuple(range(ndim))
    else:
        axes = (axis,) if isinstance(axis, int) else axis
        if len(axes) == 1 and (
            array.shape[axes[0]] <= (_ROWS if array.size >= _LARGE else _ROWS_OF_FEW)
            or (axes[0] in (-1, ndim - 1) and array.flags.c_contiguous)
        ):
            return np.add.reduce(array, axes[0], keepdims=keepdims)
        axes = tuple([d % ndim for d in axes])
    return sums(array, axes, keepdims)


def dots(a: Any, b: Any, xp: Any) -> Any:
    """The sums of products along the last dim, in runs.  (*, n), (*, n) -> (*)."""
    n = a.shape[-1]
    if n >= 2 * _DOT and isinstance(a, np.ndarray) and a.flags.c_contiguous and b.flags.c_contiguous:
        whole = n // _DOT * _DOT
        first, second = (x[..., :whole].reshape(*x.shape[:-1], -1, _DOT) for x in (a, b))
        found = summed(dots(first, second, xp), -1)
        return found + dots(a[..., whole:], b[..., whole:], xp) if whole < n else found
    return xp.matmul(a[..., None, :], b[..., :, None])[..., 0, 0]


def sums(array: np.ndarray, axes: Sequence[int], keepdim: bool = False) -> Any:
    """The sums of floats or complex numbers over `axes`, not negative, each once.

    array (*) -> (* without axes, or with 1 there).
    """
    few = _ROWS if array.size >= _LARGE else _ROWS_OF_FEW
    axes = tuple(axes)
    if array.size <= few or not axes:
        return np.add.reduce(array, axis=axes, keepdims=keepdim)
    shape = array.shape
    if array.flags.c_contiguous and max(axes) == len(axes) - 1 < array.ndim - 1:  # of the first dims
        lead = len(axes)
        blocks = array.reshape(1, _product(shape[:lead]), -1)
        if blocks.shape[2] == 1:
            return np.add.reduce(array, axis=axes, keepdims=keepdim)  # in pairs
        found = np.add.reduce(blocks, axis=1) if blocks.shape[1] <= few else column_sums(blocks)
        return found.reshape((*(1,) * lead, *shape[lead:]) if keepdim else shape[lead:])
    order = sorted((d for d in range(array.ndim) if shape[d] > 1), key=lambda d: -abs(array.strides[d]))
    left = [d in axes for d in order]  # which of the dims, as they lie in memory, are added
    if _in_pairs(array, order, left, few):
        return np.add.reduce(array, axis=axes, keepdims=keepdim)
    single = tuple(d for d in range(array.ndim) if shape[d] == 1)
    laid = array.transpose(*single, *order).reshape([shape[d] for d in order])
    found = _in_order(laid, left)
    back = [d for d in order if d not in axes]  # the dims of `found`
    if back != sorted(back):
        found = found.transpose([back.index(d) for d in sorted(back)])
    return found.reshape(
        [n for d, n in enumerate(shape) if d not in axes]
        if not keepdim
        else [1 if d in axes else n for d, n in enumerate(shape)]
    )[()]


def _in_pairs(array: np.ndarray, order: list[int], left: list[bool], few: int) -> bool:
    """Return whether numpy adds in pairs, or so few rows that it does not matter."""
    together, step, rows = True, array.itemsize, 1
    for d, added in zip(reversed(order), reversed(left)):
        together = together and added and array.strides[d] == step
        if together:
            step *= array.shape[d]
        elif added:
            rows *= array.shape[d]
    return rows <= few or (len(order) == 1 and left[0])


def _in_order(found: np.ndarray, left: list[bool]) -> np.ndarray:
    """The sums over the dims that `left` names, of an array whose dims are as they lie in memory."""
    left = [*left]
    if all(left):
        return np.add.reduce(np.ascontiguousarray(found), axis=None)  # a copy is as good as a loop for each row
    while True in left:
        at = len(left) - 1 - left[::-1].index(True)
        if at == len(left) - 1 and found.shape[at] < _SHORT and True in left[:at]:
            at = at - 1 - left[:at][::-1].index(True)  # a loop for each few elements takes longer than another dim
        if at == len(left) - 1:
            found = np.add.reduce(found, axis=at)  # in pairs
        else:
            before, after = found.shape[:at], found.shape[at + 1 :]
            blocks = found.reshape(-1, found.shape[at], _product(after))  # a copy where dims do not lie together
            found = column_sums(blocks).reshape((*before, *after))
        left.pop(at)
    return found


def _product(shape: Sequence[int]) -> int:
    count = 1
    for n in shape:
        count *= n
    return count


def _rows(blocks: np.ndarray) -> np.ndarray:
    return np.add.reduce(blocks, axis=1)


def column_sums(blocks: np.ndarray, add: Callable[[np.ndarray], np.ndarray] = _rows) -> np.ndarray:
    """The sums over the rows of each of several matrices.  blocks (b, n, m) -> (b, m).

    add: what adds up a few rows, for the same shapes.
    """
    count, n, m = blocks.shape
    if n <= _ROWS:
        return add(blocks)
    together = blocks.strides[1] == m * blocks.itemsize and (m == 1 or blocks.strides[2] == blocks.itemsize)
    w = max(1, min(_WIDE // max(1, m), n // _RUN)) if together else 1
    # so that no rows are left over, where there are such numbers
    w = next((v for v in range(w, max(w // 2, w - 16), -1) if not n % v), w)
    run = next((r for r in range(_RUN, 2 * _RUN) if not n % (r * w)), _RUN)
    whole = n // (run * w) * run * w
    runs = blocks[:, :whole].reshape(-1, run, w * m)
    found = column_sums(add(runs).reshape(count, -1, m), add)
    if whole < n:
        found = found + column_sums(blocks[:, whole:], add)
    return found
