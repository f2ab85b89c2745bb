"""Products of few rows, generated, against numpy in float64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes  # noqa: F401  numpy knows bfloat16 by its name then
import numpy as np
import pytest

import engine
from engine.backends import onednn
from engine.backends.cpu import threads
from engine.core.lru import LRU
from engine.dispatch import choosing
from engine.kernels import processor
from engine.ops.generated import launch, route
from engine.ops.products import generated as products

pytestmark = pytest.mark.skipif(not processor.available(), reason=f"generated code is {processor.describe()}")

NEAR = {"float32": 1e-6, "bfloat16": 4e-3, "float16": 6e-4}


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No kernel of another test."""
    monkeypatch.setattr(products, "_entries", {})
    monkeypatch.setattr(launch.trials, "trusted", True)
    yield


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(1, 7), (300, 257), (1000, 768), (64, 5000)])
@pytest.mark.parametrize("dtype", products.TYPES)
def test_it_is_the_product(dtype: str, shape: Any, bias: bool) -> None:
    target = processor.target()
    if dtype == "float16" and not (target and target.halves):
        pytest.skip("this processor does not convert float16")
    rng = np.random.default_rng(5)
    row, weight = (rng.standard_normal(s).astype(dtype) for s in ((1, shape[1]), shape))
    added = rng.standard_normal(shape[0]).astype(dtype) if bias else None
    got = products.one_row(np, row, weight, added)
    want = row.astype("float64") @ weight.astype("float64").T + (0 if added is None else added.astype("float64"))
    assert got.dtype == weight.dtype and got.shape == (1, shape[0])
    np.testing.assert_allclose(got.astype("float64"), want, atol=NEAR[dtype] * float(abs(want).max()), rtol=0)


@pytest.mark.skipif(not onednn.is_available(), reason="numpy's BLAS serves where oneDNN is not")
def test_linear_takes_it_and_keeps_its_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """`linear` of one row, of any number of dims; more rows, and a weight in another order, go the other way."""
    from engine.ops.products import onednn as blas

    calls: list[Any] = []
    plain = products.one_row
    monkeypatch.setattr(products, "one_row", lambda *given: calls.append(given[2].shape) or plain(*given))
    monkeypatch.setattr(choosing, "_left", [0])
    monkeypatch.setattr(blas, "_by_blas", lambda *given: False)
    blas._generated.cache_clear()
    linear, x = engine.nn.functional.linear, engine.randn(1, 1, 512)
    weight, bias = engine.randn(2100, 512), engine.randn(2100)  # of fewer elements one launch does all
    for dtype, near in ((engine.float32, 1e-4), (engine.bfloat16, 0.3)):
        y, w, b = x.to(dtype), weight.to(dtype), bias.to(dtype)
        calls.clear()
        one = linear(y, w, b)
        assert one.shape == (1, 1, 2100) and calls == [(2100, 512)]
        assert engine.allclose(one.float(), linear(y.float().expand(1, 3, 512), w.float(), b.float())[:, :1], atol=near)
        turned = linear(y, w.t().contiguous().t(), b)
        assert calls == [(2100, 512)] and engine.allclose(turned.float(), one.float(), atol=near)
    blas._generated.cache_clear()


