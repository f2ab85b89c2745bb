"""Pooling of channels-last pictures and its gradient in generated code, against definitions in Python."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

import engine
from engine.backends import onednn
from engine.backends.cpu import threads
from engine.backends.cpu.relayout import empty_channels_last, to_channels_last
from engine.dispatch import OPS, choosing
from engine.kernels import processor
from engine.ops.generated import channels, launch, route
from engine.ops.pooling import generated

pytestmark = [
    pytest.mark.skipif(not processor.available(), reason=f"generated code is {processor.describe()}"),
    pytest.mark.skipif(not onednn.is_available(), reason=onednn.describe()),
    pytest.mark.onednn,
]

WINDOWS = [  # (N, C, H, W), kernel, stride, padding, dilation, ceil_mode
    ((2, 16, 6, 8), (2, 2), (2, 2), (0, 0), (1, 1), False),  # each place in one window
    ((2, 16, 7, 9), (2, 2), (2, 2), (0, 0), (1, 1), False),  # the last ones in none
    ((1, 32, 7, 9), (3, 3), (2, 2), (1, 1), (1, 1), False),
    ((3, 24, 7, 9), (3, 2), (2, 1), (1, 0), (1, 1), True),
    ((2, 20, 9, 8), (2, 3), (1, 2), (1, 1), (3, 2), False),
    ((2, 8, 5, 5), (5, 5), (5, 5), (0, 0), (1, 1), False),  # one result
    ((1, 4, 5, 6), (2, 2), (3, 3), (0, 0), (1, 1), True),  # steps wider than the windows
]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No kernel of another test, nothing switched off; whatever there is serves at once, with threads."""
    channels.known.clear()
    channels.entries.clear()
    monkeypatch.setattr(launch, "_warned", set())
    monkeypatch.setattr(route, "MANY", 0)
    monkeypatch.setattr(choosing, "_left", [0])
    monkeypatch.setattr(processor, "always", lambda: True)
    monkeypatch.setattr(route, "SHARE", 0)
    yield
    channels.known.clear()
    channels.entries.clear()


def picture(shape: Any, kind: str = "normal") -> np.ndarray:
    """Memory (N, H, W, C); "few": of few different values, with nan and infinities among them."""
    draw = np.random.default_rng((*shape, len(kind)))
    if kind == "normal":
        drawn = draw.standard_normal(shape)
    else:
        drawn = draw.choice(
            [0.0, -0.0, 1.0, 2.0, -np.inf, np.inf, np.nan], shape, p=[0.2, 0.2, 0.2, 0.1, 0.2, 0.05, 0.05]
        )
    return to_channels_last(drawn.astype("float32")).view(np.ndarray)


def pooled(x: np.ndarray, window: Any) -> tuple[np.ndarray, np.ndarray]:
    """(maxima, the flat place of each), by PyTorch's rule: the first of the largest, the last nan."""
    _, (tall, wide), (down, across), (above, left), (far, wider), ceil = window
    n, c, h, w = x.shape
    options = dict(kernel_size=(tall, wide), stride=(down, across), padding=(above, left), dilation=(far, wider))
    rows, columns = engine.nn.functional.max_pool2d(
        engine.zeros(1, 1, h, w, dtype=engine.float64), ceil_mode=ceil, **options
    ).shape[2:]
    most, places = np.full((n, c, rows, columns), -np.inf, "float32"), np.zeros((n, c, rows, columns), int)
    for at in product(range(n), range(c), range(rows), range(columns)):
        spots = [
            (i, j)
            for i in range(at[2] * down - above, at[2] * down - above + tall * far, far)
            for j in range(at[3] * across - left, at[3] * across - left + wide * wider, wider)
            if 0 <= i < h and 0 <= j < w
        ]
        places[at] = spots[0][0] * w + spots[0][1]
        for i, j in spots:
            value = x[at[0], at[1], i, j]
            if value > most[at] or np.isnan(value):
                most[at], places[at] = value, i * w + j
    return most, places


