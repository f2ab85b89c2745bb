"""One row times a weight, generated, against numpy in float64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes  # noqa: F401  numpy knows bfloat16 by its name then
import numpy as np
import pytest

import engine
from engine.backends import onednn
from engine.backends.kept import Cache
from engine.kernels import cpu, processor
from engine.ops.generated import launch, products

pytestmark = pytest.mark.skipif(not processor.available(), reason=f"generated code is {processor.describe()}")

NEAR = {"float32": 1e-6, "bfloat16": 4e-3, "float16": 6e-4}


@pytest.fixture(autouse=True)
def fresh(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No kernel of another test; code is shared by the tests of this run."""
    monkeypatch.setattr(cpu, "cache", Cache(tmp_path_factory.getbasetemp().parent / "llvm"))
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
    from engine.ops.onednn import blas

    calls: list[Any] = []
    plain = products.one_row
    monkeypatch.setattr(products, "one_row", lambda *given: calls.append(given[2].shape) or plain(*given))
    blas._generated.cache_clear()
    linear, x = engine.nn.functional.linear, engine.randn(1, 1, 512)
    weight, bias = engine.randn(256, 512), engine.randn(256)
    for dtype, near in ((engine.float32, 1e-4), (engine.bfloat16, 0.3)):
        y, w, b = x.to(dtype), weight.to(dtype), bias.to(dtype)
        calls.clear()
        one = linear(y, w, b)
        assert one.shape == (1, 1, 256) and calls == [(256, 512)]
        assert engine.allclose(one.float(), linear(y.float().expand(1, 3, 512), w.float(), b.float())[:, :1], atol=near)
        turned = linear(y, w.t().contiguous().t(), b)
        assert calls == [(256, 512)] and engine.allclose(turned.float(), one.float(), atol=near)
    blas._generated.cache_clear()
