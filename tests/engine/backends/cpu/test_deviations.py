"""Sums of squared deviations against float64, for every place of the dims that are added."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from engine.backends.cpu.deviations import squared_deviations

SHAPES = [(70, 9, 400), (3, 100_000), (100_000, 3), (513, 3000), (140_001,), (2, 66_000, 2), (40, 4, 5, 300), (7, 9)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_equals_float64_for_every_choice_of_dims(shape: tuple[int, ...], dtype: str) -> None:
    array = (np.random.default_rng(0).standard_normal(shape) * 3 + 100).astype(dtype)
    choices = [c for n in range(1, len(shape) + 1) for c in itertools.combinations(range(len(shape)), n)]
    for axes in [None, *choices, (-1,)]:
        center = array.mean(axis=axes, keepdims=True, dtype="float64").astype(dtype)
        exact = ((array.astype("float64") - center) ** 2).sum(axis=axes, keepdims=True)
        for keepdim in (False, True):
            found = squared_deviations(array, center, axes, keepdim)
            expected = exact if keepdim else exact.squeeze(axes)
            assert found.shape == expected.shape and found.dtype == array.dtype
            np.testing.assert_allclose(found, expected, rtol=1e-6 if dtype == "float32" else 1e-12)


def test_takes_what_is_not_contiguous_and_what_is_not_finite() -> None:
    array = np.ones((400, 900), "float32")[:, ::2]
    assert (squared_deviations(array, np.zeros((1, 450), "float32"), (0,)) == 400).all()
    whole = np.ones((400, 900), "float32")
    whole[7, 5] = np.inf
    found = squared_deviations(whole, np.zeros((1, 900), "float32"), (0,))
    assert np.isinf(found[5]) and np.isfinite(np.delete(found, 5)).all()


def test_rows_of_many_elements_do_not_lose_the_small_ones() -> None:
    rows = np.zeros((1_000_000, 4), "float32")
    rows[:, 1] = 1
    assert squared_deviations(rows, np.zeros((1, 4), "float32"), (0,)).tolist() == [0, 1_000_000, 0, 0]
