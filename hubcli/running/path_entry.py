"""The checkout as `sys.path[0]` while its code runs, as under torch.hub: published code builds on that text.

Nothing is found through the entry.  Which module a plain name means is decided by where the importing code stands (Note
[Isolation] in `isolation.py`), so that neither the standard library, nor an installed package, nor another thread
imports a file of the checkout that happens to bear a name that it looks for.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from importlib.machinery import FileFinder, ModuleSpec, SourceFileLoader
from types import ModuleType
from typing import Any

_entered: list[str] = []  # the checkouts whose code runs, the last one first: all are in front of sys.path
_lock = threading.Lock()


class _Unsearched(FileFinder):
    """The finder for such an entry: it has no module.  `pkgutil.iter_modules` lists the files as ever."""

    def find_spec(self, fullname: str, target: ModuleType | None = None) -> ModuleSpec | None:
        return None


def enter(root: str) -> list[str]:
    """Put a checkout in front of `sys.path`; the list as it is to be afterwards, for `leave`."""
    with _lock:
        path = [entry for entry in sys.path if entry not in _entered]
        if root not in path:  # else the user's own code imports from there
            details: Any = (SourceFileLoader, [".py"])
            sys.path_importer_cache[root] = _Unsearched(root, details)
        _entered.insert(0, root)
        sys.path.insert(0, root)
        return path


def leave(root: str, path: list[str]) -> None:
    """Put `sys.path` back; the checkouts whose code still runs, in other threads or around this call, stay."""
    with _lock:
        _entered.remove(root)
        wanted = [*_entered, *path]
        if sys.path != wanted:
            sys.path[:] = wanted
        if root not in _entered and isinstance(sys.path_importer_cache.get(root), _Unsearched):
            del sys.path_importer_cache[root]


def entered() -> tuple[str, ...]:
    """Return the checkouts that are in front of `sys.path` now."""
    return tuple(_entered)


def drop(roots: Iterable[str]) -> None:
    """Take checkouts off the `sys.path` that a child process has got from its parent."""
    for root in roots:
        if root in sys.path:
            sys.path.remove(root)
