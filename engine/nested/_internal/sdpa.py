"""Attention between the rows of nested tensors: row by row, each over its own keys."""

from __future__ import annotations

from typing import Any

from engine.nested._internal.nested_tensor import NestedTensor
from engine.nested._internal.ops import _of_pieces, entry
from engine.nn.functional import scaled_dot_product_attention
from engine.ops import functions as torch
from engine.tensor import Tensor

__all__ = ["jagged_scaled_dot_product_attention"]


def jagged_scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> NestedTensor:
    """query (B, H, j, E), key (B, H, k, E), value (B, H, k, V) -> (B, H, j, V), nested.

    ValueError for a mask or a dense operand, RuntimeError for other shapes.
    """
    if attn_mask is not None:
        raise ValueError("Masks are not yet supported!")
    found = [isinstance(t, NestedTensor) for t in (query, key, value)]
    if not all(found):
        raise ValueError(
            "Expected query, key, and value to be nested tensors, but got query.is_nested: "
            f"{found[0]}, key.is_nested: {found[1]}, and value.is_nested: {found[2]} instead."
        )
    q, k, v = query, key, value
    assert isinstance(q, NestedTensor) and isinstance(k, NestedTensor) and isinstance(v, NestedTensor)
    if not (q.dim() == k.dim() == v.dim() == 4 and q._ragged_idx == k._ragged_idx == v._ragged_idx == 2):
        raise RuntimeError(
            "No viable backend for scaled_dot_product_attention was found. Nested query, key and value must have the "
            f"shape (B, heads, j, features), but got {q._size}, {k._size} and {v._size}"
        )
    if k._size[2] != v._size[2] or k._size[0] != q._size[0]:
        raise RuntimeError(
            "No viable backend for scaled_dot_product_attention was found. Nested key and value must have the same "
            f"rows, but got {k._size} and {v._size}"
        )
    if is_causal and q._size[2] != k._size[2]:
        raise RuntimeError(
            "No viable backend for scaled_dot_product_attention was found. Nested tensors for query / key must have "
            "the same rows when is_causal=True."
        )
    rows = zip(q.unbind(), k.unbind(), v.unbind())
    parts = [
        scaled_dot_product_attention(
            a.unsqueeze(0),
            b.unsqueeze(0),
            c.unsqueeze(0),
            None,
            dropout_p,
            is_causal,
            scale=scale,
            enable_gqa=enable_gqa,
        ).squeeze(0)
        for a, b, c in rows
    ]
    if q._lengths is not None:
        return _of_pieces(parts, q)
    return q._with(torch.cat(parts, 1))


@entry("scaled_dot_product_attention")
def _attention(func: Any, *args: Any, **kwargs: Any) -> Any:
    return jagged_scaled_dot_product_attention(*args, **kwargs)
