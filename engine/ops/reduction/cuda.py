"""Sums, products, extremes, truth and moments over any dims: one row kernel each, in parts where rows are few and long.

16-bit floats accumulate in float32; the order of additions is fixed, so results are the same from run to run.
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from engine.core import dtypes
from engine.core.checks import wrap_dims
from engine.dispatch import kernel
from engine.kernels.form import FormError
from engine.kernels.trace import KNOWN, Untraceable
from engine.ops import comparison, extremes, reduction
from engine.ops.cuda import _rows
from engine.ops.cuda._launch import Unfit

_FAILS = (Unfit, Untraceable, FormError)


def serving(variant: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel with NotImplemented for operands that it does not serve."""

    @functools.wraps(variant)
    def kernel_or_none(*args: Any, **kwargs: Any) -> Any:
        try:
            return variant(*args, **kwargs)
        except _FAILS:
            return NotImplemented

    kernel_or_none.served = variant, _FAILS  # type: ignore[attr-defined]  # for `_routes.proved`, in one call less
    return kernel_or_none


@functools.cache
def _has_kernels(dtype: Any) -> bool:
    return dtype.name in KNOWN


def known(*arrays: Any) -> None:
    """Raise Unfit for types that no kernel reads, and for arrays without elements."""
    for a in arrays:
        if a is not None and not (_has_kernels(a.dtype) and a.size):
            raise Unfit("a type or a size")


def shaped(found: Any, shape: Sequence[int], axes: Sequence[int], keepdim: bool) -> Any:
    """A result without the axes as torch wants it."""
    return found.reshape([1 if d in axes else n for d, n in enumerate(shape)]) if keepdim else found


def along(
    xp: Any,
    name: str,
    by: Sequence[str],
    code: Any,
    after: Any,
    input: Any,
    dim: Any,
    keepdim: bool,
    results: Sequence[Any],
    whole: bool = False,
    key: Any = (),
) -> list[Any]:
    """`_rows.reduce` of one array over torch's `dim` (None: all)."""
    if dim.__class__ is list:
        dim = tuple(dim)
    call = name, input.__class__, input.dtype, input.shape, input.strides, dim, keepdim, tuple(results), whole, key
    found = _rows.replay(xp, call, [input])
    if found is not None:
        return found
    known(input)
    if not input.ndim:
        raise Unfit("one element")
    axes = tuple(range(input.ndim)) if dim is None else wrap_dims(dim, input.ndim)
    shape = tuple([1 if d in axes else n for d, n in enumerate(input.shape) if keepdim or d not in axes])
    found = _rows.reduce(xp, name, by, code, after, [input], axes, results, whole, key, (call, shape))
    return [shaped(f, input.shape, axes, keepdim) for f in found]


def _as_is(xp: Any, count: Any, value: Any) -> Any:
    return value


def _itself(xp: Any, x: Any) -> Any:
    return x


def _in_type(dtype: Any) -> Any:
    return lambda xp, x: x.astype(dtype, copy=False)


def _summed(xp: Any, input: Any, dtype: Any, by: str, dim: Any, keepdim: bool) -> Any:
    """A sum or product in the type that torch gives it."""
    if dtype is not None:
        kind = dtypes.to_numpy(dtype)
    else:
        kind = np.dtype("int64") if input.dtype.kind in "iub" else input.dtype
    if kind.kind not in "fVi" or not _has_kernels(kind) or (kind.kind == "i" and kind.itemsize < 4):
        raise Unfit(kind.name)
    (found,) = along(xp, by, [by], _in_type(kind), _as_is, input, dim, keepdim, [kind], key=kind)
    return found


@kernel(reduction.sum, "cuda")
@serving
def _sum(xp, input, dim=None, keepdim=False, *, dtype=None):
    return _summed(xp, input, dtype, "sum", dim, keepdim)


@kernel(reduction.sum_to_size, "cuda")
@serving
def _sum_to_size(xp, input, size):
    lead, ones = reduction.summed_dims(input.shape, tuple(size))
    if not (lead or ones) or input.dtype.kind not in "fV":
        return NotImplemented
    return _summed(xp, input, None, "sum", lead + ones, False).reshape(size)


@kernel(reduction.prod_all, "cuda")
@serving
def _prod_all(xp, input, *, dtype=None):
    return _summed(xp, input, dtype, "product", None, False)


