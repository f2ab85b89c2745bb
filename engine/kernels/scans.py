"""Kernels that walk one dim of contiguous arrays (before, length, after): reductions, scans, first of an order.

Rows are the elements before the dim, or before and after it (`running_products`); nan counts as the largest of all, as
in PyTorch.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable

from engine.kernels.form import Kernel, Value, both, call, where

__all__ = [
    "BAND",
    "any_nan",
    "band",
    "bands",
    "first_of_order",
    "log_of_few_sums",
    "log_of_sums",
    "log_of_sums_of_rows",
    "log_soft_rows_of_few",
    "placed_extremes",
    "products_of_runs",
    "reduced",
    "reduced_rows",
    "roots",
    "running_extremes",
    "running_products",
    "soft_rows_of_few",
    "summed_few",
    "summed_rows",
    "sums_of_runs",
]


def _wide(type: str) -> str:
    """The type of products: float64, which the product of a part does not leave where that of all is a float32."""
    return "float64" if type == "float32" else type


@functools.cache
def reduced(by: str, mean: bool = False, out: str = "") -> Callable[[str], Kernel]:
    """x (rows, n) -> (rows): the sum, product, max or min of each row; mean: divided by n.

    out: their type, if it is not that of x.
    """
    to = out

    def write(type: str) -> Kernel:
        k = Kernel("reduced", "rows")
        x, out, n = k.array("x", type), k.array("out", to or type, True), k.scalar("n", "index")
        base, kind = k.index * n, (to or _wide(type)) if by == "product" and to != "float32" else type
        found = k.reduce(by, n, lambda j: k.cast(k.load(x, base + j), kind))
        with k.once():
            k.store(out, k.index, k.cast(found / k.cast(n, kind) if mean else found, to or type))
        return k

    return write


def products_of_runs(type: str) -> Kernel:
    """x (n) -> (runs), float64: the products of runs of `length` elements, the last one of the rest.  Rows are runs."""
    k = Kernel("products_of_runs", "rows")
    x, out = k.array("x", type), k.array("out", "float64", True)
    n, length = k.scalar("n", "index"), k.scalar("length", "index")
    begin = k.index * length
    count = where(n - begin < length, n - begin, length)
    found = k.reduce("product", count, lambda j: k.cast(k.load(x, begin + j), "float64"))
    with k.once():
        k.store(out, k.index, found)
    return k


def any_nan(type: str) -> Kernel:
    """x (rows, n) -> (rows), int32: 1 for a row that has a nan."""
    k = Kernel("any_nan", "rows")
    x, out, n = k.array("x", type), k.array("out", "int32", True), k.scalar("n", "index")

    def is_nan(j: Value) -> Value:
        element = k.load(x, k.index * n + j)
        return k.cast(element.differs(element), "int32")

    found = k.reduce("max", n, is_nan)
    with k.once():
        k.store(out, k.index, found)
    return k


@functools.cache
def sums_of_runs(squares: bool, out: str = "") -> Callable[[str], Kernel]:
    """x (rows, n) -> (rows, runs): the sums of runs of `length` elements, the last one of the rest; squares: of their
    squares.  out: the type of terms and sums, if it is not that of x."""
    to = out

    def write(type: str) -> Kernel:
        k = Kernel("sums_of_runs", "rows")
        x, out = k.array("x", type), k.array("out", to or type, True)
        n, runs, length = k.scalar("n", "index"), k.scalar("runs", "index"), k.scalar("length", "index")
        begin = k.index % runs * length
        base, left = k.index // runs * n + begin, n - begin

        def term(j: Value) -> Value:
            value = k.cast(k.load(x, base + j), to) if to else k.load(x, base + j)
            return value * value if squares else value

        found = k.reduce("sum", where(left < length, left, length), term)
        with k.once():
            k.store(out, k.index, found)
        return k

    return write


@functools.cache
def roots(squares: bool) -> Callable[[str], Kernel]:
    """x (rows, n) -> (rows): the root of the sum of each row; squares: of their squares."""

    def write(type: str) -> Kernel:
        k = Kernel("roots", "rows")
        x, out, n = k.array("x", type), k.array("out", type, True), k.scalar("n", "index")
        base = k.index * n

        def term(j: Value) -> Value:
            value = k.load(x, base + j)
            return value * value if squares else value

        found = k.reduce("sum", n, term)
        with k.once():
            k.store(out, k.index, call("sqrt", found))
        return k

    return write


BAND = 1 << 9  # columns that are reduced at once: their results stay in the first cache, and threads share the bands


def bands(after: int) -> int:
    """The number of bands of so many columns."""
    return -(-after // BAND)


def band(k: Kernel, n: Value | int, after: Value) -> tuple[Value, Value, Value]:
    """Where the band of a row's index begins in x (rows, n, after) and in a result (rows, after), and its columns."""
    count = (after + BAND - 1) // BAND
    row, begin = k.index // count, k.index % count * BAND
    left = after - begin
    return row * n * after + begin, row * after + begin, where(left < BAND, left, BAND)


