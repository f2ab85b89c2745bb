"""Convolutions of each channel with a kernel of its own, in steps of one, of images in torch's order; their gradients.

The names of parameters:
  image (images, channels, height, width); result and slope, its gradient, (images, channels, rows, columns).
  scratch: for each thread `step` zeros, a padded image of rows of `pitch` elements.  above, left: the padding.
  share: the jobs of a thread.
A kernel of (tall, wide) places, which are `down` and `across` elements from one another, is written out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.kernels.form import Array, Value, call, where
from engine.kernels.jobs import Jobs, least
from engine.kernels.llvm_jobs import in_llvm

__all__ = ["FORWARD", "GRADIENT", "forward", "gradient"]

_SIZES = ("height", "width", "rows", "columns", "above", "left", "pitch", "channels", "share", "step")
FORWARD = ("image", "weights", "bias", "result", "scratch", *_SIZES)
GRADIENT = ("image", "slope", "made", "scratch", *_SIZES, "images")
Sums = Sequence[tuple[tuple[int, int], Value]]  # (a place of the kernel, the variable of its sum)
_ROWS = 4  # of results that share what they read
_VECTORS = 4  # of a result of one row


def _copied(k: Jobs, source: Array, target: Array, rows: Value, width: Value, pitch: Value) -> None:
    """Copy rows of `width` elements, a vector at least, to rows that are `pitch` elements from one another."""
    with k.loop(0, rows) as row:
        given, own = k.view(source, row * width), k.view(target, row * pitch)
        with k.loop(0, width, k.lanes) as j:
            at = least(j, width - k.lanes)  # the last vector overlaps the one before
            k.store(own, at, k.vector(given, at))


def _meeting(places: Sequence[tuple[int, int]], rows: int) -> list[tuple[tuple[int, int], list[tuple[int, int]]]]:
    """What `rows` rows of results read, in order: (its distance from the first, [(row, number of the place)])."""
    found: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for row in range(rows):
        for number, (y, x) in enumerate(places):
            found.setdefault((row + y, x), []).append((row, number))
    return sorted(found.items())


def _blocks(k: Jobs, tall: int, body: Callable[[Value, Value, int, int], None]) -> None:
    """`body(row, column, rows, vectors)` of blocks of results; the last vector of a row overlaps the one before."""
    a = k.numbers
    count = (a["columns"] + k.lanes - 1) // k.lanes
    for rows, row in k.cut(a["rows"], (_ROWS, 1) if tall > 1 else (1,)):
        for vectors, number in k.cut(count, (1,) if tall > 1 else (_VECTORS, 1)):
            body(row, number * k.lanes, rows, vectors)


@in_llvm
def forward(lanes: int, tall: int, wide: int, down: int, across: int, biased: bool, flipped: bool) -> Jobs:
    """The images begin..end of all channels.  weights (channels, tall, wide), bias (channels).

    flipped: each kernel's places in the opposite order, as the gradient of the input has them.
    """
    k = Jobs("depthwise", lanes, FORWARD, 5)
    image, weights, bias, result, scratch = k.arrays
    a = k.numbers
    places = [(i * down, j * across) for i in range(tall) for j in range(wide)]
    padded = k.view(scratch, k.begin // a["share"] * a["step"])
    inner = k.view(padded, a["above"] * a["pitch"] + a["left"])
    last = a["columns"] - lanes
    with k.loop(k.begin, k.end) as job:
        channel = job % a["channels"]
        _copied(k, k.view(image, job * a["height"] * a["width"]), inner, a["height"], a["width"], a["pitch"])
        own = k.view(weights, channel * len(places))
        factors = [k.spread(k.load(own, n)) for n in range(len(places))]
        factors = factors[::-1] if flipped else factors
        start = k.spread(k.load(bias, channel)) if biased else k.number(0.0)
        target = k.view(result, job * a["rows"] * a["columns"])

        def block(row: Value, column: Value, rows: int, vectors: int) -> None:
            for v in range(vectors):
                at = least(column + v * lanes, last)
                corner = k.view(padded, row * a["pitch"] + at)
                totals = [start] * rows
                for (y, x), uses in _meeting(places, rows):
                    value = k.vector(corner, a["pitch"] * y + x)
                    for r, number in uses:
                        totals[r] = call("fma", factors[number], value, totals[r])
                for r, total in enumerate(totals):
                    k.store(target, (row + r) * a["columns"] + at, total)

        _blocks(k, tall, block)
    return k


@in_llvm
def gradient(lanes: int, tall: int, wide: int, down: int, across: int, together: int) -> Jobs:
    """The gradients of the kernels of the channels begin..end, made (channels, tall, wide): sums over all images.

    together: places of a kernel whose sums stay in registers.
    """
    k = Jobs("depthwise_gradient", lanes, GRADIENT, 4)
    image, slope, made, scratch = k.arrays
    a = k.numbers
    places = [(i * down, j * across) for i in range(tall) for j in range(wide)]
    padded = k.view(scratch, k.begin // a["share"] * a["step"])
    inner = k.view(padded, a["above"] * a["pitch"] + a["left"])
    size, out = a["height"] * a["width"], a["rows"] * a["columns"]
    left_over = a["columns"] % lanes
    last, nothing = a["columns"] - lanes, k.number(0.0)
    fresh = k.vector_of(range(lanes)) >= k.spread(k.cast(lanes - left_over, "float32"))  # of the last vector

    def add(slopes: Array, row: Value, rows: int, column: Value, part: bool, sums: Sums) -> None:
        """Add the products of a vector of results of each of `rows` rows; part: of its lanes that are `fresh`."""
        corner = k.view(padded, row * a["pitch"] + column)
        factors = [k.vector(slopes, (row + r) * a["columns"] + column) for r in range(rows)]
        factors = [where(fresh, factor, nothing) if part else factor for factor in factors]
        for (y, x), uses in _meeting([place for place, _ in sums], rows):
            value = k.vector(corner, a["pitch"] * y + x)
            value = where(fresh, value, nothing) if part else value
            for r, number in uses:
                total = sums[number][1]
                k.set(total, call("fma", factors[r], value, total))

    with k.loop(k.begin, k.end) as channel:
        own = k.view(made, channel * len(places))
        for n in range(len(places)):
            k.store(own, n, k.constant(0.0, "float32"))
        with k.loop(0, a["images"]) as image_number:
            plane = image_number * a["channels"] + channel
            slopes = k.view(slope, plane * out)
            _copied(k, k.view(image, plane * size), inner, a["height"], a["width"], a["pitch"])
            for first in range(0, len(places), together):
                chosen = places[first : first + together]
                sums = list(zip(chosen, k.variables([nothing] * len(chosen))))
                for rows, row in k.cut(a["rows"], (_ROWS, 1)):
                    with k.loop(0, a["columns"] - left_over, lanes) as column:
                        add(slopes, row, rows, column, False, sums)
                    with k.when(left_over > 0):
                        add(slopes, row, rows, last, True, sums)
                for number, (_, total) in enumerate(sums, first):
                    k.store(own, number, k.load(own, number) + k.total(total))
    return k
