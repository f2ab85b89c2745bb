"""The gradient of a weight that met one row, which is a product of elements where it is large."""

from __future__ import annotations

import numpy as np
import pytest

import engine
from engine.kernels import processor
from engine.ops.products import one_row


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("bias", [True, False])
def test_gradients_of_one_row(rows: int, bias: bool) -> None:
    draw = np.random.default_rng(0)
    x, w, g = (draw.standard_normal(shape, np.float32) for shape in ((rows, 150), (160, 150), (rows, 160)))
    x[0, 3], g[0, 5] = np.inf, np.nan
    given = [engine.tensor(a).requires_grad_() for a in (x, w, np.zeros(160, "float32"))]
    engine.nn.functional.linear(given[0], given[1], given[2] if bias else None).backward(engine.tensor(g))
    with np.errstate(all="ignore"):
        wanted = (g[:, :, None].astype("float64") * x[:, None]).sum(0)
    np.testing.assert_allclose(given[1].grad.numpy(), wanted, rtol=1e-5, atol=1e-5)
    a, b = (engine.tensor(m).requires_grad_() for m in (x, w.T.copy()))
    engine.mm(a, b).backward(engine.tensor(g))
    np.testing.assert_allclose(b.grad.numpy(), wanted.T, rtol=1e-5, atol=1e-5)


def test_which_are_products_of_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    for there in (True, False):
        monkeypatch.setattr(processor, "available", lambda there=there: there)
        assert one_row.by_elements(1, one_row._OUTER + 1) is there
        assert not one_row.by_elements(1, one_row._OUTER) and not one_row.by_elements(2, one_row._OUTER + 1)
