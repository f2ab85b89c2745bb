"""`testing.make_tensor`."""

from __future__ import annotations

import math
from typing import Any

import pytest

import engine
from engine.torch_names.testing import make_tensor


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        (engine.bool, 0, 2),
        (engine.uint8, 0, 10),
        (engine.int64, -9, 10),
        (engine.float32, -9, 9),
        (engine.bfloat16, -9, 9),
        (engine.complex64, -9, 9),
    ],
)
def test_the_usual_limits(dtype: Any, low: int, high: int) -> None:
    x = make_tensor((40, 50), dtype=dtype, device="cpu")
    assert (x.dtype, tuple(x.shape)) == (dtype, (40, 50))
    flat = engine.view_as_real(x) if x.is_complex() else x
    assert low <= float(flat.min()) < low + 2 and high - 2 <= float(flat.max()) <= high


def test_limits_zeros_and_strides() -> None:
    x = make_tensor(30, 4, dtype=engine.int32, device="cpu", low=-0.5, high=1.5, exclude_zero=True)
    assert set(x.flatten().tolist()) == {1}
    x = make_tensor(2, 3, dtype=engine.float64, device="cpu", noncontiguous=True, requires_grad=True)
    assert (x.is_contiguous(), x.stride(), x.requires_grad) == (False, (6, 2), True)
    y = make_tensor(2, 3, 4, 4, dtype=engine.float32, device="cpu", memory_format=engine.channels_last)
    assert y.is_contiguous(memory_format=engine.channels_last)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"low": 2, "high": 1}, "`low` must be less than `high`, but got 2 >= 1"),
        ({"low": math.nan}, "cannot be NaN"),
        ({"dtype": engine.uint8, "low": 300, "high": 400}, r"but torch.uint8 only supports \[0, 256\)"),
        ({"dtype": engine.int32, "requires_grad": True}, "not supported for boolean and integral dtypes"),
        ({"noncontiguous": True, "memory_format": engine.channels_last}, "mutually exclusive"),
    ],
)
def test_what_is_refused(options: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make_tensor((2, 2), **{"dtype": engine.float32, "device": "cpu", **options})
