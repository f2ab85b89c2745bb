"""Sine and cosine of float32 as generated kernels, against numpy in float64: errors in ulp, what is left to numpy."""

from __future__ import annotations

import numpy as np
import pytest

import engine
from engine.kernels import processor
from engine.kernels.llvm_math import NEAR
from engine.ops.generated import angles, launch

_target = processor.target() if processor.available() else None
pytestmark = [
    pytest.mark.skipif(not processor.available(), reason=f"generated code is {processor.describe()}"),
    pytest.mark.usefixtures("launched"),
]
fused = pytest.mark.skipif(not (_target and _target.fused), reason="no fused multiplications")
FUNCTIONS = {"sin": np.sin, "cos": np.cos}


def worst(name: str, x: np.ndarray) -> float:
    """The largest error, in ulp of the result."""
    want = FUNCTIONS[name](x.astype("float64"))
    got = getattr(angles, name)(np, x)
    assert got.dtype == np.float32
    return float((abs(got - want) / np.spacing(abs(want).astype("float32"))).max())


@fused
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("largest", [1e-3, 0.8, 4.0, 100.0, 1e4, NEAR])
def test_errors(name: str, largest: float) -> None:
    x = np.random.default_rng(0).uniform(-largest, largest, 200_000).astype("float32")
    assert worst(name, x) <= 2


@fused
@pytest.mark.parametrize("name", FUNCTIONS)
def test_angles_next_to_quarter_turns(name: str) -> None:
    """Of all multiples of pi / 2 and their neighbours, where almost all places cancel."""
    turns = (np.arange(-83_440, 83_440) * (np.pi / 2)).astype("float32")
    for x in (turns, np.nextafter(turns, np.float32(0)), np.nextafter(turns, np.float32(np.inf))):
        assert worst(name, x) <= 2


@fused
def test_special_numbers_and_large_angles_are_those_of_numpy() -> None:
    x = np.array([0.0, -0.0, 1e-40, -1e-40, np.inf, -np.inf, np.nan, 2e5, -1e10, 3e38], "float32")
    with np.errstate(invalid="ignore"):
        for name, function in FUNCTIONS.items():
            got, want = getattr(angles, name)(np, x), function(x)
            np.testing.assert_array_equal(got, want)
            np.testing.assert_array_equal(np.signbit(got[:4]), np.signbit(want[:4]))


def test_what_is_left_to_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.ones((40, 40), "float32")
    assert angles.sin(np, x.astype("float64")) is NotImplemented
    assert angles.sin(np, x[:, ::2]) is NotImplemented


@fused
@pytest.mark.parametrize("shape", [(60, 50), (300, 400)])
def test_what_is_marked_is_looked_at_in_each_call(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch.trials, "trusted", False)
    monkeypatch.setattr(launch, "PAYS", 1)
    x = engine.tensor(np.random.default_rng(1).standard_normal(shape).astype("float32"))
    far = x.clone()
    far[0, 0], far[1, 1] = 1e30, float("nan")
    for name, function in FUNCTIONS.items():
        for _ in range(300):
            getattr(engine, name)(x)
        np.testing.assert_allclose(getattr(engine, name)(x).numpy(), function(x.numpy()), atol=2e-7)
        np.testing.assert_allclose(getattr(engine, name)(far).numpy(), function(far.numpy()), atol=2e-7)
