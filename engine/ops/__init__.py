"""Every operation, one `def` each, by family.  Importing this package fills the op registry.

Add an op: one decorated function in its family's file (CONTRIBUTING.md shows it); nothing else to edit.
"""

from engine.ops import (  # noqa: F401
    blas,
    creation,
    indexing,
    pointwise,
    reduction,
    shape,
)
