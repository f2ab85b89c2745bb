"""One direction of one recurrent layer on arrays; no Tensors, no ops.

Sequences are packed: step t has the first batch_sizes[t] rows of the batch, in order of t; a plain batch has
batch_sizes (N,) * T.  Rows that are not in a step keep their state, so that the state after the last step is each
sequence's final one, in both directions.  The input's share of the gates of all steps is one matmul made before.
"""

from __future__ import annotations

from typing import Any


def steps(batch_sizes: Any, reverse: bool) -> list[tuple[int, int]]:
    """(first row, rows) of each step, in the order of time."""
    result, start = [], 0
    for n in batch_sizes:
        result.append((start, n))
        start += n
    return result[::-1] if reverse else result


def previous(xp: Any, h0: Any, output: Any, order: Any) -> Any:
    """The hidden state each row of `output` was computed from."""
    state, result = h0.copy(), xp.empty_like(output)
    for start, n in order:
        result[start : start + n] = state[:n]
        state[:n] = output[start : start + n]
    return result


def _sigmoid(xp: Any, x: Any) -> None:
    x *= 0.5
    xp.tanh(x, out=x)
    x *= 0.5
    x += 0.5


def lstm(
    xp: Any, gates: Any, h0: Any, c0: Any, w: Any, w_out: Any, batch_sizes: Any, reverse: bool
) -> Any:
    """gates (rows, 4H), h0 (N, P), c0 (N, H), w (4H, P), w_out (P, H) or None -> output, h, c, activations, cells."""
    size = c0.shape[1]
    act = gates.copy()
    cells = xp.empty((gates.shape[0], size), gates.dtype)
    output = xp.empty((gates.shape[0], h0.shape[1]), gates.dtype)
    h, c = h0.copy(), c0.copy()
    turned = xp.ascontiguousarray(w.T)
    turned_out = None if w_out is None else xp.ascontiguousarray(w_out.T)
    for start, n in steps(batch_sizes, reverse):
        rows = slice(start, start + n)
        a, cell = act[rows], c[:n]
        a += xp.matmul(h[:n], turned)
        _sigmoid(xp, a[:, : 2 * size])
        new = a[:, 2 * size : 3 * size]
        xp.tanh(new, out=new)
        _sigmoid(xp, a[:, 3 * size :])
        cell *= a[:, size : 2 * size]
        cell += a[:, :size] * new
        cells[rows] = cell
        hidden = xp.tanh(cell)
        hidden *= a[:, 3 * size :]
        if turned_out is not None:
            hidden = xp.matmul(hidden, turned_out)
        output[rows] = hidden
        h[:n] = hidden
    return output, h, c, act, cells


def lstm_backward(
    xp: Any, g_out: Any, g_h: Any, g_c: Any, h0: Any, c0: Any, w: Any, w_out: Any, output: Any, act: Any, cells: Any,
    batch_sizes: Any, reverse: bool,
) -> Any:  # fmt: skip
    """The gradients of gates, h0, c0, w, w_out (None without projection)."""
    size = c0.shape[1]
    order = steps(batch_sizes, reverse)
    before = previous(xp, c0, cells, order)
    of_gates = xp.empty_like(act)
    dh = xp.zeros_like(h0) if g_h is None else g_h.astype(act.dtype)
    dc = xp.zeros_like(c0) if g_c is None else g_c.astype(act.dtype)
    hidden_grads = None if w_out is None else xp.empty((act.shape[0], h0.shape[1]), act.dtype)
    for start, n in reversed(order):
        rows = slice(start, start + n)
        a, target = act[rows], of_gates[rows]
        d = dh[:n] if g_out is None else dh[:n] + g_out[rows]
        if w_out is not None:
            hidden_grads[rows] = d
            d = xp.matmul(d, w_out)
        i, f, new, o = (a[:, k * size : (k + 1) * size] for k in range(4))
        squashed = xp.tanh(cells[rows])
        d_cell = d * o * (1 - squashed * squashed) + dc[:n]
        target[:, :size] = d_cell * new * i * (1 - i)
        target[:, size : 2 * size] = d_cell * before[rows] * f * (1 - f)
        target[:, 2 * size : 3 * size] = d_cell * i * (1 - new * new)
        target[:, 3 * size :] = d * squashed * o * (1 - o)
        dc[:n] = d_cell * f
        dh[:n] = xp.matmul(target, w)
    of_w = xp.matmul(of_gates.T, previous(xp, h0, output, order))
    of_out = None
    if w_out is not None:
        of_out = xp.matmul(hidden_grads.T, act[:, 3 * size :] * xp.tanh(cells))
    return of_gates, dh, dc, of_w, of_out


