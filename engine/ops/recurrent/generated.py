"""Cells of LSTM and GRU layers generated (the extra `jit`): one loop per step instead of a dozen calls of numpy.

Products stay with the backend.  See engine/kernels/README.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.kernels import cpu
from engine.kernels.form import FormError
from engine.kernels.recurrent import CELLS
from engine.ops.generated import comparison, launch

__all__ = ["SIZE", "step"]

TYPES = ("float32", "float64")
_WORK = 8  # elements' worth of work of a unit
SIZE = 21  # units of the layer that proves a kernel
_entries: dict[Any, launch.Entry] = {}


def step(name: str, dtype: Any, size: int, rows: int, small: Callable[..., Any]) -> Callable[..., None] | None:
    """One of `kernels.recurrent.CELLS` for layers of `size` units and `rows` rows in all, as a function of the number
    of sequences and its arrays, all contiguous; None for what is left to numpy.

    small(name, dtype, cell): what a layer of SIZE units gives with a cell, or with None, which proves a new one.
    """
    if dtype.name not in TYPES or not size * rows:
        return None
    entry = _entries.setdefault((name, dtype.name), launch.Entry())
    fresh = launch.trials.fresh
    launch.trials.paid = False
    fresh.clear()
    try:
        built = launch.ready(entry, rows * size * _WORK, lambda: cpu.build(CELLS[name](dtype.name)))
    except (launch.Unfit, FormError):
        return None
    if fresh:
        fresh.clear()
        mine, there = (small(name, dtype, cell) for cell in (_cell(built, SIZE), None))
        if not launch.proven(name, [entry], comparison.difference(there, mine)):
            return None
    return _cell(built, size)


def _cell(built: cpu.Built, size: int) -> Callable[..., None]:
    pack, run, shared, alone = built.pack, built.entry, built.shared, built.alone

    def cell(count: int, *arrays: Any) -> None:
        packed = pack(*map(id, arrays), size)
        if count * size <= alone:
            run(packed, 0, count)
        else:
            shared(packed, count, size)

    return cell
