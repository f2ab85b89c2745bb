"""Every operation, one `def` each, by family.  Importing this package fills the op registry with the families that
every use of a tensor needs; `late.py` names the others.

Add an op: one decorated function in its family's file (CONTRIBUTING.md shows it); nothing else to edit.
"""

from engine.ops import (  # noqa: F401
    blas,
    comparison,
    copying,
    creation,
    extremes,
    from_data,
    gathering,
    indexing,
    joining,
    masking,
    pointwise,
    pointwise_bits,
    pointwise_math,
    pointwise_select,
    queries,
    random,
    reduction,
    shape,
    strides,
)
