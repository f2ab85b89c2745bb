"""Fourier transforms as generated kernels: against numpy's in float64, and what is left to the library."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import engine
from engine.kernels import processor
from engine.ops.generated import spectra

pytestmark = [
    pytest.mark.skipif(not processor.available(), reason=f"generated code is {processor.describe()}"),
    pytest.mark.usefixtures("always"),
]

# Lengths with every radix; lines one by one and side by side, a vector and a part of one; one pass in place.
SHAPES = [
    *[(35, n) for n in (1, 2, 3, 4, 5, 7, 8, 9, 11, 13, 16, 22, 26, 30, 35, 48, 100, 154, 243)],
    *[(3, 16, 16), (2, 5, 20), (3, 7, 7), (4, 6, 39), (2, 13, 13), (5, 4, 11, 6)],
]


@pytest.fixture
def always(launched: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each transform is launched, none by the library."""
    monkeypatch.setattr(spectra, "_routes", type(spectra._routes)(64))
    monkeypatch.setattr(spectra._Route, "chosen", lambda self, mine, plain, operands: mine())


def library() -> Any:
    raise AssertionError("left to the library")


def values(shape: tuple[int, ...], complex: bool) -> np.ndarray:
    r = np.random.default_rng(sum(shape))
    found = r.standard_normal(shape).astype("float32")
    return found + 1j * r.standard_normal(shape).astype("float32") if complex else found


def near(got: Any, want: Any) -> None:
    assert got.shape == want.shape and got.dtype == ("float32" if want.dtype.kind == "f" else "complex64")
    assert np.abs(got - want).max() <= 4e-7 * np.abs(want).max()


