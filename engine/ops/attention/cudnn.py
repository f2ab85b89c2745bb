"""Scaled dot product attention by cuDNN, forward and backward, for float16 and bfloat16.

Query, key and value are taken as they lie, heads as views of one packed projection too.  A hidden place is -inf in
torch's masks; here it is -30000, beside which every score vanishes, so that a row that sees nothing gives no NaN: its
output and its gradients are then set to 0.  A mask and causality together are one mask: a row may see nothing then
though its mask shows something, and cuDNN, given both, answers with NaN.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from engine.backends import cudnn as settings
from engine.backends.cuda import cudnn_graph as graphs
from engine.backends.cuda import routes
from engine.backends.cuda.cudnn_arrays import dense, graphs_there, guarded, on, used
from engine.dispatch import OPS, kernel
from engine.ops.attention import fused as fused_attention
from engine.ops.attention import lain

_HIDDEN = -30000.0


def _check(xp: Any) -> Any:
    """Causal with shared keys and heads inside one projection, a mask with a row that sees nothing, and both."""
    packed, grad = (routes.numbers(2, 16, 3, 2, 16, seed=s, dtype=np.float16) * np.float16(2) for s in (1, 2))
    mask = np.where(routes.numbers(1, 2, 16, 16, seed=3) < -0.4, -np.inf, 0).astype(np.float16)
    mask[0, 1, 3] = -np.inf
    for hidden, causal, shared in ((None, True, True), (mask, False, False), (mask, True, False)):
        q, k, v = (packed[:, :, i].transpose(0, 2, 1, 3) for i in range(3))
        g = grad[:, :, 0].transpose(0, 2, 1, 3)
        whole = xp.asarray(packed)
        a, b, c = (whole[:, :, i].transpose(0, 2, 1, 3) for i in range(3))
        if shared:
            k, v, b, c = (t[:, :1] for t in (k, v, b, c))
        m = None if hidden is None else xp.asarray(hidden)
        wide = [t.astype(np.float32) for t in (q, k, v)]
        wanted = OPS["fused_attention"].kernel(np, *wide, hidden, causal, 0.25)
        found = _forward(xp, a, b, c, m, causal, 0.25)
        if found is None:
            raise RuntimeError("cuDNN has no engine for the attention of the check")
        yield found[0].astype("float32"), wanted[0]
        if hidden is None:
            yield found[1], wanted[1].astype(np.float32)
        back = OPS["fused_attention_backward"].kernel(np, g.astype(np.float32), *wide, *wanted, hidden, causal, 0.25)
        ours = _backward(xp, xp.asarray(np.ascontiguousarray(g)), a, b, c, *found, m, causal, 0.25)
        yield from ((f.astype("float32"), w.astype(np.float32)) for f, w in zip(ours, back))


ROUTE = routes.route(
    "cudnn attention", check=_check, fallback="products and softmax", tolerance=1e-2, ready=graphs_there
)


def available() -> bool:
    """Return whether attention goes to cuDNN now."""
    return on(ROUTE)


def _heads(array: Any) -> Any:
    """The array, or a contiguous copy where cuDNN cannot read it as it is laid out."""
    item = array.itemsize
    good = array.strides[-1] == item and not array.data.ptr % graphs.ALIGNMENT
    good = good and all(s > 0 and not s % graphs.ALIGNMENT for n, s in zip(array.shape[:-1], array.strides) if n > 1)
    return array if good else array.copy()


def _seen(xp: Any, mask: Any, shape: Any, causal: bool) -> tuple[Any, Any]:
    """(the mask with finite numbers, (N or 1, heads or 1, L, S); which rows see nothing, to broadcast with outputs)."""
    mask = mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
    mask = xp.broadcast_to(mask, (*mask.shape[:2], *shape[2:]))
    if causal:
        mask = xp.where(xp.tri(*shape[2:], dtype=bool), mask, xp.asarray(-math.inf, mask.dtype))
    dead = (mask == -math.inf).all(axis=-1, keepdims=True)
    return dense(xp.maximum(mask, xp.asarray(_HIDDEN, mask.dtype))), dead


def _problem(q: Any, k: Any, v: Any, o: Any, mask: Any, causal: bool, scale: float, back: Any = None) -> Any:
    layout = graphs.layout
    grad, d_q, d_k, d_v = (None,) * 4 if back is None else (layout(a) for a in back)
    return graphs.Attention(
        q.dtype.name,
        layout(q),
        layout(k),
        layout(v),
        layout(o),
        None if mask is None else layout(mask),
        grad,
        d_q,
        d_k,
        d_v,
        bool(causal) and mask is None,
        float(scale),
        bool(settings.deterministic),
    )


def _forward(xp: Any, query: Any, key: Any, value: Any, mask: Any, causal: bool, scale: float) -> Any:
    cudnn = used()
    if cudnn is None or cudnn.frontend is None:
        return None
    q, k, v = (_heads(a) for a in (query, key, value))
    output = lain(xp, q, (*q.shape[:-1], v.shape[-1]))
    statistics = xp.empty((*q.shape[:-1], 1), "float32")
    arrays = {graphs.Q: q, graphs.K: k, graphs.V: v, graphs.O: output, graphs.STATS: statistics}
    dead = None
    key = "forward", *_described(q, k, v, output), causal, scale, bool(settings.deterministic)
    if mask is None and graphs.run_again(cudnn, key, arrays):
        return output, statistics
    if mask is not None:
        mask, dead = _seen(xp, mask, (*q.shape[:-1], k.shape[2]), causal)
        arrays[graphs.MASK] = mask
    if not graphs.run(cudnn, _problem(q, k, v, output, mask, causal, scale), arrays, key if mask is None else None):
        return None
    return output if dead is None else xp.where(dead, 0, output).astype(output.dtype, copy=False), statistics


def _backward(
    xp: Any,
    grad: Any,
    query: Any,
    key: Any,
    value: Any,
    output: Any,
    statistics: Any,
    mask: Any,
    causal: bool,
    scale: float,
) -> Any:
    cudnn = used()
    if cudnn is None or cudnn.frontend is None or statistics.dtype != np.float32:
        return None
    q, k, v, o = (_heads(a) for a in (query, key, value, output))
    arrays: dict[int, Any] = {}
    if mask is not None:
        mask, dead = _seen(xp, mask, (*q.shape[:-1], k.shape[2]), causal)
        grad = xp.where(dead, 0, grad).astype(q.dtype, copy=False)
        arrays[graphs.MASK] = mask
    grad = _heads(grad)
    made = [lain(xp, a, a.shape) for a in (q, k, v)]
    arrays |= {
        graphs.Q: q,
        graphs.K: k,
        graphs.V: v,
        graphs.O: o,
        graphs.STATS: dense(statistics),
        graphs.D_O: grad,
        graphs.D_Q: made[0],
        graphs.D_K: made[1],
        graphs.D_V: made[2],
    }
    key = "backward", *_described(q, k, v, o, grad), causal, scale, bool(settings.deterministic)
    if mask is None and graphs.run_again(cudnn, key, arrays):
        return made
    problem = _problem(q, k, v, o, mask, causal, scale, (grad, *made))
    return made if graphs.run(cudnn, problem, arrays, key if mask is None else None) else None


def _described(*arrays: Any) -> tuple[Any, ...]:
    return (arrays[0].dtype, *[(a.shape, a.strides) for a in arrays if a is not None])


def _half(*arrays: Any) -> bool:
    return arrays[0].dtype.name in ("float16", "bfloat16") and all(a.dtype == arrays[0].dtype for a in arrays)


@kernel(fused_attention.fused_attention, "cudnn")
def _fused_attention(xp, query, key, value, mask=None, causal=False, scale=1.0):
    if not _half(query, key, value, *([] if mask is None else [mask])) or not on(ROUTE):
        return NotImplemented
    return guarded(ROUTE, _forward, xp, query, key, value, mask, causal, scale)


@kernel(fused_attention.fused_attention_backward, "cudnn")
def _fused_attention_backward(
    xp, grad_output, query, key, value, output, statistics, mask=None, causal=False, scale=1.0
):
    if not _half(grad_output, query, key, value, output, *([] if mask is None else [mask])) or not on(ROUTE):
        return NotImplemented
    return guarded(ROUTE, _backward, xp, grad_output, query, key, value, output, statistics, mask, causal, scale)
