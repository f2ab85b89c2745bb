"""Kernels along one dim: against the op's own code, and what they leave to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import engine
from engine.core.geometry import PoolGeometry
from engine.dispatch import OPS
from engine.kernels import processor
from engine.ops import generated
from engine.ops.generated import launch, replay
from tests.engine.ops.generated.test_layers import agree, arrays

pytestmark = [
    pytest.mark.skipif(not processor.available(), reason=f"generated code is {processor.describe()}"),
    pytest.mark.usefixtures("launched"),
]


def left(name: str, *args: Any, **kwargs: Any) -> bool:
    """Return whether the kernel leaves a call to the other route."""
    return generated.variant_of(OPS[name], small=True)(np, *args, **kwargs) is NotImplemented


RESAMPLED = [
    ("upsample_nearest1d", (2, 3, 10), (("nearest", 10, 20, False, None),)),
    ("upsample_nearest1d", (2, 3, 10), (("nearest", 10, 30, False, 3.0),)),
    ("upsample_nearest1d", (1, 1, 17), (("nearest", 17, 68, False, 4.0),)),
    ("upsample_nearest1d", (1, 1, 80), (("nearest", 80, 160, False, None),)),
    ("upsample_nearest2d", (2, 3, 5, 6), (("nearest", 5, 10, False, None), ("nearest", 6, 12, False, None))),
    ("upsample_nearest2d", (2, 3, 5, 6), (("nearest", 5, 20, False, None), ("nearest", 6, 6, False, None))),
    ("upsample_nearest3d", (1, 2, 2, 3, 4), tuple(("nearest", n, 2 * n, False, None) for n in (2, 3, 4))),
    (
        "upsample_nearest3d",
        (1, 2, 2, 3, 4),
        (*[("nearest", n, n, False, None) for n in (2, 3)], ("nearest", 4, 8, False, None)),
    ),
    ("upsample_nearest1d", (2, 3, 10), (("nearest", 10, 20, False, 2.1),)),
    ("_upsample_nearest_exact1d", (2, 3, 10), (("nearest-exact", 10, 40, False, None),)),
    ("upsample_nearest2d", (2, 3, 5, 6), (("nearest", 5, 10, False, None), ("nearest", 6, 18, False, None))),
    ("upsample_nearest2d", (2, 3, 5, 6), (("nearest", 5, 5, False, None), ("nearest", 6, 12, False, None))),
    ("upsample_linear1d", (2, 3, 10), (("linear", 10, 23, False, None),)),
    ("upsample_nearest2d", (2, 3, 5, 6), (("nearest", 5, 10, False, None), ("nearest", 6, 9, False, None))),
    ("upsample_bilinear2d", (1, 2, 7, 6), (("linear", 7, 5, True, None), ("linear", 6, 13, True, None))),
    ("upsample_bilinear2d", (1, 2, 7, 6), (("linear", 7, 7, False, None), ("linear", 6, 12, False, None))),
    ("upsample_bicubic2d", (1, 2, 7, 6), (("cubic", 7, 11, False, None), ("cubic", 6, 4, False, None))),
    ("adaptive_average1d", (2, 3, 12), (("adaptive", 12, 5, False, None),)),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name,shape,spec", RESAMPLED)
def test_resampling_and_its_gradient(name: str, shape: tuple[int, ...], spec: Any, dtype: str) -> None:
    (x,) = arrays(shape, dtype=dtype)
    agree(name, x, spec)
    (g,) = arrays((*shape[:2], *(entry[2] for entry in spec)), dtype=dtype)
    agree("resampled_backward", g, spec)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "size", [(128, 60, 7, 7), (54, 53, 7, 5), (28, 28, 7, 7), (3, 4, 7, 9), (20, 40, 1, 7), (1, 9, 1, 2)]
)
def test_means_of_parts_of_images(size: tuple[int, int, int, int], dtype: str) -> None:
    h, w, rows, m = size
    spec = (("adaptive", h, rows, False, None), ("adaptive", w, m, False, None))
    x, g = arrays((2, 3, h, w), (2, 3, rows, m), dtype=dtype)
    x[0, 0, 0, 0], x[1, 2, 0, -1] = np.nan, np.inf
    agree("adaptive_average2d", x, spec)
    agree("resampled_backward", g, spec)


@pytest.mark.parametrize("taps", [(4, 4), (7, 9), (30, 5)])
def test_means_of_large_windows_side_by_side(taps: tuple[int, int]) -> None:
    (x,) = arrays((2, 3, 30, 29))
    agree("avg_pool2d_values", x, taps, taps, (0, 0), False, True, None)
    assert left("avg_pool2d_values", x, taps, (1, 1), (0, 0), False, True, None)
    assert left("avg_pool2d_values", x, taps, taps, (0, 0), False, True, 2)


def test_means_of_parts_of_more_lines_than_are_added_in_float32_are_left() -> None:
    (x,) = arrays((1, 1, 1000, 4))
    assert left("adaptive_average2d", x, (("adaptive", 1000, 3, False, None), ("adaptive", 4, 3, False, None)))


def test_nearest_to_many_times_the_length() -> None:
    x, g = arrays((1, 2, 4), (1, 2, 44))
    agree("upsample_nearest1d", x, (("nearest", 4, 44, False, None),))
    assert left("resampled_backward", g, (("nearest", 4, 44, False, None),))


def test_resampling_of_many_elements_to_one_is_left() -> None:
    (x,) = arrays((1, 2, 100))
    assert left("adaptive_average1d", x, (("adaptive", 100, 2, False, None),))
    assert left("upsample_nearest1d", x, (("nearest", 100, 100, False, None),))
    assert left("upsample_nearest1d", x.astype("int32"), (("nearest", 100, 200, False, None),))


WINDOWS = [(2, 2, 0), (3, 1, 1), (3, 2, 1), (5, 3, 2), (8, 8, 0), (1, 2, 0)]


@pytest.mark.parametrize("taps,stride,padding", WINDOWS)
@pytest.mark.parametrize("length", [17, 64])
def test_pooling_of_signals(length: int, taps: int, stride: int, padding: int) -> None:
    x = np.random.default_rng(length).permutation(6 * length).astype("float32").reshape(2, 3, 1, length)
    geometry = (1, taps), (1, stride), (0, padding), (1, 1)
    for ceil_mode in (False, True):
        agree("max_pool2d_values", x, *geometry, ceil_mode)
        y = OPS["max_pool2d_values"].kernel(np, x, *geometry, ceil_mode)
        (g,) = arrays(y.shape)
        agree("max_pool_gradient", g, x, y, *geometry)


def test_pooling_of_nan_and_of_nothing_finite() -> None:
    geometry = (1, 3), (1, 2), (0, 1), (1, 1)
    x = np.full((1, 2, 1, 9), -np.inf, "float32")
    x[0, 1, 0, 4] = np.nan
    agree("max_pool2d_values", x, *geometry, False)
    y = OPS["max_pool2d_values"].kernel(np, x, *geometry, False)
    agree("max_pool_gradient", np.arange(10, dtype="float32").reshape(y.shape), x, y, *geometry)


IMAGES = [
    ((6, 8), (2, 2), (2, 2), (0, 0)),
    ((7, 9), (2, 2), (2, 2), (0, 0)),
    ((7, 9), (3, 3), (2, 2), (1, 1)),
    ((5, 4), (3, 2), (1, 3), (1, 0)),
    ((4, 12), (4, 4), (3, 2), (2, 2)),
    ((1, 3), (1, 1), (1, 2), (0, 0)),
    ((3, 1), (2, 1), (1, 1), (1, 0)),
]


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("size,taps,stride,padding", IMAGES)
def test_maxima_of_windows_of_images(size: Any, taps: Any, stride: Any, padding: Any, ceil_mode: bool) -> None:
    x = np.random.default_rng(0).permutation(6 * size[0] * size[1]).reshape(2, 3, *size).astype("float32")
    geometry = taps, stride, padding, (1, 1)
    agree("max_pool2d_values", x, *geometry, ceil_mode)
    y = OPS["max_pool2d_values"].kernel(np, x, *geometry, ceil_mode)
    agree("max_pool_gradient", np.arange(y.size, dtype="float32").reshape(y.shape), x, y, *geometry)


def test_maxima_of_images_with_nan_infinities_and_equals() -> None:
    x = np.array([[1, 1, np.nan, 2], [1, 1, 3, np.nan], [-np.inf] * 4, [np.inf, -np.inf, np.inf, 0]], "float32")
    x = np.concatenate([x, x.T[::-1]]).reshape(1, 2, 4, 4).copy()
    for geometry in (((2, 2), (2, 2), (0, 0), (1, 1)), ((3, 3), (1, 1), (1, 1), (1, 1))):
        agree("max_pool2d_values", x, *geometry, False)
        y = OPS["max_pool2d_values"].kernel(np, x, *geometry, False)
        agree("max_pool_gradient", np.arange(y.size, dtype="float32").reshape(y.shape), x, y, *geometry)


TILES = [((4, 6, 8), (2, 2, 2)), ((3, 4, 66), (1, 2, 3)), ((6, 10), (2, 2)), ((1, 64), (1, 2)), ((7, 12), (7, 1))]
TILES += [((14, 14), (2, 2)), ((3, 66), (3, 2)), ((2, 6), (2, 2)), ((5, 28), (1, 2))]  # rows that are no whole vectors


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size,taps", TILES)
def test_maxima_of_windows_side_by_side(size: Any, taps: Any, dtype: str) -> None:
    x = np.round(np.random.default_rng(0).standard_normal((2, 3, *size))).astype(dtype)
    flat = x.reshape(6, -1)
    flat[0, 1:3], flat[1], flat[2, 0], flat[3, -1] = np.nan, -np.inf, np.inf, np.nan
    geometry = taps, taps, (0,) * len(taps), (1,) * len(taps)
    name = f"max_pool{len(taps)}d_values"
    agree(name, x, *geometry, False)
    y = OPS[name].kernel(np, x, *geometry, False)
    agree("max_pool_gradient", np.arange(y.size, dtype=dtype).reshape(y.shape), x, y, *geometry)


def test_maxima_and_means_of_volumes() -> None:
    (x,) = arrays((2, 3, 5, 6, 7))
    agree("max_pool3d_values", x, (3, 1, 2), (2, 2, 1), (0, 0, 0), (1, 1, 1), False)
    agree("avg_pool3d_values", x, (3, 1, 2), (2, 2, 1), (0, 0, 0), False, True, None)
    agree("avg_pool3d_values", x, (2, 2, 2), (2, 2, 2), (0, 0, 0), False, True, 5)
    assert left("avg_pool3d_values", x, (2, 2, 2), (2, 2, 2), (0, 0, 0), True, True, None)
    assert left("avg_pool3d_values", x, (3, 3, 3), (1, 1, 1), (0, 0, 0), False, True, None)
    assert left("max_pool3d_values", x, (2, 2, 2), (2, 2, 2), (0, 0, 0), (1, 1, 1), True)  # the last ones overhang
    assert left("max_pool3d_values", x, (2, 2, 2), (2, 2, 2), (1, 1, 1), (1, 1, 1), False)
    assert left("max_pool3d_values", x, (3, 3, 3), (1, 1, 1), (0, 0, 0), (1, 1, 1), False)
    y = OPS["max_pool3d_values"].kernel(np, x, (2, 2, 2), (2, 2, 2), (0, 0, 0), (1, 1, 1), False)
    assert left("max_pool_gradient", y, x, y, (2, 2, 2), (2, 2, 2), (0, 0, 0), (1, 1, 1))  # which leave places over


@pytest.mark.parametrize("size", [(4, 4), (9, 11)])
@pytest.mark.parametrize(
    "taps,stride,padding", [((5, 5), (1, 1), (2, 2)), ((7, 3), (2, 3), (3, 0)), ((1, 17), (1, 2), (0, 8))]
)
def test_gradient_of_maxima_of_wide_windows(size: Any, taps: Any, stride: Any, padding: Any) -> None:
    """Their places are looped over; of equals the first place is the maximum's, or the last nan."""
    if any(n + 2 * p < k for n, p, k in zip(size, padding, taps)):
        size = (9, 11)
    x = np.round(np.random.default_rng(0).standard_normal((2, 3, *size))).astype("float32")
    x[0, 0, 1, 1:3], x[0, 1], x[1, 2, 0] = np.nan, -np.inf, np.inf
    geometry = taps, stride, padding, (1, 1)
    for ceil_mode in (False, True):
        y = OPS["max_pool2d_values"].kernel(np, x, *geometry, ceil_mode)
        agree("max_pool_gradient", np.arange(y.size, dtype="float32").reshape(y.shape), x, y, *geometry)


