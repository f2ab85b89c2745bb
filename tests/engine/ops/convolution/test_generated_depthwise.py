"""Convolutions of each channel with a kernel of its own, and their gradients, against the plain route in float64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import engine
from engine.backends.cpu import threads
from engine.core.geometry import ConvGeometry
from engine.core.lru import LRU
from engine.kernels import processor
from engine.ops.convolution import generated_depthwise as depthwise
from engine.ops.convolution import numpy as by_numpy
from engine.ops.generated import route

pytestmark = pytest.mark.skipif(not processor.available(), reason=f"generated code is {processor.describe()}")

GEOMETRIES = [  # N, C, size, kernel, stride, padding, dilation
    (1, 8, (17, 56), (3, 3), (1, 1), (1, 1), (1, 1)),
    (2, 5, (7, 7), (3, 3), (1, 1), (1, 1), (1, 1)),
    (2, 3, (9, 11), (5, 2), (1, 1), (2, 0), (1, 2)),
    (1, 3, (20, 33), (7, 7), (1, 1), (3, 3), (1, 1)),  # more sums than registers
    (2, 2, (70, 5), (64, 1), (1, 1), (32, 0), (1, 1)),
    (3, 4, (200,), (5,), (1,), (2,), (1,)),
    (1, 4, (37,), (31,), (1,), (15,), (1,)),
    (2, 3, (4, 10), (2, 3), (1, 1), (0, 2), (2, 3)),
    (1, 3, (5, 6, 20), (3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1)),
    (2, 2, (7, 4, 9), (2, 1, 3), (1, 1, 1), (1, 0, 2), (3, 1, 2)),
    (2, 3, (200,), (9,), (2,), (4,), (1,)),
    (2, 3, (41,), (3,), (2,), (0,), (3,)),
    (1, 3, (64,), (7,), (3,), (2,), (2,)),
    (1, 2, (100,), (3,), (5,), (1,), (1,)),  # not all is read
    (2, 3, (18, 40), (3, 3), (2, 2), (1, 1), (1, 1)),
    (1, 3, (13, 35), (3, 3), (2, 2), (1, 1), (1, 1)),
    (1, 2, (12, 17), (5, 4), (3, 2), (2, 1), (1, 1)),
    (1, 2, (9, 17), (3, 3), (2, 1), (1, 2), (2, 1)),
    (1, 2, (9, 37), (1, 3), (6, 4), (0, 0), (1, 1)),
    (2, 2, (5, 8, 33), (3, 3, 3), (2, 2, 2), (1, 1, 1), (1, 1, 1)),
    (1, 2, (6, 7, 16), (3, 2, 3), (2, 1, 3), (0, 1, 1), (1, 2, 1)),
]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Three threads, whatever this machine has, however little there is."""
    monkeypatch.setattr(threads, "_count", 3)
    monkeypatch.setattr(route, "SHARE", 0)
    monkeypatch.setattr(depthwise, "_known", LRU(1024))
    monkeypatch.setattr(processor, "always", lambda: True)
    yield


def drawn(*shape: int, seed: int) -> np.ndarray:
    return np.random.default_rng((*shape, seed)).standard_normal(shape).astype("float32")


def never() -> Any:
    raise AssertionError("the plain route")


