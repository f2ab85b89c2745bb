"""numpy for kernels of large arrays: the same names; a few of its functions computed otherwise, results from the cache.

`fast` stands where kernels expect `xp`.  `Steps` is `fast` for one block of a pointwise kernel: it lets the step that
makes the result write straight to where the result belongs.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engine.backends.cpu import relayout, threads
from engine.backends.cpu.allocator import LARGE, empty
from engine.backends.cpu.select import outside, where

__all__ = ["Steps", "fast"]

# glibc takes the size of the largest mapping ever freed for the size from which it maps memory anew, and twice that for
# what it keeps.  Without this the temporaries of blocks would be given back, and their pages cleared again, each time.
with contextlib.suppress(MemoryError):
    np.empty(31 << 20, np.uint8)

_SHARE = 1 << 16  # elements of a slice of rows that several steps work on


class Fast:
    """The array module for large arrays; what stands not here is numpy's own."""

    where = staticmethod(where)
    outside = staticmethod(outside)

    def __getattr__(self, name: str) -> Any:
        value = getattr(np, name)
        setattr(self, name, value)
        return value

    @staticmethod
    def empty(shape: Any, dtype: Any = np.float64, **options: Any) -> np.ndarray:
        """np.empty in memory from the cache."""
        return np.empty(shape, dtype, **options) if options else empty(_sizes(shape), dtype)

    @staticmethod
    def zeros(shape: Any, dtype: Any = np.float64, **options: Any) -> np.ndarray:
        """np.zeros in memory from the cache."""
        return _filled(np.zeros, shape, dtype, 0, options)

    @staticmethod
    def ones(shape: Any, dtype: Any = np.float64, **options: Any) -> np.ndarray:
        """np.ones in memory from the cache."""
        return _filled(np.ones, shape, dtype, 1, options)

    @staticmethod
    def matmul(a: Any, b: Any, out: Any = None) -> Any:
        """np.matmul into memory from the cache."""
        if a.ndim == b.ndim == 2 and a.shape[1] == b.shape[0] == 1 and a.dtype.kind == b.dtype.kind == "f":
            return np.multiply(a, b, out=out)  # a column by a row, for which np.matmul takes five times as long
        if out is None and a.ndim >= 2 and b.ndim >= 2 and a.dtype == b.dtype and a.dtype.kind in "fc":
            try:
                lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
            except ValueError:
                return np.matmul(a, b)
            shape = (*lead, a.shape[-2], b.shape[-1])
            if math.prod(shape) * a.itemsize >= LARGE:
                return np.matmul(a, b, out=empty(shape, a.dtype))
        return np.matmul(a, b, out=out)

    @staticmethod
    def share(work: Callable[[slice], Any], count: int, elements: int) -> None:
        """work(slice) for slices of `count` rows of `elements` in all, on a few threads; a slice stays in the cache."""
        pieces = max(-(-elements // _SHARE), 2 if elements > _SHARE // 4 else 1)
        step = -(-count // pieces)

        def piece(rows: slice) -> None:
            with np.errstate(all="ignore"):
                work(rows)

        threads.run(piece, [slice(i, min(i + step, count)) for i in range(0, count, step)])

    @staticmethod
    def ascontiguousarray(a: Any, dtype: Any = None) -> Any:
        """np.ascontiguousarray into memory from the cache; Note [Transposed copies]."""
        if dtype is not None or not a.ndim or a.flags.c_contiguous:
            return np.ascontiguousarray(a, dtype)
        return relayout.contiguous(a)

    @staticmethod
    def concatenate(arrays: Sequence[Any], axis: int = 0, **options: Any) -> Any:
        """np.concatenate into memory from the cache."""
        if options:
            return np.concatenate(arrays, axis, **options)
        first = arrays[0]
        total = sum(a.nbytes for a in arrays)
        if total < LARGE or any(a.dtype != first.dtype or a.ndim != first.ndim for a in arrays):
            return np.concatenate(arrays, axis)
        if not all(a.flags.c_contiguous for a in arrays):
            return np.concatenate(arrays, axis)
        shape = list(first.shape)
        shape[axis] = sum(a.shape[axis] for a in arrays)
        return np.concatenate(arrays, axis, out=empty(shape, first.dtype))


def _sizes(shape: Any) -> tuple[int, ...]:
    return (int(shape),) if isinstance(shape, int | np.integer) else tuple(shape)


def _filled(make: Callable, shape: Any, dtype: Any, value: int, options: dict) -> np.ndarray:
    shape, dtype = _sizes(shape), np.dtype(dtype)
    if options or math.prod(shape) * dtype.itemsize < LARGE:
        return make(shape, dtype, **options)
    made = empty(shape, dtype)
    relayout.fill(made, value)
    return made


fast: Any = Fast()


class Steps:
    """The array module of one block: counts the calls of ufuncs, and writes the result of call `last` to `target`.

    Without a target it keeps the results, so that `of` can say which call made the one that the kernel returned.
    """

    __slots__ = ("count", "last", "made", "target")

    def __init__(self, last: int = 0, target: Any = None) -> None:
        self.count, self.last, self.target = 0, last, target
        self.made: list[Any] | None = [] if target is None else None

    def __getattr__(self, name: str) -> Any:
        return getattr(fast, name)

    def of(self, result: Any) -> int:
        """The number of the call that made `result`; 0 if none did."""
        for i, made in enumerate(self.made or ()):
            if made is result:
                return i + 1
        return 0

    def where(self, *args: Any) -> Any:
        """See `fast.where`."""
        return _step(self, where, args, {})

    def outside(self, *args: Any) -> Any:
        """See `fast.outside`, which has something to keep in the cache: not one step, but two."""
        self.count += 1
        if self.made is not None:
            self.made.append(None)
        return _step(self, outside, args, {})


def _clip(steps: Steps, *args: Any) -> Any:
    return _step(steps, np.clip, args, {})


def _step(steps: Steps, function: Any, args: tuple, options: dict) -> Any:
    steps.count += 1
    if steps.made is not None:
        found = function(*args, **options)
        steps.made.append(found)
        return found
    if steps.count == steps.last and not options and len(args) == getattr(function, "nin", 3):
        try:
            if function is where or function is outside:
                return function(*args, out=steps.target)
            return function(*args, out=steps.target, casting="no")
        except TypeError:
            pass  # this block takes another branch of the kernel
    return function(*args, **options)


def _counted(ufunc: np.ufunc) -> Callable[..., Any]:
    def step(self: Steps, *args: Any, **options: Any) -> Any:
        return _step(self, ufunc, args, options)

    return step


for _name, _ufunc in vars(np).items():  # not dir(): getattr would import all its sub-packages
    if isinstance(_ufunc, np.ufunc) and _ufunc.nout == 1 and _ufunc.signature is None:
        setattr(Steps, _name, _counted(_ufunc))

Steps.clip = _clip  # type: ignore[attr-defined]
