"""Kernels over contiguous images: constant padding, sums at points of a grid and their gradients."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable

from engine.kernels.form import Kernel, Value, both, where

__all__ = ["grid_products", "grid_spread", "grid_sums", "padded"]


def padded(type: str) -> Kernel:
    """x (before, h, w) -> (before, height, width), `value` around it.  Rows are (before, height)."""
    k = Kernel("padded", "rows")
    x, out = k.array("x", type), k.array("out", type, True)
    h, w, height, width, top, left = (k.scalar(name, "index") for name in "h w height width top left".split())
    value, zero = k.scalar("value", type), k.constant(0, "index")
    line, own = k.index % height - top, k.index * width
    inside = both(line >= 0, line < h)
    before, taken = where(inside, left, width), where(inside, w, zero)
    given = where(inside, (k.index // height * h + line) * w, zero)
    with k.each(before) as j:
        k.store(out, own + j, value)
    with k.each(taken) as j:
        k.store(out, own + left + j, k.load(x, given + j))
    behind = where(inside, left + w, width)
    with k.each(width - behind) as j:
        k.store(out, own + behind + j, value)
    return k


_SIZES = ("channels", "total", "points")


@functools.cache
def grid_sums(taps: int) -> Callable[[str], Kernel]:
    """x (N, C, total), index and weight (N, taps, points) -> (N, C, points), the weighted sums of elements.

    An index of `total` is an element of 0.  Rows are (N, C).
    """

    def write(type: str) -> Kernel:
        k = Kernel("grid_sums", "rows")
        x, index, weight = k.array("x", type), k.array("places", "int64"), k.array("weight", type)
        out = k.array("out", type, True)
        channels, total, points = (k.scalar(name, "index") for name in _SIZES)
        base, own, first = k.index * total, k.index * points, k.index // channels * taps * points
        with k.each(points) as p:

            def of(tap: int) -> Value:
                at = first + points * tap + p
                place = k.cast(k.load(index, at), "index")
                inside = place < total
                value = k.load(x, base + where(inside, place, total - 1))
                return where(inside, value, k.constant(0.0, type)) * k.load(weight, at)

            found = functools.reduce(operator.add, map(of, range(taps)))
            k.store(out, own + p, found)
        return k

    return write


@functools.cache
def grid_spread(taps: int) -> Callable[[str], Kernel]:
    """grad (N, C, points), index and weight (N, taps, points) -> (N, C, total): the transpose of `grid_sums`."""

    def write(type: str) -> Kernel:
        k = Kernel("grid_spread", "rows")
        grad, index, weight = k.array("grad", type), k.array("places", "int64"), k.array("weight", type)
        out = k.array("out", type, True)
        channels, total, points = (k.scalar(name, "index") for name in _SIZES)
        base, own, first = k.index * total, k.index * points, k.index // channels * taps * points
        with k.each(total) as j:
            k.store(out, base + j, k.constant(0.0, type))
        with k.loop(0, points) as p:
            value = k.load(grad, own + p)
            for tap in range(taps):
                at = first + points * tap + p
                place = k.cast(k.load(index, at), "index")
                with k.when(place < total):
                    total_there = k.variable(k.load(out, base + place))  # set, so that no vectorizer is asked
                    k.set(total_there, total_there + value * k.load(weight, at))
                    k.store(out, base + place, total_there)
        return k

    return write


def grid_products(type: str) -> Kernel:
    """grad (N, C, points), x (N, C, total), index (N, taps, points) -> sums over channels of products (as the index).

    Rows are (N, taps).
    """
    k = Kernel("grid_products", "rows")
    grad, x, index = k.array("grad", type), k.array("x", type), k.array("places", "int64")
    out = k.array("out", type, True)
    channels, total, points, taps = (k.scalar(name, "index") for name in (*_SIZES, "taps"))
    own, image = k.index * points, k.index // taps * channels
    with k.each(points) as p:
        k.store(out, own + p, k.constant(0.0, type))
    with k.loop(0, channels) as c:
        of_grad, of_x = (image + c) * points, (image + c) * total
        with k.each(points) as p:
            place = k.cast(k.load(index, own + p), "index")
            inside = place < total
            value = where(inside, k.load(x, of_x + where(inside, place, total - 1)), k.constant(0.0, type))
            k.store(out, own + p, k.load(out, own + p) + k.load(grad, of_grad + p) * value)
    return k
