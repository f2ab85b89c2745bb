"""A repository's tree fetched, checked and put where look-ups find it.

README.md beside this file says on what its correctness rests.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hubcli.base import output, paths
from hubcli.base.request import Request
from hubcli.base.spec import RepoSpec
from hubcli.cache import trees
from hubcli.cache.checkouts import marker
from hubcli.cache.ref_table import Published, Table
from hubcli.errors import HubconfNotFoundError, NotFoundError

if TYPE_CHECKING:
    from hubcli.net.git import remote as git

_SCHEMA = 1
LOCKED = "hub.lock"  # the `source` of a commit that is known from a lock file alone


def existing(table: Table, commit: str) -> Published | None:
    """Return the tree of `commit` where another ref of the repository has published it already."""
    for entry in table.entries.values():
        path = table.path(entry)
        if entry.commit == commit and marker(path).is_file() and path.is_dir():
            return entry
    return None


def obtain(
    spec: RepoSpec,
    remote: git.Remote,
    resolved: git.Resolved,
    table: Table,
    root: Path,
    request: Request,
    bar: output.Progress,
) -> Published:
    """Fetch into the repository's database, or into a new one where that is missing or damaged.

    From the mirror if it has the commit.  A `resolved` from LOCKED has not been asked for at the origin, which is done
    now if the mirror does not do.
    """
    from hubcli.net.git import remote as git

    partial = paths.partial(root)
    with contextlib.ExitStack() as stack:
        locked = resolved.source == LOCKED  # not queried yet: whoever locked it did
        verdict = "lock" if locked else _verify_commit(spec, remote, resolved, table, partial, request.size_limit)
        mirrored = _mirrored(spec, resolved.commit, partial, request, stack)
        if mirrored is not None:
            resolved, remote = replace(resolved, source=git.MIRRORED), mirrored
        elif locked:
            resolved = remote.resolve(resolved.commit)
            verdict = _verify_commit(spec, remote, resolved, table, partial, request.size_limit)
        return _obtain(spec, remote, resolved, verdict, table, root, request, bar)


def _mirrored(
    spec: RepoSpec, commit: str, partial: Path, request: Request, stack: contextlib.ExitStack
) -> git.Remote | None:
    """Return the commit in a repository of its own, made of what the mirror has; None where the origin is to be
    asked."""
    from hubcli.net.git import remote as git
    from hubcli.net.storage import mirror

    address = mirror.commit(commit)
    if address is None:
        return None
    from hubcli.net.http import fetch as http

    partial.mkdir(parents=True, exist_ok=True)
    name = f"{spec.repo}-{commit[:12]}.pack"
    fetched = http.from_mirror(address, partial / name, f"{spec.url}/{name}", request=request)
    if fetched is None:
        return None
    try:
        return git.open_pack(fetched.path, commit, stack.enter_context(_scratch(partial)))
    except git.RepositoryError as error:
        mirror.give_up(f"{http.public(address)}: {error.message}")
        return None
    finally:
        fetched.release()


def _obtain(
    spec: RepoSpec,
    remote: git.Remote,
    resolved: git.Resolved,
    verdict: str,
    table: Table,
    root: Path,
    request: Request,
    bar: output.Progress,
) -> Published:
    from hubcli.net.git import remote as git

    partial = paths.partial(root)
    db = paths.db(table.key, root)
    if db.is_dir():
        try:
            return _publish(spec, table, remote, resolved, verdict, db, request, bar)
        except git.RepositoryError as error:  # damaged, or busy where locks do nothing
            output.detail(f"{error.message}; fetching {spec} into a new database")
    with _scratch(partial) as fresh:
        git.create(fresh, resolved.commit)
        published = _publish(spec, table, remote, resolved, verdict, fresh, request, bar)
        db.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):  # somebody else has put theirs there
            if db.exists():
                paths.discard(db, root)
            os.rename(fresh, db)
    return published


def _verify_commit(
    spec: RepoSpec, remote: git.Remote, resolved: git.Resolved, table: Table, partial: Path, limit: int | None
) -> str:
    """Return how it is known that the repository has the commit itself, not a fork of it alone."""
    if resolved.kind != "commit":
        return "ref"
    known = table.entries.get(resolved.commit)
    if resolved.tip:
        return "tip"
    if known is not None and known.verdict in ("tip", "ancestor"):
        return known.verdict
    with _scratch(partial) as scratch:
        if remote.reaches(resolved.commit, scratch, limit):
            return "ancestor"
    raise NotFoundError(
        f"no branch or tag of {spec.repository} reaches commit {resolved.commit}",
        hint="if it is a fork's commit, name the fork",
        spec=str(spec),
    )


def _publish(
    spec: RepoSpec,
    table: Table,
    remote: git.Remote,
    resolved: git.Resolved,
    verdict: str,
    db: Path,
    request: Request,
    bar: output.Progress,
) -> Published:
    """Fetch one ref at depth 1 into `db`, and publish its tree."""
    from hubcli.net.git import remote as git

    # of an annotated tag the mirror has the commit alone: its name must not stand for a tag without a signature
    mirrored = resolved.source == git.MIRRORED
    name = git.ref_in_db(*(("commit", resolved.commit) if mirrored else (resolved.kind, resolved.name)))
    shown = bar if bar.shown else None
    try:
        remote.fetch(db, f"+{resolved.source}:{name}", "--depth=1", progress=shown, limit=request.size_limit)
    except git.RepositoryError:
        if resolved.kind != "commit" or resolved.tip or mirrored:
            raise
        # a server that gives out nothing but tips: all branches and tags, whole
        everything = "+refs/heads/*:refs/hub/all/heads/* +refs/tags/*:refs/hub/all/tags/*"
        remote.fetch(db, everything, progress=shown, limit=request.size_limit)
        name = resolved.commit
    return write(spec, table, resolved, verdict, db, name, request)


def write(
    spec: RepoSpec,
    table: Table,
    resolved: git.Resolved,
    verdict: str,
    db: Path,
    name: str,
    request: Request,
) -> Published:
    """Write the tree that `name` has in `db`, and publish it with its marker."""
    from hubcli.net.git import remote as git
    from hubcli.reading import hubconf

    commit, tree = git.identify(db, name)
    listing = list(git.entries(db, commit))
    if not any(entry.path == "hubconf.py" and entry.mode != trees.SUBMODULE for entry in listing):
        raise HubconfNotFoundError(
            f"no hubconf.py in {spec} ({resolved.name}, commit {commit[:12]})",
            hint="a repository for hub has a hubconf.py at its top",
        )
    modules = {entry.path: entry.id for entry in listing if entry.mode == trees.SUBMODULE}
    size = sum(entry.size for entry in listing)
    trees.refuse_too_large(spec, size, request.size_limit)
    folder = paths.checkouts(table.key, table.root)
    folder.mkdir(parents=True, exist_ok=True)
    with _staging(folder, table.root) as staging:
        trees.refuse_bad_names(spec, listing, staging)
        git.checkout(db, commit, staging)
        pointers = trees.seal(spec, staging, listing)
        filled = {}
        if pointers and request.lfs:
            filled = trees.fill(spec, staging, spec.url, pointers, request)
            pointers = []
        hubconf.read(staging)  # what cannot be read replaces nothing
        now = time.time()
        for generation in itertools.count(1):
            target = folder / f"{commit}.{generation}"
            there = target.exists(), marker(target).exists()
            if any(there):
                if request.reload or not all(there):
                    continue
                break  # another process has published the same
            try:
                os.rename(staging, target)
            except OSError:
                if target.exists():
                    continue
                raise
            document = {
                "schema": _SCHEMA,
                "spec": str(spec),
                "url": spec.url,
                "commit": commit,
                "tree": tree,
                "object": git.commit_object(db, commit).decode("latin-1"),
                "files": len(listing) - len(modules),
                "size": size,
                "fetched_at": now,
                "pointers": pointers,
                "lfs": filled,
                "submodules": modules,
            }
            paths.sync(folder)
            paths.write_atomically(marker(target), json.dumps(document, indent=1).encode())
            paths.sync(folder)
            break
    if modules:
        named = f"{', '.join(sorted(modules)[:3])}{', ...' * (len(modules) > 3)}"
        what = f"the submodule {named} is" if len(modules) == 1 else f"{len(modules)} submodules ({named}) are"
        output.warning(f"{spec}: {what} left out, as in what torch.hub downloads: an empty folder")
    if pointers:
        output.warning(
            f"{spec}: {len(pointers)} file{'s' * (len(pointers) != 1)} in Git LFS, only the "
            f"pointer{'s' * (len(pointers) != 1)} came: {', '.join(pointers[:3])}; hub pull --lfs fetches what they "
            "stand for"
        )
    return Published(resolved.kind, resolved.name, commit, tree, generation, size, now, now, verdict)


@contextlib.contextmanager
def _staging(folder: Path, root: Path | None) -> Iterator[Path]:
    """An empty folder to build a tree in that is renamed into `folder`; it is gone at the end."""
    partial = paths.partial(root)
    partial.mkdir(parents=True, exist_ok=True)
    if partial.stat().st_dev == folder.stat().st_dev:
        staging = partial / f"{paths.unique()}.tree"
    else:
        staging = folder / f".{paths.unique()}.tmp"
    staging.mkdir()
    try:
        yield staging
    finally:
        paths.delete(staging)


@contextlib.contextmanager
def _scratch(partial: Path) -> Iterator[Path]:
    """A name for a throw-away bare repository; whatever is there at the end goes."""
    partial.mkdir(parents=True, exist_ok=True)
    path = partial / f"{paths.unique()}.git"
    try:
        yield path
    finally:
        paths.delete(path)
