"""`atan2` of many elements, by the generated kernel and without it: every octant, zeros, infinities, nan."""

from __future__ import annotations

import numpy as np
import pytest

import engine
from engine.dispatch import choosing
from engine.kernels import processor
from engine.ops import blocks
from engine.ops.generated import launch

WAYS = ["own", pytest.param("generated", marks=pytest.mark.skipif(not processor.available(), reason="no extra jit"))]


@pytest.mark.parametrize("way", WAYS)
def test_atan2_of_many(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if way == "own":
        monkeypatch.setattr(blocks, "_generated_angle", lambda *arrays: NotImplemented)
    else:
        monkeypatch.setattr(launch, "PAYS", 1)
        monkeypatch.setattr(launch, "_entries", {})
        monkeypatch.setattr(choosing, "_left", [0])
        monkeypatch.setenv("ENGINE_ROUTES", "static")
    rng = np.random.default_rng(0)
    y, x = rng.standard_normal((2, 1 << 16)).astype("float32")
    y[:30000] *= (10.0 ** rng.integers(-30, 30, 30000)).astype("float32")
    edges = np.array([0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 3e38, -3e38], "float32")
    y[:121], x[:121] = np.repeat(edges, 11), np.tile(edges, 11)
    want = np.arctan2(y.astype("float64"), x.astype("float64"))
    for _ in range(3):
        found = engine.atan2(engine.tensor(y), engine.tensor(x)).numpy()
        assert found.dtype == np.float32
        assert np.array_equal(np.isnan(found), np.isnan(want))
        known = ~np.isnan(want)
        np.testing.assert_allclose(found[known], want[known], rtol=4e-7, atol=1e-44)
        assert np.array_equal(np.signbit(found[known]), np.signbit(want[known]))
    turned = engine.tensor(y.reshape(256, 256)).t()
    columns = np.arctan2(y.reshape(256, 256).T.astype("float64"), x.reshape(256, 256))
    found = engine.atan2(turned, engine.tensor(x.reshape(256, 256))).numpy()
    np.testing.assert_allclose(found, columns, rtol=4e-7, atol=1e-44)