def test_maxima_of_dilated_and_of_wide_windows_are_left() -> None:
    (x,) = arrays((1, 2, 8, 20))
    assert left("max_pool2d_values", x, (2, 2), (2, 2), (0, 0), (1, 2), False)
    assert left("max_pool2d_values", x, (3, 6), (1, 1), (0, 0), (1, 1), False)
    assert left("max_pool2d_values", x.astype("float16"), (2, 2), (2, 2), (0, 0), (1, 1), False)


@pytest.mark.parametrize("dtype", ["float32", "complex64", "bool", "int16"])
@pytest.mark.parametrize("dims", [(-1,), (0,), (1,), (2, 3), (1, 2), (0, 1, 2, 3)])
def test_flips(dims: tuple[int, ...], dtype: str) -> None:
    x = (arrays((3, 4, 5, 6))[0] * 2).astype(dtype)
    agree("flip", x, dims)


def test_flips_of_dims_that_are_no_neighbours_are_left() -> None:
    (x,) = arrays((3, 4, 5))
    assert left("flip", x, (0, 2))
    assert left("flip", x.transpose(1, 0, 2), (0,))
    with pytest.raises(RuntimeError, match="dim 1 appears multiple times"):
        generated.variant_of(OPS["flip"])(np, x, (1, 1))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape,last", [((3, 5, 48), 1), ((2, 3, 7), 2), ((9,), 1)])
