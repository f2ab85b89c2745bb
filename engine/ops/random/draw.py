"""Numbers out of a generator's words, on arrays; no Tensors, no ops.

Large arrays of numpy's are filled in place by a few threads, with the same numbers (Note [Random bits] in
engine/random.py).
"""

from __future__ import annotations

import builtins
import math
from typing import Any

import numpy as np

from engine.core.checks import numel
from engine.core.slots import Keyed
from engine.random import Generator

_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)
_LARGE = 1 << 17  # numbers worth several threads
min_ = builtins.min

# by device type: {"uniform": ..., "kept": ...}, the functions below for devices that do each in one kernel; they may
# return NotImplemented
kernels: Keyed[str, dict[str, Any]] = Keyed()


def uniform(xp: Any, generator: Generator, count: int, dtype: Any) -> Any:
    """`count` numbers in [0, 1), every multiple of 2**-bits equally likely (24 bits for float32, 53 for float64)."""
    if xp is np and count >= _LARGE and dtype in (_F32, _F64):
        return fill_uniform(generator, _empty(count, dtype))
    own = kernels.get(generator.device.type)
    if own is not None and (made := own["uniform"](xp, generator, count, dtype)) is not NotImplemented:
        return made
    if dtype == _F64:
        return (generator.words(xp, count) >> np.uint64(11)) * 2.0**-53
    halves = generator.words(xp, (count + 1) // 2).view(np.uint32)[:count]
    if dtype == _F32:
        return (halves >> np.uint32(8)).astype(_F32) * np.float32(2.0**-24)
    bits = 11 if dtype.kind == "f" else 8
    return ((halves >> np.uint32(32 - bits)).astype(_F32) * np.float32(2.0**-bits)).astype(dtype)


def standard_normal(xp: Any, generator: Generator, count: int, dtype: Any) -> Any:
    """`count` standard normal numbers, by Box and Muller's transform of pairs."""
    work = dtype if dtype in (_F32, _F64) else _F32
    if xp is np and count >= _LARGE:
        return fill_normal(generator, _empty(count, work)).astype(dtype, copy=False)
    half = (count + 1) // 2
    draws = uniform(xp, generator, 2 * half, work)
    first, second = _pairs(xp, draws[:half], draws[half:])
    return xp.concatenate((first, second))[:count].astype(dtype, copy=False)


def _pairs(xp: Any, draws: Any, more: Any) -> tuple[Any, Any]:
    """As many independent normal numbers as two arrays of uniform ones have."""
    kind = draws.dtype.type
    radius = xp.sqrt(xp.log(1 - draws) * kind(-2))
    angle = more * kind(2 * math.pi)
    return radius * xp.cos(angle), radius * xp.sin(angle)


def _empty(count: int, dtype: Any) -> Any:
    from engine.backends.cpu import empty

    return empty((count,), dtype)


def _share(work: Any, count: int) -> None:
    """work(start, stop) for parts of 0..count that stay in the cache, on a few threads; `start` is a multiple of 8."""
    from engine.backends.cpu.fast import fast

    fast.share(lambda eights: work(eights.start * 8, min_(eights.stop * 8, count)), -(-count // 8), count)


def _drawn(draw: Any, start: int, stop: int, made: Any) -> Any:
    """`made` filled with the uniform numbers start..stop of a stream."""
    if made.dtype == _F64:
        first = start // 4 * 4
        words = draw(first, stop)[start - first :]
        np.multiply(words >> np.uint64(11), 2.0**-53, out=made)
        return made
    first = start // 8 * 8  # four words are eight halves
    halves = draw(first // 2, (stop + 1) // 2).view(np.uint32)[start - first : stop - first]
    halves >>= np.uint32(8)
    made[...] = halves
    made *= np.float32(2.0**-24)
    return made


def fill_uniform(generator: Generator, made: Any, low: float = 0.0, high: float = 1.0) -> Any:
    """`made`, a large contiguous array (n) of float32 or float64, with numbers in [low, high)."""
    kind, count = made.dtype.type, len(made)
    draw = generator.reserve(count if made.dtype == _F64 else (count + 1) // 2)

    def work(start: int, stop: int) -> None:
        piece = _drawn(draw, start, stop, made[start:stop])
        if (low, high) != (0, 1):
            piece *= kind(high - low)
            piece += kind(low)

    _share(work, count)
    return made


def fill_normal(generator: Generator, made: Any, mean: float = 0.0, std: float = 1.0) -> Any:
    """`made`, a large contiguous array (n) of float32 or float64, with normal numbers."""
    kind, count = made.dtype.type, len(made)
    half = (count + 1) // 2
    draw = generator.reserve(2 * half if made.dtype == _F64 else half)

    def work(start: int, stop: int) -> None:
        uniforms = np.empty((2, stop - start), made.dtype)
        _drawn(draw, start, stop, uniforms[0])
        _drawn(draw, half + start, half + stop, uniforms[1])
        for place, numbers in zip((start, half + start), _pairs(np, *uniforms)):
            if (mean, std) != (0, 1):
                numbers *= kind(std)
                numbers += kind(mean)
            target = made[place : place + len(numbers)]
            target[...] = numbers[: len(target)]

    _share(work, half)
    return made


def normal_array(xp: Any, generator: Generator, shape: Any, dtype: Any) -> Any:
    """Standard normal numbers in a shape; complex ones have variance 1 in all."""
    if dtype.kind in "cW":
        real = np.dtype(f"f{dtype.itemsize // 2}")
        pairs = standard_normal(xp, generator, 2 * numel(shape), real) * real.type(math.sqrt(0.5))
        return pairs.view(dtype).reshape(shape)
    return standard_normal(xp, generator, numel(shape), dtype).reshape(shape)


def uniform_array(xp: Any, generator: Generator, shape: Any, dtype: Any) -> Any:
    """Numbers in [0, 1) in a shape; complex ones in the unit square."""
    if dtype.kind in "cW":
        real = np.dtype(f"f{dtype.itemsize // 2}")
        return uniform(xp, generator, 2 * numel(shape), real).view(dtype).reshape(shape)
    return uniform(xp, generator, numel(shape), dtype).reshape(shape)


def line_of(xp: Any, array: Any) -> Any:
    """A large contiguous array of numpy's as (n), to be filled in place; None for others."""
    large = xp is np and array.size >= _LARGE and array.dtype in (_F32, _F64)
    return array.reshape(-1) if large and array.flags.c_contiguous else None


def below(xp: Any, generator: Generator, shape: Any, p: Any) -> Any:
    """A mask that is true with probability `p` (a number or an array)."""
    count = numel(shape)
    halves = generator.words(xp, (count + 1) // 2).view(np.uint32)[:count].reshape(shape)
    if isinstance(p, builtins.float | builtins.int):
        return halves < np.uint64(min_(round(p * 2.0**32), 2**32))
    return halves * 2.0**-32 < p.astype(_F64)


def kept(xp: Any, generator: Generator, shape: Any, p: float, dtype: Any) -> Any:
    """1 / p with probability `p` > 0, else 0: what dropout multiplies with."""
    own = kernels.get(generator.device.type)
    if own is None and xp is np:
        own = kernels["cpu"] = _generated()
    if own is not None and (made := own["kept"](xp, generator, shape, p, dtype)) is not NotImplemented:
        return made
    if not shape:  # numpy's products of arrays without dims are no arrays
        return kept(xp, generator, (1,), p, dtype).reshape(())
    count = numel(shape)
    work = dtype if dtype in (_F32, _F64) else _F32
    most = np.uint32(round(p * 2.0**32) - 1) if p * 2.0**32 >= 0.5 else None
    scale = work.type(1) / work.type(p)
    if xp is not np or count < _LARGE or most is None:
        return (below(xp, generator, shape, p) * scale).astype(dtype, copy=False)
    draw, made = generator.reserve((count + 1) // 2), _empty(count, work)

    def piece(start: int, stop: int) -> None:
        halves = draw(start // 2, (stop + 1) // 2).view(np.uint32)[: stop - start]
        np.multiply(halves <= most, scale, out=made[start:stop])

    _share(piece, count)
    return made.reshape(shape).astype(dtype, copy=False)


def _generated() -> dict[str, Any]:
    """The CPU's functions from generated code, where there is some."""
    from engine.kernels import processor

    if not processor.available():
        return {"kept": lambda *args: NotImplemented, "uniform": lambda *args: NotImplemented}
    from engine.ops.random import generated as random

    return random.KERNELS


def integers(xp: Any, generator: Generator, low: int, high: int, shape: Any, dtype: Any) -> Any:
    """Integers in [low, high)."""
    count, span = numel(shape), high - low
    if span <= 2**32:
        halves = generator.words(xp, (count + 1) // 2).view(np.uint32)[:count].astype(np.uint64)
        drawn = (halves * np.uint64(span)) >> np.uint64(32)
    else:
        drawn = generator.words(xp, count)
        if span < 2**64:
            drawn = drawn % np.uint64(span)
    drawn = drawn.astype(np.int64)
    if low:
        drawn = drawn + np.int64(low)
    return drawn.astype(dtype).reshape(shape)
