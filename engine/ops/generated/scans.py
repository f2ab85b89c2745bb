"""Reductions, running results and the first of an order along one dim as generated kernels (the extra `jit`).

They are the kernels "cpu" of their ops; what they do not serve is left to the other route.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from engine.core.checks import wrap_dim, wrap_dims
from engine.core.layouts import INNER, ChannelsLast
from engine.dispatch import OPS, kernel
from engine.kernels import layers, ranks, scans
from engine.kernels import softmax as soft
from engine.ops import comparison, extremes, reduction, scan, softmax, sorting
from engine.ops.generated import integers
from engine.ops.generated.layers import parts, plain, run
from engine.ops.generated.route import lanes
from engine.ops.linalg import norms
from engine.ops.pooling import adaptive

_ADDED = 1 << 12  # rows that are added in runs: what rounding leaves of more grows
_FEW = 8  # rows whose sum is written out
_PARTS = 16  # sums at least, where rows of as many elements may be cut into parts
_MOST = 64  # such parts, and rows of one at least
_SUMMED = 128  # numbers that are added one after the other in their own type
_RUN = 1 << 12  # elements, or squares, that are added in a few lanes
_FIRST = 16  # values of an order that a kernel holds: one more may be compared with all of them
_RANKED = 1 << 14  # elements of a row that is counted again and again


# --- reductions over neighbouring dims


def _parted(input: Any, dim: Any, keepdim: bool, whole: bool = False) -> tuple[tuple[int, ...], int, int, int] | None:
    """(shape of the result, rows, elements of a dim that is reduced, elements behind them); None for other operands.

    whole: integers are served, too.
    """
    if not input.ndim or not (plain(input) or (whole and integers.plain(input))):
        return None
    axes = sorted(wrap_dims(dim, input.ndim)) if dim is not None and dim != () else list(range(input.ndim))
    if axes[-1] - axes[0] != len(axes) - 1:
        return None
    before, after = input.shape[: axes[0]], input.shape[axes[-1] + 1 :]
    rows, behind = prod(before), prod(after)
    shape = (*before, *(1,) * len(axes), *after) if keepdim else before + after
    return shape, rows, input.size // (rows * behind), behind


def _reduced(xp: Any, input: Any, dim: Any, keepdim: bool, by: str, mean: bool = False) -> Any:
    found = _parted(input, dim, keepdim, by in ("max", "min"))
    if found is None:
        return _reduced_apart(xp, input, dim, keepdim, by, mean)
    shape, rows, n, behind = found
    made, bands = xp.empty(shape, input.dtype), scans.bands(behind)
    if behind == 1 and by == "sum" and n > _RUN and not mean:
        sums = _of_runs(xp, input, rows, n, False)
        run(scans.reduced(by), [sums, made], [sums.shape[1]], rows, sums.shape[1])
    elif behind == 1:
        run(scans.reduced(by, mean), [input, made], [n], rows, n)
    elif by in ("max", "min"):
        run(scans.reduced_rows(by), [input, made], [n, behind], rows * bands, n * behind // bands)
    elif by == "sum" and n <= _FEW:
        run(scans.summed_few(n, mean), [input, made], [behind], rows * bands, n * behind // bands)
    elif by == "sum":
        cut = _cut(n) if rows * bands < _PARTS <= behind else 1
        if n // cut > _ADDED:
            return NotImplemented
        if cut > 1:
            sums, part = (xp.empty((rows, cut, behind), input.dtype) for _ in range(2))
            each = n // cut * behind // bands
            run(scans.summed_rows(mean), [input, sums, part], [n // cut, behind], rows * cut * bands, each)
            input, n = sums, cut
        part = xp.empty((rows, behind), input.dtype)
        run(scans.summed_rows(mean), [input, made, part], [n, behind], rows * bands, n * behind // bands)
    else:
        return NotImplemented
    return made


def _cut(n: int) -> int:
    """Equal parts of so many rows of which each is added up by itself; 1 where there are none."""
    return next((parts for parts in range(min(_MOST, n // _MOST), 1, -1) if n % parts == 0), 1)


def _of_runs(xp: Any, input: Any, rows: int, n: int, squares: bool) -> Any:
    """The sums of runs of each row, or of their squares: what rounding leaves of so many stays small.  (rows, runs)"""
    runs = -(-n // _RUN)
    sums = xp.empty((rows, runs), input.dtype)
    run(scans.sums_of_runs(squares), [input, sums], [n, runs, _RUN], rows * runs, _RUN)
    return sums


def _reduced_apart(xp: Any, input: Any, dim: Any, keepdim: bool, by: str, mean: bool) -> Any:
    """Dims that are not neighbours, as those of a batch and of pixels: the last run of neighbours, then those before.

    A mean is the mean of means, each of as many.
    """
    if not plain(input) or not input.ndim:
        return NotImplemented
    axes = sorted(wrap_dims(dim, input.ndim))
    split = max(i for i in range(1, len(axes)) if axes[i] != axes[i - 1] + 1)
    found = _reduced(xp, input, tuple(axes[split:]), True, by, mean)
    if found is not NotImplemented:
        found = _reduced(xp, found, tuple(axes[:split]), True, by, mean)
    if found is NotImplemented or keepdim:
        return found
    return found.reshape([n for d, n in enumerate(input.shape) if d not in axes])


def _in_memory(axes: Any, shape: Sequence[int]) -> Any:
    """Dims of images as they lie in memory, behind the others the channels; None where the dims that are left would lie
    in another order."""
    left = [d for d, n in enumerate(shape) if d not in axes and n > 1]
    if 1 in left and left[-1] > 1:
        return None
    return tuple([d - 1 if d > 1 else (len(shape) - 1) * d for d in axes])


def _of_images(input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """A reduction of images of the engine's own layout (`dispatch.kernel`)."""
    if input.__class__ is not ChannelsLast or dtype is not None:
        return None
    axes = wrap_dims(dim, input.ndim) if dim is not None and dim != () else tuple(range(input.ndim))
    found = _in_memory(axes, input.shape)
    shape = [1 if d in axes else n for d, n in enumerate(input.shape) if keepdim or d not in axes]
    return None if found is None else ((input.transpose(INNER[input.ndim]).view(np.ndarray), found, keepdim), shape)


