"""Whole layers of LSTM over few sequences as generated kernels (the extra `jit`), of which Python starts one a layer,
and single steps of LSTM and GRU.

They are the kernels "cpu" of their ops; what they do not serve is left to the other route.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.dispatch import kernel
from engine.kernels import recurrent
from engine.ops import recurrent as rnn
from engine.ops.generated.layers import plain, run
from engine.ops.recurrent import cells

_SEQUENCES = 8  # from which products of all sequences read the weight less often


def _few(h0: Any, weight: Any, projection: Any, batch_sizes: Any, *others: Any) -> tuple[int, int, int] | None:
    """(sequences, units, steps) of a layer that the kernels serve: few sequences of one length."""
    (count, size), steps = h0.shape, len(batch_sizes)
    if projection is not None or not steps or size % 4 or not 0 < count < _SEQUENCES:
        return None
    if batch_sizes[-1] != count or not plain(h0, weight, *others):
        return None
    return count, size, steps


def _before(xp: Any, first: Any, states: Any, reverse: bool) -> Any:
    """The state before each step.  first (N, H), states (T N, H) -> (T N, H)."""
    made, count = xp.empty(states.shape, states.dtype), len(first)
    if reverse:
        made[-count:], made[:-count] = first, states[count:]
    else:
        made[:count], made[count:] = first, states[:-count]
    return made


def _walk(steps: int, reverse: bool) -> list[int]:
    """[the first step, how far the next one is]."""
    return [steps - 1, -1] if reverse else [0, 1]


@kernel(rnn.lstm_layer, "cpu")
def _lstm_layer(xp, gates, h0, c0, weight, projection=None, batch_sizes=(), reverse=False):
    found = _few(h0, weight, projection, batch_sizes, gates, c0)
    if found is None:
        return NotImplemented
    count, size, steps = found
    h, c, transposed = h0.copy(), c0.copy(), np.ascontiguousarray(weight.T)
    act, cells = xp.empty(gates.shape, gates.dtype), xp.empty((len(gates), size), gates.dtype)
    output = xp.empty(cells.shape, gates.dtype)
    numbers = [size, count, steps, *_walk(steps, reverse)]
    run(recurrent.lstm_layer, [gates, transposed, h, c, output, act, cells], numbers, count, steps * size * size * 4)
    return output, h, c, act, cells


@kernel(rnn.lstm_layer_backward, "cpu")
def _lstm_layer_backward(
    xp,
    grad_output,
    grad_h,
    grad_c,
    gates,
    h0,
    c0,
    weight,
    output,
    activations,
    cells,
    projection=None,
    batch_sizes=(),
    reverse=False,
):
    found = _few(h0, weight, projection, batch_sizes, grad_output, grad_h, grad_c, c0, output, activations, cells)
    if found is None:
        return NotImplemented
    count, size, steps = found
    of_gates, of_h, of_c = xp.empty(activations.shape, h0.dtype), grad_h.copy(), grad_c.copy()
    before, states = (_before(xp, first, rest, reverse) for first, rest in ((c0, cells), (h0, output)))
    numbers = [size, count, steps, *_walk(steps, reverse)]
    arrays = [activations, cells, before, weight, grad_output, of_h, of_c, of_gates]
    run(recurrent.lstm_layer_backward, arrays, numbers, count, steps * size * size * 4)
    return of_gates, of_h, of_c, xp.matmul(of_gates.T, states), xp.zeros((0,), h0.dtype)


# --- single steps


def _new(xp: Any, like: Any, *widths: int) -> list[Any]:
    count, size = like.shape
    return [xp.empty((count, size * width), like.dtype) for width in widths]


@kernel(cells.lstm_gates, "direct", only_launches=True)
def _lstm_gates(xp, inputs, share, cell):
    if not plain(cell, inputs, share):
        return NotImplemented
    found, (count, size) = _new(xp, cell, 1, 1, recurrent.SAVED), cell.shape
    run(recurrent.lstm_gates, [inputs, share, cell, *found], [size], count, size)
    return tuple(found)


@kernel(cells.lstm_gates_backward, "direct", only_launches=True)
def _lstm_gates_backward(xp, grad_hidden, grad_cell, inputs, share, cell, saved):
    if not plain(cell, saved, grad_hidden, grad_cell):
        return NotImplemented
    found, (count, size) = _new(xp, cell, 4, 1), cell.shape
    run(recurrent.lstm_gates_backward, [grad_hidden, grad_cell, saved, cell, *found], [size], count, size)
    return tuple(found)


@kernel(cells.gru_gates, "direct", only_launches=True)
def _gru_gates(xp, inputs, share, state):
    if not plain(state, inputs, share):
        return NotImplemented
    found, (count, size) = _new(xp, state, 1, recurrent.SAVED), state.shape
    run(recurrent.gru_gates, [inputs, share, state, *found], [size], count, size)
    return tuple(found)


@kernel(cells.gru_gates_backward, "direct", only_launches=True)
def _gru_gates_backward(xp, grad_made, inputs, share, state, saved):
    if not plain(state, saved, grad_made):
        return NotImplemented
    found, (count, size) = _new(xp, state, 3, 3, 1), state.shape
    run(recurrent.gru_gates_backward, [grad_made, saved, *found], [size], count, size)
    return tuple(found)
