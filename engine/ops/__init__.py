"""Every operation, one `def` each, by family.  Importing this package fills the op registry.

Add an op: one decorated function in its family's file (CONTRIBUTING.md shows it); nothing else to edit.
"""

from engine.ops import (  # noqa: F401
    activation,
    blas,
    blas_add,
    comparison,
    complex,
    contractions,
    convolution,
    coo,
    copying,
    creation,
    distance,
    gathering,
    indexing,
    joining,
    lapack,
    lapack_factor,
    lapack_old,
    lapack_spectral,
    normalization,
    norms,
    padding,
    pointwise,
    pointwise_bits,
    pointwise_math,
    pointwise_select,
    rearranging,
    reduction,
    scan,
    shape,
    special_functions,
    spectral,
)
