"""A whole recurrent network as one op, for libraries that compute one: all layers and directions over packed rows.

On the CPU networks are made layer by layer (`__init__.py`); on a GPU with cuDNN `network` takes its place.  The weights
are one vector: of each layer and direction the input weight, the hidden weight, both biases, the projection.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from engine.core.grad_mode import mode
from engine.dispatch import joint_derivative, op, samples
from engine.ops._vjp import WHY
from engine.ops.joining import cat, stack
from engine.ops.products import linear
from engine.ops.random.dropout import dropout as _dropout
from engine.ops.recurrent import numpy as by_numpy
from engine.ops.recurrent.twins import gru_twin, like, lstm_twin, simple_twin, start, twice, wide

_GATES = {"lstm": 4, "gru": 3, "tanh": 1, "relu": 1}


class Form(NamedTuple):
    """mode: "lstm", "gru", "tanh" or "relu"; projected: the width of the hidden state, 0 where it is `hidden`."""

    mode: str
    hidden: int
    projected: int
    layers: int
    directions: int
    biases: bool


def _parts(flat, form, inputs):
    """For each layer and direction (where in the vector it begins, [w_ih, w_hh, b_ih, b_hh, w_hr] or None for each)."""
    rows, out = _GATES[form.mode] * form.hidden, form.projected or form.hidden
    at, found = 0, []
    for k in range(form.layers * form.directions):
        width = inputs if k < form.directions else out * form.directions
        bias = (rows,) if form.biases else None
        shapes = ((rows, width), (rows, out), bias, bias, (out, form.hidden) if form.projected else None)
        begin, own = at, []
        for shape in shapes:
            own.append(None if shape is None else flat[at : at + prod(shape)].reshape(shape))
            at += 0 if shape is None else prod(shape)
        found.append((begin, own))
    return found


def _walk(xp, rows, h0, c0, weights, form, batch_sizes):
    """Layer by layer: (output, final h, final c, what a backward wants of each)."""
    saved, finals, cells, count = [], [], [], form.directions
    for k, (begin, (w, u, b, d, p)) in enumerate(_parts(weights, form, rows.shape[1])):
        if k and k % count == 0:
            rows = xp.concatenate([of[-1][0] for of in saved[-count:]], 1)
        gates = xp.matmul(rows, w.T)
        if b is not None:
            gates += b if form.mode == "gru" else b + d
        reverse = k % count == 1
        if form.mode == "lstm":
            found = by_numpy.lstm_forward(xp, gates, h0[k], c0[k], u, p, batch_sizes, reverse)
            cells.append(found[2])
        elif form.mode == "gru":
            found = by_numpy.gru_forward(xp, gates, h0[k], u, d, batch_sizes, reverse)
        else:
            found = by_numpy.simple(xp, gates, h0[k], u, form.mode == "relu", batch_sizes, reverse)
        finals.append(found[1])
        saved.append((begin, (w, u, b, d, p), rows, reverse, found))
    output = xp.concatenate([of[-1][0] for of in saved[-count:]], 1)
    return output, xp.stack(finals), xp.stack(cells) if cells else xp.zeros((0,), output.dtype), saved


def _one_back(xp, form, k, of, grad, grad_h, grad_c, h0, c0, batch_sizes):
    """The gradients of the gates, h0, c0, the hidden weight, its bias and the projection of one direction."""
    _, (_, u, _, _, p), _, reverse, found = of
    if form.mode == "lstm":
        g, h, c, w, out = by_numpy.lstm_backward(
            xp, grad, grad_h[k], grad_c[k], h0[k], c0[k], u, p, found[0], found[3], found[4], batch_sizes, reverse
        )
        return g, h, c, w, g.sum(axis=0), out
    if form.mode == "gru":
        g, h, w, bias = by_numpy.gru_backward(
            xp, grad, grad_h[k], h0[k], u, found[0], found[2], found[3], batch_sizes, reverse
        )
        return g, h, None, w, bias, None
    relu = form.mode == "relu"
    g, h, w = by_numpy.simple_backward(xp, grad, grad_h[k], h0[k], u, found[0], relu, batch_sizes, reverse)
    return g, h, None, w, g.sum(axis=0), None


def _small(rows, h0, c0, weights, form, batch_sizes):
    """`recurrent` out of small ops, which can be differentiated again and again."""
    finals, cells, outputs, count = [], [], [], form.directions
    for k, (_, (w, u, b, d, p)) in enumerate(_parts(weights, form, rows.shape[1])):
        if k and k % count == 0:
            rows, outputs = cat(outputs, 1), []
        reverse = k % count == 1
        if form.mode == "gru":
            output, h = gru_twin(linear(rows, w, b), h0[k], u, d, batch_sizes, reverse)
        else:
            gates = linear(rows, w, None if b is None else b + d)
            if form.mode == "lstm":
                output, h, c = lstm_twin(gates, h0[k], c0[k], u, p, batch_sizes, reverse)
                cells.append(c)
            else:
                output, h = simple_twin(gates, h0[k], u, form.mode, batch_sizes, reverse)
        finals.append(h)
        outputs.append(output)
    return (cat(outputs, 1), stack(finals), *([stack(cells)] if cells else []))


def _twice(grads, grad_output, grad_h, grad_c, input, h0, c0, weights, needs, form, batch_sizes):
    if form.mode == "lstm":
        tensors = grad_output, grad_h, grad_c, input, h0, c0, weights
        return twice(lambda *a: _small(*a, form, batch_sizes), 3, grads, needs, *tensors)
    found = twice(
        lambda x, h, w: _small(x, h, None, w, form, batch_sizes),
        2,
        [grads[0], grads[1], grads[3]],
        [*needs[:2], *needs[3:5], needs[6]],
        grad_output,
        grad_h,
        input,
        h0,
        weights,
    )
    return (*found[:2], None, *found[2:4], None, found[4])


@op(
    public=False,
    method=False,
    out=False,
    returns=("input", "h0", "c0", "weights"),
    tensors=("grad_h", "grad_c", "h0", "c0", "weights", "reserve"),
    why=WHY,
)
@joint_derivative(
    "grad_output",
    "grad_h",
    "grad_c",
    "input",
    "h0",
    "c0",
    "weights",
    by=lambda grads, grad_output, grad_h, grad_c, input, h0, c0, weights, needs, form, batch_sizes: _twice(
        grads, grad_output, grad_h, grad_c, input, h0, c0, weights, needs, form, batch_sizes
    ),
)
def recurrent_backward(
    xp,
    grad_output,
    grad_h,
    grad_c=None,
    input=None,
    h0=None,
    c0=None,
    weights=None,
    output=None,
    reserve=None,
    form=(),
    batch_sizes=(),
    weights_too=True,
):
    """The gradients of `recurrent`.  grad_output (rows, D P), grad_h, grad_c as h0, c0 -> as the inputs."""
    del output, reserve  # a library's
    dtype, count = input.dtype, form.directions
    g, gh, gc, x, h, c, flat = wide(grad_output, grad_h, grad_c, input, h0, c0, weights)
    saved = _walk(xp, x, h, c, flat, form, batch_sizes)[3]
    of_flat, of_h, of_c = xp.empty(flat.shape, flat.dtype), [None] * len(saved), [None] * len(saved)
    width = form.projected or form.hidden
    for layer in reversed(range(form.layers)):
        below = 0
        for d in range(count):
            k = layer * count + d
            of = begin, (w, _, b, _, p), rows, _, _ = saved[k]
            share = xp.ascontiguousarray(g[:, d * width : (d + 1) * width])
            of_gates, of_h[k], of_c[k], of_u, of_bias, of_p = _one_back(
                xp, form, k, of, share, gh, gc, h, c, batch_sizes
            )
            pieces = [xp.matmul(of_gates.T, rows), of_u]
            pieces += [] if b is None else [of_gates.sum(axis=0), of_bias]
            pieces += [] if p is None else [of_p]
            for piece in pieces:
                of_flat[begin : begin + piece.size] = piece.reshape(-1)
                begin += piece.size
            below = below + xp.matmul(of_gates, w)
        g = below
    empty = xp.zeros((0,), flat.dtype)
    return like((g, xp.stack(of_h), xp.stack(of_c) if c is not None else empty, of_flat), dtype)


def _gradients(grad0, grad1, grad2, input, h0, c0, weights, result0, result3, needs, form, batch_sizes):
    found = recurrent_backward(
        start(grad0, result0),
        start(grad1, h0),
        None if c0 is None else start(grad2, c0),
        input,
        h0,
        c0,
        weights,
        result0.detach(),
        result3.detach(),
        form,
        batch_sizes,
        needs[3],
    )
    return (*found[:2], None if c0 is None else found[2], found[3])


def _samples(t):
    def case(form, inputs, sizes):
        out, cells = form.projected or form.hidden, form.layers * form.directions
        rows = _GATES[form.mode] * form.hidden
        count = 0
        for k in range(cells):
            width = inputs if k < form.directions else out * form.directions
            count += rows * (width + out) + 2 * rows * form.biases + form.projected * form.hidden
        state = (t(cells, sizes[0], out), t(cells, sizes[0], form.hidden) if form.mode == "lstm" else None)
        return (t(sum(sizes), inputs), *state, t(count), form, sizes, True)

    return [
        case(Form("lstm", 2, 0, 2, 2, True), 3, (3, 2)),
        case(Form("lstm", 3, 2, 1, 1, False), 2, (2, 2, 1)),
        case(Form("gru", 2, 0, 2, 1, True), 3, (2, 2)),
        case(Form("gru", 2, 0, 1, 2, False), 2, (2, 1)),
        case(Form("tanh", 2, 0, 1, 2, True), 2, (2, 1)),
        case(Form("relu", 2, 0, 2, 1, True), 2, (2, 2)),
    ]


@op(
    public=False,
    method=False,
    out=False,
    returns=("output", "h", "c", "reserve"),
    nondifferentiable=("reserve",),
    tensors=("h0", "c0", "weights"),
    autocast={"cuda": "lower"},
)
@joint_derivative("input", "h0", "c0", "weights", by=_gradients)
@samples(_samples)
def recurrent(xp, input, h0, c0=None, weights=None, form=(), batch_sizes=(), keep=True):
    """A recurrent network over packed rows; keep: whether gradients will be asked for.

    input (rows, F), h0 (D L, N, P), c0 (D L, N, H) or None, weights (all) -> output (rows, D P), h, c (empty without
    one), reserve (bytes that a library keeps for the backward).
    """
    x, h, c, flat = wide(input, h0, c0, weights)
    output, last_h, last_c, _ = _walk(xp, x, h, c, flat, form, batch_sizes)
    return (*like((output, last_h, last_c), input.dtype), xp.zeros((0,), "uint8"))


# --- for `lstm`, `gru` and `rnn` of `__init__.py`


def network(how, rows, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_sizes):
    """All layers over packed rows: (output, final states).  Dropout between layers is the engine's own, whose numbers
    are those of the CPU; then layers are computed one by one."""
    directions = 2 if bidirectional else 1
    per = len(params) // (num_layers * directions)
    by_layer = bool(dropout and train and num_layers > 1)
    keep = mode.enabled and any(t.requires_grad for t in (rows, *hx, *params))
    projected = params[per - 1].shape[0] if per in (3, 5) else 0
    finals = [[] for _ in hx]
    for first in range(0, num_layers, 1 if by_layer else num_layers):
        count = 1 if by_layer else num_layers
        cells = slice(first * directions, (first + count) * directions)
        flat = cat([p.reshape(-1) for p in params[cells.start * per : cells.stop * per]])
        form = Form(how, hx[-1].shape[-1], projected, count, directions, bool(has_biases))
        states = [x if not by_layer else x[cells] for x in hx]
        found = recurrent(rows, states[0], states[1] if len(hx) > 1 else None, flat, form, batch_sizes, keep)
        rows = found[0]
        for collected, value in zip(finals, found[1:3]):
            collected.append(value)
        if by_layer and first < num_layers - 1:
            rows = _dropout(rows, dropout, True)
    return rows, [f[0] if len(f) == 1 else cat(f, 0) for f in finals]
