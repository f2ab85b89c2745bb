"""Fetching repositories into the cache: what the remote has, checked, published and shown."""

from __future__ import annotations

import contextlib
import json
import shlex
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from hubcli.base import output, paths, settings
from hubcli.base.request import Request
from hubcli.base.spec import RepoSpec
from hubcli.cache import (
    checkouts,
    first_seen,
    leases,
    links,
    locks,
    prune,
    publishing,
    ref_table,
    suggestions,
    torch_hub_cache,
    trees,
    weights,
)
from hubcli.cache.checkouts import Checkout, marker
from hubcli.cache.ref_table import Published, Table
from hubcli.errors import HubError, IntegrityError, OfflineError, RepositoryNotFoundError
from hubcli.net.git import remote as git
from hubcli.net.storage import mirror


def fetch(root: Path, spec: RepoSpec, request: Request, progress: output.Progress | None) -> Checkout:
    """Fetch `spec` into the cache `root` and return its published tree; errors name the spec.

    With `request.reload` the weights that it is known to use are marked as stale.
    """
    if settings.current().offline:
        absent = OfflineError(
            f"{spec} {'cannot be reloaded' if request.reload else 'is not in the cache'} offline",
            hint=f"run `hub pull {spec}` without --offline first",
            spec=str(spec),
        )
        absent.advise(None if request.reload else suggestions.like(root, spec))
        raise absent
    with _naming(root, spec):
        checkout = _fetch(root, spec, request, progress)
    if request.reload:
        weights.mark_stale(str(spec))
    return checkout


def _fetch(root: Path, spec: RepoSpec, request: Request, progress: output.Progress | None) -> Checkout:
    before = Table.read(spec, root).find(spec)
    remote = git.Remote.of(spec.url)
    if spec.is_commit and request.lock is not None and mirror.commit(str(spec.ref)):
        resolved = git.Resolved("commit", str(spec.ref), publishing.LOCKED, str(spec.ref), tip=False)
    else:
        output.detail(f"asking {git.public(remote.url)} for {spec.ref or 'its default branch'}")
        resolved = remote.resolve(spec.ref)
    if resolved.ambiguous:
        output.warning(
            f"{resolved.name!r} is both a branch and a tag of {spec.repository}; the branch is taken (write "
            f"{spec.at(f'refs/tags/{resolved.name}')} for the tag)"
        )
    _refuse_moved(spec, resolved.kind, resolved.name, resolved.commit, request)
    torch_hub_cache.say_at_first_use()
    paths.ensure_root(root)
    with locks.exclusive(f"repo-{Table.read(spec, root).key}", str(spec), paths.locks(root)):
        table = Table.read(spec, root)
        found = checkouts.lookup(root, spec)
        # clocks jump: what another process has fetched while this one waited is another entry
        if found is not None and (not (request.reload or request.refresh) or table.find(spec) != before):
            return found
        prune.sweep(table.key, root)
        published = None if request.reload else publishing.existing(table, resolved.commit)
        if published is None:
            with contextlib.ExitStack() as stack:
                bar = progress or stack.enter_context(_bar(spec))
                published = publishing.obtain(spec, remote, resolved, table, root, request, bar)
            if published.commit != resolved.commit:  # it moved while it was fetched
                _refuse_moved(spec, resolved.kind, resolved.name, published.commit, request)
        if resolved.kind == "tag":
            first_seen.note("tag", spec.url, resolved.name, published.commit, git.public(spec.url))
        entry = replace(published, kind=resolved.kind, ref=resolved.name, checked_at=time.time())
        ref = spec.ref or resolved.name
        default = resolved.name if spec.ref is None else None
        ref_table.update(spec, lambda table: table.having(ref, entry, default), root)
        path = table.path(entry)
        links.show(spec, ref, path, root)
        checkouts.touch(path)  # a generation that was given up may be in use again
        if before is not None and table.path(before) != path:
            checkouts.touch(table.path(before))  # the time since which it is an old generation
        return checkouts.of_entry(spec, entry, path, cached=False)


def _refuse_moved(spec: RepoSpec, kind: str, name: str, commit: str, request: Request) -> None:
    """Raise IntegrityError if a tag is not where it was seen first, or if a branch now hides it."""
    if kind == "commit" or (kind == "branch" and spec.ref != name):
        return
    seen = first_seen.find("tag", spec.url, name)
    if seen is None or seen.value == commit:
        return
    was = f"tag {name!r} of {spec.repository} was at commit {seen.value} (seen {seen.when})"
    if kind == "branch":
        raise IntegrityError(
            f"{was}; now a branch of that name is at {commit}",
            hint=f"write {shlex.quote(str(spec.at(f'refs/tags/{name}')))} for the tag, "
            f"{shlex.quote(str(spec.at(f'refs/heads/{name}')))} for the branch",
            spec=str(spec),
        )
    if request.accept_changed:
        output.message(f"{was}; accepted: it is at {commit} now")
        return
    raise IntegrityError(
        f"{was}; it has moved to {commit}",
        hint="a tag should stay where it is: ask the publisher why it moved; to accept it: "
        f"hub pull {shlex.quote(str(spec))} --accept-changed",
        spec=str(spec),
    )


def _bar(spec: RepoSpec) -> output.Progress:
    return output.progress(f"fetching {spec}", unit="objects")


def republish(root: Path, spec: RepoSpec, entry: Published) -> None:
    """Replace a damaged generation by a whole one, for every ref that stands at it.

    From the database if that is whole, else fetched: the same commit, wherever its branch is now.
    """
    paths.ensure_root(root)
    request = Request.current(reload=True)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_naming(root, spec))
        stack.enter_context(locks.exclusive(f"repo-{Table.read(spec, root).key}", str(spec), paths.locks(root)))
        table = Table.read(spec, root)
        damaged = table.path(entry)
        with contextlib.suppress(OSError, ValueError, AttributeError):
            filled = bool(json.loads(marker(damaged).read_bytes()).get("lfs"))
            request = replace(request, lfs=filled or request.lfs)
        resolved = git.Resolved("commit", entry.commit, entry.commit, entry.commit, tip=False)
        db = paths.db(table.key, root)
        made: Published | None = None
        with contextlib.suppress(git.RepositoryError):
            made = publishing.write(spec, table, resolved, entry.verdict, db, entry.commit, request)
        if made is None or trees.identity(table.path(made)) != entry.tree:
            if settings.current().offline:
                raise OfflineError(f"{spec} cannot be fetched offline", hint="run without --offline")
            paths.discard(db, root)
            remote = git.Remote.of(spec.url)
            with _bar(spec) as bar:
                made = publishing.obtain(spec, remote, resolved, table, root, request, bar)
        whole = made

        def change(table: Table) -> Table:
            for ref, one in table.entries.items():
                if table.path(one) == damaged:
                    new = replace(one, generation=whole.generation, fetched_at=whole.fetched_at)
                    table = table.having(ref, new, None)
            return table

        refs = [ref for ref, one in table.entries.items() if table.path(one) == damaged]
        ref_table.update(spec, change, root)
        for ref in refs:
            links.show(spec, ref, table.path(whole), root)
        if damaged not in leases.held(root):
            paths.discard(damaged, root)
            marker(damaged).unlink(missing_ok=True)


@contextlib.contextmanager
def _naming(root: Path, spec: RepoSpec) -> Iterator[None]:
    """Name the spec in errors that do not know it."""
    try:
        yield
    except HubError as error:
        error.spec = error.spec or str(spec)
        if isinstance(error, RepositoryNotFoundError):
            error.advise(suggestions.like(root, spec))
        raise
