"""Channels-last pictures without oneDNN: what layers compute, which way they take, and how results lie."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import engine
from engine.backends.cpu import packing
from engine.backends.cpu.relayout import to_channels_last
from engine.core.geometry import ConvGeometry
from engine.core.layouts import ChannelsLast
from engine.core.lru import LRU
from engine.dispatch import OPS, choosing, with_fact
from engine.kernels import processor
from engine.nn import functional as F
from engine.ops.convolution import generated_windows as windows
from engine.ops.convolution import generated_winograd as winograd
from engine.ops.convolution import images
from engine.ops.convolution import numpy as by_numpy
from engine.ops.generated import channels, launch, route
from engine.ops.norm import generated as norm
from engine.tensor import raw_array, rewrap

pytestmark = pytest.mark.skipif(not processor.available(), reason=f"generated code is {processor.describe()}")


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No oneDNN, no kernel of another test, nothing switched off."""
    for module in (windows, winograd):
        monkeypatch.setattr(module, "_entries", {})
    for module in (images, winograd):
        monkeypatch.setattr(module, "_known", LRU(1024))
    channels.known.clear()
    channels.entries.clear()
    monkeypatch.setattr(launch, "_warned", set())
    monkeypatch.setattr(route, "MANY", 0)
    for module in (choosing, norm):
        monkeypatch.setattr(module, "onednn_kernels", lambda: False)
    monkeypatch.setattr(choosing, "_left", [0])
    monkeypatch.setattr(launch.trials, "trusted", False)
    monkeypatch.setattr(processor, "always", lambda: False)  # nor is anything taken without a proof
    monkeypatch.setenv("ENGINE_ROUTES", "static")
    yield
    channels.known.clear()
    channels.entries.clear()


def lies(t: engine.Tensor) -> str:
    array = raw_array(t)
    return "converted" if type(array) is ChannelsLast and not array.flags.c_contiguous else "in order"


def near(found: Any, wanted: Any, tolerance: float = 1e-5) -> None:
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance * float(abs(wanted).max()))


class Network(engine.nn.Module):
    """A convolution of each kind, with what stands between them."""

    def __init__(self) -> None:
        super().__init__()
        nn = engine.nn
        self.stem, self.norm = nn.Conv2d(3, 32, 7, 2, 3, bias=False), nn.BatchNorm2d(32)
        self.same, self.other = nn.Conv2d(32, 32, 3, 1, 1, bias=False), nn.BatchNorm2d(32)
        self.less, self.down = nn.Conv2d(32, 64, 3, 2, 1), nn.Conv2d(32, 64, 1, 2)
        self.grouped, self.back = nn.Conv2d(64, 64, 3, groups=2), nn.ConvTranspose2d(64, 32, 3, 2)
        self.odd = nn.Conv2d(32, 7, 3)

    def forward(self, x: engine.Tensor) -> list[engine.Tensor]:
        x = F.max_pool2d(engine.relu(self.norm(self.stem(x))), 3, 2, 1)
        y = engine.relu(self.other(self.same(x)) + x)
        z = self.less(y)
        z += self.down(y)
        z = self.back(self.grouped(engine.relu_(z)))
        return [y, z, F.avg_pool2d(self.odd(z), 2)]


def trained(dtype: Any = None, steps: int = 3) -> list[Any]:
    """Results, gradients and statistics of the last of some steps."""
    engine.manual_seed(3)
    model, x = Network(), engine.randn(4, 3, 64, 64)
    model, x = (model.double(), x.double()) if dtype else (model, x)
    for _ in range(steps):
        model.zero_grad()
        x = x.detach().requires_grad_()
        results = model(x)
        sum(((n + 1) * r).square().mean() for n, r in enumerate(results)).backward()
    return [t.detach().numpy() for t in (*results, x.grad, *[p.grad for p in model.parameters()], *model.buffers())]


def test_a_network_learns_as_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    want = trained(engine.float64)
    for _ in range(2):  # with proofs, and without
        for found, wanted in zip(trained(), want):
            near(found, wanted, 2e-4)
        monkeypatch.setattr(processor, "always", lambda: True)
        monkeypatch.setattr(launch.trials, "trusted", True)
        images._known.clear()


@pytest.mark.parametrize("planned", [False, True])
def test_a_network_infers_as_in_float64(planned: bool) -> None:
    engine.manual_seed(4)
    model, x = Network().eval(), engine.randn(4, 3, 64, 64)
    with engine.no_grad():
        want = [t.numpy() for t in copy.deepcopy(model).double()(x.double())]
        run = engine.compile(model) if planned else model
        for _ in range(3):
            found = run(x)
            for f, w in zip(found, want):
                near(f.numpy(), w, 2e-5)


def test_results_stay_as_pictures_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    engine.manual_seed(5)
    model, x = Network().eval(), engine.randn(4, 3, 64, 64)
    with engine.no_grad():
        for _ in range(3):
            y = model.stem(x)
            assert y.is_contiguous()
        monkeypatch.setattr(launch, "PAYS", 0)
        steps = [y, model.norm(y), engine.relu(y), F.max_pool2d(y, 2), model.same(y), model.down(y), y + y.clone()]
        assert [lies(s) for s in steps] == ["converted"] * len(steps)
        assert lies(model.odd(y)) == lies(x) == "in order"  # seven outputs fill no vector


