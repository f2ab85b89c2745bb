"""Attention of many heads in one pass: the scores of a few queries are in the first-level cache from the product that
makes them until the product that reads them, as in FlashAttention (arXiv:2205.14135), whose tiles of keys are not
needed here, since a row of scores is short.
"""

from __future__ import annotations

import math

from engine.kernels.form import Array, Value, call, where
from engine.kernels.jobs import Jobs, least
from engine.kernels.llvm_jobs import in_llvm

__all__ = ["PARAMETERS", "heads", "scratch"]

# query (heads, queries, width), key (heads, keys, width), value (heads, keys, columns), out (heads, queries, columns),
# mask (heads, queries, keys), whose rows are contiguous.  scratch: `size` for each job; step: units of a job; batch:
# heads of an image; parts: units of a head; then elements between images, heads and rows of each array.
PARAMETERS = (
    *("query", "key", "value", "out", "mask", "scratch"),
    *("scale", "masked", "queries", "keys", "batch", "parts", "step", "size"),
    *(f"{array}_{dim}" for array in ("query", "key", "value", "out", "mask") for dim in ("image", "head", "row")),
)
_ROWS = (6, 4, 2, 1)


def scratch(lanes: int, vectors: int, width: int, keys: int) -> int:
    """Return how many numbers a job needs beside its operands: keys by columns, the scores of the queries that go
    together, and a factor for each of these."""
    panel = lanes * vectors
    return -(-keys // panel) * panel * (width + _ROWS[0]) + _ROWS[0]


@in_llvm
def heads(lanes: int, vectors: int, width: int, columns: int) -> Jobs:
    """Of the units begin..end: out = softmax(query @ key.T * scale + mask) @ value; rows of which all is hidden are 0.

    A unit is a part of a head's queries.  vectors: of keys that go together; width and columns: multiples of `lanes`.
    """
    k = Jobs("heads", lanes, PARAMETERS, 6, {"scale": "float32"})
    query, key, value, out, mask, held = k.arrays
    a = k.numbers
    queries, keys, panel = a["queries"], a["keys"], lanes * vectors
    pitch = (keys + (panel - 1)) // panel * panel  # of a row of scores
    full = keys - keys % lanes

    def own(name: str, array: Array, image: Value, head: Value) -> Array:
        return k.view(array, image * a[f"{name}_image"] + head * a[f"{name}_head"])

    def packed(source: Array, target: Array) -> None:
        """Keys (keys, width) times the scale, as panels (pitch / panel, width, panel); the last key stands for those
        that there are not."""
        with k.loop(0, pitch, lanes) as first:
            place = k.view(target, first // panel * (panel * width) + first % panel)
            rows = [k.view(source, least(first + i, keys - 1) * a["key_row"]) for i in range(lanes)]
            for at in range(0, width, lanes):
                lines = [k.vector(row, at) * k.spread(a["scale"]) for row in rows]
                for i, line in enumerate(k.transposed(lines)):
                    k.store(place, (at + i) * panel, line)

    def weighted(row: Array, hidden: Array) -> Value:
        """In place: exp(scores + mask - max), zeros behind the last key; 1 / their sum."""
        with k.when(a["masked"].differs(0)):
            with k.loop(0, full, lanes) as j:
                k.store(row, j, k.vector(row, j) + k.vector(hidden, j))
            with k.loop(full, keys) as j:
                k.store(row, j, k.load(row, j) + k.load(hidden, j))
        with k.loop(keys, pitch) as j:
            k.store(row, j, k.constant(-math.inf, "float32"))
        (most, total) = k.variables([k.number(-math.inf), k.number(0.0)])
        with k.loop(0, pitch, lanes) as j:
            score = k.vector(row, j)
            k.set(most, where(score > most, score, most))
        largest = k.largest(most)
        largest = k.spread(where(largest.equals(-math.inf), 0.0, largest))
        with k.loop(0, pitch, lanes) as j:
            weight = call("exp", k.vector(row, j) - largest)
            k.store(row, j, weight)
            k.set(total, total + weight)
        sum_ = k.total(total)
        return k.constant(1.0, "float32") / where(sum_.equals(0.0), 1.0, sum_)

    with k.loop(k.begin, k.end) as unit:
        number = unit // a["parts"]
        image, head = number // a["batch"], number % a["batch"]
        q, y, hidden = (
            own(name, array, image, head) for name, array in (("query", query), ("out", out), ("mask", mask))
        )
        values = own("value", value, image, head)
        by_columns = k.view(held, unit // a["step"] * a["size"])
        scores = k.view(by_columns, pitch * width)
        factors = k.view(scores, pitch * _ROWS[0])
        packed(own("key", key, image, head), by_columns)
        each = (queries + (a["parts"] - 1)) // a["parts"]
        before = least(unit % a["parts"] * each, queries)
        for count, at in k.cut(least(before + each, queries) - before, _ROWS):
            first = before + at
            given = [k.view(q, (first + i) * a["query_row"]) for i in range(count)]
            rows = [k.view(scores, pitch * i) for i in range(count)]
            with k.loop(0, pitch, panel) as j:
                sums = k.variables([k.number(0.0)] * (count * vectors))
                k.add_products(sums, given, width, 1, k.view(by_columns, j * width), panel)
                k.store_all(k.vectors([k.view(row, j) for row in rows], vectors), sums)
            with k.loop(0, count) as i:
                hides = k.view(hidden, (first + i) * a["mask_row"])
                k.store(factors, i, weighted(k.view(scores, pitch * i), hides))
            by_row = [k.spread(k.load(factors, i)) for i in range(count)]
            results = [k.view(y, (first + i) * a["out_row"]) for i in range(count)]
            for column in range(0, columns // lanes, vectors):
                together = min(vectors, columns // lanes - column)
                sums = k.variables([k.number(0.0)] * (count * together))
                k.add_products(sums, rows, keys, 1, k.view(values, column * lanes), a["value_row"])
                places = k.vectors([k.view(result, column * lanes) for result in results], together)
                k.store_all(places, [total * by_row[n // together] for n, total in enumerate(sums)])
    return k
