"""The families that come at the first use of one of their names: see Note [Families imported lazily] in dispatch."""

from engine import dispatch
from engine.ops import (  # noqa: F401
    alignment,
    along,
    audio,
    complex,
    coo,
    copies,
    distance,
    nn,
    numerical,
    rearranging,
    sampling,
    scan,
    sorting,
    special,
    spectral,
    spectral_old,
    statistics,
    typed,
)
from engine.ops.linalg import contractions, eigen, factor, ldl, norms, old_names, products_add, systems  # noqa: F401

dispatch.all_imported()
