"""LSTM, GRU and plain recurrent networks, and their cells.

One direction of one layer is one op (`numpy.py`), its backward another; double backward goes through the same
recurrence written with small ops (`twins.py`).  For libraries a whole network is one (`network.py`).
"""

from __future__ import annotations

import builtins

from engine.autograd import flops
from engine.autograd.graph import name_node, name_output
from engine.autograd.versions import guard, own
from engine.backends.cpu.relayout import in_torch_order
from engine.core import dtypes
from engine.core.grad_mode import mode, no_grad
from engine.dispatch import composite, joint_derivative, op, samples
from engine.dispatch.arguments import check_elements
from engine.ops._vjp import WHY
from engine.ops.activation import relu, tanh
from engine.ops.convolution.weights import lay_weight
from engine.ops.joining import cat, stack
from engine.ops.products import linear
from engine.ops.random.dropout import dropout as _dropout
from engine.ops.recurrent import numpy as by_numpy
from engine.ops.recurrent.cells import fits, gru_gates, lstm_gates
from engine.ops.recurrent.twins import (
    gru_step_of,
    gru_twin,
    like,
    lstm_step_of,
    lstm_twin,
    simple_twin,
    start,
    twice,
    wide,
)
from engine.tensor import Tensor

_WORTH = 1 << 13  # elements of a weight from which packing it for every use is felt


# --- the fused layers

_SIZES = (3, 3, 2)


def _lstm_samples(t, projected=False):
    made = []
    for sizes, reverse in (((2, 2, 2), False), (_SIZES, False), (_SIZES, True)):
        n, rows = sizes[0], builtins.sum(sizes)
        p = 1 if projected else 2
        made.append((t(rows, 8), t(n, p), t(n, 2), t(8, p), t(1, 2) if projected else None, sizes, reverse))
    return made


