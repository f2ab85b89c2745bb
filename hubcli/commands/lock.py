"""`hub lock`: pin what specs mean now, and the weights that they are known to use, in hub.lock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hubcli import lockfile, output, settings
from hubcli.cache import store
from hubcli.commands import _options
from hubcli.commands.pull import fetch_weights
from hubcli.errors import LockMismatchError, UsageError
from hubcli.lockfile import Lock
from hubcli.reading import choice, hubconf
from hubcli.spec import RepoSpec


@click.command(cls=_options.Executing)
@click.argument("specs", nargs=-1, metavar="SPEC...")
@click.option(
    "-o",
    "--output",
    "target",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The lock file (default: ./hub.lock).",
)
@click.option(
    "--weights",
    "entrypoints",
    metavar="ENTRYPOINT",
    multiple=True,
    help="Run this entrypoint of the SPEC and pin what it loads.  Repeatable.",
)
@_options.entrypoint_arguments
@_options.executing
def lock(
    specs: tuple[str, ...],
    target: Path | None,
    entrypoints: tuple[str, ...],
    keywords: tuple[str, ...],
    positional: str | None,
    pretrained: bool | None,
    locked: bool,
    frozen: bool,
    lock_file: Path | None,
    **options: Any,
) -> None:
    """Pin each SPEC at what it means now: commit, tree, digest, and the weights it is known to use.

    Other entries of the lock file stay.  Without SPEC every entry is pinned anew.  Nothing is
    executed unless --weights asks for it.  With --locked nothing is written: status 9 if the file
    would change.
    """
    execution = _options.execution(**options, locked=False, frozen=False, lock_file=None)
    given = _options.arguments(keywords, positional, pretrained)
    if frozen:
        settings.override(offline=True)
    if target is not None and lock_file is not None:
        raise UsageError("--output and --lock-file name the same thing", hint="give one of them")
    path = target or _options.lock_path(lock_file)
    old = lockfile.read(path) or Lock(path)
    names = specs or (*(one.spec for one in old.repos), *old.wanted)
    if not names:
        raise UsageError(f"there is nothing to lock in {path}", hint="name one: hub lock SPEC")
    if entrypoints and len(names) != 1:
        raise UsageError("--weights needs exactly one SPEC", hint="lock the specs one by one")
    if not entrypoints and (given.args or given.kwargs):
        raise UsageError("arguments are for an entrypoint", hint="add --weights ENTRYPOINT")
    checkouts = [_ensure(RepoSpec.parse(name), execution.force_reload) for name in names]
    called = {}
    for entrypoint in entrypoints:
        (checkout,) = checkouts
        conf = hubconf.read(checkout.path)
        choice.entrypoint(conf, entrypoint, str(checkout.spec), "load", renewal=checkout.renewal())
        used = fetch_weights(checkout, conf, entrypoint, given, execution)
        called[f"{checkout.spec}#{entrypoint}"] = used
    new = lockfile.lock_repos(old, checkouts, called, settings.current().allow)
    changes = lockfile.changes(old, new)
    if (locked or frozen) and changes:
        more = f" (and {len(changes) - 1} more)" if len(changes) > 1 else ""
        raise LockMismatchError(f"{path} would change: {changes[0]}{more}", hint="run hub lock without --locked")
    if new != old or not path.exists():
        lockfile.write(new)
    report(new, changes)


def _ensure(spec: RepoSpec, force_reload: bool) -> store.Checkout:
    if spec.kind == "local":
        raise UsageError(f"{spec} is a folder: it has no commit to lock", spec=str(spec))
    ask = not (spec.is_commit or settings.current().offline)
    return store.ensure(spec, force_reload=force_reload, refresh=ask)


def report(lock: Lock, changes: tuple[str, ...]) -> None:
    """Print what the lock file says, and on stderr what has changed in it."""
    for line in changes:
        output.message(line)
    if not changes:
        output.message(f"{lock.path} is up to date")
    rows = [(one.spec, one.commit[:12], "") for one in lock.repos]
    rows += [(one.file, one.sha256[:12], output.size(one.size)) for one in lock.weights]
    output.Output.current().result(lock.document(), lambda: output.table(rows))
