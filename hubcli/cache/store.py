"""The cache on disk: look a repository up, fetch and publish it, list and remove.

Note [Publishing].  Correctness rests on rename, never on a lock (flock does nothing on some network
file systems).  A tree is built in a unique folder below partial/, synced, renamed to
`<commit>.<n>`, and only then its marker `<commit>.<n>.json` is written; a tree without marker is
nobody's, and the next process takes the next n.  The ref table, replaced last and atomically, is
the only thing that look-ups read.  Old generations stay: running processes import from them lazily.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from hubcli import output, paths, settings
from hubcli.cache import leases, reftable, trees
from hubcli.cache.reftable import Kind, Published, Table
from hubcli.errors import (
    HubconfNotFoundError,
    HubError,
    IntegrityError,
    LockTimeoutError,
    NotFoundError,
    OfflineError,
    RepositoryNotFoundError,
)
from hubcli.spec import RepoSpec

if TYPE_CHECKING:
    from hubcli.net import git

_SCHEMA = 1


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


@dataclass(frozen=True)
class Removal:
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
    found = replace(found, spec=spec, ref=pin.ref, kind=pin.kind)
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
    anew = (force_reload or refresh) and spec.kind == "remote"
    found = None if anew else lookup(spec)
    if found is not None:
        if found.kind != "local":
            _touch(found.path)
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
        from hubcli.cache import weights

        weights.mark_stale(str(spec))
    return checkout


def repos() -> list[CachedRepo]:
    """Every cached ref, sorted by spec."""
    found = []
    for file in sorted(paths.refs().rglob("*.json")):
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
    links = [link for link in (_visible(spec, ref) for ref in refs) if _points_into(link, folder)]
    if not dry_run:
        reftable.update(spec, lambda table: table.without(refs))
        for link in links:
            link.unlink(missing_ok=True)
    held = {path for path in leases.held() if path.parent == folder}
    if rest or held:
        found = folder.iterdir() if not rest else (p for c in gone for p in folder.glob(f"{c}.*"))
        kept = held | {marker(path) for path in held}
        victims = sorted(path for path in found if path not in kept)
    else:
        victims = [folder]
    if not rest:
        victims.append(paths.db(table.key))
    staying = [path for path in held if not rest or path.name.partition(".")[0] in gone]
    if staying:
        output.message(f"{spec} is in use by a running process; `hub cache prune` takes it later")
    freed = sum(paths.disk_size(path) for path in victims)
    if not dry_run:
        for victim in victims:
            paths.discard(victim)
    names = tuple(str(spec.at(ref)) for ref in refs)
    return Removal(names, tuple(links + victims), freed)


@contextlib.contextmanager
def exclusive(name: str, what: str) -> Iterator[None]:
    """Hold the lock `name`, so that work on `what` is not done twice.

    Says so while it waits; LockTimeoutError after HUB_LOCK_TIMEOUT seconds.  Where the file system
    has no locks the work goes on without: see Note [Publishing].
    """
    from filelock import FileLock, Timeout

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
            made = _write(spec, table, resolved, entry.verdict, db, entry.commit, True)
        if made is None or trees.identity(table.path(made)) != entry.tree:
            if settings.current().offline:
                raise OfflineError(f"{spec} cannot be fetched offline", hint="run without --offline")
            paths.discard(db)
            remote = git.Remote.of(spec.url)
            with _bar(spec) as bar:
                made = _obtain(spec, remote, resolved, table, root, True, bar)
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
            _show(spec, ref, table.path(whole))
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
    from hubcli.cache import maintenance
    from hubcli.net import git

    before = Table.read(spec).find(spec)

    remote = git.Remote.of(spec.url)
    output.detail(f"asking {git.public(remote.url)} for {spec.ref or 'its default branch'}")
    resolved = remote.resolve(spec.ref)
    if resolved.ambiguous:
        output.warning(
            f"{resolved.name!r} is both a branch and a tag of {spec.repository}; the branch is "
            f"taken (write {spec.at(f'refs/tags/{resolved.name}')} for the tag)"
        )
    _refuse_moved(spec, resolved.kind, resolved.name, resolved.commit)
    root = paths.ensure_root()
    with exclusive(f"repo-{Table.read(spec).key}", str(spec)):
        table = Table.read(spec)
        found = lookup(spec)
        # clocks jump: what another process has fetched while this one waited is another entry
        if found is not None and (not (force_reload or refresh) or table.find(spec) != before):
            return found
        maintenance.sweep(table.key, root)
        published = None if force_reload else _existing(table, resolved.commit)
        if published is None:
            with contextlib.ExitStack() as stack:
                bar = progress or stack.enter_context(_bar(spec))
                published = _obtain(spec, remote, resolved, table, root, force_reload, bar)
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
        _show(spec, ref, path)
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


def _existing(table: Table, commit: str) -> Published | None:
    """The tree of `commit` where another ref of the repository has published it already."""
    for entry in table.entries.values():
        path = table.path(entry)
        if entry.commit == commit and marker(path).is_file() and path.is_dir():
            return entry
    return None


def _obtain(
    spec: RepoSpec,
    remote: git.Remote,
    resolved: git.Resolved,
    table: Table,
    root: Path,
    force_reload: bool,
    bar: output.Progress,
) -> Published:
    """Fetch into the repository's database, or into a new one where that is missing or damaged."""
    from hubcli.net import git

    partial = paths.partial(root)
    verdict = _verify_commit(spec, remote, resolved, table, partial)
    db = paths.db(table.key, root)
    if db.is_dir():
        try:
            return _publish(spec, table, remote, resolved, verdict, db, force_reload, bar)
        except git.RepositoryError as error:  # damaged, or busy where locks do nothing
            output.detail(f"{error.message}; fetching {spec} into a new database")
    with _scratch(partial) as fresh:
        git.create(fresh)
        published = _publish(spec, table, remote, resolved, verdict, fresh, force_reload, bar)
        db.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):  # somebody else has put theirs there
            if db.exists():
                paths.discard(db)
            os.rename(fresh, db)
    return published