def refused() -> Any:
    raise AssertionError("the way there was is taken")


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("kind", ["normal", "few"])
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_pooling_and_its_gradient(window: Any, kind: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_count", count)
    x, geometry = picture(window[0], kind), window[1:5]
    want, places = pooled(x, window)
    made = lambda shape: lambda: np.copyto(a := empty_channels_last(shape, "float32").view(np.ndarray), 7) or a
    found = generated.pooled(x, want.shape, made(want.shape), geometry, refused)
    np.testing.assert_array_equal(found, want)
    g = picture(want.shape)
    of_x = np.zeros(x.shape, "float64")
    for at in product(*map(range, want.shape)):
        of_x[at[0], at[1]].reshape(-1)[places[at]] += g[at]
    found = generated.unpooled(g, x, made(x.shape), geometry, refused)
    np.testing.assert_allclose(found, of_x, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", ["normal", "few"])
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_the_gradient_of_images_in_torchs_order(window: Any, kind: str) -> None:
    """Where there is no oneDNN, too: numpy takes a pass for each place of a window."""
    from engine.ops.pooling import images

    x = np.ascontiguousarray(picture(window[0], kind))
    output = np.ascontiguousarray(pooled(x, window)[0])
    g, record = np.ascontiguousarray(picture(output.shape)), OPS["max_pool_gradient"]
    found = images._max_pool_gradient(np, g, x, output, *window[1:5])
    np.testing.assert_allclose(found, record.kernel(np, g, x, output, *window[1:5]), rtol=1e-6, atol=1e-6)
    assert type(found) is np.ndarray and found.flags.c_contiguous
    few = x[:, :3].copy(), output[:, :3].copy()  # channels that fill no vector
    assert images._max_pool_gradient(np, g[:, :3].copy(), *few, *window[1:5]) is NotImplemented


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("kind", ["normal", "few"])
@pytest.mark.parametrize("kernel", [(2, 2), (3, 1), (2, 4)])
def test_pooling_of_a_rectifier(kernel: Any, kind: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_count", count)
    shape = (3, 24, 6, 8)
    x = picture(shape, kind)
    most, places = pooled(x, (shape, kernel, kernel, (0, 0), (1, 1), False))
    code = generated.Rectified(shape, kernel)
    found, numbers = code.forward(x, refused)
    np.testing.assert_array_equal(found, np.where(most > 0, most, np.where(np.isnan(most), most, 0)))
    assert numbers.dtype == np.uint8 and numbers.size == most.size
    g = picture(most.shape)
    of_x = np.zeros(shape, "float32")
    for at in product(*map(range, most.shape)):
        if not most[at] <= 0:
            of_x[at[0], at[1]].reshape(-1)[places[at]] = g[at]
    np.testing.assert_array_equal(code.backward(g, numbers, False), of_x)
    made, sums = code.backward(g, numbers, True)
    np.testing.assert_array_equal(made, of_x)
    np.testing.assert_allclose(sums, of_x.sum((0, 2, 3)), rtol=1e-5, atol=1e-5)


def test_pooling_of_a_rectifier_proves_itself_with_its_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "always", lambda: False)
    monkeypatch.setattr(launch.trials, "trusted", False)
    monkeypatch.setattr(launch, "slower", lambda mine, there, margin=1.0, of=(): False)
    monkeypatch.setattr(generated, "MANY", 0)
    x = picture((8, 64, 64, 64))
    code = generated.Rectified(x.shape, (2, 2))

    def plain(slope: Any) -> Any:
        windows = np.ascontiguousarray(x).reshape(8, 64, 32, 2, 32, 2)
        y = np.maximum(windows.max((3, 5)), 0)
        of_x = (windows == y[:, :, :, None, :, None]) * (slope * (y > 0))[:, :, :, None, :, None]
        of_x = of_x.reshape(x.shape).astype("float32")
        return y, of_x, of_x.sum((0, 2, 3))

    with pytest.warns(RuntimeWarning, match="pooling of a rectifier is switched off"):
        assert code.forward(x, lambda slope: (*plain(slope)[:2], plain(slope)[2] + 9)) is None
    assert code.forward(x, refused) is None
    channels.known.clear()
    channels.entries.clear()
    launch._warned.clear()
    y, _ = code.forward(x, plain)
    np.testing.assert_array_equal(y, plain(np.ones(y.shape, "float32"))[0])
    assert code.forward(x, refused) is not None


def test_a_pass_that_is_slower_or_wrong_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "always", lambda: False)
    monkeypatch.setattr(launch.trials, "trusted", False)
    monkeypatch.setattr(launch, "slower", lambda mine, there, margin=1.05, of=(): True)
    x, geometry = picture((8, 64, 64, 64)), ((2, 2), (2, 2), (0, 0), (1, 1))
    shape = (8, 64, 32, 32)
    want = np.asarray(x).reshape(8, 64, 32, 2, 32, 2).max((3, 5))
    calls = []
    for made in (lambda: empty_channels_last(shape, "float32"), refused):  # it is not asked again
        found = generated.pooled(x, shape, made, geometry, lambda: calls.append(1) or want)
        np.testing.assert_array_equal(found, want)
    channels.known.clear()
    monkeypatch.setattr(launch, "slower", lambda mine, there, margin=1.05, of=(): False)
    made = lambda: empty_channels_last(shape, "float32")
    with pytest.warns(RuntimeWarning, match="max pooling is switched off"):
        found = generated.pooled(x, shape, made, geometry, lambda: want + 1)
    np.testing.assert_array_equal(found, want + 1)
    np.testing.assert_array_equal(generated.pooled(x, shape, refused, geometry, lambda: want + 1), want + 1)


def test_the_engine_takes_them() -> None:
    engine.manual_seed(0)
    layer, norm = engine.nn.Conv2d(8, 32, 3, padding=1), engine.nn.BatchNorm2d(32).eval()
    x = engine.randn(2, 8, 12, 12)
    with engine.no_grad():
        y = layer(x)
        taken = engine.nn.functional.max_pool2d(norm(y), 3, 2, 1)
        want = engine.nn.functional.max_pool2d(norm(y.double().float().clone()).double(), 3, 2, 1)
    assert channels.known
    np.testing.assert_allclose(taken.numpy(), want.numpy(), rtol=1e-4, atol=1e-5)