@kernel(reduction.prod_dim, "cuda")
@serving
def _prod_dim(xp, input, dim, keepdim=False, *, dtype=None):
    return _summed(xp, input, dtype, "product", dim, keepdim)


@kernel(reduction.mean, "cuda")
@serving
def _mean(xp, input, dim=None, keepdim=False, *, dtype=None):
    kind = dtypes.to_numpy(dtype) if dtype is not None else input.dtype
    if kind.kind not in "fV":
        return NotImplemented
    share = lambda xp, count, total: total / count.astype(total.dtype)
    (found,) = along(xp, "mean", ["sum"], _in_type(kind), share, input, dim, keepdim, [kind], key=kind)
    return found


@kernel(reduction.count_nonzero, "cuda")
@serving
def _count_nonzero(xp, input, dim=None):
    truth = lambda xp, x: (x != 0).astype("int64")
    return along(xp, "count_nonzero", ["sum"], truth, _as_is, input, dim, False, ["int64"])[0]


# --- extremes


def _extreme(op: Any, by: str, all_when: Any) -> None:
    @kernel(op, "cuda")
    @serving
    def _(xp, input, dim=None, keepdim=False):
        over = None if dim == all_when else dim
        return along(xp, by, [by], _itself, _as_is, input, over, keepdim, [input.dtype])[0]


_extreme(extremes.max_all, "max", None)
_extreme(extremes.min_all, "min", None)
_extreme(extremes.amax, "max", ())
_extreme(extremes.amin, "min", ())


def _with_place(op: Any, by: str) -> None:
    @kernel(op, "cuda")
    @serving
    def _(xp, input, dim, keepdim=False):
        both = lambda xp, count, value, place: (value, place)
        found = along(xp, by, [by], _itself, both, input, dim, keepdim, [input.dtype, "int64"], whole=True)
        return tuple(found)


_with_place(extremes.max_dim, "argmax")
_with_place(extremes.min_dim, "argmin")


def _place(op: Any, by: str) -> None:
    @kernel(op, "cuda")
    @serving
    def _(xp, input, dim=None, keepdim=False):
        if input.dtype.kind == "b":
            return NotImplemented
        only = lambda xp, count, value, place: place
        return along(xp, by + "_only", [by], _itself, only, input, dim, keepdim, ["int64"], whole=True)[0]


_place(extremes.argmax, "argmax")
_place(extremes.argmin, "argmin")


# --- truth


def _truth(op: Any, by: str) -> None:
    @kernel(op, "cuda")
    @serving
    def _(xp, input, dim=None, keepdim=False):
        if dim == ():
            return NotImplemented
        result = "uint8" if input.dtype == np.uint8 else "bool"
        return along(xp, by, [by], lambda xp, x: x != 0, _as_is, input, dim, keepdim, [result])[0]


_truth(comparison.any, "any")
_truth(comparison.all, "all")


# --- moments


def _moment(op: Any, root: bool) -> None:
    @kernel(op, "cuda")
    @serving
    def _(xp, input, dim=None, correction=1, keepdim=False):
        if input.dtype.kind not in "fV":
            return NotImplemented
        known(input)
        axes = tuple(range(input.ndim)) if dim is None else wrap_dims(dim, input.ndim)
        if not axes:
            return NotImplemented
        wide = np.dtype("float32") if input.dtype.itemsize == 2 else input.dtype
        share = lambda xp, count, total: total / count.astype(wide)
        (center,) = _rows.reduce(xp, "mean_wide", ["sum"], _in_type(wide), share, [input], axes, [wide], key=wide)
        spread = xp.broadcast_to(shaped(center, input.shape, axes, True), input.shape)
        square = lambda xp, x, m: (x.astype(wide, copy=False) - m) * (x.astype(wide, copy=False) - m)
        (found,) = _rows.reduce(xp, "squares", ["sum"], square, _as_is, [input, spread], axes, [wide], key=wide)
        n = builtins.max(prod(input.shape[d] for d in axes) - correction, 0)
        with np.errstate(all="ignore"):
            found = xp.true_divide(found, wide.type(n))
            found = xp.sqrt(found) if root else found
        return shaped(found.astype(input.dtype, copy=False), input.shape, axes, keepdim)


_moment(reduction.var_of, False)
_moment(reduction.std_of, True)
