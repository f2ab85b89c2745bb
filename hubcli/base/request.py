"""The options of one call: a value that is passed from the command or the Python function down to the files.

Settings are what holds for the whole process (the environment, config.toml, the global options); a request is what one
call wants.  A function that wants something else for the calls below it passes `replace(request, ...)` on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from hubcli.base import settings

if TYPE_CHECKING:
    from hubcli.cache.lockfile import Lock

Trust = Literal["once", "commit", "repo", "check", "ask", "warn"]


@dataclass(frozen=True, eq=False)
class Request:
    """The options of one call.

    reload: fetch anew what is cached.  refresh: ask the remote, and fetch what is missing.  lfs: fetch what Git LFS
    pointers stand for.  lock: the lock file that holds.  size_limit: the bytes that a file or a repository may have.
    accept_changed: a tag that moved, weights that changed.  allow_missing: declared dependencies that nothing imports.
    allow: the classes that checkpoints may name.  trust: the consent of whoever makes the call to running the code that
    it names, and no other code: given for this once, for the commit or for the repository; "check" asks unless there is
    a record, "ask" asks in any case, "warn" goes on with a warning; None is the command line's rule (`gates.require`).
    """

    reload: bool = False
    refresh: bool = False
    lfs: bool = False
    lock: Lock | None = None
    size_limit: int | None = None
    accept_changed: bool = False
    allow_missing: bool = False
    allow: tuple[str, ...] = ()
    trust: Trust | None = None

    @classmethod
    def current(cls, **changes: Any) -> Request:
        """Return the request of the command line, in the process of a job that of its parent; with `changes`.

        It has no consent: code that runs makes requests of its own by this function.
        """
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
    """Let `request` hold in this process, which was started for one job; its consent was for that job alone."""
    global _established
    _established = replace(request, trust=None)
