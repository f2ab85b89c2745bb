"""Kernels of bags: sums and means of rows of a table by index, and the gradient of the table.

Bags are the rows of an index (bags, length), or begin at `starts` in an index of `length` places; the last one ends
with the index.  Where there is one start more than bags, the last bag ends there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from engine.kernels.form import Array, Kernel, Value, both, where

__all__ = ["RUN", "misplaced", "pooled", "pooled_gradient"]


@functools.cache
def misplaced(index: str, parted: bool) -> Callable[[str], Kernel]:
    """index (length) (, starts (parts)) -> whether one is not from 0 to n - 1 (, or starts do not ascend from 0 to at
    most `length`).  One row."""

    def write(type: str) -> Kernel:
        k = Kernel("misplaced", "rows")
        places = k.array("places", index)
        starts = k.array("starts", index) if parted else None
        out = k.array("out", "int32", True)
        n, length, parts = (k.scalar(name, "index") for name in ("n", "length", "parts"))

        def outside(j: Value) -> Value:
            at = k.cast(k.load(places, j), "index")
            return k.cast(k.op("lor", at < 0, at >= n), "int32")

        found = k.reduce("max", length, outside)
        if starts is not None:

            def descends(j: Value) -> Value:
                start = k.cast(k.load(starts, j), "index")
                last = k.cast(k.load(starts, where(j < 1, j, j - 1)), "index")
                wrong = k.op("lor", start < last, k.op("lor", start < 0, start > length))
                return k.cast(k.op("lor", wrong, both(j < 1, start.differs(0))), "int32")

            other = k.reduce("max", parts, descends)
            found = where(found < other, other, found)
        with k.once():
            k.store(out, 0, found)
        return k

    return write


def _span(k: Kernel, starts: Array | None, bag: Value, length: Value, parts: Value) -> tuple[Value, Value]:
    """Where a bag begins, and the place after its last one; within the index, whatever the starts."""
    if starts is None:
        return bag * length, (bag + 1) * length
    zero = k.constant(0, "index")

    def within(place: Value) -> Value:
        return where(place < 0, zero, where(place < length, place, length))

    after = bag + 1
    end = within(k.cast(k.load(starts, where(after < parts, after, bag)), "index"))
    return within(k.cast(k.load(starts, bag), "index")), where(after < parts, end, length)


def _parameters(
    k: Kernel, source: str, type: str, index: str, parted: bool, weighted: bool
) -> tuple[Array, Array, Array | None, Array | None, Array]:
    read, places = k.array(source, type), k.array("places", index)
    starts = k.array("starts", index) if parted else None
    share = k.array("share", type) if weighted else None
    return read, places, starts, share, k.array("out", type, True)


_SIZES = ("n", "width", "length", "parts", "padding")


RUN = 4  # rows that are read at once


def _used(k: Kernel, places: Array, begin: Value, end: Value, padding: Value | None) -> Value:
    """The number of indices of a bag that are not padding; 1 for none."""
    if padding is None:
        return where(begin < end, end - begin, k.constant(1, "index"))
    used = k.variable(k.constant(0, "index"))
    with k.loop(begin, end) as i:
        k.set(used, where(k.cast(k.load(places, i), "index").equals(padding), used, used + 1))
    return where(used < 1, used + 1, used)


@functools.cache
def pooled(index: str, parted: bool, weighted: bool, mean: bool, padded: bool) -> Callable[[str], Kernel]:
    """weight (n, width), index (, starts) (, share of each index) -> (bags, width), sums or means of rows.

    padded: an index that is `padding` is in no bag.  Rows are bags.
    """

    def write(type: str) -> Kernel:
        k = Kernel("pooled", "rows")
        weight, places, starts, share, out = _parameters(k, "weight", type, index, parted, weighted)
        n, width, length, parts, padding = (k.scalar(name, "index") for name in _SIZES)
        own, none, zero = k.index * width, k.constant(0, "index"), k.constant(0.0, type)
        begin, end = _span(k, starts, k.index, length, parts)
        count = end - begin

        def row(i: Value) -> Callable[[Value], Value]:
            at = k.cast(k.load(places, i), "index")
            good = both(at >= 0, at < n)  # others are `misplaced`
            used = both(good, at.differs(padding)) if padded else None
            line, factor = where(good, at, none) * width, None if share is None else k.load(share, i)

            def value(j: Value) -> Value:
                found = k.load(weight, line + j)
                found = found if factor is None else found * factor
                return found if used is None else where(used, found, zero)

            return value

        def add(rows: list[Callable[[Value], Value]]) -> None:
            with k.each(width) as j:
                found = k.load(out, own + j)
                for value in rows:
                    found = found + value(j)
                k.store(out, own + j, found)

        with k.each(width) as j:
            k.store(out, own + j, zero)
        with k.when(begin < end):
            runs = count // RUN
            with k.loop(0, runs) as run:
                add([row(begin + (run * RUN + tap)) for tap in range(RUN)])
            with k.loop(begin + runs * RUN, end) as i:
                add([row(i)])
        if mean:
            divisor = k.cast(_used(k, places, begin, end, padding if padded else None), type)
            with k.each(width) as j:
                k.store(out, own + j, k.load(out, own + j) / divisor)
        return k

    return write


@functools.cache
def pooled_gradient(
    index: str, parted: bool, weighted: bool, mean: bool, padded: bool, shares: int = 1
) -> Callable[[str], Kernel]:
    """grad (bags, width), index (, starts) (, share of each index) -> (n, width): at each row the sum of its bags'.

    Rows are `shares`, each of which makes so many neighbouring rows of the result, of all the bags.
    """

    def write(type: str) -> Kernel:
        k = Kernel("pooled_gradient", "rows")
        grad, places, starts, share, out = _parameters(k, "grad", type, index, parted, weighted)
        n, width, length, parts, padding = (k.scalar(name, "index") for name in _SIZES)
        bags, none = k.scalar("bags", "index"), k.constant(0, "index")
        most = (n + (shares - 1)) // shares
        low = k.index * most
        high = where(low + most < n, low + most, n)
        with k.each(where(low < high, high - low, none) * width) as j:
            k.store(out, low * width + j, k.constant(0.0, type))
        with k.loop(0, bags) as bag:
            begin, end = _span(k, starts, bag, length, parts)
            given, scale = bag * width, None
            if mean:
                scale = 1 / k.cast(_used(k, places, begin, end, padding if padded else None), type)
            with k.loop(begin, end) as i:
                at = k.cast(k.load(places, i), "index")
                good = both(at >= low, at < high)
                with k.when(both(good, at.differs(padding)) if padded else good):
                    line, factor = at * width, scale if share is None else k.load(share, i)
                    with k.each(width) as j:
                        slope = k.load(grad, given + j)
                        term = slope if factor is None else slope * factor
                        k.store(out, line + j, k.load(out, line + j) + term)
        return k

    return write
