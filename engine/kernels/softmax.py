"""Softmax of rows that are some vectors long, its logarithm, and the logarithm of the sum of exp.

Each row is three short chains: its maximum, the sum of its exponentials, and what is made of those.  As many rows as a
vector has lanes take each step before the next one begins, so that a processor, which looks some hundred instructions
ahead, always has one of another row to do; and a logarithm is taken of all of them at once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from engine.kernels.form import Array, Value, call, where
from engine.kernels.jobs import Jobs, least

__all__ = ["LONGEST", "soft_rows"]

LONGEST = 1024  # places of a row up to which a block of rows stays in the first cache
_PARAMETERS = ("x", "out", "tops", "sums", "n", "rows")


@functools.cache
def soft_rows(lanes: int, kind: str) -> Callable[[str], Jobs]:
    """x (rows, n), n at least `lanes` -> out.  A job is `lanes` rows; float32.

    kind: "softmax" or "log_softmax", out (rows, n), or "logsumexp", out (rows).  tops, sums: scratch (jobs * lanes).
    """

    def write(_: str) -> Jobs:
        k = Jobs(kind, lanes, _PARAMETERS, 4)
        (x, out, tops, sums), a = k.arrays, k.numbers
        n, rows = a["n"], a["rows"]
        whole, last = n - n % lanes, n - lanes
        # the vector that ends with the row has lanes of the one before: only those after it count in sums
        fresh = k.vector_of([float(i) for i in range(lanes)]) >= k.spread(k.cast(whole - last, "float32"))

        def line(array: Array, row: Value) -> Array:
            return k.view(array, row * n)

        def finish(row: Value, made: Array) -> None:
            """The last step of a row of softmax, in place, or of its logarithm.  Its two terms are subtracted one after
            the other: their sum would be rounded where the row is far from 0."""
            by, source = k.spread(k.load(sums, row)), made if kind == "softmax" else line(x, row)
            top = by if kind == "softmax" else k.spread(k.load(tops, row))

            def of(value: Value) -> Value:
                return value * by if kind == "softmax" else value - top - by

            rest = of(k.vector(source, last))
            with k.loop(0, whole, lanes) as j:
                k.store(made, j, of(k.vector(source, j)))
            k.store(made, last, rest)

        with k.loop(k.begin, k.end) as block:
            first = block * lanes
            end = least(first + lanes, rows)
            with k.loop(first, end) as row:
                given = line(x, row)
                top = k.variable(k.vector(given, last))
                with k.loop(0, whole, lanes) as j:
                    found = k.vector(given, j)
                    k.set(top, where(top > found, top, found))
                level = k.largest(top)
                if kind == "logsumexp":  # of infinities alone it is one
                    level = where(call("isinf", level), k.constant(0.0, "float32"), level)
                k.store(tops, row, level)
            with k.loop(first, end) as row:
                given, made, level = line(x, row), line(out, row), k.spread(k.load(tops, row))
                rest = call("exp", k.vector(given, last) - level)
                total = k.variable(where(fresh, rest, k.number(0.0)))
                with k.loop(0, whole, lanes) as j:
                    found = call("exp", k.vector(given, j) - level)
                    k.set(total, total + found)
                    if kind == "softmax":
                        k.store(made, j, found)
                if kind == "softmax":
                    k.store(made, last, rest)
                k.store(sums, row, k.total(total))
            total = k.vector(sums, first)
            k.store(sums, first, 1 / total if kind == "softmax" else call("log", total))
            with k.loop(first, end) as row:
                if kind == "logsumexp":
                    k.store(out, row, k.load(sums, row) + k.load(tops, row))
                else:
                    finish(row, line(out, row))
        return k

    return write
