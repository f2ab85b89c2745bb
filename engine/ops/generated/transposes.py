"""Copies of transposed matrices by squares in registers (the extra `jit`).

numpy reads such a matrix element by element: 0.45 ns each, of images that are converted to channels-last and back.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import numpy as np

from engine.backends.cpu import relayout, threads
from engine.core.lru import LRU
from engine.kernels import copies, processor
from engine.ops.generated import launch
from engine.ops.generated.nested import nested
from engine.ops.generated.route import lanes, linked, several, shared

__all__ = ["serves", "transposed"]

_WORK = 4  # multiplications that take the time of an element
_squares: LRU[Any, Any] = LRU(4096)
_entries: dict[tuple[int, int, int], launch.Entry] = {}  # by the side of squares, magnitudes of all and of columns
_pack = struct.Struct("<11q").pack  # copies.TRANSPOSED


def _first(array: np.ndarray) -> int:
    """The address of the first element."""
    return int(array.__array_interface__["data"][0])


class _Matrices(NamedTuple):
    """Matrices of elements of 4 bytes whose columns are runs of memory, to be copied to where rows are."""

    numbers: tuple[int, ...]  # of copies.TRANSPOSED, behind the arrays
    jobs: int
    members: int  # threads
    entry: launch.Entry
    build: Callable[[], Any]


def _matrices(source: np.ndarray) -> _Matrices | None:
    """What an array is, None where it is no matrices in up to two dims, or where one dim is no vector long."""

    def find() -> _Matrices | None:
        if source.itemsize != 4 or not source.size or any(s % 4 for s in source.strides):
            return None
        sizes, strides = relayout.runs(source.shape, source.strides)
        steps = [s // 4 for s in strides]
        if not 2 <= len(sizes) <= 4 or 1 not in steps[:-1]:
            return None
        apart = [prod(sizes[d + 1 :]) for d in range(len(sizes))]
        dims = list(zip(sizes, steps, apart))
        columns, step, _ = dims.pop()
        rows, _, pitch = dims.pop(steps.index(1))
        (outer, *of_outer), (inner, *of_inner) = [*[(1, 0, 0)] * (2 - len(dims)), *dims]
        side = next((n for n in (16, 8, 4) if n <= min(lanes(), rows, columns)), 0)
        if not side:
            return None
        jobs = outer * inner * -(-rows // side)
        return _Matrices(
            (rows, columns, inner, of_outer[0], of_inner[0], step, of_outer[1], of_inner[1], pitch),
            jobs,
            min(jobs, several(source.size * _WORK)),
            _entries.setdefault((side, launch.magnitude(source.size), launch.magnitude(columns)), launch.Entry()),
            functools.partial(linked, copies.transposed, side),
        )

    return _squares.made((source.shape, source.strides, source.itemsize, lanes(), threads.get_num_threads()), find)


def serves(source: np.ndarray) -> bool:
    """Return whether an array is transposed matrices of 4 or more rows and columns, of elements of 4 bytes."""
    return _matrices(source) is not None


def transposed(target: np.ndarray, source: np.ndarray) -> bool:
    """target[...] = source, the target contiguous; False where the source is not such matrices, or the kernel not
    used."""
    found = _matrices(source)
    if found is None:
        return False

    def write(code: Any) -> np.ndarray:
        shared(code, _pack(_first(source), _first(target), *found.numbers), 0, found.jobs, found.members)
        return target

    plain = lambda: relayout.plainly(source, squares=False)
    made = nested("contiguous", found.entry, found.build, write, plain, source.size, "uint32")
    if made is not NotImplemented and made is not target:  # the comparison failed
        target[...] = made
    return made is not NotImplemented


if processor.available():
    relayout.providers.transposed = transposed
