"""Running sums by triangles: for every length, in order, and numpy's own where nothing is finite."""

from __future__ import annotations

import numpy as np
import pytest

import engine
from engine.backends.cpu import scan


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "shape, axis",
    [((1024,), 0), ((1031,), 0), ((20011,), 0), ((100, 50), 1), ((9, 400), 1), ((4, 700), 0), ((2, 30, 300), 1)],
)  # fmt: skip
def test_running_sums_are_those_of_float64(shape: tuple[int, ...], axis: int, dtype: str) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    found = scan.running_sums(x, axis)
    wanted = np.cumsum(x.astype(np.float64), axis=axis)
    assert found.dtype == x.dtype and found.shape == x.shape
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-4 if dtype == "float32" else 1e-11)
    assert np.array_equal(engine.tensor(x).cumsum(axis).numpy(), found)


@pytest.mark.parametrize("shape, axis", [((30, 31), 1), ((31, 41), 1), ((30, 40, 3), 1)])
def test_what_numpy_does_as_well_is_left_to_it(shape: tuple[int, ...], axis: int) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    assert scan.running_sums(x, axis) is None
    assert np.array_equal(engine.tensor(x).cumsum(axis).numpy(), np.cumsum(x, axis=axis))


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("shape, place", [((2000,), (1990,)), ((2011,), (2010,)), ((2011,), (3,)), ((50, 40), (7, 38))])
def test_inf_and_nan_reach_only_what_follows(shape: tuple[int, ...], place: tuple[int, ...], value: float) -> None:
    x = np.ones(shape, "float32")
    x[place] = value
    found = engine.tensor(x).cumsum(-1).numpy()
    assert np.array_equal(found, np.cumsum(x, axis=-1), equal_nan=True)


def test_both_signs_of_inf() -> None:
    x = np.ones(3000, "float32")
    x[100], x[200] = np.inf, -np.inf
    found = engine.tensor(x).cumsum(0).numpy()
    assert np.isfinite(found[:100]).all() and np.isinf(found[100:200]).all() and np.isnan(found[200:]).all()


def test_gradients_of_many() -> None:
    x = engine.linspace(-1, 1, 1500).requires_grad_()
    grad = engine.linspace(0, 1, 1500)
    x.cumsum(0).backward(grad)
    wanted = np.cumsum(grad.double().numpy()[::-1])[::-1]
    np.testing.assert_allclose(x.grad.numpy(), wanted, rtol=1e-5)


@pytest.mark.parametrize("count", [1024, 4000, 20011, 1 << 18])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_is_not_negative_has_sums_that_do_not_fall(count: int, dtype: str) -> None:
    """Numbers of all magnitudes, with zeros: a distribution that is searched stays in order."""
    rng = np.random.default_rng(1)
    x = (rng.random(count) * 10.0 ** rng.integers(-12, 1, count) * (rng.random(count) > 0.2)).astype(dtype)
    found = scan.running_sums(x, 0)
    assert (np.diff(found) >= 0).all()
    np.testing.assert_allclose(found, np.cumsum(x.astype(np.float64)), rtol=2e-5)
    tiny = np.full(count, 1e-9, dtype)
    tiny[0] = 1
    assert (np.diff(scan.running_sums(tiny, 0)) >= 0).all()
