"""Kernels that copy an array of any strides into the order of its dims."""

from __future__ import annotations

import functools
from collections.abc import Callable

from engine.kernels.form import Kernel

__all__ = ["copied"]


@functools.cache
def copied(dims: int, width: int) -> Callable[[str], Kernel]:
    """x (*outer, m, n) of any strides -> the same, contiguous.  Rows are `outer`, of `dims` dims.

    A row is m lines of n elements, so that the place of a line is found by an addition, where that of a row takes a
    division for each dim.  Strides are in elements.  width: n where it is written out, else 0.
    """

    def write(type: str) -> Kernel:
        k = Kernel("copied", "rows")
        x, out = k.array("x", type), k.array("out", type, True)
        sizes = [k.scalar(f"n{d}", "index") for d in range(1, dims)]
        strides = [k.scalar(f"s{d}", "index") for d in range(dims)]
        m, apart, n, step = (k.scalar(name, "index") for name in ("m", "apart", "n", "step"))
        left, base = k.index, k.constant(0, "index")
        for size, stride in zip(reversed(sizes), reversed(strides[1:])):
            base, left = base + left % size * stride, left // size
        begin = base + left * strides[0]
        with k.loop(0, m) as at:
            start, own = begin + at * apart, k.index * m + at
            if width:
                values = [k.load(x, start + step * place) for place in range(width)]
                for place, value in enumerate(values):
                    k.store(out, own * width + place, value)
            else:
                with k.each(n) as j:
                    k.store(out, own * n + j, k.load(x, start + step * j))
        return k

    return write
