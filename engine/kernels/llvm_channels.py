"""Passes over channels-last images in LLVM's language: maximum pooling, its gradient, and one number per channel.

Each function is `void NAME(ptr args, i64 begin, i64 end)`; args has 8 bytes for each of its parameters: addresses or
numbers.  Channels are a multiple of `lanes`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from engine.kernels.llvm_text import Vectors

__all__ = [
    "POOL",
    "POOL_GRADIENT",
    "SCALE",
    "TILES",
    "max_pool",
    "max_pool_gradient",
    "scale",
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
SCALE = ("image", "result", "mean", "variance", "weight", "bias", "eps", "buffer", "channels")


class _Window:
    """The places of an image (N, height, width, channels) that a place of the result (N, rows, columns) is made of."""

    def __init__(self, w: Vectors, n: str, row: str, column: str) -> None:
        a = w.args
        self.w, self.n, self.row, self.column = w, n, row, column
        self.down = self._range(row, a["step_down"], a["above"], a["dilation_down"], a["tall"], a["height"])
        self.across = self._range(column, a["step_across"], a["left"], a["dilation_across"], a["wide"], a["width"])

    def _range(self, at: str, step: str, padding: str, dilation: str, size: str, end: str) -> tuple[str, str, str]:
        """(the first place, i64; from which, to which number of the window it is in the image)."""
        w = self.w
        start = w.minus(w.times(at, step), padding)
        less = w.emit(f"call i64 @llvm.smin.i64(i64 {start}, i64 0)")
        first = w.emit(f"sdiv i64 {w.minus(w.minus(dilation, 1), less)}, {dilation}")
        beyond = w.emit(f"sdiv i64 {w.plus(w.minus(w.minus(end, 1), start), dilation)}, {dilation}")
        last = w.emit(f"call i64 @llvm.smin.i64(i64 {size}, i64 {beyond})")
        return start, first, last

    def each(
        self, base: str, body: Callable[[str, str, list[str]], list[str]], held: list[tuple[str, str]]
    ) -> list[str]:
        """`body(address, number, values)` of each place of an image at `base`, in turn; `number` counts them."""
        w, a = self.w, self.w.args
        (top, first, last), (side, begin, end) = self.down, self.across
        counted = w.minus(end, begin)

        def line(i: str, values: list[str]) -> list[str]:
            place = w.plus(top, w.times(i, a["dilation_down"]))
            start = w.times(w.plus(w.times(self.n, a["height"]), place), a["width"])
            before = w.times(w.minus(i, first), counted)

            def spot(j: str, values: list[str]) -> list[str]:
                column = w.plus(side, w.times(j, a["dilation_across"]))
                address = w.place("float", base, w.times(w.plus(start, column), a["channels"]))
                return body(address, w.plus(before, w.minus(j, begin)), values)

            return w.loop(begin, end, 1, spot, [(t, v) for (t, _), v in zip(held, values)])

        return w.loop(first, last, 1, line, held)


def _largest(w: Vectors, value: str, most: str) -> str:
    """Emit the mask of where a value replaces the largest so far, as in PyTorch: it is above it, or nan."""
    above = w.emit(f"fcmp ogt {w.type} {value}, {most}")
    nothing = w.emit(f"fcmp uno {w.type} {value}, {value}")
    return w.emit(f"or <{w.lanes} x i1> {above}, {nothing}")


def _select(w: Vectors, where: str, type: str, a: str, b: str) -> str:
    return w.emit(f"select <{w.lanes} x i1> {where}, {type} {a}, {type} {b}")


_INFINITE = "0xFFF0000000000000"


def _spread(text: str, type: str, lanes: int) -> str:
    return "<" + ", ".join([f"{type} {text}"] * lanes) + ">"


def _rows(w: Vectors, row: str) -> tuple[str, str]:
    n = w.emit(f"udiv i64 {row}, {w.args['rows']}")
    return n, w.minus(row, w.times(n, w.args["rows"]))


@functools.cache
def max_pool(name: str, lanes: int, attributes: str = "") -> str:
    """The rows begin..end, of all images' results."""
    w = Vectors(POOL, lanes)
    image, result = map(w.pointer, POOL[:2])
    a = w.args

    def row(at: str, _: list[str]) -> list[str]:
        n, line = _rows(w, at)

        def column(q: str, _: list[str]) -> list[str]:
            window = _Window(w, n, line, q)
            target = w.place("float", result, w.times(w.plus(w.times(at, a["columns"]), q), a["channels"]))

            def some(c: str, _: list[str]) -> list[str]:
                def place(address: str, _: str, values: list[str]) -> list[str]:
                    value = w.vector(address, c)
                    return [_select(w, _largest(w, value, values[0]), w.type, value, values[0])]

                w.store(window.each(image, place, [(w.type, _spread(_INFINITE, "float", lanes))])[0], target, c)
                return []

            w.loop("0", a["channels"], lanes, some)
            return []

        w.loop("0", a["columns"], 1, column)
        return []

    w.loop("%begin", "%end", 1, row)
    return w.finished(name, attributes)


