"""Copies in another arrangement: repeated, rolled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import engine


@pytest.mark.parametrize("dim", [0, 1, -1, None])
@pytest.mark.parametrize("repeats", [0, 1, 3])
def test_each_entry_is_repeated_and_its_gradient_summed(repeats: int, dim: int | None) -> None:
    engine.manual_seed(0)
    for x in (engine.randn(2, 3, 4), engine.randn(4, 2, 3).permute(1, 2, 0), engine.randn(3, 0, 2)):
        x = x.detach().requires_grad_(True)
        by_number, by_counts = x.repeat_interleave(repeats, dim), x.repeat_interleave(engine.tensor([repeats]), dim)
        assert engine.equal(by_number, by_counts) and by_number.is_contiguous()
        assert (by_number.grad_fn.name() == "ViewBackward0" and by_number.data_ptr() != x.data_ptr()) or not x.numel()
        g = engine.randn(by_number.shape)
        engine.testing.assert_close(
            *(engine.autograd.grad(made, x, g)[0] for made in (by_number, by_counts)), rtol=1e-6, atol=1e-6
        )


def test_a_scalar_and_channels_last() -> None:
    assert engine.tensor(5.0).repeat_interleave(3, 0).tolist() == [5.0] * 3
    x = engine.randn(2, 4, 3, 3).to(memory_format=engine.channels_last)
    assert engine.equal(x.repeat_interleave(2, 1)[:, 1::2], x) and x.repeat_interleave(2, 1).is_contiguous()


def test_few_elements_many_times() -> None:
    x = np.arange(6.0, dtype="float32").reshape(2, 3)
    t = engine.tensor(x)
    assert np.array_equal(t.repeat(50, 40, 30).numpy(), np.tile(x, (50, 40, 30)))
    assert np.array_equal(t.T.repeat(200, 100).numpy(), np.tile(x.T, (200, 100)))
    assert np.array_equal(t.repeat_interleave(5000, 1).numpy(), x.repeat(5000, 1))
    assert t.repeat(1, 1).data_ptr() != t.data_ptr()


@pytest.mark.parametrize("shape", [(5,), (3, 4), (2, 3, 4), (0, 3), (3, 0), (700, 900), (4, 300, 301)])
@pytest.mark.parametrize(
    "shifts, dims",
    [(1, 0), (-2, 0), ((1, 2), (0, -1)), ((5, -7), (0, 0)), (3, None), (0, 0), (100, -1), ((1, 0), (0, 0))],
)
def test_roll_is_that_of_numpy(shape: tuple[int, ...], shifts: Any, dims: Any) -> None:
    x = np.arange(np.prod(shape)).reshape(shape)
    for array in (x, x.T, x[::2]):
        want = np.roll(array, shifts, dims)
        got = engine.roll(engine.from_numpy(array), shifts, () if dims is None else dims)
        assert np.array_equal(got.numpy(), want)
