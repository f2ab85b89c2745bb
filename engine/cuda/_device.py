"""The functions that the modules of engine.cuda share: the backend at first use, and the number of a device."""

from __future__ import annotations

from typing import Any

from engine import backends
from engine.core.device import device as _device


def library() -> Any:
    """CuPy; RuntimeError in one sentence where it or the GPU is missing."""
    return backends.of_device(_device("cuda")).cupy  # type: ignore[attr-defined]


def runtime() -> Any:
    """`engine.backends.cuda.runtime`, with CUDA started."""
    return backends.of_device(_device("cuda")).runtime  # type: ignore[attr-defined]


def initialized() -> bool:
    """Return whether a GPU has been used in this process."""
    return any(one.kind == "cuda" for one in backends.registered())


def current_device() -> int:
    """The number of the current GPU.  RuntimeError without one."""
    return int(library().cuda.runtime.getDevice())


def index_of(where: Any) -> int:
    """The number of a device given as int, string, device or None (the current one).

    ValueError for one that is no GPU, AcceleratorError for one that does not exist.
    """
    if where is None:
        return current_device()
    if not isinstance(where, int):
        found = _device(where)
        if found.type != "cuda":
            raise ValueError(f"Expected a cuda device, but got: {found}")
        if found.index is None:
            return current_device()
        where = found.index
    return int(runtime().check_device(current_device() if where < 0 else where))
