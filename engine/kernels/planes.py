"""Kernels over contiguous images: padding, sums at points of a grid and their gradients."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Sequence

from engine.kernels.form import Array, Kernel, Value, both, call, where
from engine.kernels.trace import Trace, Traced, TracedModule

__all__ = [
    "folded",
    "grid_points",
    "grid_products",
    "grid_slopes",
    "grid_spread",
    "grid_sums",
    "padded",
    "padded_by_copy",
]


def padded(type: str) -> Kernel:
    """x (before, h, w) -> (before, height, width), `value` around it.  Rows are (before, height)."""
    k = Kernel("padded", "rows")
    x, out = k.array("x", type), k.array("out", type, True)
    h, w, height, width, top, left = (k.scalar(name, "index") for name in "h w height width top left".split())
    value, zero = k.scalar("value", type), k.constant(0, "index")
    line, own = k.index % height - top, k.index * width
    inside = both(line >= 0, line < h)
    before, taken = where(inside, left, width), where(inside, w, zero)
    given = where(inside, (k.index // height * h + line) * w, zero)
    with k.each(before) as j:
        k.store(out, own + j, value)
    with k.each(taken) as j:
        k.store(out, own + left + j, k.load(x, given + j))
    behind = where(inside, left + w, width)
    with k.each(width - behind) as j:
        k.store(out, own + behind + j, value)
    return k


_PADDED = ("h", "w", "height", "width", "top", "left")


def _copied(k: Kernel, place: Value, n: Value, mode: str) -> Value:
    """The place from 0 to n - 1 whose element stands at a place around them: "replicate", "reflect", "circular"."""
    zero = k.constant(0, "index")
    if mode == "replicate":
        return where(place < 0, zero, where(place < n, place, n - 1))
    if mode == "circular":
        return where(place < 0, place + n, where(place < n, place, place - n))
    place = where(place < 0, zero - place, place)
    return where(place < n, place, n * 2 - 2 - place)


@functools.cache
def padded_by_copy(mode: str) -> Callable[[str], Kernel]:
    """x (before, h, w) -> (before, height, width), elements of x around it.  Rows are (before, height)."""

    def write(type: str) -> Kernel:
        k = Kernel("padded_by_copy", "rows")
        x, out = k.array("x", type), k.array("out", type, True)
        h, w, height, width, top, left = (k.scalar(name, "index") for name in _PADDED)
        own = k.index * width
        given = (k.index // height * h + _copied(k, k.index % height - top, h, mode)) * w

        def edge(j: Value) -> None:
            k.store(out, own + j, k.load(x, given + _copied(k, j - left, w, mode)))

        with k.each(w) as j:
            k.store(out, own + left + j, k.load(x, given + j))
        with k.loop(0, left) as j:
            edge(j)
        with k.loop(left + w, width) as j:
            edge(j)
        return k

    return write


@functools.cache
def folded(mode: str) -> Callable[[str], Kernel]:
    """grad (before, height, width) -> (before, h, w), the gradient of `padded_by_copy`.  Rows are `before`."""

    def write(type: str) -> Kernel:
        k = Kernel("folded", "rows")
        grad, out = k.array("grad", type), k.array("out", type, True)
        h, w, height, width, top, left = (k.scalar(name, "index") for name in _PADDED)
        plane = k.index * h * w
        with k.each(h * w) as j:
            k.store(out, plane + j, k.constant(0.0, type))
        with k.loop(0, height) as i:
            line, given = plane + _copied(k, i - top, h, mode) * w, (k.index * height + i) * width

            def add(to: Value, j: Value, line: Value = line, given: Value = given) -> None:
                k.store(out, line + to, k.load(out, line + to) + k.load(grad, given + j))

            with k.each(w) as j:
                add(j, left + j)
            with k.loop(0, left) as j:
                add(_copied(k, j - left, w, mode), j)
            with k.loop(left + w, width) as j:
                add(_copied(k, j - left, w, mode), j)
        return k

    return write


# --- points of grids


Placed = Callable[[TracedModule, Traced, Traced], tuple[Traced, Traced]]  # a coordinate and a size -> place, slope


def _axes(k: Kernel, place: Placed, grid: Array, point: Value, sizes: Sequence[Value]) -> list[tuple[Value, Value]]:
    """For each dim of images the place of a point, and its slope by the point's coordinate."""
    trace, n = Trace(k), len(sizes)
    found = []
    for d, size in enumerate(sizes):
        given = Traced(trace, k.load(grid, point * n + (n - 1 - d)), grid.type)
        at, slope = place(TracedModule(trace), given, Traced(trace, k.cast(size, grid.type), grid.type))
        found.append((at.value, slope.value))
    return found


