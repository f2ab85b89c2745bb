"""Winograd's convolutions and their gradients against sums in float64, and the choice between them and oneDNN."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import engine
from engine.backends import onednn
from engine.backends.cpu import packing, threads
from engine.backends.cpu.relayout import to_channels_last
from engine.backends.onednn import primitives
from engine.core.geometry import ConvGeometry
from engine.core.layouts import ChannelsLast
from engine.core.lru import LRU
from engine.dispatch import choosing
from engine.kernels import llvm_winograd, processor
from engine.ops.convolution import generated_winograd as winograd
from engine.ops.convolution import numpy as by_numpy
from engine.ops.convolution import onednn as conv
from engine.ops.generated import launch, route, stages
from engine.programs.inference import layer_programs as programs

pytestmark = [
    pytest.mark.skipif(not processor.available(), reason=f"generated code is {processor.describe()}"),
    pytest.mark.skipif(not onednn.is_available(), reason=onednn.describe()),
    pytest.mark.onednn,
]

GEOMETRIES = [  # N, C, O, size, padding
    (1, 16, 16, (4, 4), (1, 1)),
    (2, 16, 48, (9, 11), (1, 1)),  # tiles that are cut off
    (3, 48, 16, (5, 17), (0, 2)),
    (2, 32, 64, (7, 6), (2, 0)),
    (1, 80, 112, (3, 3), (0, 0)),  # one result
    (2, 40, 24, (9, 10), (1, 1)),  # half vectors, where they are of 16
    (1, 16, 32, (1, 2), (2, 2)),  # less than a window
    (5, 64, 128, (14, 14), (1, 1)),  # several blocks
]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No kernel of another test, nothing switched off."""
    monkeypatch.setattr(winograd, "_known", LRU(1024))
    monkeypatch.setattr(winograd, "_entries", {})
    monkeypatch.setattr(launch, "_warned", set())
    monkeypatch.setattr(route, "MANY", 0)
    monkeypatch.setattr(choosing, "_left", [0])
    monkeypatch.setattr(launch.trials, "trusted", False)
    monkeypatch.setattr(processor, "always", lambda: False)  # nor is anything taken without a proof
    monkeypatch.setenv("ENGINE_ROUTES", "static")
    yield


@pytest.fixture
def forgotten() -> Iterator[None]:
    """No convolution is known to this thread, before and after."""
    vars(primitives._context).get("primitives", {}).clear()
    yield
    vars(primitives._context).get("primitives", {}).clear()


def images(*shape: int, seed: int = 0) -> np.ndarray:
    """Memory (N, H, W, C)."""
    drawn = np.random.default_rng((*shape, seed)).standard_normal(shape).astype("float32")
    return to_channels_last(drawn).view(np.ndarray)


def direct(x: np.ndarray, w: np.ndarray, padding: Any) -> np.ndarray:
    """The convolution in float64."""
    ones = (1, 1)
    wide = (np.ascontiguousarray(a, "float64") for a in (x, w))
    return by_numpy.plain(np, *wide, None, ConvGeometry(ones, tuple(padding), ones))  # type: ignore[no-any-return]


