"""Convolutions that the registry's samples do not reach: by definition, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import engine


def transposed(x: np.ndarray, w: np.ndarray, stride: int, padding: int, dilation: int) -> np.ndarray:
    """The transposed convolution of x (N, C, L) with w (C, O, K) in float64."""
    length, reach = x.shape[2], (x.shape[2] - 1) * stride + dilation * (w.shape[2] - 1) + 1
    made = np.zeros((x.shape[0], w.shape[1], reach))
    for i in range(length):
        for k in range(w.shape[2]):
            made[:, :, i * stride + k * dilation] += x[:, :, i].astype(np.float64) @ w[:, :, k]
    return made[:, :, padding : reach - padding]


@pytest.mark.parametrize("kernel", [8, 16, 24, 40, 64])
@pytest.mark.parametrize("geometry", [(16, 0, 1), (16, 5, 1), (20, 3, 1), (16, 0, 2), (3, 2, 1)], ids=str)
def test_steps_as_long_as_frames(kernel: int, geometry: Any) -> None:
    """Transposed convolutions with long steps add what lies in a step at once: inverse spectrograms, decoders."""
    stride, padding, dilation = geometry
    draw = np.random.default_rng(kernel)
    x, w = draw.standard_normal((2, 6, 9), np.float32), draw.standard_normal((6, 3, kernel), np.float32)
    wanted = transposed(x, w, stride, padding, dilation)
    window = {"stride": stride, "padding": padding, "dilation": dilation}
    made = engine.conv_transpose1d(engine.tensor(x), engine.tensor(w), **window)
    np.testing.assert_allclose(made.numpy(), wanted, rtol=1e-4, atol=1e-4)
    tall = engine.conv_transpose2d(
        engine.tensor(x[:, :, None]), engine.tensor(w[:, :, None]), None, (1, stride), (0, padding), 0, 1, (1, dilation)
    )
    np.testing.assert_allclose(tall.numpy()[:, :, 0], wanted, rtol=1e-4, atol=1e-4)
