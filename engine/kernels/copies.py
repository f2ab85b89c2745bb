"""Kernels that copy an array of any strides into the order of its dims."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from engine.kernels.elementwise import Class, Walk
from engine.kernels.form import Kernel, Value, both, where
from engine.kernels.jobs import Jobs, least
from engine.kernels.llvm_jobs import in_llvm

__all__ = [
    "TRANSPOSED",
    "added_at",
    "copied",
    "joined",
    "looked_up",
    "moved",
    "outside",
    "paired",
    "placed",
    "rolled",
    "taken",
    "transposed",
]

TRANSPOSED = (
    *("source", "target", "rows", "columns", "inner", "step_outer", "step_inner", "step_column"),
    *("apart_outer", "apart_inner", "apart_row"),
)


@functools.cache
def copied(dims: int, width: int, apart: int = 0) -> Callable[[str], Kernel]:
    """x (*outer, m, n) of any strides -> the same, contiguous.  Rows are `outer`, of `dims` dims.

    A row is m lines of n elements, so that the place of a line is found by an addition, where that of a row takes a
    division for each dim.  Strides are in elements.  width: n where it is written out, else 0; apart: likewise the
    step of its neighbours, so that vectors of all that lies between are read and shuffled.
    """

    def write(type: str) -> Kernel:
        k = Kernel("copied", "rows")
        x, out = k.array("x", type), k.array("out", type, True)
        sizes = [k.scalar(f"n{d}", "index") for d in range(1, dims)]
        strides = [k.scalar(f"s{d}", "index") for d in range(dims)]
        m, beside, n, step = (k.scalar(name, "index") for name in ("m", "apart", "n", "step"))
        left, base = k.index, k.constant(0, "index")
        for size, stride in zip(reversed(sizes), reversed(strides[1:])):
            base, left = base + left % size * stride, left // size
        begin = base + left * strides[0]
        with k.loop(0, m) as at:
            start, own = begin + at * beside, k.index * m + at
            if width:
                values = [k.load(x, start + (apart or step) * place) for place in range(width)]
                for place, value in enumerate(values):
                    k.store(out, own * width + place, value)
            else:
                with k.each(n) as j:
                    k.store(out, own * n + j, k.load(x, start + step * j))
        return k

    return write


@functools.cache
def joined(widths: Sequence[int]) -> Callable[[str], Kernel]:
    """Parts (lines, n), (lines, m) ... -> (lines, n + m + ...).  Rows are of `several` lines each.

    widths: n, m ... where a line is written out, else 0.  Strides of lines are in elements.
    """

    def write(type: str) -> Kernel:
        k = Kernel("joined", "rows")
        parts = [k.array(f"x{n}", type) for n in range(len(widths))]
        out = k.array("out", type, True)
        several, total = k.scalar("several", "index"), k.scalar("total", "index")
        sizes = [(k.scalar(f"n{n}", "index"), k.scalar(f"apart{n}", "index")) for n in range(len(widths))]
        with k.loop(0, several) as at:
            line = k.index * several + at
            to = line * total
            for x, width, (n, apart) in zip(parts, widths, sizes):
                start = line * apart
                if width:
                    values = [k.load(x, start + place) for place in range(width)]
                    for place, value in enumerate(values):
                        k.store(out, to + place, value)
                else:
                    with k.each(n) as j:
                        k.store(out, to + j, k.load(x, start + j))
                to = to + n
        return k

    return write


@functools.cache
def rolled(levels: int, width: int = 0, shift: int = 0) -> Callable[[str], Kernel]:
    """x (outer, *lines, n) -> the same, rolled: `lines` are one dim for each level, each of which is shifted, as n is.

    Rows are `several` lines where a line is written out, of `width` elements that are shifted by `shift`, else one of
    the `several` parts of a line, of `size` elements each.
    """

    def write(type: str) -> Kernel:
        k = Kernel("rolled", "rows")
        x, out = k.array("x", type), k.array("out", type, True)
        dims = [(k.scalar(f"n{d}", "index"), k.scalar(f"by{d}", "index")) for d in range(levels)]
        several, size, n, by = (k.scalar(name, "index") for name in ("several", "size", "n", "by"))

        def of(line: Value) -> Value:
            """The line that this one is made of."""
            left, apart = line, k.constant(1, "index")
            found = line
            for count, shift in reversed(dims):
                at, left = left % count, left // count
                found = found + where(at < shift, count - shift, 0 - shift) * apart
                apart = apart * count
            return found

        if width:
            with k.loop(0, several) as at:
                line = k.index * several + at
                start, to = of(line) * width, line * width
                values = [k.load(x, start + (place - shift) % width) for place in range(width)]
                for place, value in enumerate(values):
                    k.store(out, to + place, value)
            return k
        line, first = k.index // several, k.index % several * size
        last = k.op("min", first + size, n)
        middle = k.op("min", k.op("max", by, first), last)
        start, to = of(line) * n, line * n
        with k.each(middle - first) as j:
            k.store(out, to + first + j, k.load(x, start + (first + n - by) + j))
        with k.each(last - middle) as j:
            k.store(out, to + middle + j, k.load(x, start + (middle - by) + j))
        return k

    return write


@functools.cache
def moved(classes: Sequence[Class]) -> Callable[[str], Kernel]:
    """Parts (*) of one shape are written to `out`, each from a place of its own on.  A map over their elements.

    classes: of the layout (`elementwise.Layout`) of the parts, and of where their elements are in `out`.
    """
    parts = len(classes) - 1

    def write(type: str) -> Kernel:
        k = Kernel("moved", "map")
        given = [k.array(f"x{n}", type, dense=classes[n] == "dense") for n in range(parts)]
        out = k.array("out", type, True)
        walk = Walk(k, classes)
        walk.parameters()
        starts = [k.scalar(f"start{n}", "index") for n in range(parts)]
        values = [k.load(x, walk.offset(n, k.index)) for n, x in enumerate(given)]
        to = walk.offset(parts, k.index)
        for start, value in zip(starts, values):
            k.store(out, start + to, value)
        return k

    return write


def paired(type: str) -> Kernel:
    """x, y of 4 bytes each -> numbers of 8 bytes, x their lower halves.  A map over their elements."""
    k = Kernel("paired", "map")
    x, y, out = k.array("x", type), k.array("y", type), k.array("out", "uint64", True)
    low, high = (k.cast(k.load(half, k.index), "uint64") for half in (x, y))
    k.store(out, k.index, k.op("or", low, k.op("shl", high, k.constant(32, "uint64"))))
    return k


@functools.cache
def placed(dims: int, near: bool, every: tuple[int, int] = (0, 1)) -> Callable[[str], Kernel]:
    """x (*counts, many) -> zeros (*sizes, n) with x at slices of all dims.  Rows are `sizes`, of `dims` dims.

    near: the step of the last dim is 1, so that a row is zeros, elements of x, and zeros again; else all of it is made
    0 first, which leaves it in the cache.  every: the start and the step of the last dim where they are written out,
    which a row is a multiple of: each element and the zeros around it are written at once.
    """

    def write(type: str) -> Kernel:
        k = Kernel("placed", "rows")
        x, out = k.array("x", type), k.array("out", type, True)
        outer = [[k.scalar(f"{name}{d}", "index") for name in ("n", "start", "step", "many")] for d in range(dims)]
        n, start, step, many = (k.scalar(name, "index") for name in ("n", "start", "step", "many"))
        left, line, times = k.index, k.constant(0, "index"), k.constant(1, "index")
        inside: Value | None = None
        for size, first, apart, several in reversed(outer):
            at = left % size - first
            left, place = left // size, at // apart
            there = both(both(at >= 0, place < several), (place * apart).equals(at))
            inside = there if inside is None else both(inside, there)
            line, times = line + place * times, times * several
        assert inside is not None
        nothing, zero = k.constant(0, "index"), k.constant(0, type)
        own, given = k.index * n, where(inside, line * many, nothing)
        taken = where(inside, many, nothing)
        if every[1] > 1:
            with k.each(where(inside, nothing, n)) as j:
                k.store(out, own + j, zero)
            with k.loop(0, taken) as j:
                value = k.load(x, given + j)
                for offset in range(every[1]):
                    k.store(out, own + j * every[1] + offset, value if offset == every[0] else zero)
            return k
        before = where(inside, start, n) if near else n
        with k.each(before) as j:
            k.store(out, own + j, zero)
        with k.each(taken) as j:
            k.store(out, own + start + (j if near else j * step), k.load(x, given + j))
        if near:
            behind = where(inside, start + many, n)
            with k.each(n - behind) as j:
                k.store(out, own + behind + j, zero)
        return k

    return write


@functools.cache
def added_at(dims: int) -> Callable[[str], Kernel]:
    """x (*counts, many) is added to `out` at slices of all its dims.  Rows are `counts`, of `dims` dims.

    Strides, those of the slices, and the place of the first element are in elements.
    """

    def write(type: str) -> Kernel:
        k = Kernel("added_at", "rows")
        x, out = k.array("x", type), k.array("out", type, True)
        counts = [k.scalar(f"n{d}", "index") for d in range(1, dims)]
        strides = [k.scalar(f"s{d}", "index") for d in range(dims)]
        first, many, step = (k.scalar(name, "index") for name in ("first", "many", "step"))
        left, base = k.index, first
        for count, stride in zip(reversed(counts), reversed(strides[1:])):
            base, left = base + left % count * stride, left // count
        begin = base + left * strides[0]
        with k.each(many) as j:
            at = begin + j * step
            k.store(out, at, k.load(out, at) + k.load(x, k.index * many + j))
        return k

    return write


def taken(type: str) -> Kernel:
    """x (before, n, after), index (count) -> (before, count, after), x at the index.  Rows are (before, count).

    The index is of int64, from 0 to n - 1.
    """
    k = Kernel("taken", "rows")
    x, index, out = k.array("x", type), k.array("places", "int64"), k.array("out", type, True)
    n, count, after = (k.scalar(name, "index") for name in ("n", "length", "after"))
    line = k.index // count * n + k.cast(k.load(index, k.index % count), "index")
    base, own = line * after, k.index * after
    with k.each(after) as j:
        k.store(out, own + j, k.load(x, base + j))
    return k


@functools.cache
def outside(index: str) -> Callable[[str], Kernel]:
    """index (count), of a type -> 1 where one of them is not from 0 to n - 1, else 0.  There is one row."""

    def write(type: str) -> Kernel:
        k = Kernel("outside", "rows")
        places, wrong = k.array("places", index), k.array("wrong", "int32", True)
        n, count = k.scalar("n", "index"), k.scalar("length", "index")
        zero, one = k.constant(0, "int32"), k.constant(1, "int32")

        def bad(j: Value) -> Value:
            place = k.cast(k.load(places, j), "index")
            return where(both(place >= 0, place < n), zero, one)

        found = k.reduce("max", count, bad)
        with k.once():
            k.store(wrong, k.index, found)
        return k

    return write


@functools.cache
def looked_up(index: str) -> Callable[[str], Kernel]:
    """x (n, after), index (count), of a type -> (count, after); 0 stands for indices outside.  Rows are `count`."""

    def write(type: str) -> Kernel:
        k = Kernel("looked_up", "rows")
        x, places, out = k.array("x", type), k.array("places", index), k.array("out", type, True)
        n, after = k.scalar("n", "index"), k.scalar("after", "index")
        place, zero = k.cast(k.load(places, k.index), "index"), k.constant(0, "index")
        base, own = where(both(place >= 0, place < n), place, zero) * after, k.index * after
        with k.each(after) as j:
            k.store(out, own + j, k.load(x, base + j))
        return k

    return write


@in_llvm
def transposed(lanes: int) -> Jobs:
    """Matrices in the order of the other dim: source, whose columns are runs of memory, -> target (*, rows, columns).

    They lie in two dims, of which the second has `inner`; step_*: from one to the next in the source, apart_*: in the
    target, whose rows are runs of memory.  A job is `lanes` rows of one matrix, by squares, of which the last overlap
    the ones before.  Rows and columns are as many at least, of 4 bytes.
    """
    k = Jobs("transposed", lanes, TRANSPOSED, 2)
    (source, target), a = k.arrays, k.numbers
    rows, columns, step, pitch = a["rows"], a["columns"], a["step_column"], a["apart_row"]
    bands = (rows + lanes - 1) // lanes
    with k.loop(k.begin, k.end) as job:
        number, first = job // bands, least(job % bands * lanes, rows - lanes)
        outer, inner = number // a["inner"], number % a["inner"]
        given = k.view(source, outer * a["step_outer"] + inner * a["step_inner"] + first)
        own = k.view(target, outer * a["apart_outer"] + inner * a["apart_inner"] + first * pitch)
        with k.loop(0, columns, lanes) as c:
            at = least(c, columns - lanes)
            square = k.transposed([k.vector(given, (at + n) * step) for n in range(lanes)])
            for n, values in enumerate(square):
                k.store(own, pitch * n + at, values)
    return k
