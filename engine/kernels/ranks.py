"""The element at a place of an order, found without moving any: bit by bit, by how many are below.

Each of 32 steps counts a row of keys that is in the first-level cache, a vector at a time: on EPYC Zen 4 2.7 us for
1,000 elements and one thread.  numpy's partition by AVX-512 takes 5 there: it stores compressed vectors.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from engine.kernels.form import Value, both, where
from engine.kernels.jobs import Jobs, least

__all__ = ["TOGETHER", "at_place"]

TOGETHER = 4  # vectors whose counts do not wait for each other
_PARAMETERS = ("x", "keys", "values", "places", "n", "pitch", "place", "nan", "half", "steps")
_MOST, _INFINITY = (1 << 31) - 1, 0x7F800000


@functools.cache
def at_place(lanes: int, floating: bool) -> Callable[[str], Jobs]:
    """x (rows, n), n at least `lanes` -> values (rows), places (rows): of the stable order, counted from 0.

    All but places are int32, floating: the bits of float32, whose nan come last; keys (rows, pitch) is scratch, pitch
    a multiple of TOGETHER * lanes.  nan: a row that has one gives the first.  half: the largest power of 2 up to n;
    steps: from it down to 1.
    """

    def write(_: str) -> Jobs:
        k = Jobs("at_place", lanes, _PARAMETERS, 4, dict(x="int32", keys="int32", values="int32", places="int64"))
        (x, keys, values, places), a = k.arrays, k.numbers
        n, pitch = a["n"], a["pitch"]
        one, none = k.number(1.0), k.number(0.0)

        def whole(value: int) -> Value:
            return k.number(value, "int32")

        def key(bits: Value) -> Value:
            """Sign and size as a number: both zeros are 0."""
            if not floating:
                return bits
            size = k.op("and", bits, whole(_MOST))
            found = where(bits < whole(0), whole(0) - size, size)
            return where(size > whole(_INFINITY), whole(_MOST), found)

        def below(limit: Value) -> Callable[[Value, Value], Value]:
            return lambda one_key, _: one_key < limit

        def count(holds: Callable[[Value, Value], Value]) -> Value:
            """How many keys of a row hold(key, place)."""
            sums = k.variables([none] * TOGETHER)
            with k.loop(0, pitch, lanes * TOGETHER) as j:
                for i, total in enumerate(sums):
                    at = j + i * lanes
                    k.set(total, total + where(holds(k.vector(own, at), at), one, none))
            return k.cast(k.total(sums[0] + sums[1] + (sums[2] + sums[3])), "index")

        with k.loop(k.begin, k.end) as row:
            given, own = k.view(x, row * n), k.view(keys, row * pitch)
            with k.loop(0, n, lanes) as j:
                at = least(j, n - lanes)
                k.store(own, at, key(k.vector(given, at)))
            with k.loop(n, pitch) as j:
                k.store(own, j, k.constant(_MOST, "int32"))
            place = a["place"]
            if floating:
                numbers = count(below(whole(_MOST)))
                place = where(both(a["nan"].differs(0), numbers < n), numbers, place)
            value, step = k.variables([k.constant(-1 << 31, "index"), k.constant(1 << 31, "index")])
            with k.loop(0, 32):
                fewer = count(below(k.spread(k.cast(value + step, "int32"))))
                k.set(value, where(fewer <= place, value + step, value))
                k.set(step, step // 2)
            same = k.spread(k.cast(value, "int32"))
            rank = place - count(below(same))
            numbered = k.vector_of([float(i) for i in range(lanes)])
            found, step = k.variables([k.constant(0, "index"), a["half"]])
            with k.loop(0, a["steps"]):
                limit = k.spread(k.cast(found + step, "float32"))

                def before(key_: Value, at: Value, limit: Value = limit) -> Value:
                    here = numbered + k.spread(k.cast(at, "float32"))
                    return both(key_.equals(same), here < limit)

                k.set(found, where(count(before) <= rank, found + step, found))
                k.set(step, step // 2)
            k.store(values, row, k.load(given, found))
            k.store(places, row, k.cast(found, "int64"))
        return k

    return write
