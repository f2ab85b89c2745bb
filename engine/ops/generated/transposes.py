"""Copies of transposed matrices by squares in registers (the extra `jit`).

numpy reads such a matrix element by element: 0.45 ns each, of images that are converted to channels-last and back.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.backends.cpu import relayout
from engine.core.lru import LRU
from engine.kernels import copies, processor
from engine.ops.generated.route import address, lanes, linked, packed, several, shared

__all__ = ["code", "joined", "serves", "transposed"]

_WORK = 4  # multiplications that take the time of an element
_squares: LRU[Any, Any] = LRU(4096)


@functools.cache
def code(side: int) -> Any:
    """The machine code of the kernel for squares of so many."""
    return linked(copies.transposed, side)


def joined(shape: Sequence[int], strides: Sequence[int]) -> tuple[list[int], list[int]]:
    """Sizes and strides with dims that are one run, or one step, joined."""
    sizes: list[int] = []
    steps: list[int] = []
    for n, s in zip(shape, strides):
        if n == 1:
            continue
        if sizes and steps[-1] == n * s:
            sizes[-1] *= n
            steps[-1] = s
        else:
            sizes.append(n)
            steps.append(s)
    return sizes or [1], steps or [0]


def _matrices(source: np.ndarray) -> tuple[int, int, int, int, int, int] | None:
    """(matrices, rows, columns, elements from one matrix and from one column to the next, the side of the squares) of
    an array (*, rows, columns) of elements of 4 bytes whose columns are runs of memory; None for others."""

    def find() -> tuple[int, int, int, int, int, int] | None:
        if source.itemsize != 4 or not source.size or any(s % 4 for s in source.strides):
            return None
        sizes, steps = joined(source.shape, source.strides)
        if len(sizes) == 2:
            sizes, steps = [1, *sizes], [0, *steps]
        if len(sizes) != 3 or steps[1] != 4:
            return None
        side = next((n for n in (16, 8, 4) if n <= min(lanes(), *sizes[1:])), 0)
        return (sizes[0], sizes[1], sizes[2], steps[0] // 4, steps[2] // 4, side) if side else None

    return _squares.made((source.shape, source.strides, source.itemsize, lanes()), find)


def serves(source: np.ndarray) -> bool:
    """Return whether an array is transposed matrices of 4 or more rows and columns, of elements of 4 bytes."""
    return _matrices(source) is not None


def transposed(target: np.ndarray, source: np.ndarray) -> bool:
    """target[...] = source, the target contiguous; False where the source is not such matrices."""
    found = _matrices(source)
    if found is None:
        return False
    outer, rows, columns, step_outer, step_column, side = found
    args = packed(
        copies.TRANSPOSED,
        source=address(source),
        target=address(target),
        rows=rows,
        columns=columns,
        step_outer=step_outer,
        step_column=step_column,
    )
    jobs = outer * -(-rows // side)
    shared(code(side), args, 0, jobs, min(jobs, several(source.size * _WORK)))
    return True


if processor.available():
    relayout.providers.transposed = transposed
