"""Running sums as torch's: added up in float64, in order, rounded once."""

from __future__ import annotations

import numpy as np
import pytest

import engine
from engine.backends.cpu import scan

SHAPES = [
    ((4, 2000), 0),
    ((2, 30, 300), 1),
    ((9, 8, 64), 1),
    ((3, 5, 8, 80), 1),
    ((8192,), 0),
    ((20011,), 0),
    ((3, 9000), 1),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape, axis", SHAPES)
def test_running_sums_are_rounded_once(shape: tuple[int, ...], axis: int, dtype: str) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    for special in (False, True):
        if special:
            x.reshape(-1)[[30, 700]] = np.inf, np.nan
        with np.errstate(invalid="ignore"):
            found, wanted = scan.running_sums(x, axis), np.cumsum(x.astype("float64"), axis=axis).astype(dtype)
            assert (found is None) == (dtype == "float64" and axis == len(shape) - 1)
            if found is not None:
                assert found.dtype == x.dtype and np.array_equal(found, wanted, equal_nan=True)
            assert np.array_equal(engine.tensor(x).cumsum(axis).numpy(), wanted, equal_nan=True)


@pytest.mark.parametrize("shape, axis", [((30, 31), 1), ((1000,), 0), ((30, 40, 3), 1), ((0, 3, 70), 1), ((4, 64), 0)])
def test_few_elements_and_other_orders_are_numpys(shape: tuple[int, ...], axis: int) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    for given in (x, x.T):
        dim = axis if given is x else x.ndim - 1 - axis
        assert scan.running_sums(given, dim) is None
        wanted = np.cumsum(given, axis=dim, dtype="float64").astype("float32")
        assert np.array_equal(
            engine.tensor(x).permute(*range(x.ndim)[:: 1 if given is x else -1]).cumsum(dim).numpy(), wanted
        )


def test_sums_and_products_of_many_are_as_exact_as_one_rounding() -> None:
    x = np.random.default_rng(2).standard_normal(1 << 20).astype("float32")
    exact = np.cumsum(x.astype("float64"))
    assert abs(engine.tensor(x).cumsum(0).numpy() - exact).max() <= 2e-4  # 3e-2 when added up in float32
    y = 1 + x[:5000] * np.float32(1e-2)
    exact = np.cumprod(y.astype("float64"))
    np.testing.assert_allclose(engine.tensor(y).cumprod(0).numpy(), exact, rtol=1e-7)


@pytest.mark.parametrize("count", [1024, 20011, 1 << 18])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_is_not_negative_has_sums_that_do_not_fall(count: int, dtype: str) -> None:
    """Numbers of all magnitudes, with zeros: a distribution that is searched stays in order."""
    rng = np.random.default_rng(1)
    x = (rng.random(count) * 10.0 ** rng.integers(-12, 1, count) * (rng.random(count) > 0.2)).astype(dtype)
    for axis, shape in ((0, (count,)), (0, (count, 1)), (1, (1, count))):
        found = engine.tensor(x.reshape(shape)).cumsum(axis).numpy()
        assert (np.diff(found.reshape(-1)) >= 0).all()


def test_gradients_of_many() -> None:
    x = engine.linspace(-1, 1, 9000).requires_grad_()
    grad = engine.linspace(0, 1, 9000)
    x.cumsum(0).backward(grad)
    wanted = np.cumsum(grad.double().numpy()[::-1])[::-1]
    np.testing.assert_allclose(x.grad.numpy(), wanted, rtol=1e-6)
