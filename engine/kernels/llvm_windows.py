"""Convolutions of channels-last images as they are defined, in LLVM's language: any kernel, stride and dilation.

Each function is `void NAME(ptr args, i64 begin, i64 end)`; args has 8 bytes for each of its parameters, addresses or
numbers.  The names:
  image (N, height, width, channels), results (N, rows, columns, outputs); above, left: the padding; tall, wide: of
  the kernel, whose places are `dilation` pixels from one another, as windows are `step` pixels.
  zeros: as many as a pixel has channels, read where there is no image.
  panel: the outputs that a row of registers holds.
"""

from __future__ import annotations

import functools

from engine.kernels.llvm_text import Vectors

__all__ = ["FORWARD", "GRADIENT", "forward", "gradient"]

_WINDOWS = (
    "height",
    "width",
    "channels",
    "rows",
    "columns",
    "outputs",
    "tall",
    "wide",
    "step_down",
    "step_across",
    "above",
    "left",
    "dilation_down",
    "dilation_across",
)
FORWARD = (
    "image",
    "weights",
    "result",
    "bias",
    "zeros",
    *_WINDOWS,
    "pixels",
    "block",
    "part",
    "made_rows",
    "made_columns",
    "made_down",
    "made_across",
    "made_top",
    "made_side",
)
GRADIENT = ("image", "slope", "made", *_WINDOWS, "count", "chunk", "block")


def _least(w: Vectors, x: object, y: object) -> str:
    return w.emit(f"call i64 @llvm.smin.i64(i64 {x}, i64 {y})")


@functools.cache
def forward(name: str, lanes: int, rows: int, vectors: int, attributes: str = "") -> str:
    """The jobs begin..end of a convolution; `rows` pixels by `vectors` vectors of outputs stay in registers.

    weights (outputs / panel, tall, wide, channels, panel), bias (outputs).  Results are numbered from 0 to `pixels`;
    that of (row, column) belongs at (row * made_down + made_top, column * made_across + made_side) of images of
    made_rows x made_columns.  A job is a panel of a block of results; the panels of a block follow one another, so that
    what they read stays in the cache, and of the kernel `part` rows are read for all of it before the next are: what is
    summed until then waits where it belongs.
    """
    w = Vectors(FORWARD, lanes)
    image, weights, result, bias, zeros = map(w.pointer, FORWARD[:5])
    a = w.args
    channels, outputs, panel = a["channels"], a["outputs"], vectors * lanes
    panels = w.emit(f"udiv i64 {outputs}, {panel}")
    spot = w.times(channels, panel)  # weights of a place of the kernel
    line = w.times(spot, a["wide"])
    size = w.times(line, a["tall"])

    def job(number: str, _: list[str]) -> list[str]:
        block = w.emit(f"udiv i64 {number}, {panels}")
        which = w.minus(number, w.times(block, panels))
        first = w.times(block, a["block"])
        last = _least(w, w.plus(first, a["block"]), a["pixels"])
        own = w.place("float", weights, w.times(which, size))
        made = w.place("float", result, w.times(which, panel))
        shift = w.place("float", bias, w.times(which, panel))

        def part(top: str, _: list[str]) -> list[str]:
            bottom = _least(w, w.plus(top, a["part"]), a["tall"])
            begun = w.emit(f"icmp eq i64 {top}, 0")

            def few(pixel: str, _: list[str]) -> list[str]:
                spots, corners = [], []
                for i in range(rows):
                    at = _least(w, w.plus(pixel, i), w.minus(last, 1))  # those beyond the last are the last again
                    line_number = w.emit(f"udiv i64 {at}, {a['columns']}")
                    column = w.minus(at, w.times(line_number, a["columns"]))
                    n = w.emit(f"udiv i64 {line_number}, {a['rows']}")
                    row = w.minus(line_number, w.times(n, a["rows"]))
                    y = w.minus(w.times(row, a["step_down"]), a["above"])
                    x = w.minus(w.times(column, a["step_across"]), a["left"])
                    corners.append((w.times(n, a["height"]), y, x))
                    down = w.plus(w.times(row, a["made_down"]), a["made_top"])
                    across = w.plus(w.times(column, a["made_across"]), a["made_side"])
                    place = w.plus(w.times(n, a["made_rows"]), down)
                    place = w.plus(w.times(place, a["made_columns"]), across)
                    target = w.place("float", made, w.times(place, outputs))
                    spots += [w.place("float", target, j * lanes) for j in range(vectors)]
                # a result begins with its bias: the address of each is chosen, not its value
                shifts = [w.place("float", shift, j * lanes) for j in range(vectors)] * rows
                sources = [w.emit(f"select i1 {begun}, ptr {b}, ptr {s}") for b, s in zip(shifts, spots)]

                def down(i: str, sums: list[str]) -> list[str]:
                    moved = w.times(i, a["dilation_down"])
                    lines = []
                    for start, y, _ in corners:
                        y = w.plus(y, moved)
                        inside = w.emit(f"icmp ult i64 {y}, {a['height']}")
                        lines.append((inside, w.times(w.plus(start, y), a["width"])))
                    right = w.place("float", own, w.times(i, line))

                    def across(j: str, sums: list[str]) -> list[str]:
                        aside = w.times(j, a["dilation_across"])
                        pixels = []
                        for (_, _, x), (inside, start) in zip(corners, lines):
                            x = w.plus(x, aside)
                            also = w.emit(f"icmp ult i64 {x}, {a['width']}")
                            both = w.emit(f"and i1 {inside}, {also}")
                            address = w.place("float", image, w.times(w.plus(start, x), channels))
                            pixels.append(w.emit(f"select i1 {both}, ptr {address}, ptr {zeros}"))
                        at = w.place("float", right, w.times(j, spot))
                        return w.products_of(pixels, vectors, channels, "1", at, str(panel), sums)

                    return w.loop("0", a["wide"], 1, across, [(w.type, s) for s in sums])

                sums = w.loop(top, bottom, 1, down, [(w.type, w.vector(s)) for s in sources])
                for at, value in zip(spots, sums):
                    w.store(value, at)
                return []

            w.loop(first, last, rows, few)
            return []

        w.loop("0", a["tall"], a["part"], part)
        return []

    w.loop("%begin", "%end", 1, job)
    return w.finished(name, attributes)


