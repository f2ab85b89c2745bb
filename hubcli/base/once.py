"""What happens once per process: a notice of a stale token, a mirror that is given up, a repository that is unknown."""

from __future__ import annotations

import threading
from collections.abc import Hashable

from hubcli.base import output

_done: set[Hashable] = set()
_lock = threading.Lock()


def first(*key: Hashable) -> bool:
    """Return True for the first call under this key, False for any later one."""
    with _lock:
        if key in _done:
            return False
        _done.add(key)
        return True


def done(*key: Hashable) -> bool:
    """Return whether `first` was called under this key."""
    return key in _done


def warning(text: str, *key: Hashable) -> None:
    """Print a warning unless one was printed under this key (without a key: the same one)."""
    if first(*(key or (text,))):
        output.warning(text)


def forget() -> None:
    """Do everything again: for tests, whose servers get the ports of earlier ones."""
    with _lock:
        _done.clear()
