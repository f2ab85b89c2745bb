"""Pooling, its gradient and batch norm of channels-last pictures in generated code, against definitions in Python."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

import engine
from engine.backends import onednn
from engine.backends.cpu import threads
from engine.backends.kept import Cache
from engine.dispatch import choosing
from engine.kernels import cpu, processor
from engine.layouts import ChannelsLast, empty_channels_last, to_channels_last
from engine.ops.generated import channels, launch, trial

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
def fresh(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No kernel of another test, nothing switched off; whatever there is serves at once, with threads."""
    monkeypatch.setattr(cpu, "cache", Cache(tmp_path_factory.getbasetemp().parent / "llvm"))
    monkeypatch.setattr(channels, "_known", {})
    monkeypatch.setattr(channels, "_entries", {})
    monkeypatch.setattr(launch, "_warned", set())
    monkeypatch.setattr(trial, "MANY", 0)
    monkeypatch.setattr(choosing, "_left", [0])
    monkeypatch.setattr(processor, "always", lambda: True)
    monkeypatch.setattr(trial, "SHARE", 0)
    yield


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
    ).shape[2:]  # fmt: skip
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
    found = channels.pooled(x, want.shape, made(want.shape), geometry, refused)
    np.testing.assert_array_equal(found, want)
    g = picture(want.shape)
    of_x = np.zeros(x.shape, "float64")
    for at in product(*map(range, want.shape)):
        of_x[at[0], at[1]].reshape(-1)[places[at]] += g[at]
    found = channels.unpooled(g, x, made(x.shape), geometry, refused)
    np.testing.assert_allclose(found, of_x, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("kind", ["normal", "few"])
@pytest.mark.parametrize("kernel", [(2, 2), (3, 1), (2, 4)])
def test_pooling_of_a_rectifier(kernel: Any, kind: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_count", count)
    shape = (3, 24, 6, 8)
    x = picture(shape, kind)
    most, places = pooled(x, (shape, kernel, kernel, (0, 0), (1, 1), False))
    code = channels.Rectified(shape, kernel)
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
    monkeypatch.setattr(launch, "slower", lambda mine, there, margin=1.0: False)
    monkeypatch.setattr(channels, "MANY", 0)
    x = picture((8, 64, 64, 64))
    code = channels.Rectified(x.shape, (2, 2))

    def plain(slope: Any) -> Any:
        windows = np.ascontiguousarray(x).reshape(8, 64, 32, 2, 32, 2)
        y = np.maximum(windows.max((3, 5)), 0)
        of_x = (windows == y[:, :, :, None, :, None]) * (slope * (y > 0))[:, :, :, None, :, None]
        of_x = of_x.reshape(x.shape).astype("float32")
        return y, of_x, of_x.sum((0, 2, 3))

    with pytest.warns(RuntimeWarning, match="pooling of a rectifier is switched off"):
        assert code.forward(x, lambda slope: (*plain(slope)[:2], plain(slope)[2] + 9)) is None
    assert code.forward(x, refused) is None
    channels._known.clear()
    channels._entries.clear()
    launch._warned.clear()
    y, _ = code.forward(x, plain)
    np.testing.assert_array_equal(y, plain(np.ones(y.shape, "float32"))[0])
    assert code.forward(x, refused) is not None


@pytest.mark.parametrize("shape", [(2, 16, 9, 7), (1, 24, 12, 12), (3, 132, 5, 6)])
@pytest.mark.parametrize("large", [1 << 30, 1])
@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm_of_a_converted_picture(
    shape: Any, affine: bool, large: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "_LARGE", large)
    monkeypatch.setattr(channels, "onednn_kernels", lambda: False)
    monkeypatch.setattr(channels, "several", lambda work: 3)
    x, draw = picture(shape).view(ChannelsLast), np.random.default_rng(1)
    mean, variance, weight, bias = draw.random((4, shape[1]), "float32") + np.float32(0.1)
    given = (mean, variance, weight, bias) if affine else (mean, variance, None, None)
    found = channels.PASSES["batch_norm_eval"](lambda *_: refused(), np, x, *given, 1e-3)
    assert type(found) is ChannelsLast and found.shape == shape
    each = lambda v: v.astype("float64")[:, None, None]
    want = (np.asarray(x, "float64") - each(mean)) / np.sqrt(each(variance) + 1e-3)
    want = want * each(weight) + each(bias) if affine else want
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("change", ["channels", "large", "double", "strided", "a weight"])
def test_what_batch_norm_leaves_to_the_way_there_was(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = (2, 15 if change == "channels" else 16, 9, 7)
    if change == "large":  # oneDNN's has threads
        monkeypatch.setattr(channels, "_LARGE", 100)
        monkeypatch.setattr(channels, "onednn_kernels", lambda: True)
    x, vectors = picture(shape).view(ChannelsLast), np.ones((4, shape[1]), "float32")
    if change == "double":
        vectors = vectors.astype("float64")
    elif change == "strided":
        vectors = np.ones((shape[1], 4), "float32").T
    elif change == "a weight":  # converted where it lies, in torch's order
        x = np.ascontiguousarray(x).view(ChannelsLast)
    left = channels.PASSES["batch_norm_eval"](lambda *_: "left", np, x, *vectors, 1e-5)
    assert left == "left"


def test_a_pass_that_is_slower_or_wrong_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "always", lambda: False)
    monkeypatch.setattr(launch.trials, "trusted", False)
    monkeypatch.setattr(launch, "slower", lambda mine, there, margin: True)
    x, geometry = picture((8, 64, 64, 64)), ((2, 2), (2, 2), (0, 0), (1, 1))
    shape = (8, 64, 32, 32)
    want = np.asarray(x).reshape(8, 64, 32, 2, 32, 2).max((3, 5))
    calls = []
    for made in (lambda: empty_channels_last(shape, "float32"), refused):  # it is not asked again
        found = channels.pooled(x, shape, made, geometry, lambda: calls.append(1) or want)
        np.testing.assert_array_equal(found, want)
    channels._known.clear()
    monkeypatch.setattr(launch, "slower", lambda mine, there, margin: False)
    made = lambda: empty_channels_last(shape, "float32")
    with pytest.warns(RuntimeWarning, match="max pooling is switched off"):
        found = channels.pooled(x, shape, made, geometry, lambda: want + 1)
    np.testing.assert_array_equal(found, want + 1)
    np.testing.assert_array_equal(channels.pooled(x, shape, refused, geometry, lambda: want + 1), want + 1)


def test_the_engine_takes_them() -> None:
    engine.manual_seed(0)
    layer, norm = engine.nn.Conv2d(8, 32, 1), engine.nn.BatchNorm2d(32).eval()
    x = engine.randn(2, 8, 12, 12)
    with engine.no_grad():
        y = layer(x)
        taken = engine.nn.functional.max_pool2d(norm(y), 3, 2, 1)
        want = engine.nn.functional.max_pool2d(norm(y.double().float().clone()).double(), 3, 2, 1)
    assert channels._known
    np.testing.assert_allclose(taken.numpy(), want.numpy(), rtol=1e-4, atol=1e-5)
