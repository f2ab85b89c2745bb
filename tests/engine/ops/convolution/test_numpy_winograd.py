"""3x3 convolutions by Winograd's transforms, against windows and one product."""

from __future__ import annotations

import numpy as np
import pytest

import engine
from engine.backends import mkldnn
from engine.backends.cpu.fast import fast
from engine.core.geometry import ConvGeometry
from engine.nn import functional as F
from engine.ops.convolution import numpy as by_numpy
from engine.ops.convolution import numpy_winograd as _winograd

ONES = (1, 1)


def rand(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape)


@pytest.mark.parametrize(
    "shape, padding",
    [
        ((2, 3, 9, 8), (1, 1)),
        ((3, 4, 7, 7), (0, 1)),
        ((1, 2, 6, 5), (2, 2)),
        ((9, 3, 7, 6), (1, 0)),
        ((8, 2, 14, 13), (1, 1)),
        ((8, 2, 3, 16), (2, 3)),
        ((8, 2, 3, 3), (0, 0)),
        ((1, 2, 3, 4), (0, 0)),
        ((5, 40, 40, 40), (1, 1)),
    ],
)
def test_any_size_and_padding(shape: tuple, padding: tuple) -> None:
    x, w = rand(*shape), rand(6, shape[1], 3, 3)
    wanted = by_numpy.forward(np, x, w, None, ConvGeometry(ONES, padding, ONES))
    found = np.empty_like(wanted)
    assert _winograd.forward(fast, x, w, padding, found)
    np.testing.assert_allclose(found, wanted, 1e-12, 1e-12)


def test_single_precision_stays_precise() -> None:
    x, w = rand(1, 64, 32, 32).astype("float32"), rand(64, 64, 3, 3).astype("float32")
    exact = by_numpy.forward(np, x.astype(float), w.astype(float), None, ConvGeometry(ONES, ONES, ONES))
    found = np.empty(exact.shape, "float32")
    assert _winograd.serves(fast, x, w, found, False)
    assert _winograd.forward(fast, x, w, (1, 1), found)
    assert abs(found - exact).max() < 2e-6 * abs(exact).max()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bad_element_spoils_its_windows_only(bad: float) -> None:
    x, w, b = (rand(*s).astype("float32") for s in ((2, 32, 20, 20), (32, 32, 3, 3), (32,)))
    x[1, 5, 10, 11] = bad
    found = by_numpy.forward(fast, x, w, b, ConvGeometry(ONES, ONES, ONES))
    spoilt = np.zeros(found.shape, bool)
    spoilt[1, :, 9:12, 10:13] = True
    np.testing.assert_array_equal(~np.isfinite(found), spoilt)


def test_what_is_kept_of_a_weight_follows_the_weight() -> None:
    x, w = (engine.from_numpy(rand(*s).astype("float32")) for s in ((2, 32, 20, 20), (32, 32, 3, 3)))
    w = w * 1
    with mkldnn.flags(enabled=False), engine.no_grad():
        first = F.conv2d(x, w, padding=1)
        assert engine.equal(F.conv2d(x, w, padding=1), first)
        w.mul_(2)
        # by another way, perhaps: generated code comes when it is worth it
        engine.testing.assert_close(F.conv2d(x, w, padding=1), first * 2, rtol=1e-4, atol=1e-3)
        w.zero_()
        assert not bool(F.conv2d(x, w, padding=1).any())


def test_steps_along_the_last_dim() -> None:
    for stride, kernel in (((2, 2), (7, 7)), ((1, 3), (3, 5)), ((2, 4), (1, 3)), ((3, 2), (2, 2))):
        x, w = rand(2, 3, 21, 24), rand(4, 3, *kernel)
        given = (None, ConvGeometry(stride, (2, 1), ONES))
        found, wanted = (by_numpy.forward(xp, x, w, *given) for xp in (fast, np))
        np.testing.assert_allclose(found, wanted, 1e-12, 1e-12)
