"""Points of a grid, and sums of an image's elements at them, on arrays; no Tensors, no ops.

An element of all channels is a row here, so that each index copies a row: of (2, 32, 64, 64) at as many points the four
neighbours of each in 0.6 ms, where numpy takes single elements in 6.
"""

from __future__ import annotations

import builtins
import functools
import itertools
import operator
from collections.abc import Sequence
from math import prod
from typing import Any

from engine.ops.gathering import accumulate_rows

# --- where points are
#
# `unnormalized` and `placed` are also recorded as a part of generated kernels (engine/kernels/planes.py): they get
# arrays, or what stands for one of their elements.


def unnormalized(coordinate: Any, size: Any, align: bool) -> Any:
    """Grid coordinates -1..1 as pixel indices."""
    if align:
        return (coordinate + 1) * ((size - 1) / 2)
    return ((coordinate + 1) * size - 1) / 2


def placed(xp: Any, coordinate: Any, size: Any, padding: str, align: bool) -> tuple[Any, Any]:
    """Pixel indices after padding (clipped, or mirrored and clipped), and their slope by the coordinate: a number, or
    one each.  nan becomes 0, and the edges have no slope, as in torch."""
    p, slope = unnormalized(coordinate, size, align), (size - 1) / 2 if align else size / 2
    if padding == "zeros":
        return p, slope
    last = size - 1
    if padding == "reflection":
        p, sign = _mirrored(xp, p, *((0, last) if align else (-0.5, size)))
        slope = sign * slope
    inside = (p > 0) & (p < last)
    return xp.where(p > 0, xp.where(p < last, p, last), 0), xp.where(inside, slope, 0.0).astype(p.dtype, copy=False)


def _mirrored(xp: Any, p: Any, least: float, span: Any) -> tuple[Any, Any]:
    """p mirrored at `least` and `least + span` until it is between them, and 1 or -1 where it goes with p or not."""
    from_least = p - least
    away = xp.absolute(from_least)
    flips = xp.floor(away / span)
    extra = away - flips * span
    odd = flips - xp.floor(flips * 0.5) * 2 > 0
    sign = xp.where((from_least < 0) ^ odd, -1.0, 1.0).astype(p.dtype, copy=False)
    return xp.where(odd, span - extra + least, extra + least), sign


def _located(xp: Any, grid: Any, size: Sequence[int], padding: str, align: bool) -> list[tuple[Any, Any]]:
    """For each dim the places (N, *out) of the points, and their slope."""
    n = len(size)
    return [placed(xp, grid[..., n - 1 - d], size[d], padding, align) for d in range(n)]


def nearest(xp: Any, grid: Any, size: Sequence[int], padding: str, align: bool) -> tuple[Any, None]:
    """Flat indices (N, 1, P) of the elements nearest to points, prod(size) for what is outside; no weights."""
    return places(xp, [xp.rint(p) for p, _ in _located(xp, grid, size, padding, align)], size), None


def around(xp: Any, grid: Any, size: Sequence[int], padding: str, align: bool) -> tuple[Any, list[Any]]:
    """Flat indices (N, 2 ** n, P) of the elements around points; for each dim ((1 - f, f), slope), (N, P) each."""
    found, steps = [], []
    for p, slope in _located(xp, grid, size, padding, align):
        first = xp.floor(p)
        part = (p - first).reshape(p.shape[0], prod(p.shape[1:]))
        found.append(((1 - part, part), slope if isinstance(slope, float) else slope.reshape(part.shape)))
        steps += [first, first + 1]
    return places(xp, steps, size), found


