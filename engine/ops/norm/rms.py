"""Normalization of rows by the root of the mean of their squares.

Its backward is one fused op; that one's own gradient comes from a composite twin (`_vjp.py`).
"""

from __future__ import annotations

from math import prod

from engine.autograd.versions import guard
from engine.backends.cpu.exact import summed
from engine.core import dtypes
from engine.core.grad_mode import mode
from engine.dispatch import OPS, composite, joint_derivative, op, samples
from engine.ops._vjp import WHY, vjp
from engine.ops.norm import _blocks, _dot, check_layer
from engine.tensor import Tensor


def _twin(grad, input, weight, normalized_shape, eps):
    dims = tuple(range(-len(normalized_shape), 0))
    rstd = ((input * input).mean(dims, True) + eps).rsqrt()
    hat = input * rstd
    g = grad if weight is None else grad * weight
    of_input = rstd * (g - hat * (g * hat).mean(dims, True))
    if weight is None:
        return of_input
    lead = tuple(range(input.dim() - len(normalized_shape)))
    return of_input, (grad * hat).sum(lead) if lead else grad * hat


@op(
    public=False,
    method=False,
    out=False,
    returns=("input", "weight"),
    tensors=("rstd",),
    why=WHY,
    large=16,
    generated="many",
)
@joint_derivative(
    "grad_output",
    "input",
    "weight",
    by=lambda grads, grad_output, input, weight, needs, normalized_shape, eps: vjp(
        lambda g, x, w: _twin(g, x, w, normalized_shape, eps), (grad_output, input, weight), grads, needs
    ),
)
def rms_norm_backward(xp, grad_output, input, rstd, weight=None, normalized_shape=(), eps=1e-5):
    """The gradients of `rms_norm_train`.  grad_output, input (*, S), rstd (*), weight (S) -> (*, S), (S) or, without
    a weight, (0)."""
    width = prod(normalized_shape)
    count = prod(input.shape[: input.ndim - len(normalized_shape)])
    x, g, r = input.reshape(count, width), grad_output.reshape(count, width), rstd.reshape(count)
    w = None if weight is None else weight.reshape(width)
    of_input = xp.empty((count, width), x.dtype)
    of_weight = xp.zeros(0 if w is None else width, x.dtype)
    for block in _blocks(count, width):
        part, col = g[block], r[block][:, None]
        hat = x[block] * col
        target = of_input[block]
        scaled = part
        if w is not None:
            xp.multiply(part, hat, out=target)
            of_weight += summed(target, 0)
            scaled = part * w
        hat *= (_dot(xp, scaled, hat) / width)[:, None]
        xp.subtract(scaled, hat, out=target)
        target *= col
    return of_input.reshape(input.shape), of_weight if w is None else of_weight.reshape(normalized_shape)


def _slopes(grad, input, rstd, *more):
    found = rms_norm_backward(grad, input, rstd, *more)
    if found[0]._edge is not None:
        guard(found[0], rstd)
    return found


@op(
    public=False,
    method=False,
    out=False,
    returns=("output", "rstd"),
    nondifferentiable=("rstd",),
    node="MulBackward0",
    large=16,
    generated="many",
)
@joint_derivative(
    "input",
    "weight",
    by=lambda grad0, input, result1, weight, normalized_shape, eps: (
        _slopes(grad0, input, result1.detach(), weight, tuple(normalized_shape), eps)
        if grad0 is not None
        else (None, None)
    ),
)
@samples(
    lambda t: [
        (t(3, 4), (4,), t(4), 1e-5),
        (t(2, 3, 4), (3, 4), t(3, 4), 0.1),
        (t(5, 3), (3,), None, 0.1),
        (t(4), (4,), t(4), 0.1),
        (t(0, 3), (3,), t(3), 0.1),
    ]
)
def rms_norm_train(xp, input, normalized_shape: tuple[int, ...], weight=None, eps: float = 1e-5):
    """`rms_norm` of float32 or float64, with the reciprocal roots.  input (*, S), weight (S) -> (*, S), (*, 1)."""
    dims = tuple(range(-len(normalized_shape), 0))
    rstd = 1 / xp.sqrt((input * input).mean(axis=dims, keepdims=True) + input.dtype.type(eps))
    result = input * rstd
    if weight is not None:
        result *= weight
    return result, rstd


@op(public=False, out=False, method=False, large=512, generated="many")
@samples(
    lambda t: [
        (t.constant(t(3, 4)), (4,), t.constant(t(4)), 1e-5),
        (t.constant(t(2, 3, 4)), (3, 4), None, 0.1),
    ]
)
def rms_norm_inference(xp, input, normalized_shape: tuple[int, ...], weight=None, eps: float = 1e-5):
    """`rms_norm` without gradients.  input (*, S), weight (S) -> (*, S), of float32 or float64."""
    return OPS["rms_norm_train"].kernel(xp, input, normalized_shape, weight, eps)[0]


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
    if wide is input and input.dtype.category == dtypes.FLOATING:
        if not mode.enabled:
            return rms_norm_inference(input, normalized_shape, weight, eps)
        if weight is None or weight.dtype is input.dtype:
            return rms_norm_train(input, normalized_shape, weight, eps)[0]
    dims = tuple(range(-len(normalized_shape), 0))
    result = wide * ((wide * wide).mean(dims, True) + eps).rsqrt()
    if weight is not None:
        result = result * weight
    return result if result.dtype is input.dtype else result.to(input.dtype)
