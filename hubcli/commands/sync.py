"""`hub sync`: fetch exactly what hub.lock says, code and weights; nothing is executed."""

from __future__ import annotations

from pathlib import Path

import click

from hubcli import lockfile, settings
from hubcli.commands import _options
from hubcli.commands.lock import report
from hubcli.errors import NotFoundError


@click.command()
@_options.locking
def sync(locked: bool, frozen: bool, lock_file: Path | None) -> None:
    """Fetch exactly what the lock file says, and check every digest; nothing is executed.

    An entry with nothing but its spec (or url) is completed, and the file written; --locked refuses
    that with status 9.  --offline and --frozen use the cache alone.
    """
    path = _options.lock_path(lock_file)
    if frozen:
        settings.override(offline=True)
    old = lockfile.require(path) if locked or frozen else lockfile.read(path)
    if old is None:
        raise NotFoundError(f"there is no {path}", hint="make it with hub lock SPEC...")
    new = lockfile.complete(old)
    lockfile.fetch(new)
    if new != old:
        lockfile.write(new)
    report(new, lockfile.changes(old, new))
