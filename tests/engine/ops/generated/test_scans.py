"""Reductions, running results and the first of an order as kernels: against the op's own code, ties, nan."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.backends.cpu.relayout import to_channels_last
from engine.dispatch import OPS
from engine.kernels import processor, scans
from engine.ops import generated
from tests.engine.ops.generated.test_layers import agree, arrays
from tests.engine.ops.generated.test_lines import left

pytestmark = [
    pytest.mark.skipif(not processor.available(), reason=f"generated code is {processor.describe()}"),
    pytest.mark.usefixtures("launched"),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["amax", "amin", "mean", "sum"])
@pytest.mark.parametrize("dim", [(2, 3), -1, (0, 1, 2, 3)])
def test_reductions_of_the_last_dims(name: str, dim: Any, dtype: str) -> None:
    (x,) = arrays((3, 4, 5, 19), dtype=dtype)
    agree(name, x, dim)
    agree(name, x, dim, True)


@pytest.mark.parametrize("name", ["amax", "amin"])
def test_extremes_over_dims_in_the_middle(name: str) -> None:
    (x,) = arrays((3, 4, 5, 19))
    for dim in (1, (1, 2), 0, (0, 1)):
        agree(name, x, dim)
        agree(name, x, dim, True)
    x[0, 1, 2, 3] = np.nan
    agree(name, x, 1)
    agree(name, x, (2, 3))
    assert left(name, x.transpose(1, 0, 2, 3), 1) and left(name, x.transpose(1, 0, 2, 3), (0, 2))
    assert left(name, np.ones((2, 300), "bool"), 1)


@pytest.mark.parametrize("n", [1, 2, 127, 128, 129, 300])
def test_means_and_sums_over_dims_in_the_middle(n: int) -> None:
    for shape, dim in (((3, n, 19), 1), ((n, 5), 0), ((2, n, 2, 3), (1, 2))):
        (x,) = arrays(shape)
        for name in ("mean", "sum"):
            agree(name, x, dim)
            agree(name, x, dim, True)
        dims = dim if isinstance(dim, tuple) else (dim,)
        if n > 1:
            agree("sum_to_size", x, tuple(1 if d in dims else m for d, m in enumerate(shape)))


@pytest.mark.parametrize("after", [scans.BAND - 1, scans.BAND, 3 * scans.BAND + 5])
@pytest.mark.parametrize("name", ["amax", "amin", "mean", "sum"])
def test_columns_are_reduced_in_bands(name: str, after: int) -> None:
    """One row's bands, and those of several, also where threads share them."""
    for rows, n in ((1, 9), (3, 2), (1, 300)):
        (x,) = arrays((rows, n, after))
        x[-1, -1, -1] = np.nan
        agree(name, x, 1)


@pytest.mark.parametrize("name", ["mean", "sum"])
def test_sums_of_many_rows_are_cut(name: str) -> None:
    """Each part is added up by itself: of few sums, threads would have none else to share."""
    for shape, dim in (((12544, 64), 0), ((9000, 16), 0), ((2, 8192, 20), 1), ((70, 3, 64, 16), (0, 1, 2))):
        (x,) = arrays(shape)
        agree(name, x + 1, dim)
    assert left(name, arrays((9001, 16))[0], 0)  # a prime number of them
    assert left(name, arrays((8192, 3))[0], 0)


def test_sums_to_a_size() -> None:
    (x,) = arrays((3, 4, 5, 7))
    for size in ((7,), (5, 7), (3, 1, 1, 7), (3, 1, 1, 1), (3, 4, 1, 7), (1, 1, 7), (1, 1, 5, 7)):
        agree("sum_to_size", x, size)
    agree("sum_to_size", x, (4, 1, 7))  # dims that are not neighbours
    assert left("sum_to_size", x, x.shape) and left("sum_to_size", x, (1, 1, 1, 1)) and left("sum_to_size", x, ())
    assert left("sum_to_size", x.transpose(1, 0, 2, 3), (1, 5, 7)) and left("sum_to_size", x.astype("float16"), (7,))
    assert left("sum_to_size", x.astype("int32"), (7,))
    with pytest.raises(RuntimeError, match="not expandable"):
        generated.variant_of(OPS["sum_to_size"])(np, x, (5, 3))


