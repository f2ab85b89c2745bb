"""Sine and cosine of float32 as generated kernels (the extra `jit`).

A kernel marks by nan the angles that are too large for it (`llvm_math.NEAR`), and numpy does those.  Processors without
fused multiplications, which the reduction of angles needs, are left to numpy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from engine.kernels import angles, processor
from engine.ops.generated.layers import plain, run
from engine.ops.generated.remainders import looked_at

__all__ = ["cos", "sin"]

_WORK = 2  # of an element, in those of other kernels


def _made(name: str, other: Callable[..., Any]) -> Callable[..., Any]:
    write = angles.near(name)

    def kernel(xp: Any, input: Any) -> Any:
        found = processor.target()
        if found is None or not found.fused or input.dtype != np.float32 or not plain(input):
            return NotImplemented
        made = xp.empty(input.shape, input.dtype)
        run(write, [input, made], [], input.size, _WORK)
        return looked_at(xp, made, other, [input])

    return kernel


sin = _made("sin", np.sin)
cos = _made("cos", np.cos)
