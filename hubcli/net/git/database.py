"""The cache's bare git databases as folders: what hub writes there, and that nothing else speaks to git from them."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from hubcli.base.output import size
from hubcli.errors import HubError, IntegrityError

_FOREIGN = ("config.worktree", "commondir", "objects/info/alternates", "objects/info/http-alternates")
CONFIG = b"[core]\n\trepositoryformatversion = 0\n\tbare = true\n"
CONFIG_SHA256 = b"[core]\n\trepositoryformatversion = 1\n\tbare = true\n[extensions]\n\tobjectFormat = sha256\n"


class RepositoryError(HubError):
    """git failed on this machine, perhaps over a damaged or busy database."""

    code = "git"


def create(db: Path, commit: str = "") -> None:
    """Make an empty bare repository whose checkouts are byte for byte what was committed.

    Its objects have SHA-256 names where `commit`, which shall be fetched into it, has one of 64 digits.
    Written as gitrepository-layout(5) says: `git init` would heed an inherited GIT_WORK_TREE.
    """
    for folder in ("info", "objects/info", "objects/pack", "refs"):
        (db / folder).mkdir(parents=True)
    (db / "HEAD").write_text("ref: refs/heads/main\n")
    (db / "config").write_bytes(CONFIG_SHA256 if len(commit) == 64 else CONFIG)
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
    if found in (CONFIG, CONFIG_SHA256) and not any((db / name).exists() for name in _FOREIGN):
        return
    if not (db / "objects").is_dir():
        return  # no database at all: git says so
    try:
        for name in _FOREIGN:
            (db / name).unlink(missing_ok=True)
        temporary = db / f"config.{os.getpid()}-{threading.get_ident()}"
        sha256 = found is not None and re.search(rb"(?i)\bobjectformat\s*=\s*sha256\b", found)
        temporary.write_bytes(CONFIG_SHA256 if sha256 else CONFIG)
        os.replace(temporary, db / "config")
    except OSError as error:
        raise RepositoryError(
            f"{db} has a configuration that is not hub's, which cannot be replaced: {error.strerror}"
        ) from None


@contextlib.contextmanager
def growth_limited(db: Path, limit: int | None) -> Iterator[Callable[[], bool] | None]:
    """Asks whether `db` has grown by no more than --size-limit; IntegrityError at the end if it has.

    git itself has no limit on what it receives.
    """
    if limit is None:
        yield None
        return
    before = _size(db)
    try:
        yield lambda: _size(db) - before <= limit
    finally:
        if _size(db) - before > limit:
            sweep(db)
            raise IntegrityError(
                f"the repository is larger than the limit of {size(limit)}",
                hint="raise --size-limit if you want it",
            ) from None


def sweep(db: Path) -> None:
    """Delete what a git that was killed has left in `db`; whoever is fetching now begins anew."""
    for pattern in ("objects/pack/tmp_*", "objects/*/tmp_obj_*", "**/*.lock"):
        for path in db.glob(pattern):
            with contextlib.suppress(OSError):
                path.chmod(0o600)
                path.unlink()


def _size(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(parent, name)).st_size
    return total