def test_means_of_many_rows_lose_little() -> None:
    x = np.full((4096, 8), 0.1, "float32")
    found = generated.variant_of(OPS["mean"])(np, x, 0)
    np.testing.assert_allclose(found, x[0], rtol=2e-6)
    np.testing.assert_allclose(generated.variant_of(OPS["sum"])(np, x, 0), x[0] * 4096, rtol=2e-6)
    assert left("mean", np.concatenate([x, x]), 0) and left("sum", np.concatenate([x, x]), 0)


def test_what_is_left_of_reductions() -> None:
    (x,) = arrays((3, 4, 5))
    assert left("prod_dim", x, 1)
    assert left("mean", x.astype("int32"), (0, 2)) and left("amax", x[:0], 1) and left("amax", x[:0], (0, 2))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["mean", "sum", "amax", "amin"])
def test_reductions_of_dims_apart(name: str, dtype: str) -> None:
    (x,) = arrays((3, 4, 5, 2, 7), dtype=dtype)
    for dim in ((0, 2, 3, 4), (-1, 0), (0, 2), (1, 3), (0, 2, 4)):
        agree(name, x, dim)
        agree(name, x, dim, True)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("dim", [-1, (1, 2), 0, 1])
def test_logsumexp(dim: Any, dtype: str) -> None:
    x = (np.random.default_rng(0).standard_normal((5, 7, 30)) * 40).astype(dtype)
    x[0, 0] = -np.inf
    x[1, 3, 5], x[2, 2, 2], x[3, 6, 29] = np.inf, -np.inf, np.nan
    x[:, :, 11], x[:, 1] = -np.inf, -np.inf
    agree("logsumexp", x, dim)
    agree("logsumexp", x, dim, True)
    assert left("logsumexp", x.transpose(1, 0, 2), dim)
    assert left("logsumexp", np.zeros((129, 8), "float32"), 0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [1, 3, 8, 13, 24, 25, 32, 33, 48])
def test_rows_of_few_places(n: int, dtype: str) -> None:
    """Their kernels have a row in each lane; the last rows fill no vector."""
    x = (np.random.default_rng(0).standard_normal((5, 27, n)) * 40).astype(dtype)
    for name in ("logsumexp", "softmax", "log_softmax"):
        agree(name, x, -1)
        agree(name, x[0], 1)
    x[0, 0] = -np.inf
    x[1, 3, n // 2], x[2, 2, 0], x[3, 6, n - 1] = np.inf, -np.inf, np.nan
    for name in ("logsumexp", "softmax", "log_softmax"):
        agree(name, x, -1)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [1, 16, 4095, 4096, 9000])
def test_norms(n: int, dtype: str) -> None:
    (x,) = arrays((3, 2, n), dtype=dtype)
    for dim in (None, -1, (1, 2), (0, 1, 2)):
        agree("linalg_vector_norm", x, 2, dim)
        agree("linalg_vector_norm", x, 2.0, dim, True)
    x[0, 1, n - 1], x[1] = np.nan, np.inf
    agree("linalg_vector_norm", x, 2, -1)
    assert left("linalg_vector_norm", x, 1, -1) and left("linalg_vector_norm", np.ones((5000, 2), "float32"), 2, 0)
    assert left("linalg_vector_norm", x.astype("float16"), 2) and left("linalg_vector_norm", x[:0], 2)


def test_norms_of_many_elements_lose_little() -> None:
    found = generated.variant_of(OPS["linalg_vector_norm"])(np, np.full(1 << 20, 0.1, "float32"))
    np.testing.assert_allclose(found, np.float32(0.1) * 1024.0, rtol=2e-6)