def places(xp: Any, tensors: Sequence[Any], size: Sequence[int]) -> Any:
    """See `grid_places`."""
    steps, total = len(tensors) // len(size), prod(size)
    inside = [(t >= 0) & (t < size[i // steps]) for i, t in enumerate(tensors)]
    places = [xp.where(ok, t, 0).astype("int64") for ok, t in zip(inside, tensors)]
    found = xp.empty((tensors[0].shape[0], steps ** len(size), prod(tensors[0].shape[1:])), "int64")
    for k, at in enumerate(itertools.product(range(steps), repeat=len(size))):
        chosen = [d * steps + s for d, s in enumerate(at)]
        flat, ok = places[chosen[0]], inside[chosen[0]]
        for d, i in enumerate(chosen[1:], 1):
            flat, ok = flat * size[d] + places[i], ok & inside[i]
        found[:, k] = xp.where(ok, flat, total).reshape(found.shape[0], found.shape[2])
    return found


def products_of(xp: Any, parts: Sequence[tuple[Any, Any]]) -> Any:
    """Weights (N, 2 ** n, P) of the elements around points, of the parts of each dim."""
    return xp.stack([functools.reduce(operator.mul, chosen) for chosen in itertools.product(*parts)], 1)


def slopes(xp: Any, sums: Any, parts: Sequence[Any]) -> Any:
    """The gradient of points, of the sums (N, 2 ** n, P) over channels of gradient times element.  -> (N, P, n)."""
    n = len(parts)
    found = []
    for d in range(n):
        total = 0
        for k, at in enumerate(itertools.product((0, 1), repeat=n)):
            value = sums[:, k] if at[d] else -sums[:, k]
            for e in range(n):
                if e != d:
                    value = value * parts[e][0][at[e]]
            total = total + value
        found.append(total * parts[d][1])
    return xp.stack(found[::-1], -1)


# --- sums at points

_BLOCK = 1 << 16  # elements that are taken at once
_COUNTS = 1 << 10  # sums of an image from which those of a channel are worth a call


def _table(xp: Any, x: Any) -> Any:
    """Pixels as rows, and one of zeros behind each image.  x (N, C, *size) -> (N (prod(size) + 1), C)."""
    count, channels, total = x.shape[0], x.shape[1], prod(x.shape[2:])
    rows = xp.empty((count, total + 1, channels), x.dtype)
    rows[:, total] = 0
    rows[:, :total] = x.reshape(count, channels, total).swapaxes(1, 2)
    return rows.reshape(count * (total + 1), channels)


def _of_all(xp: Any, indices: Any, total: int) -> Any:
    """Indices of rows of `_table`.  (N, K, P) -> (K, N P)."""
    shifted = indices + (xp.arange(indices.shape[0]) * (total + 1)).reshape(-1, 1, 1)
    return _flat(shifted)


def _flat(a: Any) -> Any:
    """(N, K, P) -> (K, N P)."""
    return a.swapaxes(0, 1).reshape(a.shape[1], a.shape[0] * a.shape[2])


def _rows(xp: Any, g: Any) -> Any:
    """(N, C, P) -> (N P, C)."""
    return xp.ascontiguousarray(g.swapaxes(1, 2)).reshape(g.shape[0] * g.shape[2], g.shape[1])


def _parts(count: int, channels: int) -> Any:
    """Slices of `count` points."""
    step = builtins.max(1, _BLOCK // builtins.max(1, channels))
    return [slice(start, start + step) for start in range(0, count, step)]


def sums(xp: Any, x: Any, indices: Any, weights: Any) -> Any:
    """See `grid_sums`."""
    count, channels, points = x.shape[0], x.shape[1], indices.shape[2]
    rows, at = _table(xp, x), _of_all(xp, indices, prod(x.shape[2:]))
    factors = None if weights is None else _flat(weights)
    result = xp.empty((count * points, channels), x.dtype)
    for part in _parts(count * points, channels):
        total = None
        for k in range(at.shape[0]):
            piece = xp.take(rows, at[k, part], axis=0)
            if factors is not None:
                piece *= factors[k, part, None]
            total = piece if total is None else xp.add(total, piece, out=total)
        result[part] = total
    return xp.ascontiguousarray(result.reshape(count, points, channels).swapaxes(1, 2))


def spread(xp: Any, g: Any, indices: Any, weights: Any, size: Any) -> Any:
    """See `grid_spread`."""
    count, channels, total = g.shape[0], g.shape[1], prod(size)
    at = _of_all(xp, indices, total)
    factors = xp.ones((1, 1), g.dtype) if weights is None else _flat(weights)
    if at.size >= _COUNTS and g.dtype.kind == "f":
        result = xp.empty((channels, count, total), g.dtype)
        places = at.reshape(-1)
        for c in range(channels):
            added = xp.bincount(places, (factors * g[:, c].reshape(-1)).reshape(-1), count * (total + 1))
            result[c] = added.reshape(count, total + 1)[:, :total]
        return xp.ascontiguousarray(result.swapaxes(0, 1)).reshape(count, channels, *size)
    rows, table = _rows(xp, g), xp.zeros((count * (total + 1), channels), g.dtype)
    for k in range(at.shape[0]):
        accumulate_rows(xp, table, at[k], rows * factors[k, :, None])
    found = table.reshape(count, total + 1, channels)[:, :total].swapaxes(1, 2)
    return xp.ascontiguousarray(found).reshape(count, channels, *size)


def products(xp: Any, g: Any, x: Any, indices: Any) -> Any:
    """See `grid_products`."""
    rows, at, given = _table(xp, x), _of_all(xp, indices, prod(x.shape[2:])), _rows(xp, g)
    result = xp.empty(at.shape, x.dtype)
    for part in _parts(at.shape[1], x.shape[1]):
        for k in range(at.shape[0]):
            taken = xp.take(rows, at[k, part], axis=0)
            if taken.dtype.itemsize == 2:  # numpy's einsum knows no bfloat16; sums of 16 bits are added in float32
                result[k, part] = (taken.astype("float32") * given[part].astype("float32")).sum(1)
            else:
                result[k, part] = xp.einsum("pc,pc->p", taken, given[part])
    count, taps, points = indices.shape
    return xp.ascontiguousarray(result.reshape(taps, count, points).swapaxes(0, 1))