def near(found: np.ndarray, wanted: np.ndarray) -> None:
    assert found.shape == wanted.shape and found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-6 * float(abs(wanted).max()))


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
@pytest.mark.parametrize("widest", [4, 8, 16])
def test_they_agree_with_the_plain_route(geometry: Any, widest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(depthwise, "lanes", lambda: widest)
    count, channels, size, kernel, stride, padding, dilation = geometry
    each = ConvGeometry(stride, padding, dilation, channels)
    x, w, bias = drawn(count, channels, *size, seed=0), drawn(channels, 1, *kernel, seed=1), drawn(channels, seed=2)
    g = drawn(count, channels, *each.output_size(size, kernel), seed=3)
    wide_x, wide_w, wide_bias, wide_g = (a.astype("float64") for a in (x, w, bias, g))
    assert depthwise.serves(x.shape, w.shape, each, x, w)
    run = depthwise.Forward(x.shape, w.shape, each, never)
    for added, wide in ((None, None), (bias, wide_bias)):
        near(run(x, w, added), by_numpy.plain(np, wide_x, wide_w, wide, each))
    want = by_numpy.backward_input(np, wide_g, wide_w, x.shape, each)
    near(depthwise.backward_input(g, w, x.shape, each, never), want)
    want = by_numpy.backward_weight(np, wide_g, wide_x, w.shape, each)
    near(depthwise.backward_weight(g, x, w.shape, each, never), want)


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("side", [16, 21])
def test_an_infinity_stays_with_the_places_that_meet_it(side: int, step: int) -> None:
    """The last vector of a row overlaps the one before."""
    each, width = ConvGeometry((1, step), (0, 0), (1, 1), 2), (side - 1) * step + 3
    for column in range(width):
        x, w, g = drawn(1, 2, 6, width, seed=0), drawn(2, 1, 3, 3, seed=1), drawn(1, 2, 4, side, seed=2)
        x[0, 0, 2, column] = np.inf
        found = depthwise.Forward(x.shape, w.shape, each, never)(x, w, None)
        np.testing.assert_allclose(found, by_numpy.plain(np, x, w, None, each), rtol=1e-5, atol=1e-5)
        found = depthwise.backward_weight(g, x, w.shape, each, never)
        np.testing.assert_allclose(found, by_numpy.backward_weight(np, g, x, w.shape, each), rtol=1e-4, atol=1e-4)
        if column < side:
            g[0, 1, 2, column] = np.inf
            found = depthwise.backward_input(g, w, x.shape, each, never)
            want = by_numpy._input_by_arrays(np, g, w, x.shape, each)
            np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)


def test_what_they_do_not_serve() -> None:
    one, x, w = ConvGeometry((1, 1), (1, 1), (1, 1), 4), np.zeros((2, 4, 8, 8), "float32"), (4, 1, 3, 3)
    assert depthwise.serves(x.shape, w, one, x)
    assert not depthwise.serves(x.shape, w, one, x.astype("float64"))
    assert not depthwise.serves(x.shape, w, one, x.transpose(0, 1, 3, 2))
    assert not depthwise.serves(x.shape, (8, 1, 3, 3), one, x)
    assert not depthwise.serves(x.shape, (4, 2, 3, 3), one._replace(groups=2), x)
    assert depthwise.serves(x.shape, w, one._replace(stride=(2, 2)), x)
    assert not depthwise.serves(x.shape, w, one._replace(stride=(1, 3)), x)  # rows that fill no vector
    assert not depthwise.serves(x.shape, w, one._replace(padding=(1, 3)), x)  # windows that are padding alone
    assert not depthwise.serves((2, 4, 8, 3), w, one, x)
    assert not depthwise.serves((2, 4, 8, 1 << 14), w, one, x)
    assert not depthwise.serves((0, 4, 8, 8), w, one, x[:0])
    assert depthwise.serves((2, 4, 8, 8, 8), (4, 1, 3, 3, 3), ConvGeometry(*[(1, 1, 1)] * 3, 4), x)
    assert not depthwise.serves((2, 4, 8, 8, 8), (4, 1, 5, 5, 5), ConvGeometry(*[(1, 1, 1)] * 3, 4), x)


@pytest.mark.parametrize(("size", "step"), [((9, 12), 1), ((40,), 1), ((9, 12), 2), ((40,), 2), ((4, 9, 12), 1)])
def test_convolutions_take_them(size: tuple[int, ...], step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward and both gradients, with oneDNN and without."""
    taken = []
    plain = depthwise._Route.jobs
    monkeypatch.setattr(depthwise._Route, "jobs", lambda self, *a, **k: taken.append(self.name) or plain(self, *a, **k))
    n = len(size)
    x, w = drawn(8, 64, *size, seed=0), drawn(64, 1, *(3,) * n, seed=1)
    given = [engine.tensor(a).requires_grad_() for a in (x, w)]
    functional = engine.nn.functional
    made = (functional.conv1d, functional.conv2d, functional.conv3d)[n - 1](*given, None, step, 1, 1, 64)
    made.backward(engine.ones_like(made))
    assert len(taken) == len(set(taken)) == 3
    each, ones = ConvGeometry((step,) * n, (1,) * n, (1,) * n, 64), np.ones(made.shape)
    wide_x, wide_w = x.astype("float64"), w.astype("float64")
    near(made.detach().numpy(), by_numpy.plain(np, wide_x, wide_w, None, each))
    near(given[0].grad.numpy(), by_numpy.backward_input(np, ones, wide_w, x.shape, each))
    near(given[1].grad.numpy(), by_numpy.backward_weight(np, ones, wide_x, w.shape, each))
