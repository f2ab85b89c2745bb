"""Normalization of rows by the root of the mean of their squares."""

from __future__ import annotations

from engine.core import dtypes
from engine.core.grad_mode import mode
from engine.dispatch import composite, op, samples
from engine.ops.norm import check_layer
from engine.tensor import Tensor


@op(public=False, out=False, method=False, large=512, generated="many")
@samples(
    lambda t: [
        (t.constant(t(3, 4)), (4,), t.constant(t(4)), 1e-5),
        (t.constant(t(2, 3, 4)), (3, 4), None, 0.1),
    ]
)
def rms_norm_inference(xp, input, normalized_shape: tuple[int, ...], weight=None, eps: float = 1e-5):
    """`rms_norm` without gradients.  input (*, S), weight (S) -> (*, S), of float32 or float64."""
    dims = tuple(range(-len(normalized_shape), 0))
    rstd = 1 / xp.sqrt((input * input).mean(axis=dims, keepdims=True) + input.dtype.type(eps))
    result = input * rstd
    if weight is not None:
        result *= weight
    return result


@composite(method=False, recorded="inference")
@samples(lambda t: [(t(3, 4), (4,), t(4)), (t(2, 3, 4), (3, 4), None, 1e-3)])
def rms_norm(input: Tensor, normalized_shape: tuple[int, ...], weight: Tensor | None = None, eps: float | None = None):
    """input / sqrt(mean(input ** 2) + eps) * weight over the last dims (arXiv:1910.07467).  input (*, S) -> (*, S)."""
    normalized_shape = tuple(normalized_shape)
    check_layer(input._array, normalized_shape, None if weight is None else weight._array, None, ending="[*")
    if input.dtype.category < dtypes.FLOATING:
        raise NotImplementedError(f"\"rms_norm\" not implemented for '{dtypes.scalar_name(input.dtype)}'")
    wide = input.float() if input.dtype.itemsize == 2 else input
    if eps is None:
        eps = dtypes.finfo(wide.dtype).eps
    if not mode.enabled and wide is input and input.dtype.category == dtypes.FLOATING:
        return rms_norm_inference(input, normalized_shape, weight, eps)
    dims = tuple(range(-len(normalized_shape), 0))
    result = wide * ((wide * wide).mean(dims, True) + eps).rsqrt()
    if weight is not None:
        result = result * weight
    return result if result.dtype is input.dtype else result.to(input.dtype)
