"""Small products by one thread, beside generated convolutions.

OpenBLAS's threads wait 20 to 30 ms after each product on the processors that the engine's own threads want; ResNet-18
of one picture, which ends in a product, takes 20.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from engine.backends.cpu import threads

__all__ = ["dot"]

# multiplications: beyond the former BLAS has threads, the latter take half a millisecond
_LEAST, _SMALL = 1 << 12, 1 << 24


def dot(a: Any, b: Any) -> Any:
    """a.dot(b) of numpy's vectors and matrices, or of another library's."""
    if b.ndim != 2 or not _LEAST < a.size * b.shape[1] <= _SMALL or not isinstance(a, np.ndarray):
        return a.dot(b)
    libraries = _blas()
    try:
        for library in libraries:
            library.set_num_threads(1)
        return a.dot(b)
    finally:
        for library in libraries:
            library.set_num_threads(threads.get_num_threads())


@functools.cache
def _blas() -> Any:
    import threadpoolctl

    return threadpoolctl.ThreadpoolController().select(user_api="blas").lib_controllers
