"""One direction of one recurrent layer on arrays; no Tensors, no ops.

Sequences are packed: step t has the first batch_sizes[t] rows of the batch, in order of t; a plain batch has
batch_sizes (N,) * T.  Rows that are not in a step keep their state, so that the state after the last step is each
sequence's final one, in both directions.  The input's share of the gates of all steps is one matmul made before.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from engine.backends.cpu.fast import fast
from engine.backends.cpu.relayout import in_c_order

_FEW = 8  # rows, and steps
GENERATED: Any = object()  # as `cell`: the generated step, where there is one


@functools.cache
def _available() -> bool:
    from engine.kernels import processor

    return processor.available()


def _cell(xp: Any, given: Any, name: str, gates: Any, size: int) -> Callable[..., None] | None:
    """Return the function for the element-wise part of a step; None: numpy's functions."""
    if given is not GENERATED or not hasattr(xp, "share") or not _available():
        return None if given is GENERATED else given
    from engine.ops.recurrent import generated as recurrent  # for the weight: only where generated code is available

    return recurrent.step(name, gates.dtype, size, gates.shape[0], functools.partial(_small, recurrent.SIZE))


def _transposed(w: Any, h0: Any, batch_sizes: Any) -> Any:
    """w.T, copied where the products of all steps pay for it: those of a few rows read the weights as they lie."""
    return w.T if len(h0) < 4 and len(batch_sizes) < _FEW else in_c_order(w.T)


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


def _product(xp: Any) -> Any:
    """`product(a, b, out, beta=0)`: out = a @ b + beta out; what is added to is in memory of its own, used again."""
    scratch: list[Any] = []

    def product(a: Any, b: Any, out: Any, beta: float = 0.0) -> None:
        if not beta:
            xp.matmul(a, b, out=out)
            return
        if not scratch or scratch[0].shape[0] < out.shape[0]:
            scratch[:] = [xp.empty(out.shape, out.dtype)]
        share = scratch[0][: out.shape[0]]
        xp.matmul(a, b, out=share)
        out += share

    return product


# Note [A step of a layer]
# A step is a product and what is done to its result element by element: for numpy a dozen calls on a few thousand
# elements, which cost more than the work.  `cell`, the generated form of `engine/kernels/recurrent.py`, is one call.
# Without it the gradient's factors that do not depend on later steps are made for all steps at once (`_slopes`).

# sigmoid(x) is (tanh(x / 2) + 1) / 2.  With the sigmoid gates' share of input and weight halved beforehand, which
# loses nothing, one tanh over all gates of a step serves, and one multiplication and addition by column finish them.


def _halves(xp: Any, size: int, count: int, plain: int, dtype: Any) -> tuple[Any, Any]:
    """By column 0.5 and 0.5 of the sigmoid gates, 1 and 0 of gate number `plain`: factors and summands."""
    factor, summand = xp.full(size * count, 0.5, dtype), xp.full(size * count, 0.5, dtype)
    factor[plain * size : (plain + 1) * size] = 1
    summand[plain * size : (plain + 1) * size] = 0
    return factor, summand


def lstm_forward(
    xp: Any,
    gates: Any,
    h0: Any,
    c0: Any,
    w: Any,
    w_out: Any,
    batch_sizes: Any,
    reverse: bool,
    product: Any = None,
    cell: Any = GENERATED,
) -> Any:
    """gates (rows, 4H), h0 (N, P), c0 (N, H), w (4H, P), w_out (P, H) or None -> output, h, c, activations, cells.

    `product`: the backend's own `_product`.  cell: Note [A step of a layer].
    """
    size, rows = c0.shape[1], gates.shape[0]
    product = product or _product(xp)
    cell = _cell(xp, cell, "lstm_cell", gates, size) if w_out is None else None
    cells = xp.empty((rows, size), gates.dtype)
    output = xp.empty((rows, h0.shape[1]), gates.dtype)
    h, c = h0.copy(), c0.copy()
    if cell is not None:
        gates, transposed, act = (
            xp.ascontiguousarray(gates),
            _transposed(w, h0, batch_sizes),
            xp.empty(gates.shape, gates.dtype),
        )
        shares = xp.empty((len(h0), 4 * size), gates.dtype)
        for start, n in steps(batch_sizes, reverse):
            step = slice(start, start + n)
            product(h[:n], transposed, shares[:n])
            cell(n, gates[step], shares, c, act[step], cells[step], h, output[step])
        return output, h, c, act, cells
    factor, summand = _halves(xp, size, 4, 2, gates.dtype)
    act = gates * factor
    transposed = in_c_order(w.T)
    transposed *= factor
    out_transposed = None if w_out is None else xp.ascontiguousarray(w_out.T)
    scratch = xp.empty(c0.shape, gates.dtype)
    for start, n in steps(batch_sizes, reverse):
        a, hidden, state, t = act[start : start + n], h[:n], c[:n], scratch[:n]
        product(hidden, transposed, a, 1.0)
        xp.tanh(a, out=a)
        a *= factor
        a += summand
        state *= a[:, size : 2 * size]
        xp.multiply(a[:, :size], a[:, 2 * size : 3 * size], out=t)
        o = a[:, 3 * size :]
        state += t
        cells[start : start + n] = state
        xp.tanh(state, out=t)
        if out_transposed is None:
            xp.multiply(t, o, out=hidden)
        else:
            t *= o
            xp.matmul(t, out_transposed, out=hidden)
        output[start : start + n] = hidden
    return output, h, c, act, cells


