"""Attention of 16-bit floats whose batches broadcast: computed in float32, rounded once."""

from __future__ import annotations

import pytest

import engine
from engine.nn.functional import scaled_dot_product_attention


@pytest.mark.parametrize("dtype", [engine.bfloat16, engine.float16])
@pytest.mark.parametrize("masked", [False, True])
def test_broadcast_batches_are_rounded_once(dtype: engine.dtype, masked: bool) -> None:
    engine.manual_seed(0)
    query, key, value = (engine.randn(n, 2, 5, 16).to(dtype) * 3 for n in (1, 3, 3))
    mask = engine.randn(3, 1, 5, 5).to(dtype) if masked else None
    found = scaled_dot_product_attention(query, key, value, mask)
    exact = scaled_dot_product_attention(
        *(x.double() for x in (query, key, value)), None if mask is None else mask.double()
    )
    assert found.dtype is dtype and found.shape == (3, 2, 5, 16)
    unit = engine.finfo(dtype).eps
    assert ((found.double() - exact).abs() <= unit * exact.abs() + 1e-5).all()  # half a unit, and float32's own error


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dims", [3, 4])
def test_result_is_saved_by_the_flash_node_alone(dims: int, masked: bool) -> None:
    """torch's flash node saves its output, so a write to it is refused; the product of two matrices saves none."""
    q = engine.ones((1,) * (dims - 2) + (2, 2), requires_grad=True)
    result = scaled_dot_product_attention(q, q, q, engine.zeros(2, 2) if masked else None)
    total = result.sum()
    result.mul_(2)
    if dims == 3:
        total.backward()
        assert q.grad is not None and result.grad_fn.name() == "MulBackward0"
        return
    with pytest.raises(RuntimeError, match=r"output 0 of ScaledDotProductFlashAttentionForCpu.*, is at version"):
        total.backward()


def test_result_is_saved_once() -> None:
    q = engine.ones(1, 1, 2, 2, requires_grad=True)
    result = scaled_dot_product_attention(q, q, q)
    result.sum().backward(retain_graph=True)
    result.sum().backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        result.sum().backward()
