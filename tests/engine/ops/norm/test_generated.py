"""Batch norm of channels-last pictures in generated code, against its definition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from engine.backends import onednn
from engine.backends.cpu.relayout import to_channels_last
from engine.core.layouts import ChannelsLast
from engine.dispatch import choosing
from engine.kernels import processor
from engine.ops.generated import channels, launch, route
from engine.ops.norm import generated

pytestmark = [
    pytest.mark.skipif(not processor.available(), reason=f"generated code is {processor.describe()}"),
    pytest.mark.skipif(not onednn.is_available(), reason=onednn.describe()),
    pytest.mark.onednn,
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


def picture(shape: Any) -> ChannelsLast:
    return to_channels_last(np.random.default_rng(shape).standard_normal(shape).astype("float32"))


def refused() -> Any:
    raise AssertionError("the way there was is taken")


@pytest.mark.parametrize("shape", [(2, 16, 9, 7), (1, 24, 12, 12), (3, 132, 5, 6)])
@pytest.mark.parametrize("large", [1 << 30, 1])
@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm_of_a_converted_picture(
    shape: Any, affine: bool, large: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generated, "_LARGE", large)
    monkeypatch.setattr(generated, "onednn_kernels", lambda: False)
    monkeypatch.setattr(generated, "several", lambda work: 3)
    x, draw = picture(shape), np.random.default_rng(1)
    mean, variance, weight, bias = draw.random((4, shape[1]), "float32") + np.float32(0.1)
    given = (mean, variance, weight, bias) if affine else (mean, variance, None, None)
    found = generated._batch_norm_eval(lambda *_: refused(), np, x, *given, 1e-3)
    assert type(found) is ChannelsLast and found.shape == shape
    each = lambda v: v.astype("float64")[:, None, None]
    want = (np.asarray(x, "float64") - each(mean)) / np.sqrt(each(variance) + 1e-3)
    want = want * each(weight) + each(bias) if affine else want
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("change", ["channels", "large", "double", "strided", "a weight"])
def test_what_batch_norm_leaves_to_the_way_there_was(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = (2, 15 if change == "channels" else 16, 9, 7)
    if change == "large":  # oneDNN's has threads
        monkeypatch.setattr(generated, "_LARGE", 100)
        monkeypatch.setattr(generated, "onednn_kernels", lambda: True)
    x, vectors = picture(shape), np.ones((4, shape[1]), "float32")
    if change == "double":
        vectors = vectors.astype("float64")
    elif change == "strided":
        vectors = np.ones((shape[1], 4), "float32").T
    elif change == "a weight":  # converted where it lies, in torch's order
        x = np.ascontiguousarray(x).view(ChannelsLast)
    left = generated._batch_norm_eval(lambda *_: "left", np, x, *vectors, 1e-5)
    assert left == "left"
