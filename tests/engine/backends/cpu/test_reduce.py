"""Sums of rows in short runs: as exact as numpy's reduction, whatever the width."""

from __future__ import annotations

import numpy as np
import pytest

import engine
from engine.backends.cpu import reduce
from engine.backends.cpu.reduce import sum_of_last

SHAPES = [(3, 1), (3, 7), (5, 512), (2, 513), (2, 2049), (3, 5000), (700, 2000), (1, 1 << 20), (9, 2, 3000)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("squares", [False, True])
def test_sums_of_the_last_dims(
    shape: tuple[int, ...], dtype: str, squares: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reduce, "_FEW", 0)
    array = np.random.default_rng(len(shape)).standard_normal(shape).astype(dtype)
    exact = array.astype(np.longdouble)
    exact = exact * exact if squares else exact
    for dims in {(len(shape) - 1,), tuple(range(len(shape)))}:
        for keepdim in (False, True):
            found = sum_of_last(array, dims, keepdim, squares)
            wanted = exact.sum(axis=dims, keepdims=keepdim)
            assert found is not None and found.shape == wanted.shape and found.dtype == array.dtype
            size = abs(exact).sum(axis=dims, keepdims=keepdim)
            assert (abs(found - wanted) <= 4 * np.finfo(dtype).eps * size).all()


def test_what_it_leaves_to_numpy() -> None:
    array = np.ones((40, 50, 60), "float32")
    assert sum_of_last(array, (2,), False) is not None
    assert sum_of_last(array[:1, :1], (2,), False) is None
    assert sum_of_last(array, (0,), False) is None
    assert sum_of_last(array, (0, 2), False) is None
    assert sum_of_last(array.transpose(0, 2, 1), (2,), False) is None
    assert sum_of_last(array.astype("int64"), (2,), False) is None
    assert sum_of_last(array[:0], (2,), False) is None
    assert sum_of_last(array, (), False) is None


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_number_is_kept(value: float) -> None:
    for shape in ((3, 40000), (2000, 300)):
        x = engine.ones(*shape)
        x[1, 2] = value
        rows = x.sum(1).tolist()
        assert np.isnan(rows[1]) if np.isnan(value) else rows[1] == value
        assert rows[0] == rows[2] == shape[1]
        norm = x.norm().item()
        assert np.isnan(norm) if np.isnan(value) else norm == np.inf


@pytest.mark.parametrize("size", [1000, 5000, 1 << 18, (1 << 20) + 3])
def test_norms_of_any_size(size: int) -> None:
    x = engine.arange(size, dtype=engine.float64).remainder(7) - 3
    exact = float(np.sqrt((x.numpy() ** 2).sum()))
    assert x.norm().item() == pytest.approx(exact, rel=1e-14)
    assert x.float().norm().item() == pytest.approx(exact, rel=3e-7)
    assert x[:1000].reshape(10, 100).norm(dim=1).tolist() == pytest.approx(
        np.sqrt((x[:1000].numpy().reshape(10, 100) ** 2).sum(1)).tolist()
    )
