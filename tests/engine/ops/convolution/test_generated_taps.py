"""Weights by places of the kernel, and back, against numpy's copies."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from engine.backends.cpu import threads
from engine.kernels import processor
from engine.ops.convolution import generated_taps as taps
from engine.ops.generated import route

pytestmark = pytest.mark.skipif(not processor.available(), reason=f"generated code is {processor.describe()}")


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Three threads, whatever this machine has."""
    monkeypatch.setattr(threads, "_count", 3)
    monkeypatch.setattr(route, "SHARE", 0)
    yield


@pytest.mark.parametrize("widest", [4, 8, 16])
@pytest.mark.parametrize("kernel", [(3, 3), (4, 4), (1, 5), (7, 7), (1, 1), (2, 1)])
@pytest.mark.parametrize(("outputs", "channels", "panel"), [(32, 16, 16), (48, 64, 16), (16, 24, 8)])
def test_they_are_copies(
    outputs: int, channels: int, panel: int, kernel: tuple[int, ...], widest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taps, "lanes", lambda: widest)
    w = np.random.default_rng(0).standard_normal((outputs, channels, *kernel)).astype("float32")
    by_taps = w.transpose(2, 3, 1, 0)  # (*kernel, C, O)
    for of_input, given in ((False, w), (True, w.swapaxes(0, 1).copy()), (False, np.asfortranarray(w))):
        parts = np.full(w.size, np.nan, "float32")
        taps.spread(given, parts, panel, of_input)
        want = by_taps.reshape(*kernel, channels, outputs // panel, panel).transpose(3, 0, 1, 2, 4)
        np.testing.assert_array_equal(parts.reshape(want.shape), want)
    out = np.full_like(w, np.nan)
    taps.join(np.ascontiguousarray(by_taps), out)
    np.testing.assert_array_equal(out, w)
