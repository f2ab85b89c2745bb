"""Small products by one thread, beside generated convolutions.

OpenBLAS's threads wait 20 to 30 ms after each product on the processors that the engine's own threads want; ResNet-18
of one image, which ends in a product, takes 20.
"""

from __future__ import annotations

import functools
import os
import threading
from typing import Any

import numpy as np

__all__ = ["dot"]

# multiplications: beyond the former BLAS has threads, the latter take half a millisecond
_LEAST, _SMALL = 1 << 12, 1 << 24


def dot(a: Any, b: Any) -> Any:
    """a.dot(b) of numpy's vectors and matrices, or of another library's."""
    if b.ndim != 2 or not _LEAST < a.size * b.shape[1] <= _SMALL or not isinstance(a, np.ndarray):
        return a.dot(b)
    with _single:
        return a.dot(b)


class _Single:
    """BLAS has one thread, while any thread of Python's is within; then as many as before."""

    def __init__(self) -> None:
        self._changing, self._within = threading.Lock(), 0
        self._before: list[int] = []

    def __enter__(self) -> None:
        with self._changing:
            if not self._within:
                self._before = [library.num_threads for library in _blas()]
                for library in _blas():
                    library.set_num_threads(1)
            self._within += 1

    def __exit__(self, *_: object) -> None:
        with self._changing:
            self._within -= 1
            if not self._within:
                self._restore()

    def _restore(self) -> None:
        for library, count in zip(_blas(), self._before):
            library.set_num_threads(count)

    def forked(self) -> None:
        """In a child: threads that were within are not there to leave."""
        self._changing, within, self._within = threading.Lock(), self._within, 0
        if within:
            self._restore()


_single = _Single()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _single.forked())


@functools.cache
def _blas() -> Any:
    import threadpoolctl

    return threadpoolctl.ThreadpoolController().select(user_api="blas").lib_controllers
