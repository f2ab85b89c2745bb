"""Layers of inference plans in LLVM's language: convolutions without Winograd's points, depthwise ones, padding, means.

Each function is `void NAME(ptr args, i64 begin, i64 end)`; args has 8 bytes for each of its parameters: addresses,
numbers of elements, or (low, high) the bits of two float32.  Pictures are channels-last, (N, height, width, channels),
but those of `padded`, which copies rows of any meaning, and of a `dense` convolution that reads planes.
`low` and `high`: results are brought between them; nan stays nan.
"""

from __future__ import annotations

import functools

from engine.kernels.llvm_text import Vectors

__all__ = ["DENSE", "DEPTHWISE", "MEAN", "PADDED", "dense", "depthwise", "mean", "padded", "shape"]

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

_FEWER = (7, 4, 2, 1)  # rows of what a line has beyond whole tiles
_AT_ONCE = 4  # columns of a depthwise convolution that share its weights


def shape(lanes: int, registers: int, outputs: int) -> tuple[int, int]:
    """(rows, vectors) of the results of `dense` that stay in registers; images' sides are often multiples of 7."""
    count = outputs // lanes
    most = (4, 3, 2) if registers == 32 else (2, 3)
    vectors = next((v for v in most if count % v == 0), most[0] if count > 2 * most[0] else 1)
    if registers == 32:
        return 14 if vectors == 1 else 7, vectors
    return {3: 4, 2: 6, 1: 8}[vectors], vectors


class _Bounds:
    """low and high of a layer, as vectors."""

    def __init__(self, w: Vectors) -> None:
        self.w = w
        self.low, self.high = (self._spread(p) for p in ("low", "high"))

    def _spread(self, name: str) -> str:
        w = self.w
        bits = w.emit(f"trunc i64 {w.args[name]} to i32")
        return w.spread_value(w.emit(f"bitcast i32 {bits} to float"))

    def __call__(self, value: str) -> str:
        w = self.w
        for limit, beyond in ((self.low, "olt"), (self.high, "ogt")):
            where = w.emit(f"fcmp {beyond} {w.type} {value}, {limit}")
            value = w.emit(f"select <{w.lanes} x i1> {where}, {w.type} {limit}, {w.type} {value}")
        return value


