"""Indexing, gathering and scattering: stored answers of torch 2.13, and what these alone do not show."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import engine
from tests.engine.ops.stored import answer, stored


@pytest.mark.parametrize("expression, expected", stored("indexing"), ids=lambda v: v[:60] if isinstance(v, str) else "")
def test_as_torch(expression: str, expected: Any) -> None:
    assert answer(expression) == expected


def test_index_tensors_are_guarded() -> None:
    x = engine.arange(4.0).requires_grad_()
    index = engine.tensor([0, 1])
    y = (x[index] ** 2).sum()
    index[0] = 3
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_large_gradients_count_repeats() -> None:
    rng = np.random.default_rng(0)
    index = rng.integers(0, 50, (40, 30))
    weight = engine.zeros(50, 7, dtype=engine.float64).requires_grad_()
    out = rng.standard_normal((40, 30, 7))
    for picked in (
        weight[engine.tensor(index)],
        weight.index_select(0, engine.tensor(index.ravel())).view(40, 30, 7),
    ):
        weight.grad = None
        picked.backward(engine.tensor(out))
        expected = np.zeros((50, 7))
        np.add.at(expected, index, out)
        np.testing.assert_allclose(weight.grad.numpy(), expected, rtol=1e-12)


def test_writes_by_index_go_into_views_in_place() -> None:
    base = engine.zeros(4, 5)
    base.t()[1:3].index_add_(1, engine.tensor([0, 0]), engine.ones(2, 2))
    assert base[0].tolist() == [0, 2, 2, 0, 0] and base.sum().item() == 4
    base.t().scatter_(0, engine.tensor([[4]]), 7.0)
    assert base[0, 4].item() == 7 and base._version == 2


def test_failed_writes_change_nothing() -> None:
    x = engine.arange(4.0)
    for write in (
        lambda: x.index_add_(0, engine.tensor([0, 9]), engine.ones(2)),
        lambda: x.scatter_(0, engine.tensor([0, 9]), 1.0),
        lambda: x.index_copy_(0, engine.tensor([0, 9]), engine.ones(2)),
        lambda: x.put_(engine.tensor([0, 9]), engine.ones(2)),
    ):
        with pytest.raises((RuntimeError, IndexError)):
            write()
    assert x.tolist() == [0, 1, 2, 3] and x._version == 0


def test_uint8_masks_warn() -> None:
    with pytest.warns(UserWarning, match=r"indexing with dtype torch\.uint8 is now deprecated"):
        assert engine.arange(3)[engine.tensor([1, 0, 1], dtype=engine.uint8)].tolist() == [0, 2]


def test_augmented_assignment_reaches_the_base() -> None:
    x = engine.ones(3, requires_grad=True)
    y = x * 1
    y[1] *= 5
    y[engine.tensor([0, 2])] += 1
    y.sum().backward()
    assert y.tolist() == [2, 5, 2] and x.grad.tolist() == [1, 5, 1]


@pytest.mark.parametrize("shape", [(8, 20, 5), (4, 0, 3), (7,), (3, 4, 5, 2)])
def test_masks_of_the_leading_dims_pick_what_numpys_do(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    for dims in range(1, len(shape) + 1):
        values, mask = rng.standard_normal(shape), rng.random(shape[:dims]) > 0.5
        for array in (values, np.asfortranarray(values)):
            x, m = engine.from_numpy(array.copy("K")).requires_grad_(True), engine.from_numpy(mask)
            found = x[m]
            assert np.array_equal(found.detach().numpy(), values[mask])
            slope = np.arange(found.numel(), dtype="float64").reshape(found.shape)
            found.backward(engine.from_numpy(slope))
            want = np.zeros(shape)
            want[mask] = slope
            assert np.array_equal(x.grad.numpy(), want)
            if dims == len(shape):
                assert np.array_equal(engine.masked_select(x, m).detach().numpy(), values[mask])
            else:
                assert np.array_equal(x[m, ..., 0].detach().numpy(), values[mask][..., 0])
