"""Recursive filters and overdrive against the recursions as they are written, and numbers of torchaudio 2.11."""

from __future__ import annotations

import numpy as np
import pytest

import engine
from engine.ops import audio


def _fill(*shape: int) -> engine.Tensor:
    return engine.sin(engine.arange(int(np.prod(shape)), dtype=engine.float64) * 1.7).reshape(shape)


def _recursion(signal: np.ndarray, weights: np.ndarray) -> np.ndarray:
    result = np.zeros_like(signal)
    for t in range(signal.shape[2]):
        result[:, :, t] = signal[:, :, t]
        for k in range(min(t, weights.shape[1])):
            result[:, :, t] -= weights[:, k] * result[:, :, t - 1 - k]
    return result


@pytest.mark.parametrize("steps, order", [(1, 2), (63, 1), (64, 2), (65, 3), (300, 2), (200, 70)])
def test_the_recursion_in_blocks_is_the_recursion(steps: int, order: int) -> None:
    rng = np.random.default_rng(3)
    signal, weights = rng.standard_normal((2, 3, steps)), rng.uniform(-0.5, 0.5, (3, order)) / order
    result = audio.recursion(engine.tensor(signal), engine.tensor(weights))
    np.testing.assert_allclose(result.numpy(), _recursion(signal, weights), atol=1e-12)


def test_a_value_that_is_not_finite_does_not_reach_back() -> None:
    signal = np.ones((1, 1, 100))
    signal[0, 0, 50] = np.nan
    result = audio.recursion(engine.tensor(signal), engine.tensor([[-0.5]], dtype=engine.float64))
    assert np.isfinite(result.numpy()[0, 0, :50]).all() and np.isnan(result.numpy()[0, 0, 50:]).all()


def test_a_filter_that_blows_up_gives_infinity_and_not_nan() -> None:
    result = audio.recursion(
        engine.ones(1, 1, 300, dtype=engine.float64), engine.tensor([[-1e4]], dtype=engine.float64)
    )
    assert result[0, 0, 10] == pytest.approx(_recursion(np.ones((1, 1, 11)), np.array([[-1e4]]))[0, 0, 10])
    assert result[0, 0, -1] == float("inf")


def test_lfilter_and_its_gradients_are_torchaudios() -> None:
    x = _fill(2, 2, 6).requires_grad_()
    a = engine.tensor([[2.0, 0.5, -0.3], [1, -0.9, 0.4]], dtype=engine.float64, requires_grad=True)
    b = engine.tensor([[0.2, 0.5, 0.1], [1, -0.3, 0.4]], dtype=engine.float64, requires_grad=True)
    result = audio._lfilter(x, a, b)
    (result * _fill(2, 2, 6).cos()).sum().backward()
    expected = [0.0, 0.0991665, 0.1975705, -0.1414011, -0.1298335, 0.1683345]
    np.testing.assert_allclose(result.detach()[0, 0].numpy(), expected, atol=1e-7)
    expected = [1.746332, 1.8034967, 1.8842817, 1.4864233, 1.2883153, 0.5523628]
    np.testing.assert_allclose(x.grad[1, 1].numpy(), expected, atol=1e-7)
    expected = [[-0.2032994, -0.0735338, -0.0806147], [2.9876892, 2.8492698, 2.6301241]]
    np.testing.assert_allclose(a.grad.numpy(), expected, atol=1e-7)
    expected = [[0.3213962, 0.7231504, -0.0667324], [-1.7187728, -1.3935851, -0.4367465]]
    np.testing.assert_allclose(b.grad.numpy(), expected, atol=1e-7)


def test_the_core_loop_goes_on_from_the_samples_it_finds() -> None:
    padded = engine.zeros(1, 1, 5, dtype=engine.float64)
    padded[..., 0] = 1
    weights = engine.tensor([[0.5, 1.0]], dtype=engine.float64)
    assert audio._lfilter_core_loop(_fill(1, 1, 4), weights, padded) is padded
    np.testing.assert_allclose(padded.numpy()[0, 0], [1.0, -0.5, 1.2417, -0.8764, -0.4876], atol=5e-5)


def test_overdrive_writes_its_three_results() -> None:
    wave = _fill(1, 4)
    last_in, last_out = engine.zeros(1, dtype=engine.float64), engine.zeros(1, dtype=engine.float64)
    output = engine.zeros(1, 4, dtype=engine.float64)
    audio._overdrive_core_loop(wave, wave * 2, last_in, last_out, output)
    np.testing.assert_allclose(output.numpy()[0], [0.0, 1.9833296, -0.5185197, -1.8571131], atol=1e-7)
    np.testing.assert_allclose([last_in.item(), last_out.item()], [-1.8516, -1.8589], atol=5e-5)


def test_coefficients_of_other_channels_are_refused() -> None:
    with pytest.raises(RuntimeError, match="a_coeffs must be"):
        audio._lfilter(engine.ones(1, 2, 5), engine.ones(3, 2), engine.ones(2, 2))