@functools.cache
def dense(name: str, lanes: int, rows: int, vectors: int, attributes: str = "") -> str:
    """Results of the units begin..end of a convolution: result (lines, columns, outputs) = what is between low and high
    of bias + the sum over kernels [+ added].

    A line is a row of results, or any `columns` of them where the kernel is one place; `total` is how many results
    there are.  Unit u is the line u % lines, and the u / lines-th of `splits` parts of the outputs.  Line l begins in
    the image l / rows at its l % rows-th line_step.  The kernel is `planes` times `tall` runs of `depth` neighbours.
    weights: (outputs / width, planes, tall, depth, width), width = vectors * lanes, and what outputs are left in the
    same way with lanes for width.  added: like the result, or 0; it may be the result's memory.
    """
    w = Vectors(DENSE, lanes)
    image, weights, result, bias, added, zeros = map(w.pointer, DENSE[:6])
    a = w.args
    width = vectors * lanes
    outputs, splits, columns = a["outputs"], a["splits"], a["columns"]
    bounds = _Bounds(w)
    any_added = w.emit(f"icmp ne i64 {a['added']}, 0")
    whole = w.emit(f"udiv i64 {outputs}, {width}")
    runs = w.times(w.times(a["planes"], a["tall"]), a["depth"])

    def unit(u: str, _: list[str]) -> list[str]:
        split = w.emit(f"udiv i64 {u}, {a['lines']}")
        line = w.minus(u, w.times(split, a["lines"]))
        n = w.emit(f"udiv i64 {line}, {a['rows']}")
        source = w.place("float", image, w.times(n, a["image_step"]))
        source = w.place("float", source, w.times(w.minus(line, w.times(n, a["rows"])), a["line_step"]))
        before = w.times(line, columns)
        count = w.emit(f"call i64 @llvm.smin.i64(i64 {columns}, i64 {w.minus(a['total'], before)})")
        start = w.times(before, outputs)
        target, other = w.place("float", result, start), w.place("float", added, start)

        def panel(o: str, vectors: int) -> None:
            """The outputs from o on, as many as fill the vectors."""
            taps = w.place("float", weights, w.times(o, runs))
            shifts = [w.vector(w.place("float", bias, o), j * lanes) for j in range(vectors)]

            def tiles(rows: int, first: str, last: str) -> None:
                def tile(x: str, _: list[str]) -> list[str]:
                    place = w.place("float", source, w.times(x, a["column_step"]))

                    def plane(p: str, sums: list[str]) -> list[str]:
                        of_plane = w.place("float", place, w.times(p, a["plane_step"]))

                        def run(i: str, sums: list[str]) -> list[str]:
                            left = w.place("float", of_plane, w.times(i, a["tall_step"]))
                            number = w.times(w.plus(w.times(p, a["tall"]), i), a["depth"])
                            right = w.place("float", taps, w.times(number, vectors * lanes))
                            steps = a["column_step"], "1"
                            return w.products(rows, vectors, a["depth"], left, steps, right, str(vectors * lanes), sums)

                        return w.loop("0", a["tall"], 1, run, [(w.type, s) for s in sums])

                    sums = w.loop("0", a["planes"], 1, plane, [(w.type, s) for s in shifts * rows])
                    for i in range(rows):
                        at = w.plus(w.times(w.plus(x, i), outputs), o)
                        spot, more = w.place("float", target, at), w.place("float", other, at)
                        more = w.emit(f"select i1 {any_added}, ptr {more}, ptr {zeros}")
                        for j in range(vectors):
                            value = w.add(sums[i * vectors + j], w.vector(more, j * lanes))
                            w.store(bounds(value), spot, j * lanes)
                    return []

                w.loop(first, last, rows, tile)

            done = "0"
            for size in (rows, *(n for n in _FEWER if n < rows and (n != 7 or rows == 14))):
                rest = w.emit(f"urem i64 {w.minus(count, done)}, {size}")
                until = w.minus(count, rest)
                tiles(size, done, until)
                done = until

        first = w.emit(f"udiv i64 {w.times(whole, split)}, {splits}")
        last = w.emit(f"udiv i64 {w.times(whole, w.plus(split, 1))}, {splits}")

        def some(number: str, _: list[str]) -> list[str]:
            panel(w.times(number, width), vectors)
            return []

        w.loop(first, last, 1, some)
        if vectors > 1:
            end = w.emit(f"icmp eq i64 {w.plus(split, 1)}, {splits}")

            def left(o: str, _: list[str]) -> list[str]:
                panel(o, 1)
                return []

            w.loop(w.times(whole, width), w.emit(f"select i1 {end}, i64 {outputs}, i64 0"), lanes, left)
        return []

    w.loop("%begin", "%end", 1, unit)
    return w.finished(name, attributes)


@functools.cache
def depthwise(name: str, lanes: int, wide: int, step: int, attributes: str = "") -> str:
    """The lines begin..end, of all images' results, of a convolution of each channel for itself: kernels `tall` high
    and `wide`, `step` columns apart.

    weights: (tall, wide, channels).  In columns first..last no place of a kernel is beyond the sides of the image.
    zeros: as many as there are channels.
    """
    w = Vectors(DEPTHWISE, lanes)
    image, weights, result, bias, zeros = map(w.pointer, DEPTHWISE[:5])
    a = w.args
    channels, bounds = a["channels"], _Bounds(w)

    def line(at: str, _: list[str]) -> list[str]:
        n = w.emit(f"udiv i64 {at}, {a['rows']}")
        top = w.minus(w.times(w.minus(at, w.times(n, a["rows"])), a["step_down"]), a["above"])
        begin = w.emit(f"call i64 @llvm.smax.i64(i64 0, i64 {w.minus(0, top)})")
        end = w.emit(f"call i64 @llvm.smin.i64(i64 {a['tall']}, i64 {w.minus(a['height'], top)})")
        base = w.times(w.plus(w.times(n, a["height"]), top), a["width"])

        def tile(x: str, count: int, inside: bool) -> None:
            side = w.minus(w.times(x, step), a["left"])
            target = w.place("float", result, w.times(w.plus(w.times(at, a["columns"]), x), channels))
            spots = (count - 1) * step + wide
            fit = []
            if not inside:
                fit = [w.emit(f"icmp ult i64 {w.plus(side, j)}, {a['width']}") for j in range(spots)]

            def some(c: str, _: list[str]) -> list[str]:
                def row(i: str, sums: list[str]) -> list[str]:
                    start = w.plus(w.plus(base, w.times(i, a["width"])), side)
                    source = w.place("float", image, w.plus(w.times(start, channels), c))
                    taps = w.place("float", weights, w.plus(w.times(w.times(i, wide), channels), c))
                    values = []
                    for j in range(spots):
                        where = w.place("float", source, w.times(channels, j))
                        if fit:
                            where = w.emit(f"select i1 {fit[j]}, ptr {where}, ptr {zeros}")
                        values.append(w.vector(where))
                    for j in range(wide):
                        tap = w.vector(taps, w.times(channels, j))
                        for k in range(count):
                            product = w.emit(f"fmul contract {w.type} {tap}, {values[k * step + j]}")
                            sums[k] = w.add(sums[k], product)
                    return sums

                sums = w.loop(begin, end, 1, lambda i, s: row(i, [*s]), [(w.type, w.vector(bias, c))] * count)
                for k in range(count):
                    w.store(bounds(sums[k]), w.place("float", target, w.times(channels, k)), c)
                return []

            w.loop("0", channels, lanes, some)

        def tiles(first: str, last: str, count: int, inside: bool) -> None:
            def of(x: str, _: list[str]) -> list[str]:
                tile(x, count, inside)
                return []

            w.loop(first, last, count, of)

        tiles("0", a["first"], 1, False)
        inner = w.minus(a["last"], a["first"])
        until = w.minus(a["last"], w.emit(f"urem i64 {inner}, {_AT_ONCE}"))
        tiles(a["first"], until, _AT_ONCE, True)
        tiles(until, a["last"], 1, True)
        tiles(a["last"], a["columns"], 1, False)
        return []

    w.loop("%begin", "%end", 1, line)
    return w.finished(name, attributes)