def test_rms_norm(shape: tuple[int, ...], last: int, dtype: str) -> None:
    (x,), (weight,) = arrays(shape, dtype=dtype), arrays(shape[-last:], dtype=dtype)
    agree("rms_norm_inference", x, shape[-last:], weight, 1e-5)
    agree("rms_norm_inference", x, shape[-last:], None, 0.1)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_rows_added_by_index(dim: int) -> None:
    (x,) = arrays((4, 5, 6))
    shape = list(x.shape)
    shape[dim] = 9
    (source,) = arrays(tuple(shape))
    index = np.array([0, 3, 3, 1, 0, 2, 3, 3, 1])
    agree("index_add", x, dim, index, source)
    assert left("index_add", x, dim, index.astype("int32"), source)
    assert left("index_add", x, dim, index, source, alpha=2)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gradient_of_a_table(dtype: str) -> None:
    (grad,) = arrays((4, 30, 8), dtype=dtype)
    index = np.random.default_rng(0).integers(0, 11, (4, 30))
    agree("embedding_dense_backward", grad, index, 12)
    agree("embedding_dense_backward", grad, index, 12, 3)
    agree("embedding_dense_backward", np.broadcast_to(grad[:, :1], grad.shape), index, 12)
    assert left("embedding_dense_backward", grad, index, 12, -1, True)
    agree("embedding_dense_backward", grad, index.astype("int32"), 12)
    with pytest.raises(launch.Unfit):
        left("embedding_dense_backward", grad, index, 5)  # some are no rows


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_elements_by_index(dim: int, dtype: str) -> None:
    x = np.random.default_rng(1).integers(-99, 99, (4, 5, 37)).astype(dtype)
    shape = [4, 5, 37]
    for count in (1, 3, 50):
        shape[dim] = count
        index = np.random.default_rng(count).integers(0, x.shape[dim], shape)
        agree("gather", x, dim, index)
        if dtype != "int64":
            (source,) = arrays(tuple(shape), dtype=dtype)
            agree("scatter_add", x, dim, index, source)
            agree("add_along", source, index, x.shape, dim)
            if count <= x.shape[dim]:  # distinct places
                distinct = np.argsort(x, dim).take(range(count), dim)
                agree("put_along", source, distinct, x.shape, dim)


