"""Kernels that copy an array of any strides into the order of its dims."""

from __future__ import annotations

import functools
from collections.abc import Callable

from engine.kernels.form import Kernel

__all__ = ["copied"]


@functools.cache
def copied(dims: int, width: int) -> Callable[[str], Kernel]:
    """x (*outer, n) of any strides -> the same, contiguous.  Rows are `outer`, of `dims` dims.

    Strides are in elements.  width: n where it is written out, else 0.
    """

    def write(type: str) -> Kernel:
        k = Kernel("copied", "rows")
        x, out = k.array("x", type), k.array("out", type, True)
        sizes = [k.scalar(f"n{d}", "index") for d in range(1, dims)]
        strides = [k.scalar(f"s{d}", "index") for d in range(dims)]
        n, step = k.scalar("n", "index"), k.scalar("step", "index")
        left, base = k.index, k.constant(0, "index")
        for size, stride in zip(reversed(sizes), reversed(strides)):
            base, left = base + left % size * stride, left // size
        base = base + left * strides[0]
        if width:
            values = [k.load(x, base + step * j) for j in range(width)]
            for j, value in enumerate(values):
                k.store(out, k.index * width + j, value)
            return k
        with k.each(n) as j:
            k.store(out, k.index * n + j, k.load(x, base + step * j))
        return k

    return write
