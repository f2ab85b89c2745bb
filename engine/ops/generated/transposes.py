"""Copies of transposed matrices by squares in registers (the extra `jit`), where oneDNN has no program for them.

numpy reads such a matrix element by element: 0.45 ns each, of images that are converted to channels-last and back.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from engine.backends.cpu import relayout
from engine.kernels import copies, processor
from engine.ops.generated.route import address, lanes, linked, packed, several, shared

__all__ = ["transposed"]

_WORK = 4  # multiplications that take the time of an element


@functools.cache
def _code(side: int) -> Any:
    return linked(copies.transposed, side)


def transposed(target: np.ndarray, source: np.ndarray) -> bool:
    """target[...] = source of elements of 4 bytes, the target contiguous; False where the source is no transposed
    matrix, or matrices, of which one dim is beyond another."""
    shape, strides = source.shape, source.strides
    if source.itemsize != 4 or len(shape) not in (2, 3) or strides[-2] != 4 or any(s % 4 for s in strides):
        return False
    rows, columns = shape[-2:]
    side = next((n for n in (16, 8, 4) if n <= min(lanes(), rows, columns)), 0)
    if not side:
        return False
    outer, step = (shape[0], strides[0] // 4) if len(shape) == 3 else (1, 0)
    args = packed(
        copies.TRANSPOSED,
        source=address(source),
        target=address(target),
        rows=rows,
        columns=columns,
        step_outer=step,
        step_column=strides[-1] // 4,
    )
    jobs = outer * -(-rows // side)
    shared(_code(side), args, 0, jobs, min(jobs, several(source.size * _WORK)))
    return True


if processor.available():
    relayout.providers.transposed = transposed
