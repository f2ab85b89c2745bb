"""The cache on disk: look a repository up, have it fetched, list and remove."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, cast

from hubcli import output, paths, settings
from hubcli.cache import leases, publishing, reftable, trees, visible
from hubcli.cache.publishing import marker as marker  # as the rest of hub knows it
from hubcli.cache.reftable import Kind, Published, Table
from hubcli.errors import (
    HubError,
    IntegrityError,
    LockTimeoutError,
    NotFoundError,
    OfflineError,
    RepositoryNotFoundError,
)
from hubcli.spec import RepoSpec


@dataclass(frozen=True)
class Checkout:
    """A published tree: what `spec` means on this machine.

    `ref` is the branch or tag that was taken, `commit` and `tree` git's ids (None for a folder),
    `fetched_at` and `checked_at` seconds since the epoch, `cached` whether it was there before.
    """

    spec: RepoSpec
    url: str
    ref: str | None
    kind: Kind
    commit: str | None
    tree: str | None
    generation: int
    path: Path
    cached: bool
    fetched_at: float | None
    checked_at: float | None

    def standing(self) -> str:
        """Return which commit the ref has here; for a branch, which moves on, also since when."""
        at = f"{self.kind} {self.ref} at {(self.commit or '')[:12]}"
        return at if self._age() is None else f"{at}, checked {self._age()} ago; --force-reload fetches anew"

    def renewal(self) -> str | None:
        """Return a hint for what this copy of a branch lacks and a newer one may have; None for other refs, and for
        what has been fetched just now."""
        if not self.cached or self._age() is None:
            return None
        command = f"hub pull {shlex.quote(str(self.spec))} --force-reload"
        return f"this copy of branch {self.ref} was checked {self._age()} ago, `{command}` fetches it anew"

    def _age(self) -> str | None:
        if self.kind != "branch" or self.checked_at is None:
            return None
        return output.age(time.time() - self.checked_at)


@dataclass(frozen=True)
class CachedRepo:
    """One line of the cache listing: a ref of a repository with its tree.  `size` in bytes."""

    name: str
    spec: str
    url: str
    ref: str
    kind: Kind
    commit: str
    path: Path
    size: int
    fetched_at: float
    last_used: float


class Removal(NamedTuple):
    """What `remove` took away, or would: the specs, the top-level paths, the bytes."""

    specs: tuple[str, ...]
    paths: tuple[Path, ...]
    freed: int


def lookup(spec: RepoSpec) -> Checkout | None:
    """The published tree of `spec`, or None.  No network, no write, no git."""
    if spec.kind == "local":
        return _local(spec)
    table = Table.read(spec)
    entry = table.find(spec)
    if entry is None:
        return None
    path = table.path(entry)
    if not (marker(path).is_file() and path.is_dir()):
        return None
    return _checkout(spec, entry, path, cached=True)


def ensure(
    spec: RepoSpec,
    *,
    force_reload: bool = False,
    refresh: bool = False,
    progress: output.Progress | None = None,
) -> Checkout:
    """The published tree of `spec`, fetched if it is not there or if `force_reload` asks.

    `refresh` asks the remote and fetches what is missing.  Under a lock file it is the commit that
    stands there, whatever the ref means now.  A failed reload leaves the old tree in use.  Raises
    OfflineError, NotFoundError, NetworkError, IntegrityError (content that hub refuses, a tag that
    moved), LockMismatchError or LockTimeoutError.
    """
    lock = settings.current().lock
    if lock is None or spec.kind == "local":
        return _ensure(spec, force_reload, refresh, progress)
    pin = lock.repo(spec)
    found = _ensure(spec.at(pin.commit), force_reload, False, progress)
    found = replace(found, spec=spec, ref=pin.ref, kind=pin.kind, checked_at=None)  # its age does not matter
    pin.verify(found)
    return found


def _ensure(spec: RepoSpec, force_reload: bool, refresh: bool, progress: output.Progress | None) -> Checkout:
    for last in (False, False, True):
        try:
            checkout = _found_or_fetched(spec, force_reload, refresh, progress)
        except FileNotFoundError as error:
            if last or isinstance(error, HubError):
                raise
            continue  # somebody has removed the folder that it was to be put in
        if checkout.kind == "local":
            break
        leases.hold(checkout.path)
        again = lookup(spec)
        if again is not None and again.path == checkout.path:
            break
        force_reload = refresh = False  # it was removed or replaced before it was held
    return checkout


def _found_or_fetched(spec: RepoSpec, force_reload: bool, refresh: bool, progress: output.Progress | None) -> Checkout:
    if spec.kind == "remote":
        paths.check_owner(paths.hub_dir())
    anew = (force_reload or refresh) and spec.kind == "remote"
    found = None if anew else lookup(spec)
    if found is not None:
        if found.kind != "local":
            _touch(found.path)
        elif force_reload:
            _mark_stale(spec)
        return found
    if settings.current().offline:
        from hubcli.cache import nearby

        absent = OfflineError(
            f"{spec} {'cannot be reloaded' if force_reload else 'is not in the cache'} offline",
            hint=f"run `hub pull {spec}` without --offline first",
            spec=str(spec),
        )
        absent.advise(None if force_reload else nearby.like(spec))
        raise absent
    with _naming(spec):
        checkout = _fetch(spec, force_reload, refresh, progress)
    if force_reload:
        _mark_stale(spec)
    return checkout


def _mark_stale(spec: RepoSpec) -> None:
    """Have the weights that `spec` is known to use fetched anew at their next use."""
    from hubcli.cache import weights

    weights.mark_stale(str(spec))


def repos() -> list[CachedRepo]:
    """Every cached ref, sorted by spec."""
    found = []
    for file in paths.json_files(paths.refs()):
        for url, table in reftable.read_all(file).items():
            for ref, entry in table.entries.items():
                spec = spec_of(url, table).at(ref)
                path = table.path(entry)
                with contextlib.suppress(OSError):
                    used = marker(path).stat().st_mtime
                    found.append(
                        CachedRepo(
                            spec.name,
                            str(spec),
                            url,
                            ref,
                            entry.kind,
                            entry.commit,
                            path,
                            entry.size,
                            entry.fetched_at,
                            used,
                        )
                    )
    return sorted(found, key=lambda repo: repo.spec)


def spec_of(url: str, table: Table) -> RepoSpec:
    """The repository of a table that is kept under `url`."""
    spec = RepoSpec.parse(table.base)
    if spec.url != url:  # HUB_GIT_URL or HUB_HOST has changed since
        spec = RepoSpec.parse(url)
    return spec


def remove(spec: RepoSpec, *, dry_run: bool = False) -> Removal:
    """Take a ref of a repository out of the cache, or all its refs where `spec` names none.

    Look-ups fail first, then links go, then trees that no other ref uses, at last the database.
    Trees that running processes use are left for `prune`.
    """
    if spec.kind == "local":
        raise NotFoundError(f"{spec} is a folder of your own, not in the cache", spec=str(spec))
    if dry_run:
        return _remove(spec, dry_run)
    with exclusive(f"repo-{Table.read(spec).key}", str(spec)):
        return _remove(spec, dry_run)


def _remove(spec: RepoSpec, dry_run: bool) -> Removal:
    table = Table.read(spec)
    refs = sorted(table.entries) if spec.ref is None else [spec.ref]
    missing = not refs or any(ref not in table.entries for ref in refs)
    if missing:
        raise NotFoundError(f"{spec} is not in the cache", hint="`hub cache ls` lists what is", spec=str(spec))
    rest = {ref: entry for ref, entry in table.entries.items() if ref not in refs}
    gone = {table.entries[ref].commit for ref in refs} - {one.commit for one in rest.values()}
    folder = paths.checkouts(table.key)
    links = [link for link in (visible.name_of(spec, ref) for ref in refs) if visible.points_into(link, folder)]
    if not dry_run:
        reftable.update(spec, lambda table: table.without(refs))
        for link in links:
            link.unlink(missing_ok=True)
    held = {path for path in leases.held() if path.parent == folder}
    found = (
        (folder.iterdir() if folder.is_dir() else ()) if not rest else (p for c in gone for p in folder.glob(f"{c}.*"))
    )
    kept = held | {marker(path) for path in held}
    victims = sorted(path for path in found if path not in kept)
    if not rest:
        victims.append(paths.db(table.key))
    staying = [path for path in held if not rest or path.name.partition(".")[0] in gone]
    freed = sum(paths.disk_size(path) for path in victims)
    if not dry_run:
        for victim in victims:
            if victim.parent == folder and not victim.name.endswith(".json"):
                staying += [victim] * (not discard_tree(victim))
            elif victim.parent != folder:
                paths.discard(victim)
        for victim in victims:  # markers without a tree
            if victim.name.endswith(".json") and not victim.with_suffix("").is_dir():
                victim.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            folder.rmdir()
    if staying:
        output.message(f"{spec} is in use by a running process; `hub cache prune` takes it later")
    names = tuple(str(spec.at(ref)) for ref in refs)
    return Removal(names, tuple(links + victims), freed)


def discard_tree(tree: Path) -> bool:
    """Take a published tree away, unless a process holds it by now; whether it has gone.

    Without locks somebody may have found it since: who uses a tree holds it first and looks for its marker then, so the
    marker goes first here and the leases are read then.
    """
    aside = paths.partial() / f"{paths.unique()}.marker"
    try:
        aside.parent.mkdir(parents=True, exist_ok=True)
        os.rename(marker(tree), aside)
    except FileNotFoundError:
        pass  # it was never complete
    if tree in leases.held():
        with contextlib.suppress(OSError):
            os.rename(aside, marker(tree))
        return False
    paths.discard(tree)
    aside.unlink(missing_ok=True)
    return True


@contextlib.contextmanager
def exclusive(name: str, what: str, folder: Path | None = None) -> Iterator[None]:
    """Hold the lock `name` (in `folder`, else in the cache), so that work on `what` is not done twice.

    Says so while it waits; LockTimeoutError after HUB_LOCK_TIMEOUT seconds.  Where the file system
    has no locks the work goes on without: see Note [Publishing] in publishing.py.
    """
    from filelock import FileLock, Timeout

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


def lacks_lfs(checkout: Checkout) -> bool:
    """Whether pointers lie in the tree in the place of what they stand for."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return bool(json.loads(marker(checkout.path).read_bytes()).get("pointers"))
    return False


