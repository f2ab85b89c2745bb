"""The options of one call: a value that is passed from the command or the Python function down to the files.

Settings are what holds for the whole process (the environment, config.toml, the global options); a request is what one
call wants.  A function that wants something else for the calls below it passes `replace(request, ...)` on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hubcli.base import settings

if TYPE_CHECKING:
    from hubcli.cache.lockfile import Lock


@dataclass(frozen=True, eq=False)
class Request:
    """The options of one call.

    reload: fetch anew what is cached.  refresh: ask the remote, and fetch what is missing.  lfs: fetch what Git LFS
    pointers stand for.  lock: the lock file that holds.  size_limit: the bytes that a file or a repository may have.
    accept_changed: a tag that moved, weights that changed.  allow_missing: declared dependencies that nothing imports.
    allow: the classes that checkpoints may name.
    """

    reload: bool = False
    refresh: bool = False
    lfs: bool = False
    lock: Lock | None = None
    size_limit: int | None = None
    accept_changed: bool = False
    allow_missing: bool = False
    allow: tuple[str, ...] = ()

    @classmethod
    def current(cls, **changes: Any) -> Request:
        """Return what the command line asks, in the process of a job what its parent asks; with `changes`."""
        now = _established
        if now is None:
            given = settings.current()
            now = cls(
                lfs=given.lfs,
                lock=given.lock,
                size_limit=given.size_limit,
                accept_changed=given.accept_changed,
                allow_missing=given.allow_missing,
                allow=given.allow,
            )
        return replace(now, **changes) if changes else now


_established: Request | None = None


def establish(request: Request) -> None:
    """Let `request` hold in this process, which was started for one job; repository code cannot pass it on."""
    global _established
    _established = request
