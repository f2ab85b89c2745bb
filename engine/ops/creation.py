"""Factories, copies and conversions of dtype, device and layout."""

from __future__ import annotations

import numpy as np

from engine import dtypes
from engine.autograd.graph import handed
from engine.dispatch import derivative, op, samples
from engine.tensor import Tensor, wrap


@op()
@derivative(input=lambda grad: grad)
@samples(lambda t: [(t(3, 4),), (t(),), (t(0, 2),)])
def clone(xp, input, *, memory_format=None):
    """A copy with memory of its own, in the graph.  input (*) -> (*)."""
    return input.copy(order="K")


def _clone_strided(tensor, shape, strides):
    array = tensor._array
    fresh = np.ndarray(shape, array.dtype, np.empty(1), strides=(0,) * len(shape)) if False else None
    del fresh
    result = clone(tensor)
    return result


def _contiguous_copy(tensor, like):
    array = tensor._array
    order = "C"
    flags = like._array.flags
    if not flags.c_contiguous and flags.forc:
        order = "F"
    return wrap(array.copy(order=order))


def _cast(tensor, dtype):
    return tensor.to(dtype if isinstance(dtype, dtypes.dtype) else dtypes.from_numpy(dtype))


handed.clone = clone
handed.contiguous_copy = _contiguous_copy
handed.cast = _cast
