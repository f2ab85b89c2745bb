"""Gated linear units."""

from __future__ import annotations

from typing import Any

from engine.core.checks import wrap_dim
from engine.dispatch import derivative, joint_derivative, op, samples
from engine.ops._vjp import WHY, vjp
from engine.ops.activation import PRIVATE, sigmoid
from engine.tensor import Tensor


def _halves(input: Any, dim: int) -> tuple[Any, Any]:
    """The first and the second half of a dim."""
    at = (slice(None),) * wrap_dim(dim, input.ndim)
    size = input.shape[len(at)] // 2
    return input[(*at, slice(None, size))], input[(*at, slice(size, None))]


def _twin(grad: Tensor, input: Tensor, dim: int) -> Tensor:
    from engine.ops.joining import cat

    first, second = _halves(input, dim)
    gate = sigmoid(second)
    return cat([grad * gate, grad * first * gate * (1 - gate)], dim)


@op(**PRIVATE, half=True, why=WHY, generated="many")
@joint_derivative(
    "grad_output",
    "input",
    by=lambda grad, grad_output, input, needs, dim: vjp(
        lambda g, x: _twin(g, x, dim), (grad_output, input), (grad,), needs
    ),
)
def glu_backward(xp, grad_output, input, dim: int):
    """The gradient of glu.  grad_output (*, n, *), input (*, 2n, *) -> (*, 2n, *)."""
    first, second = _halves(input, dim)
    made = xp.empty(input.shape, input.dtype)
    of_first, of_second = _halves(made, dim)
    gate = xp.empty(second.shape, input.dtype)
    xp.negative(second, out=gate)
    xp.exp(gate, out=gate)
    gate += 1
    xp.reciprocal(gate, out=gate)
    xp.multiply(grad_output, gate, out=of_first)
    xp.subtract(1, gate, out=gate)
    gate *= of_first
    xp.multiply(gate, first, out=of_second)
    return made


@op(**PRIVATE, half=True, refuse="iubc", label="glu_cpu", generated="many")
@derivative(input=lambda grad, input, dim: glu_backward(grad, input, dim))
@samples(lambda t: [(t(3, 4),), (t(2, 6), 0), (t(2), 0)])
def glu(xp, input, dim: int = -1):
    """The first half of `dim` times the sigmoid of the second (arXiv:1612.08083).  input (*, 2n, *) -> (*, n, *).

    RuntimeError for an odd size.
    """
    if not input.ndim:
        raise RuntimeError("glu does not support scalars because halving size must be even")
    axis = wrap_dim(dim, input.ndim)
    if input.shape[axis] % 2:
        raise RuntimeError(f"Halving dimension must be even, but dimension {axis} is size {input.shape[axis]}")
    first, second = _halves(input, axis)
    made = xp.empty(first.shape, input.dtype)
    xp.negative(second, out=made)
    xp.exp(made, out=made)
    made += 1
    return xp.divide(first, made, out=made)
