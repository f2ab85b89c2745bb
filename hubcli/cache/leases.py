"""Leases on trees that processes use, so that `remove` and `prune` leave those for later.

Repositories import lazily: a tree must stay for as long as a process runs that has loaded from it.
A lease is a link `partial/<unique>.use` that names the tree's place in the cache: made at once, also on a
full disk, before the look-up that counts, and deleted when the process ends.  `remove` takes the tree out
of the tables and its marker away first and reads the leases then, so that one of the two sees the other.
Where the cache cannot be written nobody can remove, either.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
from pathlib import Path

from hubcli.base import paths


def hold(tree: Path, root: Path | None = None) -> None:
    """Use `tree` from now until this process ends."""
    _lease(tree, os.getpid(), root or paths.hub_dir())


def held(root: Path | None = None) -> set[Path]:
    """Return the trees that other processes use, as far as they are not known to be dead."""
    root = root or paths.hub_dir()
    found = set()
    own = f"-{os.getpid():x}-"
    for file in paths.partial(root).glob("*.use"):
        mine = own in file.name and paths.of_this_boot(file.name)
        if not mine and not paths.abandoned(file.name):
            with contextlib.suppress(OSError, ValueError):
                found.add(root / _read(file))
    return found


def _read(file: Path) -> str:
    try:
        return os.readlink(file)
    except OSError:  # a plain file: an older hub's, or of a system without links
        return file.read_text(encoding="utf-8")


@functools.cache
def _lease(tree: Path, process: int, root: Path) -> None:
    """Once for every tree and process: a child that was forked has a lease of its own."""
    if not tree.is_relative_to(root):
        return
    file = paths.partial(root) / f"{paths.unique()}.use"
    with contextlib.suppress(OSError):
        file.parent.mkdir(exist_ok=True)
        name = str(tree.relative_to(root))
        try:
            os.symlink(name, file)
        except (OSError, NotImplementedError):
            file.write_text(name, encoding="utf-8")
        atexit.register(_end, file, process)


def _end(file: Path, process: int) -> None:
    if os.getpid() == process:
        with contextlib.suppress(OSError):
            file.unlink(missing_ok=True)
