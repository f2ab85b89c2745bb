"""Products of a column by a row, of which BLAS has no fast code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.core.arrays import Array
from engine.core.checks import numel

_OUTER = 1 << 14  # elements up to which BLAS is as fast as generated code

__all__ = ["by_elements", "weight_of_rows"]


def by_elements(rows: int, count: int) -> bool:
    """Return whether `count` elements, each the sum of `rows` products, are rather a product of elements."""
    if rows != 1 or count <= _OUTER:
        return False
    from engine.kernels import processor  # for the start-up: few programs ask

    return processor.available()


def weight_of_rows(grad: Array, input: Array, shape: Sequence[int]) -> Any:
    """The gradient of a weight of a shape by those of rows and the rows; NotImplemented for what is left to Tensors."""
    if len(shape) != 2 or grad.ndim != 2 or by_elements(len(grad), numel(shape)):
        return NotImplemented
    return grad.T.dot(input)
