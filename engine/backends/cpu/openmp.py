"""libgomp's threads, which wait for work a while before they sleep: how long, and where they are without oneDNN."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
from collections.abc import Iterator
from typing import Any

__all__ = ["parallel", "short_waits"]

_STAY = getattr(os, "RTLD_NODELETE", 0)  # its threads may wait in its code until the process ends
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


def parallel() -> Any:
    """GOMP_parallel(function, data, threads, flags) of the system's libgomp, by addresses; None where it is not to be
    had."""
    return None if _forked else _found()


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
