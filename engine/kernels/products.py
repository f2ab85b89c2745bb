"""Products of matrices: of any two in memory, of a few rows and one that is packed in panels for the steps of a
recurrent layer, and of a few rows and one as a file has it.

A matrix in a file has a row per output.  Its elements are float32, float16 or bfloat16, or blocks of 32 small integers
with a float16 scale `d` (GGUF's Q8_0: d, 32 signed bytes q, d * q; Q4_0: d, 16 bytes with two numbers q each, the
first 16 in the low halves, d * (q - 8)).  Other quantized types are repacked to groups of 16 or 32 signed bytes q
behind a scale and a shift in float32, scale * q + shift.  Elements become float32 in registers, exactly, so that memory
is read once and in the size that the file has.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator

from engine.kernels.form import Array, Kernel, Value, call
from engine.kernels.jobs import Jobs, least
from engine.kernels.llvm_jobs import in_llvm

__all__ = [
    "BLOCKS",
    "FORMS",
    "PACKED_PARAMETERS",
    "PARAMETERS",
    "WIDE_PARAMETERS",
    "matrices",
    "narrow",
    "packed",
    "panels",
    "widened",
]

MULTIPLIED = 16  # operations of a call's `each`, as `cpu.operations` counts them: 16 multiplications in vectors
NARROW = 4  # columns, of fewer of which there are no vectors
HEIGHTS = {4: (6, 3, 1), 3: (8, 4, 2, 1), 2: (6, 3, 1)}  # rows of results that stay in registers, of so many vectors
_PLACES = 64  # of a matrix's depth that are copied at a time
_SIZES = (
    *("rows", "depth", "width", "band", "bands", "columns", "column_bands", "row", "step", "line"),
    *("inner", "left_outer", "left_inner", "right_outer", "right_inner"),
)


def matrices(
    type: str, bias: str, left: str, right: str, lanes: int, vectors: int, heights: tuple[int, ...], ahead: int
) -> Jobs:
    """out (outer, inner, rows, width) = [bias +] left (.., rows, depth) @ right (.., depth, width), for the units
    begin..end, each of `band` rows and `columns` columns of a product, which has `bands` times `column_bands` of them.

    bias: "" for none, "rows" for an element a row (rows), "columns" for one a column (width).  Left's elements lie
    `row` and `step` apart, a line of right `line`.  width >= lanes; `columns` is a multiple of lanes.
    left: "" for any steps, "lines" for a step of 1, "transposed" for a row of 1: a unit packs its rows first, those of
    a tile side by side, to its part of lines (units, band, depth + lanes).
    right: "" as it is laid out, "lines" or "columns" by what is contiguous: a unit packs `vectors` vectors of columns
    before they are multiplied, to its part of panel (units, depth, vectors * lanes).
    heights: rows of a tile, the last 1.  ahead: lines of right that are asked for before they are read.
    Sums are made in the order of the depth, each result in one chain, whatever sizes it is a part of.
    """
    names = (
        "left",
        "right",
        *["bias"] * bool(bias),
        "out",
        *["panel"] * bool(right),
        *["lines"] * (left == "transposed"),
    )
    k = Jobs("matrices", lanes, (*names, *_SIZES), len(names), dict.fromkeys(names, type))
    k.operations = MULTIPLIED
    arrays, a = dict(zip(names, k.arrays)), k.numbers
    rows, depth, width, row, step, line = (a[name] for name in ("rows", "depth", "width", "row", "step", "line"))
    nothing = k.number(0.0, type)

    def tile(count: int, size: int, at: Value, row_at: Value, own: Array) -> None:
        """`size` rows of `count` vectors."""
        if bias == "columns":
            sums = [k.vector(arrays["bias"], at + j * lanes) for j in range(count)] * size
        elif bias:
            sums = [k.spread(k.load(arrays["bias"], row_at + i)) for i in range(size) for _ in range(count)]
        else:
            sums = [nothing] * (count * size)
        sums = k.variables(sums)
        pace: Value | int = size if left == "transposed" else 1 if left else step
        if left == "transposed":
            lines = [k.view(tiles(row_at), i) for i in range(size)]
        else:
            lines = [k.view(given, (row_at + i) * row) for i in range(size)]
        k.add_products(sums, lines, depth, pace, own, count * lanes if right else line, ahead)
        k.store_all(k.vectors([k.view(made, (row_at + i) * width + at) for i in range(size)], count), sums)

    def copied(count: int, at: Value) -> Array:
        """`count` vectors of columns, copied."""
        own = k.view(arrays["panel"], unit * depth * (vectors * lanes))
        if right == "columns":
            _transpose(
                k, k.view(matrix, at * line), line, k.constant(count * lanes, "index"), own, count * lanes, depth
            )
            return own
        source = k.view(matrix, at)
        with k.loop(0, depth) as n:
            to, one = k.view(own, n * (count * lanes)), k.view(source, n * line)
            for j in range(count):
                k.store(to, j * lanes, k.vector(one, j * lanes))
        return own

    def cut(count: Value, start: Value) -> Iterator[tuple[int, Value]]:
        """(rows, the first) of the tiles of `count` rows."""
        for size, i in k.cut(count, heights):
            yield size, start + i

    def columns(count: int, at: Value) -> None:
        """All rows of the unit, of `count` vectors of columns."""
        own = copied(count, at) if right else k.view(matrix, at)
        for size, i in cut(last - first, first):
            tile(count, size, at, i, own)

    def tiles(i: Value) -> Array:
        """Where the rows from i on are copied to."""
        return k.view(arrays["lines"], (unit * a["band"] + i - first) * (depth + lanes))

    def pack() -> None:
        """Copy the rows of the unit, some places of the depth at a time, whose lines stay in the first cache.  What
        vectors write beyond a tile's rows is written again, or is behind the tile."""
        with k.loop(0, depth, _PLACES) as some:
            until = least(some + _PLACES, depth)
            for size, i in cut(last - first, first):
                to, source, whole = tiles(i), k.view(given, i), i + lanes <= rows
                with k.when(whole), k.loop(some, until) as n:
                    for r in (*range(0, size - lanes, lanes), max(0, size - lanes)):
                        k.store(to, n * size + r, k.vector(source, n * step + r))
                with k.when(i + lanes > rows), k.loop(some, until) as n:
                    for r in range(size):
                        k.store(to, n * size + r, k.load(source, n * step + r))

    units = a["bands"] * a["column_bands"]
    with k.loop(k.begin, k.end) as unit:
        batch, place = unit // units, unit % units
        first, start = place // a["column_bands"] * a["band"], place % a["column_bands"] * a["columns"]
        last, end = least(first + a["band"], rows), least(start + a["columns"], width)
        outer, inner = batch // a["inner"], batch % a["inner"]
        given, matrix = (
            k.view(arrays[name], outer * a[f"{name}_outer"] + inner * a[f"{name}_inner"]) for name in ("left", "right")
        )
        made = k.view(arrays["out"], batch * rows * width)
        if left == "transposed":
            pack()
        for count, at in k.cut((end - start) // lanes, (vectors, 1) if vectors > 1 else (1,)):
            columns(count, start + at * lanes)
        with k.when(((end - start) % lanes).differs(0)):  # the last vector overlaps the one before
            columns(1, width - lanes)
    return k


@functools.cache
def narrow(columns: int, biased: bool) -> Callable[[str], Kernel]:
    """left (rows, depth) @ right (depth, columns) [+ bias (columns)] -> (rows, columns), of a few columns.

    `row` and `step`: how far left's elements are apart, `line` and `column` right's.
    """

    def write(type: str) -> Kernel:
        k = Kernel("narrow", "rows")
        left, right = k.array("left", type), k.array("right", type)
        bias = k.array("bias", type) if biased else None
        out = k.array("out", type, True)
        sizes = ("depth", "row", "step", "line", "column")
        depth, row, step, line, column = (k.scalar(name, "index") for name in sizes)
        start = k.index * row

        def product(c: int) -> Value:
            found: Value = k.reduce(
                "sum", depth, lambda j: k.load(left, start + j * step) * k.load(right, j * line + column * c)
            )
            return found

        sums = [product(c) for c in range(columns)]
        with k.once():
            for c, found in enumerate(sums):
                k.store(out, k.index * columns + c, found if bias is None else found + k.load(bias, c))
        return k

    return write


def _transpose(
    k: Jobs, source: Array, line: Value, lines: Value, target: Array, wide: Value | int, depth: Value
) -> None:
    """target[d * wide + l] = source[l * line + d] for l < lines, d < depth."""
    lanes = k.lanes
    many, whole = lines - lines % lanes, depth - depth % lanes
    with k.loop(0, many, lanes) as l:
        given = [k.view(source, (l + i) * line) for i in range(lanes)]
        to = k.view(target, l)
        with k.loop(0, whole, lanes) as d:
            for i, column in enumerate(k.transposed([k.vector(one, d) for one in given])):
                k.store(to, (d + i) * wide, column)
        with k.loop(whole, depth) as d:
            for i, one in enumerate(given):
                k.store(to, d * wide + i, k.load(one, d))
    with k.loop(many, lines) as l:
        one = k.view(source, l * line)
        with k.loop(0, depth) as d:
            k.store(target, d * wide + l, k.load(one, d))


PARAMETERS = ("left", "right", "out", "rows", "depth", "width", "added")
_ROWS = (6, 4, 2, 1)


@in_llvm
def panels(lanes: int, vectors: int) -> Jobs:
    """Of the panels begin..end: out (rows, width) = [out +] left (rows, depth) @ right.

    right: (width / panel, depth, panel), a panel being `vectors` * `lanes` columns; added: out is added to.
    """
    k = Jobs("panels", lanes, PARAMETERS, 3)
    left, right, out = k.arrays
    rows, depth, width, added = k.numbers.values()
    add, panel = added.differs(0), vectors * lanes
    with k.loop(k.begin, k.end) as p:
        own = k.view(right, p * depth * panel)
        for count, row in k.cut(rows, _ROWS):
            target, start = k.view(out, row * width + p * panel), k.view(left, row * depth)
            places = k.vectors([k.view(target, width * i) for i in range(count)], vectors)
            sums = k.load_where(add, places)
            k.add_products(sums, [k.view(start, depth * i) for i in range(count)], depth, 1, own, panel)
            k.store_all(places, sums)
    return k


BLOCKS = {"q8_0": (32, 34), "q4_0": (32, 18), "groups_32": (32, 40), "groups_16": (16, 24)}  # values, bytes of a block
FORMS = {
    "float32": "float32",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "q8_0": "int8",
    "q4_0": "uint8",
    "groups_32": "int8",
    "groups_16": "int8",
}
# right, scales: the same memory, as values and as float16 (float32 of groups)
PACKED_PARAMETERS = ("left", "right", "scales", "bias", "out", "depth", "width", "biased", "added")
WIDE_PARAMETERS = ("right", "scales", "out", "depth")


class _Rows:
    """Rows of `depth` elements of a matrix as a file has it."""

    def __init__(self, k: Jobs, form: str, right: Array, scales: Array, depth: Value) -> None:
        self.k, self.form, self.right, self.scales, self.depth = k, form, right, scales, depth
        self.size, self.block = BLOCKS.get(form, (4 * k.lanes, 0))
        self.step = self.size  # elements that are read at a time
        self.pitch = self.block // (4 if scales.type == "float32" else 2)  # of a block, in scales

    def line(self, row: Value) -> tuple[Array, Array]:
        """The places of a row's values and scales."""
        k = self.k
        if not self.block:
            return k.view(self.right, row * self.depth), self.scales
        start = row * (self.depth // self.size)
        return k.view(self.right, start * self.block), k.view(self.scales, start * self.pitch)

    def values(self, line: tuple[Array, Array], at: Value) -> list[Value]:
        """The `step` elements of a row from `at` on, as vectors of float32."""
        k, (values, scales) = self.k, line
        if not self.block:
            return [k.vector(values, at + j) for j in range(0, self.step, k.lanes)]
        number, wide = at // self.size, f"float32*{k.lanes}"
        scale = k.spread(k.load(scales, number * self.pitch))
        if self.form == "q4_0":
            codes = k.view(values, number * self.block + 2)
            pairs = [k.cast(k.vector(codes, j), f"int32*{k.lanes}") for j in range(0, self.size // 2, k.lanes)]
            middle = scale * -8.0
            halves = [k.op("and", b, 15) for b in pairs] + [k.op("shr", b, 4) for b in pairs]
            return [call("fma", k.cast(b, wide), scale, middle) for b in halves]
        codes = k.view(values, number * self.block + (2 if self.form == "q8_0" else 8))
        numbers = [k.cast(k.vector(codes, j), wide) for j in range(0, self.size, k.lanes)]
        if self.form == "q8_0":
            return [one * scale for one in numbers]
        shift = k.spread(k.load(scales, number * self.pitch + 1))
        return [call("fma", one, scale, shift) for one in numbers]

    def numbers(self, line: tuple[Array, Array], block: Value) -> tuple[list[Value], Value]:
        """(the integers of a block of Q8_0 or Q4_0, as vectors of float32, its scale)."""
        k, wide, (values, scales) = self.k, f"float32*{self.k.lanes}", line
        scale, codes = k.spread(k.load(scales, block * self.pitch)), k.view(values, block * self.block + 2)
        if self.form == "q8_0":
            return [k.cast(k.vector(codes, j), wide) for j in range(0, self.size, k.lanes)], scale
        pairs = [k.cast(k.vector(codes, j), f"int32*{k.lanes}") for j in range(0, self.size // 2, k.lanes)]
        if k.lanes == 16:  # AVX-512: one instruction, which reads the lowest four bits only
            table = k.vector_of([float(q - 8) for q in range(16)])
            return [k.looked_up(table, b) for b in pairs] + [
                k.looked_up(table, k.op("shr", b, 4)) for b in pairs
            ], scale
        halves = [k.op("and", b, 15) for b in pairs] + [k.op("shr", b, 4) for b in pairs]
        return [k.cast(b - 8, wide) for b in halves], scale

    def rest(self) -> Value:
        """The first element that is in no whole step; blocks have none."""
        return self.depth - self.depth % self.step


def _types(form: str) -> dict[str, str]:
    return {"right": FORMS[form], "scales": "float32" if form.startswith("groups") else "float16"}


@in_llvm
def packed(form: str, lanes: int, rows: int) -> Jobs:
    """Of the outputs begin..end: out (rows, width) = [out +] left (rows, depth) @ right (width, depth)^T [+ bias].

    form: of FORMS.  rows: 1 to 8.  biased: bias (width) is added; added: out is added to.  Sums are in float32, in as
    many parts as a vector has lanes, of one row in four times as many; of one row and Q8_0 or Q4_0, the products with a
    block's integers are added up before its scale multiplies them.  One output is summed after the other: memory
    that is read from front to back comes in time, several lines side by side do not (Q8_0 of 768 columns: 0.43 of the
    time).
    """
    k = Jobs("packed", lanes, PACKED_PARAMETERS, 5, _types(form))
    left, right, scales, bias, out = k.arrays
    depth, width, biased, added = k.numbers.values()
    matrix = _Rows(k, form, right, scales, depth)
    inputs = [k.view(left, depth * r) for r in range(rows)]
    chains = {1: 4, 2: 2, 3: 2}.get(rows, 1)  # sums of a row that do not wait for each other
    with k.loop(k.begin, k.end) as place:
        line = matrix.line(place)
        sums = [k.variables([k.number(0.0)] * rows) for _ in range(chains)]
        by_block = rows == 1 and form in ("q8_0", "q4_0")
        for count, first in k.cut(depth // matrix.size, (chains, 1)) if by_block else ():
            for j in range(count):
                block = first + j
                codes, scale = matrix.numbers(line, block)
                own = k.view(inputs[0], block * matrix.size)
                part = codes[0] * k.vector(own)
                for n, code in enumerate(codes[1:], 1):
                    part = call("fma", code, k.vector(own, n * lanes), part)
                k.set(sums[j][0], call("fma", part, scale, sums[j][0]))
        with k.loop(0, 0 if by_block else matrix.rest(), matrix.step) as at:
            for j, weight in enumerate(matrix.values(line, at)):
                for total, one in zip(sums[j % chains], inputs):
                    k.set(total, call("fma", weight, k.vector(one, at + j * lanes), total))
        found = k.variables([k.total(functools.reduce(operator.add, parts)) for parts in zip(*sums)])
        if not matrix.block:
            with k.loop(matrix.rest(), depth) as at:
                weight = k.load(line[0], at)
                for total, one in zip(found, inputs):
                    k.set(total, total + weight * k.load(one, at))
        for r, total in enumerate(found):
            target = place + width * r
            with k.when(biased.differs(0)):
                k.set(total, total + k.load(bias, place))
            with k.when(added.differs(0)):
                k.set(total, total + k.load(out, target))
            k.store(out, target, total)
    return k


@in_llvm
def widened(form: str, lanes: int) -> Jobs:
    """Write the rows begin..end of a matrix (FORMS), from the first on, as float32 to out (end - begin, depth)."""
    k = Jobs("widened", lanes, WIDE_PARAMETERS, 3, _types(form))
    right, scales, out = k.arrays
    (depth,) = k.numbers.values()
    matrix = _Rows(k, form, right, scales, depth)
    with k.loop(k.begin, k.end) as row:
        line, target = matrix.line(row), k.view(out, row * depth)
        with k.loop(0, matrix.rest(), matrix.step) as at:
            for j, value in enumerate(matrix.values(line, at)):
                k.store(target, at + j * lanes, value)
        if not matrix.block:
            with k.loop(matrix.rest(), depth) as at:
                k.store(target, at, k.load(line[0], at))
    return k
