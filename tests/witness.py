"""Sees, inside a process of the torture, what no observer from outside can count on meeting.

A file that is written where others look is right in the end: half of it is there for a millisecond only.  An audit
hook hears of every file that is opened for writing and of every rename, and says so on stderr.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from pathlib import Path
from typing import Any

_FREE = ("partial", "locks", "db")  # temporaries, locks, and what git writes
_TREE = re.compile(r"[0-9a-f]{40}\.[0-9]+\Z")


def install(hub: Path) -> None:
    """Watch this process and those that it forks; for good."""
    root = os.path.abspath(hub)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = arguments
            writes = set(mode or "") & set("wxa+") or (not mode and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
            if writes and _place(root, path):
                _say(f"{path} is written in place")
            if writes and _of_another(root, path):
                _say(f"{path} is a download of another process")
        elif event == "shutil.copyfile" and _place(root, arguments[1]):
            _say(f"{arguments[1]} is copied in place")
        elif event == "os.rename" and _TREE.search(os.fspath(arguments[1])) and _place(root, arguments[1]):
            wrong = broken(Path(os.fsdecode(arguments[0])))
            if wrong:
                _say(f"{arguments[1]} is shown before it is whole: {wrong}")

    sys.addaudithook(hook)


def _place(root: str, path: Any) -> bool:
    """Whether others look at `path`."""
    if not isinstance(path, str | bytes | os.PathLike):
        return False
    name = os.path.abspath(os.fsdecode(os.fspath(path)))
    return name.startswith(f"{root}{os.sep}") and name[len(root) + 1 :].split(os.sep)[0] not in _FREE


def _of_another(root: str, path: Any) -> bool:
    """Whether `path` is the body of a download whose folder has another process's number in its name."""
    if not isinstance(path, str | os.PathLike):
        return False
    folder, name = os.path.split(os.path.abspath(os.fspath(path)))
    above, own = os.path.split(folder)
    return name == "body" and above == os.path.join(root, "partial") and f"-{os.getpid():x}-" not in own


def _say(what: str) -> None:
    os.write(2, f"CORRUPT for a moment: {what}\n".encode())


def broken(tree: Path) -> str | None:
    """What is wrong with a tree by its own manifest."""
    try:
        for line in (tree / "manifest").read_text().splitlines():
            name, digest = line.split()
            if hashlib.sha256((tree / name).read_bytes()).hexdigest() != digest:
                return name
    except OSError as error:
        return str(error)
    return None
