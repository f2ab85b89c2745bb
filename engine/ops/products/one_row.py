"""Products of a column by a row, of which BLAS has no fast code, and those of small matrices in gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from engine.core.arrays import Array
from engine.core.checks import numel
from engine.dispatch import PUBLIC
from engine.dispatch.choosing import run_direct

if TYPE_CHECKING:
    from engine.dispatch.record import Arrays

_OUTER = 1 << 14  # elements up to which BLAS is as fast as generated code

__all__ = ["by_elements", "small_product", "weight_of_rows"]


def by_elements(rows: int, count: int) -> bool:
    """Return whether `count` elements, each the sum of `rows` products, are rather a product of elements."""
    if rows != 1 or count <= _OUTER:
        return False
    from engine.kernels import processor  # for the start-up: few programs ask

    return processor.available()


def small_product(a: Array, b: Array) -> Arrays:
    """The product of two small matrices: a launch where the call repeats one, else BLAS."""
    found = run_direct(PUBLIC["mm"], a, b)
    return a.dot(b) if found is NotImplemented else found


def weight_of_rows(grad: Array, input: Array, weight_shape: Sequence[int]) -> Arrays:
    """The gradient of a weight by those of rows and the rows; NotImplemented for what is left to Tensors."""
    if len(weight_shape) != 2 or grad.ndim != 2 or by_elements(len(grad), numel(weight_shape)):
        return NotImplemented  # type: ignore[no-any-return]  # of no type
    return small_product(grad.T, input)