@functools.cache
def max_pool_gradient(name: str, lanes: int, attributes: str = "") -> str:
    """The gradients of the images begin..end.  covered: each place is in one window, so it is written to once."""
    w = Vectors(POOL_GRADIENT, lanes)
    image, slope, result = map(w.pointer, POOL_GRADIENT[:3])
    a = w.args
    numbers = f"<{lanes} x i32>"
    covered = w.emit(f"icmp ne i64 {a['covered']}, 0")
    size = w.times(w.times(a["height"], a["width"]), a["channels"])

    def one(n: str, _: list[str]) -> list[str]:
        clear, begin = w.label(), w.label()
        w(f"br i1 {covered}, label %{begin}, label %{clear}")
        w.at(clear, jump=False)
        own = w.place("float", result, w.times(n, size))
        w(f"call void @llvm.memset.p0.i64(ptr {own}, i8 0, i64 {w.times(size, 4)}, i1 false)")
        w.at(begin)

        def row(line: str, _: list[str]) -> list[str]:
            def column(q: str, _: list[str]) -> list[str]:
                window = _Window(w, n, line, q)
                at = w.plus(w.times(w.plus(w.times(n, a["rows"]), line), a["columns"]), q)
                source = w.place("float", slope, w.times(at, a["channels"]))

                def some(c: str, _: list[str]) -> list[str]:
                    def number(value: str) -> str:
                        one = w.emit(
                            f"insertelement {numbers} poison, i32 {w.emit(f'trunc i64 {value} to i32')}, i64 0"
                        )
                        return w.emit(f"shufflevector {numbers} {one}, {numbers} poison, {numbers} zeroinitializer")

                    def look(address: str, at: str, values: list[str]) -> list[str]:
                        value = w.vector(address, c)
                        where = _largest(w, value, values[0])
                        return [
                            _select(w, where, w.type, value, values[0]),
                            _select(w, where, numbers, number(at), values[1]),
                        ]

                    least = [(w.type, _spread(_INFINITE, "float", lanes)), (numbers, "zeroinitializer")]
                    chosen = window.each(image, look, least)[1]
                    gradient = w.vector(source, c)

                    def give(address: str, at: str, _: list[str]) -> list[str]:
                        here = w.emit(f"icmp eq {numbers} {chosen}, {number(at)}")
                        part = _select(w, here, w.type, gradient, "zeroinitializer")
                        offset = w.emit(f"ptrtoint ptr {address} to i64")
                        target = w.emit(f"inttoptr i64 {w.plus(offset, moved)} to ptr")
                        add, write = w.label(), w.label()
                        origin = w.here
                        w(f"br i1 {covered}, label %{write}, label %{add}")
                        w.at(add, jump=False)
                        total = w.add(part, w.vector(target, c))
                        w.at(write)
                        value = w.emit(f"phi {w.type} [ {part}, %{origin} ], [ {total}, %{add} ]")
                        w.store(value, target, c)
                        return []

                    window.each(image, give, [])
                    return []

                w.loop("0", a["channels"], lanes, some)
                return []

            w.loop("0", a["columns"], 1, column)
            return []

        moved = w.minus(a["result"], a["image"])
        w.loop("0", a["rows"], 1, row)
        return []

    w.loop("%begin", "%end", 1, one)
    return w.finished(name, attributes)


class _Tile:
    """The places of an image (N, height, width, channels) in a window of tall x wide, where windows lie side by side.

    row: of the result, of all images'.
    """

    def __init__(self, w: Vectors, base: str, row: str, column: str, size: tuple[int, int]) -> None:
        a, (tall, wide) = w.args, size
        n, line = _rows(w, row)
        top = w.plus(w.times(n, a["height"]), w.times(line, tall))
        self.start = w.times(w.plus(w.times(row, a["columns"]), column), a["channels"])  # of the result's place
        self.places = []
        for i in range(tall):
            left = w.plus(w.times(w.plus(top, i), a["width"]), w.times(column, wide))
            self.places += [w.place("float", base, w.times(w.plus(left, j), a["channels"])) for j in range(wide)]


def _tiles(w: Vectors, base: str, size: tuple[int, int], rows: tuple[str, str], body: Callable[..., None]) -> None:
    """`body(tile, row, channel)` of each vector of channels of each window in the rows of all images' results."""
    a = w.args

    def row(at: str, _: list[str]) -> list[str]:
        def column(q: str, _: list[str]) -> list[str]:
            tile = _Tile(w, base, at, q, size)
            w.loop("0", a["channels"], w.lanes, lambda c, _: body(tile, at, c) or [])  # type: ignore[func-returns-value]
            return []

        w.loop("0", a["columns"], 1, column)
        return []

    w.loop(*rows, 1, row)