def test_products() -> None:
    (x,) = arrays((6, 70))
    agree("prod_dim", x, -1)
    agree("prod_dim", np.array([[1e6, 1e-6] * 40, [2.0, 0.5] * 40], "float32"), 1, True)
    agree("cumprod", x, 1)
    agree("cumprod", x, 0)
    agree("cumprod", x.astype("float64"), -1)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["cummax", "cummin"])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_running_extremes(name: str, dim: int, dtype: str) -> None:
    x = np.random.default_rng(dim).integers(0, 9, (3, 40, 17)).astype(dtype)  # many ties
    agree(name, x, dim)
    x[1, 20, 5:7] = np.nan
    x[2, :3] = np.inf
    agree(name, x, dim)


@pytest.mark.parametrize("name", ["cummax", "cummin"])
@pytest.mark.parametrize("length", [15, 16, 33, 100])
def test_running_extremes_of_long_rows(name: str, length: int) -> None:
    """Blocks without a new extreme, with one, with ties of it, rising, falling, and behind a nan."""
    x = np.random.default_rng(length).standard_normal((6, length)).astype("float32")
    x[1], x[2], x[3] = np.sort(x[1]), np.sort(x[2])[::-1], 0
    x[4, length // 3], x[5, 0], x[5, -1] = np.nan, np.inf, np.inf
    agree(name, x, 1)
    agree(name, -x, -1)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["max_dim", "min_dim"])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_extremes_and_their_places(name: str, dim: int, dtype: str) -> None:
    x = np.random.default_rng(dim).integers(0, 9, (3, 40, 17)).astype(dtype)  # many ties
    for keepdim in (False, True):
        agree(name, x, dim, keepdim)
    x[1, 20, 5:7] = x[2, 4, 6] = x[0, 1, 6] = np.nan
    x[2, :3], x[0, 5] = np.inf, -np.inf
    agree(name, x, dim)
    agree(name, np.full((3, 40, 17), np.inf if name == "min_dim" else -np.inf, dtype), dim)
    agree("arg" + name[:3], x, dim, True)
    agree(name, np.array([[0.0, -0.0, 0.0], [-0.0, 0.0, -1.0]], dtype), dim % 2)
    assert left(name, np.ones((3, 40, 17), "bool"), dim) and left(name, x.swapaxes(0, 1), dim) and left(name, x[:0], 1)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("k", [1, 5, 16])
def test_first_of_an_order(k: int, largest: bool) -> None:
    r = np.random.default_rng(k)
    (x,) = arrays((4, 300))
    few = r.integers(0, 9, (4, 300)).astype("float32")  # many ties
    one = np.full((4, 300), np.inf if largest else -np.inf, "float32")
    for values in (x, few, one, -one, np.sort(x, -1), np.sort(x, -1)[:, ::-1].copy(), x[:, :k].copy()):
        agree("topk", values, k, -1, largest)
    x[0, 7] = x[0, 250] = x[2, 299] = np.nan
    x[1] = np.nan
    agree("topk", x, k, 1, largest)


def test_what_is_left_of_orders() -> None:
    (x,) = arrays((40, 30))
    assert left("topk", x, 17) and left("topk", x, 0) and left("topk", x, 3, 0) and left("topk", x.astype("int32"), 3)
    assert left("topk", x.astype("float64"), 3)  # whose equals may be others


@pytest.mark.parametrize("n", [1, 127, 128, 300])
def test_norms_over_dims_in_the_middle(n: int) -> None:
    for shape, dim in (((3, n, 19), 1), ((n, 5), 0), ((2, n, 2, 3), (1, 2)), ((1, n, 600), 1)):
        (x,) = arrays(shape)
        agree("linalg_vector_norm", x, 2, dim)
        agree("linalg_vector_norm", x, 2, dim, True)