def _flat(k: Kernel, places: Sequence[Value], sizes: Sequence[Value]) -> Value:
    """The number of an element of an image by its places, that of all elements where one is outside."""
    flat, inside, zero = None, None, k.constant(0.0, places[0].type)
    for at, size in zip(places, sizes):
        ok = both(at >= 0, at < k.cast(size, at.type))
        step = k.cast(where(ok, at, zero), "index")
        flat, inside = (step, ok) if flat is None or inside is None else (flat * size + step, both(inside, ok))
    assert flat is not None and inside is not None
    return where(inside, flat, functools.reduce(operator.mul, sizes))


_NAMES = ("depth", "height", "width")


@functools.cache
def grid_points(place: Placed, n: int, linear: bool, weighted: bool) -> Callable[[str], Kernel]:
    """grid (N, points, n) -> the flat places (N, taps, points) of the elements of images that points read; weights.

    linear: of the 2 ** n elements around a point, else of the nearest.  Rows are N.
    """

    def write(type: str) -> Kernel:
        k = Kernel("grid_points", "rows")
        grid, index = k.array("grid", type), k.array("places", "int32", True)
        weight = k.array("weight", type, True) if weighted else None
        points, *sizes = (k.scalar(name, "index") for name in ("points", *_NAMES[-n:]))
        own = k.index * points
        with k.each(points) as p:
            found = [at for at, _ in _axes(k, place, grid, own + p, sizes)]
            if not linear:
                k.store(index, own + p, k.cast(_flat(k, [call("rint", at) for at in found], sizes), "int32"))
                return k
            first = [call("floor", at) for at in found]
            part = [at - before for at, before in zip(found, first)]
            for tap, chosen in enumerate(itertools.product((0, 1), repeat=n)):
                to = own * 2**n + points * tap + p
                at = _flat(k, [before + 1 if c else before for before, c in zip(first, chosen)], sizes)
                k.store(index, to, k.cast(at, "int32"))
                if weight is not None:
                    factors = [f if c else 1 - f for f, c in zip(part, chosen)]
                    k.store(weight, to, functools.reduce(operator.mul, factors))
        return k

    return write


@functools.cache
def grid_slopes(place: Placed, n: int) -> Callable[[str], Kernel]:
    """grid (N, points, n), sums over channels of gradient times element (N, 2 ** n, points) -> the gradient of grid.

    Rows are N.
    """

    def write(type: str) -> Kernel:
        k = Kernel("grid_slopes", "rows")
        grid, sums, out = k.array("grid", type), k.array("sums", type), k.array("out", type, True)
        points, *sizes = (k.scalar(name, "index") for name in ("points", *_NAMES[-n:]))
        own = k.index * points
        with k.each(points) as p:
            axes = _axes(k, place, grid, own + p, sizes)
            part = [at - call("floor", at) for at, _ in axes]
            taps = list(itertools.product((0, 1), repeat=n))
            given = [k.load(sums, own * 2**n + points * tap + p) for tap in range(2**n)]
            for d in range(n):
                terms = []
                for value, chosen in zip(given, taps):
                    value = value if chosen[d] else -value
                    for e in range(n):
                        if e != d:
                            value = value * (part[e] if chosen[e] else 1 - part[e])
                    terms.append(value)
                total = functools.reduce(operator.add, terms) * axes[d][1]
                k.store(out, (own + p) * n + (n - 1 - d), total)
        return k

    return write