def gru(xp: Any, gates: Any, h0: Any, w: Any, bias: Any, batch_sizes: Any, reverse: bool) -> Any:
    """gates (rows, 3H): r, z, n; h0 (N, H), w (3H, H), bias (3H) or None -> output, h, activations, inner n."""
    size = h0.shape[1]
    act = gates.copy()
    inner = xp.empty((gates.shape[0], size), gates.dtype)  # W_hn h + b_hn
    output = xp.empty_like(inner)
    h = h0.copy()
    turned = xp.ascontiguousarray(w.T)
    for start, n in steps(batch_sizes, reverse):
        rows = slice(start, start + n)
        a = act[rows]
        share = xp.matmul(h[:n], turned)
        if bias is not None:
            share += bias
        a[:, : 2 * size] += share[:, : 2 * size]
        _sigmoid(xp, a[:, : 2 * size])
        inner[rows] = share[:, 2 * size :]
        new = a[:, 2 * size :]
        new += a[:, :size] * share[:, 2 * size :]
        xp.tanh(new, out=new)
        state = h[:n]
        state -= new
        state *= a[:, size : 2 * size]
        state += new
        output[rows] = state
    return output, h, act, inner


def gru_backward(
    xp: Any,
    g_out: Any,
    g_h: Any,
    h0: Any,
    w: Any,
    output: Any,
    act: Any,
    inner: Any,
    batch_sizes: Any,
    reverse: bool,
) -> Any:
    """The gradients of gates, h0, w and bias."""
    size = h0.shape[1]
    order = steps(batch_sizes, reverse)
    before = previous(xp, h0, output, order)
    of_gates, of_share = xp.empty_like(act), xp.empty_like(act)
    dh = xp.zeros_like(h0) if g_h is None else g_h.astype(act.dtype)
    for start, n in reversed(order):
        rows = slice(start, start + n)
        a, target, share = act[rows], of_gates[rows], of_share[rows]
        d = dh[:n] if g_out is None else dh[:n] + g_out[rows]
        r, z, new = (a[:, k * size : (k + 1) * size] for k in range(3))
        d_new = d * (1 - z) * (1 - new * new)
        target[:, 2 * size :] = d_new
        target[:, size : 2 * size] = d * (before[rows] - new) * z * (1 - z)
        target[:, :size] = d_new * inner[rows] * r * (1 - r)
        share[:, : 2 * size] = target[:, : 2 * size]
        share[:, 2 * size :] = d_new * r
        dh[:n] = d * z + xp.matmul(share, w)
    return of_gates, dh, xp.matmul(of_share.T, before), of_share.sum(axis=0)


def simple(
    xp: Any, gates: Any, h0: Any, w: Any, relu: bool, batch_sizes: Any, reverse: bool
) -> Any:
    """gates (rows, H), h0 (N, H), w (H, H) -> output, h."""
    output = gates.copy()
    h = h0.copy()
    turned = xp.ascontiguousarray(w.T)
    for start, n in steps(batch_sizes, reverse):
        a = output[start : start + n]
        a += xp.matmul(h[:n], turned)
        if relu:
            xp.maximum(a, 0, out=a)
        else:
            xp.tanh(a, out=a)
        h[:n] = a
    return output, h


def simple_backward(
    xp: Any,
    g_out: Any,
    g_h: Any,
    h0: Any,
    w: Any,
    output: Any,
    relu: bool,
    batch_sizes: Any,
    reverse: bool,
) -> Any:
    """The gradients of gates, h0 and w."""
    order = steps(batch_sizes, reverse)
    of_gates = xp.empty_like(output)
    dh = xp.zeros_like(h0) if g_h is None else g_h.astype(output.dtype)
    for start, n in reversed(order):
        rows = slice(start, start + n)
        a, target = output[rows], of_gates[rows]
        d = dh[:n] if g_out is None else dh[:n] + g_out[rows]
        target[...] = d * (a > 0) if relu else d * (1 - a * a)
        dh[:n] = xp.matmul(target, w)
    return of_gates, dh, xp.matmul(of_gates.T, previous(xp, h0, output, order))