def near(found: np.ndarray, wanted: np.ndarray) -> None:
    assert found.shape == wanted.shape and found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, rtol=0, atol=4e-6 * float(abs(wanted).max()))


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_forward(geometry: Any, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_count", count)
    monkeypatch.setattr(route, "SHARE", 0)
    samples, channels, outputs, size, padding = geometry
    x, w = images(samples, channels, *size), images(outputs, channels, 3, 3)
    bias = np.random.default_rng(5).standard_normal(outputs).astype("float32")
    want = direct(x, w, padding)
    for converted in (True, False):
        way = winograd.Forward(None, x.shape, w.shape, padding, converted)
        for weight in (w, np.ascontiguousarray(w).view(ChannelsLast)):
            for added in (None, bias):
                for _ in range(2):  # the second time with the weight that was kept
                    found = way.run(x, weight, added)
                    assert (type(found) is ChannelsLast) is converted
                    near(found, want if added is None else want + added.reshape(-1, 1, 1))


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_gradients(geometry: Any, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_count", count)
    monkeypatch.setattr(route, "SHARE", 0)
    samples, channels, outputs, size, padding = geometry
    x, w = images(samples, channels, *size), images(outputs, channels, 3, 3)
    out = tuple(n + 2 * p - 2 for n, p in zip(size, padding))
    g = images(samples, outputs, *out, seed=1)
    turned = np.ascontiguousarray(w.swapaxes(0, 1)[:, :, ::-1, ::-1])
    want = direct(g, turned, [2 - p for p in padding])
    near(winograd.Input(g.shape, w.shape, padding).run(g, w, np.empty_like(x)), want)
    padded = np.pad(x, ((0, 0), (0, 0), *[(p, p) for p in padding]))
    want = np.zeros(w.shape)
    for i in range(3):
        for j in range(3):
            part = padded[:, :, i : i + out[0], j : j + out[1]].astype("float64")
            want[:, :, i, j] = np.einsum("nohw,nchw->oc", g.astype("float64"), part)
    for held in (1 << 22, 1):
        monkeypatch.setattr(winograd, "_LEAST", 1)  # all tiles at once, and as few as there may be
        monkeypatch.setattr(winograd, "_HELD", held)
        near(winograd.Weight(x.shape, g.shape, padding).run(x, g, np.empty(w.shape, "float32")), want)


@pytest.mark.parametrize("rectified", [False, True])
@pytest.mark.parametrize("place", ["nowhere", "elsewhere", "in place"])
def test_what_follows_in_the_same_pass(place: str, rectified: bool) -> None:
    x, w, y = images(2, 16, 6, 7), images(32, 16, 3, 3), images(2, 32, 6, 7, seed=2)
    bias = np.random.default_rng(5).standard_normal(32).astype("float32")
    want = direct(x, w, (1, 1)) + bias.reshape(-1, 1, 1) + (0 if place == "nowhere" else y.astype("float64"))
    way = winograd.Convolution(2, 16, (6, 7), 32, (1, 1))
    found = y.copy("K") if place == "in place" else np.empty_like(y)
    added = {"nowhere": 0, "elsewhere": y.ctypes.data, "in place": found.ctypes.data}[place]
    weights = way.at_points(w, False)
    way.run(x.ctypes.data, weights.ctypes.data, found.ctypes.data, bias.ctypes.data, added, rectified)
    near(found, np.maximum(want, 0) if rectified else want)


def test_nan_is_not_rectified_away() -> None:
    x, w = images(1, 16, 4, 4), images(16, 16, 3, 3)
    x[0, 3, 1, 2] = np.nan
    found = np.zeros_like(x)
    way = winograd.Convolution(1, 16, (4, 4), 16, (1, 1))
    way.run(x.ctypes.data, way.at_points(w, False).ctypes.data, found.ctypes.data, 0, 0, True)
    assert np.isnan(found).all()  # of the whole tile: docs/reference/deviations.md


def test_values_are_nearer_than_those_of_small_whole_points() -> None:
    x, w = images(1, 512, 14, 14), images(64, 512, 3, 3)
    way = winograd.Forward(None, x.shape, w.shape, (1, 1), True)
    want = direct(x, w, (1, 1))
    error = np.sqrt(np.mean((way.run(x, w, None) - want) ** 2) / np.mean(want**2))
    assert error < 2.5e-6  # 0, +-1, +-2: 3.2e-6


@pytest.mark.parametrize(
    "change",
    [
        dict(shape=(2, 15, 32, 32), weight=(64, 15, 3, 3)),
        dict(weight=(65, 64, 3, 3)),
        dict(weight=(64, 64, 1, 3)),
        dict(stride=(2, 1)),
        dict(dilation=(1, 2)),
        dict(groups=2),
        dict(padding=(3, 1)),
        dict(shape=(2, 64, 32)),
        dict(shape=(1, 64, 4, 4)),
    ],
    ids=str,
)
def test_what_it_does_not_serve(change: dict) -> None:
    served = dict(
        shape=(2, 64, 32, 32), weight=(64, 64, 3, 3), stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=1
    )
    for given in (served, {**served, **change}):
        shape, weight, *geometry = given.values()
        assert winograd.serves(shape, weight, ConvGeometry(*geometry)) == (given is served)


def calls_of(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which ways calls take."""
    seen: list[str] = []
    for kind in (winograd.Forward, winograd.Input, winograd.Weight):
        plain = kind.run
        monkeypatch.setattr(kind, "run", lambda *a, _p=plain, _k=kind: seen.append(_k.__name__) or _p(*a))
    forward = conv.conv.Forward.__call__
    monkeypatch.setattr(conv.conv.Forward, "__call__", lambda *a: seen.append("oneDNN") or forward(*a))
    for name in ("backward_input", "backward_weight"):
        function = getattr(conv.conv, name)
        monkeypatch.setattr(conv.conv, name, lambda *a, _f=function, **k: seen.append("oneDNN") or _f(*a, **k))
    return seen


def step(seed: int = 0) -> tuple[Any, ...]:
    """Result and gradients of a convolution of the engine."""
    engine.manual_seed(seed)
    x = engine.randn(4, 64, 24, 24).requires_grad_()
    layer = engine.nn.Conv2d(64, 64, 3, padding=1)
    y = layer(x)
    y.square().sum().backward()
    return tuple(t.detach().numpy() for t in (y, x.grad, layer.weight.grad, layer.bias.grad))


def same(found: tuple[np.ndarray, ...], wanted: tuple[np.ndarray, ...]) -> None:
    """Of `step`; the gradient of the bias is a sum, whose kernel has trials of its own."""
    for a, b in zip(found[:3], wanted[:3]):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_allclose(found[3], wanted[3], rtol=1e-5)


def test_first_calls_prove_it_and_later_ones_only_compute(forgotten: None, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = calls_of(monkeypatch)
    first = step()
    assert seen == ["oneDNN", "Forward", "oneDNN", "Input", "oneDNN", "Weight"]
    seen.clear()
    same(step(), first)
    assert seen == ["Forward", "Input", "Weight"]


def test_one_that_is_wrong_is_switched_off_with_a_warning(forgotten: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as without:
        without.setattr(conv, "_generated", lambda name: None)
        want = step()
    vars(primitives._context).get("primitives", {}).clear()
    with monkeypatch.context() as wrong, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        wrong.setattr(llvm_winograd, "_FAR", 1.5)
        for name in ("forward", "values", "weights", "gradient"):
            wrong.setattr(llvm_winograd, name, getattr(llvm_winograd, name).__wrapped__)  # which keeps what it printed
        for _ in range(2):
            same(step(), want)
    told = [str(w.message) for w in caught]  # the gradient of the input has the code of forward
    assert len(told) == 2 and all("is switched off" in t for t in told), told


def test_a_slower_one_is_left(forgotten: None, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = calls_of(monkeypatch)
    monkeypatch.setattr(launch, "slower", lambda mine, there, margin=1.05, of=(): True)
    step()
    seen.clear()
    step()
    assert seen == ["oneDNN", "oneDNN", "oneDNN"]


def test_weights_of_an_evaluation_are_kept_until_they_are_written_to(
    forgotten: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer, x = engine.nn.Conv2d(64, 64, 3, padding=1), engine.randn(4, 64, 24, 24)
    made = []
    plain = winograd.Convolution.at_points
    monkeypatch.setattr(winograd.Convolution, "at_points", lambda *a: made.append(1) or plain(*a))
    with engine.no_grad():
        for _ in range(4):
            first = layer(x)
        assert len(made) == 1
        layer.weight.mul_(2)
        layer.bias.mul_(2)
        np.testing.assert_allclose(layer(x).numpy(), 2 * first.numpy(), rtol=0, atol=1e-4)
        assert len(made) == 2


class Block(engine.nn.Module):
    """Convolutions followed by nothing, a rectifier, a sum, and a sum and a rectifier."""

    def __init__(self) -> None:
        super().__init__()
        self.first = engine.nn.Conv2d(64, 64, 3, padding=1)
        self.second = engine.nn.Conv2d(64, 64, 3, padding=1, bias=False)
        self.norm = engine.nn.BatchNorm2d(64)
        self.third = engine.nn.Conv2d(64, 64, 3, padding=1)
        self.last = engine.nn.Conv2d(64, 32, 3)

    def forward(self, x: engine.Tensor) -> engine.Tensor:
        y = engine.relu(self.first(x))
        z = engine.relu(self.norm(self.second(y)) + y)
        return self.last(self.third(z) + z)


@pytest.mark.parametrize("batch", [1, 6])
def test_plans_take_it_with_what_follows(forgotten: None, batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, bool]] = []
    plain = winograd.Prepared.__call__
    monkeypatch.setattr(
        winograd.Prepared, "__call__", lambda self, *a: calls.append((self.added, self.rectified)) or plain(self, *a)
    )
    engine.manual_seed(1)
    model, x = Block().eval(), engine.randn(batch, 64, 24, 24)
    monkeypatch.setattr(conv, "_generated", lambda name: None)
    monkeypatch.setattr(programs, "_FEWEST", 100)  # none
    with engine.no_grad():
        want = model(x)
        made = engine.compile(model)
        for _ in range(3):
            calls.clear()
            near(made(x).numpy(), want.double().numpy())
    assert {rectified for _, rectified in calls} == {True, False}
    assert {bool(added) for added, _ in calls} == {True, False}
    assert len(calls) >= 3  # of one image the last is too little work; of several a few may be taken at a time
    monkeypatch.setattr(launch, "slower", lambda mine, there, margin=1.05, of=(): True)
    winograd._known.clear()
    with engine.no_grad():
        made = engine.compile(Block().eval())
        for _ in range(3):
            calls.clear()
            made(x)
    assert not calls


def test_programs_have_what_plans_chose(forgotten: None, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.manual_seed(1)
    model, x, used = Block().eval(), engine.randn(1, 64, 24, 24), []
    points = stages.points
    monkeypatch.setattr(stages, "points", lambda *a: used.append(a[1]) or points(*a))
    monkeypatch.setattr(conv, "_generated", lambda name: None)
    with engine.no_grad():
        want = model(x)
        made = engine.compile(model)
        for _ in range(3):
            near(made(x).numpy(), want.double().numpy())
    assert len(used) >= 2 and len({id(p.packed_weights.buffer) for p in used}) == len(used)
    assert [name for name in made.plans[0].names if name.startswith("program of ")]


def test_a_weight_that_is_a_picture_is_read_as_it_lies(forgotten: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "always", lambda: True)
    layer, x = engine.nn.Conv2d(64, 64, 3, padding=1), engine.randn(4, 64, 24, 24)
    weight = engine.randn(32, 64, 3, 3)
    want = engine.nn.functional.conv2d(layer.weight.detach().clone().double(), weight.double(), padding=1)
    most = engine.nn.functional.max_pool2d(layer.weight.detach().clone().double(), 2)
    with engine.no_grad():
        layer(x)  # converts the weight, in its memory
        near(engine.nn.functional.conv2d(layer.weight, weight, padding=1).numpy(), want.numpy())
        near(engine.nn.functional.max_pool2d(layer.weight, 2).numpy(), most.numpy())


def test_weights_beyond_those_that_are_kept_are_left_to_onednn(
    forgotten: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = calls_of(monkeypatch)
    layer, x = engine.nn.Conv2d(64, 64, 3, padding=1), engine.randn(4, 64, 24, 24)
    with engine.no_grad():
        want = [layer(x) for _ in range(2)][-1]
        monkeypatch.setattr(packing, "_MOST", 0)
        layer.weight.mul_(1)  # what was kept goes
        seen.clear()
        near(layer(x).numpy(), want.double().numpy())
        assert seen == ["Forward", "oneDNN"]
        monkeypatch.setattr(winograd, "Prepared", None)  # plans make none
        near(engine.compile(layer)(x).numpy(), want.double().numpy())


def test_results_that_are_not_finite_decide_nothing(forgotten: None, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = calls_of(monkeypatch)
    layer, x = engine.nn.Conv2d(64, 64, 3, padding=1), engine.randn(4, 64, 24, 24)
    hole = x.clone()
    hole[1, 2, 3, 4] = float("nan")
    with engine.no_grad():
        assert int(layer(hole).isnan().sum()) == 64 * 9  # as oneDNN has it
        layer(x)
        seen.clear()
        layer(x)
    assert seen == ["Forward"]


def test_a_trial_of_few_tiles_has_to_be_won_by_more() -> None:
    """A weight for few tiles is read from memory in a network, where a trial finds it in the cache."""
    of = lambda side: winograd.tried(winograd._Outputs, (1, 64, side, side), (64, 64, 3, 3), (1, 1)).margin
    assert of(8) < 0.5 < of(28) < of(112) < 1.05
