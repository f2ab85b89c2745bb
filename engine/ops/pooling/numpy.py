"""The arithmetic of pooling on arrays, for any number of spatial dims; no Tensors, no ops.

Maximum and sum go dim by dim (k_h + k_w passes, not k_h k_w), a block of samples at a time, and skip what is in the
padding instead of copying the input into a padded one.
"""

from __future__ import annotations

import builtins
import functools
import itertools
from math import prod
from typing import Any

import numpy as np

from engine.core.geometry import PoolGeometry

_BLOCK = 1 << 17
_SMALL = 1 << 12  # elements of which one block is made without memory of its own for the result


@functools.lru_cache(4096)
def overlap(n: int, out: int, offset: int, stride: int) -> tuple[slice, slice] | None:
    """Along one dim, for the kernel element at `offset`: windows where it is inside, and the elements it overlaps."""
    first = builtins.max(0, -(offset // stride))
    last = builtins.min(out - 1, (n - 1 - offset) // stride)
    if first > last:
        return None
    start = first * stride + offset
    return slice(first, last + 1), slice(start, start + (last - first) * stride + 1, stride)


def blocks(x: Any) -> Any:
    """Slices of samples of about _BLOCK elements."""
    step = builtins.max(1, _BLOCK // builtins.max(1, prod(x.shape[1:])))
    return [slice(i, builtins.min(i + step, x.shape[0])) for i in range(0, x.shape[0], step)]


def _along(ndim: int, axis: int, index: slice) -> tuple[Any, ...]:
    return (slice(None),) * axis + (index,) + (slice(None),) * (ndim - axis - 1)


def _reduce_axis(
    xp: Any,
    x: Any,
    axis: int,
    kernel: int,
    stride: int,
    padding: int,
    dilation: int,
    out: int,
    combine: Any,
    start: Any,
) -> Any:
    n = x.shape[axis]
    lead = (slice(None),) * axis
    taps = [overlap(n, out, i * dilation - padding, stride) for i in range(kernel)]
    whole = [t for t in taps if t is not None and t[0] == slice(0, out)]  # what every window overlaps goes first
    if whole:
        pieces = [x[(*lead, t[1])] for t in whole]
        if kernel == 1:
            return pieces[0]
        result = combine(pieces[0], pieces[1]) if len(pieces) > 1 else pieces[0].copy()
        for piece in pieces[2:]:
            combine(result, piece, out=result)
        taps = [t for t in taps if t not in whole]
    else:
        shape = list(x.shape)
        shape[axis] = out
        result = xp.full(tuple(shape), start, x.dtype)
    for tap in taps:
        if tap is not None:
            target = result[(*lead, tap[0])]
            combine(target, x[(*lead, tap[1])], out=target)
    return result


def lowest(xp: Any, dtype: Any) -> Any:
    """Return a lower bound of all values of `dtype`."""
    if dtype.kind in "iu":
        return int(xp.iinfo(dtype).min)
    return float("-inf")


def reduce(xp: Any, x: Any, geometry: PoolGeometry, out: Any, largest: bool) -> Any:
    """The maximum or the sum of each window.  x (N, C, *size) -> (N, C, *out)."""
    shape = (*x.shape[:2], *out)
    combine, start = (xp.maximum, lowest(xp, x.dtype)) if largest else (xp.add, 0)
    contiguous = x.flags.c_contiguous and x.size
    if contiguous:  # a block is of whole channels, then
        x = x.reshape(-1, 1, *x.shape[2:])
    order = list(enumerate(zip(*geometry, out)))
    # rows first: they lie together, and what steps along them is left with fewer.  (Sums keep their order of old.)
    order = order if largest else order[::-1]

    def reduced(part: Any) -> Any:
        for a, (k, s, p, d, n) in order:
            if (k, s, p, n) != (1, 1, 0, part.shape[2 + a]):
                part = _reduce_axis(xp, part, 2 + a, k, s, p, d, n, combine, start)
        return part

    if contiguous and x.size <= _SMALL and builtins.max(geometry.kernel) > 1:
        return reduced(x).reshape(shape)
    result = xp.empty(shape, x.dtype)
    made = result.reshape(-1, 1, *out) if contiguous else result

    def work(block: Any) -> None:
        made[block] = reduced(x[block])

    if x.size >= 1 << 16 and hasattr(xp, "share"):
        xp.share(work, x.shape[0], x.size)
    else:
        for block in blocks(x):
            work(block)
    return result


def spread(xp: Any, g: Any, size: Any, geometry: PoolGeometry) -> Any:
    """The transpose of summing windows: each value added to all of its window.  (N, C, *out) -> (N, C, *size)."""
    kernel, stride, padding, _ = geometry
    if (
        tuple(kernel) == tuple(stride)
        and not any(padding)
        and all(n == m * k for n, m, k in zip(size, g.shape[2:], kernel))
    ):
        result = xp.empty((*g.shape[:2], *size), g.dtype)  # windows side by side that hold each place once
        parts = [n for m, k in zip(g.shape[2:], kernel) for n in (m, k)]
        ones = [n for m in g.shape[2:] for n in (m, 1)]
        result.reshape(*g.shape[:2], *parts)[...] = g.reshape(*g.shape[:2], *ones)
        return result
    result = xp.empty((*g.shape[:2], *size), g.dtype)
    for block in blocks(result):
        part = g[block]
        for a, (n, k, s, p, d) in enumerate(zip(size, *geometry)):
            shape = list(part.shape)
            out, shape[2 + a] = shape[2 + a], n
            wide = xp.zeros(tuple(shape), g.dtype)
            for i in range(k):
                where = overlap(n, out, i * d - p, s)
                if where is not None:
                    wide[_along(part.ndim, 2 + a, where[1])] += part[_along(part.ndim, 2 + a, where[0])]
            part = wide
        result[block] = part
    return result


def window_taps(size: Any, out: Any, geometry: PoolGeometry) -> Any:
    """(windows, what they meet, offset of the flat index) for each kernel element, last first."""
    kernel, stride, padding, dilation = geometry
    for at in reversed(list(itertools.product(*map(range, kernel)))):
        offsets = [i * d - p for i, d, p in zip(at, dilation, padding)]
        pairs = [overlap(n, m, o, s) for n, m, o, s in zip(size, out, offsets, stride)]
        if any(p is None for p in pairs):
            continue
        flat = 0
        for n, o in zip(size, offsets):
            flat = flat * n + o
        lead = (slice(None), slice(None))
        yield (*lead, *(p[0] for p in pairs)), (*lead, *(p[1] for p in pairs)), flat


def bases(xp: Any, size: Any, out: Any, stride: Any) -> Any:
    """The flat index of each window's origin, padding left out.  -> (*out)."""
    total = xp.zeros(tuple(out), "int64")
    for a, (n, m, s) in enumerate(zip(size, out, stride)):
        total = total * n + (xp.arange(m) * s).reshape(-1, *(1,) * (len(out) - a - 1))
    return total


def window_argmax(xp: Any, x: Any, y: Any, geometry: PoolGeometry) -> Any:
    """The flat index of the first element of each window that equals its maximum y, or of its last nan.

    -> (N, C, *out) int64.

    Which element it is goes into a byte: of (8, 32, 64, 64) in windows of 2 x 2 in 1.6 ms, with indices 5.
    """
    size, out = x.shape[2:], y.shape[2:]
    taps = list(window_taps(size, out, geometry))  # the last first: ranks grow to the first
    kind = "uint8" if len(taps) < 256 else "uint16" if len(taps) < 1 << 16 else "int64"
    offsets = xp.asarray([0, *(flat for _, _, flat in taps)])
    result = xp.empty(y.shape, "int64")
    base = bases(xp, size, out, geometry.stride)
    for block in blocks(y):
        part, top = x[block], y[block]
        rank = xp.zeros(top.shape, kind)
        nan = _may_have_nan(top)
        for i, (windows, meeting, _) in enumerate(taps, 1):
            seen = part[meeting]
            hit = seen == top[windows]
            target = rank[windows]
            xp.maximum(target, hit.astype(kind) * rank.dtype.type(i), out=target)
            if nan:  # whose maximum is nan: nothing equals that
                target[...] = xp.where((seen != seen) & (target == 0), rank.dtype.type(i), target)
        xp.add(xp.take(offsets, rank), base, out=result[block])
    return result


def _may_have_nan(x: Any) -> bool:
    """Return whether some element may be nan: on a GPU without asking, which would wait for it."""
    return x.dtype.kind in "fV" and (not isinstance(x, np.ndarray) or bool((x != x).any()))


def _place(xp: Any, x: Any, axis: int, nan: bool) -> Any:
    """The place of the first maximum along an axis or, where `nan` says that there are some, of the last nan."""
    found = xp.argmax(x, axis=axis, keepdims=True)
    if nan:
        none = x != x
        last = x.shape[axis] - 1 - xp.argmax(xp.flip(none, axis), axis=axis, keepdims=True)
        found = xp.where(none.any(axis=axis, keepdims=True), last, found)
    return found


def adaptive_argmax(xp: Any, x: Any, size: Any) -> Any:
    """The flat index of the first maximum of each adaptive window, or of its last nan.  x (N, C, *) -> (N, C, *size)
    int64.
    """
    spatial = x.shape[2:]
    if prod(size) == 1:
        rows = x.reshape(*x.shape[:2], -1)
        found = xp.argmax(rows, axis=2, keepdims=True)
        if _may_have_nan(take_flat(xp, rows, found)):  # which is the first then
            found = _place(xp, rows, 2, True)
        return found.reshape(*x.shape[:2], *size).astype("int64", copy=False)
    nan = _may_have_nan(x)
    index = xp.broadcast_to(xp.arange(prod(spatial)).reshape((1, 1, *spatial)), x.shape)
    values = x
    for axis, n, m in reversed(list(zip(range(2, x.ndim), spatial, size))):  # rows first: the first in memory wins
        if n == m:
            continue
        tops, places = [], []
        for i in range(m):
            window = (slice(None),) * axis + (slice(i * n // m, -((-(i + 1) * n) // m)),)
            part, where = values[window], index[window]
            best = _place(xp, part, axis, nan)
            tops.append(xp.take_along_axis(part, best, axis=axis))
            places.append(xp.take_along_axis(where, best, axis=axis))
        values, index = xp.concatenate(tops, axis=axis), xp.concatenate(places, axis=axis)
    return index.astype("int64")


def put_back(xp: Any, g: Any, index: Any, size: Any, geometry: PoolGeometry) -> Any:
    """Each value added at its flat index.  g, index (N, C, *out) -> (N, C, *size)."""
    out = g.shape[2:]
    result = xp.zeros((*g.shape[:2], *size), g.dtype)
    if not g.size:
        return result
    if all(s >= d * (k - 1) + 1 for k, s, _, d in zip(*geometry)):  # no index twice
        rows = prod(g.shape[:2])
        shift = (xp.arange(rows) * prod(size)).reshape(rows, 1)
        result.reshape(-1)[(index.reshape(rows, -1) + shift).reshape(-1)] = g.reshape(-1)
        return result
    base = bases(xp, size, out, geometry.stride)
    for block in blocks(g):
        part, where, target = g[block], index[block] - base, result[block]
        for windows, meeting, flat in window_taps(size, out, geometry):
            target[meeting] += part[windows] * (where[windows] == flat)
    return result


def put_flat(xp: Any, input: Any, indices: Any, size: Any) -> Any:
    """Elements summed at flat indices of each channel.  input, indices (N, C, *out) -> (N, C, *size)."""
    rows, total = prod(input.shape[:2]), prod(size)
    result = xp.zeros((*input.shape[:2], *size), input.dtype)
    where = indices.reshape(rows, prod(indices.shape[2:])) + (xp.arange(rows) * total).reshape(rows, 1)
    if where.shape[1] == 1:  # no index twice
        result.reshape(-1)[where.reshape(-1)] = input.reshape(-1)
    else:
        xp.add.at(result.reshape(-1), where.reshape(-1), input.reshape(-1))
    return result


def take_flat(xp: Any, x: Any, index: Any) -> Any:
    """The elements at flat indices.  x (N, C, *size), index (N, C, *out) -> (N, C, *out)."""
    rows = prod(x.shape[:2])
    if index.size == rows and index.flags.c_contiguous and x.flags.c_contiguous and x.size:  # one of each channel
        each = x.size // rows
        return xp.take(x.reshape(-1), index.reshape(-1) + xp.arange(0, x.size, each)).reshape(index.shape)
    x, where = x.reshape(rows, prod(x.shape[2:])), index.reshape(rows, prod(index.shape[2:]))
    return xp.take_along_axis(x, where, axis=1).reshape(index.shape)


def counts(xp: Any, size: Any, out: Any, geometry: PoolGeometry, include: bool, dtype: Any) -> Any:
    """The number of elements of each window: with padding (as far as it was asked for) or without.  -> (*out)."""
    total = xp.ones((1,) * len(out), dtype)
    for a, (n, m, k, s, p) in enumerate(zip(size, out, *geometry[:3])):
        start = xp.arange(m) * s - p
        end = xp.minimum(start + k, n + p)
        if not include:
            start, end = xp.maximum(start, 0), xp.minimum(end, n)
        total = total * (end - start).astype(dtype).reshape(-1, *(1,) * (len(out) - a - 1))
    return total