def republish(spec: RepoSpec, entry: Published) -> None:
    """Put a whole generation in the place of a damaged one, for every ref that stands at it.

    From the database if that is whole, else fetched: the same commit, wherever its branch is now.
    """
    from hubcli.net import git

    root = paths.ensure_root()
    with contextlib.ExitStack() as stack:
        stack.enter_context(_naming(spec))
        stack.enter_context(exclusive(f"repo-{Table.read(spec).key}", str(spec)))
        table = Table.read(spec)
        damaged = table.path(entry)
        with contextlib.suppress(OSError, ValueError, AttributeError):
            filled = json.loads(marker(damaged).read_bytes()).get("lfs")
            stack.enter_context(settings.overriding(lfs=bool(filled) or None))
        resolved = git.Resolved("commit", entry.commit, entry.commit, entry.commit, tip=False)
        db = paths.db(table.key, root)
        made: Published | None = None
        with contextlib.suppress(git.RepositoryError):
            made = publishing.write(spec, table, resolved, entry.verdict, db, entry.commit, True)
        if made is None or trees.identity(table.path(made)) != entry.tree:
            if settings.current().offline:
                raise OfflineError(f"{spec} cannot be fetched offline", hint="run without --offline")
            paths.discard(db)
            remote = git.Remote.of(spec.url)
            with _bar(spec) as bar:
                made = publishing.obtain(spec, remote, resolved, table, root, True, bar)
        whole = made

        def change(table: Table) -> Table:
            for ref, one in table.entries.items():
                if table.path(one) == damaged:
                    new = replace(one, generation=whole.generation, fetched_at=whole.fetched_at)
                    table = table.having(ref, new, None)
            return table

        refs = [ref for ref, one in table.entries.items() if table.path(one) == damaged]
        reftable.update(spec, change)
        for ref in refs:
            visible.show(spec, ref, table.path(whole))
        if damaged not in leases.held():
            paths.discard(damaged)
            marker(damaged).unlink(missing_ok=True)


