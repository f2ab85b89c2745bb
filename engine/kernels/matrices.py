"""Small square matrices in the source form. Of many an element is a matrix, whose steps are written out.

Elimination exchanges rows as LAPACK does, for the largest of a column, without a branch: so that neighbouring matrices
share vectors.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from engine.kernels.form import Kernel, Value, call, where
from engine.kernels.scans import BAND, band

__all__ = ["determinants", "solved_triangles", "systems"]


def _eliminated(k: Kernel, rows: list[list[Value]]) -> tuple[list[Value], Value]:
    """Make the first columns of rows (n, n or more) upper triangular; the pivots, and the sign of the exchanges."""
    n = len(rows)
    sign = k.constant(1.0, rows[0][0].type)
    for c in range(n):
        for r in range(c + 1, n):
            larger = call("abs", rows[r][c]) > call("abs", rows[c][c])
            for j in range(c, len(rows[0])):
                upper, lower = rows[c][j], rows[r][j]
                rows[c][j], rows[r][j] = where(larger, lower, upper), where(larger, upper, lower)
            sign = where(larger, 0.0 - sign, sign)
        pivot = rows[c][c]
        none = pivot.equals(0.0)
        for r in range(c + 1, n):
            factor = where(none, 0.0, rows[r][c] / pivot)
            for j in range(c + 1, len(rows[0])):
                rows[r][j] = rows[r][j] - factor * rows[c][j]
    return [rows[c][c] for c in range(n)], sign


@functools.cache
def determinants(n: int, logarithms: bool) -> Callable[[str], Kernel]:
    """x (count, n, n) -> the determinants, or with `logarithms` their signs and the logarithms of their sizes."""

    def write(type: str) -> Kernel:
        k = Kernel("determinants", "map")
        x, made = k.array("x", type), k.array("made", type, True)
        rows = [[k.load(x, k.index * (n * n) + (r * n + c)) for c in range(n)] for r in range(n)]
        pivots, sign = _eliminated(k, rows)
        if not logarithms:
            for pivot in pivots:
                sign = sign * pivot
            k.store(made, k.index, sign)
            return k
        sizes, size = k.array("sizes", type, True), k.constant(0.0, type)
        for pivot in pivots:
            sign = sign * where(pivot.equals(0.0), 0.0, where(pivot < 0.0, k.constant(-1.0, type), 1.0))
            size = size + call("log", call("abs", pivot))
        k.store(made, k.index, sign)
        k.store(sizes, k.index, size)
        return k

    return write


@functools.cache
def systems(n: int, columns: int, transposed: bool) -> Callable[[str], Kernel]:
    """x (count, n, n), y (count, n, columns) -> z of x z = y, of x^T z = y if transposed; and 1 where there is none.

    columns: 0 for the inverses, where y is not read.
    """

    def write(type: str) -> Kernel:
        k = Kernel("systems", "map")
        x, y, out, bad = (k.array(name, type, name in ("out", "bad")) for name in ("x", "y", "out", "bad"))
        width = columns or n

        def left(r: int, c: int) -> Value:
            return k.load(x, k.index * (n * n) + (c * n + r if transposed else r * n + c))

        def right(r: int, c: int) -> Value:
            return k.load(y, k.index * (n * width) + (r * width + c)) if columns else k.constant(float(r == c), type)

        rows = [[left(r, c) for c in range(n)] + [right(r, c) for c in range(width)] for r in range(n)]
        pivots, _ = _eliminated(k, rows)
        singular = k.constant(0.0, type)
        for pivot in pivots:
            singular = where(pivot.equals(0.0), k.constant(1.0, type), singular)
        for r in range(n - 1, -1, -1):
            for c in range(n, n + width):
                value = rows[r][c]
                for j in range(r + 1, n):
                    value = value - rows[r][j] * rows[j][c]
                rows[r][c] = value / pivots[r]
                k.store(out, k.index * (n * width) + (r * width + c - n), rows[r][c])
        k.store(bad, k.index, singular)
        return k

    return write


@functools.cache
def solved_triangles(upper: bool, unit: bool, transposed: bool) -> Callable[[str], Kernel]:
    """a (count, n, n), b (count, n, columns), of given strides -> y of a y = b, in `bands(columns)` for each.

    Of a one triangle is read; unit: its diagonal is 1.  By substitution, row after row.  transposed: y is stored as
    (count, columns, n), and part (count, n, columns) is scratch.
    """

    def write(type: str) -> Kernel:
        k = Kernel("solved_triangles", "rows")
        a, b, out = k.array("a", type), k.array("b", type), k.array("out", type, True)
        x = k.array("part", type, True) if transposed else out
        n, columns = k.scalar("n", "index"), k.scalar("columns", "index")
        of_a, of_b = ([k.scalar(f"{name}{i}", "index") for i in range(3)] for name in "ab")
        base, _, wide = band(k, n, columns)
        many = (columns + BAND - 1) // BAND
        matrix, begin = k.index // many, k.index % many * BAND
        first, right = matrix * of_a[0], matrix * of_b[0] + begin * of_b[2]

        def row(i: Value) -> Value:
            return n - 1 - i if upper else i

        with k.loop(0, n) as i:
            line, own, given = first + row(i) * of_a[1], base + row(i) * columns, right + row(i) * of_b[1]
            with k.each(wide) as j:
                k.store(x, own + j, k.load(b, given + j * of_b[2]))
            with k.loop(0, i) as p:
                factor, other = k.load(a, line + row(p) * of_a[2]), base + row(p) * columns
                with k.each(wide) as j:
                    k.store(x, own + j, k.load(x, own + j) - factor * k.load(x, other + j))
            if not unit:
                pivot = k.load(a, line + row(i) * of_a[2])
                with k.each(wide) as j:
                    k.store(x, own + j, k.load(x, own + j) / pivot)
        if transposed:
            with k.loop(0, n) as i, k.each(wide) as j:
                k.store(out, (matrix * columns + begin + j) * n + i, k.load(x, base + i * columns + j))
        return k

    return write
