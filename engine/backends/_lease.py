"""What stands behind an array in cached memory; on its own, so that knowing one costs no import of the cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


class Lease:
    """The base of an array over a block of a cache: gives the block back when nothing refers to it any more."""

    __slots__ = ("__array_interface__", "__weakref__", "block", "cache", "nbytes")

    def __init__(self, cache: Any, block: Any, nbytes: int) -> None:
        self.cache, self.block, self.nbytes = cache, block, nbytes

    def array(self, shape: Sequence[int], dtype: np.dtype, strides: tuple[int, ...] | None) -> np.ndarray:
        """The one array over the block."""
        plain = dtype.kind != "V"
        self.__array_interface__ = {
            "version": 3, "data": (self.block.address, False), "shape": tuple(shape), "strides": strides,
            "typestr": dtype.str if plain else f"<u{dtype.itemsize}",
        }  # fmt: skip
        made = np.asarray(self)
        return made if plain else made.view(dtype)

    def __del__(self) -> None:
        self.cache.give_back(self.block, self.nbytes)
