"""Weights in the layout a primitive chose: packed for each call, or kept with a converted weight."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from engine.backends.onednn.primitives import (
    Desc,
    Primitive,
    address,
    aligned,
    reorder_between,
    workspace,
)
from engine.layouts import ChannelsLast

_KEPT = 1 << 29  # bytes of packed weights that are kept


class _Kept:
    """A weight packed for the use `key`."""

    nbytes = 0  # of all that live

    def __init__(self, key: Hashable, buffer: np.ndarray) -> None:
        self.key, self.buffer, self.address = key, buffer, address(buffer)
        _Kept.nbytes += buffer.nbytes

    def __del__(self) -> None:
        _Kept.nbytes -= self.buffer.nbytes


def kept(w: np.ndarray, key: Hashable, nbytes: int, fill: Callable[[np.ndarray], Any]) -> Any:
    """What `fill` makes of a converted weight in a block of so many bytes, kept with it under `key` (its `buffer`).

    None for any other weight, and where too much is kept already.
    """
    if type(w) is not ChannelsLast:
        return None
    found = w.packed
    if found is None or (found.key is not key and found.key != key):
        w.packed = None
        found = room(key, nbytes)
        if found is not None:
            fill(found.buffer)
            w.packed = found
    return found


def room(key: Hashable, nbytes: int) -> Any:
    """A block (`buffer`) for a packed weight that whoever has it keeps; None where too much is kept already."""
    return None if _Kept.nbytes + nbytes > _KEPT else _Kept(key, aligned(nbytes))


class Packing:
    """The copy of weights from the caller's layout to the one a primitive chose (`back`: the other way).

    None is made where they agree.  `arranged`: what is done to the weights before.  `role`: of the memory that packed
    weights share, so that it is in the cache.
    """

    def __init__(
        self, plain: Desc, packed: Desc, back: bool = False, arranged: Callable[..., Any] | None = None,
        role: str = "weights",
    ) -> None:  # fmt: skip
        self.reorder: Primitive | None = None
        self.nbytes = packed.nbytes
        self._arranged, self._role = arranged, role
        if arranged is not None or not plain.same(packed):
            self.reorder = reorder_between(*((packed, plain) if back else (plain, packed)))

    def buffer(self) -> Any:
        """Where the packed weights are put: one block for all of a role."""
        return address(workspace(self._role, self.nbytes))

    def place(self, w: np.ndarray, key: Hashable = None) -> Any:
        """The address of `w` as the primitive wants it, packed now if need be.

        `key`: packed weights are kept with a converted `w`, which is not written to without its `packed` being taken
        away.
        """
        if self.reorder is None:
            return address(w)
        if key is None:
            return self._fill(w, self.buffer())
        found = kept(w, key, self.nbytes, lambda room: self._fill(w, address(room)))
        return self._fill(w, self.buffer()) if found is None else found.address

    def _fill(self, w: np.ndarray, target: Any) -> Any:
        source = w if self._arranged is None else self._arranged(w.view(np.ndarray))
        self.reorder(address(source), target)  # type: ignore[misc]
        return target
