"""Kernels along one dim of contiguous arrays (before, length, after): resampling, windows, reversal, added rows.

Where the dim is the last one, a line is a row and its results are the places; else each place of the dim is a row, and
the elements after it are the places.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from math import inf

from engine.kernels.form import Array, Kernel, Value, both, call, where
from engine.kernels.places import part

__all__ = [
    "WRITTEN",
    "added_along",
    "added_rows",
    "max_of_windows",
    "max_of_windows_gradient",
    "mean_of_lines",
    "mean_of_lines_gradient",
    "mean_of_parts",
    "mean_of_parts_gradient",
    "mean_of_windows",
    "mean_of_windows_gradient",
    "normalized_by_rms",
    "resampled",
    "resampled_rows",
    "reversed_lines",
    "reversed_rows",
    "reversed_short_lines",
    "sums_of_tiles",
    "taken_along",
    "triangle",
]


def _by_weight(value: Value, weight: Value) -> Value:
    """value * weight; 0 for a weight of 0, which is that of no element, also where the value is not finite."""
    return where(weight.equals(0), value.kernel.constant(0.0, value.type), value * weight)


def _weighted(
    k: Kernel, taps: int, load: Callable[[Value], Value], index: Array, weight: Array | None, at: Value
) -> Value:
    """The sum over taps of weight[at, tap] * load(index[at, tap]); where the weight is 0, of nothing."""

    def of(tap: int) -> Value:
        place = at * taps + tap
        value = load(k.cast(k.load(index, place), "index"))
        return value if weight is None else _by_weight(value, k.load(weight, place))

    return functools.reduce(operator.add, map(of, range(taps)))


@functools.cache
def resampled(taps: int, weighted: bool) -> Callable[[str], Kernel]:
    """x (rows, n), index (m, taps), weight (m, taps) -> (rows, m), the weighted sum of `taps` elements each."""

    def write(type: str) -> Kernel:
        k = Kernel("resampled", "rows")
        x, index = k.array("x", type), k.array("places", "int32")
        weight = k.array("weight", type) if weighted else None
        out = k.array("out", type, True)
        n, m = k.scalar("n", "index"), k.scalar("m", "index")
        base, own = k.index * n, k.index * m
        with k.each(m) as j:
            k.store(out, own + j, _weighted(k, taps, lambda place: k.load(x, base + place), index, weight, j))
        return k

    return write


@functools.cache
def resampled_rows(taps: int, weighted: bool) -> Callable[[str], Kernel]:
    """x (before, n, after), index (m, taps), weight (m, taps) -> (before, m, after).  Rows are (before, m)."""

    def write(type: str) -> Kernel:
        k = Kernel("resampled_rows", "rows")
        x, index = k.array("x", type), k.array("places", "int32")
        weight = k.array("weight", type) if weighted else None
        out = k.array("out", type, True)
        n, m, after = (k.scalar(name, "index") for name in ("n", "m", "after"))
        line, own = k.index // m * n, k.index * after
        at = k.index % m
        lines = [(line + k.cast(k.load(index, at * taps + tap), "index")) * after for tap in range(taps)]
        weights = [k.load(weight, at * taps + tap) for tap in range(taps)] if weight is not None else None
        with k.each(after) as j:

            def of(tap: int) -> Value:
                value = k.load(x, lines[tap] + j)
                return value if weights is None else _by_weight(value, weights[tap])

            total = functools.reduce(operator.add, map(of, range(taps)))
            k.store(out, own + j, total)
        return k

    return write


def _above(k: Kernel, value: Value, largest: Value) -> Value:
    """Return where a value replaces the largest so far, as in PyTorch: it is above it, or nan."""
    return k.op("lor", value > largest, call("isnan", value))


WRITTEN = 16  # places of a window whose maximum is taken, each written out
_WINDOWS = ("h", "w", "rows", "m", "above", "left")
Pair = tuple[int, int]


def _within(place: Value, n: Value, zero: Value) -> Value:
    """The place from 0 to n - 1 that is nearest."""
    return where(place < 0, zero, where(place < n, place, n - 1))


@functools.cache
def max_of_windows(taps: Pair, stride: Pair) -> Callable[[str], Kernel]:
    """x (planes, h, w) -> (planes, h', w'), the maxima of windows.  Rows are (planes, h').

    A window that overhangs an edge of the image has that edge in it, so that a place beyond is read as the edge's.
    """

    def write(type: str) -> Kernel:
        k = Kernel("max_of_windows", "rows")
        x, out = k.array("x", type), k.array("out", type, True)
        h, w, rows, m, above, left = (k.scalar(name, "index") for name in _WINDOWS)
        inside, behind = k.scalar("inside", "index"), k.scalar("behind", "index")  # windows of a row within the image
        own, zero = k.index * m, k.constant(0, "index")
        top, plane = k.index % rows * stride[0] - above, k.index // rows * h
        lines = [(plane + _within(top + tap, h, zero)) * w for tap in range(taps[0])]

        def largest(places: Sequence[Value]) -> Value:
            values = [k.load(x, line + place) for line in lines for place in places]
            return functools.reduce(lambda found, value: call("max", value, found), values)  # of nan, nan

        def overhanging(j: Value) -> None:
            start = j * stride[1] - left
            k.store(out, own + j, largest([_within(start + tap, w, zero) for tap in range(taps[1])]))

        with k.loop(zero, inside) as j:
            overhanging(j)
        with k.each(behind - inside) as j:
            start = (inside + j) * stride[1] - left
            k.store(out, own + inside + j, largest([start + tap for tap in range(taps[1])]))
        with k.loop(behind, m) as j:
            overhanging(j)
        return k

    return write


@functools.cache
def max_of_windows_gradient(taps: Pair, stride: Pair) -> Callable[[str], Kernel]:
    """grad (planes, h', w'), x (planes, h, w) -> the gradient of x, added at the first maximum of each window or its
    last nan.  Rows are planes.  The places of a window are written out, many of them looped over."""
    written = taps[0] * taps[1] <= WRITTEN

    def write(type: str) -> Kernel:
        k = Kernel("max_of_windows_gradient", "rows")
        grad, x, out = k.array("grad", type), k.array("x", type), k.array("out", type, True)
        h, w, rows, m, above, left = (k.scalar(name, "index") for name in _WINDOWS)
        base, own, zero = k.index * h * w, k.index * rows * m, k.constant(0, "index")
        with k.each(h * w) as j:
            k.store(out, base + j, k.constant(0.0, type))
        with k.loop(zero, rows) as i:
            top, given = i * stride[0] - above, own + i * m
            lines = [base + _within(top + tap, h, zero) * w for tap in range(taps[0] if written else 0)]
            with k.loop(zero, m) as j:
                start = j * stride[1] - left
                largest = k.variable(k.constant(-inf, type))
                chosen = k.variable(base + _within(top, h, zero) * w + _within(start, w, zero))

                def look(place: Value) -> None:
                    value = k.load(x, place)
                    better = _above(k, value, largest)
                    k.set(largest, where(better, value, largest))
                    k.set(chosen, where(better, place, chosen))

                if written:
                    places = [_within(start + tap, w, zero) for tap in range(taps[1])]
                    for place in [line + place for line in lines for place in places]:
                        look(place)
                else:
                    begin, end = _within(start, w, zero), _within(start + taps[1], w + 1, zero)
                    first, last = _within(top, h, zero), _within(top + taps[0], h + 1, zero)
                    with k.loop(first, last) as row, k.loop(begin, end) as column:
                        look(base + row * w + column)
                k.store(out, chosen, k.load(out, chosen) + k.load(grad, given + j))
        return k

    return write


def reversed_lines(type: str) -> Kernel:
    """x (rows, n) -> each row backwards."""
    k = Kernel("reversed_lines", "rows")
    x, out, n = k.array("x", type), k.array("out", type, True), k.scalar("n", "index")
    base = k.index * n
    with k.each(n) as j:
        k.store(out, base + j, k.load(x, base + (n - 1) - j))
    return k


@functools.cache
def reversed_short_lines(width: int) -> Callable[[str], Kernel]:
    """x (rows, several, width) -> each line backwards, written out."""

    def write(type: str) -> Kernel:
        k = Kernel("reversed_lines", "rows")
        x, out, several = k.array("x", type), k.array("out", type, True), k.scalar("several", "index")
        with k.loop(0, several) as at:
            line = (k.index * several + at) * width
            values = [k.load(x, line + place) for place in range(width)]
            for place, value in enumerate(reversed(values)):
                k.store(out, line + place, value)
        return k

    return write


def reversed_rows(type: str) -> Kernel:
    """x (before, n, after) -> the middle dim backwards.  Rows are (before, n)."""
    k = Kernel("reversed_rows", "rows")
    x, out = k.array("x", type), k.array("out", type, True)
    n, after = k.scalar("n", "index"), k.scalar("after", "index")
    line = (k.index // n * n + (n - 1) - k.index % n) * after
    with k.each(after) as j:
        k.store(out, k.index * after + j, k.load(x, line + j))
    return k


@functools.cache
def mean_of_windows(taps: Pair, stride: Pair) -> Callable[[str], Kernel]:
    """x (planes, h, w) -> (planes, h', w'), the sums of windows / divisor; none overhangs.  Rows are (planes, h')."""

    def write(type: str) -> Kernel:
        k = Kernel("mean_of_windows", "rows")
        x, out = k.array("x", type), k.array("out", type, True)
        h, w, rows, m = (k.scalar(name, "index") for name in ("h", "w", "rows", "m"))
        divisor = k.scalar("divisor", type)
        own = k.index * m
        base = (k.index // rows * h + k.index % rows * stride[0]) * w
        with k.each(m) as j:
            at = base + j * stride[1]
            terms = [k.load(x, at + (line * w + tap)) for line in range(taps[0]) for tap in range(taps[1])]
            k.store(out, own + j, functools.reduce(operator.add, terms) / divisor)
        return k

    return write


@functools.cache
def sums_of_tiles(taps: Pair) -> Callable[[str], Kernel]:
    """x (rows, taps[0], m, taps[1]) -> (rows, m), the sums of tiles side by side."""

    def write(type: str) -> Kernel:
        k = Kernel("sums_of_tiles", "rows")
        x, out, m = k.array("x", type), k.array("out", type, True), k.scalar("m", "index")
        height, width = taps
        with k.loop(0, m) as at:
            terms = [
                k.load(x, ((k.index * height + line) * m + at) * width + tap)
                for line in range(height)
                for tap in range(width)
            ]
            k.store(out, k.index * m + at, functools.reduce(operator.add, terms))
        return k

    return write


@functools.cache
def mean_of_windows_gradient(taps: int) -> Callable[[str], Kernel]:
    """grad (planes, d', h', w') -> (planes, d, h, w), grad / divisor at each place of its window; windows lie side by
    side, of (deep, down, across) places.

    Places of no window get 0.  Rows are (planes, d, h).  taps: `across` if those are written out, else 0.
    """

    def write(type: str) -> Kernel:
        k = Kernel("mean_of_windows_gradient", "rows")
        grad, out = k.array("grad", type), k.array("out", type, True)
        names = ("d", "h", "w", "slices", "rows", "m", "deep", "down", "across")
        d, h, w, slices, rows, m, deep, down, across = (k.scalar(f"n_{name}", "index") for name in names)
        divisor = k.scalar("divisor", type)
        line, slice, plane = k.index % h // down, k.index // h % d // deep, k.index // h // d
        inside, own, none = both(line < rows, slice < slices), k.index * w, k.constant(0, "index")
        base = where(inside, (plane * slices + slice) * rows + line, none) * m
        zero = k.constant(0.0, type)

        def value(i: Value) -> Value:
            return where(inside, k.load(grad, base + i) / divisor, zero)

        if taps:
            with k.each(m) as i:
                found = value(i)
                for tap in range(taps):
                    k.store(out, own + (i * taps + tap), found)
        else:
            with k.loop(0, m) as i:
                found, start = value(i), own + i * across
                with k.each(across) as j:
                    k.store(out, start + j, found)
        first = m * across
        with k.each(w - first) as j:
            k.store(out, own + first + j, zero)
        return k

    return write


_PARTS = ("h", "w", "high", "wide", "rows", "m")


def mean_of_parts(type: str) -> Kernel:
    """x (planes, h, w) -> (planes, rows, m), the means of parts that cover the first (high, wide) places.

    sums (planes, rows, w) is scratch.  Rows are (planes, rows).
    """
    k = Kernel("mean_of_parts", "rows")
    x, sums, out = k.array("x", type), k.array("sums", type, True), k.array("out", type, True)
    h, w, high, wide, rows, m = (k.scalar(name, "index") for name in _PARTS)
    top, bottom = part(k.index % rows, high, rows)
    line, own = (k.index // rows * h + top) * w, k.index * w
    with k.each(wide) as j:
        k.store(sums, own + j, k.load(x, line + j))
    with k.loop(1, bottom - top) as i, k.each(wide) as j:
        k.store(sums, own + j, k.load(sums, own + j) + k.load(x, line + i * w + j))
    with k.loop(0, m) as i:
        start, stop = part(i, wide, m)
        total = k.variable(k.constant(0.0, "float64"))
        with k.loop(start, stop) as j:
            k.set(total, total + k.cast(k.load(sums, own + j), "float64"))
        places = k.cast((bottom - top) * (stop - start), "float64")
        k.store(out, k.index * m + i, k.cast(total / places, type))
    return k


def mean_of_parts_gradient(type: str) -> Kernel:
    """grad (planes, rows, m) -> (planes, h, w): at each place the sum of those of its parts / their places.

    Rows are (planes, h).
    """
    k = Kernel("mean_of_parts_gradient", "rows")
    grad, out = k.array("grad", type), k.array("out", type, True)
    h, w, rows, m = (k.scalar(name, "index") for name in ("h", "w", "rows", "m"))
    own, plane, line = k.index * w, k.index // h * rows, k.index % h
    first, last = part(line, rows, h)
    with k.each(w) as j:
        k.store(out, own + j, k.constant(0.0, type))
    with k.loop(0, m) as i:
        start, stop = part(i, w, m)
        total = k.variable(k.constant(0.0, type))
        with k.loop(first, last) as at:
            top, bottom = part(at, h, rows)
            places = k.cast((bottom - top) * (stop - start), type)
            k.set(total, total + k.load(grad, (plane + at) * m + i) / places)
        with k.each(stop - start) as j:
            k.store(out, own + start + j, k.load(out, own + start + j) + total)
    return k


@functools.cache
def mean_of_lines(taps: int) -> Callable[[str], Kernel]:
    """x (planes, n, after) -> (planes, n - taps + 1, after), sums of neighbouring lines / divisor.  Rows are lines."""

    def write(type: str) -> Kernel:
        k = Kernel("mean_of_lines", "rows")
        x, out = k.array("x", type), k.array("out", type, True)
        n, m, after, divisor = *(k.scalar(name, "index") for name in ("n", "m", "after")), k.scalar("divisor", type)
        base, own = (k.index // m * n + k.index % m) * after, k.index * after
        with k.each(after) as j:
            terms = [k.load(x, base + tap * after + j) for tap in range(taps)]
            k.store(out, own + j, functools.reduce(operator.add, terms) / divisor)
        return k

    return write


@functools.cache
def mean_of_lines_gradient(taps: int) -> Callable[[str], Kernel]:
    """grad (planes, m, after) -> (planes, n, after), the sum over `mean_of_lines`'s windows that a line is in."""

    def write(type: str) -> Kernel:
        k = Kernel("mean_of_lines_gradient", "rows")
        grad, out = k.array("grad", type), k.array("out", type, True)
        n, m, after, divisor = *(k.scalar(name, "index") for name in ("n", "m", "after")), k.scalar("divisor", type)
        line, own, none = k.index % n, k.index * after, k.constant(0, "index")
        zero = k.constant(0.0, type)
        places = []
        for tap in range(taps):
            at = line - tap
            inside = both(at >= 0, at < m)
            places.append((inside, (k.index // n * m + where(inside, at, none)) * after))
        with k.each(after) as j:
            terms = [where(inside, k.load(grad, place + j), zero) for inside, place in places]
            k.store(out, own + j, functools.reduce(operator.add, terms) / divisor)
        return k

    return write


@functools.cache
def normalized_by_rms(weighted: bool) -> Callable[[str], Kernel]:
    """x (rows, n) (, weight (n)) -> x / sqrt(mean(x ** 2) + eps) (* weight)."""

    def write(type: str) -> Kernel:
        k = Kernel("normalized_by_rms", "rows")
        x = k.array("x", type)
        weight = k.array("weight", type) if weighted else None
        out = k.array("out", type, True)
        n, eps = k.scalar("n", "index"), k.scalar("eps", type)
        base = k.index * n

        def square(j: Value) -> Value:
            value = k.load(x, base + j)
            return value * value

        rstd = call("rsqrt", k.reduce("sum", n, square) / k.cast(n, type) + eps)
        with k.each(n) as j:
            value = k.load(x, base + j) * rstd
            k.store(out, base + j, value if weight is None else value * k.load(weight, j))
        return k

    return write


@functools.cache
def added_rows(copied: bool) -> Callable[[str], Kernel]:
    """index (count), source (before, count, after) (, x (before, n, after)) -> x and the rows of `source`, in order.

    The index is of int64, from 0 to n - 1.  Where x is not given (copied), the result has something to add to already.
    Rows are `before`.
    """

    def write(type: str) -> Kernel:
        k = Kernel("added_rows", "rows")
        source, index = k.array("source", type), k.array("places", "int64")
        x = k.array("x", type) if copied else None
        out = k.array("out", type, True)
        n, length, after = (k.scalar(name, "index") for name in ("n", "length", "after"))
        base, own = k.index * n * after, k.index * length
        if x is not None:
            with k.each(n * after) as j:
                k.store(out, base + j, k.load(x, base + j))
        with k.loop(0, length) as i:
            line, given = base + k.cast(k.load(index, i), "index") * after, (own + i) * after
            with k.each(after) as j:
                k.store(out, line + j, k.load(out, line + j) + k.load(source, given + j))
        return k

    return write


@functools.cache
def taken_along(alone: bool) -> Callable[[str], Kernel]:
    """x (before, n, after), index (before, count, after) -> (before, count, after), x at the index along its dim.

    The index is of int64, from 0 to n - 1.  alone: `after` is 1, and rows are `before`; else they are (before, count).
    """

    def write(type: str) -> Kernel:
        k = Kernel("taken_along", "rows")
        x, index, out = k.array("x", type), k.array("places", "int64"), k.array("out", type, True)
        n, count = k.scalar("n", "index"), k.scalar("length", "index")
        if alone:
            base, own = k.index * n, k.index * count
            with k.each(count) as j:
                k.store(out, own + j, k.load(x, base + k.cast(k.load(index, own + j), "index")))
            return k
        after = k.scalar("after", "index")
        base, own = k.index // count * n * after, k.index * after
        with k.each(after) as j:
            k.store(out, own + j, k.load(x, base + k.cast(k.load(index, own + j), "index") * after + j))
        return k

    return write


@functools.cache
def added_along(copied: bool) -> Callable[[str], Kernel]:
    """source, index (before, count, after) (, x (before, n, after)) -> x with the source added at the index, in order.

    The index is of int64, from 0 to n - 1.  Where x is not given (copied), it is zeros.  Rows are `before`.
    """

    def write(type: str) -> Kernel:
        k = Kernel("added_along", "rows")
        source, index = k.array("source", type), k.array("places", "int64")
        x = k.array("x", type) if copied else None
        out = k.array("out", type, True)
        n, count, after = (k.scalar(name, "index") for name in ("n", "length", "after"))
        base, own = k.index * n * after, k.index * count * after
        with k.each(n * after) as j:
            k.store(out, base + j, k.constant(0.0, type) if x is None else k.load(x, base + j))
        with k.loop(0, count) as i:
            given = own + i * after
            with k.loop(0, after) as j:
                at = base + k.cast(k.load(index, given + j), "index") * after + j
                k.store(out, at, k.load(out, at) + k.load(source, given + j))
        return k

    return write


@functools.cache
def triangle(lower: bool) -> Callable[[str], Kernel]:
    """x (*, n, m) -> its triangle up to the diagonal (or from it on), zeros for the rest.  Rows are (*, n)."""

    def write(type: str) -> Kernel:
        k = Kernel("triangle", "rows")
        x, out = k.array("x", type), k.array("out", type, True)
        n, m, diagonal = k.scalar("n", "index"), k.scalar("m", "index"), k.scalar("diagonal", "index")
        base, last = k.index * m, k.index % n + diagonal
        zero = k.constant(0, type)
        with k.each(m) as j:
            k.store(out, base + j, where(j <= last if lower else j >= last, k.load(x, base + j), zero))
        return k

    return write
