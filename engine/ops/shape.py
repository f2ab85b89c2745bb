"""Views, reshaping, joining and splitting."""

from __future__ import annotations

from engine._checks import infer_size, wrap_dim
from engine.dispatch import derivative, op, samples


@op(view=True, varargs="size")
@derivative(input=lambda grad, input_shape: grad.sum_to_size(input_shape))
@samples(lambda t: [(t(1, 3), (4, 3))])
def expand(xp, input, size):
    """input with dims of size 1 repeated without copying; -1 keeps a size.  input (*a) -> (*size)."""
    return xp.broadcast_to(input, size)


@op(view=True)
@derivative(input=lambda grad, dim: grad.squeeze(dim))
@samples(lambda t: [(t(3, 4), 0), (t(3), -1)])
def unsqueeze(xp, input, dim):
    """A dim of size 1 inserted at `dim`.  input (*) -> (*, 1, *)."""
    return xp.expand_dims(input, wrap_dim(dim, input.ndim + 1))


@op(view=True, varargs="size")
@derivative(input=lambda grad, input_shape: grad.reshape(input_shape))
@samples(lambda t: [(t(3, 4), (2, 6))])
def view(xp, input, size):
    """The same elements under other sizes.  input (*) -> (*size)."""
    return input.reshape(infer_size(size, input.size))
