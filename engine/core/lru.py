"""`LRU`: the one cache of what was decided, bounded by the number of its keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

__all__ = ["LRU"]

K = TypeVar("K")
V = TypeVar("V")


class LRU(Generic[K, V]):
    """Values by key, of which those go that were not used for longest; no value is None.

    There are two generations of `size` keys.  New keys, and old ones that are used, are in the young one; when that is
    full it becomes the old one, and the old one is forgotten.  So the last `size` keys that were used are there, never
    more than twice as many.

    young: always the same dict.  Where time matters it is read first, `cache.young.get(key)`: a hit costs one lookup,
    which moving keys in an OrderedDict would treble.

    What holds memory of a card or of a network (plans, graphs) is no decision: those caches are exact, and end what
    they drop.

    Threads need no lock: one that reads while another ages the cache may miss a key, and makes its value again.
    """

    __slots__ = ("_old", "size", "young")

    def __init__(self, size: int) -> None:
        self.size = size
        self.young: dict[K, V] = {}
        self._old: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        """Return the value of a key; None if there is none."""
        found = self.young.get(key)
        if found is None:
            found = self._old.get(key)
            if found is not None:
                self[key] = found
        return found

    def made(self, key: K, make: Callable[[], V]) -> V:
        """Return the value of a key, made now where there is none."""
        found = self.get(key)
        if found is None:
            found = self[key] = make()
        return found

    def __setitem__(self, key: K, value: V) -> None:
        young = self.young
        if len(young) >= self.size and key not in young:
            self._old = dict(young)
            young.clear()
        young[key] = value

    def __contains__(self, key: object) -> bool:
        return key in self.young or key in self._old

    def __iter__(self) -> Iterator[K]:
        """Yield the keys."""
        return iter({**self._old, **self.young})

    def __len__(self) -> int:
        return len({**self._old, **self.young})

    def values(self) -> list[V]:
        """Return the values."""
        return list({**self._old, **self.young}.values())

    def clear(self) -> None:
        """Forget all."""
        self._old = {}
        self.young.clear()
