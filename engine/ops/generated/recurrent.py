"""Whole layers of LSTM over few sequences as generated kernels (the extra `jit`), of which Python starts one a layer,
and single steps of LSTM and GRU.

They are the kernels "cpu" of their ops; what they do not serve is left to the other route.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.backends.cpu import LARGE, empty, relayout, threads
from engine.backends.cpu.packing import aligned
from engine.backends.onednn import arrays
from engine.backends.onednn.primitives import usable
from engine.dispatch import kernel
from engine.kernels import recurrent
from engine.kernels.form import Kernel
from engine.ops import recurrent as rnn
from engine.ops.generated import transposes
from engine.ops.generated.layers import plain, run
from engine.ops.recurrent import cells

_LINE = 64  # bytes of the cache
_MANY_STEPS = 8  # that pay for a copy of the weight
_SEQUENCES = 33  # from which products of all sequences are as fast


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


def _walk(size: int, count: int, steps: int, reverse: bool) -> tuple[list[int], int]:
    """(the numbers of a walk of `kernels.recurrent`, its rows): as many groups of sequences as there are threads."""
    group = -(-count // min(count, threads.get_num_threads()))
    return [size, count, group, steps, *([steps - 1, -1] if reverse else [0, 1])], -(-count // group)


def _run(make: Callable[[str], Kernel], arrays: list[Any], walk: tuple[list[int], int], parts: int, *more: int) -> None:
    """Run a kernel of a layer whose gates are `parts`."""
    numbers, rows = walk
    size, _, group, steps, *_ = numbers
    run(make, arrays, [*numbers, *more], rows, group * steps * size * size * parts)


def _in_lines(array: Any) -> Any:
    """A copy that begins where a line of the cache does: vectors of an array that does not lie across two of them."""
    large = array.nbytes >= LARGE  # at such a boundary by itself
    made = empty(array.shape, array.dtype) if large else aligned(array.nbytes).view(array.dtype).reshape(array.shape)
    if not transposes.transposed(made, array):
        relayout.copy(made, array)
    return made


def _matrix(weight: Any, steps: int) -> Any:
    """The weight for so many steps."""
    beside = weight.__array_interface__["data"][0] % _LINE
    return _in_lines(weight) if beside and steps >= _MANY_STEPS else weight


def _product(xp: Any, a: Any, b: Any) -> Any:
    """a @ b: by oneDNN where it is, so that BLAS's own threads stay asleep."""
    if usable(a, b):
        made = empty((a.shape[0], b.shape[1]), a.dtype)
        if arrays.sgemm(a, b, made):
            return made
    return xp.matmul(a, b)


@kernel(rnn.lstm_layer, "cpu")
def _lstm_layer(xp, gates, h0, c0, weight, projection=None, batch_sizes=(), reverse=False):
    found = _few(h0, weight, projection, batch_sizes, gates, c0)
    if found is None:
        return NotImplemented
    return _lstm(xp, gates, h0, c0, weight, found, reverse, True)


@kernel(rnn.lstm_inference, "cpu")
def _lstm_inference(xp, rows, h0, c0, weight_ih, weight_hh, bias=None, length=0, reverse=False):
    found = _few(h0, weight_hh, None, (len(h0),) * length, c0)
    if found is None or not rows.dtype == weight_ih.dtype == h0.dtype:
        return NotImplemented
    gates = _product(xp, rows, weight_ih.T)
    if bias is not None:
        gates += bias
    return _lstm(xp, gates, h0, c0, weight_hh, found, reverse, False)[:3]


def _lstm(
    xp: Any, gates: Any, h0: Any, c0: Any, weight: Any, found: Any, reverse: bool, saved: bool
) -> tuple[Any, ...]:
    """The results of `lstm_layer`; saved: whether activations and cells are asked for."""
    count, size, steps = found
    h, c, transposed = _in_lines(h0), c0.copy(), _in_lines(weight.T)
    rows = len(gates) if saved else count
    output, act = xp.empty((len(gates), size), gates.dtype), xp.empty((rows, 4 * size), gates.dtype)
    cells = xp.empty((rows, size), gates.dtype)
    walk = _walk(size, count, steps, reverse)
    _run(recurrent.lstm_layer, [gates, transposed, h, c, output, act, cells], walk, 4, int(saved))
    return output, h.copy(), c, act, cells


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
    grads = [xp.ascontiguousarray(g) for g in (grad_output, grad_h, grad_c)]  # parts of those of both directions
    found = _few(h0, weight, projection, batch_sizes, *grads, c0, output, activations, cells)
    if found is None:
        return NotImplemented
    count, size, steps = found
    of_gates, of_h, of_c = xp.empty(activations.shape, h0.dtype), _in_lines(grads[1]), grads[2].copy()
    before, states = (_before(xp, first, rest, reverse) for first, rest in ((c0, cells), (h0, output)))
    given = [activations, cells, before, _matrix(weight, steps), grads[0], of_h, of_c, of_gates]
    _run(recurrent.lstm_layer_backward, given, _walk(size, count, steps, reverse), 4)
    return of_gates, of_h.copy(), of_c, _product(xp, of_gates.T, states), xp.zeros((0,), h0.dtype)


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
