"""16-bit floats widened by their bits, and products of them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import engine
from engine.backends.cpu import half_floats

TYPES = [np.dtype("float16"), np.dtype(ml_dtypes.bfloat16)]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("finite", [True, False])
def test_every_value(dtype: np.dtype, finite: bool) -> None:
    """All 65,536 of them, signs of zeros and subnormal numbers included; with and without infinity and nan."""
    values = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    if finite:
        values = values[np.isfinite(values.astype("float32"))]
    wide = half_floats.widen(values)
    assert wide.dtype == np.float32
    np.testing.assert_array_equal(wide, values.astype(np.float32))
    known = ~np.isnan(wide)
    np.testing.assert_array_equal(np.signbit(wide)[known], np.signbit(values.astype(np.float32))[known])


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_layouts(dtype: np.dtype) -> None:
    values = np.random.default_rng(0).standard_normal((700, 900)).astype(dtype)  # several blocks, on several threads
    for array in (values, values.T, values[::2], values[:, 3:], values[:0], values[0, 0]):
        wide = half_floats.widen(array)
        np.testing.assert_array_equal(wide, array.astype(np.float32))
        assert wide.shape == array.shape
    assert half_floats.widen(values.T).flags.f_contiguous


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


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_narrowing_rounds_as_astype(dtype: np.dtype) -> None:
    """All values, what lies between two, ties, and what is too small or too large."""
    wide = np.arange(1 << 16, dtype=np.uint16).view(dtype).astype(np.float32)
    finite = np.sort(wide[np.isfinite(wide)])
    ties = ((finite[:-1].astype(np.float64) + finite[1:]) / 2).astype(np.float32)
    rng = np.random.default_rng(0)
    tiny = rng.standard_normal(50_000).astype(np.float32) * np.float32(2e-7)
    with np.errstate(all="ignore"):
        more = [np.nextafter(ties, np.float32(0)), np.nextafter(ties, np.float32(9)), finite * 3]
    for given in (wide, ties, tiny, *more):
        with np.errstate(all="ignore"):
            want, found = given.astype(dtype), half_floats.narrow(given, dtype)
        known = ~np.isnan(given)
        np.testing.assert_array_equal(found.view(np.uint16)[known], want.view(np.uint16)[known])
        assert np.isnan(found[~known].astype(np.float32)).all()


def near(found: engine.Tensor, want: engine.Tensor) -> bool:
    """Whether 16-bit results are the same to one unit of the last digit."""
    assert found.dtype is want.dtype and found.shape == want.shape
    x, y = (t.float() for t in (found, want))
    close = (x - y).abs() <= y.abs() * (2**-7 if found.dtype is engine.bfloat16 else 2**-10) + 1e-6
    return bool((close | (x == y) | (x.isnan() & y.isnan())).all())


ELEMENTWISE = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "number": lambda x, y: x * 0.1 + 3,
    "alpha": lambda x, y: x.add(y, alpha=2),
    "maximum": engine.maximum,
    "relu": lambda x, y: x.relu(),
    "neg": lambda x, y: -x,
    "abs": lambda x, y: x.abs(),
    "exp": lambda x, y: x.exp(),
    "sigmoid": lambda x, y: x.sigmoid(),
    "silu": lambda x, y: engine.nn.functional.silu(x),
    "gelu": lambda x, y: engine.nn.functional.gelu(x),
    "tanh": lambda x, y: x.tanh(),
    "sqrt": lambda x, y: x.abs().sqrt(),
    "clamp": lambda x, y: x.clamp(-1, 0.5),
    "lerp": lambda x, y: x.lerp(y, 0.25),
    "pow": lambda x, y: x**2,
}


@pytest.mark.onednn
@pytest.mark.parametrize("name", ELEMENTWISE)
@pytest.mark.parametrize("dtype", [engine.float16, engine.bfloat16], ids=str)
def test_large_operands_give_what_small_ones_give(name: str, dtype: engine.dtype) -> None:
    """100,000 elements, in pieces or by oneDNN, against the same in slices that numpy computes."""
    function = ELEMENTWISE[name]
    x, y = (engine.from_numpy(np.random.default_rng(i).standard_normal(100_000)).to(dtype) for i in range(2))
    x[:3], x[77_777:77_780] = 0, engine.tensor([float("inf"), float("-inf"), float("nan")])
    found = function(x, y)
    few = engine.cat([function(x[i : i + 1000], y[i : i + 1000]) for i in range(0, 100_000, 1000)])
    assert near(found, few)


@pytest.mark.parametrize("dtype", [engine.float16, engine.bfloat16], ids=str)
def test_comparisons_and_gradients_of_large_operands(dtype: engine.dtype) -> None:
    x, y = (engine.from_numpy(np.random.default_rng(i).standard_normal(100_000)).to(dtype) for i in range(2))
    assert (x > y).equal(x.float() > y.float())
    x.requires_grad_()
    (engine.nn.functional.silu(x) * y).sum().backward()
    wide = x.detach().float().requires_grad_()
    (engine.nn.functional.silu(wide) * y.float()).sum().backward()
    error = (x.grad.float() - wide.grad).abs().max()
    assert error < 0.05 and x.grad.dtype is dtype


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_relu_by_bits_keeps_nan_of_either_sign(dtype: np.dtype) -> None:
    values = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    for given in (values, values[values.view(np.uint16) <= (0xFC00 if dtype.kind == "f" else 0xFF80)]):
        given = np.resize(given, 1 << 17)
        found = engine.relu(engine.from_numpy(given) if dtype.kind == "f" else engine.tensor(given)).float().numpy()
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(found, np.maximum(given.astype(np.float32), 0))