def test_what_is_left_of_elements_by_index() -> None:
    x, source = arrays((6, 8), (6, 3))
    index = np.zeros((6, 3), "int64")
    assert (
        left("gather", x, 1, index.astype("int32"))
        and left("gather", x, 1, index[:5])
        and left("gather", x.T, 0, index)
    )
    assert left("gather", x, 1, index + 8) and left("gather", x, 1, index - 1)  # which are errors there
    assert left("scatter_add", x, 1, index, np.zeros((6, 4), "float32")) and left(
        "scatter_add", x, 1, index + 8, source
    )
    assert left("scatter_add", x.astype("int32"), 1, index, source.astype("int32"))
    assert left("add_along", source.T, index.T, (8, 6), 0)
    assert replay.watched(generated.variant_of(OPS["gather"], small=True), np, (x, 1, index), {}) is None


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [(1, 17), (1, 64), (9, 34), (5, 5)])
@pytest.mark.parametrize(
    "window", [((1, 4), (1, 4)), ((1, 3), (1, 3)), ((1, 5), (1, 2)), ((2, 2), (2, 2)), ((1, 2), (3, 3))]
)
def test_means_of_windows(window: Any, size: tuple[int, int], dtype: str) -> None:
    taps, stride = window
    if taps[0] > size[0]:
        return
    (x,) = arrays((2, 3, *size), dtype=dtype)
    out = tuple((n - t) // s + 1 for n, t, s in zip(size, taps, stride))
    (g,) = arrays((2, 3, *out), dtype=dtype)
    for divisor in (None, 7):
        agree("avg_pool2d_values", x, taps, stride, (0, 0), False, True, divisor)
        if taps == stride:
            agree("avg_pool_backward", g, size, taps, stride, (0, 0), True, divisor)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "size, window",
    [((1, 170), (1, 17)), ((3, 175), (1, 17)), ((30, 34), (14, 17)), ((5, 4, 9), (2, 2, 2)), ((8, 1, 40), (3, 1, 19))],
)
def test_means_of_wide_windows_and_of_volumes(size: tuple[int, ...], window: tuple[int, ...], dtype: str) -> None:
    x, g = arrays((2, 3, *size), (2, 3, *(n // t for n, t in zip(size, window))), dtype=dtype)
    for divisor in (None, 7):
        agree("avg_pool_backward", g, size, window, window, (0,) * len(size), True, divisor)
    if size == (1, 170):
        agree("avg_pool2d_values", x, window, window, (0, 0), False, True, None)
        assert left("avg_pool2d_values", x, window, window, (0, 0), False, True, 7)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("dim, shape", [(0, (6, 5)), (1, (2, 6, 5)), (0, (6, 2, 3)), (-2, (1, 6, 17))])
def test_entries_that_are_expanded_to_rows(dim: int, shape: tuple[int, ...], dtype: str) -> None:
    axis = dim % len(shape)
    wide = (*shape[:axis], 9, *shape[axis + 1 :])
    each = np.random.default_rng(0).integers(0, 6, 9)
    index = np.broadcast_to(each.reshape(9, *(1,) * (len(shape) - axis - 1)), wide)
    x, source = arrays(shape, wide, dtype=dtype)
    agree("scatter_add", x, dim, index, source)
    agree("add_along", source, index, shape, dim)
    agree("gather", x, dim, index)
    beyond = np.broadcast_to(index[..., :1] + 9, wide)
    assert left("scatter_add", x, dim, beyond, source) and left("gather", x, dim, beyond)
    assert left("scatter_add", x.swapaxes(0, -1), dim, index, source)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("taps", [1, 2, 5, 8])
def test_means_of_neighbouring_lines(taps: int, dtype: str) -> None:
    x, g = arrays((2, 3, 8, 4, 5), (2, 3, 9 - taps, 4, 5), dtype=dtype)
    for divisor in (None, 7):
        agree("avg_pool3d_values", x, (taps, 1, 1), (1, 1, 1), (0, 0, 0), True, True, divisor)
        agree("avg_pool_backward", g, (8, 4, 5), (taps, 1, 1), (1, 1, 1), (0, 0, 0), True, divisor)
        agree("avg_pool_backward", g[:, :, 0].copy(), (6, 5), (3, 1), (1, 1), (0, 0), True, divisor)
    agree("avg_pool3d_values", x, (taps, 2, 1), (1, 1, 1), (0, 0, 0), False, True, None)
    assert left("avg_pool3d_values", x, (taps, 1, 1), (1, 1, 1), (1, 0, 0), False, True, None)
    assert left("avg_pool3d_values", x.astype("float16"), (taps, 1, 1), (1, 1, 1), (0, 0, 0), False, True, None)


def test_what_is_left_of_means_of_windows() -> None:
    x, g = arrays((2, 3, 1, 18), (2, 3, 1, 5))
    assert left("avg_pool2d_values", x, (1, 4), (1, 4), (0, 0), True, True, None)  # the last window overhangs
    assert left("avg_pool2d_values", x, (1, 17), (1, 17), (0, 1), False, True, None)
    assert left("avg_pool2d_values", x, (1, 9), (1, 8), (0, 0), False, True, None)
    assert left("avg_pool2d_values", x.astype("float16"), (1, 4), (1, 4), (0, 0), False, True, None)
    assert left("avg_pool_backward", g, (1, 18), (1, 4), (1, 4), (0, 0), True, None)
    assert left("avg_pool_backward", g, (1, 18), (1, 17), (1, 3), (0, 0), True, None)


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "float16", "complex64"])
@pytest.mark.parametrize("name", ["tril", "triu"])
def test_triangles(name: str, dtype: str) -> None:
    for shape in ((3, 7, 40), (9, 5), (2, 1, 3), (1, 1)):
        x = np.random.default_rng(0).integers(1, 99, shape).astype(dtype)
        for diagonal in (0, 1, -3, 60, -60):
            agree(name, x, diagonal)
    x = np.full((20, 20), np.nan, "float32")
    agree(name, x)
    assert left(name, x.T) and left(name, x[:0]) and left(name, x.astype("complex128"))


def test_an_index_out_of_range_is_an_error_each_time() -> None:
    x, source = arrays((64, 16), (100, 16))
    variant = generated.variant_of(OPS["index_add"], small=True)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="index 64 is out of bounds"):
            variant(np, x, 0, np.arange(100), source)
    assert replay.watched(variant, np, (x, 0, np.arange(100) % 64, source), {}) is None  # no launch without a look


