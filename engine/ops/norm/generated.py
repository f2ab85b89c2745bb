"""Batch norm in evaluation of channels-last images in generated code (the extra `jit`).

Of a small image it is two passes of numpy's over short rows.  engine/kernels/README.md says how it is tried.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from engine.backends.cpu.relayout import empty_channels_last
from engine.core.layouts import lies_channels_last
from engine.dispatch import kernel
from engine.dispatch.choosing import onednn_kernels
from engine.kernels import image_layers
from engine.ops import norm
from engine.ops.generated import launch
from engine.ops.generated.channels import Pass, known
from engine.ops.generated.route import lanes, run, several

_LARGE = 1 << 18  # elements from which it is worth a second thread, which oneDNN's has
_F32 = np.dtype("float32")
_ARGS = struct.Struct("<7qdq").pack  # image_layers.SCALE


@functools.lru_cache(64)
def _constant(value: float, count: int) -> Any:
    return np.full(count, value, _F32)


@kernel(norm.batch_norm_eval, "pass")
def _batch_norm_eval(
    present: Callable[..., Any],
    xp: Any,
    input: Any,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
) -> Any:
    channels = input.shape[1]
    key = "batch norm", channels, launch.magnitude(input.size)

    def make() -> Any:
        width = lanes(channels)
        return width > 1 and Pass("batch norm", image_layers.scale, width, input.size)

    found = known.made(key, make)
    vectors = (
        running_mean,
        running_var,
        _constant(1.0, channels) if weight is None else weight,
        _constant(0.0, channels) if bias is None else bias,
    )
    fit = found is not False and (input.size < _LARGE or not onednn_kernels())
    fit = fit and input.dtype == _F32 and lies_channels_last(input)
    if not fit or any(v.dtype != _F32 or v.shape != (channels,) or not v.flags.c_contiguous for v in vectors):
        return present(xp, input, running_mean, running_var, weight, bias, eps)

    def mine() -> Any:
        out, pixels, pieces, buffers = empty_channels_last(input.shape, _F32), input.size // channels, [], []
        step = pixels if input.size < _LARGE else -(-pixels // several(input.size))
        for at in range(0, pixels, step):
            buffers.append(np.empty(2 * channels, _F32))
            args = _ARGS(id(input), id(out), *map(id, vectors), id(buffers[-1]), eps, channels)
            pieces.append((args, at, min(at + step, pixels)))
        run(found.compiled(), pieces)
        return out

    if found.proven:
        return mine()
    return found.chosen(
        mine, lambda: present(xp, input, running_mean, running_var, weight, bias, eps), (input,), running_mean
    )
