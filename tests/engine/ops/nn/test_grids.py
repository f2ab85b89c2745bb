"""`grid_sample` of more points than samples have, against a loop over points; what is outside is not read."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import engine
from engine.nn import functional as F
from engine.ops.nn import grids


def _expected(x: np.ndarray, grid: np.ndarray, border: bool) -> np.ndarray:
    """Linear interpolation with align_corners, point by point."""
    size = x.shape[2:]
    out = grid.shape[1:-1]
    result = np.zeros((*x.shape[:2], *out))
    for n in range(x.shape[0]):
        for at in np.ndindex(*out):
            place = [(grid[(n, *at)][len(size) - 1 - d] + 1) * (s - 1) / 2 for d, s in enumerate(size)]
            if border:
                place = [min(max(p, 0), s - 1) for p, s in zip(place, size)]
            for corner in itertools.product((0, 1), repeat=len(size)):
                index = [math.floor(p) + k for p, k in zip(place, corner)]
                if all(0 <= i < s for i, s in zip(index, size)):
                    weight = math.prod(1 - abs(p - i) for p, i in zip(place, index))
                    result[(n, slice(None), *at)] += weight * x[(n, slice(None), *index)]
    return result


@pytest.mark.parametrize("border", [False, True])
@pytest.mark.parametrize(
    ("shape", "out"), [((2, 3, 7, 9), (20, 31)), ((1, 70, 5, 4), (40, 33)), ((2, 3, 4, 5, 3), (9, 8, 7))]
)
def test_many_points(shape: tuple, out: tuple, border: bool) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape)
    grid = rng.uniform(-1.4, 1.4, (shape[0], *out, len(out)))
    t = engine.tensor(x, requires_grad=True)
    g = engine.tensor(grid)
    mode = "border" if border else "zeros"
    found = F.grid_sample(t, g, padding_mode=mode, align_corners=True)
    np.testing.assert_allclose(found.detach().numpy(), _expected(x, grid, border), rtol=1e-9, atol=1e-12)
    # the map is linear in the image: its gradient is the transpose, and halves of float32 agree
    w, v = rng.standard_normal(found.shape), rng.standard_normal(shape)
    (grad,) = engine.autograd.grad(found, t, engine.tensor(w))
    moved = F.grid_sample(engine.tensor(v), g, padding_mode=mode, align_corners=True).numpy()
    np.testing.assert_allclose((grad.numpy() * v).sum(), (moved * w).sum(), rtol=1e-9)
    single = F.grid_sample(t.detach().float(), g.float(), padding_mode=mode, align_corners=True)
    np.testing.assert_allclose(single.numpy(), found.detach().numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("out", [(2, 2), (20, 30)])  # few sums, and many
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_gradients_by_the_grid(out: tuple, dtype: str) -> None:
    rng = np.random.default_rng(1)
    x = engine.tensor(rng.standard_normal((2, 3, 6, 5))).to(getattr(engine, dtype))
    grid = engine.tensor(rng.uniform(-0.9, 0.9, (2, *out, 2))).to(x.dtype).requires_grad_()
    w = engine.tensor(rng.standard_normal((2, 3, *out))).to(x.dtype)
    (grad,) = engine.autograd.grad((F.grid_sample(x, grid, align_corners=False) * w).sum(), grid)
    step, wide = 1e-6, grid.detach().double()
    for d in range(2):
        ends = []
        for sign in (1, -1):
            moved = wide.clone()
            moved[..., d] += sign * step
            ends.append((F.grid_sample(x.double(), moved, align_corners=False) * w.double()).sum(1).numpy())
        slope = (ends[0] - ends[1]) / (2 * step)
        close = np.isclose(grad[..., d].numpy(), slope, rtol=1e-3, atol=1e-3)
        assert close.mean() > 0.99  # but for points within a step of a pixel


def test_what_is_outside_is_not_read() -> None:
    x = engine.full((1, 2, 3, 3), float("inf"))
    x[0, :, 1, 1] = 5.0
    grid = engine.tensor([[[[9.0, 9.0], [0.0, 0.0], [-7.0, 0.0]]]])
    for mode in ("nearest", "bilinear"):
        found = F.grid_sample(x, grid, mode, align_corners=False)[0, 0, 0]
        assert found[0] == 0 and found[2] == 0
    assert F.grid_sample(x, grid, "nearest", align_corners=False)[0, 1, 0].tolist() == [0.0, 5.0, 0.0]


def test_no_pictures() -> None:
    x = engine.zeros(0, 3, 4, 4, requires_grad=True)
    found = F.grid_sample(x, engine.zeros(0, 2, 2, 2), align_corners=False)
    assert found.shape == (0, 3, 2, 2)
    found.sum().backward()
    assert x.grad.shape == (0, 3, 4, 4)


@pytest.mark.parametrize("how", ["nearest", "bilinear"])
def test_places_that_are_no_numbers_are_the_first_where_images_are_continued(how: str) -> None:
    x = engine.arange(1.0, 13).reshape(1, 1, 3, 4)
    grid = engine.tensor([[[[math.nan, 0.0], [0.0, math.nan], [math.inf, 0.0], [-math.inf, 0.0]]]])
    found = {p: F.grid_sample(x, grid, how, p, align_corners=True)[0, 0, 0].tolist() for p in ("border", "reflection")}
    between = 3.0 if how == "nearest" else 2.5
    assert found == {"border": [5.0, between, 8.0, 5.0], "reflection": [5.0, between, 5.0, 5.0]}


def test_the_edges_of_continued_images_have_no_slope() -> None:
    x = engine.arange(1.0, 13).reshape(1, 1, 3, 4)
    for how in ("bilinear", "bicubic"):
        grid = engine.tensor([[[[-1.0, 0.5], [0.5, 1.0]]]], requires_grad=True)
        F.grid_sample(x, grid, how, "border", align_corners=True).sum().backward()
        slopes = grid.grad[0, 0]
        if how == "bilinear":
            assert slopes[0, 0] == 0 and slopes[1, 1] == 0
        assert slopes[0, 1] != 0 and slopes[1, 0] != 0


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize(
    ("shape", "out"), [((2, 3, 5, 7), (6, 4)), ((2, 3, 1, 7), (6, 4)), ((1, 2, 3, 4, 5), (3, 4, 2))]
)
def test_whole_ops_and_their_parts_agree(shape: tuple, out: tuple, padding: str, align: bool) -> None:
    rng = np.random.default_rng(3)
    x = engine.tensor(rng.standard_normal(shape), requires_grad=True)
    grid = engine.tensor(rng.uniform(-2.5, 2.5, (shape[0], *out, len(out))), requires_grad=True)
    weight = engine.tensor(rng.standard_normal((*shape[:2], *out)))
    for how in ("nearest", "bilinear"):
        ends = []
        for function in (grids.sampled, grids.by_parts):
            y = function(x, grid, how, padding, align)
            ends.append((y, *engine.autograd.grad((y * weight).sum(), (x, grid))))
        for got, want in zip(*ends):
            np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), 1e-9, 1e-12)
