"""The kernel of histograms: places of elements in equal intervals by lanes, then counts one after the other."""

from __future__ import annotations

from engine.kernels.form import Kernel, both, where

__all__ = ["PART", "SIDES", "counted"]

PART = 1 << 12  # elements whose places are found at once: they stay in the first cache
SIDES = 4  # counts of neighbours, so that none waits for the one before where both fall into one interval


def counted(type: str) -> Kernel:
    """x (n) -> how many lie in each of `bins` intervals of [low, high] (parts, SIDES, bins + 1), int32, those outside
    last; places (parts, PART) is scratch.  Rows are parts."""
    k = Kernel("counted", "rows")
    x, places, counts = k.array("x", type), k.array("places", "int32", True), k.array("counts", "int32", True)
    n, bins = k.scalar("n", "index"), k.scalar("bins", "index")
    low, high = k.scalar("low", "float64"), k.scalar("high", "float64")
    base, wide = k.index * PART, bins + 1
    left, own = n - base, k.index * SIDES * wide
    count = where(left < PART, left, PART)
    last, outside, factor = k.cast(bins - 1, "int32"), k.cast(bins, "int32"), k.cast(bins, "float64")
    zero, one = k.constant(0.0, "float64"), k.constant(1, "int32")
    with k.each(count) as j:
        value = k.cast(k.load(x, base + j), "float64")
        inside = both(value >= low, value <= high)
        place = k.cast(where(inside, (value - low) / (high - low) * factor, zero), "int32")
        k.store(places, base + j, where(inside, where(place < last, place, last), outside))
    with k.each(wide * SIDES) as j:
        k.store(counts, own + j, k.constant(0, "int32"))
    runs = count // SIDES
    with k.loop(0, runs) as run:
        for side in range(SIDES):
            at = own + side * wide + k.cast(k.load(places, base + run * SIDES + side), "index")
            k.store(counts, at, k.load(counts, at) + one)
    with k.loop(runs * SIDES, count) as j:
        at = own + k.cast(k.load(places, base + j), "index")
        k.store(counts, at, k.load(counts, at) + one)
    return k
