"""Random numbers on the device: the CPU's bits for a seed, since word j depends on the seed and j alone.

Normal numbers go through sin, cos and log, whose last digit may differ between devices; all else is the same.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from engine import random
from engine.backends.cuda import compile as compiling
from engine.backends.cuda import runtime
from engine.kernels import tables
from engine.kernels.trace import KNOWN
from engine.ops.cuda._launch import built, map_grid, scalar, usable
from engine.ops.random import draw

# Note [Random numbers in graphs]
# The numbers of a replay must be others than those of the one before, and a graph's kernels have the same arguments at
# each.  So inside a capture they read seed and first block from memory of the graph's, count the blocks that they take
# from 0, and take none of the generator's.  Each replay takes the blocks of all of them from the generator at once, as
# torch does, and writes the seed and the first of them there: the numbers are those of the same draws without a graph.


@functools.lru_cache(64)
def _compiled(name: str, dtype: Any, replayed: bool, wide: bool, generation: int) -> Any:
    make = getattr(tables, name)
    return built(make(replayed=replayed) if dtype is None else make(dtype, replayed=replayed), wide=wide)


def _launch(name: str, dtype: Any, xp: Any, made: Any, generator: Any, count: int, each: int, numbers: Any = ()) -> Any:
    """Fill `made`, `each` elements a block, with `count` words of the generator."""
    wide = made.size + (1 << 24) >= 2**31
    blocks = -(-made.size // each)
    recording = runtime.memory.recording()
    if recording is not None:
        drawn = recording.drawn
        kept = drawn.get(generator)
        if kept is None:
            # not of the graph's memory, which its earlier kernels may write
            kept = drawn[generator] = [runtime.constant(np.zeros(2, np.uint64)), 0]
        state, seed, first = [kept[0]], 0, kept[1]
        kept[1] -= -count // 4
    else:
        state = []
        seed, first = generator.take(count)
    if blocks:
        call = _compiled(name, dtype, bool(state), wide, compiling.generation)
        values = [np.uint64(seed), np.uint64(first), scalar(made.size, "index", wide), *numbers]
        call(*map_grid(blocks), [made, *state, *values, scalar(blocks, "index", wide)])
    return made


def words(xp: Any, generator: Any, count: int) -> Any:
    """The next `count` words of a generator.  -> (count) uint64; NotImplemented where the host makes them."""
    if xp is np or not usable("random"):
        return NotImplemented
    return _launch("words", None, xp, xp.empty(count, np.uint64), generator, count, 4)


def uniform(xp: Any, generator: Any, count: int, dtype: Any) -> Any:
    """`draw.uniform` in one kernel.  -> (count)."""
    dtype = np.dtype(dtype)
    if not usable("random") or dtype.name not in KNOWN:
        return NotImplemented
    each = 4 if dtype == np.float64 else 8
    taken = count if each == 4 else (count + 1) // 2
    return _launch("uniform", dtype, xp, xp.empty(count, dtype), generator, taken, each)


def kept(xp: Any, generator: Any, shape: Any, p: float, dtype: Any) -> Any:
    """`draw.kept` in one kernel.  -> (*shape)."""
    dtype = np.dtype(dtype)
    if not usable("random") or dtype.name not in KNOWN:
        return NotImplemented
    made = xp.empty(shape, dtype)
    work = dtype if dtype in (np.float32, np.float64) else np.dtype(np.float32)
    limit = np.uint64(min(round(p * 2.0**32), 2**32))
    scale = work.type(1) / work.type(p)
    return _launch("kept", dtype, xp, made, generator, (made.size + 1) // 2, 8, (limit, scale))


random.word_kernels["cuda"] = words
draw.kernels["cuda"] = {"uniform": uniform, "kept": kept}
