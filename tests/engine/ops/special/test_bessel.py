"""Bessel, K and Airy functions of `special`: values of tables, the ends, dtypes, without scipy."""

from __future__ import annotations

import math

import pytest

import engine

VALUES = {  # at 1, at 0, at infinity
    "airy_ai": (0.1352924163, 0.3550280539, math.nan),
    "bessel_j0": (0.7651976866, 1.0, math.nan),
    "bessel_j1": (0.4400505857, 0.0, math.nan),
    "bessel_y0": (0.0882569642, -math.inf, math.nan),
    "bessel_y1": (-0.7812128213, -math.inf, math.nan),
    "modified_bessel_k0": (0.4210244382, math.inf, 0.0),
    "modified_bessel_k1": (0.6019072302, math.inf, 0.0),
    "scaled_modified_bessel_k0": (1.1444630798, math.inf, 0.0),
    "scaled_modified_bessel_k1": (1.6361534863, math.inf, 0.0),
}


@pytest.mark.parametrize("name", VALUES)
def test_values(name: str) -> None:
    pytest.importorskip("scipy")
    function = getattr(engine.special, name)
    x = engine.tensor([1.0, 0.0, math.inf], dtype=engine.float64)
    assert engine.allclose(function(x), engine.tensor(VALUES[name], dtype=engine.float64), equal_nan=True, atol=1e-9)
    assert function(engine.tensor([1])).dtype is engine.float32
    with pytest.raises(NotImplementedError, match=f'"{name}_cpu" not implemented for'):
        function(engine.ones(1).bfloat16())


def test_without_scipy_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "scipy", None)
    with pytest.raises(ImportError, match="hint: pip install scipy"):
        engine.special.bessel_j0(engine.ones(1))
