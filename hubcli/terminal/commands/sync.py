"""`hub sync`: fetch exactly what hub.lock says, code and weights; nothing is executed."""

from __future__ import annotations

from pathlib import Path

import click

from hubcli.base import settings
from hubcli.cache import lockfile
from hubcli.errors import NotFoundError
from hubcli.terminal import reports, shared_options
from hubcli.workflows import locking


@click.command()
@shared_options.locking
def sync(locked: bool, frozen: bool, lock_file: Path | None) -> None:
    """Fetch exactly what the lock file says, and check every digest; nothing is executed.

    An entry with nothing but its spec (or url) is completed, and the file written; --locked refuses
    that with status 9.  --offline and --frozen use the cache alone.
    """
    path = shared_options.lock_path(lock_file)
    if frozen:
        settings.override(offline=True)
    old = lockfile.require(path) if locked or frozen else lockfile.read(path)
    if old is None:
        raise NotFoundError(f"there is no {path}", hint="make it with hub lock SPEC...")
    new = locking.complete(old)
    locking.fetch(new)
    if new != old:
        lockfile.write(new)
    reports.lock(new, lockfile.changes(old, new))
