"""Choices by bits give what numpy's comparisons and its `where` give, bit by bit."""

from __future__ import annotations

import numpy as np
import pytest

import engine
from engine.backends.cpu import select
from engine.nn import functional as F


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "int32", "complex64", "bool"])
def test_where_is_numpys(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select, "_FEW", 1)
    rng = np.random.default_rng(0)
    mask = rng.random((7, 30)) < 0.5
    x, y = (rng.standard_normal((2, 7, 30)) * 9).astype(dtype)
    if dtype.startswith("float"):
        x[0, 0], y[0, 1], x[1, 1] = np.nan, np.inf, -0.0
    zero, one = x.dtype.type(0), x.dtype.type(1)
    for a, b in (
        (x, y),
        (zero, y),
        (x, zero),
        (x, one),
        (one, y),
        (x.T.copy().T, y),
        (x[0], y),
        (x, 2),
    ):
        found, wanted = select.where(mask, a, b), np.where(mask, a, b)
        assert found.dtype == wanted.dtype and found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("limit", [0.0, -0.0, 0.5, np.inf])
def test_outside_is_what_comparisons_give(dtype: str, limit: float) -> None:
    x = np.random.default_rng(0).standard_normal((7, 30)).astype(dtype)
    edge = np.array(limit, dtype)
    x[0, :8] = np.nan, np.inf, -np.inf, -0.0, edge, -edge, np.nextafter(edge, 9), np.nextafter(-edge, -9)
    for values in (x, -x):
        wanted = np.where((x >= -edge) & (x <= edge), x.dtype.type(0), values)
        assert select.outside(values, x, limit).tobytes() == wanted.tobytes()
        assert select.outside(values.T, x.T, limit, np.empty_like(x).T).tobytes() == wanted.T.tobytes()


@pytest.mark.parametrize("size", [5, 3000, 300_000])
def test_hardshrink_and_threshold_of_any_size(size: int) -> None:
    x = np.random.default_rng(0).standard_normal(size).astype("float32")
    x[:4] = np.nan, 0.5, -0.5, np.inf
    t = engine.tensor(x).requires_grad_()
    found = F.hardshrink(t)
    wanted = np.where((x >= -0.5) & (x <= 0.5), np.float32(0), x)
    assert found.detach().numpy().tobytes() == wanted.tobytes()
    found.backward(engine.tensor(-x))
    assert t.grad.numpy().tobytes() == np.where((x >= -0.5) & (x <= 0.5), np.float32(0), -x).tobytes()
    above = F.threshold(engine.tensor(x), 0.1, 2.0).numpy()
    assert above.tobytes() == np.where(x <= 0.1, np.float32(2), x).tobytes()
    assert np.array_equal(F.hardshrink(engine.tensor(x), -1.0).numpy(), x, equal_nan=True)
