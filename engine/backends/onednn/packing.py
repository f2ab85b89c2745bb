"""Weights in the layout a primitive chose: packed for each call, or cached with a converted weight."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from engine.backends.cpu.packing import packed_with
from engine.backends.onednn.primitives import (
    Desc,
    Primitive,
    address,
    reorder_between,
    workspace,
)


class Packing:
    """The copy of weights from the caller's layout to the one a primitive chose (`back`: in reverse).

    None is made where they agree.  `arranged`: what is done to the weights before.  `role`: of the memory that packed
    weights share, so that it is in the cache.
    """

    def __init__(
        self,
        plain: Desc,
        packed: Desc,
        back: bool = False,
        arranged: Callable[..., Any] | None = None,
        role: str = "weights",
    ) -> None:
        self.reorder: Primitive | None = None
        self.nbytes = packed.nbytes
        self._arranged, self._role = arranged, role
        if arranged is not None or not plain.same(packed):
            self.reorder = reorder_between(*((packed, plain) if back else (plain, packed)))

    def buffer(self) -> Any:
        """Return the address of the packed weights: one block per role."""
        return address(workspace(self._role, self.nbytes))

    def place(self, w: np.ndarray, key: Hashable = None) -> Any:
        """The address of `w` as the primitive wants it, packed now if need be.

        `key`: packed weights are cached with a converted `w`, which is not written to without its `packed` being
        removed.
        """
        if self.reorder is None:
            return address(w)
        if key is None:
            return self._fill(w, self.buffer())
        found = packed_with(w, key, self.nbytes, lambda buffer: self._fill(w, address(buffer)))
        return self._fill(w, self.buffer()) if found is None else found.address

    def _fill(self, w: np.ndarray, target: Any) -> Any:
        source = w if self._arranged is None else self._arranged(w.view(np.ndarray))
        self.reorder(address(source), target)  # type: ignore[misc]
        return target
