"""Ops over images in torch's order as generated kernels (the extra `jit`): padding, grid samples.

They are the kernels "cpu" of their ops; what they do not serve is left to the other route.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from engine.dispatch import kernel
from engine.kernels import planes
from engine.ops.generated.layers import plain, run
from engine.ops.nn import padding, vision

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


@kernel(vision.grid_sums, "cpu", only_launches=True)
def _grid_sums(xp, input, indices, weights):
    if not _grid(indices, input, weights):
        return NotImplemented
    (count, channels), (_, taps, points) = input.shape[:2], indices.shape
    made = xp.empty((count, channels, points), input.dtype)
    sizes = [channels, prod(input.shape[2:]), points]
    run(planes.grid_sums(taps), [input, indices, weights, made], sizes, count * channels, points * taps)
    return made


@kernel(vision.grid_spread, "cpu", only_launches=True)
def _grid_spread(xp, grad_output, indices, weights, size):
    if not _grid(indices, grad_output, weights) or not prod(size):
        return NotImplemented
    (count, channels), (_, taps, points) = grad_output.shape[:2], indices.shape
    made = xp.empty((count, channels, *size), grad_output.dtype)
    sizes = [channels, prod(size), points]
    run(planes.grid_spread(taps), [grad_output, indices, weights, made], sizes, count * channels, points * taps)
    return made


@kernel(vision.grid_products, "cpu", only_launches=True)
def _grid_products(xp, grad_output, input, indices):
    if not _grid(indices, grad_output, input):
        return NotImplemented
    (count, channels), (_, taps, points) = input.shape[:2], indices.shape
    made = xp.empty(indices.shape, input.dtype)
    sizes = [channels, prod(input.shape[2:]), points, taps]
    run(planes.grid_products, [grad_output, input, indices, made], sizes, count * taps, points * channels)
    return made
