"""The factors of dropout, from generated code: the same bits as numpy's route (Note [Random bits])."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from engine import random
from engine.backends.cpu.allocator import empty
from engine.kernels import cpu, tables
from engine.kernels.form import FormError
from engine.kernels.trace import KNOWN
from engine.ops.generated import launch

FEW = 1 << 12  # numbers from which it is faster than numpy
_entries: dict[Any, launch.Entry] = {}


def kept(xp: Any, generator: Any, shape: Any, p: float, dtype: Any) -> Any:
    """`draw.kept`.  -> (*shape); NotImplemented for few numbers and for types without kernels."""
    count, dtype = math.prod(shape), np.dtype(dtype)
    if count < FEW or dtype.name not in KNOWN:
        return NotImplemented
    whole = count % 8 == 0  # numbers of a block: a check of each takes as long as a third of them
    entry = _entries.setdefault((dtype, whole), launch.Entry())
    trials = launch.trials
    trials.paid = False
    trials.fresh.clear()
    try:
        built = launch.ready(entry, count, lambda: cpu.build(tables.kept(dtype, whole=whole)))
    except (launch.Unfit, FormError):
        return NotImplemented
    work = dtype if dtype in (np.float32, np.float64) else np.dtype(np.float32)
    limit, scale = min(round(p * 2.0**32), 2**32), work.type(1) / work.type(p)
    if trials.fresh:
        trials.fresh.clear()
        if not _proven(built, entry, limit, scale, dtype, 1000 if whole else 1001):
            return NotImplemented
    seed, first = generator.take((count + 1) // 2)
    made = empty(shape, dtype)
    built([made, seed, first, count, limit, scale], -(-count // 8), 8)
    return made


def _proven(built: Any, entry: launch.Entry, limit: int, scale: Any, dtype: Any, few: int) -> bool:
    """Return whether the kernel makes what numpy's words say, of a few."""
    made = np.empty(few, dtype)
    built([made, 12345, 7, few, limit, scale], -(-few // 8), 8)
    halves = random.philox(12345, 7).random_raw(-(-few // 8) * 4).view(np.uint32)[:few]
    want = ((halves < np.uint64(limit)) * scale).astype(dtype)
    return launch.proven("dropout", [entry], None if made.tobytes() == want.tobytes() else "other numbers")


KERNELS = {"kept": kept, "uniform": lambda *args: NotImplemented}
