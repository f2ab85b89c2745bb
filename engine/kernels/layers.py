"""Layers in the source form that are no rows of `rows.py`: running sums, gated linear units, folding, attention.

All arrays are contiguous.  Each function gives the kernel for a type.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from engine.kernels.form import Kernel, Value, call, where

__all__ = [
    "attention",
    "attention_backward",
    "column_products",
    "folded",
    "glu",
    "glu_backward",
    "product",
    "running_sums",
]


def product(type: str) -> Kernel:
    """x (rows, depth) @ y (depth, columns) -> (rows, columns); steps of x and y in elements.  Rows are those of x."""
    k = Kernel("product", "rows")
    x, y, out = k.array("x", type), k.array("y", type), k.array("out", type, True)
    depth, columns, row, step, line, column = (
        k.scalar(name, "index") for name in ("depth", "columns", "row", "step", "line", "column")
    )
    own, zero = k.index * columns, k.constant(0, "index")
    with k.each(columns) as j:
        k.store(out, own + j, k.constant(0.0, type))
    with k.loop(zero, depth) as n:
        factor, of_line = k.load(x, k.index * row + n * step), n * line
        with k.each(columns) as j:
            k.store(out, own + j, k.load(out, own + j) + factor * k.load(y, of_line + j * column))
    return k


def windows_added(type: str) -> Kernel:
    """frames (lead, many, size) -> (lead, n): windows of `size`, `step` apart, added up where they lie, zeros between.

    Rows are pieces of `step` elements of the result, `pieces` of them a line.
    """
    k = Kernel("windows_added", "rows")
    frames, out = k.array("frames", type), k.array("out", type, True)
    many, size, step, n, pieces = (k.scalar(name, "index") for name in ("many", "size", "step", "n", "pieces"))
    lead, piece = k.index // pieces, k.index % pieces
    start = piece * step
    own, left = lead * n + start, k.op("min", step, n - start)
    with k.each(left) as j:
        k.store(out, own + j, k.constant(0.0, type))
    first, last = k.op("max", piece - (many - 1), 0), k.op("min", piece + 1, (size + step - 1) // step)
    with k.loop(first, last) as part:
        at = (lead * many + piece - part) * size + part * step
        with k.each(k.op("min", left, size - part * step)) as j:
            k.store(out, own + j, k.load(out, own + j) + k.load(frames, at + j))
    return k


def running_sums(type: str) -> Kernel:
    """x -> its running sums along the middle of (rows / inner, length, inner), added up in float64 in their order."""
    k = Kernel("running_sums", "rows")
    x, out = k.array("x", type), k.array("out", type, True)
    length, inner = k.scalar("length", "index"), k.scalar("inner", "index")
    base = k.index // inner * length * inner + k.index % inner
    total = k.variable(k.constant(0.0, "float64"))
    with k.loop(k.constant(0, "index"), length) as j:
        at = base + j * inner
        now = total + k.cast(k.load(x, at), "float64")
        k.set(total, now)
        k.store(out, at, k.cast(now, type))
    return k


_RUN = 128  # rows that are added one after the other


@functools.cache
def column_products(centred: bool) -> Callable[[str], Kernel]:
    """grad, x (n, width) (, mean (n)), rstd (n) -> the sums over n of grad * (x - mean) * rstd (width) (, of grad).

    Rows are blocks of `block` columns, over which runs of 128 rows are added up in the scratch of each result, then
    the sums of runs.
    """

    def write(type: str) -> Kernel:
        k = Kernel("column_products", "rows")
        grad, x = k.array("grad", type), k.array("x", type)
        mean, rstd = k.array("mean", type) if centred else None, k.array("rstd", type)
        names = ["products", "sums"][: 1 + centred]
        results = [(k.array(name, type, True), k.array(f"{name}_of_run", type, True)) for name in names]
        n, width, block = (k.scalar(name, "index") for name in ("n", "width", "block"))
        start = k.index * block
        left, zero = width - start, k.constant(0.0, type)
        count = where(left < block, left, block)
        with k.each(count) as j:
            for total, _ in results:
                k.store(total, start + j, zero)
        with k.loop(0, (n + _RUN - 1) // _RUN) as run:
            first, beyond = run * _RUN, run * _RUN + _RUN
            with k.each(count) as j:
                for _, part in results:
                    k.store(part, start + j, zero)
            with k.loop(first, where(beyond < n, beyond, n)) as i:
                line, scale = i * width + start, k.load(rstd, i)
                level = None if mean is None else k.load(mean, i)
                with k.each(count) as j:
                    g, value = k.load(grad, line + j), k.load(x, line + j)
                    hat = (value if level is None else value - level) * scale
                    for (_, part), term in zip(results, (g * hat, g)):
                        k.store(part, start + j, k.load(part, start + j) + term)
            with k.each(count) as j:
                for total, part in results:
                    k.store(total, start + j, k.load(total, start + j) + k.load(part, start + j))
        return k

    return write


def _gate(x: Value) -> Value:
    return 1 / (call("exp", -x) + 1)


def glu(type: str) -> Kernel:
    """x (rows, 2, half) -> x[:, 0] * sigmoid(x[:, 1])."""
    k = Kernel("glu", "rows")
    x, out, half = k.array("x", type), k.array("out", type, True), k.scalar("half", "index")
    base = k.index * half
    with k.each(half) as j:
        k.store(out, base + j, k.load(x, base * 2 + j) / (call("exp", -k.load(x, base * 2 + half + j)) + 1))
    return k


def glu_backward(type: str) -> Kernel:
    """grad (rows, half), x (rows, 2, half) -> the gradient of x."""
    k = Kernel("glu_backward", "rows")
    grad, x, out = k.array("grad", type), k.array("x", type), k.array("out", type, True)
    half = k.scalar("half", "index")
    base = k.index * half
    with k.each(half) as j:
        first, second = base * 2 + j, base * 2 + half + j
        gate = _gate(k.load(x, second))
        made = k.load(grad, base + j) * gate
        k.store(out, first, made)
        k.store(out, second, made * (1 - gate) * k.load(x, first))
    return k


def folded(type: str) -> Kernel:
    """Columns (rows, taps down, taps across, blocks down, blocks across) added up in images (rows, height, width)."""
    k = Kernel("folded", "rows")
    x, out = k.array("x", type), k.array("out", type, True)
    names = "height width down across high wide dilation_down dilation_across above left step_down step_across"
    height, width, down, across, high, wide, dilation_down, dilation_across, above, left, step_down, step_across = (
        k.scalar(name, "index") for name in names.split()
    )
    zero, image = k.constant(0, "index"), k.index * height * width
    with k.each(height * width) as j:
        k.store(out, image + j, k.constant(0, type))

    def reach(
        tap: Value, dilation: Value, before: Value, step: Value, blocks: Value, size: Value
    ) -> tuple[Value, Value]:
        """The first block whose tap is in the image, and the one after the last."""
        lack = before - tap * dilation
        last = size - 1 + lack
        most = where(last < 0, zero, last // step + 1)
        return where(lack > 0, (lack + step - 1) // step, zero), where(most < blocks, most, blocks)

    with k.loop(zero, down) as i:
        top, bottom = reach(i, dilation_down, above, step_down, high, height)
        with k.loop(zero, across) as j:
            start, stop = reach(j, dilation_across, left, step_across, wide, width)
            taps = ((k.index * down + i) * across + j) * high * wide
            with k.loop(top, bottom) as b:
                line = image + (b * step_down - above + i * dilation_down) * width - left + j * dilation_across
                blocks = taps + b * wide
                with k.loop(start, stop) as c:
                    at = line + c * step_across
                    k.store(out, at, k.load(out, at) + k.load(x, blocks + c))
    return k


def attention(type: str) -> Kernel:
    """query (N, L, E), key (N, S, E), value (N, S, V) -> softmax(query @ key.T * scale) @ value (N, L, V), the softmax
    (N, L, S).  Rows are those of the query.
    """
    k = Kernel("attention", "rows")
    query, key, value = (k.array(name, type) for name in ("query", "key", "value"))
    out, weights = k.array("out", type, True), k.array("weights", type, True)
    rows, places, width, depth = (k.scalar(name, "index") for name in ("rows", "places", "width", "depth"))
    scale, zero = k.scalar("scale", type), k.constant(0, "index")
    batch, of_query, of_weights, of_out = k.index // rows, k.index * width, k.index * places, k.index * depth
    of_key, of_value = batch * places * width, batch * places * depth
    with k.each(places) as j:
        k.store(weights, of_weights + j, k.constant(0, type))
    with k.loop(zero, width) as e:
        factor = k.load(query, of_query + e) * scale
        with k.each(places) as j:
            more = factor * k.load(key, of_key + j * width + e)
            k.store(weights, of_weights + j, k.load(weights, of_weights + j) + more)
    top = k.reduce("max", places, lambda j: k.load(weights, of_weights + j))
    with k.each(places) as j:
        k.store(weights, of_weights + j, call("exp", k.load(weights, of_weights + j) - top))
    total = k.reduce("sum", places, lambda j: k.load(weights, of_weights + j))
    with k.each(depth) as d:
        k.store(out, of_out + d, k.constant(0, type))
    with k.loop(zero, places) as j:
        weight = k.load(weights, of_weights + j) / total
        k.store(weights, of_weights + j, weight)
        with k.each(depth) as d:
            k.store(out, of_out + d, k.load(out, of_out + d) + weight * k.load(value, of_value + j * depth + d))
    return k


def attention_backward(type: str) -> Kernel:
    """grad (N, L, V), query (N, L, E), key (N, S, E), value (N, S, V), weights (N, L, S) -> the gradients of query, key
    and value; scores (N, S) is scratch.  Rows are the N.
    """
    k = Kernel("attention_backward", "rows")
    grad, query, key, value, weights = (k.array(name, type) for name in ("grad", "query", "key", "value", "weights"))
    names = ("of_query", "of_key", "of_value", "scores")
    of_query, of_key, of_value, scores = (k.array(name, type, True) for name in names)
    rows, places, width, depth = (k.scalar(name, "index") for name in ("rows", "places", "width", "depth"))
    scale, zero = k.scalar("scale", type), k.constant(0, "index")
    keys, values, own = k.index * places * width, k.index * places * depth, k.index * places
    for array, start, count in (
        (of_query, k.index * rows * width, rows * width),
        (of_key, keys, places * width),
        (of_value, values, places * depth),
    ):
        with k.each(count) as i:
            k.store(array, start + i, k.constant(0, type))
    with k.loop(zero, rows) as r:
        row = k.index * rows + r
        with k.each(places) as j:
            k.store(scores, own + j, k.constant(0, type))
        with k.loop(zero, depth) as d:
            g = k.load(grad, row * depth + d)
            with k.each(places) as j:
                more = g * k.load(value, values + j * depth + d)
                k.store(scores, own + j, k.load(scores, own + j) + more)
        along = k.variable(k.constant(0.0, type))
        with k.loop(zero, places) as j:
            k.set(along, along + k.load(scores, own + j) * k.load(weights, row * places + j))
        with k.loop(zero, places) as j:
            weight = k.load(weights, row * places + j)
            score = (k.load(scores, own + j) - along) * weight * scale
            with k.each(depth) as d:
                at = values + j * depth + d
                k.store(of_value, at, k.load(of_value, at) + weight * k.load(grad, row * depth + d))
            with k.each(width) as e:
                at, of = keys + j * width + e, row * width + e
                k.store(of_key, at, k.load(of_key, at) + score * k.load(query, of))
                k.store(of_query, of, k.load(of_query, of) + score * k.load(key, at))
    return k
