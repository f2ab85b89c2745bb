"""Sums and running sums of integers and truth values as generated kernels (the extra `jit`): numpy converts all of them
to int64 before it adds them, and walks one short row after the other."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from engine.core.checks import wrap_dim, wrap_dims
from engine.kernels import integers, scans
from engine.ops.generated.layers import parts, run

__all__ = ["plain", "running", "summed"]

_KINDS = frozenset(map(np.dtype, ("bool", "uint8", "int8", "int16", "int32", "int64")))
_SUMS = scans.sums_of_runs(False, "int64")
_RUN = 1 << 15  # elements of a run that is added by itself


def _type(input: Any) -> str:
    """The type that a kernel reads the elements as."""
    return "uint8" if input.dtype == bool else str(input.dtype.name)


def _plain(input: Any) -> bool:
    return bool(input.dtype in _KINDS and input.ndim and input.size and input.flags.c_contiguous)


def plain(input: Any) -> bool:
    """Return whether these are integers, side by side."""
    return _plain(input) and input.dtype != bool


def summed(xp: Any, input: Any, dim: Any, keepdim: bool) -> Any:
    """The sum over neighbouring dims, or over all; NotImplemented for other operands."""
    if not _plain(input):
        return NotImplemented
    axes = sorted(wrap_dims(dim, input.ndim)) if dim is not None and dim != () else list(range(input.ndim))
    if axes[-1] - axes[0] != len(axes) - 1:
        return NotImplemented
    before, after = input.shape[: axes[0]], input.shape[axes[-1] + 1 :]
    made = xp.empty((*before, *(1,) * len(axes), *after) if keepdim else before + after, "int64")
    rows, behind, type = prod(before), prod(after), _type(input)
    n = input.size // (rows * behind)
    if behind > 1:
        bands = scans.bands(behind)
        run(integers.sums_of_columns, [input, made], [n, behind], rows * bands, n * behind // bands, type)
        return made
    runs = -(-n // _RUN)
    sums = made if runs == 1 else xp.empty((rows, runs), "int64")
    run(_SUMS, [input, sums], [n, runs, min(n, _RUN)], rows * runs, min(n, _RUN), type)
    if runs > 1:
        run(_SUMS, [sums, made], [runs, 1, runs], rows, runs, "int64")
    return made


def running(xp: Any, input: Any, dim: int) -> Any:
    """The running sums along a dim; NotImplemented for other operands."""
    if not _plain(input):
        return NotImplemented
    rows, n, after = parts(input.shape, wrap_dim(dim, input.ndim))
    made, bands = xp.empty(input.shape, "int64"), scans.bands(after)
    if after == 1:
        run(integers.running_sums(True), [input, made], [n], rows, n, _type(input))
    else:
        run(integers.running_sums(False), [input, made], [n, after], rows * bands, n * after // bands, _type(input))
    return made
