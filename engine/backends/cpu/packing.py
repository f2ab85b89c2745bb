"""Packed forms of converted weights, cached with the weight while it is not written to.

Note [Channels-last tensors] in layouts.py says which weights are converted.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from engine.core.layouts import ChannelsLast

__all__ = ["PackedWeight", "aligned", "packed_array", "packed_with", "reserve"]

_MOST = 1 << 29  # bytes of packed weights in all


def aligned(nbytes: int) -> np.ndarray:
    """Return `nbytes` new bytes at a 64-byte boundary."""
    raw = np.empty(nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + nbytes]


class PackedWeight:
    """A weight packed for the use `key`, in `buffer`; address: what `fill` returned."""

    nbytes = 0  # of all that live

    def __init__(self, key: Hashable, buffer: np.ndarray) -> None:
        self.key, self.buffer = key, buffer
        self.address: Any = None
        PackedWeight.nbytes += buffer.nbytes

    def __del__(self) -> None:
        PackedWeight.nbytes -= self.buffer.nbytes


def packed_with(w: np.ndarray, key: Hashable, nbytes: int, fill: Callable[[np.ndarray], Any]) -> PackedWeight | None:
    """Return the packed form of a converted weight under `key`, filled by `fill(buffer)` at first need: a buffer of
    `nbytes` whose `address` is what `fill` returned.

    None for any other weight, and where packed weights take too much memory already.
    """
    if type(w) is not ChannelsLast:
        return None
    found = w.packed
    if found is None or (found.key is not key and found.key != key):
        w.packed = None
        found = reserve(key, nbytes)
        if found is not None:
            found.address = fill(found.buffer)
            w.packed = found
    return found


def packed_array(w: np.ndarray, key: Hashable, make: Callable[[], np.ndarray]) -> np.ndarray:
    """Return `make()`, a packed form of `w`; of a converted weight it is cached under `key`."""
    if type(w) is not ChannelsLast:
        return make()
    found = w.packed
    if found is not None and found.key == key:
        return found.buffer  # type: ignore[no-any-return]
    w.packed = None
    made = make()
    if PackedWeight.nbytes + made.nbytes <= _MOST:
        w.packed = PackedWeight(key, made)
    return made


def reserve(key: Hashable, nbytes: int) -> PackedWeight | None:
    """Return a block (`buffer`) for a packed weight of the caller; None where packed weights take too much memory."""
    return None if PackedWeight.nbytes + nbytes > _MOST else PackedWeight(key, aligned(nbytes))
