"""Activation functions, each with a fused backward that is an op of its own."""

from __future__ import annotations

import builtins
import math
from typing import Any

from engine import dtypes
from engine._checks import wrap_dim
from engine.dispatch import composite, derivative, op, overload, samples
from engine.ops.pointwise import at_single, keep_where, not_implemented
from engine.ops.pointwise import conj_if_complex as _conj
from engine.tensor import Tensor

# Parameters of a fused backward: grad_output (*), and input or output (*) -> (*).


def _floats_only(name: str, input: Any) -> None:
    if input.dtype.kind in "iub":
        raise not_implemented(name, input)


def _held(grad: Tensor, shape_of: Any) -> Tensor:
    return grad


# --- saturating: sigmoid, tanh and kin


@op(public=False, method=False)
@derivative(
    grad_output=lambda grad, output: tanh_backward(grad, _conj(output)),
    output=lambda grad, grad_output, output: _conj(grad) * grad_output * _conj(output) * -2,
)
@samples(lambda t: [(t(3, 4), t(3, 4)), (t(), t()), (t.complex(3), t.complex(3))])
def tanh_backward(xp, grad_output, output):
    """grad_output * (1 - conj(output) ** 2).  grad_output (*), output (*) -> (*)."""
    if output.dtype.kind == "c":
        output = xp.conj(output)
    slope = xp.multiply(output, output)
    return xp.multiply(grad_output, xp.subtract(1, slope))


@op(promote="float", inplace=True)
@derivative(input=lambda grad, result: tanh_backward(grad, result))
@samples(lambda t: [(t(3, 4),), (t(),), (t(0, 2),), (t.complex(3),), (t.integers(-2, 3, 3),)])
def tanh(xp, input):
    """The hyperbolic tangent.  input (*) -> (*)."""
    return xp.tanh(input)


@op(public=False, method=False)
@derivative(
    grad_output=lambda grad, output: sigmoid_backward(grad, _conj(output)),
    output=lambda grad, grad_output, output: _conj(grad) * grad_output * (1 - _conj(output) * 2),
)
@samples(lambda t: [(t(3, 4), t(3, 4)), (t(), t()), (t.complex(3), t.complex(3))])
def sigmoid_backward(xp, grad_output, output):
    """grad_output * conj(output * (1 - output)).  grad_output (*), output (*) -> (*)."""
    if output.dtype.kind == "c":
        output = xp.conj(output)
    return xp.multiply(grad_output, xp.multiply(output, xp.subtract(1, output)))


def logistic(xp, input):
    """1 / (1 + e ** -input) of a float array: right at both ends, since 1 / inf is 0."""
    e = xp.exp(xp.negative(input))
    e += e.dtype.type(1)
    return xp.reciprocal(e)


@op(promote="float", inplace=True, names=("special_expit",))
@derivative(input=lambda grad, result: sigmoid_backward(grad, result))
@samples(lambda t: [(t(3, 4),), (t(),), (t(0, 2),), (t.complex(3),), (t.integers(-2, 3, 3),)])
def sigmoid(xp, input):
    """1 / (1 + e ** -input).  input (*) -> (*)."""
    return logistic(xp, input)


# --- rectifiers


@op(public=False, method=False)
@derivative(
    grad_output=lambda grad, self_, threshold: threshold_backward(grad, self_, threshold),
)
@samples(lambda t: [(t(3, 4), t.of([[1.0, -1, 0, 2]] * 3), 0), (t(), t.of(1.0), 0.5)])
def threshold_backward(xp, grad_output, self_, threshold):
    """grad_output where self_ > threshold, else 0.  grad_output (*), self_ (*) -> (*)."""
    return xp.where(self_ > threshold, grad_output, grad_output.dtype.type(0))
