"""Running sums of floats: products with triangles of ones, where numpy adds number after number."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from engine.backends.cpu.allocator import empty

__all__ = ["FEW", "running_sums"]

FEW = 1 << 10  # elements below which numpy's own is faster
_WIDTHS = range(12, 41)  # of a triangle: wider ones multiply too much, narrower ones leave too many sums to add up
_BEST = 20
_ROWS = 128  # of a product: with 40 columns less than 2 ** 18 multiplications
_MANY = 1 << 9  # elements that are added at once, from which a call for each step along the dim pays
_NATIVE = frozenset(map(np.dtype, ("float32", "float64")))


@functools.lru_cache(256)
def _width(length: int) -> int | None:
    """The width of a triangle that divides `length`."""
    found = [k for k in _WIDTHS if not length % k]
    return min(found, key=lambda k: abs(k - _BEST), default=None)


@functools.lru_cache(64)
def _triangle(width: int, dtype: Any) -> Any:
    """Ones on and above the diagonal."""
    return np.triu(np.ones((width, width), dtype))


def _multiply(a: Any, b: Any, out: Any) -> None:
    """out = a @ b (n, k) in pieces too small for the threads of numpy's BLAS, which spin when they have worked."""
    whole = len(a) - len(a) % _ROWS
    if whole > _ROWS:
        np.matmul(a[:whole].reshape(-1, _ROWS, len(b)), b, out=out[:whole].reshape(-1, _ROWS, len(b)))
        a, out = a[whole:], out[whole:]
    np.matmul(a, b, out=out)


def running_sums(x: Any, axis: int) -> Any:
    """The running sums of a float32 or float64 array along a dim; None where numpy's own is as good, or x not finite."""
    if x.dtype not in _NATIVE or x.size < FEW:
        return None
    inner = math.prod(x.shape[axis + 1 :])
    if inner > 1:
        return _step_by_step(x, axis, inner)
    length = x.shape[axis]
    rows, width = x.size // length, _width(length)
    x = np.ascontiguousarray(x)
    made = empty(x.shape, x.dtype)
    if width is None:
        head = length - length % _BEST
        if rows > 1 or not head:
            return None
        line, out = x.reshape(-1), made.reshape(-1)
        last = _in_triangles(line[:head], out[:head], 1, _BEST)
        if last is None:
            return None
        np.add.accumulate(line[head:], out=out[head:])
        out[head:] += last
        return made if math.isfinite(out[-1]) else None
    return None if _in_triangles(x, made, rows, width) is None else made


# Note [Running sums do not fall]
# What is not negative has running sums that do not fall, and programs rely on it (a cumulative distribution that is
# searched).  A triangle's sums do not, since rounding keeps order; so what precedes a triangle must be the last number
# of the one before, to the bit: totals are added up in the array's own type, in order.


def _in_triangles(x: Any, made: Any, rows: int, width: int) -> Any:
    """Running sums of `rows` rows; the last, or None if one is not finite: 0 * inf is nan."""
    out = made.reshape(-1, width)
    _multiply(x.reshape(-1, width), _triangle(width, x.dtype), out)
    sums = out[:, -1].reshape(rows, -1).copy()
    if sums.shape[1] > 1:
        np.add.accumulate(sums, axis=1, out=sums)
        before = np.empty((len(out), 1), x.dtype)
        ahead = before.reshape(sums.shape)
        ahead[:, 0] = 0
        ahead[:, 1:] = sums[:, :-1]
        np.add(out, before, out=out)
    return out[-1, -1] if math.isfinite(float(np.add.reduce(sums[:, -1], dtype=np.float64))) else None


def _step_by_step(x: Any, axis: int, inner: int) -> Any:
    """Each place along the dim is the one before it plus its own, in numpy's order."""
    length = x.shape[axis]
    if x.size // length < _MANY or inner < 64 or not x.flags.c_contiguous:
        return None
    made = empty(x.shape, x.dtype)
    source, target = x.reshape(-1, length, inner), made.reshape(-1, length, inner)
    target[:, 0] = source[:, 0]
    for i in range(1, length):
        np.add(target[:, i - 1], source[:, i], out=target[:, i])
    return made
