"""Maximum pooling and its gradient: of channels-last images, whose channels are a multiple of `lanes`, and of images in
torch's order by windows that are two wide and lie side by side."""

from __future__ import annotations

import functools
from collections.abc import Callable
from math import inf

from engine.kernels.form import Value, call, where
from engine.kernels.jobs import Jobs, least, most
from engine.kernels.llvm_jobs import in_llvm

__all__ = [
    "POOL",
    "POOL_GRADIENT",
    "TILES",
    "max_of_pairs",
    "max_of_pairs_gradient",
    "max_pool",
    "max_pool_gradient",
    "tile_gradient",
    "tile_max",
]

_WINDOWS = (
    "height",
    "width",
    "channels",
    "rows",
    "columns",
    "tall",
    "wide",
    "step_down",
    "step_across",
    "above",
    "left",
    "dilation_down",
    "dilation_across",
)
POOL = ("image", "result", *_WINDOWS)
POOL_GRADIENT = ("image", "slope", "result", *_WINDOWS, "covered")
TILES = ("image", "slope", "result", "chosen", "sums", "height", "width", "channels", "rows", "columns")


class _Window:
    """The places of an image (N, height, width, channels) that a place of the result (N, rows, columns) is made of."""

    def __init__(self, k: Jobs, n: Value, row: Value, column: Value) -> None:
        a = k.numbers
        top, self.lines = self._range(k, row, "down", "above", "tall", "height")
        side, self.count = self._range(k, column, "across", "left", "wide", "width")
        self.k, self.start = k, ((n * a["height"] + top) * a["width"] + side) * a["channels"]
        self.down = a["dilation_down"] * a["width"] * a["channels"]
        self.across = a["dilation_across"] * a["channels"]

    @staticmethod
    def _range(k: Jobs, at: Value, way: str, padding: str, size: str, end: str) -> tuple[Value, Value]:
        """(the first place in the image, how many are in it)."""
        a = k.numbers
        start, dilation = at * a[f"step_{way}"] - a[padding], a[f"dilation_{way}"]
        first = (dilation - 1 - least(start, 0)) // dilation
        beyond = most(a[end] - 1 - start + dilation, 0) // dilation
        return start + first * dilation, least(a[size], beyond) - first

    def each(self, body: Callable[[Value, Value], None]) -> None:
        """`body(place, number)` of each of them in turn: the offset of its first channel; `number` counts them."""
        with self.k.loop(0, self.lines) as i:
            start, before = self.start + i * self.down, i * self.count
            with self.k.loop(0, self.count) as j:
                body(start + j * self.across, before + j)


def _above(value: Value, largest: Value) -> Value:
    """Return where a value replaces the largest so far, as in PyTorch: it is above it, or nan."""
    return value.kernel.op("lor", value > largest, call("isnan", value))


@in_llvm
def max_pool(lanes: int) -> Jobs:
    """The rows begin..end, of all images' results."""
    k = Jobs("max_pool", lanes, POOL, 2)
    (image, result), a = k.arrays, k.numbers

    def vector(window: _Window, own: Value, c: Value) -> None:
        """The maxima of a window, of the channels from c on; `own`: the place of theirs."""
        largest = k.variable(k.number(-inf))

        def look(place: Value, _: Value) -> None:
            value = k.vector(k.view(image, place), c)
            k.set(largest, where(_above(value, largest), value, largest))

        window.each(look)
        k.store(result, own + c, largest)

    with k.loop(k.begin, k.end) as line:
        n, row = line // a["rows"], line % a["rows"]
        with k.loop(0, a["columns"]) as column:
            window, own = _Window(k, n, row, column), (line * a["columns"] + column) * a["channels"]
            with k.loop(0, a["channels"], lanes) as c:
                vector(window, own, c)
    return k


@in_llvm
def max_pool_gradient(lanes: int) -> Jobs:
    """The gradients of the images begin..end.  covered: each place is in one window, so it is written to once."""
    k = Jobs("max_pool_gradient", lanes, POOL_GRADIENT, 3)
    (image, slope, result), a = k.arrays, k.numbers
    once = a["covered"].differs(0)
    again = k.op("not", once)
    size = a["height"] * a["width"] * a["channels"]

    def vector(window: _Window, gradients: Value, c: Value) -> None:
        """The gradients of a window's places, of the channels from c on; `gradients`: the place of theirs."""
        largest, chosen = k.variable(k.number(-inf)), k.variable(k.number(0, "int32"))

        def look(place: Value, number: Value) -> None:
            value = k.vector(k.view(image, place), c)
            better = _above(value, largest)
            k.set(largest, where(better, value, largest))
            k.set(chosen, where(better, k.spread(k.cast(number, "int32")), chosen))

        window.each(look)
        gradient = k.vector(slope, gradients + c)

        def give(place: Value, number: Value) -> None:
            target = k.view(result, place)
            here = chosen.equals(k.spread(k.cast(number, "int32")))
            part = k.variable(where(here, gradient, k.number(0.0)))
            with k.when(again):
                k.set(part, part + k.vector(target, c))
            k.store(target, c, part)

        window.each(give)

    with k.loop(k.begin, k.end) as n:
        with k.when(again):
            own = k.view(result, n * size)
            with k.loop(0, size) as i:
                k.store(own, i, k.constant(0.0, "float32"))
        with k.loop(0, a["rows"]) as row, k.loop(0, a["columns"]) as column:
            window = _Window(k, n, row, column)
            gradients = ((n * a["rows"] + row) * a["columns"] + column) * a["channels"]
            with k.loop(0, a["channels"], lanes) as c:
                vector(window, gradients, c)
    return k


