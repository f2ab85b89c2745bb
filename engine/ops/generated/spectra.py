"""Fourier transforms of many lines of float32 as generated kernels (the extra `jit`): engine/kernels/spectra.py.

Each function is given `plain`, which computes the same by the library, and leaves to it what the kernel does not serve:
lengths with large prime factors, few or very long lines, float64, half spectra of a dim that is not the last.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engine.backends.cpu import empty, threads
from engine.core.lru import LRU
from engine.kernels import processor
from engine.kernels.spectra import COLUMNS, COMPLEX, HALF, PARAMETERS, PLAN, REAL, factors, spectrum
from engine.ops.generated import launch
from engine.ops.generated.route import GeneratedRoute, lanes, linked, run, several

__all__ = ["complex_lines", "half_spectra", "real_lines"]

_LONGEST = 1 << 13  # points of a line
_HELD = 1 << 12  # complex numbers of the lines of a vector
_NARROW = 4  # lines of the narrowest vector
_APART = 3  # vectors between planes of a buffer, which else compete for places in a cache where sizes are powers of 2
_ALIKE = 0.45  # the time of a vector of neighbouring lines, in that of one whose numbers are gathered one by one
_MANY = 1024  # kinds of transforms that are remembered
_F32, _C64 = np.dtype("float32"), np.dtype("complex64")
_entries: dict[Sequence[int], launch.Entry] = {}  # by the vectors of the passes
_routes: LRU[Any, Any] = LRU(_MANY)  # of _Route; False: left to the library
_pack = struct.Struct(f"<{len(PARAMETERS) - 2}q2d").pack
Plain = Callable[[], Any]


@functools.lru_cache(64)
def _tables(size: int, points: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(what each pass does, the turns of all passes, the turns that make half a spectrum of `points` real numbers)."""
    plan, turns, before, begin = [], [], 1, 0
    for radix in factors(size) or ():
        plan.append((radix, before, size // (before * radix), begin))
        turns.append(np.outer(np.arange(1, before), np.arange(1, radix)).reshape(-1) / (before * radix))
        begin += turns[-1].size
        before *= radix
    cycles = np.concatenate(turns) if turns else np.zeros(0)
    ends = np.arange(size // 2 + 1) / points
    made = np.exp(-2j * np.pi * cycles).astype(_C64), np.exp(2j * np.pi * ends).astype(_C64)
    return np.array(plan, np.int64).reshape(-1, PLAN), *made


@functools.cache
def _code(width: int) -> Any:
    return linked(spectrum, width)


def _width(lines: int, size: int) -> int:
    """Lines of a vector: fewer where there are few, or where a cache would not hold those of the widest."""
    width = lanes()
    while width > _NARROW and (lines <= width // 2 or size * width > _HELD):
        width //= 2
    return width


class _Pass:
    """The transform of an array along one axis.  points: of a line of real numbers, where it has any."""

    def __init__(self, lines: int, size: int, points: int, after: int = 1, **given: Any) -> None:
        width = self.width = _width(lines, size)
        span = after if given.get("read") == COLUMNS else lines
        groups = lines // span * -(-span // width)
        jobs = min(groups, several(4 * lines * size * (4 + 5 * size.bit_length())))
        step = -(-groups // jobs)
        self.jobs = range(-(-groups // step))
        self.tables = _tables(size, points)
        numbers = dict(inverse=0, full=0, given=size, results=size, read=COMPLEX, written=COMPLEX)
        numbers |= dict(scale=1.0, middle=1.0) | given
        rows = max(size, numbers["given"], numbers["results"]) + _APART
        numbers |= dict(lines=lines, span=span, groups=groups, step=step, size=size, rows=rows, after=after)
        numbers["passes"] = len(self.tables[0])
        self.numbers = [numbers[name] for name in PARAMETERS[6:]]
        self.held = len(self.jobs) * 4 * rows * width

    def __call__(self, source: Any, target: Any) -> None:
        """target: may be the source where they have one shape."""
        plan, turns, ends = self.tables
        buffer = empty((self.held,), _F32)
        args = _pack(id(source), id(target), id(plan), id(turns), id(ends), id(buffer), *self.numbers)
        run(_code(self.width), [(args, at, at + 1) for at in self.jobs])


def _along(shape: Sequence[int], axis: int, inverse: bool, scale: float) -> _Pass:
    """The pass over complex lines along one axis."""
    size, after = shape[axis], math.prod(shape[axis + 1 :])
    lines = math.prod(shape) // size
    width = _width(lines, size)
    full, rest = divmod(after, width)
    way = COLUMNS if full * _ALIKE + bool(rest) < after / width else COMPLEX
    outer = size * after
    given = dict(read=way, written=way, outer_read=outer, outer_written=outer, inverse=int(inverse), scale=scale)
    return _Pass(lines, size, size, after, **given)


class _Route(GeneratedRoute):
    """The passes of a transform of arrays of one shape."""

    def __init__(self, passes: Sequence[_Pass], given: Sequence[int], made: Sequence[int], real: str) -> None:
        widths = sorted({one.width for one in passes})
        entry = _entries.setdefault(tuple(widths), launch.Entry())
        super().__init__("a Fourier transform", entry, math.prod(given) * 8, lambda: [_code(width) for width in widths])
        self.passes, self.made, self.real = passes, tuple(made), real
        self.within = tuple(given)

    def run(self, input: Any) -> Any:
        """The transform."""
        source = input if input.flags.c_contiguous else np.ascontiguousarray(input)
        out = empty(self.made, _F32 if self.real == "made" else _C64)
        if self.real == "made" and len(self.passes) > 1:
            held = empty(self.within, _C64)
            for number, along in enumerate(self.passes[:-1]):
                along(held if number else source, held)
            self.passes[-1](held, out)
            return out
        for number, along in enumerate(self.passes):
            along(out if number else source, out)
        return out

    def decide(self, made: Any, want: Any, mine: Plain, plain: Plain, operands: Sequence[Any]) -> bool:
        """As of other kernels, by the parts of complex numbers."""
        parts = lambda array: np.ascontiguousarray(array).view(_F32)
        return super().decide(parts(made), parts(want), mine, plain, [a.real for a in operands])


def _served(key: Any, make: Callable[[], _Route | None], plain: Plain, input: Any) -> Any:
    route = _routes.get(key)
    if route is None:
        route = _routes[key] = make() or False
    if route is False:
        return plain()
    if route.proven:
        return route.run(input)
    return route.chosen(lambda: route.run(input), plain, (input,))


def _fits(shape: Sequence[int], axes: Sequence[int], halves: bool) -> bool:
    """Return whether the kernel serves the axes of a shape; halves: the last is of real numbers."""
    total = math.prod(shape)
    if not total or not processor.available() or (halves and axes[-1] != len(shape) - 1):
        return False
    for axis in axes:
        size = shape[axis]
        if halves and axis == axes[-1] and size % 2 == 0:
            size //= 2
        if size > _LONGEST or total // shape[axis] < _NARROW // 2 or factors(size) is None:
            return False
    return True


def _scale(shape: Sequence[int], axes: Sequence[int], norm: int) -> float:
    count = math.prod([shape[axis] for axis in axes])
    return (1.0, 1 / math.sqrt(count), 1 / count)[norm]


def complex_lines(input: Any, axes: Sequence[int], norm: int, inverse: bool, plain: Plain) -> Any:
    """The transform of complex values."""
    if input.dtype != _C64:
        return plain()

    def make() -> _Route | None:
        shape, dims = input.shape, [axis % input.ndim for axis in axes]
        if not _fits(shape, dims, False):
            return None
        scales = [_scale(shape, dims, norm)] + [1.0] * len(dims)
        passes = [_along(shape, axis, inverse, scale) for axis, scale in zip(dims[::-1], scales)]
        return _Route(passes, shape, shape, "")

    return _served((inverse, input.shape, axes, norm, threads.get_num_threads()), make, plain, input)


def real_lines(input: Any, axes: Sequence[int], norm: int, onesided: bool, middle: float, plain: Plain) -> Any:
    """The transform of real values: half of it, or all."""
    if input.dtype != _F32:
        return plain()

    def make() -> _Route | None:
        shape, dims = input.shape, [axis % input.ndim for axis in axes]
        if not _fits(shape, dims, True):
            return None
        points = shape[-1]
        results = points // 2 + 1 if onesided else points
        given = dict(scale=_scale(shape, dims, norm), middle=middle, outer_written=results, results=results)
        lines, made = math.prod(shape[:-1]), (*shape[:-1], results)
        if points % 2:
            first = _Pass(lines, points, points, read=REAL, outer_read=points, **given)
        else:
            half = points // 2
            first = _Pass(lines, half, points, outer_read=half, written=HALF, full=int(not onesided), **given)
        return _Route([first, *[_along(made, axis, False, 1.0) for axis in dims[-2::-1]]], shape, made, "given")

    key = ("real", input.shape, axes, norm, onesided, middle, threads.get_num_threads())
    return _served(key, make, plain, input)


def half_spectra(input: Any, axes: Sequence[int], norm: int, points: int, middle: float, plain: Plain) -> Any:
    """The inverse transform of half spectra to lines of so many real values."""
    if input.dtype != _C64:
        return plain()

    def make() -> _Route | None:
        shape, dims = (*input.shape[:-1], points), [axis % input.ndim for axis in axes]
        results = points // 2 + 1
        if input.shape[-1] != results or not _fits(shape, dims, True):
            return None
        given = dict(scale=_scale(shape, dims, norm), middle=middle, inverse=1)
        given |= dict(outer_read=results, read=HALF, given=results)
        lines = math.prod(shape[:-1])
        if points % 2:
            last = _Pass(lines, points, points, written=REAL, outer_written=points, full=1, **given)
        else:
            last = _Pass(lines, points // 2, points, outer_written=points // 2, **given)
        passes = [*[_along(input.shape, axis, True, 1.0) for axis in dims[-2::-1]], last]
        return _Route(passes, input.shape, shape, "made")

    key = ("half", input.shape, axes, norm, points, middle, threads.get_num_threads())
    return _served(key, make, plain, input)
