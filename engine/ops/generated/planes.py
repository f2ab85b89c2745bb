"""Ops over images in torch's order as generated kernels (the extra `jit`): padding, grid samples.

They are the kernels "cpu" of their ops; what they do not serve is left to the other route.
"""

from __future__ import annotations

import functools
from math import prod
from typing import Any

import numpy as np

from engine.dispatch import kernel
from engine.kernels import planes
from engine.ops.generated.layers import plain, run
from engine.ops.nn import _grids, grids, padding

_TAPS = 8  # of a point: each is written out in the kernel


@kernel(padding.constant_pad_nd, "cpu", only_launches=True)
def _constant_pad(xp, input, pad, value=0):
    pad = tuple(pad)
    if not plain(input) or not 2 <= len(pad) <= 4 or len(pad) % 2 or min(pad) < 0 or len(pad) > 2 * input.ndim:
        return NotImplemented
    if value.__class__ not in (int, float):
        return NotImplemented
    (left, right), (top, bottom) = pad[:2], (pad[2:] or (0, 0))
    w = input.shape[-1]
    h = input.shape[-2] if input.ndim > 1 else 1
    height, width = h + top + bottom, w + left + right
    shape = (*input.shape[:-2], height, width) if input.ndim > 1 else (width,)
    made = xp.empty(shape, input.dtype)
    run(planes.padded, [input, made], [h, w, height, width, top, left, float(value)], made.size // width, width)
    return made


def _copies(shape: Any, pad: Any, mode: Any) -> list[int] | None:
    """h, w, height, width, top, left of padding with elements of the last two dims; None for other pads."""
    if not 2 <= len(pad) <= 4 or len(pad) % 2 or min(pad) < 0 or len(pad) > 2 * len(shape) or not prod(shape):
        return None
    (left, right), (top, bottom) = pad[:2], (pad[2:] or (0, 0))
    h, w = (shape[-2] if len(shape) > 1 else 1), shape[-1]
    least = {"replicate": 0, "circular": max(left, right) - w, "reflect": max(left, right) - w + 1}[mode]
    down = {"replicate": 0, "circular": max(top, bottom) - h, "reflect": max(top, bottom) - h + 1}[mode]
    return [h, w, h + top + bottom, w + left + right, top, left] if max(least, down) <= 0 else None


@kernel(padding.pad_by_copy, "cpu", only_launches=True)
def _pad_by_copy(xp, input, pad, how):
    sizes = _copies(input.shape, tuple(pad), how) if plain(input) else None
    if sizes is None:
        return NotImplemented
    height, width = sizes[2:4]
    made = xp.empty((*input.shape[:-2], height, width) if input.ndim > 1 else (width,), input.dtype)
    run(planes.padded_by_copy(how), [input, made], sizes, made.size // width, width)
    return made


@kernel(padding.pad_by_copy_backward, "cpu", only_launches=True)
def _pad_by_copy_backward(xp, grad_output, size, pad, how):
    sizes = _copies(size, tuple(pad), how) if plain(grad_output) else None
    if sizes is None:
        return NotImplemented
    h, w, height, width = sizes[:4]
    made = xp.empty(tuple(size), grad_output.dtype)
    run(planes.folded(how), [grad_output, made], sizes, made.size // (h * w), height * width)
    return made


def _grid(indices: Any, *arrays: Any) -> bool:
    """Return whether the kernels serve (N, taps, points) of indices and these arrays."""
    return plain(*arrays) and indices.dtype == np.int64 and indices.flags.c_contiguous and 0 < indices.shape[1] <= _TAPS


@kernel(grids.grid_sums, "cpu", only_launches=True)
def _grid_sums(xp, input, indices, weights):
    if not _grid(indices, input, weights):
        return NotImplemented
    (count, channels), (_, taps, points) = input.shape[:2], indices.shape
    made = xp.empty((count, channels, points), input.dtype)
    sizes = [channels, prod(input.shape[2:]), points]
    run(planes.grid_sums(taps), [input, indices, weights, made], sizes, count * channels, points * taps)
    return made


@kernel(grids.grid_spread, "cpu", only_launches=True)
def _grid_spread(xp, grad_output, indices, weights, size):
    if not _grid(indices, grad_output, weights) or not prod(size):
        return NotImplemented
    (count, channels), (_, taps, points) = grad_output.shape[:2], indices.shape
    made = xp.empty((count, channels, *size), grad_output.dtype)
    sizes = [channels, prod(size), points]
    run(planes.grid_spread(taps), [grad_output, indices, weights, made], sizes, count * channels, points * taps)
    return made


@kernel(grids.grid_products, "cpu", only_launches=True)
def _grid_products(xp, grad_output, input, indices):
    if not _grid(indices, grad_output, input):
        return NotImplemented
    (count, channels), (_, taps, points) = input.shape[:2], indices.shape
    made = xp.empty(indices.shape, input.dtype)
    sizes = [channels, prod(input.shape[2:]), points, taps]
    run(planes.grid_products(), [grad_output, input, indices, made], sizes, count * taps, points * channels)
    return made


# --- images at points


@functools.cache
def _placed(padding: str, align: bool) -> planes.Placed:
    """`_grids.placed` of these options, as a kernel is written with it."""

    def place(xp: Any, coordinate: Any, size: Any) -> tuple[Any, Any]:
        return _grids.placed(xp, coordinate, size, padding, align)

    return place


def _points(
    xp: Any, linear: bool, weighted: bool, grid: Any, size: Any, padding: str, align: bool, *others: Any
) -> tuple[int, int, list[Any]] | None:
    """(taps, points, [the places that points read, their weights]); None for operands that are not served."""
    n, single = len(size), padding == "reflection" and align and 1 in size  # an image of no width has no mirror
    if single or not plain(grid, *others) or not others[0].size or prod(size) >= 1 << 31:
        return None
    count, points, taps = grid.shape[0], prod(grid.shape[1:-1]), 2**n if linear else 1
    made = [xp.empty((count, taps, points), "int32")]
    if weighted:
        made.append(xp.empty((count, taps, points), grid.dtype))
    write = planes.grid_points(_placed(padding, align), n, linear, weighted)
    run(write, [grid, *made], [points, *size], count, points * taps)
    return taps, points, made


def _read(xp: Any, linear: bool, input: Any, grid: Any, padding: str, align: bool) -> Any:
    size = input.shape[2:]
    found = _points(xp, linear, linear, grid, size, padding, align, input) if input.size else None
    if found is None:
        return NotImplemented
    (count, channels), (taps, points, arrays) = input.shape[:2], found
    made = xp.empty((count, channels, *grid.shape[1:-1]), input.dtype)
    write, numbers = planes.grid_sums(taps, "int32", linear), [channels, prod(size), points]
    run(write, [input, *arrays, made], numbers, count * channels, points * taps)
    return made


def _spread(xp: Any, linear: bool, grad: Any, grid: Any, size: Any, padding: str, align: bool) -> Any:
    found = _points(xp, linear, linear, grid, size, padding, align, grad) if prod(size) else None
    if found is None:
        return NotImplemented
    (count, channels), (taps, points, arrays) = grad.shape[:2], found
    made = xp.empty((count, channels, *size), grad.dtype)
    write, numbers = planes.grid_spread(taps, "int32", linear), [channels, prod(size), points]
    run(write, [grad, *arrays, made], numbers, count * channels, points * taps)
    return made


@kernel(grids.grid_nearest, "cpu", only_launches=True)
def _grid_nearest(xp, input, grid, padding, align):
    return _read(xp, False, input, grid, padding, align)


@kernel(grids.grid_linear, "cpu", only_launches=True)
def _grid_linear(xp, input, grid, padding, align):
    return _read(xp, True, input, grid, padding, align)


@kernel(grids.grid_nearest_spread, "cpu", only_launches=True)
def _grid_nearest_spread(xp, grad_output, grid, size, padding, align):
    return _spread(xp, False, grad_output, grid, size, padding, align)


@kernel(grids.grid_linear_spread, "cpu", only_launches=True)
def _grid_linear_spread(xp, grad_output, grid, size, padding, align):
    return _spread(xp, True, grad_output, grid, size, padding, align)


@kernel(grids.grid_linear_slopes, "cpu", only_launches=True)
def _grid_linear_slopes(xp, grad_output, input, grid, padding, align):
    size = input.shape[2:]
    found = _points(xp, True, False, grid, size, padding, align, grad_output, input) if input.size else None
    if found is None:
        return NotImplemented
    (count, channels), (taps, points, (index,)) = input.shape[:2], found
    sums, made = xp.empty(index.shape, input.dtype), xp.empty(grid.shape, grid.dtype)
    numbers = [channels, prod(size), points, taps]
    run(planes.grid_products("int32"), [grad_output, input, index, sums], numbers, count * taps, points * channels)
    write = planes.grid_slopes(_placed(padding, align), len(size))
    run(write, [grid, sums, made], [points, *size], count, points * taps)
    return made