@functools.cache
def padded(name: str, attributes: str = "") -> str:
    """The lines begin..end of planes of `lines` each, `pitch` elements long: zeros, and from `above` and `before` on
    the `rows` rows of a plane of the image, `length` elements long.
    """
    w = Vectors(PADDED, 4)
    image, result = map(w.pointer, PADDED[:2])
    a = w.args
    size = w.times(a["length"], 4)
    after = w.minus(w.minus(a["pitch"], a["before"]), a["length"])

    def clear(at: str, count: str) -> None:
        w(f"call void @llvm.memset.p0.i64(ptr {at}, i8 0, i64 {w.times(count, 4)}, i1 false)")

    def line(at: str, _: list[str]) -> list[str]:
        plane = w.emit(f"udiv i64 {at}, {a['lines']}")
        row = w.minus(w.minus(at, w.times(plane, a["lines"])), a["above"])
        target = w.place("float", result, w.times(at, a["pitch"]))
        inside = w.emit(f"icmp ult i64 {row}, {a['rows']}")
        copy, nothing, done = w.label(), w.label(), w.label()
        w(f"br i1 {inside}, label %{copy}, label %{nothing}")
        w.at(nothing, jump=False)
        clear(target, a["pitch"])
        w(f"br label %{done}")
        w.at(copy, jump=False)
        source = w.place("float", image, w.times(w.plus(w.times(plane, a["rows"]), row), a["length"]))
        middle = w.place("float", target, a["before"])
        clear(target, a["before"])
        w(f"call void @llvm.memcpy.p0.p0.i64(ptr {middle}, ptr {source}, i64 {size}, i1 false)")
        clear(w.place("float", middle, a["length"]), after)
        w.at(done)
        return []

    w.loop("%begin", "%end", 1, line)
    return w.finished(name, attributes)


@functools.cache
def mean(name: str, lanes: int, attributes: str = "") -> str:
    """The means over pixels: result (N, channels), of which vector u of all is made for begin <= u < end.

    part: the bits of 1 / pixels.
    """
    w = Vectors(MEAN, lanes)
    image, result = map(w.pointer, MEAN[:2])
    a = w.args
    channels = a["channels"]
    each = w.emit(f"udiv i64 {channels}, {lanes}")
    bits = w.emit(f"trunc i64 {a['part']} to i32")
    part = w.spread_value(w.emit(f"bitcast i32 {bits} to float"))

    def vector(u: str, _: list[str]) -> list[str]:
        n = w.emit(f"udiv i64 {u}, {each}")
        c = w.times(w.minus(u, w.times(n, each)), lanes)
        source = w.place("float", image, w.plus(w.times(w.times(n, a["pixels"]), channels), c))
        add = lambda p, s: [w.add(s[0], w.vector(source, w.times(p, channels)))]
        total = w.loop("0", a["pixels"], 1, add, [(w.type, "zeroinitializer")])[0]
        w.store(w.emit(f"fmul {w.type} {total}, {part}"), result, w.times(u, lanes))
        return []

    w.loop("%begin", "%end", 1, vector)
    return w.finished(name, attributes)
