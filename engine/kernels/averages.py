"""Means of windows that may overhang the edges of their images, and their gradient.

Parameters: x (planes, h, w) -> (planes, rows, m); above, left: the padding; inside, behind: the first window of a row
that begins within the image, and the first after it that ends behind it.  counted: places of the padding count, so
that all sums have the same divisor; else each has the number of its places in the image.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence

from engine.kernels.form import Kernel, Value, both, where

__all__ = ["mean_of_overhanging", "mean_of_overhanging_gradient"]

Pair = tuple[int, int]
_SIZES = ("h", "w", "rows", "m", "above", "left")


def _clamped(place: Value, n: Value, zero: Value) -> Value:
    return where(place < 0, zero, where(place < n, place, n - 1))


def _count(inside: Sequence[Value], k: Kernel) -> Value:
    """How many of them are true."""
    one, none = k.constant(1, "index"), k.constant(0, "index")
    return functools.reduce(operator.add, [where(fits, one, none) for fits in inside])


@functools.cache
def mean_of_overhanging(taps: Pair, stride: Pair, counted: bool) -> Callable[[str], Kernel]:
    """The means of windows.  Rows are (planes, rows)."""

    def write(type: str) -> Kernel:
        k = Kernel("mean_of_overhanging", "rows")
        x, out = k.array("x", type), k.array("out", type, True)
        h, w, rows, m, above, left = (k.scalar(name, "index") for name in _SIZES)
        inside, behind = k.scalar("inside", "index"), k.scalar("behind", "index")
        divisor = k.scalar("divisor", type)
        own, zero, nothing = k.index * m, k.constant(0, "index"), k.constant(0.0, type)
        top, plane = k.index % rows * stride[0] - above, k.index // rows * h
        fits = [both(top + a >= 0, top + a < h) for a in range(taps[0])]
        lines = [(plane + _clamped(top + a, h, zero)) * w for a in range(taps[0])]
        tall = _count(fits, k)

        def overhanging(j: Value) -> None:
            start = j * stride[1] - left
            across = [both(start + b >= 0, start + b < w) for b in range(taps[1])]
            places = [_clamped(start + b, w, zero) for b in range(taps[1])]
            terms = [
                where(both(there, here), k.load(x, line + place), nothing)
                for there, line in zip(fits, lines)
                for here, place in zip(across, places)
            ]
            count = divisor if counted else k.cast(tall * _count(across, k), type)
            k.store(out, own + j, functools.reduce(operator.add, terms) / count)

        with k.loop(zero, inside) as j:
            overhanging(j)
        with k.each(behind - inside) as j:
            start = (inside + j) * stride[1] - left
            terms = [
                where(there, k.load(x, line + start + b), nothing)
                for there, line in zip(fits, lines)
                for b in range(taps[1])
            ]
            count = divisor if counted else k.cast(tall * taps[1], type)
            k.store(out, own + inside + j, functools.reduce(operator.add, terms) / count)
        with k.loop(behind, m) as j:
            overhanging(j)
        return k

    return write


@functools.cache
def mean_of_overhanging_gradient(taps: Pair, stride: Pair, counted: bool) -> Callable[[str], Kernel]:
    """grad (planes, rows, m) -> (planes, h, w), the sum of what the windows of each place give.

    share (planes, m) is scratch.  Rows are planes.
    """

    def write(type: str) -> Kernel:
        k = Kernel("mean_of_overhanging_gradient", "rows")
        grad, share, out = k.array("grad", type), k.array("share", type, True), k.array("out", type, True)
        h, w, rows, m, above, left = (k.scalar(name, "index") for name in _SIZES)
        divisor = k.scalar("divisor", type)
        base, given, own = k.index * h * w, k.index * rows * m, k.index * m
        zero, one = k.constant(0, "index"), k.constant(1, "index")
        with k.each(h * w) as j:
            k.store(out, base + j, k.constant(0.0, type))

        def first(b: int) -> Value:
            """The first window whose place `b` across is in the image."""
            beyond = left - b
            return where(beyond > 0, (beyond + (stride[1] - 1)) // stride[1], zero)

        def behind(b: int) -> Value:
            """The one after the last."""
            last = w - 1 + left - b
            found = where(last < 0, zero, last // stride[1] + 1)
            return where(found < m, found, m)

        spans = [(first(b), behind(b)) for b in range(taps[1])]
        with k.loop(zero, rows) as i:
            top = i * stride[0] - above
            lines = [top + a for a in range(taps[0])]
            fits = [both(line >= 0, line < h) for line in lines]
            tall = _count(fits, k)
            with k.each(m) as j:
                start = j * stride[1] - left
                across = [both(start + b >= 0, start + b < w) for b in range(taps[1])]
                count = divisor if counted else k.cast(tall * _count(across, k), type)
                k.store(share, own + j, k.load(grad, given + i * m + j) / count)
            for line, there in zip(lines, fits):
                with k.loop(zero, where(there, one, zero)):
                    for b, (begin, end) in enumerate(spans):
                        target = base + line * w + begin * stride[1] + (b - left)
                        with k.each(end - begin) as j:
                            at = target + j * stride[1]
                            k.store(out, at, k.load(out, at) + k.load(share, own + begin + j))
        return k

    return write
