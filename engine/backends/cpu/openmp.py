"""libgomp's threads, which wait for work a while before they sleep: how long, and where they are without oneDNN.

OpenBLAS's threads wait as well, 20 to 30 ms after each product, on the processors that these want: once these are used,
small products are computed by one thread (`dot`).  ResNet-18 of one picture, which ends in one, takes 10 ms.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from engine.backends.cpu import threads

__all__ = ["dot", "parallel", "short_waits"]

# multiplications: beyond the former BLAS has threads, the latter take half a millisecond
_LEAST, _SMALL = 1 << 12, 1 << 24

_STAY = getattr(os, "RTLD_NODELETE", 0)  # its threads may wait in its code until the process ends
_used: list[bool] = []  # whether it was asked for
_forked: list[bool] = []  # in a child of a process that had used the library: its threads are not there


@contextlib.contextmanager
def short_waits() -> Iterator[None]:
    """libgomp, while it is loaded, is told how long a thread that waits for others spins before it sleeps.

    Its own 300,000 turns are milliseconds: where another process has a core, the threads of one small operation spin
    through each other's time slices, and a network is a hundred times slower.  6,000 turns bridge the time between two
    operations.  What the user set (OMP_WAIT_POLICY, GOMP_SPINCOUNT) stands.
    """
    if "OMP_WAIT_POLICY" in os.environ or "GOMP_SPINCOUNT" in os.environ:
        yield
        return
    os.environ["GOMP_SPINCOUNT"] = "6000"
    try:
        yield
    finally:
        del os.environ["GOMP_SPINCOUNT"]


def dot(a: Any, b: Any) -> Any:
    """a.dot(b) of numpy's vectors and matrices."""
    if not _used or b.ndim != 2 or not _LEAST < a.size * b.shape[1] <= _SMALL or not isinstance(a, np.ndarray):
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


def parallel() -> Any:
    """GOMP_parallel(function, data, threads, flags) of the system's libgomp, by addresses; None where it is not to be
    had."""
    found = None if _forked else _found()
    if found is not None and not _used:
        _used.append(True)
    return found


@functools.cache
def _found() -> Any:
    if sys.platform != "linux":
        return None
    try:
        with short_waits():
            function = ctypes.CDLL("libgomp.so.1", _STAY).GOMP_parallel
    except (OSError, AttributeError):
        return None
    function.argtypes, function.restype = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint), None
    os.register_at_fork(after_in_child=lambda: _forked.append(True))
    return function
