"""Elementwise arithmetic and mathematics."""

from __future__ import annotations

from engine.autograd.graph import handed
from engine.dispatch import derivative, op, operator_form, samples
from engine.tensor import Tensor


def _scaled(xp, other, alpha):
    return other if alpha == 1 else xp.multiply(other, alpha)


@op(broadcast=True, inplace=True)
@derivative(
    input=lambda grad: grad,
    other=lambda grad, alpha: grad if alpha == 1 else grad * alpha,
)
@samples(lambda t: [(t(3, 4), t(3, 4)), (t(2, 1), t(3)), (t(), t(2)), (t(3), 2.5), (t(3), t(3), {"alpha": 2})])
def add(xp, input, other, *, alpha=1):
    """input + alpha * other.  input (*a), other (*b) or number -> (broadcast of a and b)."""
    return xp.add(input, _scaled(xp, other, alpha))


@op(broadcast=True, inplace=True)
@derivative(
    input=lambda grad: grad,
    other=lambda grad, alpha: -grad if alpha == 1 else grad * -alpha,
)
@samples(lambda t: [(t(3, 4), t(3, 4)), (t(2, 1), t(3)), (t(), t(2)), (t(3), 2.5), (t(3), t(3), {"alpha": 2})])
def sub(xp, input, other, *, alpha=1):
    """input - alpha * other.  input (*a), other (*b) or number -> (broadcast of a and b)."""
    return xp.subtract(input, _scaled(xp, other, alpha))


@op(broadcast=True, inplace=True, names=("multiply",))
@derivative(
    input=lambda grad, other: grad * other,
    other=lambda grad, input: grad * input,
)
@samples(lambda t: [(t(3, 4), t(3, 4)), (t(2, 1), t(3)), (t(), t(2)), (t(3), 2.5)])
def mul(xp, input, other):
    """input * other.  input (*a), other (*b) or number -> (broadcast of a and b)."""
    return xp.multiply(input, other)


@op(inplace=True, names=("negative",))
@derivative(input=lambda grad: -grad)
@samples(lambda t: [(t(3, 4),), (t(),), (t(0, 2),)])
def neg(xp, input):
    """-input.  input (*) -> (*)."""
    return xp.negative(input)


@op(promote="float", inplace=True)
@derivative(input=lambda grad, result: grad * result)
@samples(lambda t: [(t(3, 4),), (t(),), (t(0, 2),)])
def exp(xp, input):
    """e ** input.  input (*) -> (*)."""
    return xp.exp(input)


Tensor.__add__ = Tensor.__radd__ = operator_form("add")
Tensor.__mul__ = Tensor.__rmul__ = operator_form("mul")
Tensor.__sub__ = operator_form("sub")
Tensor.__iadd__ = operator_form("add", inplace=True)
Tensor.__imul__ = operator_form("mul", inplace=True)
Tensor.__isub__ = operator_form("sub", inplace=True)
Tensor.__neg__ = neg

handed.add = add


def _add_in_place(total: Tensor, more: Tensor) -> None:
    total._array += more._array
    total._vc[0] += 1


handed.add_ = _add_in_place
