"""Losses of many elements, which are computed in pieces, against those of few."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import engine
from engine.nn import functional as F
from engine.ops import loss

LOSSES: dict[str, Callable[..., Any]] = {
    "mse": F.mse_loss,
    "smooth": lambda x, t, **how: F.smooth_l1_loss(x, t, beta=0.3, **how),
    "huber": lambda x, t, **how: F.huber_loss(x, t, delta=0.3, **how),
    "margin": lambda x, t, **how: F.soft_margin_loss(x, t.sign(), **how),
    "entropy": lambda x, t, **how: F.binary_cross_entropy(x.sigmoid(), t.sigmoid(), **how),
    "weighted": lambda x, t, **how: F.binary_cross_entropy(x.sigmoid(), t.sigmoid(), t.abs(), **how),
    "logits": lambda x, t, **how: F.binary_cross_entropy_with_logits(x, t.sigmoid(), **how),
}


@pytest.mark.parametrize("dtype", [engine.float32, engine.float64, engine.float16, engine.bfloat16], ids=str)
@pytest.mark.parametrize("name", LOSSES)
def test_pieces_are_the_whole(name: str, dtype: Any) -> None:
    engine.manual_seed(0)
    count = 2 * loss._SEVERAL + 77
    x, t = (engine.randn(count, dtype=engine.float64).to(dtype).requires_grad_(i == 0) for i in (0, 1))
    of = LOSSES[name]
    whole = of(x, t, reduction="none")
    few = engine.cat([of(x[i : i + 20_000], t[i : i + 20_000], reduction="none") for i in range(0, count, 20_000)])
    assert whole.dtype is dtype
    engine.testing.assert_close(whole, few)
    close = {engine.float16: 2e-3, engine.bfloat16: 2e-2, engine.float32: 1e-5, engine.float64: 1e-12}[dtype]
    wide = whole.double()
    total = of(x, t, reduction="mean")
    assert total.dtype is dtype and math.isclose(total.item(), wide.mean().item(), rel_tol=close)
    if dtype in (engine.float32, engine.float64):
        total = of(x, t, reduction="sum")
        assert math.isclose(total.item(), wide.sum().item(), rel_tol=close)
        (slope,) = engine.autograd.grad(total, x, retain_graph=True)
        (each,) = engine.autograd.grad(whole.sum(), x)
        engine.testing.assert_close(slope, each)


def test_what_is_not_contiguous_or_broadcast_is_computed_at_once() -> None:
    x, t = engine.randn(300, 400), engine.randn(300, 400)
    wanted = ((x.T - t.T) ** 2).mean()
    engine.testing.assert_close(F.mse_loss(x.T, t.T), wanted)
    nan = x.clone()
    nan[7, 7] = math.nan
    assert math.isnan(F.mse_loss(nan, t).item())
    with pytest.warns(UserWarning, match="size"):
        engine.testing.assert_close(F.mse_loss(x, t[0]), ((x - t[0]) ** 2).mean())
