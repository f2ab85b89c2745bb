"""Insertion points in sorted rows, by halves: as many steps for every number, no branch that could be guessed wrong.

The row of boundaries is in the cache after the first numbers; on EPYC Zen 4 a step takes 1 ns of a thread.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from engine.kernels.form import Kernel, Value, where

__all__ = ["insertion_points"]


@functools.cache
def insertion_points(steps: int, right: bool, out: str, several: bool) -> Callable[[str], Kernel]:
    """boundaries (rows, n) or (n), x (rows, m) -> (rows, m): how many of the boundaries belong before each number.

    That are those below it, right: also those equal to it; nan belongs behind all numbers.  steps: the bits of n - 1.
    several: each row has boundaries of its own.  The result is of type `out`.
    """

    def write(type: str) -> Kernel:
        k = Kernel("insertion_points", "rows")
        boundaries, x, made = k.array("boundaries", type), k.array("x", type), k.array("made", out, True)
        n, m = k.scalar("n", "index"), k.scalar("m", "index")
        own = k.index * m

        def precedes(boundary: Value, number: Value) -> Value:
            """Whether a boundary belongs before a number: no comparison with nan holds."""
            if right:
                return where(number.equals(number), boundary <= number, number.differs(number))
            return where(number.equals(number), boundary < number, boundary.equals(boundary))

        first, left, halves = k.index * n if several else k.constant(0, "index"), n, []
        for _ in range(steps):
            halves.append(left // 2)
            left = left - halves[-1]
        with k.each(m) as j:
            number, found = k.load(x, own + j), first
            for half in halves:
                found = where(precedes(k.load(boundaries, found + half - 1), number), found + half, found)
            found = where(precedes(k.load(boundaries, found), number), found + 1, found)
            k.store(made, own + j, k.cast(found - first, out))
        return k

    return write
