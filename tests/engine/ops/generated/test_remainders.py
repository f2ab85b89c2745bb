"""Remainders and rounded quotients of float32 through float64: numpy's numbers, to the sign of zeros."""

from __future__ import annotations

import numpy as np
import pytest

import engine
from engine.dispatch import OPS
from engine.kernels import processor
from engine.ops.generated import launch, remainders

pytestmark = [
    pytest.mark.skipif(not processor.available(), reason=f"generated code is {processor.describe()}"),
    pytest.mark.usefixtures("launched"),
]
FUNCTIONS = {"remainder": np.remainder, "fmod": np.fmod, "floor_divide": np.floor_divide, "floor_div": np.floor_divide}


def same(name: str, x: np.ndarray, y: np.ndarray | float) -> None:
    """Compare the kernel with numpy, bit by bit."""
    with np.errstate(all="ignore"):
        want = FUNCTIONS[name](x, np.float32(y) if isinstance(y, float) else y)
        got = getattr(remainders, name)(np, x, y)
    assert got.dtype == want.dtype and np.array_equal(got, want, equal_nan=True)
    assert np.array_equal(np.signbit(got), np.signbit(want)) or np.isnan(want).any()


def magnitudes(seed: int, shape: tuple[int, ...], spread: float) -> np.ndarray:
    r = np.random.default_rng(seed)
    return (r.standard_normal(shape) * 2.0 ** r.uniform(-spread, spread, shape)).astype("float32")


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("spread", [2, 12, 60])
def test_numbers_are_those_of_numpy(name: str, spread: float) -> None:
    x, y = magnitudes(1, (300, 101), spread), magnitudes(2, (300, 101), spread)
    same(name, x, y)
    same(name, x, y[:1])
    same(name, x[:, :1], y[:1])
    for number in (1.0, -0.3, 6.2831855, 1e-5, float("inf"), 0.0):
        same(name, x, number)
    whole = np.rint(magnitudes(3, (200, 50), 8))
    for number in (3.0, -7.0, 0.5):
        same(name, whole, number)  # multiples: no quotient may fall to the integer below


@pytest.mark.parametrize("name", FUNCTIONS)
def test_quotients_next_to_integers(name: str) -> None:
    y = np.abs(magnitudes(4, (4000,), 3)) + np.float32(0.1)
    for n in (1, 3, 1000, 4194301, (1 << 27) + 1):
        near = (y * np.float32(n)).astype("float32")
        for x in (near, np.nextafter(near, np.float32(0)), np.nextafter(near, np.float32(np.inf)), -near):
            same(name, x, y)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_numbers(name: str) -> None:
    special = np.array([0.0, -0.0, 1, -1, 6, -6, 3, 1e30, -1e30, 1e-40, np.inf, -np.inf, np.nan], "float32")
    same(name, special[:, None], special[None])


def test_other_types_are_left_to_numpy() -> None:
    x = np.arange(1.0, 9.0)
    assert remainders.remainder(np, x, 2.0) is NotImplemented
    assert remainders.fmod(np, x.astype("float32"), x) is NotImplemented


def test_what_is_marked_is_looked_at_in_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches that are repeated without the kernel would leave nan where numbers are too far apart."""
    monkeypatch.setattr(launch.trials, "trusted", False)
    monkeypatch.setattr(launch, "PAYS", 1)
    for shape in ((60, 50), (300, 400)):
        x, y = (engine.tensor(magnitudes(seed, shape, 1)) for seed in (6, 7))
        far, infinite = x.clone(), y.clone()
        far[0, 0], infinite[1, 1] = 1e30, float("inf")
        for name in ("remainder", "fmod", "floor_divide"):
            function = getattr(engine, name)
            with np.errstate(all="ignore"):
                want = FUNCTIONS[name](far.numpy(), infinite.numpy())
                of_number = FUNCTIONS[name](far.numpy(), np.float32(0.3))
            for _ in range(300):
                function(x, y), function(x, 0.3)
                getattr(x.clone(), name + "_")(y)
            assert np.array_equal(function(far, infinite).numpy(), want)
            assert np.array_equal(getattr(far.clone(), name + "_")(infinite).numpy(), want)
            assert np.array_equal(function(far, 0.3).numpy(), of_number)


def test_operators_take_it() -> None:
    x = engine.tensor(magnitudes(5, (4096,), 4))
    assert OPS["remainder"].kernels["cpu"](np, x.numpy(), 1.0).tolist() == np.remainder(x.numpy(), 1).tolist()
    assert np.array_equal((x % 1.0).numpy(), np.remainder(x.numpy(), np.float32(1)))
    assert np.array_equal((x // 0.5).numpy(), np.floor_divide(x.numpy(), np.float32(0.5)))