@pytest.mark.skipif(not onednn.is_available(), reason="numpy's BLAS serves where oneDNN is not")
@pytest.mark.parametrize("bias", [(), (1,), (512,), None])
def test_one_row_of_a_moderate_weight_is_a_product_of_blas(bias: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.ops.products import onednn as blas

    def refused(*given: Any) -> Any:
        raise AssertionError("packed")

    monkeypatch.setattr(blas, "_gemm", refused)
    monkeypatch.setattr(blas, "_one_row", refused)
    x, weight = engine.randn(1, 1, 600), engine.randn(512, 600)
    added = None if bias is None else engine.randn(bias)
    for w in (weight, weight.t().contiguous().t()):
        got = engine.nn.functional.linear(x, w, added)
        want = x.double() @ weight.double().t() + (0 if added is None else added.double())
        assert got.shape == (1, 1, 512) and engine.allclose(got.double(), want, atol=1e-3)


# --- the steps of a recurrent layer


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> tuple[products.Steps, list[str]]:
    """Such products, and which of them the way there was has computed."""
    seen: list[str] = []

    def plain(rows: np.ndarray, matrix: np.ndarray, out: np.ndarray, beta: float) -> None:
        seen.append("plain")
        out[...] = rows @ matrix + (out if beta else 0)

    monkeypatch.setattr(products, "_trials", LRU(1024))
    monkeypatch.setattr(processor, "always", lambda: True)
    monkeypatch.setattr(launch, "slower", lambda mine, there, margin=1.05, of=(): False)
    return products.Steps(plain), seen


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("shape", [(64, 256), (33, 768), (256, 1008), (70, 1040)])
def test_steps_of_a_layer(steps: Any, shape: tuple[int, int], count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_count", count)
    monkeypatch.setattr(route, "SHARE", 0)
    product, seen = steps
    draw = np.random.default_rng(0)
    matrix = draw.standard_normal(shape).astype("float32")
    for n in (16, 16, 16, 1, 2, 3, 5, 7, 9, 13, 23, 64):  # of which the first is not worth packing
        for beta in (0.0, 1.0):
            rows = draw.standard_normal((n, shape[0])).astype("float32")
            out = draw.standard_normal((n, shape[1])).astype("float32")
            want = rows.astype("float64") @ matrix.astype("float64") + beta * out
            product(rows, matrix, out, beta)
            np.testing.assert_allclose(out, want, rtol=0, atol=3e-6 * float(abs(want).max()))
    assert len(seen) < 12 or shape[1] % route.lanes()


def test_many_rows_few_elements_and_another_matrix_are_left(steps: Any) -> None:
    product, seen = steps
    matrix = np.ones((64, 256), "float32")
    other, small = matrix.copy(), np.ones((16, 16), "float32")
    for rows, given, times in ((100, matrix, 4), (8, small, 4), (8, other, 1), (8, matrix, 1)):
        for _ in range(times):
            product(np.ones((rows, len(given)), "float32"), given, np.empty((rows, given.shape[1]), "float32"))
    assert len(seen) == 10


def test_the_call_of_the_trial_is_added_once(steps: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch.trials, "trusted", False)
    monkeypatch.setattr(processor, "always", lambda: False)
    monkeypatch.setattr(launch, "PAYS", 1)
    monkeypatch.setattr(launch, "slower", lambda mine, there, margin=1.05, of=(): (mine(), there())[0] is not None)
    product, seen = steps
    matrix, rows = np.eye(128, 256, dtype="float32"), np.ones((8, 128), "float32")
    out = np.zeros((8, 256), "float32")
    for n in range(1, 5):
        product(rows, matrix, out, 1.0)
        assert (out[:, :128] == n).all() and not out[:, 128:].any()
    assert len(seen) == 3  # the first, and two in the trial


def test_steps_that_are_wrong_are_told_of_once_and_left(steps: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch.trials, "trusted", False)
    monkeypatch.setattr(processor, "always", lambda: False)
    monkeypatch.setattr(launch, "PAYS", 1)
    monkeypatch.setattr(launch, "_warned", set())
    product, seen = steps
    run = products.Steps._run
    monkeypatch.setattr(products.Steps, "_run", lambda self, rows, out, beta: (run(self, rows, out, beta), out.fill(7)))
    matrix, rows, out = np.eye(128, 256, dtype="float32"), np.ones((8, 128), "float32"), np.empty((8, 256), "float32")
    product(rows, matrix, out)
    with pytest.warns(RuntimeWarning, match="a recurrent layer's product is switched off"):
        product(rows, matrix, out)
    for _ in range(3):
        product(rows, matrix, out)
        assert out[:, :128].min() == 1 and not out[:, 128:].any()
    assert len(seen) == 5
