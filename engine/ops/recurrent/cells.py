"""What a step of an LSTM or a GRU does to its gates, as one op: `lstm_cell` and `gru_cell` behind their products.

What the gradient reads is a result of its own (`saved`), so that states may be written to meanwhile.
"""

from __future__ import annotations

from typing import Any

from engine.core import dtypes
from engine.dispatch import joint_derivative, op, samples
from engine.ops._vjp import WHY
from engine.ops.activation import logistic
from engine.ops.recurrent.twins import gru_step_of, lstm_step_of, start, twice

_FLOATS = (dtypes.float32, dtypes.float64)


def fits(*tensors: Any) -> bool:
    """Return whether a step of these is one op: floats of one type, of which the CPU rounds no step in between."""
    dtype = tensors[0].dtype
    return dtype in _FLOATS and all(t.dtype is dtype and not t.is_cuda for t in tensors)


def _parts(array: Any, size: int) -> list[Any]:
    return [array[:, at : at + size] for at in range(0, array.shape[1], size)] if size else [array] * 5


@op(
    public=False,
    method=False,
    out=False,
    returns=("gates", "cell"),
    tensors=("grad_hidden", "grad_cell", "inputs", "share", "cell", "saved"),
    why=WHY,
    large=4096,
    generated="many",
)
@joint_derivative(
    "grad_hidden",
    "grad_cell",
    "inputs",
    "share",
    "cell",
    by=lambda grads, grad_hidden, grad_cell, inputs, share, cell, needs: twice(
        lstm_step_of, 2, (grads[0], None, grads[1]), needs, grad_hidden, grad_cell, inputs, share, cell
    ),
)
def lstm_gates_backward(xp, grad_hidden, grad_cell, inputs, share, cell, saved):
    """The gradients of `lstm_gates` (N, H) -> those of the gates (N, 4H) and of cell (N, H)."""
    i, f, g, o, t = _parts(saved, cell.shape[1])
    d = (1 - t * t) * o * grad_hidden + grad_cell
    found = (1 - i) * i * g * d, (1 - f) * f * cell * d, (1 - g * g) * i * d, (1 - o) * o * t * grad_hidden
    return xp.concatenate(found, axis=1), d * f


def _lstm_formula(grad0, grad1, inputs, share, cell, result2):
    of_hidden = start(None, cell) if grad0 is None else grad0  # which torch's formula saves
    of_gates, of_cell = lstm_gates_backward(of_hidden, start(grad1, cell), inputs, share, cell, result2.detach())
    return of_gates, of_gates, of_cell


@op(
    public=False,
    method=False,
    out=False,
    returns=("hidden", "made", "saved"),
    tensors=("inputs", "share", "cell"),
    nondifferentiable=("saved",),
    node="MulBackward0",
    large=4096,
    generated="many",
)
@joint_derivative("inputs", "share", "cell", by=_lstm_formula)
@samples(lambda t: [(t(3, 8), t(3, 8), t(3, 2)), (t(1, 4), t(1, 4), t(1, 1))])
def lstm_gates(xp, inputs, share, cell):
    """The new states of an LSTM.  inputs, share (N, 4H), cell (N, H) -> hidden, cell (N, H), saved (N, 5H)."""
    size = cell.shape[1]
    i, f, g, o = _parts(inputs + share, size)[:4]
    i, f, g, o = logistic(xp, i), logistic(xp, f), xp.tanh(g), logistic(xp, o)
    made = f * cell + i * g
    t = xp.tanh(made)
    return o * t, made, xp.concatenate((i, f, g, o, t), axis=1)


@op(
    public=False,
    method=False,
    out=False,
    returns=("inputs", "share", "state"),
    tensors=("grad_made", "inputs", "share", "state", "saved"),
    why=WHY,
    large=4096,
    generated="many",
)
@joint_derivative(
    "grad_made",
    "inputs",
    "share",
    "state",
    by=lambda grads, grad_made, inputs, share, state, needs: twice(
        gru_step_of, 1, grads, needs, grad_made, inputs, share, state
    ),
)
def gru_gates_backward(xp, grad_made, inputs, share, state, saved):
    """The gradient of `gru_gates` (N, H) -> those of inputs and share (N, 3H) and of state (N, H)."""
    r, z, n, inner, apart = _parts(saved, state.shape[1])
    keep = grad_made * z
    of_n = (1 - n * n) * (grad_made - keep)
    of_r, of_z = (1 - r) * r * inner * of_n, (1 - z) * z * apart * grad_made
    of_inputs, of_share = (xp.concatenate((of_r, of_z, last), axis=1) for last in (of_n, of_n * r))
    return of_inputs, of_share, keep


def _gru_formula(grad0, inputs, share, state, result1):
    return gru_gates_backward(grad0, inputs, share, state, result1.detach())


@op(
    public=False,
    method=False,
    out=False,
    returns=("made", "saved"),
    tensors=("inputs", "share", "state"),
    nondifferentiable=("saved",),
    node="AddBackward0",
    large=4096,
    generated="many",
)
@joint_derivative("inputs", "share", "state", by=_gru_formula)
@samples(lambda t: [(t(3, 6), t(3, 6), t(3, 2)), (t(1, 3), t(1, 3), t(1, 1))])
def gru_gates(xp, inputs, share, state):
    """The new state of a GRU.  inputs, share (N, 3H), state (N, H) -> the new state (N, H), saved (N, 5H)."""
    size = state.shape[1]
    (a, b, c), (d, e, inner) = (_parts(array, size)[:3] for array in (inputs, share))
    r, z = logistic(xp, a + d), logistic(xp, b + e)
    n = xp.tanh(c + r * inner)
    apart = state - n
    return n + z * apart, xp.concatenate((r, z, n, inner, apart), axis=1)