@pytest.mark.parametrize("names", [1, 2])
def test_gradient_of_rows_by_index(names: int) -> None:
    rng = np.random.default_rng(names)
    shape = (60, 50, 8)
    index = [rng.integers(-n, n, (30, 70)) for n in shape[:names]]
    x = engine.tensor(rng.standard_normal(shape), requires_grad=True)
    weight = rng.standard_normal((30, 70, *shape[names:]))
    want = np.zeros(shape)
    np.add.at(want, tuple(index), weight)
    y = x[tuple(engine.tensor(i) for i in index)]
    for create_graph in (False, True):
        (grad,) = engine.autograd.grad(y, x, engine.tensor(weight), retain_graph=True, create_graph=create_graph)
        np.testing.assert_allclose(grad.detach().numpy(), want, 1e-12, 1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "taps, stride, padding, ceil",
    [((3, 3), (1, 1), (1, 1), False), ((3, 2), (2, 1), (1, 0), True), ((1, 5), (1, 3), (0, 2), False),
     ((4, 4), (3, 5), (2, 1), True), ((2, 3), (1, 1), (0, 0), False)],
)  # fmt: skip
def test_means_of_windows_that_overhang(taps: Any, stride: Any, padding: Any, ceil: bool, dtype: str) -> None:
    for size in ((7, 9), (4, 33), (3, 5)):
        geometry = PoolGeometry.of(taps, stride, padding)
        out = geometry.output_size(size, ceil)
        ends = all((n - 1) * s + k <= whole + 2 * p for n, s, k, whole, p in zip(out, stride, taps, size, padding))
        x, g = arrays((2, 3, *size), (2, 3, *out), dtype=dtype)
        x[0, 0, 0, 0] = np.inf
        for counted, divisor in ((True, None), (False, None), (False, 7)):
            given = taps, stride, padding
            if ends or not (counted or divisor):
                agree("avg_pool_backward", g, size, *given, counted, divisor)
                if any(padding) or not ends:
                    agree("avg_pool2d_values", x, *given, ceil, counted, divisor)
            else:  # what lies behind the padding does not count
                assert left("avg_pool2d_values", x, *given, ceil, counted, divisor)
                assert left("avg_pool_backward", g, size, *given, counted, divisor)
