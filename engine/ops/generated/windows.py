"""Windows of a signal added up where they lie, as one kernel (the extra `jit`)."""

from __future__ import annotations

from math import prod
from typing import Any

from engine.core.checks import wrap_dim
from engine.dispatch import kernel
from engine.kernels import layers
from engine.ops import strides
from engine.ops.generated.layers import FLOATS, run

_STEP = 4  # elements from one window to the next, of fewer numpy's passes over whole lines are faster


@kernel(strides.unfold_backward, "cpu", only_launches=True)
def _unfold_backward(xp: Any, grad_output: Any, shape: Any, dimension: int, size: int, step: int) -> Any:
    if step < _STEP or grad_output.ndim < 2 or wrap_dim(dimension, len(shape)) != len(shape) - 1:
        return NotImplemented
    if not grad_output.size or not grad_output.flags.c_contiguous or grad_output.dtype not in FLOATS:
        return NotImplemented
    *lead, count, _ = grad_output.shape
    made, n = xp.empty(tuple(shape), grad_output.dtype), shape[-1]
    pieces = -(-n // step)
    run(layers.windows_added, [grad_output, made], [count, size, step, n, pieces], prod(lead) * pieces, size)
    return made
