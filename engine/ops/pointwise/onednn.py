"""oneDNN's kernels of sums and products."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.backends.cpu import empty
from engine.backends.onednn import _abi, arrays
from engine.backends.onednn.operands import dense, takes, target
from engine.backends.onednn.primitives import usable
from engine.dispatch import kernel
from engine.ops.pointwise import arithmetic
from engine.ops.random import dropout


def _binary(op: Any, algorithm: int) -> None:
    @kernel(op, "onednn")
    def _(xp, input, other, *, alpha=1, into=None):
        if alpha != 1 or not isinstance(input, np.ndarray) or not isinstance(other, np.ndarray):
            return NotImplemented
        if input.shape != other.shape or not takes(input, other) or dense(input) is not input:
            return NotImplemented
        if input.strides != other.strides:
            return NotImplemented
        made = target(input, into)
        return made if arrays.binary(input, other, made, algorithm) else NotImplemented


_binary(arithmetic.add, _abi.BINARY_ADD)
_binary(arithmetic.sub, _abi.BINARY_SUB)
_binary(arithmetic.mul, _abi.BINARY_MUL)


@kernel(dropout.plus_noisy, "onednn")
def _plus_noisy(xp, input, other, noise):
    if not usable(input, other, noise) or not input.shape == other.shape == noise.shape:
        return NotImplemented
    if not all(a.flags.c_contiguous for a in (input, other, noise)):
        return NotImplemented
    made = empty(input.shape, input.dtype)
    return made if arrays.multiply_add(other, noise, input, made) else NotImplemented
