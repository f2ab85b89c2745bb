"""Sines and cosines of angles up to `llvm_math.NEAR`, beyond which the results are nan."""

from __future__ import annotations

import functools
from collections.abc import Callable

from engine.kernels.form import Kernel, call

__all__ = ["near"]


@functools.cache
def near(name: str) -> Callable[[str], Kernel]:
    """x (n) -> (n): "sin" or "cos", of float32."""

    def write(type: str) -> Kernel:
        k = Kernel(f"near_{name}", "map")
        x, out = k.array("x", type), k.array("out", type, True)
        k.store(out, k.index, call(f"near_{name}", k.load(x, k.index)))
        return k

    return write