@functools.cache
def gradient(name: str, lanes: int, rows: int, vectors: int, attributes: str = "") -> str:
    """The jobs begin..end of the gradient of the kernels, made (tall, wide, channels, outputs), of `count` images.

    slope (N, rows, columns, outputs): the gradient of the results.  A job is a panel of `chunk` channels at a place of
    the kernel.  All of them take `block` rows of results, which stay in the cache, before the next; what these give is
    summed by itself before it joins what was summed, so that less is lost.
    """
    w = Vectors(GRADIENT, lanes)
    image, slope, mades = map(w.pointer, GRADIENT[:3])
    a = w.args
    channels, outputs, panel = a["channels"], a["outputs"], vectors * lanes
    panels = w.emit(f"udiv i64 {outputs}, {panel}")
    chunks = w.emit(f"udiv i64 {w.plus(channels, w.minus(a['chunk'], 1))}, {a['chunk']}")
    lines = w.times(a["count"], a["rows"])
    pace = w.times(a["step_across"], channels)

    def met(at: str, step: str, padding: str, dilation: str, size: str, most: str) -> tuple[str, str, str]:
        """(the place that the first window's overlaps, from which, to which window it is in the image)."""
        start = w.minus(w.times(at, dilation), padding)
        before = w.emit(f"sdiv i64 {w.minus(w.minus(step, 1), start)}, {step}")
        after = w.emit(f"sdiv i64 {w.plus(w.minus(w.minus(size, 1), start), step)}, {step}")
        begin = w.emit(f"call i64 @llvm.smax.i64(i64 {before}, i64 0)")
        some = w.emit(f"icmp sle i64 {start}, {w.minus(size, 1)}")
        return start, begin, w.emit(f"select i1 {some}, i64 {_least(w, after, most)}, i64 0")

    def block(first: str, _: list[str]) -> list[str]:
        last = _least(w, w.plus(first, a["block"]), lines)
        later = w.emit(f"icmp ne i64 {first}, 0")

        def job(number: str, _: list[str]) -> list[str]:
            front = w.emit(f"udiv i64 {number}, {chunks}")
            chunk = w.times(w.minus(number, w.times(front, chunks)), a["chunk"])
            tap = w.emit(f"udiv i64 {front}, {panels}")
            o = w.times(w.minus(front, w.times(tap, panels)), panel)
            i = w.emit(f"udiv i64 {tap}, {a['wide']}")
            j = w.minus(tap, w.times(i, a["wide"]))
            top, first_row, last_row = met(i, a["step_down"], a["above"], a["dilation_down"], a["height"], a["rows"])
            side, begin, end = met(j, a["step_across"], a["left"], a["dilation_across"], a["width"], a["columns"])
            depth = w.minus(end, begin)
            x = w.plus(side, w.times(begin, a["step_across"]))
            target = w.place("float", mades, w.plus(w.times(w.times(tap, channels), outputs), o))
            own = w.place("float", slope, w.plus(w.times(begin, outputs), o))

            def few(c: str, _: list[str]) -> list[str]:
                places = [_least(w, w.plus(c, n), w.minus(channels, 1)) for n in range(rows)]  # the last once more

                def row(line: str, sums: list[str]) -> list[str]:
                    n = w.emit(f"udiv i64 {line}, {a['rows']}")
                    r = w.minus(line, w.times(n, a["rows"]))
                    enough = w.emit(f"icmp sge i64 {r}, {first_row}")
                    both = w.emit(f"and i1 {enough}, {w.emit(f'icmp slt i64 {r}, {last_row}')}")
                    many = w.emit(f"select i1 {both}, i64 {depth}, i64 0")
                    y = w.plus(w.plus(w.times(n, a["height"]), top), w.times(r, a["step_down"]))
                    start = w.place("float", image, w.times(w.plus(w.times(y, a["width"]), x), channels))
                    lefts = [w.place("float", start, p) for p in places]
                    at = w.place("float", own, w.times(w.times(line, a["columns"]), outputs))
                    return w.products_of(lefts, vectors, many, pace, at, outputs, sums)

                sums = w.loop(first, last, 1, row, [(w.type, "zeroinitializer")] * (rows * vectors))
                spots = []
                for p in places:
                    at = w.place("float", target, w.times(p, outputs))
                    spots += [w.place("float", at, v * lanes) for v in range(vectors)]
                for spot, value in zip(spots, [w.add(s, b) for s, b in zip(sums, w.begun(spots, later))]):
                    w.store(value, spot)
                return []

            w.loop(chunk, _least(w, w.plus(chunk, a["chunk"]), channels), rows, few)
            return []

        w.loop("%begin", "%end", 1, job)
        return []

    w.loop("0", lines, a["block"], block)
    return w.finished(name, attributes)
