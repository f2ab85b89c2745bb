"""Determinants and systems of many small matrices: against the op's own code, and what they leave to it."""

from __future__ import annotations

import numpy as np
import pytest

from engine.kernels import processor
from tests.engine.ops.generated.test_layers import agree, arrays
from tests.engine.ops.generated.test_lines import left

pytestmark = [
    pytest.mark.skipif(not processor.available(), reason=f"generated code is {processor.describe()}"),
    pytest.mark.usefixtures("launched"),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_determinants(n: int, dtype: str) -> None:
    (x,) = arrays((5, 8, n, n), dtype=dtype)
    agree("linalg_slogdet", x)
    agree("linalg_det", x)
    x[0, 0], x[1, 1], x[2, 2, 0, 0] = 0, -np.eye(n), np.nan  # singular, negative
    x[3, 3] = np.eye(n)[::-1]  # rows are exchanged
    agree("linalg_slogdet", x)
    agree("linalg_det", x)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_systems(n: int, dtype: str) -> None:
    (x,) = arrays((40, n, n), dtype=dtype)
    x += 3 * np.eye(n, dtype=dtype)
    for columns in (1, 3, 4):
        (y,) = arrays((40, n, columns), dtype=dtype)
        agree("linalg_solve_system", x, y)
        agree("linalg_solve_system", x.swapaxes(-1, -2), y)
    x[3] = np.eye(n)[::-1]
    agree("inverse", x)
    agree("linalg_solve_system", x, y)


def test_what_is_left() -> None:
    x, y, large = arrays((40, 3, 3), (40, 3, 2), (40, 5, 5))
    assert left("linalg_slogdet", large) and left("linalg_slogdet", x[:5]) and left("linalg_slogdet", x[0])
    assert left("linalg_slogdet", x.swapaxes(-1, -2)) and left("linalg_slogdet", x.astype("complex64"))
    assert left("linalg_solve_system", x[:1], y) and left("linalg_solve_system", x, y.swapaxes(-1, -2), left=False)
    assert left("linalg_det", large) and left("inverse", large) and left("inverse", x.swapaxes(-1, -2))
    x[7] = 0  # singular: LAPACK's error, or its infinities
    assert left("inverse", x)
    assert left("linalg_solve_system", x, y)
