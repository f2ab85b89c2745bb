"""Recurrences written with small ops, for the gradients of gradients of the recurrent ops; and what those ops share."""

from __future__ import annotations

from engine.autograd.versions import own
from engine.ops._vjp import vjp
from engine.ops.activation import relu, tanh
from engine.ops.joining import cat
from engine.ops.products import linear
from engine.ops.recurrent import numpy as by_numpy


def wide(*arrays):
    return [a.astype("float32") if a is not None and a.dtype.itemsize == 2 else a for a in arrays]


def like(arrays, dtype):
    return tuple(a if a is None or a.dtype == dtype else a.astype(dtype) for a in arrays)


# --- the recurrences out of small ops


def _walk(gates, h, batch_sizes, reverse, step):
    """step(gates of one step, state rows) -> new state rows, over all steps; states is a tuple of (N, *) tensors."""
    pieces = {}
    for start, n in by_numpy.steps(batch_sizes, reverse):
        new = step(gates.narrow(0, start, n), tuple(s.narrow(0, 0, n) for s in h))
        h = tuple(v if n == s.shape[0] else cat([v, s.narrow(0, n, s.shape[0] - n)]) for v, s in zip(new, h))
        pieces[start] = new[0]
    if not pieces:
        return gates.new_zeros((0, h[0].shape[1])), *h
    return cat([pieces[k] for k in sorted(pieces)]), *h


def lstm_step(gates, state, w, w_out):
    h, c = lstm_step_of(gates, linear(state[0], w), state[1])
    return h if w_out is None else linear(h, w_out), c


def lstm_step_of(inputs, share, c):
    """inputs and share (N, 4H) of the gates, c (N, H) -> h, c (N, H)."""
    i, f, g, o = (inputs + share).chunk(4, 1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def lstm_twin(gates, h0, c0, w, w_out, batch_sizes, reverse):
    return _walk(gates, (h0, c0), batch_sizes, reverse, lambda x, s: lstm_step(x, s, w, w_out))


def gru_step(gates, h, w, bias):
    return gru_step_of(gates, linear(h, w, bias), h)


def gru_step_of(inputs, share, h):
    """inputs and share (N, 3H) of the gates, h (N, H) -> the new h (N, H)."""
    r, z, n = inputs.chunk(3, 1)
    hr, hz, hn = share.chunk(3, 1)
    z = (z + hz).sigmoid()
    n = (n + (r + hr).sigmoid() * hn).tanh()
    return n + z * (h - n)


def gru_twin(gates, h0, w, bias, batch_sizes, reverse):
    return _walk(gates, (h0,), batch_sizes, reverse, lambda x, s: (gru_step(x, s[0], w, bias),))


def simple_twin(gates, h0, w, how, batch_sizes, reverse):
    function = relu if how == "relu" else tanh
    return _walk(gates, (h0,), batch_sizes, reverse, lambda x, s: (function(x + linear(s[0], w)),))


def twice(twin, count, grads, needs, *tensors):
    """The gradient of a backward: `count` incoming gradients, then the inputs of the forward."""
    wanted = [t is not None for t in tensors[count:]]
    return vjp(lambda *a: vjp(twin, a[count:], a[:count], wanted), tensors, grads, needs)


def start(grad, like):
    """A gradient of an output, of zeros where there is none; torch's own backward saves no gradient."""
    return like.detach().new_zeros(like.shape) if grad is None else own(grad)
