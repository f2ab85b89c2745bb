"""Convolutions of windows of channels-last pictures, and their gradients, against the plain route in float64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from engine.backends.cpu import threads
from engine.backends.cpu.relayout import to_channels_last
from engine.core.geometry import ConvGeometry
from engine.core.layouts import ChannelsLast
from engine.kernels import processor
from engine.ops.convolution import generated_windows as windows
from engine.ops.convolution import numpy as by_numpy
from engine.ops.generated import route

pytestmark = pytest.mark.skipif(not processor.available(), reason=f"generated code is {processor.describe()}")

GEOMETRIES = [  # N, C, O, size, kernel, stride, padding, dilation
    (2, 3, 16, (9, 11), (3, 3), (1, 1), (1, 1), (1, 1)),
    (1, 3, 64, (33, 30), (7, 7), (2, 2), (3, 3), (1, 1)),  # the rows of the kernel in parts, where they are shrunk
    (3, 16, 32, (8, 8), (1, 1), (2, 2), (0, 0), (1, 1)),  # places that meet no window
    (2, 20, 48, (10, 7), (3, 2), (2, 1), (1, 0), (1, 1)),
    (2, 5, 16, (9, 10), (2, 3), (1, 1), (2, 1), (3, 2)),
    (1, 32, 24, (6, 6), (3, 3), (3, 3), (0, 0), (1, 1)),  # half vectors, where they are of 16
    (2, 8, 80, (3, 3), (2, 2), (1, 1), (3, 4), (1, 1)),  # windows that are padding alone
    (4, 16, 112, (1, 5), (1, 4), (4, 3), (0, 2), (1, 1)),  # steps wider than the kernel
    (1, 7, 16, (40, 5), (5, 1), (1, 1), (2, 0), (1, 1)),
]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Three threads, whatever this machine has, however little there is."""
    monkeypatch.setattr(threads, "_count", 3)
    monkeypatch.setattr(route, "SHARE", 0)
    yield


def drawn(*shape: int, seed: int) -> np.ndarray:
    return np.random.default_rng((*shape, seed)).standard_normal(shape).astype("float32")


def picture(array: np.ndarray) -> np.ndarray:
    """Memory (N, H, W, C)."""
    return to_channels_last(array).view(np.ndarray)


def near(found: np.ndarray, wanted: np.ndarray) -> None:
    assert found.shape == wanted.shape and found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-6 * float(abs(wanted).max()))


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_they_agree_with_the_plain_route(geometry: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    count, channels, outputs, size, kernel, *steps = geometry
    windowed = ConvGeometry(*steps)
    out = windowed.output_size(size, kernel)
    x, w = drawn(count, channels, *size, seed=0), drawn(outputs, channels, *kernel, seed=1)
    bias, g = drawn(outputs, seed=2), drawn(count, outputs, *out, seed=3)
    wide = [a.astype("float64") for a in (x, w, bias, g)]
    image, slope = picture(x), picture(g)
    for part in (windows._PART, 1):
        monkeypatch.setattr(windows, "_PART", part)
        way = windows.Forward(x.shape, w.shape, out, windowed)
        for weight in (w, w.view(ChannelsLast), picture(w)):
            for added in (None, bias):
                want = by_numpy.plain(np, *wide[:2], None if added is None else wide[2], windowed)
                for _ in range(2):  # the second time with the weight that was kept
                    near(way.run(image, weight, added, picture(np.full_like(g, np.nan))), want)
    want = by_numpy.backward_weight(np, wide[3], wide[0], w.shape, windowed)
    for summed in (windows._SUMMED, 1):
        monkeypatch.setattr(windows, "_SUMMED", summed)
        near(windows.Weight(x.shape, w.shape, g.shape, windowed).run(image, slope, np.full_like(w, np.nan)), want)


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_the_gradient_of_the_input(geometry: Any) -> None:
    count, outputs, channels, size, kernel, *steps = geometry  # it makes vectors of the input's channels
    windowed = ConvGeometry(*steps)
    out = windowed.output_size(size, kernel)
    w, g = drawn(outputs, channels, *kernel, seed=1), drawn(count, outputs, *out, seed=3)
    shape = (count, channels, *size)
    assert windows.Input.fits(windowed)
    want = by_numpy.backward_input(np, g.astype("float64"), w.astype("float64"), shape, windowed)
    way = windows.Input(shape, w.shape, g.shape, windowed)
    near(way.run(picture(g), w, picture(np.full(shape, np.nan, "float32"))), want)


def test_what_they_do_not_serve() -> None:
    assert not windows.Input.fits(ConvGeometry((2, 1), (0, 0), (2, 1)))
    assert windows.Input.fits(ConvGeometry((2, 1), (0, 0), (1, 2)))
    assert windows.serves(64) and not windows.serves(1 + 64)


def test_a_weight_is_arranged_once_until_it_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = picture(drawn(1, 8, 9, 9, seed=0)), drawn(32, 8, 3, 3, seed=1).view(ChannelsLast)
    way = windows.Forward(x.shape, w.shape, (9, 9), ConvGeometry((1, 1), (1, 1), (1, 1)))
    made = []
    plain = windows.Forward.arranged
    monkeypatch.setattr(windows.Forward, "arranged", lambda *a: made.append(1) or plain(*a))
    for _ in range(3):
        way.run(x, w, None, picture(np.empty((1, 32, 9, 9), "float32")))
    assert len(made) == 1
    w.packed = None
    way.run(x, w, None, picture(np.empty((1, 32, 9, 9), "float32")))
    assert len(made) == 2