def lstm_outputs(xp: Any, gates: Any, h0: Any, c0: Any, w: Any, length: int, reverse: bool) -> Any:
    """`lstm_forward` of `length` steps of the whole batch that keeps nothing -> output (rows, H), h, c.

    What steps cost here is calls.  The gates are laid out as i, f, o, g; with x the input's and the state's share,
    2 sigmoid = tanh(x / 2) + 1, so the cell is halved once for both gates, and 2 h goes round instead of h.
    """
    count, size = c0.shape

    def arranged(rows: Any, axis: int) -> Any:
        lead = (slice(None),) * axis
        i, f, g, o = (rows[(*lead, slice(k * size, (k + 1) * size))] for k in range(4))
        made = xp.concatenate([i, f, o, g], axis=axis)
        made[(*lead, slice(0, 3 * size))] *= 0.5
        return made

    shares = arranged(gates, 1).reshape(length, count, 4 * size)
    transposed = arranged(w, 0).T
    transposed *= 0.5
    if count > _FEW:  # a product of few rows reads the weights as fast as they lie
        transposed = xp.ascontiguousarray(transposed)
    add, multiply, tanh, product = xp.add, xp.multiply, xp.tanh, xp.dot
    output = xp.empty((length, count, size), gates.dtype)
    act, t = xp.empty((count, 4 * size), gates.dtype), xp.empty(c0.shape, gates.dtype)
    sigmoids, (i, f, o, g) = (
        act[:, : 3 * size],
        (act[:, k * size : (k + 1) * size] for k in range(4)),
    )
    h, c = h0 * 2, c0.copy()
    for step in range(length)[::-1] if reverse else range(length):
        product(h, transposed, out=act)
        add(act, shares[step], act)
        tanh(act, act)
        add(sigmoids, 1, sigmoids)
        multiply(c, f, c)
        multiply(i, g, t)
        add(c, t, c)
        multiply(c, 0.5, c)
        tanh(c, t)
        h = output[step]
        multiply(t, o, h)
    output *= 0.5
    return output.reshape(length * count, size), h.copy() if length else h0.copy(), c


def _added(incoming: Any, carried: Any) -> Any:
    """The gradient of a step's state: what later steps left, with what comes from above added to it."""
    if incoming is not None:
        carried += incoming
    return carried


def _slopes(xp: Any, act: Any, cells: Any, before: Any, out: Any) -> Any:
    """Compute the factors of the gradients of a step's gates into out (rows, 4H): o's multiply the state's gradient,
    the others' the cell's. -> (rows, H), the factor of the cell's gradient through the state."""
    through = xp.empty(cells.shape, act.dtype)
    size = cells.shape[1]

    def work(rows: slice) -> None:
        a, t, s = act[rows], out[rows], through[rows]
        i, _, new, o = (a[:, k * size : (k + 1) * size] for k in range(4))
        t_i, t_f, t_new, t_o = (t[:, k * size : (k + 1) * size] for k in range(4))
        # of a sigmoid x - x^2, of tanh 1 - x^2
        xp.multiply(a, a, out=t)
        xp.subtract(a[:, : 2 * size], t[:, : 2 * size], out=t[:, : 2 * size])
        xp.subtract(1, t_new, out=t_new)
        xp.subtract(o, t_o, out=t_o)
        xp.tanh(cells[rows], out=s)
        t_i *= new
        t_f *= before[rows]
        t_new *= i
        t_o *= s
        s *= s
        xp.subtract(1, s, out=s)
        s *= o

    if hasattr(xp, "share"):
        xp.share(work, len(act), act.size)
    else:
        work(slice(None))
    return through


