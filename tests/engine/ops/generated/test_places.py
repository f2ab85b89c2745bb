"""Places of maxima, and what is taken or added at places: against the ops' own code, and places beyond the arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.dispatch import OPS
from engine.kernels import cpu, histograms, places, processor
from engine.ops import generated
from tests.engine.ops.generated.test_layers import agree, arrays
from tests.engine.ops.generated.test_lines import left

pytestmark = [
    pytest.mark.skipif(not processor.available(), reason=f"generated code is {processor.describe()}"),
    pytest.mark.usefixtures("launched"),
]


def _images(*shape: int, dtype: str) -> Any:
    """Images with equals, nan and infinities."""
    (x,) = arrays(shape, dtype=dtype)
    x = np.round(x)
    planes = x.reshape(shape[0] * shape[1], -1)
    planes[0, 1] = planes[0, -2] = np.nan
    planes[1] = -np.inf
    planes[2, -1] = np.inf
    return x


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(2, 3, 125), (1, 4, 7, 5), (1, 3, 2, 3, 4)])
def test_gradient_at_the_maxima_of_images(shape: tuple[int, ...], dtype: str) -> None:
    x = _images(*shape, dtype=dtype)
    (g,) = arrays((*shape[:2], *(1,) * (len(shape) - 2)), dtype=dtype)
    agree("gradient_at_maxima", g, x)
    assert left("gradient_at_maxima", g, np.asfortranarray(x))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "sizes",
    [((125,), (4,)), ((1, 40), (1, 7)), ((28, 30), (5, 7)), ((9, 8), (9, 3)), ((8, 9), (3, 9)), ((3, 2), (4, 5))],
)
def test_places_of_the_maxima_of_parts(sizes: Any, dtype: str) -> None:
    size, out = sizes
    x = _images(2, 3, *size, dtype=dtype)
    agree("adaptive_max_indices", x, out)
    assert left("adaptive_max_indices", x, (0,) * len(out))
    index = OPS["adaptive_max_indices"].kernel(np, x, out)
    (g,) = arrays(index.shape, dtype=dtype)
    agree("pool_gather", np.nan_to_num(x), index)
    agree("pool_scatter", g, index, size)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_what_is_put_along_a_dim(dim: int, dtype: str) -> None:
    rng = np.random.default_rng(3)
    shape = (5, 6, 7)
    whole = np.argsort(rng.random(shape), dim)
    few = np.take(whole, [0, 2], dim)
    for index in (whole, few, np.take(whole, 0, dim)):
        (g,) = arrays(index.shape, dtype=dtype)
        agree("put_along", g, np.ascontiguousarray(index), shape, dim)


def test_what_is_left() -> None:
    (x,) = arrays((1, 2, 3, 4, 5))
    assert left("adaptive_max_indices", x, (2, 2, 2))
    assert left("adaptive_max_indices", x[:, :, 0].astype("float16"), (2, 2))
    assert left("pool_gather", x, np.zeros((1, 2, 1, 1, 1), "int32"))


def test_places_beyond_the_arrays_are_passed_over() -> None:
    (x,) = arrays((1, 1, 4))
    index = np.array([[[-1, 4, 10**12]]])
    variant = generated.variant_of(OPS["pool_scatter"], small=True)
    assert not variant(np, x[..., :3].copy(), index, (4,)).any()
    variant = generated.variant_of(OPS["pool_gather"], small=True)
    assert np.isfinite(variant(np, x, index)).all()


def test_operations_of_a_place() -> None:
    for write in (places.gradient_at_maxima, places.places_of_lines, places.taken_within, places.added_within):
        assert cpu.operations(write("float32")) < 20


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [1, 6, 4096, 10001])
def test_histograms(n: int, dtype: str) -> None:
    (x,) = arrays((n,), dtype=dtype)
    agree("histc", x, 20)
    agree("histc", x.reshape(-1, 1), 7, -0.5, 1)
    agree("histc", np.round(x), 3, -1, 1)  # edges
    x[0], x[-1] = np.inf, np.nan
    agree("histc", x, 5, -1.5, 1e-3)
    with pytest.raises(RuntimeError, match="is not finite"):
        generated.variant_of(OPS["histc"], small=True)(np, x, 5)
    assert left("histc", x, 0)
    assert left("histc", x.astype("float16"), 5)
    assert left("histc", x, histograms.PART + 1, 0, 1)


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("count", [1, 2, 7, 64, 1000])
def test_insertion_points(count: int, dtype: str, right: bool) -> None:
    """Equal numbers, ends, infinities and nan, in one row of boundaries and in a row for each row."""
    rows, x = arrays((3, count), (3, 5000))
    rows, x = np.round(rows * 9).astype(dtype), np.round(x * 9).astype(dtype)
    if dtype.startswith("float"):
        x[:, :4] = np.nan, np.inf, -np.inf, -0.0
        rows[1, 0], rows[1, -1:], rows[2, -2:] = -np.inf, np.inf, np.nan
    rows.sort(1)
    agree("search_sorted", rows, x, right)
    for row in rows:
        agree("search_sorted", row, x, right, None, True)
    assert left("search_sorted", rows[0], x.astype("float16"), right)
    assert left("search_sorted", rows, x, right, np.argsort(rows, 1))
    falling = np.arange(count)[::-1].astype(dtype)  # no error in PyTorch either, and no difference to report
    assert left("search_sorted", falling, x, right) == (count > 1)
