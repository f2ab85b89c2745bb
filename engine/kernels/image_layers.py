"""Layers of inference plans: convolutions without Winograd's points, depthwise ones, padding, means, batch norm.

Images are channels-last, (N, height, width, channels), but those of `padded`, which copies rows of any meaning, and of
a `dense` convolution that reads planes.  `low` and `high`: results are brought between them; nan stays nan.
"""

from __future__ import annotations

from engine.kernels import cpython
from engine.kernels.form import Array, Kernel, Value, both, call, where
from engine.kernels.jobs import Jobs, clamped, inside, least, most
from engine.kernels.llvm_jobs import in_llvm

__all__ = ["DENSE", "DEPTHWISE", "MEAN", "PADDED", "SCALE", "dense", "depthwise", "mean", "padded", "scale", "shape"]

DENSE = (
    "image",
    "weights",
    "result",
    "bias",
    "added",
    "zeros",
    "low",
    "high",
    "rows",
    "image_step",
    "line_step",
    "column_step",
    "planes",
    "plane_step",
    "tall",
    "tall_step",
    "depth",
    "columns",
    "total",
    "outputs",
    "lines",
    "splits",
    "adds",
)
DEPTHWISE = (
    "image",
    "weights",
    "result",
    "bias",
    "zeros",
    "low",
    "high",
    "height",
    "width",
    "channels",
    "rows",
    "columns",
    "above",
    "left",
    "tall",
    "step_down",
    "first",
    "last",
)
PADDED = ("image", "result", "rows", "length", "above", "before", "lines", "pitch")
MEAN = ("image", "result", "pixels", "channels", "part")
SCALE = ("image", "result", "mean", "variance", "weight", "bias", "buffer", "eps", "channels")

_BOUNDS = {"low": "float32", "high": "float32"}
_FEWER = (7, 4, 2, 1)  # rows of what a line has beyond whole tiles
_AT_ONCE = 4  # columns of a depthwise convolution that share its weights


def shape(lanes: int, registers: int, outputs: int) -> tuple[int, int]:
    """(rows, vectors) of the results of `dense` that stay in registers; images' sides are often multiples of 7."""
    count = outputs // lanes
    widest = (4, 3, 2) if registers == 32 else (2, 3)
    vectors = next((v for v in widest if count % v == 0), widest[0] if count > 2 * widest[0] else 1)
    if registers == 32:
        return 14 if vectors == 1 else 7, vectors
    return {3: 4, 2: 6, 1: 8}[vectors], vectors


