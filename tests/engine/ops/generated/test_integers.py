"""Sums, extremes and products of integers and truth values: the numbers of the ops' own code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import engine
from engine.kernels import processor
from tests.engine.ops.generated.test_layers import agree
from tests.engine.ops.generated.test_lines import left

pytestmark = [
    pytest.mark.skipif(not processor.available(), reason=f"generated code is {processor.describe()}"),
    pytest.mark.usefixtures("launched"),
]
TYPES = ["bool", "uint8", "int8", "int16", "int32", "int64"]


def drawn(*shape: int, dtype: str) -> Any:
    """All numbers that a type has, up to 62 bits."""
    rng = np.random.default_rng(len(shape))
    if dtype == "bool":
        return rng.random(shape) < 0.5
    info = np.iinfo(dtype)
    return rng.integers(max(info.min, -(1 << 50)), min(info.max, 1 << 50), shape, dtype, True)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("dim", [None, -1, 0, 1, (0, 1), (1, 2)])
def test_sums(dim: Any, dtype: str) -> None:
    for shape in ((3, 4, 100), (7, 5, 3), (1, 2, 70_000), (2, 300, 1030)):
        x = drawn(*shape, dtype=dtype)
        agree("sum", x, dim)
        agree("sum", x, dim, True)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("dim", [-1, 0, 1])
def test_running_sums(dim: int, dtype: str) -> None:
    for shape in ((3, 4, 100), (7, 5, 1030)):
        agree("cumsum", drawn(*shape, dtype=dtype), dim)


@pytest.mark.parametrize("dtype", TYPES[1:])
@pytest.mark.parametrize("dim", [-1, 0, 1])
def test_extremes_and_products(dim: int, dtype: str) -> None:
    x = drawn(5, 7, 40, dtype=dtype)
    x[0, 0, :9] = x[0, 0, 0]
    for name in ("amax", "amin"):
        agree(name, x, (dim,))
    for name in ("max_dim", "min_dim"):
        agree(name, x, dim)
    if dim == -1:
        agree("prod_dim", x, dim)
        agree("prod_dim", x % 3, dim, True)


def test_what_is_left() -> None:
    x = drawn(4, 6, dtype="int32")
    assert left("sum", x.T, 0) and left("cumsum", x.T, 0) and left("amax", x > 3, 1) and left("sum", x[:0], 1)
    assert left("sum", x, 1, dtype="int32") and left("sum", np.ones((2, 3, 4), "int64"), (0, 2))
    assert left("prod_dim", x, 0)


def test_types_of_results() -> None:
    for _ in range(300):
        mask = engine.ones(3, 50, dtype=engine.bool)
        assert mask.sum(1).tolist() == [50] * 3 and mask.sum().item() == 150
        assert mask.cumsum(1).dtype is engine.int64 and mask.sum(0).dtype is engine.int64
        assert mask.to(engine.uint8).amax(1).dtype is engine.uint8
