"""Conversions of few elements as direct launches."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import engine
from engine.dispatch import OPS
from engine.kernels import direct, processor
from engine.ops.generated import comparison, small

pytestmark = pytest.mark.skipif(
    not processor.available() or not direct.readable(), reason=f"generated code is {processor.describe()}"
)
CALLS = direct.EVERY * small.OFFERS
VALUES = [0.0, -0.0, 1.5, -2.75, 65504.0, 65520.0, 1e-7, 3e38, float("inf"), -float("inf"), float("nan")]


@pytest.mark.parametrize("target", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("source", ["float16", "bfloat16", "float32", "float64", "int64", "uint8", "bool"])
def test_a_conversion_that_comes_often_is_kept(source: str, target: str) -> None:
    function = small.function_of(OPS["to_copy"], OPS["to_copy"].kernel)
    assert function is not None
    dtype = ml_dtypes.bfloat16 if source == "bfloat16" else source
    floats = source not in ("int64", "uint8", "bool")
    with np.errstate(all="ignore"):
        x = np.array(VALUES if floats else range(200), "float64").astype(dtype).repeat(7)
    args = x, getattr(engine, target), None, None, None, False
    with np.errstate(all="ignore"):
        want = OPS["to_copy"].kernel(np, *args)
        for _ in range(CALLS):
            function(*args)
    found = function(*args)
    if source == target:
        assert found is NotImplemented
    else:
        assert comparison.difference(want, found) is None
        assert np.array_equal(want[np.isfinite(want)], found[np.isfinite(want)])


def test_what_is_no_plain_conversion_is_left() -> None:
    function = small.function_of(OPS["to_copy"], OPS["to_copy"].kernel)
    assert function is not None
    x = np.ones((2, 3, 4, 4), "float32")
    for args in (
        (x, engine.int32, None, None, None, False),
        (x, None, None, None, None, False),
        (x, engine.float16, None, engine.channels_last, None, False),
        (x[:, :, ::2], engine.float16, None, None, None, False),
    ):
        for _ in range(CALLS):
            function(*args)
        assert function(*args) is NotImplemented
