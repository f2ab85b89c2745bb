"""torch.testing's names: `assert_close`, `make_tensor`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engine.core import dtypes
from engine.jit.archive.file_check import FileCheck
from engine.tensor import Tensor

__all__ = ["FileCheck", "assert_allclose", "assert_close", "make_tensor"]

# torch's (rtol, atol) by dtype; https://docs.pytorch.org/docs/2.13/testing.html
_TOLERANCES = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
    "complex64": (1.3e-6, 1e-5),
    "complex128": (1e-7, 1e-7),
}


def _tensor(value: Any) -> Tensor:
    from engine.ops import functions as torch

    return value if isinstance(value, Tensor) else torch.as_tensor(value)


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: Any = None,
) -> None:
    """AssertionError unless |actual - expected| <= atol + rtol |expected| everywhere; also for lists and dicts.

    Without tolerances: torch's for the dtype, the larger of the two.
    """
    same = dict(rtol=rtol, atol=atol, equal_nan=equal_nan, check_device=check_device, check_dtype=check_dtype, msg=msg)
    if isinstance(actual, Mapping) and isinstance(expected, Mapping):
        _require(set(actual) == set(expected), "The keys of the mappings do not match", msg)
        for key in actual:
            assert_close(actual[key], expected[key], **same)
        return
    if isinstance(actual, Sequence) and isinstance(expected, Sequence):
        sizes = len(actual), len(expected)
        _require(sizes[0] == sizes[1], f"The length of the sequences mismatch: {sizes[0]} != {sizes[1]}", msg)
        for one, other in zip(actual, expected):
            assert_close(one, other, **same)
        return
    if (rtol is None) != (atol is None):
        raise ValueError("Both 'rtol' and 'atol' must be either specified or unspecified.")
    a, b = _tensor(actual).detach(), _tensor(expected).detach()
    if a.shape != b.shape:
        _require(False, f"The values for attribute 'shape' do not match: {a.shape} != {b.shape}.", msg)
    if check_dtype and a.dtype is not b.dtype:
        _require(False, f"The values for attribute 'dtype' do not match: {a.dtype} != {b.dtype}.", msg)
    if check_device and a.device != b.device:
        _require(False, f"The values for attribute 'device' do not match: {a.device} != {b.device}.", msg)
    if rtol is None or atol is None:
        found = [_TOLERANCES.get(t.dtype.name, (0.0, 0.0)) for t in (a, b)]
        rtol, atol = max(r for r, _ in found), max(t for _, t in found)
    x, y = (_wide(t) for t in (a, b))
    close = np.isclose(x, y, rtol=rtol, atol=atol, equal_nan=equal_nan)
    if not close.all():
        wrong, worst = int((~close).sum()), float(np.nanmax(np.abs(x - y)))
        text = f"Tensor-likes are not close!\n\nMismatched elements: {wrong} / {close.size}\n"
        text += f"Greatest absolute difference: {worst}"
        _require(False, text + f" (up to {atol} allowed; rtol {rtol})", msg)


def assert_allclose(
    actual: Any, expected: Any, rtol: Any = None, atol: Any = None, equal_nan: bool = True, msg: str = ""
) -> None:
    """`assert_close` without the check of dtype and device."""
    assert_close(
        _tensor(actual),
        _tensor(expected),
        rtol=rtol,
        atol=atol,
        equal_nan=equal_nan,
        check_device=False,
        check_dtype=False,
        msg=msg or None,
    )


def _wide(t: Tensor) -> np.ndarray:
    array = t.numpy(force=True)
    real = np.longdouble if t.dtype is dtypes.int64 else np.float64
    return array.astype(np.complex128 if t.is_complex() else real)


def _require(condition: bool, text: str, msg: Any) -> None:
    if not condition:
        raise AssertionError(msg(text) if callable(msg) else msg or text)


def make_tensor(
    *shape: Any,
    dtype: dtypes.dtype,
    device: Any,
    low: float | None = None,
    high: float | None = None,
    requires_grad: bool = False,
    noncontiguous: bool = False,
    exclude_zero: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """Numbers drawn evenly from [low, high), cut to what the dtype holds: by default [-9, 9), integers to 9.  -> shape

    exclude_zero: the smallest normal number (1) instead of zeros.  ValueError for limits that leave nothing.
    """
    from engine.ops import functions as torch

    sizes = list(shape[0] if len(shape) == 1 and isinstance(shape[0], Sequence) else shape)
    if noncontiguous and memory_format is not None:
        raise ValueError(
            f"The parameters `noncontiguous` and `memory_format` are mutually exclusive, but got {noncontiguous=} and "
            f"{memory_format=}"
        )
    whole = dtype.category < dtypes.FLOATING
    if requires_grad and whole:
        raise ValueError(f"`requires_grad=True` is not supported for boolean and integral dtypes, but got {dtype=}")
    low, high = _limits(dtype, low, high)
    spread = noncontiguous and math.prod(sizes) > 1
    if spread:
        sizes[-1] *= 2
    if whole:
        result = torch.randint(math.ceil(low), math.ceil(high), sizes, device=device, dtype=dtype)
    else:
        result = torch.empty(sizes, device=device, dtype=dtype)
        (torch.view_as_real(result) if dtype.is_complex else result).uniform_(low, high)
    if spread:
        result = result[..., 1::2]
    elif memory_format is not None:
        result = result.clone(memory_format=memory_format)
    if exclude_zero:
        least = 1 if whole else dtypes.finfo(dtype).tiny
        result[result == 0] = complex(least, least) if dtype.is_complex else least
    return result.requires_grad_(requires_grad)


def _limits(dtype: dtypes.dtype, low: float | None, high: float | None) -> tuple[float, float]:
    """The limits of `make_tensor`, checked and cut to the dtype's."""
    if dtype is dtypes.bool:
        least, end, usual = 0, 2, (0, 2)
    elif dtype.category < dtypes.FLOATING:
        info = dtypes.iinfo(dtype)
        least, end, usual = info.min, info.max + (dtype is not dtypes.int64), (-9, 10)
    else:
        least, end, usual = dtypes.finfo(dtype).min, dtypes.finfo(dtype).max, (-9, 9)
    low, high = (u if x is None else x for x, u in zip((low, high), usual))
    if low != low or high != high:
        raise ValueError(f"`low` and `high` cannot be NaN, but got {low=} and {high=}")
    if low > high or (low == high and dtype.category < dtypes.FLOATING):
        raise ValueError(f"`low` must be less than `high`, but got {low} >= {high}")
    if high < least or low >= end:
        raise ValueError(
            f"The value interval specified by `low` and `high` is [{low}, {high}), but {dtype} only supports "
            f"[{least}, {end})"
        )
    return min(max(low, least), end), min(max(high, least), end)