@in_llvm
def dense(lanes: int, rows: int, vectors: int) -> Jobs:
    """Results of the units begin..end of a convolution: result (lines, columns, outputs) = what is between low and high
    of bias + the sum over kernels [+ added].

    A line is a row of results, or any `columns` of them where the kernel is one place; `total` is how many results
    there are.  Unit u is the line u % lines, and the u / lines-th of `splits` parts of the outputs.  Line l begins in
    the image l / rows at its l % rows-th line_step.  The kernel is `planes` times `tall` runs of `depth` neighbours.
    weights: (outputs / width, planes, tall, depth, width), width = vectors * lanes, and what outputs are left in the
    same way with lanes for width.  added: like the result, where adds is not 0; it may be the result's memory.
    """
    k = Jobs("dense", lanes, DENSE, 6, _BOUNDS)
    image, weights, result, bias, added, zeros = k.arrays
    a, width = k.numbers, vectors * lanes
    outputs, splits, step = a["outputs"], a["splits"], a["column_step"]
    low, high, adds = k.spread(a["low"]), k.spread(a["high"]), a["adds"].differs(0)
    whole, runs = outputs // width, a["planes"] * a["tall"] * a["depth"]

    sizes = (rows, *(n for n in _FEWER if n < rows and (n != 7 or rows == 14)))

    def panel(source: Array, before: Value, length: Value, o: Value, vectors: int) -> None:
        """The outputs from o on, as many as fill the vectors, of a line of `length` results from `before` on."""
        taps, shifts = k.view(weights, o * runs), [k.vector(bias, o + j * lanes) for j in range(vectors)]
        for count, x in k.cut(length, sizes):
            sums = k.variables(shifts * count)
            with k.loop(0, a["planes"]) as p, k.loop(0, a["tall"]) as run:
                left = k.view(source, x * step + p * a["plane_step"] + run * a["tall_step"])
                right = k.view(taps, (p * a["tall"] + run) * a["depth"] * (vectors * lanes))
                lefts = [k.view(left, step * n) for n in range(count)]
                k.add_products(sums, lefts, a["depth"], 1, right, vectors * lanes)
            for i in range(count):
                at = (before + x + i) * outputs + o
                more = k.either(adds, k.view(added, at), zeros)
                for j, total in enumerate(sums[i * vectors : (i + 1) * vectors]):
                    value = clamped(total + k.vector(more, j * lanes), low, high)
                    k.store(result, at + j * lanes, value)

    with k.loop(k.begin, k.end) as unit:
        split, line = unit // a["lines"], unit % a["lines"]
        source = k.view(image, line // a["rows"] * a["image_step"] + line % a["rows"] * a["line_step"])
        before = line * a["columns"]
        length = least(a["columns"], a["total"] - before)
        with k.loop(whole * split // splits, whole * (split + 1) // splits) as number:
            panel(source, before, length, number * width, vectors)
        if vectors > 1:
            end = where((split + 1).equals(splits), outputs, k.constant(0, "index"))
            with k.loop(whole * width, end, lanes) as o:
                panel(source, before, length, o, 1)
    return k


@in_llvm
def depthwise(lanes: int, wide: int, step: int) -> Jobs:
    """The lines begin..end, of all images' results, of a convolution of each channel for itself: kernels `tall` high
    and `wide`, `step` columns apart.

    weights: (tall, wide, channels).  In columns first..last no place of a kernel is beyond the sides of the image.
    zeros: as many as there are channels.
    """
    k = Jobs("depthwise", lanes, DEPTHWISE, 5, _BOUNDS)
    image, weights, result, bias, zeros = k.arrays
    a, channels = k.numbers, k.numbers["channels"]
    low, high = k.spread(a["low"]), k.spread(a["high"])

    down, line = a["width"] * channels, wide * channels  # from a row of the image, of a kernel, to the next

    def tile(rows: tuple[Value, Value], base: Value, own: Value, x: Value, count: int, fits: bool) -> None:
        """`count` results from x on of the line that begins at `own`, whose windows begin at `base`, by these rows of
        the kernel; fits: no place is beyond the sides."""
        side, places = x * step - a["left"], range((count - 1) * step + wide)
        there = [None if fits else inside(side + j, a["width"]) for j in places]
        with k.loop(0, channels, lanes) as c:
            corner, target = k.view(image, (base + side) * channels + c), k.view(result, (own + x) * channels + c)
            sums = k.variables([k.vector(bias, c)] * count)
            with k.loop(*rows) as i:
                source, taps = k.view(corner, i * down), k.view(weights, i * line + c)
                values = []
                for j, fit in zip(places, there):
                    place = k.view(source, channels * j)
                    values.append(k.vector(place if fit is None else k.either(fit, place, zeros)))
                for j in range(wide):
                    tap = k.vector(taps, channels * j)
                    for n, total in enumerate(sums):
                        k.set(total, call("fma", tap, values[n * step + j], total))
            for n, total in enumerate(sums):
                k.store(target, channels * n, clamped(total, low, high))

    with k.loop(k.begin, k.end) as number:
        top, zero = number % a["rows"] * a["step_down"] - a["above"], k.constant(0, "index")
        base, own = (number // a["rows"] * a["height"] + top) * a["width"], number * a["columns"]
        rows = most(-top, 0), least(a["height"] - top, a["tall"])
        until = a["last"] - (a["last"] - a["first"]) % _AT_ONCE
        for begin, end, count, fits in (
            (zero, a["first"], 1, False),
            (a["first"], until, _AT_ONCE, True),
            (until, a["last"], 1, True),
            (a["last"], a["columns"], 1, False),
        ):
            with k.loop(begin, end, count) as x:
                tile(rows, base, own, x, count, fits)
    return k


@in_llvm
def padded() -> Kernel:
    """The lines begin..end of planes of `lines` each, `pitch` elements long: zeros, and from `above` and `before` on
    the `rows` rows of a plane of the image, `length` elements long.
    """
    k = Kernel("padded", "rows")
    image, result = k.array("image", "float32"), k.array("result", "float32", True)
    rows, length, above, before, lines, pitch = (k.scalar(p, "index") for p in PADDED[2:])
    zero, nothing = k.constant(0, "index"), k.constant(0.0, "float32")
    row, target = k.index % lines - above, k.index * pitch
    there = both(row >= 0, row < rows)
    source, middle = (k.index // lines * rows + row) * length, target + before
    after = middle + length
    with k.each(where(there, before, pitch)) as j:
        k.store(result, target + j, nothing)
    with k.each(where(there, length, zero)) as j:
        k.store(result, middle + j, k.load(image, source + j))
    with k.each(where(there, pitch - before - length, zero)) as j:
        k.store(result, after + j, nothing)
    return k


@in_llvm
def mean(lanes: int) -> Jobs:
    """The means over pixels: result (N, channels), of which vector u of all is made for begin <= u < end.

    part: 1 / pixels.
    """
    k = Jobs("mean", lanes, MEAN, 2, {"part": "float32"})
    (image, result), a = k.arrays, k.numbers
    each, part = a["channels"] // lanes, k.spread(a["part"])
    with k.loop(k.begin, k.end) as u:
        source = k.view(image, u // each * a["pixels"] * a["channels"] + u % each * lanes)
        total = k.variable(k.number(0.0))
        with k.loop(0, a["pixels"]) as p:
            k.set(total, total + k.vector(source, p * a["channels"]))
        k.store(result, u * lanes, total * part)
    return k


def _scale(lanes: int) -> Jobs:
    """Batch norm by given statistics, of the pixels begin..end, of objects of numpy.

    buffer: two numbers per channel.
    """
    k = Jobs("scale", lanes, SCALE, 7, {"eps": "float64"})
    image, result, mean, variance, weight, bias, buffer = k.arrays
    channels = k.numbers["channels"]
    eps, shifts = k.spread(k.cast(k.numbers["eps"], "float32")), k.view(buffer, channels)
    with k.loop(0, channels, lanes) as c:
        factor = k.vector(weight, c) / call("sqrt", k.vector(variance, c) + eps)
        k.store(buffer, c, factor)
        k.store(shifts, c, call("fma", -k.vector(mean, c), factor, k.vector(bias, c)))
    with k.loop(k.begin, k.end) as pixel, k.loop(0, channels, lanes) as c:
        at = pixel * channels + c
        k.store(result, at, call("fma", k.vector(image, at), k.vector(buffer, c), k.vector(shifts, c)))
    return k


scale = in_llvm(_scale, cpython.HEAD)
