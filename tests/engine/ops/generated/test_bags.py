"""Bags of rows in generated code: against the ops' own code, what they leave to it, and places beyond the arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.dispatch import OPS
from engine.kernels import bags, cpu, processor
from engine.ops import generated
from engine.ops.generated import launch
from tests.engine.ops.generated.test_layers import agree, arrays

pytestmark = [
    pytest.mark.skipif(not processor.available(), reason=f"generated code is {processor.describe()}"),
    pytest.mark.usefixtures("launched"),
]
STARTS = [0, 0, 4, 4, 20, 23]


@pytest.mark.parametrize("padding", [-1, 3])
@pytest.mark.parametrize("mean,weighted", [(True, False), (False, False), (False, True)])
@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bags_and_the_gradient_of_their_table(dtype: str, index: str, mean: bool, weighted: bool, padding: int) -> None:
    rng = np.random.default_rng(0)
    w, g, shares = arrays((9, 13), (6, 13), (30,), dtype=dtype)
    w[3, 0], w[5, 1] = np.nan, np.inf
    grid, flat, starts = rng.integers(0, 9, (6, 5)), rng.integers(0, 9, 23), np.array(STARTS)
    for at, offsets, last in ((grid, None, False), (flat, starts, False), (flat, starts, True)):
        at, offsets = (a if a is None else a.astype(index) for a in (at, offsets))
        p = shares[: at.size].reshape(at.shape) if weighted else None
        agree("pooled_rows", w, at, offsets, p, mean, padding, last)
        agree("pooled_rows_backward", g[: 6 - last], at, 9, offsets, p, mean, padding, last)


def _variant(name: str, *args: Any) -> Any:
    return generated.variant_of(OPS[name], small=True)(np, *args)


@pytest.mark.parametrize("at", [[[0, 9]], [[-1, 0]]])
def test_indices_of_no_row_are_left(at: list[list[int]]) -> None:
    (w,) = arrays((9, 4))
    with pytest.raises(launch.Unfit):
        _variant("pooled_rows", w, np.array(at))


@pytest.mark.parametrize("starts", [[1, 2], [0, 6], [0, 3, 2], [0, -1, 2], [0, 10**9, 2]])
def test_offsets_that_begin_no_bags_are_left_and_nothing_beyond_is_read(starts: list[int]) -> None:
    w, g = arrays((9, 4), (len(starts), 4))
    at = np.arange(5)
    with pytest.raises(launch.Unfit):
        _variant("pooled_rows", w, at, np.array(starts))
    assert np.isfinite(_variant("pooled_rows_backward", g, at, 9, np.array(starts))).all()


def test_what_is_left() -> None:
    w, g = arrays((9, 4), (2, 4))
    at = np.array([[0, 1], [2, 3]])
    for array in (at.astype("int16"), at[:, :0], at.T):
        assert _variant("pooled_rows", w, array) is NotImplemented
        assert _variant("pooled_rows_backward", g, array, 9) is NotImplemented
    assert _variant("pooled_rows", w.astype("float16"), at) is NotImplemented
    assert _variant("pooled_rows", w, at.reshape(-1), np.array([0, 2], "int32")) is NotImplemented
    assert _variant("pooled_rows", w, at.reshape(-1), np.array([0]), None, False, -1, True) is NotImplemented


def test_kernels_differ_by_what_they_read() -> None:
    assert bags.pooled("int64", False, False, True, False) is bags.pooled("int64", False, False, True, False)
    kernels = [bags.pooled("int64", parted, False, True, False)("float32") for parted in (False, True)]
    assert [len(k.parameters) for k in kernels] == [8, 9]
    assert all(cpu.operations(k) > bags.RUN for k in kernels)
