"""Sums in runs: against float64, for many shapes, dims and strides; the error does not grow with the number of rows."""

from __future__ import annotations

import numpy as np
import pytest

from engine.backends.cpu import exact

BOUND = 8  # units of the last place, of the sum of the magnitudes; docs/reference/deviations.md states it


def _cases(count: int) -> list[tuple[np.ndarray, tuple[int, ...]]]:
    """Arrays of up to 4 dims, with strides of transposes, slices and reversals, and some of their dims."""
    rng = np.random.default_rng(29)
    found = []
    for _ in range(count):
        ndim = int(rng.integers(1, 5))
        shape = [int(n) for n in rng.choice([1, 2, 3, 5, 17, 130, 700, 3000], ndim)]
        while np.prod(shape) > 1_500_000:
            shape[int(np.argmax(shape))] //= 7
        array = rng.random(shape, np.float32) - np.float32(rng.choice([0, 0.5]))
        array = array.transpose(rng.permutation(ndim))
        for d in range(ndim):
            if rng.random() < 0.3 and array.shape[d] > 2:
                step = int(rng.choice([-1, 2]))
                array = array[(slice(None),) * d + (slice(None, None, step),)]
            elif rng.random() < 0.2 and array.shape[d] > 2:
                array = array[(slice(None),) * d + (slice(1, -1),)]
        dims = [d for d in range(ndim) if rng.random() < 0.6] or [0]
        found.append((array, tuple(dims)))
    return found


def _check(found: np.ndarray, array: np.ndarray, axes: tuple[int, ...], keepdim: bool) -> None:
    wide = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
    wanted = wide.sum(axis=axes, keepdims=keepdim)
    assert found.shape == wanted.shape and found.dtype == array.dtype
    size = abs(wide).sum(axis=axes, keepdims=keepdim)
    assert (abs(found - wanted) <= BOUND * np.finfo(array.dtype).eps * size).all()


@pytest.mark.parametrize("part", range(4))
def test_sums_of_any_shape_along_any_dims(part: int) -> None:
    for array, axes in _cases(160)[part::4]:
        for keepdim in (False, True):
            _check(exact.sums(array, axes, keepdim), array, axes, keepdim)


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
@pytest.mark.parametrize("shape", [(300_000, 3), (2, 100_000, 3), (40_000, 3, 5), (9000, 70), (20_000, 1)])
def test_many_rows(shape: tuple[int, ...], dtype: str) -> None:
    rng = np.random.default_rng(len(shape))
    array = rng.random(shape).astype(dtype)
    if dtype == "complex64":
        array = array + np.complex64(1j) * array[::-1]
    for axes in ((0,), (1,), (0, len(shape) - 1), tuple(range(len(shape)))):
        _check(exact.sums(array, axes), array, axes, False)
        back = array[..., ::-1]
        _check(exact.sums(back, axes), back, axes, False)


def test_ones_beside_a_large_number_are_counted() -> None:
    """Row by row the sum would stay at 2^24, to which float32 adds 1 in vain."""
    array = np.ones((100_000, 3), np.float32)
    array[0] = 1 << 24
    wanted = (1 << 24) + 99_999
    assert (abs(exact.sums(array, (0,)) - wanted) < 1e-4 * wanted).all()
    assert (abs(exact.sums(array.T, (1,)) - wanted) < 1e-4 * wanted).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_kept(value: float) -> None:
    array = np.ones((5000, 4), np.float32)
    array[4321, 2] = value
    found = exact.sums(array, (0,))
    assert found.tolist()[:2] == [5000, 5000] and found[3] == 5000
    assert np.isnan(found[2]) if np.isnan(value) else found[2] == value


def test_what_is_left_to_numpy() -> None:
    class Other:
        size = 1 << 20

        def sum(self, axis, keepdims):
            return "its own", axis, keepdims

    assert exact.summed(Other(), (0, 1), True) == ("its own", (0, 1), True)
    whole = np.arange(5000)
    assert exact.summed(whole, 0) == whole.sum() and exact.summed(whole).dtype == whole.dtype
    assert exact.summed(np.ones((2000, 2), np.float16), 0).dtype == np.float16
    assert exact.summed(np.ones((0, 3), np.float32), 0).tolist() == [0, 0, 0]
    assert exact.summed(np.float32(2) * np.ones(()), ()) == 2


@pytest.mark.parametrize("n", [5, 8191, 8192, 100_003])
def test_dots_in_runs(n: int) -> None:
    rng = np.random.default_rng(n)
    a, b = rng.random((3, n), np.float32), rng.random((3, n), np.float32)
    wanted = (a.astype(float) * b).sum(-1)
    assert (abs(exact.dots(a, b, np) - wanted) <= BOUND * 1.2e-7 * wanted).all()
    assert np.array_equal(exact.dots(a[:, :5], b[:, :5], np), np.matmul(a[:, None, :5], b[:, :5, None])[:, 0, 0])
