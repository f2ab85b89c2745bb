"""Recurrent layers with oneDNN's products: at a few rows per step they take half the time of BLAS."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.backends.cpu import empty
from engine.backends.cpu.fast import fast
from engine.backends.cpu.relayout import in_torch_order
from engine.backends.onednn import arrays, library, recurrent
from engine.backends.onednn.primitives import address, ready, usable
from engine.dispatch import PUBLIC, kernel
from engine.dispatch.choosing import run_on_arrays
from engine.kernels import processor
from engine.ops import recurrent as rnn
from engine.ops.recurrent import numpy as by_numpy


def _product() -> Any:
    """`_product` of numpy.py.  Of many calls with one `b`, its address is taken once."""
    ready()
    call, address_of = library.state.library.dnnl_sgemm, library.state.ffi.from_buffer
    held: list[Any] = [None, None, None, 0]

    def product(a: Any, b: Any, out: Any, beta: float = 0.0) -> None:
        if not (a.flags.c_contiguous and b.flags.c_contiguous and out.flags.c_contiguous):
            if not beta and a.flags.f_contiguous and b.flags.c_contiguous:  # the gradient of a weight
                out[...] = run_on_arrays(PUBLIC["mm"], a, b)
            elif not arrays.sgemm(a, b, out, 1.0, beta):
                found = np.matmul(a, b)
                out[...] = found + out if beta else found
            return
        if held[0] is not b:
            rows = arrays.spread(b, a.shape[0])
            held[:] = b, rows, address(rows), rows.strides[0] // 4
        (n, k), m = a.shape, out.shape[1]
        call(b"N", b"N", n, m, k, 1.0, address_of(a), k, held[2], held[3], beta, address_of(out), m)

    if not processor.available():
        return product
    from engine.ops.products.generated import Steps

    steps = Steps(product)

    def either(a: Any, b: Any, out: Any, beta: float = 0.0) -> None:
        contiguous = a.flags.c_contiguous and b.flags.c_contiguous and out.flags.c_contiguous
        (steps if contiguous else product)(a, b, out, beta)

    return either


@kernel(rnn.lstm_layer, "onednn")
def _lstm(xp, gates, h0, c0, weight, projection=None, batch_sizes=(), reverse=False):
    if not usable(gates, h0, c0, weight, projection):
        return NotImplemented
    return by_numpy.lstm_forward(fast, gates, h0, c0, weight, projection, batch_sizes, reverse, _product())


def _states(rows, length, *states):
    """rows (length N, I) as (length, N, I); memory for the outputs and for the last states."""
    count, size = states[0].shape
    out = empty((length * count, size), np.float32)
    x = np.ascontiguousarray(rows).reshape(length, count, -1)
    return x, out, [np.ascontiguousarray(s) for s in states], [np.empty((count, size), np.float32) for s in states]


def _share(rows, weight, bias):
    """Compute the input's part of the gates: rows (n, I) @ weight (G, I).T + bias (G)."""
    made = np.empty((len(rows), len(weight)), np.float32)
    made[...] = bias
    if not arrays.sgemm(rows, in_torch_order(weight).T, made, 1.0, 1.0):
        made += rows.dot(in_torch_order(weight).T)
    return made


@kernel(rnn.lstm_inference, "onednn")
def _lstm_inference(xp, rows, h0, c0, weight_ih, weight_hh, bias=None, length=0, reverse=False):
    if not usable(rows, h0, c0, weight_ih, weight_hh, bias):
        return NotImplemented
    x, out, states, last = _states(rows, length, h0, c0)
    b = np.zeros(len(weight_ih), np.float32) if bias is None else bias
    made = out.reshape(length, *h0.shape)
    if recurrent.lstm(x, *states, weight_ih, weight_hh, b, made, *last, reverse):
        return out, *last
    gates = _share(rows, weight_ih, b)
    return by_numpy.lstm_outputs(fast, gates, h0, c0, in_torch_order(weight_hh), length, reverse)


@kernel(rnn.gru_inference, "onednn")
def _gru_inference(xp, rows, h0, weight_ih, weight_hh, bias_ih=None, bias_hh=None, length=0, reverse=False):
    if not usable(rows, h0, weight_ih, weight_hh, bias_ih, bias_hh):
        return NotImplemented
    x, out, states, last = _states(rows, length, h0)
    b, d = (np.zeros(len(weight_ih), np.float32) if a is None else a for a in (bias_ih, bias_hh))
    made = out.reshape(length, *h0.shape)
    if recurrent.gru(x, *states, weight_ih, weight_hh, b, d, made, *last, reverse):
        return out, *last
    gates, sizes = _share(rows, weight_ih, b), (len(h0),) * length
    return by_numpy.gru_forward(fast, gates, h0, in_torch_order(weight_hh), d, sizes, reverse, _product())[:2]


@kernel(rnn.lstm_layer_backward, "onednn")
def _lstm_backward(
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
    if not usable(grad_output, grad_h, grad_c, h0, c0, weight, output, activations, cells, projection):
        return NotImplemented
    found = by_numpy.lstm_backward(
        fast,
        grad_output,
        grad_h,
        grad_c,
        h0,
        c0,
        weight,
        projection,
        output,
        activations,
        cells,
        batch_sizes,
        reverse,
        _product(),
    )
    return found if projection is not None else (*found[:4], np.zeros((0,), np.float32))


@kernel(rnn.gru_layer, "onednn")
def _gru(xp, gates, h0, weight, bias=None, batch_sizes=(), reverse=False):
    if not usable(gates, h0, weight, bias):
        return NotImplemented
    return by_numpy.gru_forward(fast, gates, h0, weight, bias, batch_sizes, reverse, _product())


@kernel(rnn.gru_layer_backward, "onednn")
def _gru_backward(
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
    if not usable(grad_output, grad_h, h0, weight, output, activations, inner):
        return NotImplemented
    return by_numpy.gru_backward(
        fast,
        grad_output,
        grad_h,
        h0,
        weight,
        output,
        activations,
        inner,
        batch_sizes,
        reverse,
        _product(),
    )


@kernel(rnn.rnn_layer, "onednn")
def _simple(xp, gates, h0, weight, how, batch_sizes, reverse):
    if not usable(gates, h0, weight):
        return NotImplemented
    return by_numpy.simple(fast, gates, h0, weight, how == "relu", batch_sizes, reverse, _product())


@kernel(rnn.rnn_layer_backward, "onednn")
def _simple_backward(xp, grad_output, grad_h, gates, h0, weight, output, how, batch_sizes, reverse):
    if not usable(grad_output, grad_h, h0, weight, output):
        return NotImplemented
    return by_numpy.simple_backward(
        fast,
        grad_output,
        grad_h,
        h0,
        weight,
        output,
        how == "relu",
        batch_sizes,
        reverse,
        _product(),
    )