def lstm_backward(
    xp: Any,
    g_out: Any,
    g_h: Any,
    g_c: Any,
    h0: Any,
    c0: Any,
    w: Any,
    w_out: Any,
    output: Any,
    act: Any,
    cells: Any,
    batch_sizes: Any,
    reverse: bool,
    product: Any = None,
    cell: Any = GENERATED,
) -> Any:
    """The gradients of gates, h0, c0, w, w_out (None without projection).  `product`: the backend's own `_product`."""
    size = c0.shape[1]
    product = product or _product(xp)
    cell = _cell(xp, cell, "lstm_cell_backward", act, size) if w_out is None else None
    order = steps(batch_sizes, reverse)
    before = previous(xp, c0, cells, order)
    of_gates = xp.empty_like(act)
    dtype = act.dtype
    dh, dc = (xp.zeros(s.shape, dtype) if g is None else g.astype(dtype, order="C") for g, s in ((g_h, h0), (g_c, c0)))
    if cell is not None:
        g_out, act, cells = (a if a is None else xp.ascontiguousarray(a) for a in (g_out, act, cells))
    hidden_grads = None if w_out is None else xp.empty((act.shape[0], h0.shape[1]), dtype)
    scratch = xp.zeros(c0.shape, dtype)
    through = None if cell is not None else _slopes(xp, act, cells, before, of_gates)
    for start, n in reversed(order):
        rows = slice(start, start + n)
        target, carried, of_cell, d = of_gates[rows], dh[:n], dc[:n], scratch[:n]
        if cell is not None:
            incoming = d if g_out is None else g_out[rows]
            cell(n, act[rows], cells[rows], before[rows], incoming, carried, of_cell, target)
            product(target, w, carried)
            continue
        carried = _added(None if g_out is None else g_out[rows], carried)
        if w_out is None:
            d = carried
        else:
            hidden_grads[rows] = carried
            product(carried, w_out, d)
        target[:, 3 * size :] *= d
        through[rows] *= d
        of_cell += through[rows]
        gates = target[:, : 3 * size].reshape(n, 3, size)
        gates *= of_cell[:, None]
        of_cell *= act[rows, size : 2 * size]
        product(target, w, carried)
    of_w = xp.empty(w.shape, dtype)
    product(of_gates.T, previous(xp, h0, output, order), of_w)
    of_out = None
    if w_out is not None:
        of_out = xp.matmul(hidden_grads.T, act[:, 3 * size :] * xp.tanh(cells))
    return of_gates, dh, dc, of_w, of_out


def gru_forward(
    xp: Any,
    gates: Any,
    h0: Any,
    w: Any,
    bias: Any,
    batch_sizes: Any,
    reverse: bool,
    product: Any = None,
    cell: Any = GENERATED,
) -> Any:
    """gates (rows, 3H): r, z, n; h0 (N, H), w (3H, H), bias (3H) or None -> output, h, activations, inner n.

    `product`: the backend's own `_product`.  cell: Note [A step of a layer].
    """
    size = h0.shape[1]
    product = product or _product(xp)
    cell = _cell(xp, cell, "gru_cell", gates, size)
    inner = xp.empty((gates.shape[0], size), gates.dtype)  # W_hn h + b_hn
    output = xp.empty_like(inner)
    h = h0.copy()
    shares = xp.empty((h0.shape[0], 3 * size), gates.dtype)
    if cell is not None:
        gates, transposed, act = (
            xp.ascontiguousarray(gates),
            _transposed(w, h0, batch_sizes),
            xp.empty(gates.shape, gates.dtype),
        )
        bias = xp.zeros((3 * size,), gates.dtype) if bias is None else xp.ascontiguousarray(bias)
        for start, n in steps(batch_sizes, reverse):
            step = slice(start, start + n)
            product(h[:n], transposed, shares[:n])
            cell(n, gates[step], shares, bias, h, act[step], inner[step], output[step])
        return output, h, act, inner
    factor, _ = _halves(xp, size, 3, 2, gates.dtype)
    act = gates * factor
    transposed = in_c_order(w.T)
    transposed *= factor
    if bias is not None:
        bias = bias * factor
    for start, n in steps(batch_sizes, reverse):
        a, share, state = act[start : start + n], shares[:n], h[:n]
        product(state, transposed, share)
        if bias is not None:
            share += bias
        gate, new, hidden = a[:, : 2 * size], a[:, 2 * size :], share[:, 2 * size :]
        gate += share[:, : 2 * size]
        xp.tanh(gate, out=gate)
        gate *= 0.5
        gate += 0.5
        inner[start : start + n] = hidden
        hidden *= a[:, :size]
        new += hidden
        xp.tanh(new, out=new)
        state -= new
        state *= a[:, size : 2 * size]
        state += new
        output[start : start + n] = state
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
    product: Any = None,
    cell: Any = GENERATED,
) -> Any:
    """The gradients of gates, h0, w and bias.  `product`: the backend's own `_product`."""
    size = h0.shape[1]
    product = product or _product(xp)
    cell = _cell(xp, cell, "gru_cell_backward", act, size)
    order = steps(batch_sizes, reverse)
    before = previous(xp, h0, output, order)
    of_gates, of_share = xp.empty_like(act), xp.empty_like(act)
    dtype = act.dtype
    dh = xp.zeros(h0.shape, dtype) if g_h is None else g_h.astype(dtype, order="C")
    if cell is not None:
        g_out, act, inner = (a if a is None else xp.ascontiguousarray(a) for a in (g_out, act, inner))
    kept, through = xp.empty(h0.shape, dtype), xp.zeros(h0.shape, dtype)
    for start, n in reversed(order):
        rows = slice(start, start + n)
        a, target, share = act[rows], of_gates[rows], of_share[rows]
        keep, s = kept[:n], through[:n]
        if cell is not None:
            d = dh[:n]
            cell(n, a, inner[rows], before[rows], s if g_out is None else g_out[rows], d, target, share, keep)
            product(share, w, d)
            d += keep
            continue
        d = _added(None if g_out is None else g_out[rows], dh[:n])
        r, z, new = (a[:, k * size : (k + 1) * size] for k in range(3))
        t_r, t_z, t_new = (target[:, k * size : (k + 1) * size] for k in range(3))
        # slopes: of a sigmoid x - x^2, of tanh 1 - x^2
        xp.multiply(a, a, out=target)
        xp.subtract(a[:, : 2 * size], target[:, : 2 * size], out=target[:, : 2 * size])
        xp.subtract(1, t_new, out=t_new)
        xp.multiply(d, z, out=keep)
        xp.subtract(d, keep, out=s)
        t_new *= s
        xp.subtract(before[rows], new, out=s)
        t_z *= s
        t_z *= d
        t_r *= inner[rows]
        t_r *= t_new
        share[:, : 2 * size] = target[:, : 2 * size]
        xp.multiply(t_new, r, out=share[:, 2 * size :])
        product(share, w, d)
        d += keep
    of_w = xp.empty(w.shape, dtype)
    product(of_share.T, before, of_w)
    return of_gates, dh, of_w, of_share.sum(axis=0)


