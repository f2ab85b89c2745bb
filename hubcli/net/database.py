"""The cache's bare git databases as folders: what hub writes there, and that nothing else speaks to git from them."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from hubcli.errors import HubError

_FOREIGN = ("config.worktree", "commondir", "objects/info/alternates", "objects/info/http-alternates")
CONFIG = b"[core]\n\trepositoryformatversion = 0\n\tbare = true\n"


class RepositoryError(HubError):
    """git failed on this machine, perhaps over a damaged or busy database."""

    code = "git"


def create(db: Path) -> None:
    """Make an empty bare repository whose checkouts are byte for byte what was committed.

    Written as gitrepository-layout(5) says: `git init` would heed an inherited GIT_WORK_TREE.
    """
    for folder in ("info", "objects/info", "objects/pack", "refs"):
        (db / folder).mkdir(parents=True)
    (db / "HEAD").write_text("ref: refs/heads/main\n")
    (db / "config").write_bytes(CONFIG)
    (db / "info" / "attributes").write_text("* -text -ident -filter -working-tree-encoding\n")


def disarm(db: Path) -> None:
    """Make sure that git reads from a database what hub has written there, and no configuration of anybody else.

    Its configuration may name programs (core.alternateRefsCommand, a filter) that git would start.
    """
    try:
        found: bytes | None = (db / "config").read_bytes()
    except FileNotFoundError:
        found = None
    except OSError as error:
        raise RepositoryError(f"{db / 'config'} cannot be read: {error.strerror}") from None
    if found == CONFIG and not any((db / name).exists() for name in _FOREIGN):
        return
    if not (db / "objects").is_dir():
        return  # no database at all: git says so
    try:
        for name in _FOREIGN:
            (db / name).unlink(missing_ok=True)
        temporary = db / f"config.{os.getpid()}-{threading.get_ident()}"
        temporary.write_bytes(CONFIG)
        os.replace(temporary, db / "config")
    except OSError as error:
        raise RepositoryError(
            f"{db} has a configuration that is not hub's, which cannot be replaced: {error.strerror}"
        ) from None
