"""lgamma, digamma, trigamma: float32 against float64, the ends, generated code."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import engine
from engine.dispatch import OPS
from engine.kernels import processor
from engine.ops.generated import launch, variant_of

Function = Callable[[engine.Tensor], engine.Tensor]


def _trigamma(x: engine.Tensor) -> engine.Tensor:
    return engine.polygamma(1, x)


FUNCTIONS: dict[str, Function] = {"lgamma": engine.lgamma, "digamma": engine.digamma, "trigamma": _trigamma}
VALUES = {  # at 1, 2, 1/2, 10, -1/2, 1/4
    "lgamma": (0.0, 0.0, 0.5723649429247, 12.801827480081, 1.2655121234847, 1.2880225246981),
    "digamma": (-0.577215664902, 0.422784335098, -1.96351002602, 2.25175258907, 0.036489973979, -4.22745353338),
    "trigamma": (1.6449340668482, 0.6449340668482, 4.9348022005447, 0.1051663356817, 8.9348022005447, 17.197329154507),
}


def _points() -> np.ndarray:
    r = np.random.default_rng(0)
    return np.concatenate([r.uniform(0, 4, 5000), 10.0 ** r.uniform(-15, 15, 1000), -r.uniform(0, 20, 3000)])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values(name: str) -> None:
    x = engine.tensor([1.0, 2.0, 0.5, 10.0, -0.5, 0.25], dtype=engine.float64)
    want = engine.tensor(VALUES[name], dtype=engine.float64)
    assert engine.allclose(FUNCTIONS[name](x), want, rtol=1e-11, atol=1e-12)
    assert engine.allclose(FUNCTIONS[name](x.float()), want.float(), rtol=2e-7, atol=2e-8)
    assert not engine.lgamma(engine.tensor([1.0, 2.0])).signbit().any()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_float32_agrees_with_float64(name: str) -> None:
    x = engine.tensor(_points().astype("float32"))
    found, want = FUNCTIONS[name](x).double(), FUNCTIONS[name](x.double())
    assert (abs(found - want) <= 2e-7 * abs(want) + 1e-7).all()


@pytest.mark.parametrize("dtype", [engine.float32, engine.float64])
def test_ends(dtype: engine.dtype) -> None:
    x = engine.tensor([0.0, -0.0, -1.0, -2.0, math.inf, -math.inf, math.nan], dtype=dtype)
    inf, nan = math.inf, math.nan
    want = {
        "lgamma": [inf, inf, inf, inf, inf, inf, nan],
        "digamma": [-inf, inf, nan, nan, inf, nan, nan],
        "trigamma": [inf, inf, inf, inf, 0.0, nan, nan],
    }
    for name, function in FUNCTIONS.items():
        assert engine.allclose(function(x), engine.tensor(want[name], dtype=dtype), equal_nan=True), name


NAMES = ["lgamma", "digamma", "polygamma", "i0", "special_i0e", "special_i1", "special_i1e"]


@pytest.mark.skipif(not processor.available(), reason="no extra jit")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", NAMES)
def test_generated_code_agrees(name: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch.trials, "trusted", True)
    ends = [0, -0.0, 1, 2, -1, -2, math.inf, -math.inf, math.nan]
    x: Any = np.concatenate([_points()[:5000], _points()[-3000:], ends]).astype(dtype)
    record, more = (OPS["polygamma_of"], (1,)) if name == "polygamma" else (OPS[name], ())
    with np.errstate(all="ignore"):
        want = record.kernel(np, x, *more)
    found = variant_of(record)(np, x, *more)
    assert found is not NotImplemented
    tolerance = 1e-6 if dtype == "float32" else 1e-10
    np.testing.assert_allclose(found, want, rtol=tolerance, atol=tolerance)
