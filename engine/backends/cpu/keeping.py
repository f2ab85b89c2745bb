"""What kernels make of a converted weight, in an order of their own, kept with it while it is not written to.

Note [Channels-last tensors] in layouts.py says which weights are converted.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from engine.layouts import ChannelsLast

__all__ = ["aligned", "kept", "room"]

_KEPT = 1 << 29  # bytes of packed weights that are kept


def aligned(nbytes: int) -> np.ndarray:
    """New bytes at a 64-byte boundary."""
    raw = np.empty(nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + nbytes]


class _Kept:
    """A weight packed for the use `key`, in the bytes `buffer`; address: as whoever fills it calls it."""

    nbytes = 0  # of all that live

    def __init__(self, key: Hashable, buffer: np.ndarray) -> None:
        self.key, self.buffer = key, buffer
        self.address: Any = None
        _Kept.nbytes += buffer.nbytes

    def __del__(self) -> None:
        _Kept.nbytes -= self.buffer.nbytes


def kept(w: np.ndarray, key: Hashable, nbytes: int, fill: Callable[[np.ndarray], Any]) -> Any:
    """What `fill(buffer)` makes of a converted weight in a block of so many bytes, kept with it under `key`; what it
    returns is the block's `address`.

    None for any other weight, and where too much is kept already.
    """
    if type(w) is not ChannelsLast:
        return None
    found = w.packed
    if found is None or (found.key is not key and found.key != key):
        w.packed = None
        found = room(key, nbytes)
        if found is not None:
            found.address = fill(found.buffer)
            w.packed = found
    return found


def room(key: Hashable, nbytes: int) -> Any:
    """A block (`buffer`) for a packed weight that whoever has it keeps; None where too much is kept already."""
    return None if _Kept.nbytes + nbytes > _KEPT else _Kept(key, aligned(nbytes))
