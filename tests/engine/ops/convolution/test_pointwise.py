"""Convolutions of few single elements and their gradients, against the route of every geometry in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import engine
from engine.core.geometry import ConvGeometry
from engine.dispatch.choosing import generated
from engine.ops.convolution import numpy as by_numpy
from engine.ops.convolution import pointwise
from engine.ops.products.images import products_of_places

CASES = [  # N, C, size, O, stride
    (1, 16, (8, 9), 12, (2, 2)),
    (3, 5, (7, 6), 4, (2, 1)),
    (2, 3, (11,), 7, (3,)),
    (1, 4, (3, 5, 4), 6, (1, 2, 2)),
    (2, 30, (2, 2), 8, (1, 1)),  # more channels than places
    (5, 6, (1, 1), 9, (1, 1)),
    (7, 5, (3, 3), 6, (1, 1)),
]


def drawn(*shape: int, dtype: str, seed: int) -> np.ndarray:
    return np.random.default_rng((*shape, seed)).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_products_agree_with_the_route_of_every_geometry(case: Any, dtype: str) -> None:
    count, channels, size, outputs, stride = case
    n = len(size)
    geometry = ConvGeometry(stride, (0,) * n, (1,) * n, 1)
    x, w = drawn(count, channels, *size, dtype=dtype, seed=0), drawn(outputs, channels, *(1,) * n, dtype=dtype, seed=1)
    bias, g = drawn(outputs, dtype=dtype, seed=2), None
    wide_x, wide_w, wide_bias = (a.astype("float64") for a in (x, w, bias))
    near = {"rtol": 0, "atol": 2e-5 if dtype == "float32" else 1e-13}
    for added, wide in ((None, None), (bias, wide_bias)):
        want = by_numpy.plain(np, wide_x, wide_w, wide, geometry)
        if count <= 4:
            found = pointwise.few(x, w, added, *geometry)
            assert found is not None
            made = found(x, w, added)
            assert made.dtype == dtype and made.flags.c_contiguous
            np.testing.assert_allclose(made, want, **near)
        g = drawn(*want.shape, dtype=dtype, seed=3)
    assert g is not None
    found = pointwise.gradients(g, x, w, (True, True, True), *geometry[:3], False, 1)
    if count > 4 and math.prod(size) > 1 and not generated(products_of_places.op):
        assert found is NotImplemented  # libraries multiply one after the other
        return
    wide_g = g.astype("float64")
    wanted = (
        by_numpy._input_by_arrays(np, wide_g, wide_w, x.shape, geometry),
        by_numpy._weight_by_arrays(np, wide_g, wide_x, w.shape, geometry),
        wide_g.sum((0, *range(2, 2 + n))),
    )
    for made, want in zip(found, wanted):
        assert made.dtype == dtype and made.shape == want.shape
        np.testing.assert_allclose(made, want, **near)
    assert pointwise.gradients(g, x, w, (False, True, False), *geometry[:3], False, 1)[::2] == (None, None)


def test_what_they_leave() -> None:
    x, w, bias = np.zeros((1, 4, 8, 8), "float32"), np.zeros((6, 4, 1, 1), "float32"), np.zeros(6, "float32")
    two, none, one = (2, 2), (0, 0), (1, 1)
    assert pointwise.few(x, w, bias, two, none, one, 1) is not None
    assert pointwise.few(x, w, bias[:5], two, none, one, 1) is None
    assert pointwise.few(x, w, bias.astype("float64"), two, none, one, 1) is None
    assert pointwise.few(x, w[:, :3], None, two, none, one, 1) is None
    assert pointwise.few(x.transpose(0, 1, 3, 2), w, None, two, none, one, 1) is None
    assert pointwise.few(x.astype("float16"), w.astype("float16"), None, two, none, one, 1) is None
    assert pointwise.few(x, w, None, two, one, one, 1) is None
    assert pointwise.few(x, w[:, :2], None, two, none, one, 2) is None
    assert pointwise.few(x, w, None, (0, 1), none, one, 1) is None
    several = pointwise.few(np.zeros((5, 4, 8, 8), "float32"), w, None, one, none, one, 1)
    assert (several is not None) == generated(products_of_places.op)  # libraries multiply one after the other
    assert pointwise.few(np.zeros((5, 4, 1, 1), "float32"), w, None, one, none, one, 1) is None
    for size, steps, served in (((1, 64, 64, 64), one, True), ((1, 64, 64, 64), two, False), ((1, 8, 9, 8), two, True)):
        x, w = np.zeros(size, "float32"), np.zeros((256, size[1], 1, 1), "float32")
        assert (pointwise.few(x, w, None, steps, none, one, 1) is not None) == served
    x, w = np.zeros((1, 512, 64, 64), "float32"), np.zeros((256, 512, 1, 1), "float32")
    assert pointwise.few(x, w, None, one, none, one, 1) is None
    x, w = np.zeros((1, 4, 8, 8), "float32"), np.zeros((6, 4, 1, 1), "float32")
    g = np.zeros((1, 6, 4, 4), "float32")
    every = (True, True, True)
    assert pointwise.gradients(g, x, w, every, two, none, one, False, 1) is not NotImplemented
    assert pointwise.gradients(g, x, w, every, two, none, one, True, 1) is NotImplemented
    assert pointwise.gradients(g[:, :, :3], x, w, every, two, none, one, False, 1) is NotImplemented


@pytest.mark.parametrize("place", [(1, 1), (6, 6)])
def test_a_backward_pass_takes_arrays(place: tuple[int, int]) -> None:
    """The gradients of a convolution are those that its formula of tensors gives; hooks see tensors."""
    seen: list[Any] = []
    x, w, b = (
        engine.from_numpy(drawn(*s, dtype="float32", seed=5)).requires_grad_()
        for s in ((2, 8, *place), (4, 8, 1, 1), (4,))
    )
    made = engine.nn.functional.conv2d(x, w, b, 2)
    kept = engine.from_numpy(drawn(*made.shape, dtype="float32", seed=6))
    wanted = engine.autograd.grad(made, (x, w, b), kept, create_graph=True)
    w.register_hook(seen.append)
    made = engine.nn.functional.conv2d(x, w, b, 2)
    made.backward(kept)
    for leaf, want in zip((x, w, b), wanted):
        np.testing.assert_allclose(leaf.grad.numpy(), want.detach().numpy(), rtol=1e-5, atol=1e-5)
    assert len(seen) == 1 and type(seen[0]) is engine.Tensor
