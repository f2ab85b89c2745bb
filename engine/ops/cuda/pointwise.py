"""Elementwise ops whose own code cannot be recorded, written again in a form that can."""

from __future__ import annotations

from typing import Any

from engine.core import dtypes
from engine.core.checks import broadcast_shapes
from engine.dispatch import kernel
from engine.ops import copying, masking
from engine.ops.copying import number_for
from engine.ops.cuda.elementwise import kernel_from


def _filled(xp: Any, input: Any, mask: Any, value: Any) -> Any:
    made = input.copy()
    made[mask] = value
    return made


_fill = kernel_from("masked_fill", _filled, contiguous=True)


@kernel(masking.masked_fill_value, "cuda", only_launches=True)
def _masked_fill(xp, input, mask, value, *, out=None):
    if out is not None or mask.dtype.kind != "b" or input.dtype.kind == "c":
        return NotImplemented
    broadcast_shapes(mask.shape, input.shape)
    return _fill(xp, input, mask, number_for(value, input.dtype))


@kernel(masking.masked_fill_tensor, "cuda", only_launches=True)
def _masked_fill_tensor(xp, input, mask, value, *, out=None):
    if out is not None or mask.dtype.kind != "b" or value.ndim or value.dtype != input.dtype:
        return NotImplemented
    broadcast_shapes(mask.shape, input.shape)
    return _fill(xp, input, mask, value)


def _converted(xp: Any, input: Any, target: Any) -> Any:
    return input.astype(target)


_convert = kernel_from("convert", _converted)


@kernel(copying.to_copy, "cuda")
def _cast(xp, input, dtype, where, memory_format, back, non_blocking=False):
    """Between floats, where nothing else changes: CuPy's `astype` costs the host several times a launch."""
    if where is not None or memory_format is not None or dtype is None or input.dtype.kind not in "fV":
        return NotImplemented
    target = dtypes.to_numpy(dtype)
    return NotImplemented if target.kind not in "fV" or target == input.dtype else _convert(xp, input, target)
