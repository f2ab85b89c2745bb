"""Locks between processes that work on the same cache: they save double work, correctness never rests on them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from hubcli.base import output, paths, settings
from hubcli.errors import LockTimeoutError


@contextlib.contextmanager
def exclusive(name: str, what: str, folder: Path | None = None) -> Iterator[None]:
    """Hold the lock `name` (in `folder`, else in the cache), so that work on `what` is not done twice.

    Says so while it waits; LockTimeoutError after HUB_LOCK_TIMEOUT seconds.  Where the file system
    has no locks the work goes on without: see README.md, invariant 4.
    """
    from filelock import FileLock, Timeout  # for the weight: a cache hit takes no lock

    if folder is None:
        folder = paths.locks(paths.ensure_root())
    folder.mkdir(exist_ok=True)
    file = folder / (re.sub(r"[^A-Za-z0-9_.-]", "_", name)[-200:] + ".lock")
    lock = FileLock(file, mode=0o664)
    limit = settings.current().lock_timeout
    first = min(1.0, limit)
    try:
        lock.acquire(timeout=first, poll_interval=0.02)
    except Timeout:
        output.message(f"waiting for another hub process that is working on {what} ...")
        try:
            lock.acquire(timeout=limit - first, poll_interval=0.05)
        except Timeout:
            raise LockTimeoutError(
                f"another process has worked on {what} for more than {limit:g} s",
                hint=f"wait for it, or raise HUB_LOCK_TIMEOUT; the lock is {file}",
            ) from None
    except NotImplementedError:
        output.detail(f"{folder} has no file locks; going on without")
    try:
        yield
    finally:
        lock.release()
