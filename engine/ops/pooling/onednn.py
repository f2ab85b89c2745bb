"""oneDNN's kernels of pooling, and generated code in front of them."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from engine.backends.cpu.relayout import empty_channels_last, empty_image, image
from engine.backends.onednn import _abi, arrays
from engine.backends.onednn.operands import rows_of_channels
from engine.backends.onednn.primitives import usable
from engine.core.geometry import PoolGeometry
from engine.core.layouts import lies_channels_last
from engine.dispatch import kernel
from engine.dispatch.choosing import worth_loading
from engine.ops import pooling
from engine.ops.reduction.onednn import column_sums

_FEW = 1 << 15  # elements up to which numpy's own sum is the fastest


def _in_front(size: int) -> Any:
    """`_generated`, once that is worth loading."""
    return _generated() if worth_loading(size) else None


@functools.cache
def _generated() -> Any:
    """The module of generated passes in front of oneDNN's; None without the extra `jit`."""
    from engine.kernels import processor

    if not processor.available():
        return None
    from engine.ops.pooling import generated

    return generated


@functools.lru_cache(1024)
def _pooled(shape: tuple[int, ...], ceil_mode: bool, *windows: tuple[int, ...]) -> tuple[PoolGeometry, Any]:
    """Return the geometry, and the shape (N, C, *out) of what is pooled from (N, C, *size)."""
    geometry = PoolGeometry(*windows)
    return geometry, (*shape[:2], *geometry.output_size(shape[2:], ceil_mode))


def _finite(array: Any) -> bool:
    """Return whether no element is nan or infinite: oneDNN's maximum overlooks nan.  (Or its sum overflows, by
    chance.)
    """
    if lies_channels_last(array):
        rows = rows_of_channels(array)
        array = rows if array.size < _FEW else column_sums(rows)
    return math.isfinite(float(np.add.reduce(array, axis=None)))


def _max_pool(xp, input, kernel_size, stride, padding, dilation, ceil_mode):
    if not usable(input):
        return NotImplemented
    if input.ndim == 4 and input.shape[2] == kernel_size[0] == 1 and input.flags.c_contiguous:
        return NotImplemented  # signals: numpy's maxima of slices take a quarter of a conversion to channels-last
    windows = tuple(kernel_size), tuple(stride), tuple(padding), tuple(dilation)
    (geometry, shape), x = _pooled(input.shape, ceil_mode, *windows), image(input)

    def plain() -> Any:
        if not _finite(input):
            return NotImplemented
        made = empty_image(shape, input)
        return made if arrays.pooling(x, made, _abi.POOLING_MAX, *geometry) else NotImplemented

    if not (code := _in_front(x.size)):
        return plain()
    return code.pooled(x, shape, lambda: empty_image(shape, input), geometry, plain)


kernel(pooling.max_pool2d_values, "onednn")(_max_pool)
kernel(pooling.max_pool3d_values, "onednn")(_max_pool)


@kernel(pooling.max_pool_gradient, "onednn")
def _max_pool_gradient(xp, grad_output, input, output, kernel_size, stride, padding, dilation):
    if not usable(grad_output, input, output):
        return NotImplemented
    geometry = PoolGeometry.of(kernel_size, stride, padding, dilation)
    x, g = image(input), image(grad_output)

    def plain() -> Any:
        if not _finite(input):
            return NotImplemented
        again = empty_channels_last(output.shape, "float32").view(np.ndarray)
        kept = arrays.pooling(x, again, _abi.POOLING_MAX, *geometry, keep=True)
        if kept is False:
            return NotImplemented
        made = empty_image(input.shape, input)
        return made if arrays.pooling_backward(g, made, _abi.POOLING_MAX, *geometry, kept) else NotImplemented

    if not (code := _in_front(x.size)):
        return plain()
    return code.unpooled(g, x, lambda: empty_image(input.shape, input), geometry, plain)


def average(kernel_size, padding, ceil_mode, count_include_pad, divisor_override):
    """The algorithm, or None where oneDNN counts otherwise."""
    if divisor_override is not None or (ceil_mode and count_include_pad):
        return None
    return _abi.AVERAGE_WITH_PADDING if count_include_pad else _abi.AVERAGE_WITHOUT_PADDING


def _avg_pool(xp, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override):
    algorithm = average(kernel_size, padding, ceil_mode, count_include_pad, divisor_override)
    if algorithm is None or not usable(input):
        return NotImplemented
    windows = tuple(kernel_size), tuple(stride), tuple(padding), (1,) * len(kernel_size)
    geometry, shape = _pooled(input.shape, ceil_mode, *windows)
    made = empty_image(shape, input)
    served = arrays.pooling(image(input), made, algorithm, *geometry)
    return made if served else NotImplemented


kernel(pooling.avg_pool2d_values, "onednn")(_avg_pool)
kernel(pooling.avg_pool3d_values, "onednn")(_avg_pool)


@kernel(pooling.avg_pool_backward, "onednn")
def _avg_pool_backward(xp, grad_output, size, kernel_size, stride, padding, count_include_pad, divisor_override):
    geometry = PoolGeometry.of(kernel_size, stride, padding)
    ceil_mode = geometry.output_size(size) != grad_output.shape[2:]
    algorithm = average(kernel_size, padding, ceil_mode, count_include_pad, divisor_override)
    if algorithm is None or not usable(grad_output):
        return NotImplemented
    made = empty_image((*grad_output.shape[:2], *size), grad_output)
    served = arrays.pooling_backward(image(grad_output), made, algorithm, *geometry)
    return made if served else NotImplemented
