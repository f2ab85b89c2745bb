"""Cells of LSTM and GRU layers generated (the extra `jit`): one loop a step instead of a dozen calls of numpy.

Products stay with the backend.  Note [Generated kernels on the CPU].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from engine.backends.cpu.fast import fast
from engine.kernels import cpu
from engine.kernels.form import FormError
from engine.kernels.recurrent import CELLS
from engine.ops.generated import launch
from engine.ops.nn import _rnn

__all__ = ["step"]

TYPES = ("float32", "float64")
_WORK = 8  # elements' worth of work of a unit
_entries: dict[Any, launch.Entry] = {}


def step(name: str, dtype: Any, size: int, rows: int) -> Callable[..., None] | None:
    """One of `kernels.recurrent.CELLS` for layers of `size` units and `rows` rows in all, as a function of the number
    of sequences and its arrays, all contiguous; None for what is left to numpy.
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
        mine, there = (_small(name, dtype, cell) for cell in (_cell(built, _SIZE), None))
        if not launch.proven(name, [entry], launch.difference(there, mine)):
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


_SIZE = 21  # units of the layer that proves a kernel


def _small(name: str, dtype: Any, cell: Any) -> tuple[Any, ...]:
    """What a small layer gives with a cell; None: with numpy's steps."""
    rng = np.random.default_rng(0)
    draw = lambda *shape: rng.standard_normal(shape).astype(dtype)
    sizes, gates = (3, 3, 2), 4 if name.startswith("lstm") else 3
    rows = sum(sizes)
    x, w, h, c = draw(rows, gates * _SIZE), draw(gates * _SIZE, _SIZE), draw(3, _SIZE), draw(3, _SIZE)
    grad, of_h, of_c = draw(rows, _SIZE), draw(3, _SIZE), draw(3, _SIZE)
    forward = cell if name in ("lstm_cell", "gru_cell") else None
    if gates == 4:
        made = _rnn.lstm_forward(fast, x, h, c, w, None, sizes, False, cell=forward)
        if name == "lstm_cell":
            return tuple(made)
        of = (fast, grad, of_h, of_c, h, c, w, None, made[0], *made[3:], sizes, False)
        return tuple(_rnn.lstm_backward(*of, cell=cell)[:4])
    bias = draw(gates * _SIZE)
    made = _rnn.gru_forward(fast, x, h, w, bias, sizes, False, cell=forward)
    if name == "gru_cell":
        return tuple(made)
    return tuple(_rnn.gru_backward(fast, grad, of_h, h, w, made[0], *made[2:], sizes, False, cell=cell))
