"""Orders of more elements than samples have: packed keys, groups of columns, ties, nan, both zeros."""

from __future__ import annotations

import numpy as np
import pytest

import engine
from engine.ops import sorting

DTYPES = ["float32", "float16", "bfloat16", "float64", "int8", "uint8", "int16", "int32", "int64", "bool"]


def _values(dtype: str, shape: tuple[int, ...], seed: int, digits: int = 1) -> engine.Tensor:
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal(shape) * 4).round(digits)
    if dtype.startswith(("float", "bfloat")):
        flat = x.reshape(-1)
        for value in (np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0):
            flat[rng.integers(0, flat.size, 11)] = value
    if dtype == "bool":
        return engine.tensor(x > 1)
    return engine.tensor(x).to(getattr(engine, dtype))


def _order(x: engine.Tensor, dim: int, descending: bool) -> np.ndarray:
    """Python's stable sort, nan last."""
    array = np.moveaxis(x.double().numpy(), dim, -1)
    keys = np.where(np.isnan(array), np.inf, array) + 0.0
    rows = [
        sorted(range(len(row)), key=lambda i: (not bad[i], -row[i]) if descending else (bad[i], row[i]))
        for row, bad in zip(keys.reshape(-1, keys.shape[-1]), np.isnan(array).reshape(-1, keys.shape[-1]))
    ]
    return np.moveaxis(np.array(rows).reshape(array.shape), -1, dim)


def _bits(x: engine.Tensor) -> bytes:
    return (x if x.dtype is engine.bool else x.reshape(-1).view(engine.uint8)).numpy().tobytes()


