"""Places of maxima, what is taken or added at places, and histograms as generated kernels (the extra `jit`).

They are the kernels "cpu" of their ops; what they do not serve is left to the other route.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from engine.core.checks import wrap_dim
from engine.dispatch import kernel
from engine.kernels import histograms, places, searches
from engine.ops import extremes, pooling, sorting, statistics
from engine.ops.generated import launch
from engine.ops.generated.layers import parts, plain, run
from engine.ops.generated.lines import added_along
from engine.ops.pooling import adaptive

_MOST = 1 << 31  # elements whose places have 32 bits
_SEARCHED = frozenset(map(np.dtype, ("float32", "float64", "int32", "int64")))
_CUT, _PARTS = 1 << 12, 64  # numbers that are searched in parts, and how many parts at most


def _places(index: Any) -> bool:
    return index.dtype == np.int64 and index.flags.c_contiguous and bool(index.size)


@kernel(adaptive.gradient_at_maxima, "cpu", only_launches=True)
def _gradient_at_maxima(xp, grad_output, input):
    rows = prod(input.shape[:2])
    if not plain(input, grad_output) or grad_output.size != rows or input.size // rows >= _MOST:
        return NotImplemented
    made, n = xp.empty(input.shape, input.dtype), input.size // rows
    run(places.gradient_at_maxima, [grad_output, input, made], [n], rows, n)
    return made


@kernel(adaptive.adaptive_max_indices, "cpu", only_launches=True)
def _adaptive_max_indices(xp, input, size):
    if not plain(input) or len(size) > 2 or not all(size):
        return NotImplemented
    (h, w), (rows, m) = ((1,) * (2 - len(size)) + tuple(sizes) for sizes in (input.shape[2:], size))
    if h * w >= _MOST:
        return NotImplemented
    planes, made = prod(input.shape[:2]), xp.empty((*input.shape[:2], *size), "int64")
    found, each = [input], -(-w // m)
    if rows != h:
        found = [xp.empty((planes, rows, w), kind) for kind in (input.dtype, "int32")]
        run(places.places_of_lines, [input, *found], [h, w, rows], planes * rows, -(-h // rows) * w)
    run(places.places_of_parts(rows != h), [*found, made], [h, w, m], made.size, each, input.dtype.name)
    return made


@kernel(pooling.pool_gather, "cpu", only_launches=True)
def _pool_gather(xp, input, indices):
    if not plain(input) or not _places(indices) or input.shape[:2] != indices.shape[:2]:
        return NotImplemented
    made, rows = xp.empty(indices.shape, input.dtype), prod(input.shape[:2])
    count = indices.size // rows
    run(places.taken_within, [input, indices, made], [input.size // rows, count], rows, count)
    return made


@kernel(pooling.pool_scatter, "cpu", only_launches=True)
def _pool_scatter(xp, input, indices, size):
    if not plain(input) or not _places(indices) or input.shape != indices.shape or not prod(size):
        return NotImplemented
    made, rows = xp.empty((*input.shape[:2], *size), input.dtype), prod(input.shape[:2])
    n, count = made.size // rows, indices.size // rows
    run(places.added_within, [input, indices, made], [n, count, 1], rows, n + count)
    return made


@kernel(extremes.put_along, "cpu", only_launches=True)
def _put_along(xp, grad_output, index, shape, dim):
    if not plain(grad_output) or not _places(index) or grad_output.shape != index.shape:
        return added_along(xp, tuple(shape), dim, index, grad_output, [])
    axis = wrap_dim(dim, len(shape))
    before, n, after = parts(shape, axis)
    made = xp.empty(shape, grad_output.dtype)
    count = index.size // (before * after)
    if not made.size or not count:
        return NotImplemented
    run(places.added_within, [grad_output, index, made], [n, count, after], before, (n + count) * after)
    return made


@kernel(statistics.histc, "cpu")
def _histc(xp, input, bins=100, min=0, max=0):
    if not plain(input) or not 0 < bins <= histograms.PART or input.size >= _MOST:
        return NotImplemented
    if launch.trials.seen is not None:  # the range is found out here, which no direct launch does
        return NotImplemented
    low, high = statistics.range_of(input, min, max)
    count = -(-input.size // histograms.PART)
    found = xp.empty((count, histograms.PART), "int32")
    counts = xp.empty((count, histograms.SIDES, bins + 1), "int32")
    numbers = [input.size, bins, float(low), float(high)]
    run(histograms.counted, [input, found, counts], numbers, count, 4 * histograms.PART)
    return counts[..., :bins].sum((0, 1)).astype(input.dtype)


@kernel(sorting.search_sorted, "cpu", only_launches=True)
def _search_sorted(xp, sorted_sequence, input, right, sorter=None, out_int32=False):
    several = sorted_sequence.ndim > 1
    alike = sorted_sequence.dtype == input.dtype and sorted_sequence.flags.c_contiguous and input.flags.c_contiguous
    if sorter is not None or not alike or input.dtype not in _SEARCHED or not input.size or not sorted_sequence.size:
        return NotImplemented
    if (sorted_sequence[..., 1:] < sorted_sequence[..., :-1]).any():  # what is found then depends on the way of looking
        return NotImplemented
    n, m, out = sorted_sequence.shape[-1], input.shape[-1], "int32" if out_int32 else "int64"
    if not several:  # rows are what threads share
        m = input.size
        m //= next((k for k in range(_PARTS, 1, -1) if m % k == 0), 1) if m >= _CUT else 1
    made = xp.empty(input.shape, out)
    write = searches.insertion_points((n - 1).bit_length(), bool(right), out, several)
    run(write, [sorted_sequence, input, made], [n, m], input.size // m, m * n.bit_length())
    return made
