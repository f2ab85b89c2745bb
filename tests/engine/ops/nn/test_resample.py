"""Resampling of values that are not finite: they reach the results that have them, and no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import engine
from engine.dispatch import OPS

F = engine.nn.functional

# (function, results that are nan, that are infinite), of PyTorch 2.13
CASES: list[tuple[Callable[[Any], Any], int, int]] = [
    (lambda x: F.adaptive_avg_pool2d(x, 7), 1, 3),
    (lambda x: F.adaptive_avg_pool2d(x, (5, 7)), 1, 2),
    (lambda x: F.interpolate(x, size=(17, 19), mode="bilinear"), 6, 14),
    (lambda x: F.interpolate(x, size=(5, 4), mode="bilinear", antialias=True), 1, 5),
    (lambda x: F.adaptive_avg_pool1d(x[0], 4), 1, 0),
]


@pytest.mark.parametrize("number", range(len(CASES)))
def test_values_that_are_not_finite(number: int) -> None:
    function, nans, infinities = CASES[number]
    x = engine.arange(1.0, 2 * 3 * 12 * 10 + 1).reshape(2, 3, 12, 10)
    want = function(x)
    x[0, 0, 0, 0], x[1, 2, 3, 3], x[1, 1, 0, 0] = np.nan, np.inf, -np.inf
    got = function(x)
    assert (int(got.isnan().sum()), int(got.isinf().sum())) == (nans, infinities)
    finite = got.isfinite()
    assert engine.allclose(got[finite], want[finite], rtol=1e-5)


def test_gradients_that_are_not_finite() -> None:
    spec = (("adaptive", 12, 7, False, None), ("adaptive", 10, 7, False, None))
    g = np.ones((2, 3, 7, 7), np.float32)
    want = OPS["resampled_backward"].kernel(np, g, spec)
    g[0, 0, 0, 0], g[1, 2, 3, 3] = np.inf, np.nan
    with np.errstate(all="ignore"):
        got = OPS["resampled_backward"].kernel(np, g, spec)
    assert int(np.isinf(got).sum()) == 4 and int(np.isnan(got).sum()) == 4
    np.testing.assert_allclose(got[np.isfinite(got)], want[np.isfinite(got)], rtol=1e-5)