@pytest.mark.parametrize("name", ["any", "all"])
def test_truths_of_rows(name: str) -> None:
    """Of the last dims of contiguous truth values; other operands are left to numpy."""
    x = np.random.default_rng(0).random((3, 5, 4, 14)) < {"any": 0.1, "all": 0.9}[name]
    for array in (x, x[..., :1].copy(), np.ones((2, 70), bool), np.zeros((300, 3), bool)):
        agree(name, array, -1)
        agree(name, array, (-1, -2) if array.ndim > 2 else -1, True)
    assert left(name, x, 1) and left(name, x, (0, 1, 2, 3)) and left(name, x[..., ::2], -1)
    assert left(name, x.astype("int32"), -1) and left(name, np.ones((0, 3), bool), -1)


@pytest.mark.parametrize("dim", [1, (1,), (2, 3), (0, 2, 3), (1, 2, 3), (1, 3), None, 2, 0, (0, 1)])
@pytest.mark.parametrize("shape", [(2, 5, 6, 7), (1, 8, 4, 4), (3, 1, 5, 2)])
def test_reductions_of_images_as_they_lie_in_memory(shape: tuple[int, ...], dim: Any) -> None:
    (x,) = arrays(shape)
    images = to_channels_last(x)
    for keepdim in (False, True):
        for name, of in (("sum", np.sum), ("mean", np.mean)):
            kernel = generated.kernel_of(OPS[name], lambda *args, of=of, **kwargs: NotImplemented)
            made = kernel(np, images, dim, keepdim)
            if made is NotImplemented:  # the rest would lie in another order, or all is left to others
                assert dim in (None, (0, 1)) or (shape[1] > 1 and dim in (0, 2))
                continue
            want = of(x, axis=dim, keepdims=keepdim)
            assert made.shape == want.shape and made.flags.c_contiguous
            np.testing.assert_allclose(made, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("shape", [(5, 17), (3, 2, 100), (1, 1000), (64,)], ids=str)
def test_places_of_an_order(shape: tuple[int, ...], dtype: str) -> None:
    n = shape[-1]
    for x in (arrays(shape)[0] * 100, np.round(arrays(shape)[0])):  # without and with equal elements
        x = x.astype(dtype)
        for k in (1, n // 3, n):
            agree("kthvalue", x, k, -1, True)
        agree("median_dim", x, -1)
    if dtype == "float32":
        flat = x.reshape(-1)
        flat[:6] = -0.0, 0.0, np.inf, -np.inf, -0.0, 1e-45
        agree("median_dim", x, len(shape) - 1, True)
        flat[[3, n - 1]] = np.nan, -np.nan
        agree("median_dim", x, -1)
        agree("kthvalue", x, n, -1)


def test_places_of_an_order_that_are_left() -> None:
    (x,) = arrays((6, 40))
    assert left("median_dim", x, 0) and left("median_dim", x.T, 1) and left("median_dim", x.astype("float64"), 1)
    assert left("median_dim", x[:, :3].copy(), 1) and left("kthvalue", x[:0], 1, 1)


@pytest.mark.parametrize("n", [16, 17, 31, 48, 49, 64, 100, 1023])
def test_softmax_of_rows_of_some_vectors(n: int) -> None:
    """Blocks of rows and a part of one, rows of infinities and of nan."""
    for rows in (1, 15, 16, 50):
        (x,) = arrays((rows, n))
        x *= 30
        agree("softmax", x, 1)
        agree("log_softmax", x, -1)
        agree("logsumexp", x, (1,))
    x[0, 3], x[1], x[2, -1], x[3, 0], x[4] = np.nan, -np.inf, np.inf, -np.inf, 3e38
    agree("softmax", x, 1)
    agree("log_softmax", x, 1)
    agree("logsumexp", x, (1,), True)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [1, 9, 4096, 4097, 30_000])
def test_the_product_of_all(n: int, dtype: str) -> None:
    (x,) = arrays((n,), dtype=dtype)
    agree("prod_all", x)
    agree("prod_all", np.exp(x).reshape(1, n))
    if n < 16:  # of the first half float32 has no product
        agree("prod_all", np.sort(np.where(np.arange(n) % 2, 1e30, 1e-30)).astype(dtype))
    assert left("prod_all", x.astype("float16")) and left("prod_all", x, dtype="float64")
