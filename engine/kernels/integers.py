"""Sums of integers and truth values in int64, in any order, since none is rounded; of rows: `scans.sums_of_runs`."""

from __future__ import annotations

import functools
from collections.abc import Callable

from engine.kernels.form import Kernel
from engine.kernels.scans import band

__all__ = ["running_sums", "sums_of_columns"]

_SUM = "int64"


def sums_of_columns(type: str) -> Kernel:
    """x (rows, n, after) -> (rows, after), in `scans.bands(after)` for each row."""
    k = Kernel("integer_sums_of_columns", "rows")
    x, out = k.array("x", type), k.array("out", _SUM, True)
    n, after = k.scalar("n", "index"), k.scalar("after", "index")
    base, own, wide = band(k, n, after)
    with k.each(wide) as j:
        k.store(out, own + j, k.constant(0, _SUM))
    with k.loop(0, n) as i:
        line = base + i * after
        with k.each(wide) as j:
            k.store(out, own + j, k.load(out, own + j) + k.cast(k.load(x, line + j), _SUM))
    return k


@functools.cache
def running_sums(alone: bool) -> Callable[[str], Kernel]:
    """x (rows, n, after) -> its running sums along the middle dim, in `scans.bands(after)` for each row; alone: `after`
    is 1, and rows are (rows)."""

    def write(type: str) -> Kernel:
        k = Kernel("integer_running_sums", "rows")
        x, out = k.array("x", type), k.array("out", _SUM, True)
        n = k.scalar("n", "index")
        if alone:
            base, total = k.index * n, k.variable(k.constant(0, _SUM))
            with k.loop(0, n) as i:
                now = total + k.cast(k.load(x, base + i), _SUM)
                k.set(total, now)
                k.store(out, base + i, now)
            return k
        after = k.scalar("after", "index")
        base, _, wide = band(k, n, after)
        with k.each(wide) as j:
            k.store(out, base + j, k.cast(k.load(x, base + j), _SUM))
        with k.loop(1, n) as i:
            line = base + i * after
            with k.each(wide) as j:
                k.store(out, line + j, k.load(out, line - after + j) + k.cast(k.load(x, line + j), _SUM))
        return k

    return write
