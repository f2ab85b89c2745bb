"""Rounding as quantization would, with gradients that pass where nothing was clipped.

The gradient is not that of the steps, so samples require none;
tests/engine/encoded/test_quantized.py has torch's numbers.
torch computes q = round_half_to_even(x * (1 / scale)) + zero_point in float32.
https://docs.pytorch.org/docs/2.13/generated/torch.fake_quantize_per_tensor_affine.html
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.dispatch import composite, derivative, op, samples
from engine.tensor import Tensor

__all__ = ["fake_quantize_per_channel_affine", "fake_quantize_per_tensor_affine"]


def _rounded(xp: Any, input: Any, scale: Any, zero: Any, low: int, high: int) -> Any:
    """(the values that stand for the quantized ones, where nothing was clipped)."""
    one = input.dtype.type(1)
    q = zero + xp.rint(input * (one / scale))
    values = (xp.clip(q, low, high) - zero) * scale
    return values.astype(input.dtype, copy=False), (q >= low) & (q <= high)


@op(
    public=False,
    method=False,
    out=False,
    returns=("output", "mask"),
    nondifferentiable=("mask",),
    not_tensors=("scale",),
    node="FakeQuantizePerTensorAffineCachemaskBackward0",
)
@derivative(input=lambda grad0, result1: grad0 * result1)
@samples(lambda t: [(t.constant(t(3, 4)), 0.1, 2, -10, 10)])
def fake_quantize_tensor(xp, input, scale: float, zero_point: int, quant_min: int, quant_max: int):
    """input (*) -> (values (*), mask (*))."""
    kind = input.dtype.type
    return _rounded(xp, input, kind(scale), kind(zero_point), quant_min, quant_max)


@op(
    public=False,
    method=False,
    out=False,
    returns=("output", "mask"),
    nondifferentiable=("mask",),
    tensors=("scale", "zero_point"),
    node="FakeQuantizePerChannelAffineCachemaskBackward0",
)
@derivative(input=lambda grad0, result1: grad0 * result1)
@samples(lambda t: [(t.constant(t(3, 4)), t.constant(t.positive(4)), t.integers(-3, 3, 4), 1, -10, 10)])
def fake_quantize_channels(xp, input, scale, zero_point, dim: int, quant_min: int, quant_max: int):
    """input (*, n, *), scale (n), zero_point (n) -> (values (*), mask (*))."""
    around = [1] * input.ndim
    around[dim] = -1
    wide = scale.reshape(around).astype(input.dtype, copy=False)
    return _rounded(xp, input, wide, zero_point.reshape(around).astype(input.dtype), quant_min, quant_max)


def _check_range(name: str, low: int, high: int, zero: tuple[int, int]) -> None:
    if low > high:
        raise RuntimeError("`quant_min` should be less than or equal to `quant_max`.")
    if not low <= zero[0] <= zero[1] <= high:
        raise RuntimeError(f"`zero_point` must be between `quant_min` and `quant_max`{'' if name else '.'}")


@composite(method=False, elementwise=True)
@samples(lambda t: [(t.constant(t(3, 4)), 0.1, 0, -8, 7), (t.constant(t(2)), 0.25, 3, 0, 255)])
def fake_quantize_per_tensor_affine(
    input: Tensor, scale: float | Tensor, zero_point: int | Tensor, quant_min: int, quant_max: int
):
    """`input` rounded to multiples of `scale` and clipped to what quant_min..quant_max stand for.  input (*) -> (*).

    scale, zero_point: numbers, or tensors of one element (which get no gradient).  The gradient passes where nothing
    was clipped.  RuntimeError unless quant_min <= zero_point <= quant_max.
    """
    step = float(scale.item() if isinstance(scale, Tensor) else scale)
    zero = int(zero_point.item() if isinstance(zero_point, Tensor) else zero_point)
    _check_range("", quant_min, quant_max, (zero, zero))
    return fake_quantize_tensor(input, step, zero, quant_min, quant_max)[0]


@composite(method=False)
@samples(lambda t: [(t.constant(t(3, 4)), t.constant(t.positive(3)), t.integers(-3, 3, 3), 0, -8, 7)])
def fake_quantize_per_channel_affine(
    input: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
):
    """As `fake_quantize_per_tensor_affine` with a scale and a zero point for each index of the dim `axis`.

    input (*, n, *), scale (n), zero_point (n) integers -> (*).  RuntimeError where they do not fit.
    """
    if scale.dim() != 1 or zero_point.dim() != 1 or scale.numel() != zero_point.numel():
        raise RuntimeError("scale and zero-point need to have the same dimensions")
    if not 0 <= axis < input.dim():
        raise RuntimeError("`axis` must be between 0 and number of dimensions of input")
    if scale.numel() != input.shape[axis]:
        raise RuntimeError("dimensions of scale and zero-point are not consistent with input tensor")
    known = zero_point.tolist() if zero_point.device.type != "meta" else []
    zeros = np.asarray(known or [quant_min])
    _check_range("channels", quant_min, quant_max, (int(zeros.min()), int(zeros.max())))
    return fake_quantize_channels(input, scale, zero_point, axis, quant_min, quant_max)[0]
