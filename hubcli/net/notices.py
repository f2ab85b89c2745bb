"""Notices that are printed once per process: a stale token, a repository that has moved."""

from __future__ import annotations

import threading
from collections.abc import Hashable

from hubcli.base import output

_said: set[Hashable] = set()
_lock = threading.Lock()


def once(key: Hashable, text: str) -> None:
    """Warn, unless it was said under this key."""
    with _lock:
        if key in _said:
            return
        _said.add(key)
    output.warning(text)


def forget() -> None:
    """Say everything again: for tests."""
    with _lock:
        _said.clear()