# Fetching and publishing


def _fetch(
    spec: RepoSpec,
    force_reload: bool,
    refresh: bool,
    progress: output.Progress | None,
) -> Checkout:
    from hubcli.cache import older, prune
    from hubcli.net import git, mirror

    before = Table.read(spec).find(spec)

    remote = git.Remote.of(spec.url)
    if spec.is_commit and settings.current().lock is not None and mirror.commit(str(spec.ref)):
        resolved = git.Resolved("commit", str(spec.ref), publishing.LOCKED, str(spec.ref), tip=False)
    else:
        output.detail(f"asking {git.public(remote.url)} for {spec.ref or 'its default branch'}")
        resolved = remote.resolve(spec.ref)
    if resolved.ambiguous:
        output.warning(
            f"{resolved.name!r} is both a branch and a tag of {spec.repository}; the branch is taken (write "
            f"{spec.at(f'refs/tags/{resolved.name}')} for the tag)"
        )
    _refuse_moved(spec, resolved.kind, resolved.name, resolved.commit)
    older.say_at_first_use()
    root = paths.ensure_root()
    with exclusive(f"repo-{Table.read(spec).key}", str(spec)):
        table = Table.read(spec)
        found = lookup(spec)
        # clocks jump: what another process has fetched while this one waited is another entry
        if found is not None and (not (force_reload or refresh) or table.find(spec) != before):
            return found
        prune.sweep(table.key, root)
        published = None if force_reload else publishing.existing(table, resolved.commit)
        if published is None:
            with contextlib.ExitStack() as stack:
                bar = progress or stack.enter_context(_bar(spec))
                published = publishing.obtain(spec, remote, resolved, table, root, force_reload, bar)
            if published.commit != resolved.commit:  # it moved while it was fetched
                _refuse_moved(spec, resolved.kind, resolved.name, published.commit)
        if resolved.kind == "tag":
            from hubcli.cache import firstseen

            firstseen.note("tag", spec.url, resolved.name, published.commit, git.public(spec.url))
        entry = replace(published, kind=resolved.kind, ref=resolved.name, checked_at=time.time())
        ref = spec.ref or resolved.name
        default = resolved.name if spec.ref is None else None
        reftable.update(spec, lambda table: table.having(ref, entry, default))
        path = table.path(entry)
        visible.show(spec, ref, path)
        _touch(path)  # a generation that was given up may be in use again
        if before is not None and table.path(before) != path:
            _touch(table.path(before))  # the time since which it is an old generation
        return _checkout(spec, entry, path, cached=False)