@functools.cache
def tile_max(name: str, lanes: int, tall: int, wide: int, rectified: bool, indexed: bool, attributes: str = "") -> str:
    """The rows begin..end, of all images' results, of windows that lie side by side.

    rectified: at least 0.  indexed: the number of each maximum's place in its window goes to `chosen`, uint8; 255 where
    none is above 0.
    """
    w = Vectors(TILES, lanes)
    image, result, codes = map(w.pointer, ("image", "result", "chosen"))
    bytes_ = f"<{lanes} x i8>"

    def body(tile: _Tile, _: str, c: str) -> None:
        most, chosen = _spread("0.0" if rectified else _INFINITE, "float", lanes), _spread("-1", "i8", lanes)
        for n, place in enumerate(tile.places):
            value = w.vector(place, c)
            where = _largest(w, value, most)
            most = _select(w, where, w.type, value, most)
            if indexed:
                chosen = _select(w, where, bytes_, _spread(str(n), "i8", lanes), chosen)
        at = w.plus(tile.start, c)
        w.store(most, result, at)
        if indexed:
            w(f"store {bytes_} {chosen}, ptr {w.place('i8', codes, at)}, align 1")

    _tiles(w, image, (tall, wide), ("%begin", "%end"), body)
    return w.finished(name, attributes)


@functools.cache
def tile_gradient(name: str, lanes: int, tall: int, wide: int, summed: bool, attributes: str = "") -> str:
    """The gradients of the images begin..end, all of whose places are in one window, from `chosen` of `tile_max`.

    summed: what passes is added to sums (N, channels), too.
    """
    w = Vectors(TILES, lanes)
    slope, result, codes, sums = map(w.pointer, ("slope", "result", "chosen", "sums"))
    rows, bytes_ = w.args["rows"], f"<{lanes} x i8>"

    def body(tile: _Tile, row: str, c: str) -> None:
        at = w.plus(tile.start, c)
        gradient = w.vector(slope, at)
        chosen = w.emit(f"load {bytes_}, ptr {w.place('i8', codes, at)}, align 1")
        for n, place in enumerate(tile.places):
            here = w.emit(f"icmp eq {bytes_} {chosen}, {_spread(str(n), 'i8', lanes)}")
            w.store(_select(w, here, w.type, gradient, "zeroinitializer"), place, c)
        if summed:
            passed = w.emit(f"icmp sge {bytes_} {chosen}, zeroinitializer")
            own = w.place("float", sums, w.times(_rows(w, row)[0], w.args["channels"]))
            w.store(w.add(w.vector(own, c), _select(w, passed, w.type, gradient, "zeroinitializer")), own, c)

    _tiles(w, result, (tall, wide), (w.times("%begin", rows), w.times("%end", rows)), body)
    return w.finished(name, attributes)


@functools.cache
def scale(name: str, lanes: int, offset: int, attributes: str = "") -> str:
    """Batch norm by given statistics, of the pixels begin..end.

    The arrays are given as objects of numpy, whose memory's address is `offset` bytes after theirs.  buffer: two
    numbers per channel; eps: a float64.
    """
    w = Vectors(SCALE, lanes)
    image, result, mean, variance, weight, bias, buffer = (
        w.emit(f"load ptr, ptr {w.emit(f'inttoptr i64 {w.plus(w.args[p], offset)} to ptr')}, align 8")
        for p in (*SCALE[:6], "buffer")
    )
    channels = w.args["channels"]
    shifts = w.place("float", buffer, channels)
    given = w.emit(f"bitcast i64 {w.args['eps']} to double")
    eps = w.spread_value(w.emit(f"fptrunc double {given} to float"))

    def vectors(c: str, _: list[str]) -> list[str]:
        root = w.emit(f"call {w.type} @llvm.sqrt.v{lanes}f32({w.type} {w.add(w.vector(variance, c), eps)})")
        factor = w.emit(f"fdiv {w.type} {w.vector(weight, c)}, {root}")
        w.store(factor, buffer, c)
        product = w.emit(f"fmul contract {w.type} {w.vector(mean, c)}, {factor}")
        w.store(w.sub(w.vector(bias, c), product), shifts, c)
        return []

    w.loop("0", channels, lanes, vectors)

    def pixel(p: str, _: list[str]) -> list[str]:
        start = w.times(p, channels)
        source, target = w.place("float", image, start), w.place("float", result, start)

        def some(c: str, _: list[str]) -> list[str]:
            product = w.emit(f"fmul contract {w.type} {w.vector(source, c)}, {w.vector(buffer, c)}")
            w.store(w.add(product, w.vector(shifts, c)), target, c)
            return []

        w.loop("0", channels, lanes, some)
        return []

    w.loop("%begin", "%end", 1, pixel)
    return w.finished(name, attributes)
