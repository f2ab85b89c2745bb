"""Whether the results of two routes are the same, up to rounding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

BLOCK = 1 << 16  # elements that are compared at once
TOLERANCES = {"float64": 1e-9, "float32": 2e-4, "float16": 4e-3, "bfloat16": 3e-2}  # of the largest result


def size_of(array: Any) -> float:
    """The largest finite magnitude in an array of floats."""
    return max(map(_largest, _samples(array)), default=0.0) if array.dtype.kind in "fV" else 0.0


def largest_of(arrays: Sequence[Any], multiplies: bool = False) -> float:
    """The largest finite magnitude in arrays; of operands that are multiplied times the next one, if that is over 1."""
    sizes = sorted([0.0, *map(size_of, arrays)])
    return sizes[-1] * max(1.0, sizes[-2]) if multiplies and len(arrays) > 1 else sizes[-1]


def _samples(array: Any) -> Iterator[Any]:
    """About a million of the elements, all of few, in float64, block by block: a copy of all takes as much memory again
    where the strides of an array are in another order than its axes, and 8 MB in float64.

    The step is odd, so that each lane of the vectors is among them.
    """
    step = array.size >> 20 | 1
    for begin in range(0, array.size, BLOCK * step):
        yield array.flat[begin : begin + BLOCK * step : step].astype(np.float64)


def _largest(block: Any) -> float:
    """The largest finite magnitude in a block of float64."""
    with np.errstate(all="ignore"):
        return float(np.abs(block).max(initial=0.0, where=np.isfinite(block)))


def difference(want: Any, got: Any, largest: float = 0.0, terms: int = 1) -> str | None:
    """Describe the first difference between two results (arrays or tuples of them); None if there is none.

    largest: of the operands, of whose rounding something may be left where terms cancel; terms: how many there were.
    """
    if isinstance(want, tuple | list) or isinstance(got, tuple | list):
        if not isinstance(want, tuple | list) or not isinstance(got, tuple | list) or len(want) != len(got):
            return "another number of results"
        return next((d for a, b in zip(want, got) if (d := difference(a, b, largest, terms)) is not None), None)
    if want is None or got is None:
        return None if want is got else "a result is missing"
    want, got = np.asarray(want), np.asarray(got)
    if want.shape != got.shape or want.dtype != got.dtype:
        return f"{got.dtype} {got.shape} instead of {want.dtype} {want.shape}"
    if want.dtype.kind not in "fV":
        return None if np.array_equal(want, got) else "other values"
    near = TOLERANCES.get(want.dtype.name, 1e-9)
    allowed = near * size_of(want) + near * 1e-2 * largest * max(1, terms / max(1, want.size)) ** 0.5
    seen = wrong = 0
    first = ""
    for a, b in zip(_samples(want), _samples(got)):
        with np.errstate(all="ignore"):
            same = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= allowed)
        if not same.all():
            at = int(same.argmin())
            first = first or f"{b[at]:.9g} instead of {a[at]:.9g} at sample {seen + at}"
            wrong += same.size - int(np.count_nonzero(same))
        seen += same.size
    return f"{first}, {wrong} of {seen} differ" if wrong else None
