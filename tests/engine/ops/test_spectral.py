"""stft and istft, windows."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.signal

import engine
from engine.tensor import wrap

rng = np.random.default_rng(0)


@pytest.mark.parametrize("periodic", [True, False])
@pytest.mark.parametrize(
    "name, scipy_name",
    [
        ("hann", "hann"),
        ("hamming", "hamming"),
        ("blackman", "blackman"),
        ("bartlett", "bartlett"),
        ("kaiser", ("kaiser", 12.0)),
    ],
)
@pytest.mark.parametrize("n", [2, 5, 8])
def test_windows_are_scipys(name, scipy_name, n, periodic):
    found = getattr(engine, f"{name}_window")(n, periodic, dtype=engine.float64)
    expected = scipy.signal.get_window(scipy_name, n, fftbins=periodic)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-12)
    assert getattr(engine, f"{name}_window")(n).dtype is engine.float32


def test_window_of_one_point_and_requires_grad():
    assert engine.hann_window(1).tolist() == [1.0]
    assert engine.hann_window(0).shape == (0,)
    assert engine.hann_window(3, requires_grad=True).requires_grad


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("n_fft, hop, length", [(8, 2, 8), (7, 3, 5), (8, 3, 6)])
def test_stft_is_the_transform_of_each_frame(n_fft, hop, length, center, normalized):
    x = rng.standard_normal((2, 40))
    window = rng.uniform(0.2, 1, length)
    found = engine.stft(
        wrap(x),
        n_fft,
        hop,
        length,
        wrap(window),
        center=center,
        normalized=normalized,
        return_complex=True,
    ).numpy()
    padded = np.pad(x, ((0, 0), (n_fft // 2, n_fft // 2)), "reflect") if center else x
    left = (n_fft - length) // 2
    full = np.pad(window, (left, n_fft - length - left))
    frames = [padded[:, i : i + n_fft] * full for i in range(0, padded.shape[1] - n_fft + 1, hop)]
    expected = np.stack([np.fft.rfft(f) for f in frames], -1) / (np.sqrt(n_fft) if normalized else 1)
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("onesided", [True, False])
@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("shape", [(40,), (2, 41)], ids=str)
def test_istft_inverts_stft(shape, normalized, onesided):
    x = wrap(rng.standard_normal(shape))
    window = engine.hann_window(8, dtype=engine.float64)
    options = {"window": window, "normalized": normalized, "onesided": onesided}
    spectrum = engine.stft(x, 8, 2, return_complex=True, **options)
    back = engine.istft(spectrum, 8, 2, length=shape[-1], **options)
    np.testing.assert_allclose(back.numpy(), x.numpy(), atol=1e-12)


def test_stft_of_real_values_asks_for_return_complex():
    x = wrap(rng.standard_normal(20))
    with pytest.raises(RuntimeError, match="stft requires the return_complex parameter"):
        engine.stft(x, 4)
    pairs = engine.stft(x, 4, return_complex=False)
    assert pairs.shape[-1] == 2
    np.testing.assert_allclose(
        engine.view_as_complex(pairs.contiguous()).numpy(),
        engine.stft(x, 4, return_complex=True).numpy(),
    )


def test_istft_pads_with_a_warning():
    spectrum = engine.stft(wrap(rng.standard_normal(20)), 4, return_complex=True)
    with pytest.warns(UserWarning, match="shorter than the length"):
        assert engine.istft(spectrum, 4, length=50).shape == (50,)
