"""One token of a decoder-only transformer between its products: norms, attention to cached keys, activations.

All arrays are float32.  A job of the attention is one head of keys and values with the `group` heads of queries that
share it: `scores`, `exponentials` of its rows, then `mixed`.
"""

from __future__ import annotations

import math

from engine.kernels.form import Array, Kernel, Value, call
from engine.kernels.jobs import Jobs
from engine.kernels.llvm_jobs import in_llvm

__all__ = ["MIXED", "SCORES", "activation", "exponentials", "mixed", "norm", "scores"]

SCORES = (
    *("query", "key", "value", "keys", "values", "cosines", "sines", "query_norm", "key_norm", "scores"),
    *("position", "capacity"),
)
MIXED = ("scores", "sums", "values", "out", "position", "capacity")
_TOGETHER = 8  # vectors of a head that are summed at once


@in_llvm
def norm(centred: bool, biased: bool, eps: float) -> Kernel:
    """out (width) = x / sqrt(mean(x^2) + eps) * weight [+ bias]; centred: of x - mean(x).  One row."""
    k = Kernel("norm", "rows")
    x, weight, bias, out = (k.array(name, "float32", name == "out") for name in ("x", "weight", "bias", "out"))
    width = k.scalar("width", "index")
    size = k.cast(width, "float32")
    mean = k.reduce("sum", width, lambda j: k.load(x, j)) / size if centred else k.constant(0.0, "float32")

    def square(j: Value) -> Value:
        value = k.load(x, j) - mean
        return value * value

    factor = call("rsqrt", k.reduce("sum", width, square) / size + eps)
    with k.each(width) as j:
        value = (k.load(x, j) - mean) * factor * k.load(weight, j)
        k.store(out, j, value + k.load(bias, j) if biased else value)
    return k


@in_llvm
def activation(gated: bool) -> Kernel:
    """In place: up = silu(gate) * up; without a gate up = gelu(up), by tanh."""
    k = Kernel("activation", "map")
    gate, up = k.array("gate", "float32"), k.array("up", "float32", True)
    x = k.load(up, k.index)
    if gated:
        g = k.load(gate, k.index)
        k.store(up, k.index, g / (call("exp", -g) + 1.0) * x)
    else:
        inner = (x * x * x * 0.044715 + x) * math.sqrt(2 / math.pi)
        k.store(up, k.index, (call("tanh", inner) + 1.0) * x * 0.5)
    return k


@in_llvm
def exponentials() -> Kernel:
    """Of the rows begin..end of scores (rows, pitch), the first `width`: exp(x - max), in place, and sums of them."""
    k = Kernel("exponentials", "rows")
    scores, sums = k.array("scores", "float32", True), k.array("sums", "float32", True)
    pitch, width = k.scalar("pitch", "index"), k.scalar("width", "index")
    base = k.index * pitch
    largest = k.reduce("max", width, lambda j: k.load(scores, base + j))
    with k.each(width) as j:
        k.store(scores, base + j, call("exp", k.load(scores, base + j) - largest))
    total = k.reduce("sum", width, lambda j: k.load(scores, base + j))
    with k.once():
        k.store(sums, k.index, total)
    return k


@in_llvm
def scores(lanes: int, size: int, group: int, half: int, adjacent: bool, eps: float | None) -> Jobs:
    """Of the heads of keys begin..end: store key and value at `position` of the cache, and the scores of the queries.

    query (heads, size), key, value (key heads, size) -> keys, values (key heads, capacity, size), scores (heads,
    capacity).  size: a multiple of `lanes`.  half: pairs of each head that cosines and sines (capacity, half) turn;
    adjacent: neighbours, else `half` apart.  eps: of the norms of queries and keys, if they have any.
    """
    k = Jobs("scores", lanes, SCORES, 10)
    query, key, value, keys, values, cosines, sines, query_norm, key_norm, out = k.arrays
    position, capacity = k.numbers.values()
    places = range(0, size, lanes)

    def prepare(source: Array, target: Array, weight: Array) -> None:
        """Normalize and rotate a head."""
        loaded = [k.vector(source, j) for j in places]
        if eps is not None:
            (total,) = k.variables([k.number(0.0)])
            for one in loaded:
                k.set(total, call("fma", one, one, total))
            factor = k.spread(call("rsqrt", k.total(total) / float(size) + eps))
            loaded = [one * factor * k.vector(weight, j) for one, j in zip(loaded, places)]
        for one, j in zip(loaded, places):
            k.store(target, j, one)
        if half:
            cosine, sine = (k.view(one, position * half) for one in (cosines, sines))
            with k.loop(0, half) as i:
                first, second = (i * 2, i * 2 + 1) if adjacent else (i, i + half)
                a, b, c, s = k.load(target, first), k.load(target, second), k.load(cosine, i), k.load(sine, i)
                k.store(target, first, a * c - b * s)
                k.store(target, second, b * c + a * s)

    with k.loop(k.begin, k.end) as head:
        cached = head * capacity * size
        lines, now = k.view(keys, cached), cached + position * size
        prepare(k.view(key, head * size), k.view(keys, now), key_norm)
        for j in places:
            k.store(values, now + j, k.vector(value, head * size + j))
        with k.loop(head * group, head * group + group) as q:
            own, row = k.view(query, q * size), k.view(out, q * capacity)
            prepare(own, own, query_norm)
            factors = [k.vector(own, j) for j in places]
            with k.loop(0, position + 1) as at:
                line = k.view(lines, at * size)
                sums = k.variables([k.number(0.0)] * min(2, len(factors)))
                for n, (factor, j) in enumerate(zip(factors, places)):
                    total = sums[n % len(sums)]
                    k.set(total, call("fma", factor, k.vector(line, j), total))
                k.store(row, at, k.total(sums[0] + sums[-1] if len(sums) > 1 else sums[0]) * size**-0.5)
    return k


@in_llvm
def mixed(lanes: int, size: int, group: int) -> Jobs:
    """Of the heads of values begin..end: out (heads, size) = scores (heads, capacity) @ values / sums (heads)."""
    k = Jobs("mixed", lanes, MIXED, 4)
    scores, sums, values, out = k.arrays
    position, capacity = k.numbers.values()
    places = range(0, size, lanes)
    with k.loop(k.begin, k.end) as head, k.loop(head * group, head * group + group) as q:
        lines, row, target = k.view(values, head * capacity * size), k.view(scores, q * capacity), k.view(out, q * size)
        factor = k.spread(k.constant(1.0, "float32") / k.load(sums, q))
        for first in range(0, len(places), _TOGETHER):
            own = places[first : first + _TOGETHER]
            found = k.variables([k.number(0.0)] * len(own))
            with k.loop(0, position + 1) as at:
                weight, line = k.spread(k.load(row, at)), k.view(lines, at * size)
                for total, j in zip(found, own):
                    k.set(total, call("fma", weight, k.vector(line, j), total))
            for total, j in zip(found, own):
                k.store(target, j, total * factor)
    return k
