"""softmax and log_softmax, forward and backward: a row is read three times, from the cache where it fits."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.core import dtypes
from engine.core.checks import wrap_dim
from engine.dispatch import kernel
from engine.kernels import rows
from engine.ops import softmax
from engine.ops.cuda import _rows
from engine.ops.cuda._launch import Unfit, contiguous_strides
from engine.ops.reduction.cuda import known, serving


def _along(xp: Any, name: str, write: Any, arrays: Any, dim: int, dtype: Any) -> Any:
    """A row kernel over `dim` of arrays of one shape; the new array."""
    key = name, dim, dtype, _rows.signature(*arrays)
    found = _rows.replay(xp, key, arrays)
    if found is not None:
        return found[0]
    shape, places, split = _split(arrays, dim)
    made = xp.empty(arrays[0].shape, dtype)
    ready = _rows.run(name, write, [*arrays, made], 1, shape, places, split)
    _rows.keep(key, ready, [(made.shape, dtype)])
    return made


def _split(arrays: Any, dim: int) -> tuple[Any, ...]:
    """(shape of the rows, of the places, strides of the arrays and of a contiguous result)."""
    known(*arrays)
    first = arrays[0]
    if not first.ndim or any(a.shape != first.shape or a.dtype.kind not in "fV" for a in arrays):
        raise Unfit("shapes")
    axis = wrap_dim(dim, first.ndim)
    own = contiguous_strides(first.shape)
    split = [*[_rows.parted(a, (axis,)) for a in arrays], (own[:axis] + own[axis + 1 :], own[axis : axis + 1])]
    return tuple([n for d, n in enumerate(first.shape) if d != axis]), (first.shape[axis],), tuple(split)


def _forward(op: Any, name: str, write: Any) -> None:
    @kernel(op, "cuda", only_launches=True)
    @serving
    def _(xp, input, dim, dtype=None):
        kind = input.dtype if dtype is None else dtypes.to_numpy(dtype)
        if kind.kind not in "fV" or input.dtype.kind not in "fV" or np.dtype(kind).itemsize < input.dtype.itemsize:
            return NotImplemented
        if kind == np.float64 != input.dtype:
            return NotImplemented
        return _along(xp, name, write, [input], dim, kind)


def _backward(op: Any, name: str, write: Any) -> None:
    @kernel(op, "cuda", only_launches=True)
    @serving
    def _(xp, grad_output, output, dim):
        if grad_output.dtype != output.dtype:
            return NotImplemented
        return _along(xp, name, write, [grad_output, output], dim, output.dtype)


_forward(softmax.softmax, "softmax", rows.softmax)
_forward(softmax.log_softmax, "log_softmax", rows.log_softmax)
_backward(softmax.softmax_backward, "softmax_backward", rows.softmax_backward)
_backward(softmax.log_softmax_backward, "log_softmax_backward", rows.log_softmax_backward)
