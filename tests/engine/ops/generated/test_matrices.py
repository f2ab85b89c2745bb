"""Determinants, systems of many small matrices, triangular ones: against the op's own code; what they leave to it."""

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


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize(("batch", "n", "columns"), [((), 1, 1), ((), 21, 600), ((), 128, 3), ((5,), 17, 33)])
def test_triangular_systems(batch: tuple[int, ...], n: int, columns: int, upper: bool, dtype: str) -> None:
    x, y, z = arrays((*batch, n, n), (*batch, n, columns), (*batch, columns, n), dtype=dtype)
    x /= n  # of a unit diagonal, too, results stay near 1
    x += 2 * np.eye(n, dtype=dtype)
    for unitriangular in (False, True):
        options = {"upper": upper, "unitriangular": unitriangular}
        for a in (x, x.swapaxes(-1, -2)):
            agree("linalg_solve_triangular", a, y, **options)
            agree("linalg_solve_triangular", a, z.swapaxes(-1, -2), **options)
            agree("linalg_solve_triangular", a, z, left=False, **options)
            agree("linalg_solve_triangular", a, y.swapaxes(-1, -2), left=False, **options)
    x[..., 0, 0] = 0  # infinities and nan
    with np.errstate(all="ignore"):
        agree("linalg_solve_triangular", x, y, upper=upper)


def test_what_is_left() -> None:
    x, y, large = arrays((40, 3, 3), (40, 3, 2), (40, 5, 5))
    assert left("linalg_slogdet", large) and left("linalg_slogdet", x[:5]) and left("linalg_slogdet", x[0])
    assert left("linalg_slogdet", x.swapaxes(-1, -2)) and left("linalg_slogdet", x.astype("complex64"))
    assert left("linalg_solve_system", x[:1], y) and left("linalg_solve_system", x, y.swapaxes(-1, -2), left=False)
    assert left("linalg_det", large) and left("inverse", large) and left("inverse", x.swapaxes(-1, -2))
    for a, b in ((x, y[:1]), (x[0], y), (x.astype("complex64"), y.astype("complex64")), (x, y.astype("float64"))):
        assert left("linalg_solve_triangular", a, b, upper=True)
    assert left("linalg_solve_triangular", *arrays((129, 129), (129, 1)), upper=True)
    assert left("linalg_solve_triangular", x, y[:, :, :0], upper=True)
    x[7] = 0  # singular: LAPACK's error, or its infinities
    assert left("inverse", x)
    assert left("linalg_solve_system", x, y)
