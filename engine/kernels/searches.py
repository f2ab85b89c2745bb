"""Insertion points in sorted rows, by halves: as many steps for every number, no branch that could be guessed wrong.

Each step of a vector of numbers is one gather; the row of boundaries is in the cache after the first.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from engine.kernels.form import Kernel, Value, both, where

__all__ = ["insertion_points"]


@functools.cache
def insertion_points(steps: int, right: bool, out: str, several: bool) -> Callable[[str], Kernel]:
    """boundaries (rows, n) or (n), x (rows, m) -> (rows, m): how many of the boundaries belong before each number.

    That are those below it, right: also those equal to it; nan belongs behind all numbers.  steps: the bits of n.
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

        with k.each(m) as j:
            number, found = k.load(x, own + j), k.constant(0, "index")
            for step in [1 << bit for bit in reversed(range(steps))]:
                after = found + step
                inside = after <= n
                at = where(inside, after, 1) - 1
                boundary = k.load(boundaries, k.index * n + at if several else at)
                found = where(both(inside, precedes(boundary, number)), after, found)
            k.store(made, own + j, k.cast(found, out))
        return k

    return write