def _verify_commit(spec: RepoSpec, remote: git.Remote, resolved: git.Resolved, table: Table, partial: Path) -> str:
    """How it is known that the repository has the commit itself, not a fork of it alone."""
    if resolved.kind != "commit":
        return "ref"
    known = table.entries.get(resolved.commit)
    if resolved.tip:
        return "tip"
    if known is not None and known.verdict in ("tip", "ancestor"):
        return known.verdict
    with _scratch(partial) as scratch:
        if remote.reaches(resolved.commit, scratch):
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
    force_reload: bool,
    bar: output.Progress,
) -> Published:
    """Fetch one ref at depth 1 into `db`, and publish its tree."""
    from hubcli.net import git

    name = git.ref_in_db(resolved.kind, resolved.name)
    shown = bar if bar.shown else None
    try:
        remote.fetch(db, f"+{resolved.source}:{name}", "--depth=1", progress=shown)
    except git.RepositoryError:
        if resolved.kind != "commit" or resolved.tip:
            raise
        # a server that gives out nothing but tips: all branches and tags, whole
        everything = "+refs/heads/*:refs/hub/all/heads/* +refs/tags/*:refs/hub/all/tags/*"
        remote.fetch(db, everything, progress=shown)
        name = resolved.commit
    return _write(spec, table, resolved, verdict, db, name, force_reload)


def _write(
    spec: RepoSpec,
    table: Table,
    resolved: git.Resolved,
    verdict: str,
    db: Path,
    name: str,
    force_reload: bool,
) -> Published:
    """Write the tree that `name` has in `db`, and publish it with its marker."""
    from hubcli.net import git
    from hubcli.reading import hubconf

    commit, tree = git.identify(db, name)
    listing = list(git.entries(db, commit))
    trees.refuse_bad_names(spec, listing)
    if not any(entry.path == "hubconf.py" for entry in listing):
        raise HubconfNotFoundError(
            f"no hubconf.py in {spec} ({resolved.name}, commit {commit[:12]})",
            hint="a repository for hub has a hubconf.py at its top",
        )
    size = sum(entry.size for entry in listing)
    trees.refuse_too_large(spec, size)
    folder = paths.checkouts(table.key)
    folder.mkdir(parents=True, exist_ok=True)
    with _staging(folder) as staging:
        git.checkout(db, commit, staging)
        pointers = trees.seal(spec, staging, listing)
        filled = {}
        if pointers and settings.current().lfs:
            filled = trees.fill(spec, staging, spec.url, pointers)
            pointers = []
        hubconf.read(staging)  # what cannot be read replaces nothing
        now = time.time()
        for generation in itertools.count(1):
            target = folder / f"{commit}.{generation}"
            there = target.exists(), marker(target).exists()
            if any(there):
                if force_reload or not all(there):
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
                "files": len(listing),
                "size": size,
                "fetched_at": now,
                "pointers": pointers,
                "lfs": filled,
            }
            paths.sync(folder)
            paths.write_atomically(marker(target), json.dumps(document, indent=1).encode())
            paths.sync(folder)
            break
    if pointers:
        output.warning(
            f"{spec}: {len(pointers)} file{'s' * (len(pointers) != 1)} in Git LFS, only the "
            f"pointer{'s' * (len(pointers) != 1)} came: {', '.join(pointers[:3])}; "
            "hub pull --lfs fetches what they stand for"
        )
    return Published(resolved.kind, resolved.name, commit, tree, generation, size, now, now, verdict)


# Names and small things


def marker(tree: Path) -> Path:
    """The file whose being there says that `tree` is complete."""
    return tree.with_name(f"{tree.name}.json")


def _visible(spec: RepoSpec, ref: str) -> Path:
    return paths.hub_dir() / spec.at(ref).name


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
        raise NotFoundError(f"{path} {what}", spec=str(spec))
    return Checkout(spec, spec.url, None, "local", None, None, 0, path, True, None, None)


def _touch(tree: Path) -> None:
    """Note the time of use, where the cache can be written."""
    with contextlib.suppress(OSError):
        os.utime(marker(tree))


def _show(spec: RepoSpec, ref: str, tree: Path) -> None:
    """Point torch's visible name to the tree; a real folder or file of that name stays."""
    link = _visible(spec, ref)
    if link.exists() and not link.is_symlink():
        output.detail(f"{link} is not a link of hub's; it is left as it is")
        return
    temporary = link.with_name(f".{link.name[:100]}.{paths.unique()}.tmp")
    try:
        os.symlink(os.path.relpath(tree, link.parent), temporary, target_is_directory=True)
        os.replace(temporary, link)
    except OSError as error:
        output.detail(f"{link} cannot be made: {error}")
        with contextlib.suppress(OSError):
            temporary.unlink()


def _points_into(link: Path, folder: Path) -> bool:
    if not link.is_symlink():
        return False
    return Path(os.path.normpath(link.parent / os.readlink(link))).parent == folder


@contextlib.contextmanager
def _staging(folder: Path) -> Iterator[Path]:
    """An empty folder to build a tree in that is renamed into `folder`; it is gone at the end."""
    partial = paths.partial()
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
