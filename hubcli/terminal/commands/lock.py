"""`hub lock`: pin what specs mean now, and the weights that they are known to use, in hub.lock."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from hubcli.base import settings
from hubcli.base.request import Request
from hubcli.base.spec import RepoSpec
from hubcli.cache import lockfile
from hubcli.cache.cache import Cache
from hubcli.cache.checkouts import Checkout
from hubcli.cache.lockfile import Lock
from hubcli.errors import LockMismatchError, UsageError
from hubcli.reading import choice, hubconf
from hubcli.terminal import reports, repository, shared_options
from hubcli.workflows import locking


@click.command(cls=shared_options.Executing)
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
@shared_options.entrypoint_arguments
@shared_options.executing
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
    execution = shared_options.execution(**options, locked=False, frozen=False, lock_file=None)
    given = shared_options.arguments(keywords, positional, pretrained)
    if frozen:
        settings.override(offline=True)
    if target is not None and lock_file is not None:
        raise UsageError("--output and --lock-file name the same thing", hint="give one of them")
    path = target or shared_options.lock_path(lock_file)
    old = lockfile.read(path) or Lock(path)
    names = specs or (*(one.spec for one in old.repos), *old.wanted)
    if not names:
        raise UsageError(f"there is nothing to lock in {path}", hint="name one: hub lock SPEC")
    if entrypoints and len(names) != 1:
        raise UsageError("--weights needs exactly one SPEC", hint="lock the specs one by one")
    if not entrypoints and (given.args or given.kwargs):
        raise UsageError("arguments are for an entrypoint", hint="add --weights ENTRYPOINT")
    checkouts = [_ensure(RepoSpec.parse(name), execution.request) for name in names]
    called = {}
    for entrypoint in entrypoints:
        (checkout,) = checkouts
        conf = hubconf.read(checkout.path)
        choice.entrypoint(conf, entrypoint, str(checkout.spec), "load", renewal=checkout.renewal())
        used = repository.fetch_weights(checkout, conf, entrypoint, given, execution)
        called[f"{checkout.spec}#{entrypoint}"] = used
    new = locking.lock_repos(old, checkouts, called, execution.request.allow)
    changes = lockfile.changes(old, new)
    if (locked or frozen) and changes:
        more = f" (and {len(changes) - 1} more)" if len(changes) > 1 else ""
        raise LockMismatchError(f"{path} would change: {changes[0]}{more}", hint="run hub lock without --locked")
    if new != old or not path.exists():
        lockfile.write(new)
    reports.lock(new, changes)


def _ensure(spec: RepoSpec, request: Request) -> Checkout:
    if spec.kind == "local":
        raise UsageError(f"{spec} is a folder: it has no commit to lock", spec=str(spec))
    ask = not (spec.is_commit or settings.current().offline)
    return Cache.current().checkout(spec, replace(request, refresh=ask))
