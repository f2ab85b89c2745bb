"""Errors of the operating system, reported with the place that the user knows and what can be done."""

from __future__ import annotations

import errno
import os
import re

from hubcli.base import paths
from hubcli.errors import HubError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
# the names of `paths.temporary_for` and of the engine's own temporary files
_TEMPORARY = re.compile(r"\.?(.+?)\.(?:[0-9a-f]{8}-[0-9a-f]+-[0-9a-f]{12}\.tmp|[A-Za-z0-9_]{8}\.part)\Z")


def described(error: OSError) -> tuple[str, str | None]:
    """Message and hint: the file that was meant, not the temporary one that becomes it."""
    what = error.strerror or str(error)
    if isinstance(error, FileNotFoundError) and error.filename is None and _is_lost():
        return "the working folder is gone", "go to one that exists: cd"
    if not isinstance(error.filename, str | os.PathLike):
        return what, "make room, or write to another place" if error.errno in _FULL else None
    place, cached = _meant(os.fspath(error.filename))
    hint = None
    if error.errno in _FULL:
        hint = "make room there, or write to another place"
        if cached:
            hint = "`hub cache ls --sort size` shows what could go; --hub-dir names another place"
    elif error.errno in _FORBIDDEN and cached:
        hint = "choose a cache that you may write to: --hub-dir DIR or TORCH_HUB_DIR"
    elif error.errno in _FORBIDDEN:
        hint = f"see who may read and write {os.path.dirname(place) or '.'}, or choose another place"
    return f"{what}: {place}", hint


def _is_lost() -> bool:
    """Return whether the folder in which hub was started was removed."""
    try:
        os.getcwd()
    except OSError:
        return True
    return False


def _meant(name: str) -> tuple[str, bool]:
    """Return the path without a temporary name, and whether it is in the cache."""
    folder, last = os.path.split(name)
    found = _TEMPORARY.match(last)
    try:
        root = str(paths.hub_dir())
    except HubError:  # the settings themselves are what is wrong
        root = ""
    cached = bool(root) and (name == root or name.startswith(root.rstrip(os.sep) + os.sep))
    if cached and folder == os.path.join(root, "partial"):
        return root, True
    return os.path.join(folder, found.group(1)) if found else name, cached