@op(
    public=False,
    method=False,
    out=False,
    returns=("gates", "h0", "c0", "weight", "projection"),
    tensors=("grad_h", "grad_c", "h0", "c0", "projection", "activations", "cells"),
    why=WHY,
    large=1024,
    generated="many",
    flops=("mm", flops.lstm_backward),
)
@joint_derivative(
    "grad_output",
    "grad_h",
    "grad_c",
    "gates",
    "h0",
    "c0",
    "weight",
    "projection",
    by=lambda grads, grad_output, grad_h, grad_c, gates, h0, c0, weight, projection, needs, batch_sizes, reverse: twice(
        lambda *a: lstm_twin(*a, batch_sizes, reverse),
        3,
        grads,
        needs,
        grad_output,
        grad_h,
        grad_c,
        gates,
        h0,
        c0,
        weight,
        projection,
    ),
)
def lstm_layer_backward(
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
    """The gradients of one LSTM direction.  grad_output (rows, P), grad_h (N, P), grad_c (N, H) -> as the inputs."""
    dtype = h0.dtype
    arrays = wide(grad_output, grad_h, grad_c, h0, c0, weight, projection, output, activations, cells)
    g, gh, gc, h, c, w, w_out, y, act, cell = arrays
    found = by_numpy.lstm_backward(xp, g, gh, gc, h, c, w, w_out, y, act, cell, batch_sizes, reverse)
    if found[4] is None:
        found = (*found[:4], xp.zeros((0,), act.dtype))
    return like(found, dtype)


def _walked(layer, *args):
    """The output of `layer`, once more: it may have been written to, since torch does not save it."""
    with no_grad():
        return layer(*args)[0]


def _lstm_formula(
    grad0,
    grad1,
    grad2,
    gates,
    h0,
    c0,
    weight,
    projection,
    kept_result0,
    result3,
    result4,
    batch_sizes,
    reverse,
):
    output = kept_result0
    if output is None:
        output = _walked(lstm_layer, gates, h0, c0, weight, projection, batch_sizes, reverse)
    found = lstm_layer_backward(
        start(grad0, output),
        start(grad1, h0),
        start(grad2, c0),
        gates,
        h0,
        c0,
        weight,
        output.detach(),
        result3.detach(),
        result4.detach(),
        projection,
        batch_sizes,
        reverse,
    )
    return found if projection is not None else (*found[:4], None)


@op(
    public=False,
    method=False,
    out=False,
    returns=("output", "h", "c", "activations", "cells"),
    nondifferentiable=("activations", "cells"),
    tensors=("h0", "c0"),
    large=4096,
    generated="many",
    autocast="lower",
    flops=("mm", flops.lstm_layer),
)
@joint_derivative("gates", "h0", "c0", "weight", "projection", by=_lstm_formula)
@samples(lambda t: _lstm_samples(t) + _lstm_samples(t, True))
def lstm_layer(xp, gates, h0, c0, weight, projection=None, batch_sizes=(), reverse=False):
    """One direction of one LSTM layer over packed rows; gates: the input's share, biases included.

    gates (rows, 4H), h0 (N, P), c0 (N, H), weight (4H, P), projection (P, H) or None -> output (rows, P), h (N, P),
    c (N, H), activations (rows, 4H), cells (rows, H).
    """
    dtype = gates.dtype
    x, h, c, w, w_out = wide(gates, h0, c0, weight, projection)
    return like(by_numpy.lstm_forward(xp, x, h, c, w, w_out, batch_sizes, reverse), dtype)


@op(
    public=False,
    method=False,
    out=False,
    returns=("output", "h", "c"),
    large=16,
    generated="many",
    channels_last=True,
    tensors=("rows", "h0", "c0", "weight_ih", "weight_hh"),
    autocast="lower",
    flops=("mm", flops.lstm_inference),
)
@samples(
    lambda t: [
        (*map(t.constant, (t(6, 3), t(2, 2), t(2, 2), t(8, 3), t(8, 2), t(8))), 3, False),
        (*map(t.constant, (t(4, 2), t(1, 2), t(1, 2), t(8, 2), t(8, 2))), None, 4, True),
        (*map(t.constant, (t(0, 3), t(3, 2), t(3, 2), t(8, 3), t(8, 2), t(8))), 0, True),
    ]
)
def lstm_inference(xp, rows, h0, c0, weight_ih, weight_hh, bias=None, length=0, reverse=False):
    """One direction of one LSTM layer without gradients: `length` steps of the whole batch, no projection.

    rows (length N, I), h0 (N, H), c0 (N, H), weight_ih (4H, I), weight_hh (4H, H), bias (4H), the sum of both, or None
    -> output (length N, H), h (N, H), c (N, H).
    """
    x, h, c, w, u = wide(*map(in_torch_order, (rows, h0, c0, weight_ih, weight_hh)))
    gates = x.dot(w.T) if bias is None else x.dot(w.T) + wide(bias)[0]
    return like(by_numpy.lstm_outputs(xp, gates, h, c, u, length, reverse), rows.dtype)


@op(
    public=False,
    method=False,
    out=False,
    returns=("output", "h"),
    large=16,
    channels_last=True,
    tensors=("rows", "h0", "weight_ih", "weight_hh", "bias_ih", "bias_hh"),
    autocast={"cuda": "lower"},
    flops=("mm", flops.gru_inference),
)
@samples(
    lambda t: [
        (*map(t.constant, (t(6, 3), t(2, 2), t(6, 3), t(6, 2), t(6), t(6))), 3, False),
        (*map(t.constant, (t(4, 2), t(1, 2), t(6, 2), t(6, 2))), None, None, 4, True),
        (*map(t.constant, (t(0, 3), t(3, 2), t(6, 3), t(6, 2), t(6), t(6))), 0, True),
    ]
)
def gru_inference(xp, rows, h0, weight_ih, weight_hh, bias_ih=None, bias_hh=None, length=0, reverse=False):
    """One direction of one GRU layer without gradients: `length` steps of the whole batch.

    rows (length N, I), h0 (N, H), weight_ih (3H, I), weight_hh (3H, H), bias_ih, bias_hh (3H) or None
    -> output (length N, H), h (N, H).
    """
    x, h, w, u, b, d = wide(*map(in_torch_order, (rows, h0, weight_ih, weight_hh)), bias_ih, bias_hh)
    gates = x.dot(w.T) if b is None else x.dot(w.T) + b
    found = by_numpy.gru_forward(xp, gates, h, u, d, (len(h),) * length, reverse)
    return like(found[:2], rows.dtype)


@op(
    public=False,
    method=False,
    out=False,
    returns=("gates", "h0", "weight", "bias"),
    tensors=("grad_h", "h0", "activations", "inner"),
    why=WHY,
    large=4096,
    flops=("mm", flops.recurrent_backward),
)
@joint_derivative(
    "grad_output",
    "grad_h",
    "gates",
    "h0",
    "weight",
    "bias",
    by=lambda grads, grad_output, grad_h, gates, h0, weight, bias, needs, batch_sizes, reverse: twice(
        lambda *a: gru_twin(*a, batch_sizes, reverse), 2, grads, needs, grad_output, grad_h, gates, h0, weight, bias
    ),
)
def gru_layer_backward(
    xp,
    grad_output,
    grad_h,
    gates,
    h0,
    weight,
    output,
    activations,
    inner,
    bias=None,
    batch_sizes=(),
    reverse=False,
):
    """The gradients of one GRU direction.  grad_output (rows, H), grad_h (N, H) -> as the inputs."""
    g, gh, h, w, y, act, hidden = wide(grad_output, grad_h, h0, weight, output, activations, inner)
    found = by_numpy.gru_backward(xp, g, gh, h, w, y, act, hidden, batch_sizes, reverse)
    return like(found, h0.dtype)


def _gru_formula(grad0, grad1, gates, h0, weight, bias, kept_result0, result2, result3, batch_sizes, reverse):
    output = kept_result0
    if output is None:
        output = _walked(gru_layer, gates, h0, weight, bias, batch_sizes, reverse)
    found = gru_layer_backward(
        start(grad0, output),
        start(grad1, h0),
        gates,
        h0,
        weight,
        output.detach(),
        result2.detach(),
        result3.detach(),
        bias,
        batch_sizes,
        reverse,
    )
    return found if bias is not None else (*found[:3], None)


@op(
    public=False,
    method=False,
    out=False,
    returns=("output", "h", "activations", "inner"),
    nondifferentiable=("activations", "inner"),
    tensors=("h0",),
    large=4096,
    autocast={"cuda": "lower"},
    flops=("mm", flops.recurrent_layer),
)
@joint_derivative("gates", "h0", "weight", "bias", by=_gru_formula)
@samples(
    lambda t: [
        (t(6, 6), t(2, 2), t(6, 2), t(6), (2, 2, 2), False),
        (t(8, 6), t(3, 2), t(6, 2), t(6), _SIZES, True),
        (t(8, 6), t(3, 2), t(6, 2), None, _SIZES, False),
    ]
)
def gru_layer(xp, gates, h0, weight, bias=None, batch_sizes=(), reverse=False):
    """One direction of one GRU layer over packed rows; gates: the input's share, its bias included.

    gates (rows, 3H), h0 (N, H), weight (3H, H), bias (3H) or None -> output (rows, H), h (N, H), activations,
    inner (rows, H).
    """
    x, h, w, b = wide(gates, h0, weight, bias)
    return like(by_numpy.gru_forward(xp, x, h, w, b, batch_sizes, reverse), gates.dtype)


@op(
    public=False,
    method=False,
    out=False,
    returns=("gates", "h0", "weight"),
    tensors=("grad_h", "h0"),
    why=WHY,
    large=4096,
    flops=("mm", flops.recurrent_backward),
)
@joint_derivative(
    "grad_output",
    "grad_h",
    "gates",
    "h0",
    "weight",
    by=lambda grads, grad_output, grad_h, gates, h0, weight, needs, how, batch_sizes, reverse: twice(
        lambda *a: simple_twin(*a, how, batch_sizes, reverse), 2, grads, needs, grad_output, grad_h, gates, h0, weight
    ),
)
def rnn_layer_backward(xp, grad_output, grad_h, gates, h0, weight, output, how, batch_sizes, reverse):
    """The gradients of one plain recurrent direction.  grad_output (rows, H), grad_h (N, H) -> as the inputs."""
    g, gh, h, w, y = wide(grad_output, grad_h, h0, weight, output)
    return like(by_numpy.simple_backward(xp, g, gh, h, w, y, how == "relu", batch_sizes, reverse), h0.dtype)


def _rnn_formula(grad0, grad1, gates, h0, weight, kept_result0, how, batch_sizes, reverse):
    output = kept_result0
    if output is None:
        output = _walked(rnn_layer, gates, h0, weight, how, batch_sizes, reverse)
    found = (start(grad0, output), start(grad1, h0))
    return rnn_layer_backward(*found, gates, h0, weight, output.detach(), how, batch_sizes, reverse)


@op(
    public=False,
    method=False,
    out=False,
    returns=("output", "h"),
    tensors=("h0",),
    large=4096,
    flops=("mm", flops.recurrent_layer),
)
@joint_derivative("gates", "h0", "weight", by=_rnn_formula)
@samples(
    lambda t: [
        (t(6, 2), t(2, 2), t(2, 2), "tanh", (2, 2, 2), False),
        (t(8, 2), t(3, 2), t(2, 2), "tanh", _SIZES, True),
        (t(4, 2), t(2, 2), t(2, 2), "relu", (2, 2), False),
    ]
)
def rnn_layer(xp, gates, h0, weight, how, batch_sizes, reverse):
    """One direction of one plain recurrent layer over packed rows; gates: the input's share, biases included.

    gates (rows, H), h0 (N, H), weight (H, H) -> output (rows, H), h (N, H).
    """
    x, h, w = wide(gates, h0, weight)
    return like(by_numpy.simple(xp, x, h, w, how == "relu", batch_sizes, reverse), gates.dtype)


# --- whole networks


def _plain(batch_sizes):
    """Return whether all of the batch goes all the way and nobody wants gradients."""
    return not mode.enabled and len(set(batch_sizes)) == 1


def _channels_last(weights):
    for weight in weights[:2]:
        if weight._channels_last is None:
            lay_weight(weight, _WORTH)
    return weights[:2]


def _lstm_direction(rows, hx, weights, has_biases, batch_sizes, reverse):
    w_ih, w_hh = weights[:2]
    bias = weights[2] + weights[3] if has_biases else None
    projection = weights[-1] if len(weights) in (3, 5) else None
    if projection is None and _plain(batch_sizes):
        found = lstm_inference(rows, *hx, *_channels_last(weights), bias, len(batch_sizes), reverse)
    else:
        found = lstm_layer(linear(rows, w_ih, bias), *hx, w_hh, projection, batch_sizes, reverse)
        if rows.dtype is dtypes.float32 and projection is None:  # torch takes a layer of oneDNN
            guard(found[0], *weights[2:], found[0])
    return found[0], found[1:3]


def _gru_direction(rows, hx, weights, has_biases, batch_sizes, reverse):
    if _plain(batch_sizes):
        biases = weights[2:4] if has_biases else (None, None)
        found = gru_inference(rows, *hx, *_channels_last(weights), *biases, len(batch_sizes), reverse)
        return found[0], found[1:]
    gates = linear(rows, weights[0], weights[2] if has_biases else None)
    bias = own(weights[3]) if has_biases else None  # not saved by torch
    found = gru_layer(gates, *hx, weights[1], bias, batch_sizes, reverse)
    return found[0], found[1:2]


def _simple_direction(how):
    def direction(rows, hx, weights, has_biases, batch_sizes, reverse):
        gates = linear(rows, weights[0], weights[2] + weights[3] if has_biases else None)
        found = rnn_layer(gates, *hx, weights[1], how, batch_sizes, reverse)
        return found[0], found[1:2]

    direction.__name__ = how
    return direction


def _check_network(direction, rows, hx, params, has_biases, cells, batch_sizes):
    """Refuse weights, states and batch sizes that do not fit each other: the kernels of the layers rely on it."""
    parts = {_lstm_direction: 4, _gru_direction: 3}.get(direction, 1)
    least = 4 if has_biases else 2
    per, rest = divmod(len(params), builtins.max(cells, 1))
    if cells < 1 or rest or not (per == least or (per == least + 1 and parts == 4)):
        raise RuntimeError(f"rnn: {len(params)} weights do not fit {cells} layers and directions")
    hidden, count = hx[-1].shape[-1], batch_sizes[0] if batch_sizes else 0
    if any(n < 1 for n in batch_sizes) or list(batch_sizes) != sorted(batch_sizes, reverse=True):
        raise RuntimeError("rnn: the batch sizes are not positive and descending")
    if not batch_sizes or builtins.sum(batch_sizes) != rows.shape[0]:
        raise RuntimeError(f"rnn: the batch sizes do not add up to the {rows.shape[0]} rows of the input")
    for x in hx:
        if x.dim() != 3 or x.shape[0] != cells or x.shape[1] != count:
            raise RuntimeError(f"Expected hidden size ({cells}, {count}, {x.shape[-1]}), got {list(x.shape)}")
    for k in range(0, len(params), per):
        out = params[k + per - 1].shape[0] if per > least else hidden
        biases = params[k + 2 : k + least]
        if tuple(params[k + 1].shape) != (parts * hidden, out) or hx[0].shape[-1] != out:
            raise RuntimeError(
                f"rnn: the hidden weight of shape {list(params[k + 1].shape)} does not fit {parts} gates of {hidden}"
            )
        if params[k].shape[0] != parts * hidden or any(tuple(b.shape) != (parts * hidden,) for b in biases):
            raise RuntimeError(f"rnn: a weight or bias does not have the {parts * hidden} rows of the hidden weight")
        if per > least and tuple(params[k + per - 1].shape) != (out, hidden):
            raise RuntimeError(f"rnn: the projection has the shape {list(params[k + per - 1].shape)}")


def _network(direction, rows, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_sizes):
    """All layers over packed rows: (output, final states)."""
    directions = 2 if bidirectional else 1
    params = list(params)
    _check_network(direction, rows, hx, params, has_biases, num_layers * directions, batch_sizes)
    if rows.device.type == "cuda":
        from engine.ops.recurrent import cudnn as by_cudnn  # for the weight: only where there is a GPU
        from engine.ops.recurrent import network as recurrent

        how = {_lstm_direction: "lstm", _gru_direction: "gru"}.get(direction) or direction.__name__
        if by_cudnn.network_served(rows, hx, params):
            given = (rows, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_sizes)
            return recurrent.network(how, *given)
    per = len(params) // (num_layers * directions)
    states = [x.unbind(0) for x in hx]
    finals = [[] for _ in hx]
    for layer in range(num_layers):
        outputs = []
        for d in range(directions):
            k = layer * directions + d
            own = tuple(s[k] for s in states)
            weights = params[k * per : (k + 1) * per]
            output, final = direction(rows, own, weights, has_biases, batch_sizes, d == 1)
            outputs.append(output)
            for collected, value in zip(finals, final):
                collected.append(value)
        rows = outputs[0] if directions == 1 else cat(outputs, 1)
        if dropout and train and layer < num_layers - 1:
            rows = _dropout(rows, dropout, True)
    return rows, [stack(f, 0) for f in finals]


def _run(direction, hx, args, kwargs):
    """A network called in one of torch's two forms: a batch, or packed data with batch sizes."""
    names = [
        "input",
        "hx",
        "params",
        "has_biases",
        "num_layers",
        "dropout",
        "train",
        "bidirectional",
        "batch_first",
    ]
    packed = len(args) > 2 and isinstance(args[1], Tensor) and not isinstance(args[2], list | tuple)
    packed = (
        packed
        or "batch_sizes" in kwargs
        or (len(args) > 2 and isinstance(args[1], Tensor) and args[1].dtype is dtypes.int64)
    )
    if packed:
        names = ["data", "batch_sizes", *names[1:-1]]
    given = dict(zip(names, args))
    given.update(kwargs)
    states = hx(given["hx"])
    rest = (
        given["params"],
        given["has_biases"],
        given["num_layers"],
        given["dropout"],
        given["train"],
        given["bidirectional"],
    )
    if packed:
        sizes = tuple(int(n) for n in given["batch_sizes"].tolist())
        output, finals = _network(direction, given["data"], states, *rest, sizes)
        return (output, *finals)
    input = given["input"].transpose(0, 1) if given.get("batch_first") else given["input"]
    length, count = input.shape[:2]
    rows = input.reshape(length * count, input.shape[2])
    output, finals = _network(direction, rows, states, *rest, (count,) * length)
    output = output.reshape(length, count, output.shape[-1])
    if direction is _lstm_direction:
        name = "MkldnnRnnLayerBackward0"
    else:
        name = "StackBackward0"
    name_node(output, "CatBackward0" if given["bidirectional"] else name)
    return (output.transpose(0, 1) if given.get("batch_first") else output, *finals)


def _flat(hx):
    return (hx,)


@composite(method=False, recorded="inference")
def lstm(*args, **kwargs) -> tuple[Tensor, Tensor, Tensor]:
    """LSTM: (input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first), or packed.

    input (T, N, F), hx = h (D L, N, P), c (D L, N, H) -> (T, N, D P), h, c; packed: data (rows, F), batch_sizes, hx...
    """
    return _run(_lstm_direction, tuple, args, kwargs)


@composite(method=False, recorded="inference")
def gru(*args, **kwargs) -> tuple[Tensor, Tensor]:
    """GRU: arguments as `lstm`, hx one tensor.  input (T, N, F), hx (D L, N, H) -> (T, N, D H), h."""
    return _run(_gru_direction, _flat, args, kwargs)


@composite(method=False)
def rnn_tanh(*args, **kwargs) -> tuple[Tensor, Tensor]:
    """Plain recurrent network with tanh: arguments as `gru`.  input (T, N, F), hx (D L, N, H) -> (T, N, D H), h."""
    return _run(_simple_direction("tanh"), _flat, args, kwargs)


@composite(method=False)
def rnn_relu(*args, **kwargs) -> tuple[Tensor, Tensor]:
    """Plain recurrent network with relu: arguments as `gru`.  input (T, N, F), hx (D L, N, H) -> (T, N, D H), h."""
    return _run(_simple_direction("relu"), _flat, args, kwargs)


# --- cells


def _cell_check(input, hx, w_ih, w_hh, gates, cell=None):
    """torch's errors for sizes that do not fit; `gates` parts of the rows of the weights, `cell` the other state."""
    size, hidden = w_ih.size(1), w_hh.size(1)
    if input.size(1) != size:
        raise RuntimeError(f"input has inconsistent input_size: got {input.size(1)} expected {size}")
    if input.size(0) != hx.size(0):
        raise RuntimeError(f"Input batch size {input.size(0)} doesn't match hidden0 batch size {hx.size(0)}")
    if hx.size(1) != hidden:
        raise RuntimeError(f"hidden0 has inconsistent hidden_size: got {hx.size(1)}, expected {hidden}")
    if cell is not None:
        if input.size(0) != cell.size(0):
            raise RuntimeError(f"Input batch size {input.size(0)} doesn't match hidden1 batch size {cell.size(0)}")
        if cell.size(1) != hidden:
            raise RuntimeError(f"hidden1 has inconsistent hidden_size: got {cell.size(1)}, expected {hidden}")
    for label, weight in (("weight_ih", w_ih), ("weight_hh", w_hh)):
        if weight.size(0) != gates * hidden:
            raise RuntimeError(
                f"{label} first dim must be {gates} * hidden_size = {gates * hidden}, but got {weight.size(0)}"
            )


@composite(method=False)
@samples(lambda t: [(t(3, 4), (t(3, 2), t(3, 2)), t(8, 4), t(8, 2), t(8), t(8))])
def lstm_cell(
    input: Tensor,
    hx: tuple[Tensor, ...],
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """One step of an LSTM.  input (N, F), hx = h (N, H), c (N, H) -> h (N, H), c (N, H)."""
    check_elements(hx, 1)
    if len(hx) != 2:
        raise RuntimeError("lstm_cell expects two hidden states")
    _cell_check(input, hx[0], w_ih, w_hh, 4, hx[1])
    step = linear(input, w_ih, b_ih), linear(hx[0], w_hh, b_hh), hx[1]
    if not fits(*step):
        return lstm_step_of(*step)
    hidden, cell, _ = lstm_gates(*step)
    return hidden, name_output(cell, "AddBackward0") if cell.__class__ is Tensor else cell


@composite(method=False)
@samples(lambda t: [(t(3, 4), t(3, 2), t(6, 4), t(6, 2), t(6), t(6))])
def gru_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
):
    """One step of a GRU.  input (N, F), hx (N, H) -> (N, H)."""
    _cell_check(input, hx, w_ih, w_hh, 3)
    step = linear(input, w_ih, b_ih), linear(hx, w_hh, b_hh), hx
    return gru_gates(*step)[0] if fits(*step) else gru_step_of(*step)


@composite(method=False)
@samples(lambda t: [(t(3, 4), t(3, 2), t(2, 4), t(2, 2), t(2), t(2))])
def rnn_tanh_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
):
    """One step of a plain recurrent network with tanh.  input (N, F), hx (N, H) -> (N, H)."""
    _cell_check(input, hx, w_ih, w_hh, 1)
    return tanh(linear(input, w_ih, b_ih) + linear(hx, w_hh, b_hh))


@composite(method=False)
@samples(lambda t: [(t(3, 4), t(3, 2), t(2, 4), t(2, 2), t(2), t(2))])
def rnn_relu_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
):
    """One step of a plain recurrent network with relu.  input (N, F), hx (N, H) -> (N, H)."""
    _cell_check(input, hx, w_ih, w_hh, 1)
    return relu(linear(input, w_ih, b_ih) + linear(hx, w_hh, b_hh))
