"""Convolution weights in another memory layout."""

from __future__ import annotations

from typing import Any

from engine.nn.modules.conv import Conv2d, Conv3d, ConvTranspose2d, ConvTranspose3d
from engine.nn.modules.module import Module


def _convert(module: Module, kinds: tuple, memory_format: Any) -> Module:
    for m in module.modules():
        if isinstance(m, kinds):
            m.weight.data = m.weight.detach().clone().contiguous(memory_format=memory_format)
    return module


def convert_conv2d_weight_memory_format(module: Module, memory_format: Any) -> Module:
    """Lay out the weights of every Conv2d in `module` as `memory_format`."""
    return _convert(module, (Conv2d, ConvTranspose2d), memory_format)


def convert_conv3d_weight_memory_format(module: Module, memory_format: Any) -> Module:
    """Lay out the weights of every Conv3d in `module` as `memory_format`."""
    return _convert(module, (Conv3d, ConvTranspose3d), memory_format)
