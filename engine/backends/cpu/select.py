"""Choices between the elements of arrays, by their bits: without branches, which irregular masks make slow."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

__all__ = ["outside", "where"]

_INTEGERS = {2: np.dtype(np.int16), 4: np.dtype(np.int32), 8: np.dtype(np.int64)}
_ONE = np.int8(1)
_FEW = 2048  # elements below which numpy's own `where` is faster


def _bits(x: Any, dtype: np.dtype, shape: tuple, integer: np.dtype) -> Any:
    """`x` read as integers if it is an array or scalar of `dtype`; else None."""
    if isinstance(x, np.generic):
        return x.view(integer) if x.dtype == dtype else None
    if x.__class__ is np.ndarray and x.dtype == dtype and x.shape in (shape, ()):
        return x.view(integer)
    return None


def where(mask: Any, x: Any, y: Any, out: Any = None) -> Any:
    """np.where(mask, x, y), ten times as fast where the mask is irregular: arithmetic on bits does not branch."""
    dtype = getattr(x, "dtype", None)
    if (
        mask.__class__ is not np.ndarray
        or mask.size < _FEW
        or mask.dtype != np.bool_
        or not mask.ndim
        or dtype is None
        or dtype.kind not in "fciuV"
    ):
        return np.where(mask, x, y)
    integer = _INTEGERS.get(dtype.itemsize)
    if integer is None:
        return np.where(mask, x, y)
    a, b = _bits(x, dtype, mask.shape, integer), _bits(y, dtype, mask.shape, integer)
    if a is None or b is None:
        return np.where(mask, x, y)
    chosen = None if out is None else out.view(integer)
    if not a.ndim and not a:  # 0 where the mask is set
        ones = np.subtract(mask.view(np.int8), _ONE).astype(integer)
        found = np.bitwise_and(ones, b, out=ones if chosen is None else chosen)
    else:
        ones = np.negative(mask.view(np.int8)).astype(integer)
        if not b.ndim and not b:
            found = np.bitwise_and(ones, a, out=ones if chosen is None else chosen)
        else:
            np.bitwise_and(ones, np.bitwise_xor(a, b), out=ones)
            found = np.bitwise_xor(ones, b, out=ones if chosen is None else chosen)
    return found.view(dtype) if out is None else out


def outside(values: Any, x: Any, limit: float, out: Any = None) -> Any:
    """`values` where |x| > limit or x is nan, else 0: by bits, without branches.

    float32 or float64 arrays of one shape; limit >= 0.
    """
    integer = _INTEGERS[x.itemsize]
    most, ends, end = _signs(integer, x.dtype, limit)
    found = np.bitwise_and(x.view(integer), most)  # of |x|: its bits are ordered as floats are, nan above all
    np.subtract(end, found, out=found)
    np.right_shift(found, ends, out=found)
    chosen = found if out is None else out.view(integer)
    np.bitwise_and(found, values.view(integer), out=chosen)
    return found.view(x.dtype) if out is None else out


@functools.lru_cache(64)
def _signs(integer: np.dtype, dtype: np.dtype, limit: float) -> tuple[Any, ...]:
    """All bits but the sign, the place of the sign, the bits of |limit|: as arrays, which numpy takes faster."""
    bits = 8 * integer.itemsize - 1
    return tuple(np.array(v, integer) for v in ((1 << bits) - 1, bits, np.array(abs(limit), dtype).view(integer)))
