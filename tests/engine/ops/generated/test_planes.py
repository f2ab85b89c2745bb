"""Kernels over images: against the op's own code, and what they leave to it."""

from __future__ import annotations

import numpy as np
import pytest

from engine.dispatch import OPS
from engine.kernels import processor
from tests.engine.ops.generated.test_layers import agree, arrays
from tests.engine.ops.generated.test_lines import left

pytestmark = [
    pytest.mark.skipif(not processor.available(), reason=f"generated code is {processor.describe()}"),
    pytest.mark.usefixtures("launched"),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(2, 3, 5, 7), (4, 9), (6,)])
def test_constant_padding(shape: tuple[int, ...], dtype: str) -> None:
    (x,) = arrays(shape, dtype=dtype)
    for pad in ((1, 1, 1, 1), (0, 3, 2, 0), (0, 1), (40, 0)):
        if len(pad) <= 2 * len(shape):
            for value in (0, 1.5, float("-inf")):
                agree("constant_pad_nd", x, pad, value)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("mode", ["replicate", "reflect", "circular"])
@pytest.mark.parametrize("shape", [(2, 3, 5, 7), (4, 9), (6,)])
def test_padding_with_elements(shape: tuple[int, ...], mode: str, dtype: str) -> None:
    (x,) = arrays(shape, dtype=dtype)
    for pad in ((1, 1, 1, 1), (0, 3, 2, 0), (4, 2, 1, 3), (0, 1), (3, 0), (0, 0)):
        if len(pad) <= 2 * len(shape):
            agree("pad_by_copy", x, pad, mode)
            (g,) = arrays(OPS["pad_by_copy"].kernel(np, x, pad, mode).shape, dtype=dtype)
            agree("pad_by_copy_backward", g, shape, pad, mode)
    assert left("pad_by_copy", x, (1, -1), mode) and left("pad_by_copy", x.astype("int32"), (1, 1), mode)


def test_padding_that_is_left() -> None:
    (x,) = arrays((2, 3, 4, 5))
    assert left("constant_pad_nd", x, (1, -1))
    assert left("constant_pad_nd", x, (1, 1, 1, 1, 1, 1))
    assert left("constant_pad_nd", x.astype("int64"), (1, 1))
    assert left("constant_pad_nd", x.transpose(0, 2, 3, 1), (1, 1))


@pytest.mark.parametrize("taps", [1, 4, 8])
def test_sums_at_points_of_a_grid(taps: int) -> None:
    x, weights = arrays((2, 3, 4, 5), (2, taps, 30))
    (grad,) = arrays((2, 3, 30))
    index = np.random.default_rng(taps).integers(0, 21, (2, taps, 30))  # 20: outside
    x[0, 0, 3, 4] = np.inf  # the element before what is outside
    agree("grid_sums", x, index, weights)
    x[0, 0, 3, 4] = 1
    agree("grid_spread", grad, index, weights, (4, 5))
    agree("grid_products", grad, x, index)


def test_points_of_sixteen_elements_are_left() -> None:
    x, weights = arrays((2, 3, 4, 5), (2, 16, 30))
    assert left("grid_sums", x, np.zeros((2, 16, 30), "int64"), weights)


GRIDS = [((2, 3, 5, 7), (6, 4)), ((1, 2, 3, 4, 5), (3, 4, 2)), ((3, 20, 1, 1), (2, 2))]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("shape,out", GRIDS)
def test_images_at_points(shape: tuple[int, ...], out: tuple[int, ...], padding: str, align: bool, dtype: str) -> None:
    x, g = arrays(shape, (*shape[:2], *out), dtype=dtype)
    grid = np.random.default_rng(0).uniform(-2.5, 2.5, (shape[0], *out, len(out))).astype(dtype)
    grid.reshape(-1)[:5] = -1, 1, np.nan, np.inf, -np.inf
    if padding == "reflection" and align and 1 in shape[2:]:
        assert left("grid_nearest", x, grid, padding, align)
        return
    for kind in ("nearest", "linear"):
        agree(f"grid_{kind}", x, grid, padding, align)
        agree(f"grid_{kind}_spread", g, grid, shape[2:], padding, align)
    agree("grid_linear_slopes", g, x, grid, padding, align)


def test_images_at_points_that_are_left() -> None:
    x, grid = arrays((2, 3, 4, 5), (2, 4, 5, 2))
    assert left("grid_linear", x.transpose(0, 1, 3, 2), grid, "zeros", False)
    assert left("grid_nearest", x, grid[:, :0], "zeros", False)
    assert left("grid_linear", x[:, :0], grid, "zeros", False)
