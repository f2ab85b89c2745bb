"""oneDNN's kernels of softmax and log_softmax."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from engine.backends.cpu import empty
from engine.backends.cpu.fast import fast
from engine.backends.onednn import arrays
from engine.backends.onednn.primitives import usable
from engine.core.checks import wrap_dim
from engine.dispatch import kernel
from engine.ops import softmax


def _soft(input: Any, dim: int, dtype: Any, log: bool) -> Any:
    if dtype is not None or not usable(input) or not input.ndim:
        return NotImplemented
    axis = wrap_dim(dim, input.ndim)
    x = fast.ascontiguousarray(input)
    made = empty(x.shape, x.dtype)
    if not arrays.softmax(x, made, axis, log):
        return NotImplemented
    # of a row with nan or inf oneDNN makes nan in some places only
    return NotImplemented if math.isnan(np.add.reduce(made, axis=None)) else made


@kernel(softmax.softmax, "onednn")
def _softmax(xp, input, dim, dtype=None):
    return _soft(input, dim, dtype, False)


@kernel(softmax.log_softmax, "onednn")
def _log_softmax(xp, input, dim, dtype=None):
    return _soft(input, dim, dtype, True)


def _soft_backward(grad_output: Any, output: Any, dim: int, log: bool) -> Any:
    if not usable(grad_output, output) or not output.ndim or grad_output.shape != output.shape:
        return NotImplemented
    g, y = fast.ascontiguousarray(grad_output), fast.ascontiguousarray(output)
    made = empty(y.shape, y.dtype)
    served = arrays.softmax_backward(g, y, made, wrap_dim(dim, y.ndim), log)
    return made if served else NotImplemented


@kernel(softmax.softmax_backward, "onednn")
def _softmax_backward(xp, grad_output, output, dim):
    return _soft_backward(grad_output, output, dim, False)


@kernel(softmax.log_softmax_backward, "onednn")
def _log_softmax_backward(xp, grad_output, output, dim):
    return _soft_backward(grad_output, output, dim, True)
