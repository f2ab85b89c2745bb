"""LSTM, GRU and plain recurrent networks by cuDNN."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.backends import cudnn as settings
from engine.backends.cuda import cudnn_rnn, routes
from engine.backends.cuda.cudnn_arrays import dense, guarded, on, served, there, used
from engine.dispatch import OPS, autocast, kernel
from engine.ops.recurrent import network as recurrent
from engine.ops.recurrent.network import Form


def _check(xp: Any) -> Any:
    """Two layers and directions of sequences that differ in length, a projection, the other cells: values and all
    gradients."""
    sizes = (2, 2, 1)
    for form, inputs in (
        (Form("lstm", 5, 0, 2, 2, True), 4),
        (Form("lstm", 6, 3, 1, 1, True), 4),
        (Form("gru", 5, 0, 1, 2, True), 4),
        (Form("tanh", 5, 0, 1, 1, True), 4),
    ):
        out, cells, gates = form.projected or form.hidden, form.layers * form.directions, cudnn_rnn.GATES[form.mode]
        widths = [inputs if k < form.directions else out * form.directions for k in range(cells)]
        count = sum(form.hidden * gates * (w + out + 2) + form.projected * form.hidden for w in widths)
        shapes = (sum(sizes), inputs), (cells, sizes[0], out), (cells, sizes[0], form.hidden), (count,)
        x, h, c, flat = (routes.numbers(*s, seed=n) for n, s in enumerate(shapes))
        given = [x, h, c if form.mode == "lstm" else None, flat]
        moved = [None if a is None else xp.asarray(a) for a in given]
        wanted = OPS["recurrent"].kernel(np, *given, form, sizes, True)
        found = _forward(xp, *moved, form, sizes, True)
        yield from zip(found[: 2 + (form.mode == "lstm")], wanted)
        grads = [routes.numbers(*w.shape, seed=5 + n) if w.size else None for n, w in enumerate(wanted[:3])]
        wanted = OPS["recurrent_backward"].kernel(np, *grads, *given, wanted[0], None, form, sizes, True)
        back = [None if g is None else xp.asarray(g) for g in grads]
        found = _backward(xp, *back, *moved, found[0], found[3], form, sizes, True)
        yield from ((f, w) for f, w in zip(found, wanted) if w.size)


ROUTE = routes.route("cudnn rnn", check=_check, fallback="step by step", tolerance=5e-3, ready=there)


def available() -> bool:
    """Return whether networks go to cuDNN now."""
    return on(ROUTE)


def network_served(rows: Any, hx: Any, params: Any) -> bool:
    """Return whether cuDNN computes a network on a GPU: floats of one type."""
    given = (rows, *hx, *params)
    same = autocast.state.enabled.get("cuda") or all(t.dtype is rows.dtype for t in given)
    return bool(same and rows.is_floating_point() and rows.dim() == 2 and rows.numel() > 0 and available())


def _plan(cudnn: Any, input: Any, form: Form, sizes: Any, train: bool) -> cudnn_rnn.Plan:
    network = cudnn_rnn.Network(
        form.mode,
        input.dtype.name,
        input.shape[1],
        form.hidden,
        form.projected,
        form.layers,
        form.directions,
        form.biases,
        tuple(sizes),
        train,
        bool(settings.allow_tf32),
    )
    return cudnn_rnn.plan_of(cudnn, network)


def _forward(xp: Any, input: Any, h0: Any, c0: Any, weights: Any, form: Form, sizes: Any, keep: bool) -> Any:
    cudnn = used()
    if cudnn is None:
        return None
    plan = _plan(cudnn, input, form, sizes, keep)
    x, h, c = dense(input), dense(h0), None if c0 is None else dense(c0)
    output, last_h, last_c, reserve = plan.forward(xp, x, h, c, plan.laid(xp, weights))
    return output, last_h, xp.zeros((0,), x.dtype) if last_c is None else last_c, reserve


def _backward(
    xp: Any,
    grad_output: Any,
    grad_h: Any,
    grad_c: Any,
    input: Any,
    h0: Any,
    c0: Any,
    weights: Any,
    output: Any,
    reserve: Any,
    form: Form,
    sizes: Any,
    weights_too: bool,
) -> Any:
    cudnn = used()
    if cudnn is None or not reserve.size:  # the forward was computed by the fallback
        return None
    plan = _plan(cudnn, input, form, sizes, True)
    x, h, y = dense(input), dense(h0), dense(output)
    c, gc = (None, None) if c0 is None else (dense(c0), dense(grad_c))
    of_x, of_h, of_c, space = plan.backward(
        xp,
        (dense(grad_output), dense(grad_h), gc),
        x,
        h,
        c,
        plan.laid(xp, weights),
        y,
        reserve.copy(),
        weights_too,  # cuDNN writes to it, and a graph that is retained reads it again
    )
    empty = xp.zeros((0,), x.dtype)
    flat = xp.zeros(weights.shape, weights.dtype) if space is None else plan.taken(xp, space)
    return of_x, of_h, empty if of_c is None else of_c, flat


@kernel(recurrent.recurrent, "cudnn")
def _recurrent(xp, input, h0, c0=None, weights=None, form=(), batch_sizes=(), keep=True):
    if not served(input, h0, weights, *([] if c0 is None else [c0])) or not on(ROUTE):
        return NotImplemented
    return guarded(ROUTE, _forward, xp, input, h0, c0, weights, form, batch_sizes, keep)


@kernel(recurrent.recurrent_backward, "cudnn")
def _recurrent_backward(
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
    arrays = (grad_output, grad_h, input, h0, weights)
    if reserve is None or not served(*arrays) or not on(ROUTE):
        return NotImplemented
    return guarded(
        ROUTE,
        _backward,
        xp,
        grad_output,
        grad_h,
        grad_c,
        input,
        h0,
        c0,
        weights,
        output,
        reserve,
        form,
        batch_sizes,
        weights_too,
    )
