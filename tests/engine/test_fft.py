"""torch.fft against numpy.fft, and gradients of every function."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import engine
import engine.fft as F
from engine.autograd.gradcheck import gradcheck, gradgradcheck
from engine.tensor import wrap

rng = np.random.default_rng(0)
ONE = ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"]
MANY = ["fftn", "ifftn", "rfftn", "irfftn"]
NORMS = [None, "backward", "ortho", "forward"]


def signal(name, *shape):
    x = rng.standard_normal(shape)
    return x if name.startswith(("rfft", "ihfft")) else x + 1j * rng.standard_normal(shape)


@pytest.mark.parametrize("name, norm", list(itertools.product(ONE, NORMS)))
@pytest.mark.parametrize("n", [None, 3, 5, 8])
def test_one_dim_is_numpys(name, norm, n):
    x = signal(name, 4, 5)
    for dim in (-1, 0):
        found = getattr(F, name)(wrap(x), n, dim, norm)
        np.testing.assert_allclose(found.numpy(), getattr(np.fft, name)(x, n, dim, norm), atol=1e-12)


@pytest.mark.parametrize("name, norm", list(itertools.product(MANY, NORMS)))
@pytest.mark.parametrize("s, dim", [(None, None), ((3, 6), (0, 1)), (None, (1, 0)), ((4,), (1,)), (None, (0, 1, 2))])
def test_many_dims_are_numpys(name, norm, s, dim):
    x = signal(name, 4, 5, 3)
    found = getattr(F, name)(wrap(x), s, dim, norm)
    np.testing.assert_allclose(found.numpy(), getattr(np.fft, name)(x, s, dim, norm), atol=1e-12)


@pytest.mark.parametrize("norm", NORMS)
def test_hermitian_transforms_are_inverses(norm):
    x = rng.standard_normal((4, 6))
    half = F.ihfftn(wrap(x), norm=norm)
    np.testing.assert_allclose(F.hfftn(half, (4, 6), norm=norm).numpy(), x, atol=1e-12)
    one = F.ihfft(wrap(x), norm=norm)
    np.testing.assert_allclose(F.hfft(one, 6, norm=norm).numpy(), x, atol=1e-12)
    for name in ("fft2", "rfft2"):
        np.testing.assert_allclose(
            getattr(F, name)(wrap(x), norm=norm).numpy(),
            getattr(np.fft, name)(x, norm=norm),
            atol=1e-12,
        )


NAMES = [n for n in F.__all__ if "shift" not in n and "freq" not in n]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(3, 4), (4, 3)], ids=str)
def test_gradients(name, shape):
    x = wrap(signal(name, *shape)).requires_grad_()
    function = getattr(F, name)
    assert gradcheck(function, (x,), fast_mode=True)
    assert gradgradcheck(lambda a: function(a).abs() ** 2, (x,), fast_mode=True)


@pytest.mark.parametrize("name", ["fft", "rfft"])
def test_dtypes(name):
    for given, expected in (
        (engine.float32, engine.complex64),
        (engine.float64, engine.complex128),
        (engine.int64, engine.complex64),
        (engine.bool, engine.complex64),
    ):
        assert getattr(F, name)(wrap(np.ones(4)).to(given)).dtype is expected
    assert F.irfft(wrap(np.ones(3, "complex64"))).dtype is engine.float32


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_frequencies_and_shifts(n):
    np.testing.assert_allclose(F.fftfreq(n, 0.5).numpy(), np.fft.fftfreq(n, 0.5).astype("float32"))
    np.testing.assert_allclose(F.rfftfreq(n).numpy(), np.fft.rfftfreq(n).astype("float32"))
    x = rng.standard_normal((n, 3))
    for dim in (None, 0, (0, 1)):
        np.testing.assert_array_equal(F.fftshift(wrap(x), dim).numpy(), np.fft.fftshift(x, dim))
        np.testing.assert_array_equal(F.ifftshift(wrap(x), dim).numpy(), np.fft.ifftshift(x, dim))


def test_every_name_has_a_docstring_with_shapes():
    for name in F.__all__:
        assert "->" in getattr(F, name).__doc__


def test_the_functions_of_torch_before_1_8():
    x = rng.standard_normal((2, 4, 6))
    pairs = engine.rfft(wrap(x), 2)
    np.testing.assert_allclose(engine.view_as_complex(pairs).numpy(), np.fft.rfft2(x), atol=1e-12)
    np.testing.assert_allclose(engine.irfft(pairs, 2, signal_sizes=(4, 6)).numpy(), x, atol=1e-12)
    both = engine.rfft(wrap(x), 2, onesided=False)
    np.testing.assert_allclose(engine.irfft(both, 2, onesided=False).numpy(), x, atol=1e-12)
    np.testing.assert_allclose(engine.ifft(both, 2).numpy()[..., 0], x, atol=1e-12)
    np.testing.assert_allclose(engine.fft(engine.ifft(both, 2), 2).numpy(), both.numpy(), atol=1e-10)
    np.testing.assert_allclose(both.ifft(1, True).fft(1, True).numpy(), both.numpy(), atol=1e-10)
    with pytest.raises(RuntimeError, match="last dimension of size 2"):
        engine.fft(wrap(x), 1)
