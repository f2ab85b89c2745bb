"""Pooling of channels-last images where there is no oneDNN: see `engine/ops/generated/images.py`."""

from __future__ import annotations

from engine.backends.cpu.relayout import as_channels_last, empty_channels_last
from engine.core.geometry import PoolGeometry
from engine.dispatch import kernel
from engine.ops import pooling
from engine.ops.generated.images import converted, own
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
    if not converted(input, grad_output, output):
        return NotImplemented
    geometry = PoolGeometry.of(kernel_size, stride, padding, dilation)
    g = as_channels_last(grad_output)
    plain = lambda: own(pooling.max_pool_gradient, grad_output, input, output, *geometry)
    return generated.unpooled(g, input, lambda: empty_channels_last(input.shape, "float32"), geometry, plain)
