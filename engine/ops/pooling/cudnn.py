"""Maxima and means of windows by cuDNN.

Indices are torch's own (the place in the flat input), which cuDNN does not give: they come from `max_pool_indices`, and
only where they are asked for.  Adaptive pooling has windows of several sizes and is not cuDNN's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.backends.cuda import cudnn_pool, routes
from engine.backends.cuda.cudnn_arrays import FORMATS, dense, guarded, on, served, there, used
from engine.core.geometry import PoolGeometry
from engine.core.layouts import empty_in_format, is_channels_last
from engine.dispatch import OPS, kernel
from engine.ops import pooling


def _check(xp: Any) -> Any:
    """Maxima with ties and a NaN, means with and without the padding, and their gradients."""
    x = np.floor(routes.numbers(2, 3, 7, 6) * np.float32(2.5))
    x[1, 2, 3, 3] = np.nan
    window = (3, 2), (2, 2), (1, 0)
    y = OPS["max_pool2d_values"].kernel(np, x, *window, (1, 1), False)
    g = routes.numbers(*y.shape, seed=1)
    a, b = xp.asarray(x), xp.asarray(g)
    geometry = PoolGeometry.of(*window)
    found = _forward(xp, cudnn_pool.MAX, a, geometry)
    yield found, y
    plain = OPS["max_pool_gradient"].kernel(np, g, x, y, *window, (1, 1))
    yield _backward(xp, cudnn_pool.MAX, b, a, found, geometry), plain
    a = xp.asarray(np.nan_to_num(x))
    for inside, mode in ((True, cudnn_pool.AVERAGE), (False, cudnn_pool.AVERAGE_INSIDE)):
        found = _forward(xp, mode, a, geometry)
        yield found, OPS["avg_pool2d_values"].kernel(np, np.nan_to_num(x), *window, False, inside, None)
        plain = OPS["avg_pool_backward"].kernel(np, g, x.shape[2:], *window, inside, None)
        yield _backward(xp, mode, b, a, found, geometry), plain


ROUTE = routes.route("cudnn pooling", check=_check, fallback="CuPy", tolerance=1e-5, ready=there)


def _same(input: Any, out: Any, geometry: PoolGeometry) -> bool:
    """Return whether cuDNN computes the same windows, whose count is `out`: it leaves out those that begin late."""
    size = input.shape[2:]
    return input.ndim in (4, 5) and len(geometry.kernel) == len(size) and geometry.output_size(size) == tuple(out)


def _forward(xp: Any, mode: int, input: Any, geometry: PoolGeometry) -> Any:
    cudnn = used()
    if cudnn is None:
        return None
    wanted = FORMATS[input.ndim] if is_channels_last(input) else None
    x = dense(input, wanted)
    shape = (*x.shape[:2], *geometry.output_size(x.shape[2:]))
    made = xp.empty(shape, x.dtype) if wanted is None else empty_in_format(xp, shape, x.dtype, wanted)
    cudnn_pool.forward(cudnn, mode, x, made, *geometry[:3])
    return made


def _backward(xp: Any, mode: int, grad: Any, input: Any, output: Any, geometry: PoolGeometry) -> Any:
    cudnn = used()
    if cudnn is None:
        return None
    wanted = FORMATS[input.ndim] if is_channels_last(input) else None
    g, x, y = (dense(a, wanted) for a in (grad, input, output))
    made = xp.empty(x.shape, x.dtype) if wanted is None else empty_in_format(xp, x.shape, x.dtype, wanted)
    cudnn_pool.backward(cudnn, mode, g, x, y, made, *geometry[:3])
    return made


def _maximum(op: Any) -> None:
    @kernel(op, "cudnn")
    def values(xp, input, kernel_size, stride, padding, dilation, ceil_mode):
        geometry = PoolGeometry.of(kernel_size, stride, padding)
        if not served(input) or any(d != 1 for d in dilation):
            return NotImplemented
        if not _same(input, geometry.output_size(input.shape[2:], ceil_mode), geometry) or not on(ROUTE):
            return NotImplemented
        return guarded(ROUTE, _forward, xp, cudnn_pool.MAX, input, geometry)


def _mean(op: Any) -> None:
    @kernel(op, "cudnn")
    def values(xp, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override):
        geometry = PoolGeometry.of(kernel_size, stride, padding)
        if not served(input) or divisor_override is not None:
            return NotImplemented
        if not _same(input, geometry.output_size(input.shape[2:], ceil_mode), geometry) or not on(ROUTE):
            return NotImplemented
        mode = cudnn_pool.AVERAGE if count_include_pad else cudnn_pool.AVERAGE_INSIDE
        return guarded(ROUTE, _forward, xp, mode, input, geometry)


_maximum(pooling.max_pool2d_values)
_maximum(pooling.max_pool3d_values)
_mean(pooling.avg_pool2d_values)
_mean(pooling.avg_pool3d_values)


@kernel(pooling.max_pool_gradient, "cudnn")
def _max_pool_gradient(xp, grad_output, input, output, kernel_size, stride, padding, dilation):
    geometry = PoolGeometry.of(kernel_size, stride, padding)
    if not served(grad_output, input, output) or any(d != 1 for d in dilation):
        return NotImplemented
    if not _same(input, output.shape[2:], geometry) or not on(ROUTE):
        return NotImplemented
    return guarded(ROUTE, _backward, xp, cudnn_pool.MAX, grad_output, input, output, geometry)


@kernel(pooling.avg_pool_backward, "cudnn")
def _avg_pool_backward(xp, grad_output, size, kernel_size, stride, padding, count_include_pad, divisor_override):
    geometry = PoolGeometry.of(kernel_size, stride, padding)
    if not served(grad_output) or divisor_override is not None:
        return NotImplemented
    like = xp.empty((*grad_output.shape[:2], *size), grad_output.dtype)  # nothing of it is read
    if not _same(like, grad_output.shape[2:], geometry) or not on(ROUTE):
        return NotImplemented
    if is_channels_last(grad_output) and like.size:
        like = empty_in_format(xp, like.shape, like.dtype, FORMATS[like.ndim])
    mode = cudnn_pool.AVERAGE if count_include_pad else cudnn_pool.AVERAGE_INSIDE
    return guarded(ROUTE, _backward, xp, mode, grad_output, like, grad_output, geometry)
