"""The depth of a checkpoint's nested containers, and those of them that hold storages in the place of values."""

from __future__ import annotations

from typing import Any

from . import plain
from .errors import UnpicklingError
from .placeholders import Placeholder
from .records import RawStorage

__all__ = ["check_depth"]


def check_depth(result: Any, limit: int) -> list[Any]:
    """Refuse containers nested deeper than `limit`: printing, comparing and copying them would recurse.

    Returns the lists and dicts that hold storages, or tuples, which may.
    """
    level, seen, depth = [result], set(), 0
    holders: list[Any] = []
    while level:
        below: list[Any] = []
        for item in level:
            if id(item) in seen:
                continue
            seen.add(id(item))
            for part in _containers(item):
                inside = part.values() if isinstance(part, dict) else part
                if not isinstance(part, tuple) and any(type(i) is RawStorage or isinstance(i, tuple) for i in inside):
                    holders.append(part)
                below.extend(inside)
        level = [item for item in below if type(item) not in _FLAT]
        depth += 1
        if depth > limit:
            raise UnpicklingError(f"containers are nested more than {limit - 1} deep")
    return holders


_FLAT = frozenset({int, str, float, bool, type(None), bytes})


def _containers(item: Any) -> tuple[Any, ...]:
    """Return the containers that hold the parts of an object: itself, or those of a namespace or placeholder."""
    if isinstance(item, (list, tuple, dict)):
        return (item,)
    if type(item) is Placeholder:
        parts = (item._args, item._kwargs, item._items, item._pairs, item._state)
        return tuple(part for part in parts if isinstance(part, (list, tuple, dict)))
    found = plain.inside(item)
    return () if found is None else (found,)
