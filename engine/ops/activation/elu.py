"""Exponential linear units: elu, selu, celu."""

from __future__ import annotations

from typing import Any

from engine.autograd.graph import name_node
from engine.dispatch import composite, derivative, op, samples
from engine.ops.activation import _OFTEN, PRIVATE, over, under
from engine.ops.pointwise.arithmetic import keep_where
from engine.tensor import Tensor


def _elu_curve(grad: Tensor, input: Tensor, alpha: Any, scale: Any, input_scale: Any) -> Tensor:
    """The second derivative: 0 above zero."""
    curve = (input * input_scale).exp() * (input_scale * input_scale * alpha * scale)
    return keep_where(grad * curve, input < 0)


@op(**PRIVATE, half=True, channels_last=True, large=_OFTEN, blocks="elements", generated="many")
@derivative(
    grad_output=lambda grad, input, alpha, scale, input_scale: elu_backward(grad, input, alpha, scale, input_scale),
    input=lambda grad, grad_output, input, alpha, scale, input_scale: _elu_curve(
        grad * grad_output, input, alpha, scale, input_scale
    ),
)
@samples(lambda t: [(t(3, 4), t.distinct(3, 4), 1.5, 1.1, 0.7)])
def elu_backward(xp, grad_output, input, alpha, scale, input_scale):
    """The gradient of `elu`.  grad_output (*), input (*) -> (*)."""
    below = xp.exp(under(xp, input) * input_scale)
    below *= input_scale * alpha * scale
    return grad_output * xp.where(input <= 0, below, input.dtype.type(scale))


@op(inplace=True, **PRIVATE, half=True, refuse="iubc", channels_last=True, blocks="elements", generated="many")
@derivative(input=lambda grad, input, alpha, scale, input_scale: elu_backward(grad, input, alpha, scale, input_scale))
@samples(lambda t: [(t.distinct(3, 4),), (t.distinct(), 1.5, 1.1, 0.7), (t(0, 2),)])
def elu(xp, input, alpha: complex = 1.0, scale: complex = 1, input_scale: complex = 1):
    """scale * input where positive, else scale * alpha * (exp(input_scale * input) - 1).  input (*) -> (*)."""
    below = under(xp, input)
    below = xp.expm1(below if input_scale == 1 else below * input_scale)
    above = over(xp, input)
    if scale != 1:
        above *= scale
    if alpha * scale != 1:
        below *= alpha * scale
    return xp.add(above, below)


SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


@composite(method=False, elementwise=True)
@samples(lambda t: [(t.distinct(3, 4),), (t.distinct(),)])
def selu(input: Tensor):
    """The self-normalizing `elu`, alpha 1.6733 and scale 1.0507 (https://arxiv.org/abs/1706.02515).

    input (*) -> (*).
    """
    return elu(input, SELU_ALPHA, SELU_SCALE)


def _celu_scale(alpha: float) -> float:
    if alpha == 0:
        raise RuntimeError("ZeroDivisionError: alpha cannot be 0 for CELU")
    return 1.0 / alpha


@composite(method=False, elementwise=True)
@samples(lambda t: [(t.distinct(3, 4),), (t.distinct(), 1.5)])
def celu(input: Tensor, alpha: complex = 1.0):
    """input where positive, else alpha * (exp(input / alpha) - 1).  input (*) -> (*)."""
    return name_node(elu(input, alpha, 1, _celu_scale(alpha)), "CeluBackward0")


elu_ = elu.op.inplace_function


@composite(method=False)
def selu_(input: Tensor):
    """In place: see `selu`."""
    return elu_(input, SELU_ALPHA, SELU_SCALE)


@composite(method=False)
def celu_(input: Tensor, alpha: complex = 1.0):
    """In place: see `celu`."""
    return name_node(elu_(input, alpha, 1, _celu_scale(alpha)), "CeluBackward0")