def axes_of(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    last = len(shape) - 1
    return [(last,)] if last == 1 else [(last,), tuple(range(1, last + 1)), tuple(range(last, 0, -1)), (-2, -1)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("norm", [0, 1, 2])
def test_complex_values(shape: tuple[int, ...], norm: int) -> None:
    x = values(shape, True)
    wide = x.astype("complex128")
    for axes in axes_of(shape):
        want = np.fft.fftn(wide, axes=axes, norm=("backward", "ortho", "forward")[norm])
        near(spectra.complex_lines(x, axes, norm, False, library), want)
        want = np.fft.ifftn(wide, axes=axes, norm=("forward", "ortho", "backward")[norm])
        near(spectra.complex_lines(x, axes, norm, True, library), want)


@pytest.mark.parametrize("shape", SHAPES)
def test_real_values(shape: tuple[int, ...]) -> None:
    x = values(shape, False)
    for axes in axes_of(shape):
        if axes[-1] % len(shape) != len(shape) - 1:
            continue
        near(spectra.real_lines(x, axes, 0, True, 1.0, library), np.fft.rfftn(x.astype("float64"), axes=axes))
        want = np.fft.fftn(x.astype("float64"), axes=axes, norm="ortho")
        near(spectra.real_lines(x, axes, 1, False, 1.0, library), want)
        twice = np.fft.rfftn(x.astype("float64"), axes=axes)
        twice[..., 1 : (shape[-1] + 1) // 2] *= 2
        near(spectra.real_lines(x, axes, 0, True, 2.0, library), twice)


@pytest.mark.parametrize("shape", SHAPES)
def test_half_spectra(shape: tuple[int, ...]) -> None:
    x = values((*shape[:-1], shape[-1] // 2 + 1), True)
    for axes in axes_of(shape):
        if axes[-1] % len(shape) != len(shape) - 1:
            continue
        sizes = [shape[axis] for axis in axes]
        want = np.fft.irfftn(x.astype("complex128"), s=sizes, axes=axes)
        near(spectra.half_spectra(x, axes, 2, shape[-1], 1.0, library), want)
        halved = x.astype("complex128")
        halved[..., 1 : (shape[-1] + 1) // 2] *= 0.5
        want = np.fft.irfftn(halved, s=sizes, axes=axes, norm="forward")
        near(spectra.half_spectra(x, axes, 0, shape[-1], 0.5, library), want)


@pytest.mark.parametrize("n", [48, 77])
def test_what_is_not_finite_stays_in_its_line(n: int) -> None:
    x = values((35, n), False)
    x[3, 5], x[20, 0] = np.nan, np.inf
    others = np.delete(np.arange(35), [3, 20])
    made = spectra.real_lines(x, (1,), 0, True, 1.0, library)
    assert np.isfinite(made[others]).all() and np.isnan(made[3]).all() and not np.isfinite(made[20]).any()
    near(made[others], np.fft.rfft(x[others].astype("float64")))


def test_operands_that_are_not_contiguous() -> None:
    x = values((40, 24), True)
    near(spectra.complex_lines(x.T, (1,), 0, False, library), np.fft.fft(x.T.astype("complex128")))
    real = values((24, 40), False)[::2, ::-1]
    near(spectra.real_lines(real, (1,), 0, True, 1.0, library), np.fft.rfft(real.astype("float64")))


def test_a_transform_is_compared_with_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(spectra, "_routes", type(spectra._routes)(64))
    monkeypatch.setattr(spectra.launch, "slower", lambda *_: False)
    x = values((40, 24), True).T
    plain = lambda: np.fft.fft(x).astype("complex64")
    for _ in range(40):
        near(spectra.complex_lines(x, (1,), 0, False, plain), np.fft.fft(x.astype("complex128")))
    (route,) = spectra._routes.young.values()
    assert route.proven
    near(spectra.complex_lines(x, (1,), 0, False, library), np.fft.fft(x.astype("complex128")))


def test_threads_share_the_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spectra, "several", lambda work: 3)
    x = values((2, 50, 39), True)
    near(spectra.complex_lines(x, (1, 2), 0, False, library), np.fft.fftn(x.astype("complex128"), axes=(1, 2)))


def test_what_is_left() -> None:
    plain = lambda: "library"
    assert spectra.complex_lines(values((35, 17), True), (1,), 0, False, plain) == "library"  # a prime
    assert spectra.complex_lines(values((1, 64), True), (1,), 0, False, plain) == "library"  # one line
    assert spectra.complex_lines(values((35, 8), True).astype("complex128"), (1,), 0, False, plain) == "library"
    assert spectra.complex_lines(values((0, 8), True), (1,), 0, False, plain) == "library"
    assert spectra.real_lines(values((35, 8), False), (0,), 0, True, 1.0, plain) == "library"  # not the last dim
    assert spectra.half_spectra(values((35, 5), True), (0,), 0, 68, 1.0, plain) == "library"
    assert spectra.half_spectra(values((35, 5), True), (1,), 0, 12, 1.0, plain) == "library"  # not all of the half


@pytest.mark.parametrize("n", [12, 15])
def test_gradients_of_both_orders(n: int) -> None:
    """They are transforms of halves, too."""
    x = engine.tensor(values((16, 3, n), False), requires_grad=True)
    weights = engine.tensor(values((16, 3, n // 2 + 1), True))

    def loss(x: Any, weights: Any) -> Any:
        spectrum = engine.fft.rfft2(x)
        return (spectrum * weights).abs().sum() + (engine.fft.irfft2(spectrum * spectrum, s=(3, n)) ** 2).sum()

    (first,) = engine.autograd.grad(loss(x, weights), x, create_graph=True)
    (second,) = engine.autograd.grad((first * first).sum(), x)
    wide = x.detach().double().requires_grad_()
    (want,) = engine.autograd.grad(loss(wide, weights.to(engine.complex128)), wide, create_graph=True)
    (again,) = engine.autograd.grad((want * want).sum(), wide)
    for got, expected in ((first, want), (second, again)):
        assert (got - expected).abs().max() <= 1e-4 * expected.abs().max()
