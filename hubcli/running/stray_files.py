"""Stray files: what repository code writes into its checkout is moved out when the process ends, and reported.

A checkout holds what its commit holds, or nothing runs from it again.  Code that stores a file beside itself finds it
for as long as the process lasts; then it is in `written/` of the cache, which `hub cache prune` empties.  Folders of
one's own are left alone; in a sandbox a checkout cannot be written to.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from hubcli.base import output, paths
from hubcli.cache.checkouts import Checkout

_SHOWN = 3
_watched: dict[tuple[Path, int], frozenset[str]] = {}  # tree and process: what lay there before the code ran


def watch(checkout: Checkout) -> None:
    """Note what is in the tree, before its code runs for the first time in this process."""
    key = checkout.path, os.getpid()
    if checkout.kind == "local" or key in _watched:
        return
    if not _watched:
        atexit.register(collect)
    _watched[key] = frozenset(_below(checkout.path))


def collect() -> None:
    """Move what this process's code has written out of the trees, and name it."""
    for key, before in list(_watched.items()):
        tree, process = key
        if process != os.getpid():
            continue
        del _watched[key]
        target = paths.written(f"{tree.parent.name}-{tree.name[:12]}")
        moved = []
        for name in _below(tree, before):
            with contextlib.suppress(OSError):
                if os.path.basename(name) == "__pycache__":
                    shutil.rmtree(tree / name)
                    continue
                place = target / name
                place.parent.mkdir(parents=True, exist_ok=True)
                if place.is_dir() and not place.is_symlink():
                    shutil.rmtree(place)
                os.replace(tree / name, place)
                moved.append(name)
        if moved:
            named = ", ".join(map(repr, moved[:_SHOWN])) + (f" and {len(moved) - _SHOWN} more" * (len(moved) > _SHOWN))
            output.warning(f"the code wrote {named} beside itself; a checkout stays as its commit: moved to {target}")


def _below(folder: Path, before: frozenset[str] | None = None) -> Iterator[str]:
    """Yield the names below a folder; with `before`, those that are new, a new folder as a whole."""
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            place = os.path.relpath(os.path.join(parent, name), folder)
            if before is None or place not in before:
                yield place
        if before is not None:
            folders[:] = [one for one in folders if os.path.relpath(os.path.join(parent, one), folder) in before]