def calls_of(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which ways calls take."""
    seen: list[str] = []
    for module in (windows, winograd):
        for name in ("Forward", "Input", "Weight"):
            kind = getattr(module, name)
            word, plain = f"{name} by {module.__name__.rpartition('_')[2]}", kind.run
            monkeypatch.setattr(kind, "run", lambda *a, _p=plain, _w=word: seen.append(_w) or _p(*a))
    for name in ("plain", "backward_input", "backward_weight"):
        function = getattr(by_numpy, name)
        monkeypatch.setattr(by_numpy, name, lambda *a, _f=function, **k: seen.append("plain") or _f(*a, **k))
    return seen


def step(stride: int = 1) -> tuple[Any, ...]:
    """Result and gradients of a layer."""
    engine.manual_seed(0)
    x = engine.randn(4, 64, 24, 24).requires_grad_()
    layer = engine.nn.Conv2d(64, 64, 3, stride, padding=1)
    y = layer(x)
    y.square().sum().backward()
    return tuple(t.detach().numpy() for t in (y, x.grad, layer.weight.grad, layer.bias.grad))


@pytest.mark.parametrize("stride", [1, 2])
def test_first_calls_prove_a_way_and_later_ones_only_compute(stride: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = calls_of(monkeypatch)
    want = step(stride)
    assert "plain" in seen
    way = "winograd" if stride == 1 else "windows"
    for _ in range(2):
        seen.clear()
        for a, b in zip(step(stride), want):
            near(a, b)
        assert seen == [f"{name} by {way}" for name in ("Forward", "Input", "Weight")]


def test_a_slower_one_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = calls_of(monkeypatch)
    monkeypatch.setattr(launch, "slower", lambda mine, there, margin=1.05, of=(): margin < windows._Route.margin)
    step()
    seen.clear()
    step()  # the windows stay
    assert seen == [f"{name} by windows" for name in ("Forward", "Input", "Weight")]


def test_one_that_is_wrong_is_switched_off_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    want = step(2)
    images._known.clear()
    windows._entries.clear()

    def wrong(function: Any, *options: Any) -> Any:
        return route.linked(lambda *given: function(*given).replace("fadd", "fsub"), *options)

    monkeypatch.setattr(windows, "linked", wrong)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            for a, b in zip(step(2), want):
                near(a, b)
    told = {str(w.message).partition(" is switched off")[0] for w in caught if "switched off" in str(w.message)}
    assert told >= {"the generated kernel of convolution"}


def test_weights_of_an_evaluation_are_kept_until_they_are_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = engine.nn.Conv2d(64, 64, 3, 2, padding=1), engine.randn(4, 64, 24, 24)
    made = []
    plain = windows.Forward.arranged
    monkeypatch.setattr(windows.Forward, "arranged", lambda *a: made.append(1) or plain(*a))
    with engine.no_grad():
        for _ in range(4):
            first = layer(x)
        assert len(made) == 1
        layer.weight.mul_(2)
        layer.bias.mul_(2)
        near(layer(x).numpy(), 2 * first.numpy())
        assert len(made) == 2
        monkeypatch.setattr(packing, "_MOST", 0)  # too much is kept
        layer.weight.mul_(1)
        near(layer(x).numpy(), 2 * first.numpy())


def test_what_a_user_made_channels_last_stays_so() -> None:
    x = engine.randn(4, 64, 24, 24).to(memory_format=engine.channels_last)
    for layer in (engine.nn.Conv2d(64, 32, 3, padding=1), engine.nn.Conv2d(64, 32, 3, 2)):
        want = by_numpy.plain(
            np,
            x.double().contiguous().numpy(),
            layer.weight.detach().double().numpy(),
            layer.bias.detach().double().numpy(),
            ConvGeometry(layer.stride, layer.padding, (1, 1)),
        )
        with engine.no_grad():
            for _ in range(3):
                y = layer(x)
                assert y.is_contiguous(memory_format=engine.channels_last) and not y.is_contiguous()
                near(y.numpy(), want)


def test_results_that_are_not_finite_decide_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = calls_of(monkeypatch)
    layer, x = engine.nn.Conv2d(64, 64, 3, padding=1), engine.randn(4, 64, 24, 24)
    hole = x.clone()
    hole[1, 2, 3, 4] = float("nan")
    with engine.no_grad():
        assert int(layer(hole).isnan().sum()) == 64 * 9
        layer(x)
        seen.clear()
        layer(x)
    assert seen == ["Forward by winograd"]


def test_a_sum_of_a_picture_and_what_lies_in_order_is_a_picture() -> None:
    x = np.random.default_rng(0).standard_normal((4, 64, 80, 80)).astype("float32")
    picture, plain = rewrap(to_channels_last(x)), engine.tensor(x)
    for found, want in ((picture + plain, x + x), (picture * plain, x * x)):
        assert lies(found) == "converted"
        near(found.numpy(), want)
    near((plain + picture).numpy(), x + x)
    more = rewrap(to_channels_last(x))
    more += picture
    assert lies(more) == "converted"
    more += plain
    near(more.numpy(), 3 * x)


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_of_pictures_is_that_of_their_pixels(training: bool) -> None:
    x = np.random.default_rng(0).standard_normal((3, 20, 9, 7)).astype("float32") + 2
    found = []
    for picture in (True, False):
        t = rewrap(to_channels_last(x.copy())) if picture else engine.tensor(x)
        t.requires_grad_()
        w, b = (engine.full((20,), v).requires_grad_() for v in (2.0, 3.0))
        mean, var = engine.full((20,), 0.5), engine.full((20,), 1.5)
        y = F.batch_norm(t, mean, var, w, b, training)
        assert lies(y) == ("converted" if picture else "in order")
        y.pow(3).sum().backward()
        found.append([v.detach().numpy() for v in (y, t.grad, w.grad, b.grad, mean, var)])
    for a, b in zip(*found):
        near(a, b)


def test_each_has_a_kernel() -> None:
    choosing._pictured()
    assert {name for name, record in OPS.items() if "images" in record.kernels} == with_fact("image_kernel").keys()
