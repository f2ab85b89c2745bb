"""Differences between the results of two routes."""

from __future__ import annotations

import math
import tracemalloc

import ml_dtypes  # noqa: F401  numpy knows bfloat16 by its name then
import numpy as np
import pytest

from engine.ops.generated import comparison


@pytest.mark.parametrize("shape", [(3_000_001,), (3, 1_000, 1_001)])
def test_a_comparison_takes_little_memory(shape: tuple[int, ...]) -> None:
    """Copies of a million elements in float64 had raised the peak of a whole model, copies of images that lie with
    their channels last that of another one.
    """
    want = np.linspace(-2, 2, math.prod(shape), dtype="f4").reshape(shape).T
    got = want.copy("K")
    tracemalloc.start()
    try:
        assert comparison.difference(want, got, comparison.size_of(want)) is None
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    got.flat[3 * 700_001] = 7  # the step is 3
    assert f"7 instead of {want.flat[3 * 700_001]:.9g} at sample 700001, 1 of" in str(comparison.difference(want, got))


def test_differences_are_seen() -> None:
    a = np.linspace(-1, 1, 1000, dtype="f4")
    assert comparison.difference(a, a.copy()) is None
    assert "1 of 1000 differ" in str(comparison.difference(a, np.where(np.arange(1000) == 7, 0, a).astype("f4")))
    assert "instead of float32" in str(comparison.difference(a, a.astype("f8")))
    assert comparison.difference((a, None), (a, a)) == "a result is missing"
    nan = np.where(a > 0.5, np.nan, a).astype("f4")
    assert comparison.difference(nan, nan) is None and comparison.difference(a, nan) is not None
    # what is left of terms that cancel is no difference
    assert comparison.difference(np.zeros(3, "f4"), np.full(3, 1e-7, "f4"), 1.0) is None
    assert comparison.difference(np.zeros(3, "f4"), np.full(3, 1e-4, "f4"), 1.0) is not None
