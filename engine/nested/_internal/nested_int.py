"""The size of a ragged dim: a number that differs from row to row, and so has a name (`j1`) instead of a value."""

from __future__ import annotations

import itertools
import weakref
from functools import cached_property
from typing import Any

import numpy as np

from engine.tensor import Tensor
from engine.torch_names._top_level import SymInt

__all__ = ["NestedInt", "of_metadata"]

_numbers = itertools.count(1)


class NestedInt(SymInt):
    """`coefficient` times the size of a ragged dim.  Equal are those of the same rows; to others it is at least 2."""

    __slots__ = ("coefficient", "number")

    def __init__(self, number: int, coefficient: int = 1) -> None:
        self.number, self.coefficient = number, coefficient

    def __repr__(self) -> str:
        return f"j{self.number}" if self.coefficient == 1 else f"{self.coefficient}*j{self.number}"

    __str__ = __repr__

    def __hash__(self) -> int:
        return hash((self.number, self.coefficient))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, NestedInt):
            return (self.number, self.coefficient) == (other.number, other.coefficient)
        return False

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __ge__(self, other: Any) -> bool:
        if isinstance(other, NestedInt) and other.number == self.number:
            return self.coefficient >= other.coefficient
        if isinstance(other, int) and other <= 2:
            return True
        raise ValueError("ge: relation is indeterminate")

    def __gt__(self, other: Any) -> bool:
        if isinstance(other, NestedInt):
            return self >= other and self != other
        return self >= other + 1

    def __lt__(self, other: Any) -> bool:
        return not self >= other

    def __le__(self, other: Any) -> bool:
        return not self > other

    def __bool__(self) -> bool:
        return True

    def __mul__(self, other: Any) -> NestedInt:
        if isinstance(other, NestedInt) or not isinstance(other, int):
            raise ValueError("mul: only a ragged size and a number can be multiplied")
        return NestedInt(self.number, self.coefficient * other)

    __rmul__ = __mul__

    def __int__(self) -> int:
        raise TypeError(f"the ragged size {self!r} differs from row to row; offsets().diff() has the sizes")

    __index__ = __int__


class Rows:
    """The positions of the rows among the values, computed once on the host from offsets and lengths.

    `size` the ragged size; `starts`, `lengths` (B) as int64 arrays.
    """

    def __init__(self, offsets: Tensor, lengths: Tensor | None, size: NestedInt) -> None:
        ends = offsets.detach().cpu()._array.astype(np.int64)
        self.size = size
        self.ends = ends
        self.starts = ends[:-1]
        self.lengths = np.diff(ends) if lengths is None else lengths.detach().cpu()._array.astype(np.int64)

    @cached_property
    def longest(self) -> int:
        """The largest length."""
        return int(self.lengths.max()) if self.lengths.size else 0

    @cached_property
    def shortest(self) -> int:
        """The smallest length."""
        return int(self.lengths.min()) if self.lengths.size else 0

    def places(self, total: int) -> tuple[np.ndarray, np.ndarray]:
        """The row of each of `total` values, and its place in the row; in the gaps between rows any row and place."""
        at = np.arange(total)
        row = np.clip(np.searchsorted(self.ends, at, side="right") - 1, 0, max(len(self.starts) - 1, 0))
        place = np.clip(at - self.starts[row], 0, max(self.longest - 1, 0)) if len(self.starts) else at
        return row, place


_known: dict[int, tuple[weakref.ref, Rows]] = {}  # by the id of the tensor that says the lengths


def of_metadata(offsets: Tensor, lengths: Tensor | None, like: NestedInt | None = None) -> Rows:
    """The rows of these offsets and lengths; the same size for the same tensor.  like: the size, where it is known."""
    key = offsets if lengths is None else lengths
    known = _known.get(id(key))
    if known is not None and known[0]() is key:
        return known[1]
    made = Rows(offsets, lengths, like or NestedInt(next(_numbers)))
    number = id(key)

    def gone(ref: Any) -> None:
        if number in _known and _known[number][0] is ref:
            del _known[number]

    _known[number] = weakref.ref(key, gone), made
    return made
