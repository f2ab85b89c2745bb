"""Operators that torch has as one kernel for what are several here: the fast paths of attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import engine.nn.functional as F
from engine.ops import functions as torch
from engine.tensor import Tensor

__all__ = ["FUSED", "LATER"]

# Operators of nested, quantized and other kinds of tensors, which code names in branches that are not taken: a call
# of one raises.
LATER = frozenset(
    """
_nested_tensor_from_mask _nested_tensor_from_mask_left_aligned _nested_tensor_from_tensor_list to_padded_tensor
nested_to_padded_tensor _nested_tensor_size to_mkldnn _triton_multi_head_attention _embedding_bag backward
rrelu_with_noise quantized_lstm quantized_gru fbgemm_linear_fp16_weight fbgemm_linear_int8_weight
""".split()
)


def later(name: str) -> Callable[..., Any]:
    """A function that says that `aten::name` is not supported."""

    def refuse(*args: Any, **named: Any) -> Any:
        raise NotImplementedError(f"aten::{name} in a TorchScript archive is not supported")

    return refuse


def _allowed(mask: Tensor | None, kind: int | None) -> Tensor | None:
    """True where attention may look, broadcastable to (N, heads, L, S), of a mask that is True where it may not."""
    if mask is None:
        return None
    mask = mask.logical_not()
    if kind == 1:
        return mask[:, None, None, :]
    return mask if kind != 0 else mask[None, None]


def _attend(
    q: Tensor, k: Tensor, v: Tensor, heads: int, qkv_weight: Tensor, qkv_bias: Tensor, mask: Any, kind: Any
) -> tuple[Tensor, Tensor]:
    """(N, L, E) in -> the heads' results (N, L, E) and their weights (N, heads, L, S)."""
    parts = []
    for x, weight, bias in zip((q, k, v), qkv_weight.chunk(3), qkv_bias.chunk(3)):
        n, length, width = x.shape
        parts.append(F.linear(x, weight, bias).reshape(n, length, heads, width // heads).transpose(1, 2))
    scores = parts[0] @ parts[1].transpose(-2, -1) * (parts[0].shape[-1] ** -0.5)
    allowed = _allowed(mask, kind)
    if allowed is not None:
        scores = scores.masked_fill(allowed.logical_not(), float("-inf"))
    weights = F.softmax(scores, -1)
    return (weights @ parts[2]).transpose(1, 2).reshape(q.shape), weights


def multi_head_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    embed_dim: int,
    heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Any = None,
    need_weights: bool = True,
    average: bool = True,
    mask_type: Any = None,
) -> tuple:
    """`aten::_native_multi_head_attention`: q, k, v (N, L, E) -> (N, L, E) and the weights (N, L, S) or None."""
    out, weights = _attend(q, k, v, heads, qkv_weight, qkv_bias, mask, mask_type)
    told = (weights.mean(1) if average else weights) if need_weights else torch.empty(0)
    return F.linear(out, proj_weight, proj_bias), told


def encoder_layer(
    x: Tensor,
    embed_dim: int,
    heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm1: Tensor,
    norm1_bias: Tensor,
    norm2: Tensor,
    norm2_bias: Tensor,
    ffn1: Tensor,
    ffn1_bias: Tensor,
    ffn2: Tensor,
    ffn2_bias: Tensor,
    mask: Any = None,
    mask_type: Any = None,
) -> Tensor:
    """`aten::_transformer_encoder_layer_fwd`: x (N, L, E) -> (N, L, E)."""

    def attention(y: Tensor) -> Tensor:
        return multi_head_attention(
            y, y, y, embed_dim, heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask, False, True, mask_type
        )[0]

    def feed(y: Tensor) -> Tensor:
        inner = F.linear(y, ffn1, ffn1_bias)
        return F.linear(F.gelu(inner) if use_gelu else F.relu(inner), ffn2, ffn2_bias)

    first = lambda y: F.layer_norm(y, (embed_dim,), norm1, norm1_bias, eps)
    second = lambda y: F.layer_norm(y, (embed_dim,), norm2, norm2_bias, eps)
    if norm_first:
        x = x + attention(first(x))
        return x + feed(second(x))
    x = first(x + attention(x))
    return second(x + feed(x))


FUSED: dict[str, Callable[..., Any]] = {
    "_native_multi_head_attention": multi_head_attention,
    "_transformer_encoder_layer_fwd": encoder_layer,
}
