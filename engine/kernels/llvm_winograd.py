"""3x3 convolutions of stride 1 by Winograd's F(4x4, 3x3) in LLVM's language: a quarter of the multiplications.

Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (arXiv:1509.09308).  A tile of 4x4 results is read
from 6x6 places of the image.  Both and the kernel are taken as polynomials, whose values at six points of each dim
are multiplied: 36 products of matrices (tiles x channels) @ (channels x outputs), one a pair of points.  The points
are 0, +-sqrt(1/2), +-sqrt(2) and infinity: of random data of 512 channels the result is off by 1.5e-6 of its size
(root mean square, float32), 4 times what adding the products in turn is, and half of what 0, +-1, +-2 are.

Pictures are channels-last, (N, H, W, C).  Each function is `void NAME(ptr args, i64 begin, i64 end)`; args has 8 bytes
for each of its parameters, addresses or numbers.  The names:
  image (N, height, width, channels); result (N, rows, columns, outputs), whose tiles are numbered along n, then
  `down` of them to an image, then `across`; above, left: the padding.  zeros: as many as a pixel has channels, read
  where there is no image; spare: as much memory, written to where there is no result.
  Values at points are (36, tiles or channels, ...), `plane` elements from one point to the next.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from itertools import chain
from math import sqrt

from engine.kernels.llvm_text import Vectors

__all__ = [
    "FORWARD",
    "GRADIENT",
    "POINTS",
    "PRODUCT",
    "VALUES",
    "WEIGHTS",
    "forward",
    "gradient",
    "product",
    "values",
    "weights",
]

POINTS = 36
# What each function reads.  Those of a tile's place are the same for all.
_PLACES = ("height", "width", "channels", "above", "left", "down", "across")
FORWARD = (
    "image",
    "weights",
    "result",
    "bias",
    "added",
    "buffer",
    "zeros",
    "spare",
    *_PLACES,
    "rows",
    "columns",
    "outputs",
    "block",
    "plane",
    "made_plane",
)
VALUES = ("image", "buffer", "zeros", *_PLACES, "first", "pitch", "plane")
WEIGHTS = ("taps", "made", "step", "channels", "outputs")
PRODUCT = (
    "left",
    "right",
    "made",
    "tiles",
    "channels",
    "outputs",
    "left_pitch",
    "right_pitch",
    "left_plane",
    "right_plane",
    "fresh",
)
GRADIENT = ("made", "taps", "channels", "outputs")

_PART = 64  # tiles that are summed before they join what was summed, so that less is lost
_NEAR, _FAR = sqrt(0.5), sqrt(2)


# --- one dim of the transforms; what each is the matrix of, in the paper's letters


def _image(w: Vectors, d: Sequence[str]) -> list[str]:
    """B^T: six places -> values at six points."""
    near, near_odd = w.fma(-2, d[2], d[4]), w.fma(-2, d[1], d[3])
    far, far_odd = w.fma(-0.5, d[2], d[4]), w.fma(-0.5, d[1], d[3])
    return [
        w.fma(-2.5, d[2], w.add(d[0], d[4])),
        w.fma(_NEAR, near_odd, near),
        w.fma(-_NEAR, near_odd, near),
        w.fma(_FAR, far_odd, far),
        w.fma(-_FAR, far_odd, far),
        w.fma(-2.5, d[3], w.add(d[1], d[5])),
    ]


def _slope(w: Vectors, d: Sequence[str]) -> list[str]:
    """A: the gradients of four results -> values at six points."""
    near, near_odd = w.fma(0.5, d[2], d[0]), w.fma(0.5, d[3], d[1])
    far, far_odd = w.fma(2, d[2], d[0]), w.fma(2, d[3], d[1])
    return [
        d[0],
        w.fma(_NEAR, near_odd, near),
        w.fma(-_NEAR, near_odd, near),
        w.fma(_FAR, far_odd, far),
        w.fma(-_FAR, far_odd, far),
        d[3],
    ]


def _result(w: Vectors, m: Sequence[str]) -> list[str]:
    """A^T: products at six points -> four results."""
    near, near_odd = w.add(m[1], m[2]), w.sub(m[1], m[2])
    far, far_odd = w.add(m[3], m[4]), w.sub(m[3], m[4])
    return [
        w.add(m[0], w.add(near, far)),
        w.fma(_NEAR, near_odd, w.scale(_FAR, far_odd)),
        w.fma(0.5, near, w.scale(2, far)),
        w.fma(_NEAR / 2, near_odd, w.fma(2 * _FAR, far_odd, m[5])),
    ]


def _kernel(w: Vectors, g: Sequence[str]) -> list[str]:
    """G: three weights -> values at six points."""
    near, far = w.scale(-1 / 1.5, w.fma(0.5, g[2], g[0])), w.scale(1 / 6, w.fma(2, g[2], g[0]))
    return [
        g[0],
        w.fma(-_NEAR / 1.5, g[1], near),
        w.fma(_NEAR / 1.5, g[1], near),
        w.fma(_FAR / 6, g[1], far),
        w.fma(-_FAR / 6, g[1], far),
        g[2],
    ]


def _kernel_slope(w: Vectors, q: Sequence[str]) -> list[str]:
    """G^T: gradients at six points -> those of three weights."""
    near, near_odd = w.add(q[1], q[2]), w.sub(q[1], q[2])
    far, far_odd = w.add(q[3], q[4]), w.sub(q[3], q[4])
    return [
        w.fma(-1 / 1.5, near, w.fma(1 / 6, far, q[0])),
        w.fma(-_NEAR / 1.5, near_odd, w.scale(_FAR / 6, far_odd)),
        w.fma(-0.5 / 1.5, near, w.fma(2 / 6, far, q[5])),
    ]


_Line = Callable[[Vectors, Sequence[str]], list[str]]


def _both(w: Vectors, line: _Line, square: Sequence[Sequence[str]]) -> list[list[str]]:
    """`line` along both dims."""
    half = [line(w, column) for column in zip(*square)]
    return [line(w, row) for row in zip(*half)]


# --- places


def _corner(w: Vectors, tile: str) -> tuple[str, str, str]:
    """(image, row, column) where the results of a tile begin."""
    down, across = w.args["down"], w.args["across"]
    line = w.emit(f"udiv i64 {tile}, {across}")
    n = w.emit(f"udiv i64 {line}, {down}")
    row = w.minus(line, w.times(n, down))
    column = w.minus(tile, w.times(line, across))
    return n, w.times(row, 4), w.times(column, 4)


def _pixels(
    w: Vectors, base: str, other: str, place: tuple[str, str, str], size: tuple[str, str, str], count: int
) -> list[list[str]]:
    """The addresses of count x count pixels from a place on, of an image at `base`; `other` for those beyond it."""
    n, row, column = place
    height, width, channels = size
    lines = [w.plus(row, i) for i in range(count)]
    spots = [w.plus(column, j) for j in range(count)]
    columns_in = [w.emit(f"icmp ult i64 {spot}, {width}") for spot in spots]
    found = []
    for line in lines:
        inside = w.emit(f"icmp ult i64 {line}, {height}")
        start = w.times(w.plus(w.times(n, height), line), width)
        own = []
        for spot, in_column in zip(spots, columns_in):
            address = w.place("float", base, w.times(w.plus(start, spot), channels))
            both = w.emit(f"and i1 {inside}, {in_column}")
            own.append(w.emit(f"select i1 {both}, ptr {address}, ptr {other}"))
        found.append(own)
    return found


def _transformed(w: Vectors, line: _Line, pixels: list[list[str]], target: str, plane: str, channels: str) -> None:
    """Values at points of all channels of a tile, from target[0] on, a plane apart."""

    def some(c: str, _: list[str]) -> list[str]:
        square = [[w.vector(address, c) for address in row] for row in pixels]
        at = w.place("float", target, c)
        for n, value in enumerate(chain(*_both(w, line, square))):
            w.store(value, at, w.times(plane, n))
        return []

    w.loop("0", channels, w.lanes, some)


# --- products


def shape(lanes: int, registers: int, outputs: int) -> tuple[int, int]:
    """(rows, vectors) of the results that stay in registers, for that many outputs, a multiple of lanes."""
    for vectors in (4, 3, 2) if registers == 32 else (2, 3):
        if outputs // lanes % vectors == 0:
            return {4: 6, 3: 8, 2: 12}[vectors] if registers == 32 else {3: 4, 2: 6}[vectors], vectors
    return registers // 2 - 2, 1


# --- functions


@functools.cache
def forward(name: str, lanes: int, rows: int, vectors: int, rectified: bool, attributes: str = "") -> str:
    """The convolution of the tiles begin..end, `block` of them at a time.

    weights: as `weights` makes them.  bias: (outputs).  added: like the result; both are read anyway, so they may be
    zeros.  rectified: max(0, .) of the sum is the result.  buffer: for (36, block, channels), then (36, block, outputs)
    values, `plane` and `made_plane` apart.
    """
    w = Vectors(FORWARD, lanes)
    image, taps, result, bias, added, buffer, zeros, spare = map(w.pointer, FORWARD[:8])
    a = w.args
    channels, outputs, plane, made_plane = a["channels"], a["outputs"], a["plane"], a["made_plane"]
    made_buffer = w.place("float", buffer, w.times(plane, POINTS))
    width = vectors * lanes
    panel = w.times(channels, width)
    any_added = w.emit(f"icmp ne i64 {a['added']}, 0")

    def block(first: str, _: list[str]) -> list[str]:
        last = w.emit(f"call i64 @llvm.smin.i64(i64 {w.plus(first, a['block'])}, i64 %end)")
        count = w.minus(last, first)

        def read(tile: str, _: list[str]) -> list[str]:
            n, row, column = _corner(w, tile)
            place = n, w.minus(row, a["above"]), w.minus(column, a["left"])
            pixels = _pixels(w, image, zeros, place, (a["height"], a["width"], channels), 6)
            target = w.place("float", buffer, w.times(w.minus(tile, first), channels))
            _transformed(w, _image, pixels, target, plane, channels)
            return []

        w.loop(first, last, 1, read)

        def point(f: str, _: list[str]) -> list[str]:
            left, made = (
                w.place("float", buffer, w.times(f, plane)),
                w.place("float", made_buffer, w.times(f, made_plane)),
            )
            right = w.place("float", taps, w.times(f, w.times(channels, outputs)))

            def some(o: str, _: list[str]) -> list[str]:
                own = w.place("float", right, w.times(w.emit(f"udiv i64 {o}, {width}"), panel))

                def few(t: str, _: list[str]) -> list[str]:
                    start = w.place("float", left, w.times(t, channels))
                    sums = w.products(
                        rows,
                        vectors,
                        channels,
                        start,
                        (channels, "1"),
                        own,
                        str(width),
                        ["zeroinitializer"] * (rows * vectors),
                    )
                    target = w.place("float", made, w.plus(w.times(t, outputs), o))
                    for i in range(rows):
                        line = w.place("float", target, w.times(outputs, i))
                        for j in range(vectors):
                            w.store(sums[i * vectors + j], line, j * lanes)
                    return []

                w.loop("0", count, rows, few)
                return []

            w.loop("0", outputs, width, some)
            return []

        w.loop("0", str(POINTS), 1, point)

        def write(tile: str, _: list[str]) -> list[str]:
            place = _corner(w, tile)
            size = a["rows"], a["columns"], outputs
            pixels = _pixels(w, result, spare, place, size, 4)
            more = _pixels(w, added, zeros, place, size, 4)
            more = [[w.emit(f"select i1 {any_added}, ptr {m}, ptr {zeros}") for m in row] for row in more]
            source = w.place("float", made_buffer, w.times(w.minus(tile, first), outputs))

            def some(o: str, _: list[str]) -> list[str]:
                at, shift = w.place("float", source, o), w.vector(bias, o)
                square = [[w.vector(at, w.times(made_plane, 6 * i + j)) for j in range(6)] for i in range(6)]
                for own, others, values in zip(pixels, more, _both(w, _result, square)):
                    for address, other, value in zip(own, others, values):
                        value = w.add(w.add(value, shift), w.vector(other, o))
                        if rectified:
                            above = w.emit(f"fcmp ole {w.type} {value}, zeroinitializer")
                            value = w.emit(f"select <{lanes} x i1> {above}, {w.type} zeroinitializer, {w.type} {value}")
                        w.store(value, address, o)
                return []

            w.loop("0", outputs, lanes, some)
            return []

        w.loop(first, last, 1, write)
        return []

    w.loop("%begin", "%end", a["block"], block)
    return w.finished(name, attributes)


@functools.cache
def values(name: str, lanes: int, slope: bool, attributes: str = "") -> str:
    """Values at points of the tiles begin..end of an image: buffer (36, tiles, pitch), of which `first` is the first.

    slope: the image is the gradient of a result, and a tile 4x4 of its places; else 6x6 that overlap.
    """
    w = Vectors(VALUES, lanes)
    image, buffer, zeros = map(w.pointer, VALUES[:3])
    a = w.args
    count, line = (4, _slope) if slope else (6, _image)

    def read(tile: str, _: list[str]) -> list[str]:
        n, row, column = _corner(w, tile)
        place = n, w.minus(row, a["above"]), w.minus(column, a["left"])
        pixels = _pixels(w, image, zeros, place, (a["height"], a["width"], a["channels"]), count)
        target = w.place("float", buffer, w.times(w.minus(tile, a["first"]), a["pitch"]))
        _transformed(w, line, pixels, target, a["plane"], a["channels"])
        return []

    w.loop("%begin", "%end", 1, read)
    return w.finished(name, attributes)


@functools.cache
def weights(name: str, lanes: int, width: int, attributes: str = "") -> str:
    """Values at points of the kernels of channels begin..end: taps (9, channels, outputs) -> made (36, outputs / width,
    channels, width).  step: elements from one of the nine places to the next, less than 0 for a flipped kernel,
    of which `taps` is the last place.
    """
    w = Vectors(WEIGHTS, lanes)
    taps, made = map(w.pointer, WEIGHTS[:2])
    channels, outputs, step = w.args["channels"], w.args["outputs"], w.args["step"]
    plane = w.times(channels, outputs)

    def row(c: str, _: list[str]) -> list[str]:
        source = w.place("float", taps, w.times(c, outputs))

        def some(o: str, _: list[str]) -> list[str]:
            at = w.place("float", source, o)
            square = [[w.vector(at, w.times(step, 3 * i + j)) for j in range(3)] for i in range(3)]
            panel = w.emit(f"udiv i64 {o}, {width}")
            within = w.minus(o, w.times(panel, width))
            spot = w.plus(w.times(w.plus(w.times(panel, channels), c), width), within)
            target = w.place("float", made, spot)
            for n, value in enumerate(chain(*_both(w, _kernel, square))):
                w.store(value, target, w.times(plane, n))
            return []

        w.loop("0", outputs, lanes, some)
        return []

    w.loop("%begin", "%end", 1, row)
    return w.finished(name, attributes)


@functools.cache
def product(name: str, lanes: int, rows: int, vectors: int, attributes: str = "") -> str:
    """Of the points begin..end: made (36, channels, outputs) = [made +] the sum over tiles of left times right.

    left: (36, tiles, left_pitch); right: (36, tiles, right_pitch); fresh: made was nothing before.
    """
    w = Vectors(PRODUCT, lanes)
    lefts, rights, mades = map(w.pointer, PRODUCT[:3])
    a = w.args
    channels, outputs, tiles = a["channels"], a["outputs"], a["tiles"]
    added = w.emit(f"icmp eq i64 {a['fresh']}, 0")

    def point(f: str, _: list[str]) -> list[str]:
        left, right = (
            w.place("float", base, w.times(f, a[plane]))
            for base, plane in ((lefts, "left_plane"), (rights, "right_plane"))
        )
        made = w.place("float", mades, w.times(f, w.times(channels, outputs)))

        def some(o: str, _: list[str]) -> list[str]:
            own = w.place("float", right, o)

            def few(c: str, _: list[str]) -> list[str]:
                target = w.place("float", made, w.plus(w.times(c, outputs), o))
                spots = []
                for i in range(rows):
                    line = w.place("float", target, w.times(outputs, i))
                    spots += [w.place("float", line, j * lanes) for j in range(vectors)]
                begun = w.begun(spots, added)
                start = w.place("float", left, c)

                def part(tile: str, totals: list[str]) -> list[str]:
                    depth = w.emit(f"call i64 @llvm.smin.i64(i64 {_PART}, i64 {w.minus(tiles, tile)})")
                    at = w.place("float", start, w.times(tile, a["left_pitch"]))
                    on = w.place("float", own, w.times(tile, a["right_pitch"]))
                    zeros = ["zeroinitializer"] * len(totals)
                    sums = w.products(rows, vectors, depth, at, ("1", a["left_pitch"]), on, a["right_pitch"], zeros)
                    return list(map(w.add, totals, sums))

                sums = w.loop("0", tiles, _PART, part, [(w.type, b) for b in begun])
                for spot, value in zip(spots, sums):
                    w.store(value, spot)
                return []

            w.loop("0", channels, rows, few)
            return []

        w.loop("0", outputs, vectors * lanes, some)
        return []

    w.loop("%begin", "%end", 1, point)
    return w.finished(name, attributes)


@functools.cache
def gradient(name: str, lanes: int, attributes: str = "") -> str:
    """The gradient of the kernels of channels begin..end, (36, channels, outputs) -> (9, channels, outputs)."""
    w = Vectors(GRADIENT, lanes)
    made, taps = map(w.pointer, GRADIENT[:2])
    channels, outputs = w.args["channels"], w.args["outputs"]
    plane = w.times(channels, outputs)

    def row(c: str, _: list[str]) -> list[str]:
        start = w.times(c, outputs)

        def some(o: str, _: list[str]) -> list[str]:
            spot = w.plus(start, o)
            at, target = w.place("float", made, spot), w.place("float", taps, spot)
            square = [[w.vector(at, w.times(plane, 6 * i + j)) for j in range(6)] for i in range(6)]
            for n, value in enumerate(chain(*_both(w, _kernel_slope, square))):
                w.store(value, target, w.times(plane, n))
            return []

        w.loop("0", outputs, lanes, some)
        return []

    w.loop("%begin", "%end", 1, row)
    return w.finished(name, attributes)
