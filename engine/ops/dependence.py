"""Gradients that require grad with a tensor that their values do not depend on.

In torch the gradient of a convolution is one operator of the gradient, the input and the weight.  Under
`create_graph=True` its results require grad with any of these, also where none of them enters the values: what a frozen
convolution gives back can be differentiated, and its input gets nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.autograd.graph import requires_grad_of
from engine.core.grad_mode import mode
from engine.dispatch import derivative, op, samples
from engine.tensor import Tensor

__all__ = ["dependent", "depending"]


def _nothing(grad, operand_shape, zero):
    return grad.new_zeros(operand_shape) if zero else None


@op(public=False, out=False, method=False, tensors=("gradient", "operand"))
@derivative(gradient=lambda grad: grad, operand=_nothing)
@samples(lambda t: [(t(2, 3), t(4), True)])
def dependent(xp, gradient, operand, zero: bool = False):
    """A copy of `gradient` that requires grad with `operand`, whose own gradient is zero or undefined.

    gradient (*), operand (*b) -> (*).
    """
    return gradient.copy()


def depending(
    gradients: Sequence[Tensor | None], operands: Sequence[Tensor | None], zero: bool = False
) -> Sequence[Tensor | None]:
    """Return `gradients`, where a graph is recorded each requiring grad if one of `operands` does.

    zero: The operand's gradient is zeros, else it is undefined.
    """
    if not mode.enabled:
        return gradients
    operand = next((x for x in operands if x is not None and requires_grad_of(x)), None)
    if operand is None:
        return gradients
    return tuple(g if g is None or requires_grad_of(g) else dependent(g, operand, zero) for g in gradients)