def _same(found: engine.Tensor, x: engine.Tensor, index: np.ndarray, dim: int) -> None:
    assert found.dtype is x.dtype
    assert _bits(found) == _bits(engine.take_along_dim(x, engine.tensor(index), dim))


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(("shape", "dim"), [((30, 70), 1), ((70, 30), 0), ((5, 30, 11), 1), ((2100,), 0)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_sort_is_stable(dtype: str, shape: tuple[int, ...], dim: int, descending: bool) -> None:
    x = _values(dtype, shape, 3)
    want = _order(x, dim, descending)
    values, index = x.sort(dim, descending)
    assert np.array_equal(index.numpy(), want)
    assert np.array_equal(x.argsort(dim, descending).numpy(), want)
    _same(values, x, want, dim)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("digits", [1, 9])  # with ties, and mostly without
@pytest.mark.parametrize("dtype", [d for d in DTYPES if d not in ("bool", "float64")])
def test_topk_keeps_the_order_of_equals(dtype: str, digits: int, largest: bool) -> None:
    for seed, (shape, k, dim) in enumerate(
        [
            ((3, 700), 5, -1),
            ((3, 2003), 1, 1),
            ((40, 64), 40, -1),
            ((640, 3), 7, 0),
            ((4099,), 100, 0),
            ((9, 200), 0, 1),
            ((9, 200), 200, 1),
        ]
    ):
        x = _values(dtype, shape, seed, digits)
        want = np.take(_order(x, dim, largest), range(k), dim)
        values, index = x.topk(k, dim, largest)
        assert np.array_equal(index.numpy(), want)
        if k:
            _same(values, x, want, dim)


def test_topk_takes_groups_without_ties_only() -> None:
    rng = np.random.default_rng(0)
    x = rng.permutation(3 * 2003).reshape(3, 2003).astype("float32")
    assert np.array_equal(sorting._of_groups(np, x, 5, True), np.argsort(-x, 1)[:, :5])
    assert np.array_equal(sorting._of_groups(np, x, 5, False), np.argsort(x, 1)[:, :5])
    assert sorting._of_groups(np, np.zeros_like(x), 5, True) is None
    x[1, 1999:] = np.nan  # among the columns that no group has, too
    assert np.array_equal(sorting._of_groups(np, x, 5, True)[1, :4], [1999, 2000, 2001, 2002])
    assert sorting._of_groups(np, np.full_like(x, np.nan), 5, False) is None


@pytest.mark.parametrize("layout", ["contiguous", "turned", "reversed"])
def test_order_of_any_layout(layout: str) -> None:
    x = np.random.default_rng(1).standard_normal((60, 900)).astype("float32")
    t = engine.tensor(x)
    t = t.t().contiguous().t() if layout == "turned" else t.flip(1).flip(1) if layout == "reversed" else t
    order = np.argsort(x, 1, kind="stable")
    assert np.array_equal(t.argsort(1).numpy(), order)
    assert np.array_equal(t.topk(3, 1, False)[1].numpy(), order[:, :3])
    assert np.array_equal(t.kthvalue(9, 1)[1].numpy(), order[:, 8])
    assert np.array_equal(t.median(1)[1].numpy(), order[:, 449])


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int64", "uint8"])
def test_kthvalue_and_medians(dtype: str) -> None:
    x = _values(dtype, (40, 61), 5)
    order = _order(x, 1, False)
    for k in (1, 30, 61):
        values, index = x.kthvalue(k, 1)
        assert np.array_equal(index.numpy(), order[:, k - 1])
        _same(values.unsqueeze(1), x, order[:, k - 1 : k], 1)
    nan = np.isnan(x.double().numpy())
    count = nan.sum(1)
    place = np.where(count > 0, 61 - count, 30)
    assert np.array_equal(x.median(1)[1].numpy(), np.take_along_axis(order, place[:, None], 1)[:, 0])
    place = (61 - count - 1) // 2
    assert np.array_equal(x.nanmedian(1, True)[1].numpy(), np.take_along_axis(order, place[:, None], 1))


def test_numbers_far_apart_are_not_packed() -> None:
    x = engine.tensor(np.array([2**62, -(2**62), 0, 5] * 400))
    assert x.argsort().tolist() == sorted(range(1600), key=lambda i: x[i].item())
    assert sorting._keys(np, x.numpy(), 0, False) is None
    assert sorting._keys(np, x.numpy() % 7 - 2**62, 0, False) is not None


def test_gradients_of_packed_orders() -> None:
    x = engine.tensor(np.random.default_rng(2).standard_normal((30, 90)).astype("float32"), requires_grad=True)
    for values, index in (x.sort(1, True), x.topk(4, 1), x.kthvalue(4, 1, True), x.median(1, True)):
        (grad,) = engine.autograd.grad((values * 2).sum(), x)
        assert np.array_equal(grad.numpy(), engine.zeros(30, 90).scatter(1, index, 2.0).numpy())


@pytest.mark.parametrize("right", [False, True])
def test_many_values_are_looked_up_by_all_threads(right: bool) -> None:
    rng = np.random.default_rng(1)
    edges, values = np.sort(rng.standard_normal(50)), rng.standard_normal((70, 3 * sorting._SEARCHED // 50))
    side = "right" if right else "left"
    found = engine.bucketize(engine.tensor(values), engine.tensor(edges), right=right)
    assert np.array_equal(found.numpy(), np.searchsorted(edges, values, side)) and found.dtype == engine.int64
    rows = np.sort(rng.standard_normal((70, 9)), 1)
    found = engine.searchsorted(engine.tensor(rows), engine.tensor(values), right=right, out_int32=True)
    want = [np.searchsorted(row, value, side) for row, value in zip(rows, values)]
    assert np.array_equal(found.numpy(), want) and found.dtype == engine.int32


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("counts", [False, True])
@pytest.mark.parametrize("dim", [None, 0])
def test_unique_gives_what_is_asked(inverse: bool, counts: bool, dim: int | None) -> None:
    x = np.array([[3, 1], [1, 2], [3, 1]])
    found = engine.unique(engine.tensor(x), return_inverse=inverse, return_counts=counts, dim=dim)
    got = [found] if isinstance(found, engine.Tensor) else list(found)
    values, places, numbers = np.unique(x, return_inverse=True, return_counts=True, axis=dim)
    want = [values, *[places.reshape(x.shape if dim is None else 3)] * inverse, *[numbers] * counts]
    assert len(got) == len(want) and all(np.array_equal(a.numpy(), b) for a, b in zip(got, want))
