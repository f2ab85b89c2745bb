"""Pooling of channels-last images where there is no oneDNN: see `engine/ops/generated/images.py`."""

from __future__ import annotations

import numpy as np

from engine.backends.cpu.relayout import as_channels_last, empty_channels_last, image
from engine.core.geometry import PoolGeometry
from engine.dispatch import kernel
from engine.ops import pooling
from engine.ops.generated.images import converted, own, usable
from engine.ops.pooling import generated


@kernel(pooling.max_pool2d_values, "images")
def _max_pool(xp, input, kernel_size, stride, padding, dilation, ceil_mode):
    if not converted(input):
        return NotImplemented
    geometry = PoolGeometry.of(kernel_size, stride, padding, dilation)
    shape = (*input.shape[:2], *geometry.output_size(input.shape[2:], ceil_mode))
    plain = lambda: own(pooling.max_pool2d_values, input, *geometry, ceil_mode)
    return generated.pooled(input, shape, lambda: empty_channels_last(shape, "float32"), geometry, plain)


@kernel(pooling.max_pool_gradient, "images")
def _max_pool_gradient(xp, grad_output, input, output, kernel_size, stride, padding, dilation):
    geometry = PoolGeometry.of(kernel_size, stride, padding, dilation)
    plain = lambda: own(pooling.max_pool_gradient, grad_output, input, output, *geometry)
    if converted(input, grad_output, output):
        g = as_channels_last(grad_output)
        return generated.unpooled(g, input, lambda: empty_channels_last(input.shape, "float32"), geometry, plain)
    if input.ndim != 4 or not usable(input, grad_output, output) or not generated.serves(input):
        return NotImplemented
    # Both conversions take less than the passes of numpy, one for each place of a window.
    g, x = image(grad_output), image(input)
    made = lambda: empty_channels_last(input.shape, "float32").view(np.ndarray)
    return np.ascontiguousarray(generated.unpooled(g, x, made, geometry, plain))