def simple(
    xp: Any, gates: Any, h0: Any, w: Any, relu: bool, batch_sizes: Any, reverse: bool, product: Any = None
) -> Any:
    """gates (rows, H), h0 (N, H), w (H, H) -> output, h.  `product`: the backend's own `_product`."""
    product = product or _product(xp)
    output = gates.copy()
    h = h0.copy()
    transposed = _transposed(w, h0, batch_sizes)
    for start, n in steps(batch_sizes, reverse):
        a = output[start : start + n]
        product(h[:n], transposed, a, 1.0)
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
    product: Any = None,
) -> Any:
    """The gradients of gates, h0 and w.  `product`: the backend's own `_product`."""
    product = product or _product(xp)
    order = steps(batch_sizes, reverse)
    of_gates = xp.empty_like(output)
    dh = xp.zeros(h0.shape, output.dtype) if g_h is None else g_h.astype(output.dtype)
    for start, n in reversed(order):
        rows = slice(start, start + n)
        a, target = output[rows], of_gates[rows]
        d = _added(None if g_out is None else g_out[rows], dh[:n])
        if relu:
            xp.multiply(d, a > 0, out=target)
        else:
            xp.multiply(a, a, out=target)
            xp.subtract(1, target, out=target)
            target *= d
        product(target, w, d)
    of_w = xp.empty(w.shape, output.dtype)
    product(of_gates.T, previous(xp, h0, output, order), of_w)
    return of_gates, dh, of_w


# --- the proof of a generated cell


def _small(size: int, name: str, dtype: Any, cell: Any) -> tuple[Any, ...]:
    """Return what a layer of `size` units gives with a cell; None: with numpy's steps."""

    rng = np.random.default_rng(0)
    draw = lambda *shape: rng.standard_normal(shape).astype(dtype)
    sizes, gates = (3, 3, 2), 4 if name.startswith("lstm") else 3
    rows = sum(sizes)
    x, w, h, c = draw(rows, gates * size), draw(gates * size, size), draw(3, size), draw(3, size)
    grad, of_h, of_c = draw(rows, size), draw(3, size), draw(3, size)
    forward = cell if name in ("lstm_cell", "gru_cell") else None
    if gates == 4:
        made = lstm_forward(fast, x, h, c, w, None, sizes, False, cell=forward)
        if name == "lstm_cell":
            return tuple(made)
        of = (fast, grad, of_h, of_c, h, c, w, None, made[0], *made[3:], sizes, False)
        return tuple(lstm_backward(*of, cell=cell)[:4])
    bias = draw(gates * size)
    made = gru_forward(fast, x, h, w, bias, sizes, False, cell=forward)
    if name == "gru_cell":
        return tuple(made)
    return tuple(gru_backward(fast, grad, of_h, h, w, made[0], *made[2:], sizes, False, cell=cell))
