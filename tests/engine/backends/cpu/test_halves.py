"""16-bit floats widened by their bits, and products of them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import engine
from engine.backends.cpu import halves

TYPES = [np.dtype("float16"), np.dtype(ml_dtypes.bfloat16)]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("finite", [True, False])
def test_every_value(dtype: np.dtype, finite: bool) -> None:
    """All 65,536 of them, signs of zeros and subnormal numbers included; with and without infinity and nan."""
    values = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    if finite:
        values = values[np.isfinite(values.astype("float32"))]
    wide = halves.widen(values)
    assert wide.dtype == np.float32
    np.testing.assert_array_equal(wide, values.astype(np.float32))
    known = ~np.isnan(wide)
    np.testing.assert_array_equal(np.signbit(wide)[known], np.signbit(values.astype(np.float32))[known])


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_layouts(dtype: np.dtype) -> None:
    values = np.random.default_rng(0).standard_normal((700, 900)).astype(dtype)  # several blocks, on several threads
    for array in (values, values.T, values[::2], values[:, 3:], values[:0], values[0, 0]):
        wide = halves.widen(array)
        np.testing.assert_array_equal(wide, array.astype(np.float32))
        assert wide.shape == array.shape
    assert halves.widen(values.T).flags.f_contiguous


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(("n", "k", "m"), [(1, 2000, 700), (7, 1031, 613), (100, 300, 200), (3, 5000, 40), (2, 3, 4)])
def test_products(dtype: str, n: int, k: int, m: int) -> None:
    """Equal to the product in float64 but for the last digit, which is rounded once."""
    kind = getattr(engine, dtype)
    rng = np.random.default_rng(1)
    x, w, b = (engine.from_numpy(rng.standard_normal(s).astype("float32")).to(kind) for s in ((n, k), (m, k), (m,)))
    exact = x.double() @ w.double().T
    step = 2.0**-8 if dtype == "bfloat16" else 2.0**-11
    allowed = step * 1.01 * exact.abs() + 1e-6 * k + 1e-30
    for made in (x @ w.T, engine.mm(x, w.T.contiguous()), engine.nn.functional.linear(x, w)):
        assert made.dtype == kind and bool(((made.double() - exact).abs() <= allowed).all())
    with_bias = engine.nn.functional.linear(x, w, b).double() - (exact + b.double())
    assert bool((with_bias.abs() <= step * 1.01 * (exact + b.double()).abs() + 1e-6 * k + 1e-30).all())
    batch = engine.stack([x, x]).reshape(2, 1, n, k) @ w.T
    assert bool(((batch.double() - exact).abs() <= allowed).all())


def test_infinite_weights() -> None:
    x = engine.ones(2, 3000, dtype=engine.float16)
    w = engine.zeros(300, 3000, dtype=engine.float16)
    w[5, 7], w[9, 2] = float("inf"), float("nan")
    made = engine.nn.functional.linear(x, w)
    assert made[0, 5].item() == float("inf") and made[1, 9].isnan().item() and made.isfinite().sum().item() == 596


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("turned", [False, True])
def test_batches(dtype: str, turned: bool) -> None:
    kind = getattr(engine, dtype)
    rng = np.random.default_rng(2)
    a, b = (engine.from_numpy(rng.standard_normal(s).astype("float32")).to(kind) for s in ((6, 50, 64), (6, 64, 40)))
    if turned:
        b = b.transpose(1, 2).contiguous().transpose(1, 2)
    exact = a.double() @ b.double()
    step = 2.0**-8 if dtype == "bfloat16" else 2.0**-11
    allowed = step * 1.01 * exact.abs() + 1e-4
    for made in (engine.bmm(a, b), a @ b, (a.reshape(2, 3, 50, 64) @ b.reshape(2, 3, 64, 40)).reshape(6, 50, 40)):
        assert bool(((made.double() - exact).abs() <= allowed).all())
    one = (a @ b[:1]).double() - a.double() @ b[:1].double()
    assert bool((one.abs() <= step * 1.01 * (a.double() @ b[:1].double()).abs() + 1e-4).all())
