"""Gradients of weights by generated code, against the plain route in float64."""

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
from engine.ops.convolution import generated
from engine.ops.convolution import generated_weights as weights
from engine.ops.convolution import numpy as by_numpy
from engine.ops.generated import route

pytestmark = pytest.mark.skipif(not processor.available(), reason=f"generated code is {processor.describe()}")

GEOMETRIES = [  # N, C, size, O, kernel, padding, dilation, groups
    (2, 12, (9, 14), 8, (3, 3), (1, 1), (1, 1), 2),
    (1, 6, (8, 17), 3, (3, 2), (0, 1), (2, 3), 3),
    (3, 8, (5, 5), 10, (1, 3), (0, 1), (1, 1), 1),
    (2, 6, (40,), 14, (5,), (2,), (1,), 2),
    (1, 2, (4, 33), 9, (4, 4), (3, 0), (1, 2), 1),
]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Three threads, whatever this machine has, however little there is."""
    monkeypatch.setattr(threads, "_count", 3)
    monkeypatch.setattr(route, "SHARE", 0)
    monkeypatch.setattr(weights, "_FEWEST", 0)
    monkeypatch.setattr(weights, "_known", LRU(1024))
    monkeypatch.setattr(processor, "always", lambda: True)
    yield


def drawn(*shape: int, seed: int) -> np.ndarray:
    return np.random.default_rng((*shape, seed)).standard_normal(shape).astype("float32")


def never() -> Any:
    raise AssertionError("the plain route")


def operands(geometry: Any) -> tuple[np.ndarray, np.ndarray, tuple[int, ...], ConvGeometry]:
    """g, x, the shape of the weight, the geometry."""
    count, channels, size, outputs, kernel, padding, dilation, groups = geometry
    each = ConvGeometry((1,) * len(size), padding, dilation, groups)
    g = drawn(count, outputs, *each.output_size(size, kernel), seed=1)
    return g, drawn(count, channels, *size, seed=0), (outputs, channels // groups, *kernel), each


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
@pytest.mark.parametrize("widest", [4, 8, 16])
def test_they_agree_with_the_plain_route(geometry: Any, widest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (weights, generated):
        monkeypatch.setattr(module, "lanes", lambda: widest)
    monkeypatch.setattr(weights, "registers", lambda: 32 if widest == 16 else 16)
    g, x, size, each = operands(geometry)
    assert weights.serves(g, x, size, each)
    want = by_numpy._weight_by_arrays(np, g.astype("float64"), x.astype("float64"), size, each)
    for _ in range(2):
        found = weights.backward_weight(g, x, size, each, never)
        assert found.shape == size and found.dtype == np.float32
        np.testing.assert_allclose(found, want, rtol=0, atol=2e-6 * float(abs(want).max()))


def test_an_infinity_stays_with_the_places_that_meet_it() -> None:
    g, x, size, each = operands(GEOMETRIES[0])
    x[0, 0, 3, 0] = np.inf
    want = by_numpy._weight_by_arrays(np, g, x, size, each)
    found = weights.backward_weight(g, x, size, each, lambda: by_numpy._weight_by_arrays(np, g, x, size, each))
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)


def test_what_they_do_not_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    g, x, size, each = operands(GEOMETRIES[0])
    assert not weights.serves(g.astype("float64"), x.astype("float64"), size, each)
    assert not weights.serves(g, x.transpose(0, 1, 3, 2), size, each)
    assert not weights.serves(g, x, size, each._replace(stride=(1, 2)))
    assert not weights.serves(g[..., :-1].copy(), x, size, each)
    assert not weights.serves(g, x, (8, 6, 1, 1), each)
    assert not weights.serves(g[..., :3].copy(), x[..., :3].copy(), size, each)
    monkeypatch.setattr(weights, "_FEWEST", 1 << 30)
    assert not weights.serves(g, x, size, each)


def test_convolutions_in_groups_take_them(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    plain = weights._Weight.run
    monkeypatch.setattr(weights._Weight, "run", lambda self, *a: taken.append(1) or plain(self, *a))
    monkeypatch.setattr("engine.dispatch.choosing.onednn_kernels", lambda: False)
    x, w = (engine.from_numpy(drawn(*shape, seed=2)).requires_grad_() for shape in ((2, 16, 12, 12), (24, 4, 3, 3)))
    made = engine.nn.functional.conv2d(x, w, None, 1, 1, 1, 4)
    made.backward(engine.ones_like(made))
    assert taken
    each, ones = ConvGeometry((1, 1), (1, 1), (1, 1), 4), np.ones(made.shape)
    want = by_numpy._weight_by_arrays(np, ones, x.detach().numpy().astype("float64"), (24, 4, 3, 3), each)
    np.testing.assert_allclose(w.grad.numpy(), want, rtol=1e-5, atol=1e-4)
