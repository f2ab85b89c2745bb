"""Reductions over dims."""

from __future__ import annotations

from engine import dtypes
from engine._checks import wrap_dims
from engine.dispatch import derivative, op, samples


def _unreduce(grad, shape, dim, keepdim):
    """The gradient of a reduction spread over the reduced dims again."""
    if not keepdim and shape:
        for d in sorted(wrap_dims(dim, len(shape))):
            grad = grad.unsqueeze(d)
    return grad.expand(shape)


@op(aliases={"axis": "dim", "keepdims": "keepdim"})
@derivative(input=lambda grad, input_shape, dim, keepdim: _unreduce(grad, input_shape, dim, keepdim))
@samples(lambda t: [(t(3, 4),), (t(),), (t(3, 4), 1), (t(2, 3, 4), (0, 2), True)])
def sum(xp, input, dim=None, keepdim=False, *, dtype=None):
    """Sum over `dim` (int, tuple or None = all); integers and bools sum in int64.  input (*) -> (* without dim)."""
    target = dtypes.to_numpy(dtype) if dtype is not None else np_sum_type(input)
    return xp.sum(input, axis=wrap_dims(dim, input.ndim), keepdims=keepdim, dtype=target)


def np_sum_type(array):
    return dtypes.to_numpy(dtypes.int64) if array.dtype.kind in "iub" else None