_SIZES = ("channels", "total", "points")


@functools.cache
def grid_sums(taps: int, kind: str = "int64", weighted: bool = True) -> Callable[[str], Kernel]:
    """x (N, C, total), index and weight (N, taps, points) -> (N, C, points), the weighted sums of elements.

    An index (of the type `kind`) of `total` is an element of 0.  Rows are (N, C).
    """

    def write(type: str) -> Kernel:
        k = Kernel("grid_sums", "rows")
        x, index = k.array("x", type), k.array("places", kind)
        weight = k.array("weight", type) if weighted else None
        out = k.array("out", type, True)
        channels, total, points = (k.scalar(name, "index") for name in _SIZES)
        base, own, first = k.index * total, k.index * points, k.index // channels * taps * points
        with k.each(points) as p:

            def of(tap: int) -> Value:
                at = first + points * tap + p
                place = k.cast(k.load(index, at), "index")
                inside = place < total
                value = k.load(x, base + where(inside, place, total - 1))
                value = where(inside, value, k.constant(0.0, type))
                return value if weight is None else value * k.load(weight, at)

            found = functools.reduce(operator.add, map(of, range(taps)))
            k.store(out, own + p, found)
        return k

    return write


@functools.cache
def grid_spread(taps: int, kind: str = "int64", weighted: bool = True) -> Callable[[str], Kernel]:
    """grad (N, C, points), index and weight (N, taps, points) -> (N, C, total): the transpose of `grid_sums`."""

    def write(type: str) -> Kernel:
        k = Kernel("grid_spread", "rows")
        grad, index = k.array("grad", type), k.array("places", kind)
        weight = k.array("weight", type) if weighted else None
        out = k.array("out", type, True)
        channels, total, points = (k.scalar(name, "index") for name in _SIZES)
        base, own, first = k.index * total, k.index * points, k.index // channels * taps * points
        with k.each(total) as j:
            k.store(out, base + j, k.constant(0.0, type))
        with k.loop(0, points) as p:
            value = k.load(grad, own + p)
            for tap in range(taps):
                at = first + points * tap + p
                place = k.cast(k.load(index, at), "index")
                with k.when(place < total):
                    total_there = k.variable(k.load(out, base + place))  # set, so that no vectorizer is asked
                    k.set(total_there, total_there + (value if weight is None else value * k.load(weight, at)))
                    k.store(out, base + place, total_there)
        return k

    return write


@functools.cache
def grid_products(kind: str = "int64") -> Callable[[str], Kernel]:
    """grad (N, C, points), x (N, C, total), index (N, taps, points) -> sums over channels of products (as the index).

    Rows are (N, taps).
    """

    def write(type: str) -> Kernel:
        k = Kernel("grid_products", "rows")
        grad, x, index = k.array("grad", type), k.array("x", type), k.array("places", kind)
        out = k.array("out", type, True)
        channels, total, points, taps = (k.scalar(name, "index") for name in (*_SIZES, "taps"))
        own, image = k.index * points, k.index // taps * channels
        with k.each(points) as p:
            k.store(out, own + p, k.constant(0.0, type))
        with k.loop(0, channels) as c:
            of_grad, of_x = (image + c) * points, (image + c) * total
            with k.each(points) as p:
                place = k.cast(k.load(index, own + p), "index")
                inside = place < total
                value = where(inside, k.load(x, of_x + where(inside, place, total - 1)), k.constant(0.0, type))
                k.store(out, own + p, k.load(out, own + p) + k.load(grad, of_grad + p) * value)
        return k

    return write
