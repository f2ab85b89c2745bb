"""Batch norm of channels-last images where there is no oneDNN, of rows, the pixels: see
`engine/ops/generated/images.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.backends.cpu.relayout import as_channels_last
from engine.core.layouts import INNER, ChannelsLast, lies_channels_last
from engine.dispatch import OPS, kernel
from engine.dispatch.choosing import large_kernel
from engine.ops import norm
from engine.ops.generated.images import usable


def _rows(image: Any) -> Any:
    """(N * size, C), the memory of an image."""
    return as_channels_last(image).view(np.ndarray).transpose(INNER[image.ndim]).reshape(-1, image.shape[1])


def _of_rows(rows: Any, shape: Sequence[int]) -> Any:
    back = 0, len(shape) - 1, *range(1, len(shape) - 1)
    return rows.reshape(shape[0], *shape[2:], shape[1]).transpose(back).view(ChannelsLast)


def _normalizing(op: Any, count: int) -> None:
    """The kernel of an op whose first `count` operands are images, and whose (first) result is one."""

    @functools.cache
    def of_rows() -> Any:
        return large_kernel(OPS[op.__name__])

    @kernel(op, "images")
    def _(xp: Any, *args: Any, **options: Any) -> Any:
        images = args[:count]
        if not any(type(a) is ChannelsLast and lies_channels_last(a) for a in images) or not usable(*images):
            return NotImplemented
        shape = args[0].shape
        made = of_rows()(np, *map(_rows, images), *args[count:], **options)
        return (_of_rows(made[0], shape), *made[1:]) if isinstance(made, tuple) else _of_rows(made, shape)


_normalizing(norm.batch_norm_train, 1)
_normalizing(norm.batch_norm_backward, 2)
_normalizing(norm.batch_norm_eval, 1)
_normalizing(norm.batch_norm_eval_backward, 2)