def _refuse_moved(spec: RepoSpec, kind: str, name: str, commit: str) -> None:
    """Raise IntegrityError if a tag is not where it was seen first, or if a branch now hides it."""
    if kind == "commit" or (kind == "branch" and spec.ref != name):
        return
    import shlex

    from hubcli.cache import firstseen

    seen = firstseen.find("tag", spec.url, name)
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
    if settings.current().accept_changed:
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


def remember(spec: RepoSpec, kind: Kind, ref: str, commit: str) -> None:
    """Let `spec` mean `commit`, which is there, unless the cache knows better already: what a lock file says of it."""
    name = spec.ref or ref

    def change(table: Table) -> Table:
        entry = table.entries.get(commit)
        if entry is None or name in table.entries or kind == "commit":
            return table
        return table.having(name, replace(entry, kind=kind, ref=ref), None if spec.ref else ref)

    if Table.read(spec).find(spec) is None:
        reftable.update(spec, change)
        if (found := lookup(spec)) is not None:
            visible.show(spec, name, found.path)


# Names and small things


def _checkout(spec: RepoSpec, entry: Published, path: Path, *, cached: bool) -> Checkout:
    return Checkout(
        spec,
        spec.url,
        entry.ref,
        entry.kind,
        entry.commit,
        entry.tree,
        entry.generation,
        path,
        cached,
        entry.fetched_at,
        entry.checked_at,
    )


def _local(spec: RepoSpec) -> Checkout:
    path = cast(Path, spec.path)
    if not path.is_dir():
        what = "is not a folder" if path.exists() else "does not exist"
        hint = f"its folder is written {shlex.quote(os.path.dirname(spec.text))}" if path.name == "hubconf.py" else None
        raise NotFoundError(f"{path} {what}", hint=hint if path.exists() else None, spec=str(spec))
    return Checkout(spec, spec.url, None, "local", None, None, 0, path, True, None, None)


def _touch(tree: Path) -> None:
    """Note the time of use, where the cache can be written."""
    with contextlib.suppress(OSError):
        os.utime(marker(tree))


@contextlib.contextmanager
def _naming(spec: RepoSpec) -> Iterator[None]:
    """Name the spec in errors that do not know it."""
    try:
        yield
    except HubError as error:
        error.spec = error.spec or str(spec)
        if isinstance(error, RepositoryNotFoundError):
            from hubcli.cache import nearby

            error.advise(nearby.like(spec))
        raise
