"""Kernels of places: where the maxima of images and of their parts are, elements taken and added at places.

Arrays are contiguous.  A place outside of its row is passed over: who gives places has them from an op that checked.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable

from engine.kernels.form import Kernel, Value, both, call, where

__all__ = [
    "added_within",
    "gradient_at_maxima",
    "max_of_tiles_gradient",
    "of_volumes",
    "part",
    "places_of_lines",
    "places_of_parts",
    "taken_within",
]


def part(at: Value, size: Value, count: Value) -> tuple[Value, Value]:
    """Where one of `count` parts that cover `size` places begins, and the place after its last one."""
    return at * size // count, ((at + 1) * size + count - 1) // count


def _largest(k: Kernel, count: Value, load: Callable[[Value], Value], place: Callable[[Value], Value]) -> Value:
    """The smallest place, an int32, of the largest of `count` elements; where some are nan, the largest of theirs."""
    beyond = k.constant(2**31 - 1, "int32")
    top = k.reduce("max", count, load)  # nan where one is, which equals none

    def chosen(j: Value) -> Value:
        value, at = load(j), place(j)
        return where(call("isnan", value), -1 - at, where(value.equals(top), at, beyond))

    found = k.reduce("min", count, chosen)
    return where(found < 0, -1 - found, found)


def gradient_at_maxima(type: str) -> Kernel:
    """grad (rows), x (rows, n) -> (rows, n): each gradient at the first maximum of its row, or at its last nan."""
    k = Kernel("gradient_at_maxima", "rows")
    grad, x, out, n = k.array("grad", type), k.array("x", type), k.array("out", type, True), k.scalar("n", "index")
    base = k.index * n
    chosen = _largest(k, n, lambda j: k.load(x, base + j), lambda j: k.cast(j, "int32"))
    with k.each(n) as j:
        k.store(out, base + j, k.constant(0.0, type))
    with k.once():
        k.store(out, base + k.cast(chosen, "index"), k.load(grad, k.index))
    return k


def places_of_lines(type: str) -> Kernel:
    """x (planes, h, w) -> for each column of `rows` parts of lines that cover it the first maximum, or the last nan
    (planes, rows, w), and its place in the image, int32.  Rows are parts."""
    k = Kernel("places_of_lines", "rows")
    x, tops, places = k.array("x", type), k.array("tops", type, True), k.array("places", "int32", True)
    h, w, rows = (k.scalar(name, "index") for name in ("h", "w", "rows"))
    first, last = part(k.index % rows, h, rows)
    image, own = k.index // rows * h * w, k.index * w
    with k.each(w) as j:
        k.store(tops, own + j, k.load(x, image + first * w + j))
        k.store(places, own + j, k.cast(first * w + j, "int32"))
    with k.loop(first + 1, last) as i:
        line = i * w
        with k.each(w) as j:
            value, held = k.load(x, image + line + j), k.load(tops, own + j)
            better = k.op("lor", value > held, call("isnan", value))
            k.store(tops, own + j, where(better, value, held))
            k.store(places, own + j, where(better, k.cast(line + j, "int32"), k.load(places, own + j)))
    return k


@functools.cache
def places_of_parts(placed: bool) -> Callable[[str], Kernel]:
    """What `places_of_lines` gives (rows, w) -> (rows, m), int64, the places of the first maxima, or of the last nan,
    of m parts that cover a line.

    placed: of elements that have places, which else count from the begin of an image of `lines` lines.  Rows are parts.
    """

    def write(type: str) -> Kernel:
        k = Kernel("places_of_parts", "rows")
        x, places = k.array("x", type), k.array("places", "int32") if placed else None
        out = k.array("out", "int64", True)
        lines, w, m = (k.scalar(name, "index") for name in ("lines", "w", "m"))
        line = k.index // m
        start, stop = part(k.index % m, w, m)
        base, begin = line * w + start, line % lines * w + start

        def place(j: Value) -> Value:
            return k.cast(begin + j, "int32") if places is None else k.load(places, base + j)

        chosen = _largest(k, stop - start, lambda j: k.load(x, base + j), place)
        with k.once():
            k.store(out, k.index, k.cast(chosen, "int64"))
        return k

    return write


Volume = tuple[int, int, int]


@functools.cache
def of_volumes(taps: Volume, stride: Volume, mean: bool) -> Callable[[str], Kernel]:
    """x (planes, d, h, w) -> (planes, d', h', w'), the maxima of windows, nan where one is, or mean: their sums /
    divisor; none overhangs.  Rows are (planes, d', h').
    """

    def write(type: str) -> Kernel:
        k = Kernel("of_volumes", "rows")
        x, out = k.array("x", type), k.array("out", type, True)
        d, h, w, slices, rows, m = (k.scalar(f"n_{name}", "index") for name in ("d", "h", "w", "slices", "rows", "m"))
        divisor = k.scalar("divisor", type) if mean else None
        own, slice = k.index * m, k.index // rows
        first, top = slice // slices * d + slice % slices * stride[0], k.index % rows * stride[1]
        lines = [((first + a) * h + top + b) * w for a in range(taps[0]) for b in range(taps[1])]
        with k.each(m) as j:
            values = [k.load(x, line + j * stride[2] + tap) for line in lines for tap in range(taps[2])]
            if divisor is None:
                found = functools.reduce(lambda found, value: call("max", value, found), values)
            else:
                found = functools.reduce(operator.add, values) / divisor
            k.store(out, own + j, found)
        return k

    return write


@functools.cache
def max_of_tiles_gradient(taps: Volume) -> Callable[[str], Kernel]:
    """grad (planes, d', h', w'), x (planes, d, h, w) -> the gradient of x, of the maxima of windows that lie side by
    side and cover it: at the first maximum of each, or at its last nan.  Rows are (planes, d', h')."""

    def write(type: str) -> Kernel:
        k = Kernel("max_of_tiles_gradient", "rows")
        grad, x, out = k.array("grad", type), k.array("x", type), k.array("out", type, True)
        rows, m = k.scalar("rows", "index"), k.scalar("m", "index")
        own, w = k.index * m, m * taps[2]
        first, top = k.index // rows * taps[0], k.index % rows * taps[1]
        lines = [((first + a) * (rows * taps[1]) + top + b) * w for a in range(taps[0]) for b in range(taps[1])]
        with k.each(m) as j:
            places = [line + j * taps[2] + tap for line in lines for tap in range(taps[2])]
            largest, chosen = k.load(x, places[0]), k.constant(0, "int32")
            for number, place in enumerate(places[1:], 1):
                value = k.load(x, place)
                better = k.op("lor", value > largest, call("isnan", value))
                largest = where(better, value, largest)
                chosen = where(better, k.constant(number, "int32"), chosen)
            given, zero = k.load(grad, own + j), k.constant(0.0, type)
            for number, place in enumerate(places):
                k.store(out, place, where(chosen.equals(number), given, zero))
        return k

    return write


def taken_within(type: str) -> Kernel:
    """x (rows, n), index (rows, count) of int64 -> (rows, count), x at the index."""
    k = Kernel("taken_within", "rows")
    x, index, out = k.array("x", type), k.array("places", "int64"), k.array("out", type, True)
    n, count = k.scalar("n", "index"), k.scalar("length", "index")
    base, own, none = k.index * n, k.index * count, k.constant(0, "index")
    with k.each(count) as j:
        at = k.cast(k.load(index, own + j), "index")
        k.store(out, own + j, k.load(x, base + where(both(at >= 0, at < n), at, none)))
    return k


def added_within(type: str) -> Kernel:
    """source, index of int64 (before, count, after) -> (before, n, after), zeros with the source added at the index, in
    order.  Rows are `before`."""
    k = Kernel("added_within", "rows")
    source, index, out = k.array("source", type), k.array("places", "int64"), k.array("out", type, True)
    n, count, after = (k.scalar(name, "index") for name in ("n", "length", "after"))
    base, own = k.index * n * after, k.index * count * after
    with k.each(n * after) as j:
        k.store(out, base + j, k.constant(0.0, type))
    with k.loop(0, count) as i:
        given = own + i * after
        with k.loop(0, after) as j:
            at = k.cast(k.load(index, given + j), "index")
            with k.when(both(at >= 0, at < n)):
                place = base + at * after + j
                k.store(out, place, k.load(out, place) + k.load(source, given + j))
    return k
