"""Random numbers on the device: the CPU's bits for a seed, since word j depends on the seed and j alone.

Normal numbers go through sin, cos and log, whose last digit may differ between devices; all else is the same.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from engine import random
from engine.backends.cuda import compile as compiling
from engine.kernels import tables
from engine.kernels.trace import KNOWN
from engine.ops import _draw
from engine.ops.cuda._launch import built, map_grid, scalar, usable


@functools.lru_cache(64)
def _compiled(name: str, dtype: Any, wide: bool, generation: int) -> Any:
    make = getattr(tables, name)
    return built(make() if dtype is None else make(dtype), wide=wide)


def _launch(name: str, dtype: Any, made: Any, seed: int, first: int, each: int, numbers: Any = ()) -> Any:
    wide = made.size + (1 << 24) >= 2**31
    blocks = -(-made.size // each)
    if blocks:
        call = _compiled(name, dtype, wide, compiling.generation)
        values = [np.uint64(seed), np.uint64(first), scalar(made.size, "index", wide), *numbers]
        call(*map_grid(blocks), [made, *values, scalar(blocks, "index", wide)])
    return made


def words(xp: Any, seed: int, first: int, count: int) -> Any:
    """`count` words from block `first` on.  -> (count) uint64."""
    if not usable("random"):
        drawn = random.philox(seed, first).random_raw(-(-count // 4) * 4)
        return xp.asarray(drawn[:count])
    return _launch("words", None, xp.empty(count, np.uint64), seed, first, 4)


def uniform(xp: Any, generator: Any, count: int, dtype: Any) -> Any:
    """`_draw.uniform` in one kernel.  -> (count)."""
    dtype = np.dtype(dtype)
    if not usable("random") or dtype.name not in KNOWN:
        return NotImplemented
    each = 4 if dtype == np.float64 else 8
    seed, first = generator.take(count if each == 4 else (count + 1) // 2)
    return _launch("uniform", dtype, xp.empty(count, dtype), seed, first, each)


def kept(xp: Any, generator: Any, shape: Any, p: float, dtype: Any) -> Any:
    """`_draw.kept` in one kernel.  -> (*shape)."""
    dtype = np.dtype(dtype)
    if not usable("random") or dtype.name not in KNOWN:
        return NotImplemented
    made = xp.empty(shape, dtype)
    seed, first = generator.take((made.size + 1) // 2)
    work = dtype if dtype in (np.float32, np.float64) else np.dtype(np.float32)
    limit = np.uint64(min(round(p * 2.0**32), 2**32))
    scale = work.type(1) / work.type(p)
    return _launch("kept", dtype, made, seed, first, 8, (limit, scale))


random.word_kernels["cuda"] = words
_draw.kernels["cuda"] = {"uniform": uniform, "kept": kept}
