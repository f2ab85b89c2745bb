"""`cdist` of float32 rows so many that libraries and generated code compute it: against float64."""

from __future__ import annotations

import numpy as np
import pytest

import engine
from engine.backends.onednn import is_available
from engine.dispatch import OPS


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, float("inf")])
@pytest.mark.parametrize("shapes", [((90, 70), (80, 70)), ((3, 70, 33), (70, 33)), ((2, 1, 64, 65), (3, 66, 65))])
def test_distances_and_gradients(shapes: tuple[tuple[int, ...], ...], p: float) -> None:
    r = np.random.default_rng(0)
    first, second = (np.round(r.standard_normal(shape) * 4) / 4 for shape in shapes)  # exact differences, some of 0
    found = []
    for dtype in ("float32", "float64"):
        x, y = (engine.from_numpy(a.astype(dtype)).requires_grad_() for a in (first, second))
        made = engine.cdist(x, y, p)
        weights = np.random.default_rng(1).standard_normal(tuple(made.shape)).astype(dtype)
        made.backward(engine.from_numpy(weights))
        assert x.grad is not None and y.grad is not None
        found.append([t.detach().numpy() for t in (made, x.grad, y.grad)])
    for mine, exact in zip(*found, strict=True):
        assert mine.shape == exact.shape
        np.testing.assert_allclose(mine, exact, rtol=1e-3, atol=1e-3 * abs(exact).max())


@pytest.mark.skipif(not is_available(), reason="without oneDNN")
def test_products_of_oneDNN_serve_large_rows() -> None:
    engine.cdist(engine.ones(300, 64), engine.ones(300, 64))  # loads oneDNN's kernels
    variant, ones = OPS["euclidean_cdist"].kernels["onednn"], lambda *shape: np.ones(shape, "float32")
    np.testing.assert_array_equal(variant(np, ones(70, 80), ones(90, 80), True), np.zeros((70, 90), "float32"))
    assert variant(np, ones(70, 80), ones(90, 80), False) is NotImplemented, "from differences"
    assert variant(np, ones(7, 8), ones(9, 8), True) is NotImplemented, "few"
    assert variant(np, ones(70, 80).astype("float64"), ones(90, 80).astype("float64"), True) is NotImplemented
