"""Scaled dot product attention and multi-head attention (arXiv:1706.03762)."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from engine.autograd import flops
from engine.autograd.graph import name_node, requires_grad_of
from engine.autograd.versions import own
from engine.core import dtypes
from engine.core.checks import broadcast_shapes, numel
from engine.core.grad_mode import mode
from engine.core.layouts import dense_order, empty_ordered
from engine.dispatch import OPS, composite, joint_derivative, op, samples
from engine.dispatch.choosing import run_direct
from engine.ops._vjp import WHY, vjp
from engine.ops.random.dropout import dropout, noise_like
from engine.ops.softmax import softmax
from engine.tensor import Tensor, raw_array


def _check_sdpa(query, key, value, attn_mask):
    if not query.dtype is key.dtype is value.dtype:
        raise RuntimeError(
            f"Expected query, key, and value to have the same dtype, but got query.dtype: {_short(query)} key.dtype: "
            f"{_short(key)} and value.dtype: {_short(value)} instead."
        )
    if query.dim() < 2 or key.dim() < 2 or value.dim() < 2:
        raise RuntimeError(
            f"Expected query, key, and value to all be  at least 2 dimensional, but got query.dim: {query.dim()} "
            f"key.dim: {key.dim()} and value.dim: {value.dim()} instead."
        )
    if attn_mask is not None and attn_mask.dtype not in (dtypes.bool, query.dtype, dtypes.float32):
        raise RuntimeError(
            "Expected attn_mask dtype to be bool or float or to match query dtype, but got attn_mask.dtype: "
            f"{_short(attn_mask)} and  query.dtype: {_short(query)} instead."
        )


def _short(tensor):
    return dtypes.cpp_name(tensor.dtype)


@composite(public=False, method=False, autocast="lower")
@samples(
    lambda t: [
        (t(2, 3, 4), t(2, 5, 4), t(2, 5, 3)),
        (t(1, 2, 3, 4), t(1, 2, 3, 4), t(1, 2, 3, 4), None, 0.0, True),
        (t(2, 3, 4), t(2, 5, 4), t(2, 5, 3), t(3, 5)),
        (t(2, 3, 4), t(1, 5, 4), t(1, 5, 3), t.of([[True], [False], [True]])),
    ]
)
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
):
    """softmax(query @ key.T * scale + mask) @ value, scale 1/sqrt(E) by default; a row with nothing to see gives 0.

    query (*, L, E), key (*, S, E), value (*, S, Ev), attn_mask broadcast to (*, L, S), bool (True sees) or added
    -> (*, L, Ev).  enable_gqa: key and value have fewer heads (dim -3), each serving several of query's.
    """
    if attn_mask is None and dropout_p == 0.0 and not is_causal and not enable_gqa:  # the usual case
        q, k, v = raw_array(query), raw_array(key), raw_array(value)
        if (
            q.__class__ is k.__class__ is v.__class__ is np.ndarray
            and q.dtype is k.dtype is v.dtype
            and q.dtype.kind == "f"
            and q.ndim > 1
            and q.shape[:-2] == k.shape[:-2] == v.shape[:-2]
            and q.shape[-1] == k.shape[-1]
            and k.shape[-2] == v.shape[-2]
        ):
            factor = 1.0 / math.sqrt(q.shape[-1]) if scale is None else scale
            if not (mode.enabled and (query._requires_grad or key._requires_grad or value._requires_grad)):
                return attention_inference(query, key, value, None, factor)  # there is no node that saves anything
            if q.ndim == 4 and q.shape[-1] == v.shape[-1]:  # `flash`
                return attention(query, key, value, None, None, factor)[0]
            return _attended(query, key, value, None, None, factor)
    _check_sdpa(query, key, value, attn_mask)
    fused = query.device.type == "cuda" and _fused(query, key, value, attn_mask, dropout_p, enable_gqa)
    if not fused and enable_gqa and key.shape[-3] != query.shape[-3]:
        if query.shape[-3] % key.shape[-3] or key.shape[-3] != value.shape[-3]:
            raise RuntimeError("Number of heads in key and value must divide the number of heads in query")
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
        value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
    of_query, of_key, of_value = (raw_array(x).shape for x in (query, key, value))
    for wanted, have, other in (  # the two products
        (of_query[-1], of_key[-1], of_key),
        (of_key[-2], of_value[-2], of_value),
    ):
        if wanted != have:
            n = numel(broadcast_shapes(of_query[:-2], other[:-2]))
            raise RuntimeError(
                f"Expected size for first two dimensions of batch2 tensor to be: [{n}, {wanted}] but got: [{n}, "
                f"{have}]."
            )
    factor = 1.0 / math.sqrt(of_query[-1]) if scale is None else scale
    mask = attn_mask
    if mask is not None and mask.dtype is dtypes.bool:
        mask = query.detach().new_zeros(mask.shape).masked_fill(~mask, float("-inf"))
    elif mask is not None:
        mask = mask.to(query.dtype)
    if fused and is_causal and mask is None and of_query[-2] > 0:
        return fused(query, key, value, None, True, factor)[0]
    if is_causal:
        rows, columns = of_query[-2], of_key[-2]
        later = query.detach().new_full((rows, columns), float("-inf")).triu(1)
        mask = later if mask is None else mask + later
    if fused:
        return fused(query, key, value, mask, False, factor)[0]
    shape = (*of_query[:-1], of_key[-2])
    noise = None
    if (
        not of_query[:-2] == of_key[:-2] == of_value[:-2]
        or not query.is_floating_point()
        or (mask is not None and broadcast_shapes(shape, mask.shape) != shape)
    ):
        if mode.enabled:
            query, key = _unscaled(query, key, value)
        given, narrow = query.dtype, query.is_floating_point() and query.itemsize == 2
        if narrow:  # computed in float32 and rounded once
            query, key, value = (x.to(dtypes.float32) for x in (query, key, value))
            mask = None if mask is None else mask.to(dtypes.float32)
        if dropout_p > 0.0:
            lead = broadcast_shapes(of_query[:-2], of_key[:-2])
            noise = noise_like(query, dropout_p, shape=(*lead, of_query[-2], of_key[-2]))
        found = _attention_twin(query, key, value, mask, noise, factor)
        return found.to(given) if narrow else found
    if dropout_p > 0.0:
        noise = noise_like(query, dropout_p, shape=shape)
    return _attended(query, key, value, mask, noise, factor)


def _attended(query, key, value, mask, noise, factor):
    """`attention`, whose node saves what the kernel that torch would choose saves."""
    if noise is None and not (
        mode.enabled and any(x is not None and requires_grad_of(x) for x in (query, key, value, mask))
    ):
        return attention_inference(query, key, value, mask, factor)
    mask_needs_grad = mask is not None and mask.requires_grad
    if not mode.enabled or flash(*map(raw_array, (query, key, value)), noise, mask_needs_grad):
        return attention(query, key, value, mask, noise, factor)[0]
    query, key = _unscaled(query, key, value, mask)
    return attention(query, key, value, mask if mask is None else own(mask), noise, factor)[0]


def _unscaled(query, key, *others):
    """The factors of the scores, copied where they are saved: torch saves them scaled, so they may be written to."""
    if not any(x is not None and requires_grad_of(x) for x in (query, key, *others)):
        return query, key
    return [name_node(x.clone(), "MulBackward0") for x in (query, key)]


def _fused(query, key, value, mask, dropout_p, enable_gqa):
    """The op of a library that computes this attention in one pass; None without one."""
    from engine.ops.attention import fused as fused_attention

    if not enable_gqa and query.dim() == 4 and key.dim() == 4 and query.shape[1] != key.shape[1]:
        return None
    return fused_attention.fused_attention if fused_attention.served(query, key, value, mask, dropout_p) else None


def _attention_twin(query, key, value, mask, noise, scale):
    """`attention` out of small ops; leading dims broadcast."""
    scores = (query * scale) @ key.transpose(-2, -1)
    dead = None
    if mask is not None:
        dead = (mask.detach() == float("-inf")).all(-1, True)
        if dead.device.type != "meta" and not bool(dead.any()):
            dead = None
        scores = scores + (mask if dead is None else mask.masked_fill(dead, 0.0))
    weights = scores.softmax(-1)
    if dead is not None:
        weights = weights.masked_fill(dead, 0.0)
    if noise is not None:
        weights = weights * noise
    return weights @ value


def weights_of(xp, query, key, mask, scale):
    """softmax(query @ key.T * scale + mask), 0 where all of a row is hidden.  (*, L, E), (*, S, E) -> (*, L, S)."""
    scores = xp.matmul(query * scale, key.swapaxes(-2, -1))
    if mask is not None:
        scores += mask
    if not scores.size:
        return scores
    if mask is None and xp is np:
        found = run_direct(softmax, scores, -1, None)
        if found is not NotImplemented:
            return found
    top = scores.max(axis=-1, keepdims=True)
    if mask is not None:
        top = xp.where(top == -math.inf, 0, top)
    scores -= top
    xp.exp(scores, out=scores)
    total = xp.add.reduce(scores, -1, keepdims=True)
    if mask is not None:
        total = xp.where(total == 0, 1, total)
    scores /= total
    return scores


def lain(xp, like, shape):
    """Return a new array whose dims are laid out in the order of those of `like`, as the projection of heads wants
    them."""
    if like.flags.c_contiguous:
        return xp.empty(shape, like.dtype)
    return empty_ordered(xp, shape, like.dtype, dense_order(like))


def _wide(*arrays):
    return [a.astype("float32") if a is not None and a.dtype.itemsize == 2 else a for a in arrays]


def _attention_grads(grad0, query, key, value, mask, noise, result1, needs, scale):
    if grad0 is None:
        return (None,) * 4
    found = attention_backward(grad0, query, key, value, result1.detach(), mask, noise, scale, needs[3])
    return (*found[:3], found[3] if needs[3] else None)


@op(
    public=False,
    method=False,
    out=False,
    returns=("query", "key", "value", "mask"),
    tensors=("weights", "noise"),
    why=WHY,
    large=4096,
    generated="many",
    flops=("_scaled_dot_product_flash_attention_backward", flops.attention_backward),
)
@joint_derivative(
    "grad_output",
    "query",
    "key",
    "value",
    "mask",
    by=lambda grads, grad_output, query, key, value, mask, noise, needs, scale: vjp(
        lambda g, *x: vjp(lambda *y: _attention_twin(*y, noise, scale), x, (g,), [t is not None for t in x]),
        (grad_output, query, key, value, mask),
        grads,
        needs,
    ),
)
def attention_backward(xp, grad_output, query, key, value, weights, mask=None, noise=None, scale=1.0, mask_too=False):
    """The gradients of `attention`, that of the mask if `mask_too`.  grad_output (*, L, Ev) -> as the inputs."""
    given, g, q, k, v, w, n = query.dtype, grad_output, query, key, value, weights, noise
    if given.itemsize == 2:
        g, q, k, v, w, n = _wide(g, q, k, v, w, n)
    dropped = w if n is None else w * n
    of_value = xp.matmul(dropped.swapaxes(-2, -1), g, out=lain(xp, v, v.shape))
    of_scores = xp.matmul(g, v.swapaxes(-2, -1))
    if n is not None:
        of_scores *= n
    of_scores *= w
    of_scores -= w * of_scores.sum(axis=-1, keepdims=True)
    found = _sum_to(of_scores, mask.shape) if mask_too else xp.zeros((0,), w.dtype)
    of_query = xp.matmul(of_scores, k, out=lain(xp, q, q.shape))
    of_key = xp.matmul(of_scores.swapaxes(-2, -1), q, out=lain(xp, k, k.shape))
    of_query *= scale
    of_key *= scale
    made = [of_query, of_key, of_value, found]
    return made if of_query.dtype is given else [a.astype(given, copy=False) for a in made]


def _sum_to(array, shape):
    """Summed over the dims that `shape` broadcasts; a fresh array."""
    lead = array.ndim - len(shape)
    dims = (*range(lead), *(i + lead for i, n in enumerate(shape) if n == 1))
    return array.sum(axis=dims).reshape(shape) if dims else array.copy()


def flash(query, key, value, noise, mask_needs_grad):
    """Return whether torch would take its flash kernel for the CPU."""
    if query.ndim != 4 or noise is not None or mask_needs_grad:
        return False
    return query.shape[-1] == key.shape[-1] == value.shape[-1]


@op(
    public=False,
    method=False,
    out=False,
    returns=("output", "weights"),
    nondifferentiable=("weights",),
    tensors=("noise",),
    large=4096,
    node={
        "flash(_a_query, _a_key, _a_value, noise, _r_mask)": "ScaledDotProductFlashAttentionForCpuBackward0",
        "_a_query.ndim > 2": "UnsafeViewBackward0",
        "": "MmBackward0",
    },
    keeps={"result0": "ScaledDotProductFlashAttentionForCpuBackward0"},
    generated="many",
    autocast="lower",
    flops=("_scaled_dot_product_flash_attention", flops.attention),
)
@joint_derivative("query", "key", "value", "mask", by=_attention_grads)
@samples(
    lambda t: [
        (t(2, 3, 4), t(2, 5, 4), t(2, 5, 3), None, None, 0.5),
        (t(2, 2, 3, 4), t(2, 2, 3, 4), t(2, 2, 3, 4), t(1, 2, 1, 3), None, 0.7),
        (t(2, 4), t(3, 4), t(3, 2), t(2, 3), t.constant(t.positive(2, 3)), 1.0),
        (t(1, 2, 4), t(1, 3, 4), t(1, 3, 2), t.of([[0.0, -math.inf, 0.3], [-math.inf] * 3]), None, 1.0),
        (t(0, 2, 4), t(0, 3, 4), t(0, 3, 2), None, None, 1.0),
    ]
)
def attention(xp, query, key, value, mask=None, noise=None, scale=1.0):
    """softmax(query @ key.T * scale + mask) * noise @ value, and the softmax; rows with nothing to see give 0.

    query (*, L, E), key (*, S, E), value (*, S, Ev), mask and noise broadcast to (*, L, S) -> (*, L, Ev), (*, L, S).
    """
    given = query.dtype
    if given.itemsize == 2:
        query, key, value, mask, noise = _wide(query, key, value, mask, noise)
    weights = weights_of(xp, query, key, mask, scale)
    shape = (*query.shape[:-1], value.shape[-1])
    output = xp.matmul(weights if noise is None else weights * noise, value, out=lain(xp, query, shape))
    if output.dtype is given:
        return output, weights
    return output.astype(given, copy=False), weights.astype(given, copy=False)


@op(
    public=False,
    method=False,
    out=False,
    large=4096,
    generated="many",
    autocast="lower",
    flops=("_scaled_dot_product_flash_attention", flops.attention),
)
@samples(
    lambda t: [
        (t.constant(t(2, 3, 4)), t.constant(t(2, 5, 4)), t.constant(t(2, 5, 3)), None, 0.5),
        (
            t.constant(t(1, 2, 3, 4)),
            t.constant(t(1, 2, 3, 4)),
            t.constant(t(1, 2, 3, 4)),
            t.constant(t(1, 2, 1, 3)),
            0.7,
        ),
        (
            t.constant(t(1, 2, 4)),
            t.constant(t(1, 3, 4)),
            t.constant(t(1, 3, 4)),
            t.of([[0.0, -math.inf, 0.3], [-math.inf] * 3]),
            1.0,
        ),
        (t.constant(t(0, 2, 4)), t.constant(t(0, 3, 4)), t.constant(t(0, 3, 2)), None, 1.0),
    ]
)
def attention_inference(xp, query, key, value, mask=None, scale=1.0):
    """`attention` without gradients, noise and the softmax.  query (*, L, E), key (*, S, E), value (*, S, Ev), mask
    broadcast to (*, L, S) -> (*, L, Ev)."""
    return OPS["attention"].kernel(xp, query, key, value, mask, None, scale)[0]


def _canonical_mask(mask, mask_name, other_type, other_name, target_type, check_other=True):
    """A mask that is added: a bool one becomes 0 and -inf."""
    if mask is None:
        return None
    floating = mask.is_floating_point()
    if mask.dtype is not dtypes.bool and not floating:
        raise AssertionError(f"only bool and floating types of {mask_name} are supported")
    if check_other and other_type is not None and mask.dtype is not other_type:
        warnings.warn(
            f"Support for mismatched {mask_name} and {other_name} is deprecated. Use same type for both instead.",
            stacklevel=2,
        )
    if floating:
        return mask
    return mask.new_zeros(mask.shape, dtype=target_type).masked_fill_(mask, float("-inf"))


def _none_or_dtype(input):
    if input is None:
        return None
    if isinstance(input, Tensor):
        return input.dtype
    raise RuntimeError("input to _none_or_dtype() must be None or torch.Tensor")


def _mha_shape_check(query, key, value, key_padding_mask, attn_mask, num_heads):
    """Return whether the inputs are batched; AssertionError where dims do not fit."""
    if query.dim() not in (2, 3):
        raise AssertionError(
            f"query should be unbatched 2D or batched 3D tensor but received {query.dim()}-D query tensor"
        )
    n = query.dim()
    prefix = "For batched (3-D) `query`" if n == 3 else "For unbatched (2-D) `query`"
    if key.dim() != n or value.dim() != n:
        raise AssertionError(
            f"{prefix}, expected `key` and `value` to be {n}-D but found {key.dim()}-D and {value.dim()}-D tensors "
            "respectively"
        )
    if key_padding_mask is not None and key_padding_mask.dim() != n - 1:
        raise AssertionError(
            f"{prefix}, expected `key_padding_mask` to be `None` or {n - 1}-D but found {key_padding_mask.dim()}-D "
            "tensor instead"
        )
    if attn_mask is not None:
        if attn_mask.dim() not in (2, 3):
            raise AssertionError(
                f"{prefix}, expected `attn_mask` to be `None`, 2-D or 3-D but found {attn_mask.dim()}-D tensor instead"
            )
        if n == 2 and attn_mask.dim() == 3:
            wanted = (num_heads, query.shape[0], key.shape[0])
            if attn_mask.shape != wanted:
                raise AssertionError(f"Expected `attn_mask` shape to be {wanted} but got {attn_mask.shape}")
    return n == 3


def _dense_linear(x, weight, bias):
    """`linear`, which as in torch saves the dense copy that it makes of an input of other strides, not the input."""
    from engine.ops.products import linear

    if not mode.enabled or x.is_contiguous():
        return linear(x, weight, bias)
    result = linear(x.contiguous(), weight, bias)
    return result if bias is None else name_node(result, "AddBackward0")


def _in_projection_packed(q, k, v, w, b=None):
    """query, key and value through one packed weight (3 E, E)."""

    if k is v and q is k:
        return _dense_linear(q, w, b).chunk(3, -1)
    parts = w.chunk(3)
    biases = (None,) * 3 if b is None else b.chunk(3)
    return tuple(_dense_linear(x, part, bias) for x, part, bias in zip((q, k, v), parts, biases))


def _in_projection(q, k, v, w_q, w_k, w_v, b_q=None, b_k=None, b_v=None):
    """query, key and value through weights of their own."""

    width = q.size(-1)
    for label, weight, x in (("query", w_q, q), ("key", w_k, k), ("value", w_v, v)):
        if tuple(weight.shape) != (width, x.size(-1)):
            raise AssertionError(f"expecting {label} weights shape of {(width, x.size(-1))}, but got {weight.shape}")
    for label, bias in (("query", b_q), ("key", b_k), ("value", b_v)):
        if bias is not None and tuple(bias.shape) != (width,):
            raise AssertionError(f"expecting {label} bias shape of {(width,)}, but got {bias.shape}")
    return _dense_linear(q, w_q, b_q), _dense_linear(k, w_k, b_k), _dense_linear(v, w_v, b_v)


def _check_mask(attn_mask, tgt_len, src_len, batch_heads):
    """attn_mask with three dims; RuntimeError where its shape does not fit."""
    if attn_mask.dim() == 2:
        wanted: tuple = (tgt_len, src_len)
        if attn_mask.shape != wanted:
            raise RuntimeError(f"The shape of the 2D attn_mask is {attn_mask.shape}, but should be {wanted}.")
        return attn_mask.unsqueeze(0)
    if attn_mask.dim() == 3:
        wanted = (batch_heads, tgt_len, src_len)
        if attn_mask.shape != wanted:
            raise RuntimeError(f"The shape of the 3D attn_mask is {attn_mask.shape}, but should be {wanted}.")
        return attn_mask
    raise RuntimeError(f"attn_mask's dimension {attn_mask.dim()} is not supported")


def _one_more(mask):
    """A mask with one more column, which may be seen."""
    from engine.ops.nn.padding import constant_pad_nd

    return None if mask is None else constant_pad_nd(mask, (0, 1))


def _heads(x, static, label, count, head_dim):
    if static is None:
        return x.reshape(x.shape[0], count, head_dim).transpose(0, 1)
    if static.size(0) != count:
        raise AssertionError(f"expecting static_{label}.size(0) of {count}, but got {static.size(0)}")
    if static.size(2) != head_dim:
        raise AssertionError(f"expecting static_{label}.size(2) of {head_dim}, but got {static.size(2)}")
    return static


def _projected(
    query,
    key,
    value,
    use_separate_proj_weight,
    in_proj_weight,
    in_proj_bias,
    q_proj_weight,
    k_proj_weight,
    v_proj_weight,
):
    if use_separate_proj_weight:
        if key.shape[:2] != value.shape[:2]:
            raise AssertionError(
                f"key's sequence and batch dims {key.shape[:2]} do not match value's {value.shape[:2]}"
            )
        for label, weight in (("q", q_proj_weight), ("k", k_proj_weight), ("v", v_proj_weight)):
            if weight is None:
                raise AssertionError(f"use_separate_proj_weight is True but {label}_proj_weight is None")
        biases = (None,) * 3 if in_proj_bias is None else in_proj_bias.chunk(3)
        return _in_projection(query, key, value, q_proj_weight, k_proj_weight, v_proj_weight, *biases)
    if key.shape != value.shape:
        raise AssertionError(f"key shape {key.shape} does not match value shape {value.shape}")
    if in_proj_weight is None:
        raise AssertionError("use_separate_proj_weight is False but in_proj_weight is None")
    return _in_projection_packed(query, key, value, in_proj_weight, in_proj_bias)


def _float_masks(key_padding_mask, attn_mask, is_causal, need_weights, dtype):
    """The two masks as summands (or None), and whether the causal mask can be left to the kernel."""
    key_padding_mask = _canonical_mask(
        key_padding_mask, "key_padding_mask", _none_or_dtype(attn_mask), "attn_mask", dtype
    )
    if is_causal and attn_mask is None:
        raise RuntimeError(
            "Need attn_mask if specifying the is_causal hint. You may use the Transformer module method "
            "`generate_square_subsequent_mask` to create this mask."
        )
    if is_causal and key_padding_mask is None and not need_weights:
        return key_padding_mask, None, True
    attn_mask = _canonical_mask(attn_mask, "attn_mask", None, "", dtype, check_other=False)
    return key_padding_mask, attn_mask, is_causal and key_padding_mask is None


def _with_bias(k, v, bias_k, bias_v, static_k, static_v):
    """One more key and value, one for all of the batch.  k, v (S, N, E), biases (1, 1, E) -> (S + 1, N, E) each."""
    from engine.ops.joining import cat

    if bias_v is None:
        raise AssertionError("bias_k is set but bias_v is None")
    if bias_k is None:
        raise AssertionError("bias_v is set but bias_k is None")
    for label, static in (("key", static_k), ("value", static_v)):
        if static is not None:
            raise AssertionError(f"bias cannot be added to static {label}.")
    bsz = k.shape[1]
    return cat([k, bias_k.repeat(1, bsz, 1)]), cat([v, bias_v.repeat(1, bsz, 1)])


def _padding(mask, bsz, num_heads, src_len):
    """The mask of padding for every head.  mask (N, S) -> (N heads, 1, S)."""
    for d, wanted in enumerate((bsz, src_len)):
        if mask.shape[d] != wanted:
            raise AssertionError(f"Expected key_padded_mask.shape[{d}] to be {wanted}, but got {mask.shape[d]}")
    return mask.view(bsz, 1, 1, src_len).expand(-1, num_heads, -1, -1).reshape(bsz * num_heads, 1, src_len)


@composite(public=False, method=False)
def multi_head_attention_forward(
    query,
    key,
    value,
    embed_dim_to_check,
    num_heads,
    in_proj_weight,
    in_proj_bias,
    bias_k,
    bias_v,
    add_zero_attn,
    dropout_p,
    out_proj_weight,
    out_proj_bias,
    training=True,
    key_padding_mask=None,
    need_weights=True,
    attn_mask=None,
    use_separate_proj_weight=False,
    q_proj_weight=None,
    k_proj_weight=None,
    v_proj_weight=None,
    static_k=None,
    static_v=None,
    average_attn_weights=True,
    is_causal=False,
) -> Any:
    """num_heads attentions side by side, projected in and out.

    query (L, N, E), key (S, N, Ek), value (S, N, Ev), or without N -> (L, N, E), weights (N, L, S) or None.
    """
    from engine.ops.joining import cat
    from engine.ops.products import linear

    batched = _mha_shape_check(query, key, value, key_padding_mask, attn_mask, num_heads)
    if not batched:
        same = key is value, query is key
        query, key, value = query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1)
        value = key if same[0] else value
        query = key if same[1] else query
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    tgt_len, bsz, embed_dim = query.shape
    src_len = key.shape[0]
    key_padding_mask, attn_mask, is_causal = _float_masks(
        key_padding_mask, attn_mask, is_causal, need_weights, query.dtype
    )
    if embed_dim != embed_dim_to_check:
        raise AssertionError(f"was expecting embedding dimension of {embed_dim_to_check}, but got {embed_dim}")
    head_dim = embed_dim // num_heads
    if head_dim * num_heads != embed_dim:
        raise AssertionError(f"embed_dim {embed_dim} not divisible by num_heads {num_heads}")
    q, k, v = _projected(
        query,
        key,
        value,
        use_separate_proj_weight,
        in_proj_weight,
        in_proj_bias,
        q_proj_weight,
        k_proj_weight,
        v_proj_weight,
    )
    count = bsz * num_heads
    if attn_mask is not None:
        attn_mask = _check_mask(attn_mask, tgt_len, src_len, count)
    if bias_k is not None or bias_v is not None:
        k, v = _with_bias(k, v, bias_k, bias_v, static_k, static_v)
        attn_mask, key_padding_mask = _one_more(attn_mask), _one_more(key_padding_mask)
    separate = need_weights or add_zero_attn or static_k is not None or static_v is not None
    if separate:
        q = _heads(q, None, "q", count, head_dim)
        k, v = _heads(k, static_k, "k", count, head_dim), _heads(v, static_v, "v", count, head_dim)
    else:  # (N, heads, L, E) as they lie, without a copy
        q, k, v = (x.unflatten(-1, (num_heads, head_dim)).permute(1, 2, 0, 3) for x in (q, k, v))
    if add_zero_attn:
        zero = k.detach().new_zeros((count, 1, head_dim))
        k, v = cat([k, zero], dim=1), cat([v, zero], dim=1)
        attn_mask, key_padding_mask = _one_more(attn_mask), _one_more(key_padding_mask)
    src_len = k.size(-2)
    if key_padding_mask is not None:
        padding = _padding(key_padding_mask, bsz, num_heads, src_len)
        attn_mask = padding if attn_mask is None else attn_mask + padding
    dropout_p = dropout_p if training else 0.0
    weights = None
    if need_weights:
        scores = (q * math.sqrt(1.0 / float(head_dim))) @ k.transpose(-2, -1)
        weights = (scores if attn_mask is None else scores + attn_mask).softmax(-1)
        if dropout_p > 0.0:
            weights = dropout(weights, dropout_p, True)
        output = (weights @ v).transpose(0, 1).reshape(tgt_len * bsz, embed_dim)
        weights = weights.view(bsz, num_heads, tgt_len, src_len)
        weights = weights.mean(dim=1) if average_attn_weights else weights
    else:
        if attn_mask is not None:
            if attn_mask.size(0) == 1 and attn_mask.dim() == 3:
                attn_mask = attn_mask.unsqueeze(0)
            else:
                attn_mask = attn_mask.view(bsz, num_heads, -1, src_len)
        if separate:
            q, k, v = (x.view(bsz, num_heads, -1, head_dim) for x in (q, k, v))
        output = scaled_dot_product_attention(q, k, v, attn_mask, dropout_p, is_causal)
        output = output.permute(2, 0, 1, 3).reshape(bsz * tgt_len, embed_dim)
    output = linear(output, out_proj_weight, out_proj_bias).view(tgt_len, bsz, -1)
    if not batched:
        output = output.squeeze(1)
        weights = None if weights is None else weights.squeeze(0)
    return output, weights
