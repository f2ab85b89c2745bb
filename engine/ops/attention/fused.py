"""Attention whose weights are never in memory: what a library computes in one pass, with the logarithms of the sums of
the softmax for the backward.  `attention.py` keeps the weights; this is taken on a GPU with cuDNN.
"""

from __future__ import annotations

import math

from engine.dispatch import joint_derivative, op, samples
from engine.ops import attention
from engine.ops._vjp import WHY, vjp
from engine.ops.attention import lain

_WIDTHS = 128  # elements of a head that cuDNN serves in both directions on all cards it serves attention on


def _grouped(array, like):
    """Keys or values for every head of `like`."""
    times = like.shape[1] // array.shape[1]
    return array if times == 1 else array.repeat(times, axis=1)


def _shared(xp, grad, like):
    """The gradient of keys or values that serve several heads: summed over those."""
    if grad.shape[1] == like.shape[1]:
        return grad
    n, heads, length, width = like.shape
    return grad.reshape(n, heads, -1, length, width).sum(axis=2)


def _scores(xp, q, k, mask, causal, scale):
    found = xp.matmul(q * scale, _grouped(k, q).swapaxes(-2, -1))
    if mask is not None:
        found += mask
    if causal:
        hidden = xp.arange(found.shape[-1])[None, :] > xp.arange(found.shape[-2])[:, None]
        found = xp.where(hidden, -math.inf, found)
    return found


def _twin(query, key, value, mask, causal, scale):
    """The same out of small ops, for double backward."""
    times = query.shape[1] // key.shape[1]
    if times > 1:
        key, value = key.repeat_interleave(times, 1), value.repeat_interleave(times, 1)
    if causal:
        later = query.detach().new_full((query.shape[2], key.shape[2]), -math.inf).triu(1)
        mask = later if mask is None else mask + later
    return attention._attention_twin(query, key, value, mask, None, scale)


def _gradients(grad0, query, key, value, mask, result0, result1, needs, causal, scale):
    del needs
    return fused_attention_backward(grad0, query, key, value, result0.detach(), result1.detach(), mask, causal, scale)


@op(
    public=False,
    method=False,
    out=False,
    returns=("query", "key", "value"),
    tensors=("statistics",),
    why=WHY,
)
@joint_derivative(
    "grad_output",
    "query",
    "key",
    "value",
    by=lambda grads, grad_output, query, key, value, mask, needs, causal, scale: vjp(
        lambda g, *x: vjp(lambda *y: _twin(*y, mask, causal, scale), x, (g,), [True] * 3),
        (grad_output, query, key, value),
        grads,
        needs,
    ),
)
def fused_attention_backward(
    xp, grad_output, query, key, value, output, statistics, mask=None, causal=False, scale=1.0
):
    """The gradients of `fused_attention`.  grad_output (N, heads, L, Ev) -> as query, key and value."""
    g, q, k, v, o, m = attention._wide(grad_output, query, key, value, output, mask)
    weights = xp.exp(_scores(xp, q, k, m, causal, scale) - statistics)
    of_scores = xp.matmul(g, _grouped(v, q).swapaxes(-2, -1))
    of_scores -= (g * o).sum(axis=-1, keepdims=True)
    of_scores *= weights
    of_scores *= scale
    found = (
        xp.matmul(of_scores, _grouped(k, q)),
        _shared(xp, xp.matmul(of_scores.swapaxes(-2, -1), q), k),
        _shared(xp, xp.matmul(weights.swapaxes(-2, -1), g), v),
    )
    return [a.astype(query.dtype, copy=False) for a in found]


@op(
    public=False,
    method=False,
    out=False,
    returns=("output", "statistics"),
    nondifferentiable=("statistics",),
    node="ScaledDotProductCudnnAttentionBackward0",
)
@joint_derivative("query", "key", "value", by=_gradients)
@samples(
    lambda t: [
        (t(2, 2, 3, 4), t(2, 2, 5, 4), t(2, 2, 5, 3), None, False, 0.5),
        (t(1, 4, 3, 4), t(1, 2, 3, 4), t(1, 2, 3, 4), None, True, 0.7),
        (t(1, 2, 2, 4), t(1, 2, 3, 4), t(1, 2, 3, 4), t.of([[[[0.0, -math.inf, 0.3], [-math.inf] * 3]]]), False, 1.0),
    ]
)
def fused_attention(xp, query, key, value, mask=None, causal=False, scale=1.0):
    """softmax(query @ key.T * scale + mask) @ value, and log(sum(exp(...))) of its rows; rows that see nothing give 0.

    query (N, heads, L, E), key (N, heads or fewer, S, E), value (N, as key, S, Ev), mask (N or 1, heads or 1, L, S);
    causal: query i sees the keys up to i -> (N, heads, L, Ev), (N, heads, L, 1) float32 (of float64 float64).
    """
    q, k, v, m = attention._wide(query, key, value, mask)
    scores = _scores(xp, q, k, m, causal, scale)
    top = scores.max(axis=-1, keepdims=True)
    top = xp.where(top == -math.inf, 0, top)
    weights = xp.exp(scores - top)
    total = weights.sum(axis=-1, keepdims=True)
    total = xp.where(total == 0, 1, total)
    weights /= total
    output = xp.matmul(weights, _grouped(v, q), out=lain(xp, q, (*q.shape[:-1], v.shape[-1])))
    return output.astype(query.dtype, copy=False), top + xp.log(total)


def served(query, key, value, mask, dropout_p):
    """Return whether a library computes this attention."""
    if query.device.type != "cuda" or query.dtype.itemsize != 2 or not query.dtype.is_floating_point or dropout_p:
        return False
    if query.dim() != 4 or key.dim() != 4 or value.dim() != 4 or query.shape[0] != key.shape[0]:
        return False
    if key.shape[:3] != value.shape[:3] or key.shape[1] == 0 or query.shape[1] % key.shape[1]:
        return False
    if mask is not None and (mask.requires_grad or mask.dim() > 4):
        return False
    if any(n % 8 or not 0 < n <= _WIDTHS for n in (query.shape[3], value.shape[3])):
        return False
    from engine.backends.cuda import flags
    from engine.ops.attention import cudnn as by_cudnn

    return flags.cudnn_sdp_enabled() and query.numel() > 0 and key.numel() > 0 and by_cudnn.available()
