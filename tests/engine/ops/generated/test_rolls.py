"""`roll` as one kernel: against numpy's, of any dims and element sizes; what it leaves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.kernels import processor
from engine.ops.generated import rolls
from tests.engine.ops.generated.test_layers import agree, arrays
from tests.engine.ops.generated.test_lines import left

pytestmark = [
    pytest.mark.skipif(not processor.available(), reason=f"generated code is {processor.describe()}"),
    pytest.mark.usefixtures("launched"),
]

CASES = [  # shape, shifts, dims
    ((5,), 2, ()),
    ((2, 3), (1, -1), (0, 1)),
    ((3, 4, 5), 7, ()),
    ((3, 4, 5), 2, -1),
    ((6, 4, 5), 2, 0),
    ((3, 4, 50), 2, -1),
    ((3, 4, 50), (1, 2), (1, 2)),
    ((3, 4, 50), (1, 2), (0, 2)),
    ((3, 4, 50), (1, 2, 2), (1, 2, 1)),  # a dim twice
    ((3, 4, 5, 60), (1, 2, -3), (0, 1, 3)),
    ((3, 4, 5, 6), (1, 2, -3), (0, 1, 3)),
    ((2, 20000), -5, 1),  # lines in parts, an end within one
    ((20001,), 9000, 0),
]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "bool"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_rolls(case: Any, dtype: str) -> None:
    shape, shifts, dims = case
    x = (np.arange(np.prod(shape)) * 7 % 100).reshape(shape).astype(dtype)
    got = rolls._roll(np, x, shifts, dims)
    assert got.dtype == x.dtype
    np.testing.assert_array_equal(got, np.roll(x, shifts, None if dims == () else dims))


def test_it_is_the_op() -> None:
    x, y = arrays((3, 4, 50), (2, 3, 4, 5))
    agree("roll", x, (1, 2), (0, 2))
    agree("roll", x, 5)
    assert left("roll", x, 0, 1)  # nothing moves
    assert left("roll", x.swapaxes(0, 1), 1, 0)
    assert left("roll", y, (1, 1, 1, 1), (0, 1, 2, 3))
    assert left("roll", x, (1, 2), (0,)) and left("roll", x, 1, 5)  # errors are the op's
    assert left("roll", x[:0], 1, 1)
