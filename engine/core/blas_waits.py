"""How long the threads of numpy's BLAS wait for more work before they sleep.

OpenBLAS's own 2 ** 26 cycles are 20 ms in which each of its threads keeps a core busy after a product.  Generated code
and oneDNN have OpenMP's threads: where there are as many cores as threads, one of those waits for a core each time, and
a kernel of 40 us takes 350.  2 ** 18 cycles, some 100 us, bridge the time between two products; waking a thread takes
5 us.  numpy's library reads the time as it is loaded, so this comes before the first import of numpy; a program that
imports numpy before the engine sets OPENBLAS_THREAD_TIMEOUT itself.
"""

from __future__ import annotations

import os
import sys

__all__ = ["NAME", "import_numpy"]

NAME, _LOGARITHM = "OPENBLAS_THREAD_TIMEOUT", "18"


def import_numpy() -> None:
    """Import numpy with short waits; what the user set stands."""
    if "numpy" in sys.modules or NAME in os.environ:
        return
    os.environ[NAME] = _LOGARITHM
    try:
        import numpy  # noqa: F401
    finally:
        del os.environ[NAME]