def _tiles(
    k: Jobs, rows: tuple[Value, Value], tall: int, wide: int, body: Callable[[list[Value], Value, Value, Value], None]
) -> None:
    """`body(places, own, row, c)` of each vector of channels of each window in the rows of all images' results, where
    windows are side by side: the offsets of its places in the image, that of the result's, and the channel."""
    a = k.numbers
    with k.loop(*rows) as row, k.loop(0, a["columns"]) as column:
        top = row // a["rows"] * a["height"] + row % a["rows"] * tall
        corners = [(top + i) * a["width"] + column * wide for i in range(tall)]
        places = [(corner + j) * a["channels"] for corner in corners for j in range(wide)]
        own = (row * a["columns"] + column) * a["channels"]
        with k.loop(0, a["channels"], k.lanes) as c:
            body([place + c for place in places], own + c, row, c)


_CODES = {"chosen": "int8"}


@in_llvm
def tile_max(lanes: int, tall: int, wide: int, rectified: bool, indexed: bool) -> Jobs:
    """The rows begin..end, of all images' results, of windows side by side.

    rectified: at least 0.  indexed: the number of each maximum's place in its window goes to `chosen`, int8; -1 where
    none is above 0.
    """
    k = Jobs("tile_max", lanes, TILES, 5, _CODES)
    image, _, result, codes, _ = k.arrays

    def body(places: list[Value], own: Value, row: Value, c: Value) -> None:
        largest, chosen = k.number(0.0 if rectified else -inf), k.number(-1, "int8")
        for n, place in enumerate(places):
            value = k.vector(image, place)
            better = _above(value, largest)
            largest = where(better, value, largest)
            if indexed:
                chosen = where(better, k.number(n, "int8"), chosen)
        k.store(result, own, largest)
        if indexed:
            k.store(codes, own, chosen)

    _tiles(k, (k.begin, k.end), tall, wide, body)
    return k


@in_llvm
def tile_gradient(lanes: int, tall: int, wide: int, summed: bool) -> Jobs:
    """The gradients of the images begin..end, all of whose places are in one window, from `chosen` of `tile_max`.

    summed: what passes is added to sums (N, channels), too.
    """
    k = Jobs("tile_gradient", lanes, TILES, 5, _CODES)
    _, slope, result, codes, sums = k.arrays
    rows, nothing = k.numbers["rows"], k.number(0.0)

    def body(places: list[Value], own: Value, row: Value, c: Value) -> None:
        gradient, chosen = k.vector(slope, own), k.vector(codes, own)
        for n, place in enumerate(places):
            k.store(result, place, where(chosen.equals(n), gradient, nothing))
        if summed:
            at = row // rows * k.numbers["channels"] + c
            k.store(sums, at, k.vector(sums, at) + where(chosen >= 0, gradient, nothing))

    _tiles(k, (k.begin * rows, k.end * rows), tall, wide, body)
    return k


# --- images in torch's order


def _pairs(k: Jobs, tall: int, body: Callable[[list[Value], list[Value], Value], None]) -> None:
    """`body(places, values, own)` of each vector of windows of the rows begin..end, which are tall x 2: where the pairs
    of each of their lines are, their elements in torch's order, and the place of the results.  The last vector of a row
    overlaps the one before."""
    x, m = k.arrays[0], k.numbers["m"]
    with k.loop(k.begin, k.end) as row, k.loop(0, m, k.lanes) as j:
        at = least(j, m - k.lanes)
        places = [((row * tall + t) * m + at) * 2 for t in range(tall)]
        values = [value for place in places for value in k.pairs(x, [place])]
        body(places, values, row * m + at)


@functools.cache
def max_of_pairs(tall: int, lanes: int) -> Callable[[str], Jobs]:
    """x (rows, tall, m, 2) -> (rows, m), the maxima of tall x 2 elements, m at least `lanes`."""

    def write(type: str) -> Jobs:
        k = Jobs("max_of_pairs", lanes, ("x", "out", "m"), 2, {"x": type, "out": type})

        def body(_: list[Value], values: list[Value], own: Value) -> None:
            largest = values[0]
            for value in values[1:]:
                largest = where(_above(value, largest), value, largest)
            k.store(k.arrays[1], own, largest)

        _pairs(k, tall, body)
        return k

    return write


@functools.cache
def max_of_pairs_gradient(tall: int, lanes: int) -> Callable[[str], Jobs]:
    """x (rows, tall, m, 2), grad (rows, m) -> the gradient of x, at the first maximum of each or at its last nan."""

    def write(type: str) -> Jobs:
        names = "x", "grad", "out", "m"
        k = Jobs("max_of_pairs_gradient", lanes, names, 3, dict.fromkeys(names[:3], type))
        _, grad, out = k.arrays

        def body(places: list[Value], values: list[Value], own: Value) -> None:
            largest, chosen, given = values[0], k.number(0, "int32"), k.vector(grad, own)
            for number, value in enumerate(values[1:], 1):
                better = _above(value, largest)
                largest = where(better, value, largest)
                chosen = where(better, k.number(number, "int32"), chosen)
            parts = [where(chosen.equals(number), given, k.number(0.0, type)) for number in range(2 * tall)]
            for t, place in enumerate(places):
                k.store_pairs(out, [place], (parts[2 * t], parts[2 * t + 1]))

        _pairs(k, tall, body)
        return k

    return write
