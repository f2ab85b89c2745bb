"""Products of a column by a row, of which BLAS has no fast code."""

from __future__ import annotations

_OUTER = 1 << 14  # elements up to which BLAS is as fast as generated code

__all__ = ["by_elements"]


def by_elements(rows: int, count: int) -> bool:
    """Return whether `count` elements, each the sum of `rows` products, are rather a product of elements."""
    if rows != 1 or count <= _OUTER:
        return False
    from engine.kernels import processor  # for the start-up: few programs ask

    return processor.available()
