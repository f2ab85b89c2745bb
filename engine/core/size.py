"""`Size`: the shape of a tensor."""

from __future__ import annotations

from collections.abc import Iterable
from operator import index as index_of
from typing import Any, SupportsIndex

__all__ = ["Size", "new_size"]

new_size = tuple.__new__  # `Size` of a tuple that needs no check


def _whole(size: SupportsIndex, place: int) -> SupportsIndex:
    try:
        return index_of(size)
    except TypeError:
        if not isinstance(size, float | complex | str | bytes) and not hasattr(size, "dtype"):
            return size  # it may stand for a number while a program is recorded
        raise TypeError(f"torch.Size() takes an iterable of 'int' (item {place} is '{type(size).__name__}')") from None


class Size(tuple[int, ...]):
    """A shape: a tuple of ints with `numel()`."""

    __module__ = "engine.tensor"  # where pickles look for it

    __slots__ = ()

    def __new__(cls, sizes: Iterable[SupportsIndex] = ()) -> Size:
        return tuple.__new__(
            cls, [n if isinstance(n, int) and n.__class__ is not bool else _whole(n, i) for i, n in enumerate(sizes)]
        )

    def numel(self) -> int:
        """The number of elements of this shape."""
        n = 1
        for s in self:
            n *= s
        return n

    def __repr__(self) -> str:
        return f"torch.Size({list(self)})"

    def __getitem__(self, index: Any) -> Any:
        found = tuple.__getitem__(self, index)
        return Size(found) if isinstance(index, slice) else found

    def __add__(self, other: Iterable[int]) -> Size:  # type: ignore[override]  # any sequence, as torch's
        return Size(tuple.__add__(self, tuple(other)))

    def __mul__(self, times: SupportsIndex) -> Size:
        return Size(tuple.__mul__(self, times))

    def __reduce__(self) -> tuple[object, ...]:
        return Size, (tuple(self),)
