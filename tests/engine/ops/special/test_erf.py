"""erfc, erfinv and ndtri: float32 against float64, the ends, generated code."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import engine
from engine.dispatch import OPS
from engine.kernels import processor
from engine.ops.generated import comparison, launch, variant_of

Function = Callable[[engine.Tensor], engine.Tensor]


def _points(name: str) -> np.ndarray:
    r = np.random.default_rng(0)
    if name == "erfc":
        return np.concatenate([r.normal(0, 4, 5000), np.linspace(-11, 11, 2001)])
    near = 1 - 2.0 ** -r.uniform(1, 24, 2000)
    if name == "erfinv":
        return np.concatenate([r.uniform(-1, 1, 5000), near, -near, 10.0 ** r.uniform(-37, 0, 1000)])
    return np.concatenate([r.uniform(0, 1, 5000), near, 10.0 ** r.uniform(-37, 0, 2000)])


FUNCTIONS: dict[str, Function] = {"erfc": engine.erfc, "erfinv": engine.erfinv, "special_ndtri": engine.special.ndtri}
ENDS = {  # of 0, -0, 1, -1, 2, inf, nan
    "erfc": [1.0, 1.0, 0.157299207, 1.842700793, 0.004677735, 0.0, math.nan],
    "erfinv": [0.0, -0.0, math.inf, -math.inf, math.nan, math.nan, math.nan],
    "special_ndtri": [-math.inf, -math.inf, math.inf, math.nan, math.nan, math.nan, math.nan],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_float32_agrees_with_float64(name: str) -> None:
    x = engine.tensor(_points(name.removeprefix("special_")).astype("float32"))
    found, want = FUNCTIONS[name](x).double(), FUNCTIONS[name](x.double())
    far = abs(want) > 1e-37  # what is smaller has fewer digits
    assert (abs(found - want) <= 4e-7 * abs(want))[far].all()
    assert (abs(found - want) <= 1e-37)[~far].all()


@pytest.mark.parametrize("dtype", [engine.float32, engine.float64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_ends(name: str, dtype: engine.dtype) -> None:
    found = FUNCTIONS[name](engine.tensor([0.0, -0.0, 1.0, -1.0, 2.0, math.inf, math.nan], dtype=dtype))
    want = engine.tensor(ENDS[name], dtype=dtype)
    assert engine.allclose(found, want, equal_nan=True, rtol=1e-6, atol=1e-9)
    assert (found.signbit() == want.signbit())[:2].all()


def test_quantiles_far_out() -> None:
    """Values of tables, also where 1 - p is 1."""
    p = engine.tensor([1e-300, 1e-100, 1e-20, 0.001, 0.5, 0.975], dtype=engine.float64)
    want = [-37.0471, -21.2734535, -9.2623400898, -3.0902323062, 0.0, 1.9599639845]
    assert engine.allclose(engine.special.ndtri(p), engine.tensor(want, dtype=engine.float64), rtol=1e-7)


@pytest.mark.skipif(not processor.available(), reason="no extra jit")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", [*FUNCTIONS, "erf", "special_erfcx", "special_log_ndtr", "special_entr", "logit"])
def test_generated_code_agrees(name: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch.trials, "trusted", True)
    x: Any = np.concatenate([_points("ndtri"), [0, 1, -1, 2, math.inf, math.nan]]).astype(dtype)
    with np.errstate(all="ignore"):
        want = OPS[name].kernel(np, x)
    found = variant_of(OPS[name])(np, x)
    assert found is not NotImplemented
    assert comparison.difference(want[x > 1e-3], found[x > 1e-3]) is None  # of moderate size
    np.testing.assert_allclose(found, want, rtol=1e-5 if dtype == "float32" else 1e-12, atol=1e-37)
