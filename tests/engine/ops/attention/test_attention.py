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