@functools.cache
def reduced_rows(by: str) -> Callable[[str], Kernel]:
    """x (rows, n, after) -> (rows, after): the max or min over the middle dim, in `bands(after)` for each row."""

    def write(type: str) -> Kernel:
        k = Kernel("reduced_rows", "rows")
        x, out = k.array("x", type), k.array("out", type, True)
        n, after = k.scalar("n", "index"), k.scalar("after", "index")
        base, own, wide = band(k, n, after)
        with k.each(wide) as j:
            k.store(out, own + j, k.load(x, base + j))
        with k.loop(1, n) as i:
            line = base + i * after
            with k.each(wide) as j:
                k.store(out, own + j, call(by, k.load(x, line + j), k.load(out, own + j)))
        return k

    return write


RUN = 128  # rows that are added one after the other


@functools.cache
def summed_rows(mean: bool, squares: bool = False) -> Callable[[str], Kernel]:
    """x (rows, n, after) -> (rows, after): the sum over the middle dim, or its mean, in `bands(after)` for each row;
    squares: the root of the sum of squares.

    part (rows, after) is scratch.  Runs of rows are added up, and their sums to the sum.
    """

    def write(type: str) -> Kernel:
        k = Kernel("summed_rows", "rows")
        x, out, part = k.array("x", type), k.array("out", type, True), k.array("part", type, True)
        n, after = k.scalar("n", "index"), k.scalar("after", "index")
        base, own, wide = band(k, n, after)

        def term(at: Value) -> Value:
            value = k.load(x, at)
            return value * value if squares else value

        with k.each(wide) as j:
            k.store(out, own + j, k.constant(0.0, type))
        with k.loop(0, (n + RUN - 1) // RUN) as run:
            first, beyond = run * RUN, run * RUN + RUN
            with k.each(wide) as j:
                k.store(part, own + j, term(base + first * after + j))
            with k.loop(first + 1, where(beyond < n, beyond, n)) as i:
                line = base + i * after
                with k.each(wide) as j:
                    k.store(part, own + j, k.load(part, own + j) + term(line + j))
            with k.each(wide) as j:
                k.store(out, own + j, k.load(out, own + j) + k.load(part, own + j))
        if squares:
            with k.each(wide) as j:
                k.store(out, own + j, call("sqrt", k.load(out, own + j)))
        if mean:
            count = k.cast(n, type)
            with k.each(wide) as j:
                k.store(out, own + j, k.load(out, own + j) / count)
        return k

    return write


@functools.cache
def summed_few(n: int, mean: bool) -> Callable[[str], Kernel]:
    """x (rows, n, after) -> (rows, after): as `summed_rows`, of few rows, each written out: one pass."""

    def write(type: str) -> Kernel:
        k = Kernel("summed_few", "rows")
        x, out, after = k.array("x", type), k.array("out", type, True), k.scalar("after", "index")
        base, own, wide = band(k, n, after)
        with k.each(wide) as j:
            found = functools.reduce(operator.add, [k.load(x, base + after * i + j) for i in range(n)])
            k.store(out, own + j, found / n if mean else found)
        return k

    return write


@functools.cache
def placed_extremes(largest: bool, alone: bool) -> Callable[[str], Kernel]:
    """x (rows, n, after) -> the largest (or smallest) over the middle dim and its place (rows, after), int64.

    Of equals the first; nan before all.  alone: `after` is 1.
    """

    def write(type: str) -> Kernel:
        k = Kernel("placed_extremes", "rows")
        x, out, places = k.array("x", type), k.array("out", type, True), k.array("places", "int64", True)
        n = k.scalar("n", "index")
        if alone:
            base = k.index * n
            top = k.reduce("max" if largest else "min", n, lambda j: k.load(x, base + j))  # nan where one is

            def place(j: Value) -> Value:
                value = k.load(x, base + j)
                return where(k.op("lor", value.equals(top), value.differs(value)), k.cast(j, "int32"), beyond)

            beyond = k.constant(2**31 - 1, "int32")
            first = k.reduce("min", n, place)
            with k.once():
                k.store(out, k.index, top)
                k.store(places, k.index, k.cast(first, "int64"))
            return k
        after = k.scalar("after", "index")
        base, own = k.index * n * after, k.index * after
        with k.each(after) as j:
            k.store(out, own + j, k.load(x, base + j))
            k.store(places, own + j, k.constant(0, "int64"))
        with k.loop(1, n) as i:
            line, here = base + i * after, k.cast(i, "int64")
            with k.each(after) as j:
                value, held = k.load(x, line + j), k.load(out, own + j)
                beyond = value > held if largest else value < held
                better = k.op("lor", beyond, both(value.differs(value), held.equals(held)))
                k.store(out, own + j, where(better, value, held))
                k.store(places, own + j, where(better, here, k.load(places, own + j)))
        return k

    return write


def _finite(top: Value) -> Value:
    """The number that is taken off before exp: 0 for an infinite one, of which nothing may be taken off."""
    return where(call("isinf", top), top.kernel.constant(0.0, top.type), top)


def log_of_sums(type: str) -> Kernel:
    """x (rows, n) -> (rows): log of the sum of exp of each row."""
    k = Kernel("log_of_sums", "rows")
    x, out, n = k.array("x", type), k.array("out", type, True), k.scalar("n", "index")
    base = k.index * n
    top = _finite(k.reduce("max", n, lambda j: k.load(x, base + j)))
    total = k.reduce("sum", n, lambda j: call("exp", k.load(x, base + j) - top))
    with k.once():
        k.store(out, k.index, call("log", total) + top)
    return k


FEW_PLACES, FEW_SUMMED, FEW_WRITTEN = 48, 32, 24  # of rows up to which lanes are rows: log_softmax, sums, softmax
SIDE_BY_SIDE = 64  # rows that are reduced at once


@functools.cache
def log_of_few_sums(n: int) -> Callable[[str], Kernel]:
    """x (rows, n) -> (rows): as `log_of_sums`, of few places, each written out: the lanes are rows."""

    def write(type: str) -> Kernel:
        k = Kernel("log_of_few_sums", "rows")
        x, out, rows = k.array("x", type), k.array("out", type, True), k.scalar("rows", "index")
        first = k.index * SIDE_BY_SIDE
        left = rows - first
        with k.each(where(left < SIDE_BY_SIDE, left, SIDE_BY_SIDE)) as j:
            values = [k.load(x, (first + j) * n + i) for i in range(n)]
            top = _finite(functools.reduce(lambda a, b: call("max", a, b), values))
            total = functools.reduce(operator.add, [call("exp", value - top) for value in values])
            k.store(out, first + j, call("log", total) + top)
        return k

    return write


@functools.cache
def soft_rows_of_few(n: int) -> Callable[[str], Kernel]:
    """x (rows, n) -> (rows, n): softmax of rows of few places; the lanes are rows."""

    def write(type: str) -> Kernel:
        k = Kernel("soft_rows_of_few", "rows")
        x, out, rows = k.array("x", type), k.array("out", type, True), k.scalar("rows", "index")
        first = k.index * SIDE_BY_SIDE
        left = rows - first
        with k.each(where(left < SIDE_BY_SIDE, left, SIDE_BY_SIDE)) as j:
            base = (first + j) * n
            values = [k.load(x, base + i) for i in range(n)]
            top = functools.reduce(lambda a, b: call("max", a, b), values)
            powers = [call("exp", value - top) for value in values]
            total = functools.reduce(operator.add, powers)
            for i, power in enumerate(powers):
                k.store(out, base + i, power / total)
        return k

    return write


@functools.cache
def log_soft_rows_of_few(n: int) -> Callable[[str], Kernel]:
    """x (rows, n) -> (rows, n): the logarithm of softmax of rows of few places; tops and logs (rows) are scratch.

    Where those are found the lanes are rows; results are written row by row, which lanes of rows would scatter.
    """

    def write(type: str) -> Kernel:
        k = Kernel("log_soft_rows_of_few", "rows")
        x, out = k.array("x", type), k.array("out", type, True)
        tops, logs, rows = k.array("tops", type, True), k.array("logs", type, True), k.scalar("rows", "index")
        first = k.index * SIDE_BY_SIDE
        left = rows - first
        count = where(left < SIDE_BY_SIDE, left, SIDE_BY_SIDE)
        with k.each(count) as j:
            values = [k.load(x, (first + j) * n + i) for i in range(n)]
            top = functools.reduce(lambda a, b: call("max", a, b), values)
            total = functools.reduce(operator.add, [call("exp", value - top) for value in values])
            k.store(tops, first + j, top)
            k.store(logs, first + j, call("log", total))
        with k.loop(first, first + count) as row:
            top, log, base = k.load(tops, row), k.load(logs, row), row * n
            with k.each(k.constant(n, "index")) as i:
                k.store(out, base + i, k.load(x, base + i) - top - log)
        return k

    return write


def log_of_sums_of_rows(type: str) -> Kernel:
    """x (rows, n, after) -> (rows, after): log of the sum of exp over the middle dim; sums (rows, after) is scratch."""
    k = Kernel("log_of_sums_of_rows", "rows")
    x, out, sums = k.array("x", type), k.array("out", type, True), k.array("sums", type, True)
    n, after = k.scalar("n", "index"), k.scalar("after", "index")
    base, own = k.index * n * after, k.index * after
    with k.each(after) as j:
        k.store(out, own + j, k.load(x, base + j))
    with k.loop(1, n) as i:
        line = base + i * after
        with k.each(after) as j:
            k.store(out, own + j, call("max", k.load(x, line + j), k.load(out, own + j)))
    with k.each(after) as j:
        k.store(out, own + j, _finite(k.load(out, own + j)))
        k.store(sums, own + j, k.constant(0.0, type))
    with k.loop(0, n) as i:
        line = base + i * after
        with k.each(after) as j:
            more = call("exp", k.load(x, line + j) - k.load(out, own + j))
            k.store(sums, own + j, k.load(sums, own + j) + more)
    with k.each(after) as j:
        k.store(out, own + j, call("log", k.load(sums, own + j)) + k.load(out, own + j))
    return k


def running_products(type: str) -> Kernel:
    """x -> its running products along the middle of (rows / after, length, after), in float64 in their order."""
    k = Kernel("running_products", "rows")
    x, out = k.array("x", type), k.array("out", type, True)
    length, after = k.scalar("length", "index"), k.scalar("after", "index")
    base = k.index // after * length * after + k.index % after
    total = k.variable(k.constant(1.0, "float64"))
    with k.loop(0, length) as j:
        at = base + j * after
        now = total * k.cast(k.load(x, at), "float64")
        k.set(total, now)
        k.store(out, at, k.cast(now, type))
    return k


BLOCK = 16  # numbers of which most have none that is larger than all before


@functools.cache
def running_extremes(largest: bool, alone: bool) -> Callable[[str], Kernel]:
    """x (rows, n, after) -> the running largest (or smallest) along the middle dim and their places, int64.

    Of equals the last; nan stays, and the last nan's place.  alone: `after` is 1.
    """

    def attained(k: Kernel, value: Value, held: Value) -> Value:
        return k.op("lor", call("isnan", value), value >= held if largest else value <= held)

    def write(type: str) -> Kernel:
        k = Kernel("running_extremes", "rows")
        x, out, places = k.array("x", type), k.array("out", type, True), k.array("places", "int64", True)
        n = k.scalar("n", "index")
        if alone:
            base, by = k.index * n, "max" if largest else "min"
            held, place = k.variable(k.load(x, base)), k.variable(k.constant(0, "int64"))

            def one_by_one(begin: Value, end: Value) -> None:
                with k.loop(begin, end) as i:
                    value = k.load(x, base + i)
                    k.set(place, where(attained(k, value, held), k.cast(i, "int64"), place))
                    k.set(held, call(by, value, held))  # of nan, nan
                    k.store(out, base + i, held)
                    k.store(places, base + i, place)

            with k.loop(0, n // BLOCK) as block:
                begin = block * BLOCK
                tops = [k.load(x, base + begin + i) for i in range(BLOCK)]
                while len(tops) > 1:
                    tops = [call(by, one, two) for one, two in zip(tops[::2], tops[1::2])]
                better = attained(k, tops[0], held)
                with k.when(better):
                    one_by_one(begin, begin + BLOCK)
                with k.when(k.op("not", better)), k.each(k.constant(BLOCK, "index")) as i:
                    k.store(out, base + begin + i, held)
                    k.store(places, base + begin + i, place)
            one_by_one(n // BLOCK * BLOCK, n)
            return k
        after = k.scalar("after", "index")
        base = k.index * n * after
        with k.each(after) as j:
            k.store(out, base + j, k.load(x, base + j))
            k.store(places, base + j, k.constant(0, "int64"))
        with k.loop(1, n) as i:
            line, here = base + i * after, k.cast(i, "int64")
            with k.each(after) as j:
                at = line + j
                value, held = k.load(x, at), k.load(out, at - after)
                better = attained(k, value, held)
                k.store(out, at, where(better, value, held))
                k.store(places, at, where(better, here, k.load(places, at - after)))
        return k

    return write


@functools.cache
def first_of_order(largest: bool) -> Callable[[str], Kernel]:
    """x (rows, n) -> (rows, count) the first values in order and their places, int64, of equals the first ones.

    The first of each row so far stand in the result; most elements are compared with the last of them only.
    """

    def write(type: str) -> Kernel:
        k = Kernel("first_of_order", "rows")
        x, out, places = k.array("x", type), k.array("out", type, True), k.array("places", "int64", True)
        n, count = k.scalar("n", "index"), k.scalar("first", "index")
        base, own = k.index * n, k.index * count

        def before(value: Value, held: Value) -> Value:
            """Return whether a value comes before one that is held."""
            if largest:
                return k.op("lor", value > held, both(value.differs(value), held.equals(held)))
            return k.op("lor", value < held, both(held.differs(held), value.equals(value)))

        def insert(place: Value, last: Value) -> None:
            """Put x[place] where it belongs among the first of the row; what is at `last` then is free."""
            value = k.load(x, base + place)
            at = k.variable(last)
            done = k.variable(k.constant(0, "index"))
            with k.loop(0, last) as i:  # from the end on, as far as what is held comes after
                here = own + last - 1 - i
                held = k.load(out, here)
                comes = before(value, held)
                with k.when(both(k.op("eq", done, 0), comes)):
                    k.store(out, here + 1, held)
                    k.store(places, here + 1, k.load(places, here))
                    k.set(at, last - 1 - i)
                with k.when(k.op("not", comes)):
                    k.set(done, k.constant(1, "index"))
            k.store(out, own + at, value)
            k.store(places, own + at, k.cast(place, "int64"))

        with k.loop(0, count) as j:
            insert(j, j)
        with k.loop(count, n) as j, k.when(before(k.load(x, base + j), k.load(out, own + count - 1))):
            insert(j, count - 1)
        return k

    return write
