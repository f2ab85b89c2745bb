"""flex_attention against scaled_dot_product_attention with the same mask or bias."""

from __future__ import annotations

import pytest

import engine
from engine.nn import functional as F
from engine.nn.attention.flex_attention import (
    AuxRequest,
    and_masks,
    create_block_mask,
    create_mask,
    flex_attention,
    or_masks,
)


def inputs(heads: int = 4):
    g = engine.Generator().manual_seed(0)
    return [engine.randn(2, h, n, 8, generator=g, dtype=engine.float64) for h, n in ((4, 5), (heads, 6), (heads, 6))]


def causal(b, h, q, kv):
    return q >= kv


def test_plain_and_scaled():
    q, k, v = inputs()
    engine.testing.assert_close(flex_attention(q, k, v), F.scaled_dot_product_attention(q, k, v))
    engine.testing.assert_close(flex_attention(q, k, v, scale=0.1), F.scaled_dot_product_attention(q, k, v, scale=0.1))


def test_block_masks():
    q, k, v = inputs()
    window = and_masks(causal, lambda b, h, q, kv: q - kv < 3)
    block = create_block_mask(window, None, None, 5, 6)
    dense = create_mask(window, None, None, 5, 6)
    assert block.shape == (1, 1, 5, 6) and block.sparsity() == pytest.approx(100 * (1 - 12 / 30))
    engine.testing.assert_close(
        flex_attention(q, k, v, block_mask=block), F.scaled_dot_product_attention(q, k, v, attn_mask=dense)
    )
    either = create_mask(or_masks(causal, lambda b, h, q, kv: kv == 5), 2, 4, 5, 6)
    assert either.shape == (2, 4, 5, 6) and either[0, 0, 0].tolist() == [True] + [False] * 4 + [True]


def test_score_mod_reads_tensors_by_index():
    q, k, v = inputs()
    slopes = engine.tensor([0.5, 0.25, 0.125, 0.0625], dtype=engine.float64)

    def alibi(score, b, h, q, kv):
        return score + slopes[h] * (kv - q)

    bias = slopes.reshape(4, 1, 1) * (engine.arange(6).reshape(1, -1) - engine.arange(5).reshape(-1, 1))
    engine.testing.assert_close(flex_attention(q, k, v, alibi), F.scaled_dot_product_attention(q, k, v, attn_mask=bias))


def test_groups_of_heads():
    q, k, v = inputs(heads=2)
    wanted = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    engine.testing.assert_close(flex_attention(q, k, v, enable_gqa=True), wanted)
    with pytest.raises(ValueError, match="Hq=4 and Hkv=2"):
        flex_attention(q, k, v)


def test_rows_without_a_place_and_sums():
    q, k, v = inputs()
    block = create_block_mask(lambda b, h, q, kv: q > 0, None, None, 5, 6)
    made, lse = flex_attention(q, k, v, block_mask=block, return_lse=True)
    assert not made[:, :, 0].any() and (lse[:, :, 0] == -engine.inf).all()
    scores = q @ k.mT / 8**0.5
    engine.testing.assert_close(lse[:, :, 1:], engine.logsumexp(scores, -1)[:, :, 1:])
    _, aux = flex_attention(q, k, v, return_aux=AuxRequest(max_scores=True))
    assert aux.lse is None
    engine.testing.assert_close(aux.max_scores, scores.amax(-1))


def test_gradients():
    q, k, v = (x[:1, :1, :3].requires_grad_() for x in inputs())
    block = create_block_mask(causal, None, None, 3, 3)
    assert engine.autograd.gradcheck(lambda *x: flex_attention(*x, block_mask=block), (q, k, v))
