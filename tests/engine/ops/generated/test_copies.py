"""Repeated elements by generated kernels: against the ops' own code, and what they leave to it."""

from __future__ import annotations

from typing import Any

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


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint8", "bool", "float16"])
@pytest.mark.parametrize("shape,repeats", [
    ((2, 3), (2, 1)), ((2, 3), (1, 4)), ((2, 3), (2, 3, 4)), ((5,), (4, 2)), ((), (2,)), ((3, 4, 5), (2, 1, 3)),
    ((2, 1, 3, 1, 2), (1, 2, 2, 3, 1)), ((7, 70), (1, 1)),
])  # fmt: skip
def test_repeated(shape: tuple[int, ...], repeats: tuple[int, ...], dtype: str) -> None:
    (x,) = arrays(shape)
    x = np.asarray(x * 5).astype(dtype)
    agree("repeat", x, repeats)
    for d in range(x.ndim):
        agree("repeat_each", x, 3, d)


def test_repeated_views() -> None:
    (x,) = arrays((6, 4, 8))
    for view in (x[::2], x[:, :, ::-1], x[:, 1:3], x[::-1, :, ::2]):
        agree("repeat", view, (2, 1, 3))
        agree("repeat_each", view, 2, 1)


def test_what_is_left_of_repeated() -> None:
    (x,) = arrays((4, 40, 30))
    for given in (x.transpose(2, 1, 0), x.astype("complex128"), x[:0]):
        assert left("repeat", given, (1, 2, 1))
        assert left("repeat_each", given, 2, 0)
    assert left("repeat", x, (0, 1, 1)) and left("repeat_each", x, 0, 1)


@pytest.mark.parametrize("n", [2, 3, 8])
@pytest.mark.parametrize("mean", [False, True])
def test_sums_of_few_rows(n: int, mean: bool) -> None:
    (x,) = arrays((3, n, 70))
    agree("mean" if mean else "sum", x, 1)


def test_repeating_each_takes_the_dim_of_a_slice() -> None:
    made: Any = OPS["repeat_each"].kernel(np, np.arange(6).reshape(2, 3), 2, 1)
    assert made.tolist() == [[[0, 0], [1, 1], [2, 2]], [[3, 3], [4, 4], [5, 5]]]