@kernel(extremes.amax, "cpu", only_launches=True)
def _amax(xp, input, dim=(), keepdim=False):
    return _reduced(xp, input, dim, keepdim, "max")


def _truths(xp: Any, input: Any, dim: Any, keepdim: bool, by: str) -> Any:
    """`any` or `all` of rows of truth values: of the last dims, of which numpy walks one short row after the other."""
    if input.dtype != bool or not input.ndim or not input.size or not input.flags.c_contiguous:
        return NotImplemented
    axes = sorted(wrap_dims(dim, input.ndim))
    kept = input.ndim - len(axes)
    if not axes or axes[0] != kept or not kept:
        return NotImplemented
    lead = input.shape[:kept]
    made, rows = xp.empty((*lead, *(1,) * len(axes)) if keepdim else lead, input.dtype), prod(lead)
    run(scans.reduced(by), [input, made], [input.size // rows], rows, input.size // rows, "bool")
    return made


@kernel(comparison.any, "cpu", only_launches=True, serves=lambda input, dim=None, *_: dim is not None)
def _any(xp, input, dim=None, keepdim=False):
    return _truths(xp, input, dim, keepdim, "any")


@kernel(comparison.all, "cpu", only_launches=True, serves=lambda input, dim=None, *_: dim is not None)
def _all(xp, input, dim=None, keepdim=False):
    return _truths(xp, input, dim, keepdim, "all")


@kernel(adaptive.maxima_of_images, "cpu", only_launches=True)
def _maxima_of_images(xp, input):
    return _reduced(xp, input, tuple(range(2, input.ndim)), True, "max")


@kernel(extremes.amin, "cpu", only_launches=True)
def _amin(xp, input, dim=(), keepdim=False):
    return _reduced(xp, input, dim, keepdim, "min")


def _placed(xp: Any, input: Any, dim: Any, keepdim: bool, largest: bool) -> Any:
    found = _parted(input, (dim,), keepdim, True)
    if found is None:
        return NotImplemented
    shape, rows, n, behind = found
    made, places = xp.empty(shape, input.dtype), xp.empty(shape, "int64")
    sizes = [n] if behind == 1 else [n, behind]
    run(scans.placed_extremes(largest, behind == 1), [input, made, places], sizes, rows, n * behind)
    return made, places


@kernel(extremes.max_dim, "cpu", only_launches=True)
def _max(xp, input, dim, keepdim=False):
    return _placed(xp, input, dim, keepdim, True)


@kernel(extremes.min_dim, "cpu", only_launches=True)
def _min(xp, input, dim, keepdim=False):
    return _placed(xp, input, dim, keepdim, False)


def _place_of(xp: Any, input: Any, dim: int | None, keepdim: bool, largest: bool) -> Any:
    if dim is None or not input.ndim:
        return NotImplemented
    found = _placed(xp, input, dim, keepdim, largest)
    return found if found is NotImplemented else found[1]


def _of_a_dim(input: Any, dim: Any = None, *rest: Any) -> bool:
    return dim is not None


@kernel(extremes.argmax, "cpu", only_launches=True, serves=_of_a_dim)
def _argmax(xp, input, dim=None, keepdim=False):
    return _place_of(xp, input, dim, keepdim, True)


@kernel(extremes.argmin, "cpu", only_launches=True, serves=_of_a_dim)
def _argmin(xp, input, dim=None, keepdim=False):
    return _place_of(xp, input, dim, keepdim, False)


@kernel(
    reduction.sum,
    "cpu",
    only_launches=True,
    serves=lambda input, dim=None, *_: dim is not None or input.dtype.kind in "iub",
    images=_of_images,
)
def _sum(xp, input, dim=None, keepdim=False, *, dtype=None):
    if dtype is not None or input.dtype.kind in "iub":
        return integers.summed(xp, input, dim, keepdim) if dtype is None else NotImplemented
    return _reduced(xp, input, dim, keepdim, "sum")  # all: by direct calls


@kernel(reduction.sum_to_size, "cpu", only_launches=True)
def _sum_to_size(xp, input, size):
    axes = tuple([d for dims in reduction.summed_dims(input.shape, size) for d in dims])
    if not axes or len(axes) == input.ndim:
        return NotImplemented
    found = _reduced(xp, input, axes, True, "sum")
    return found if found is NotImplemented else found.reshape(size)


@kernel(reduction.mean, "cpu", only_launches=True, images=_of_images)
def _mean(xp, input, dim=None, keepdim=False, *, dtype=None):
    return NotImplemented if dtype is not None else _reduced(xp, input, dim, keepdim, "sum", True)


@kernel(reduction.prod_dim, "cpu", only_launches=True)
def _prod(xp, input, dim, keepdim=False, *, dtype=None):
    if dtype is not None:
        return NotImplemented
    found = _parted(input, dim, keepdim, True) if integers.plain(input) else None
    if found is None or found[3] > 1:
        return _reduced(xp, input, dim, keepdim, "product")
    shape, rows, n, _ = found
    made = xp.empty(shape, "int64")
    run(scans.reduced("product", out="int64"), [input, made], [n], rows, n)
    return made


@kernel(reduction.prod_all, "cpu", only_launches=True)
def _prod_all(xp, input, *, dtype=None):
    if dtype is not None or not plain(input):
        return NotImplemented
    made, runs = xp.empty((), input.dtype), -(-input.size // _RUN)
    parts = xp.empty((runs,), "float64")
    run(scans.products_of_runs, [input, parts], [input.size, _RUN], runs, _RUN)
    run(scans.reduced("product", out=input.dtype.name), [parts, made], [runs], 1, runs)
    return made


@kernel(norms.linalg_vector_norm, "cpu", only_launches=True)
def _vector_norm(xp, input, ord=2, dim=None, keepdim=False, *, dtype=None):
    found = _parted(input, dim, keepdim) if ord == 2 and dtype is None else None
    if found is None or (found[3] > 1 and found[2] > _ADDED):
        return NotImplemented
    shape, rows, n, behind = found
    made = xp.empty(shape, input.dtype)
    if behind > 1:
        part, bands = xp.empty((rows, behind), input.dtype), scans.bands(behind)
        run(scans.summed_rows(False, True), [input, made, part], [n, behind], rows * bands, n * behind // bands)
        return made
    if n <= _RUN:
        run(scans.roots(True), [input, made], [n], rows, n)
        return made
    sums = _of_runs(xp, input, rows, n, True)
    run(scans.roots(False), [sums, made], [sums.shape[1]], rows, sums.shape[1])
    return made


@kernel(reduction.logsumexp, "cpu", only_launches=True)
def _logsumexp(xp, input, dim, keepdim=False):
    found = _parted(input, dim, keepdim)
    if found is None or (found[3] > 1 and found[2] > _SUMMED):
        return NotImplemented
    shape, rows, n, behind = found
    made = xp.empty(shape, input.dtype)
    if behind == 1 and n <= scans.FEW_SUMMED:
        blocks = -(-rows // scans.SIDE_BY_SIDE)
        run(scans.log_of_few_sums(n), [input, made], [rows], blocks, n * scans.SIDE_BY_SIDE)
    elif behind == 1:
        if _blocks_of_rows(xp, "logsumexp", input, made, rows, n) is None:
            run(scans.log_of_sums, [input, made], [n], rows, n)
    else:
        sums = xp.empty((rows, behind), input.dtype)
        run(scans.log_of_sums_of_rows, [input, made, sums], [n, behind], rows, n * behind)
    return made


def _blocks_of_rows(xp: Any, kind: str, input: Any, made: Any, rows: int, n: int) -> Any:
    """`made` by the kernel for rows of some vectors; None for others."""
    width = lanes()
    if input.dtype != np.float32 or not width <= n <= soft.LONGEST:
        return None
    jobs = -(-rows // width)
    levels = [xp.empty((jobs * width,), input.dtype) for _ in range(2)]
    run(soft.soft_rows(width, kind), [input, made, *levels], [n, rows], jobs, n * width)
    return made


def _soft(op: Any, log: bool) -> None:
    """Rows of few places and of some vectors have kernels of their own, others the one of any rows."""
    of_rows = OPS[op.__name__].kernels["cuda"]

    @kernel(op, "cpu", only_launches=True)
    def _(xp, input, dim, dtype=None):
        found = _parted(input, (dim,), False) if dtype is None else None
        if found is None or found[3] > 1:
            return of_rows(xp, input, dim, dtype)
        _, rows, n, _ = found
        made = xp.empty(input.shape, input.dtype)
        if n > (scans.FEW_PLACES if log else scans.FEW_WRITTEN):
            served = _blocks_of_rows(xp, op.__name__, input, made, rows, n)
            return of_rows(xp, input, dim, dtype) if served is None else served
        write = scans.log_soft_rows_of_few(n) if log else scans.soft_rows_of_few(n)
        levels = [xp.empty((rows,), input.dtype) for _ in range(2 * log)]
        run(write, [input, made, *levels], [rows], -(-rows // scans.SIDE_BY_SIDE), n * scans.SIDE_BY_SIDE)
        return made


_soft(softmax.softmax, False)
_soft(softmax.log_softmax, True)


# --- running results


@kernel(scan.cumsum, "cpu", only_launches=True)
def _cumsum(xp, input, dim, *, dtype=None):
    if dtype is not None or not input.ndim:
        return NotImplemented
    if not plain(input):
        return integers.running(xp, input, dim)
    before, length, after = parts(input.shape, wrap_dim(dim, input.ndim))
    made = xp.empty(input.shape, input.dtype)
    run(layers.running_sums, [input, made], [length, after], before * after, length)
    return made


@kernel(scan.cumprod, "cpu", only_launches=True)
def _cumprod(xp, input, dim, *, dtype=None):
    if dtype is not None or not input.ndim or not plain(input):
        return NotImplemented
    before, length, after = parts(input.shape, wrap_dim(dim, input.ndim))
    made = xp.empty(input.shape, input.dtype)
    run(scans.running_products, [input, made], [length, after], before * after, length)
    return made


def _running(xp: Any, input: Any, dim: Any, largest: bool) -> Any:
    if not input.ndim or not plain(input):
        return NotImplemented
    before, length, after = parts(input.shape, wrap_dim(dim, input.ndim))
    made, places = xp.empty(input.shape, input.dtype), xp.empty(input.shape, "int64")
    sizes = [length] if after == 1 else [length, after]
    run(scans.running_extremes(largest, after == 1), [input, made, places], sizes, before, length * after)
    return made, places


@kernel(scan.cummax, "cpu", only_launches=True)
def _cummax(xp, input, dim):
    return _running(xp, input, dim, True)


@kernel(scan.cummin, "cpu", only_launches=True)
def _cummin(xp, input, dim):
    return _running(xp, input, dim, False)


# --- the first of an order


@kernel(sorting.topk, "cpu", only_launches=True)
def _topk(xp, input, k, dim=-1, largest=True, sorted=True):
    axis = wrap_dim(dim, input.ndim)
    if not input.ndim or axis != input.ndim - 1 or not plain(input) or input.dtype != "float32":
        return NotImplemented
    n = input.shape[-1]
    if not 0 < k <= min(n, _FIRST):
        return NotImplemented
    shape = (*input.shape[:-1], k)
    made, places = xp.empty(shape, input.dtype), xp.empty(shape, "int64")
    run(scans.first_of_order(bool(largest)), [input, made, places], [n, k], input.size // n, n)
    return made, places


def _at_place(xp: Any, input: Any, dim: int, place: int, keepdim: bool, nan: bool) -> Any:
    """(values, indices) at a place of the order of each row; nan: those of the first nan, where there is one."""
    axis, n = wrap_dim(dim, input.ndim), input.shape[-1] if input.ndim else 0
    if not lanes() <= n <= _RANKED or axis != input.ndim - 1 or not input.flags.c_contiguous:
        return NotImplemented
    if input.dtype not in ("float32", "int32") or not input.size:
        return NotImplemented
    shape, rows = (*input.shape[:-1], *(1,) * keepdim), input.size // n
    together = ranks.TOGETHER * lanes()
    pitch = -(-n // together) * together
    keys, values, places = xp.empty((rows, pitch), "int32"), xp.empty(shape, input.dtype), xp.empty(shape, "int64")
    steps = n.bit_length()
    numbers = [n, pitch, place, int(nan), 1 << (steps - 1), steps]
    write = ranks.at_place(lanes(), input.dtype == "float32")
    run(write, [input, keys, values, places], numbers, rows, n * (32 + steps) // lanes(), "int32")
    return values, places


@kernel(sorting.kthvalue, "cpu", only_launches=True)
def _kthvalue(xp, input, k, dim=-1, keepdim=False):
    if not input.ndim or not 1 <= k <= input.shape[-1]:
        return NotImplemented
    return _at_place(xp, input, dim, k - 1, keepdim, False)


@kernel(sorting.median_dim, "cpu", only_launches=True)
def _median(xp, input, dim, keepdim=False):
    return _at_place(xp, input, dim, (input.shape[-1] - 1) // 2, keepdim, True) if input.ndim else NotImplemented
