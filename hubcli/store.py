"""The cache on disk: look a repository up, fetch and publish it, list and remove.

Note [Publishing].  Correctness rests on rename, never on a lock (flock does nothing on some network
file systems).  A tree is built in a unique folder beside its target, synced, renamed to
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
import shutil
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from hubcli import output, paths, reftable, settings
from hubcli.errors import (
    HubconfNotFoundError,
    HubError,
    IntegrityError,
    LockTimeoutError,
    NotFoundError,
    OfflineError,
)
from hubcli.reftable import Kind, Published, Table
from hubcli.spec import RepoSpec

if TYPE_CHECKING:
    from hubcli import git

_SCHEMA = 1
_LFS_POINTER = b"version https://git-lfs.github.com/spec/v1"


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
    if not (_marker(path).is_file() and path.is_dir()):
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
    found = None if force_reload else lookup(spec)
    if found is None or found.commit != pin.commit:
        found = _ensure(spec.at(pin.commit), force_reload, False, progress)
        found = replace(found, spec=spec, ref=pin.ref, kind=pin.kind)
    pin.verify(found)
    return found


def _ensure(
    spec: RepoSpec, force_reload: bool, refresh: bool, progress: output.Progress | None
) -> Checkout:
    started = time.time()
    anew = (force_reload or refresh) and spec.kind == "remote"
    found = None if anew else lookup(spec)
    if found is not None:
        _touch(found)
        return found
    if settings.current().offline:
        raise OfflineError(
            f"{spec} {'cannot be reloaded' if force_reload else 'is not in the cache'} offline",
            hint=f"run `hub pull {spec}` without --offline first",
            spec=str(spec),
        )
    with _naming(spec):
        checkout = _fetch(spec, force_reload, refresh, started, progress)
    if force_reload:
        from hubcli import weights

        weights.mark_stale(str(spec))
    return checkout


def repos() -> list[CachedRepo]:
    """Every cached ref, sorted by spec."""
    found = []
    for file in sorted(paths.refs().rglob("*.json")):
        for url, table in reftable.read_all(file).items():
            for ref, entry in table.entries.items():
                spec = RepoSpec.parse(table.base).at(ref)
                if spec.url != url:  # HUB_GIT_URL or HUB_HOST has changed since
                    spec = RepoSpec.parse(url).at(ref)
                path = table.path(entry)
                with contextlib.suppress(OSError):
                    used = _marker(path).stat().st_mtime
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


def remove(spec: RepoSpec, *, dry_run: bool = False) -> Removal:
    """Take a ref of a repository out of the cache, or all its refs where `spec` names none.

    Look-ups fail first, then links go, then trees that no other ref uses, at last the database.
    """
    if spec.kind == "local":
        raise NotFoundError(f"{spec} is a folder of your own, not in the cache", spec=str(spec))
    table = Table.read(spec)
    refs = sorted(table.entries) if spec.ref is None else [spec.ref]
    missing = not refs or any(ref not in table.entries for ref in refs)
    if missing:
        raise NotFoundError(
            f"{spec} is not in the cache", hint="`hub cache ls` lists what is", spec=str(spec)
        )
    rest = {ref: entry for ref, entry in table.entries.items() if ref not in refs}
    kept = {entry.commit for entry in rest.values()}
    victims: list[Path] = []
    folder = paths.checkouts(table.key)
    if not rest:
        victims = [path for path in (folder, paths.db(table.key)) if path.exists()]
    else:
        gone = {table.entries[ref].commit for ref in refs} - kept
        victims = sorted(
            path for commit in gone for path in folder.glob(f"{commit}.*") if path.exists()
        )
    links = [link for link in (_visible(spec, ref) for ref in refs) if _points_into(link, folder)]
    freed = sum(disk_size(path) for path in victims)
    if not dry_run:
        with exclusive(f"repo-{table.key}", str(spec)):
            reftable.update(spec, lambda table: table.without(refs))
            for link in links:
                link.unlink(missing_ok=True)
            for victim in victims:
                _discard(victim)
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


# Fetching and publishing


def _fetch(
    spec: RepoSpec,
    force_reload: bool,
    refresh: bool,
    started: float,
    progress: output.Progress | None,
) -> Checkout:
    from hubcli import git

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
        found = lookup(spec)
        fresh = found is not None and (found.checked_at or 0.0) >= started
        if found is not None and (fresh or not (force_reload or refresh)):
            return found  # another process has fetched it while this one waited
        table = Table.read(spec)
        published = None if force_reload else _existing(table, resolved.commit)
        if published is None:
            with contextlib.ExitStack() as stack:
                bar = progress or stack.enter_context(_bar(spec))
                published = _obtain(spec, remote, resolved, table, root, force_reload, bar)
            if published.commit != resolved.commit:  # it moved while it was fetched
                _refuse_moved(spec, resolved.kind, resolved.name, published.commit)
        if resolved.kind == "tag":
            from hubcli import firstseen

            firstseen.note("tag", spec.url, resolved.name, published.commit, git.public(spec.url))
        entry = replace(published, kind=resolved.kind, ref=resolved.name, checked_at=time.time())
        ref = spec.ref or resolved.name
        default = resolved.name if spec.ref is None else None
        reftable.update(spec, lambda table: table.having(ref, entry, default))
        path = table.path(entry)
        _show(spec, ref, path)
        return _checkout(spec, entry, path, cached=False)


def _refuse_moved(spec: RepoSpec, kind: str, name: str, commit: str) -> None:
    """Raise IntegrityError if a tag is not where it was seen first, or if a branch now hides it."""
    if kind == "commit" or (kind == "branch" and spec.ref != name):
        return
    import shlex

    from hubcli import firstseen

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
        if entry.commit == commit and _marker(path).is_file() and path.is_dir():
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
    from hubcli import git

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
                _discard(db)
            os.rename(fresh, db)
    return published


def _verify_commit(
    spec: RepoSpec, remote: git.Remote, resolved: git.Resolved, table: Table, partial: Path
) -> str:
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
    """Fetch one ref at depth 1 into `db`, write its tree and publish that with its marker."""
    from hubcli import git, hubconf

    name = git.ref_in_db(resolved)
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
    commit, tree = git.identify(db, name)
    listing = list(git.entries(db, commit))
    _refuse_bad_names(spec, listing)
    if not any(entry.path == "hubconf.py" for entry in listing):
        raise HubconfNotFoundError(
            f"no hubconf.py in {spec} ({resolved.name}, commit {commit[:12]})",
            hint="a repository for hub has a hubconf.py at its top",
        )
    folder = paths.checkouts(table.key)
    folder.mkdir(parents=True, exist_ok=True)
    staging = folder / f".{paths.unique()}.tmp"
    staging.mkdir()
    try:
        git.checkout(db, commit, staging)
        pointers = _seal(spec, staging, listing)
        hubconf.read(staging)  # what cannot be read replaces nothing
        now = time.time()
        size = sum(entry.size for entry in listing)
        for generation in itertools.count(1):
            target = folder / f"{commit}.{generation}"
            if target.exists():
                if force_reload or not _marker(target).is_file():
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
            }
            paths.sync(folder)
            paths.write_atomically(_marker(target), json.dumps(document, indent=1).encode())
            paths.sync(folder)
            break
    finally:
        _delete(staging)
    if pointers:
        output.warning(
            f"{spec}: {len(pointers)} file{'s' * (len(pointers) != 1)} in Git LFS, only the "
            f"pointer{'s' * (len(pointers) != 1)} came: {', '.join(pointers[:3])}"
        )
    return Published(
        resolved.kind, resolved.name, commit, tree, generation, size, now, now, verdict
    )


def _refuse_bad_names(spec: RepoSpec, listing: list[git.Entry]) -> None:
    """Refuse submodules, `.git` components and names that one file system in three cannot hold."""
    import unicodedata

    seen: dict[str, str] = {}
    for entry in listing:
        if entry.mode == "160000":
            raise _refused(spec, f"{entry.path!r} is a submodule", "hub fetches no submodules")
        prefix = ""
        for part in entry.path.split("/"):
            folded = unicodedata.normalize("NFC", part).casefold()
            if folded in (".git", "git~1", "", ".", ".."):
                raise _refused(spec, f"{entry.path!r} has a part {part!r}", "no tree may have it")
            prefix = f"{prefix}/{part}"
            key = unicodedata.normalize("NFC", prefix).casefold()
            if seen.setdefault(key, prefix) != prefix:
                raise _refused(
                    spec,
                    f"{seen[key][1:]!r} and {prefix[1:]!r} differ by case only",
                    "they cannot be told apart on every system",
                )


def _seal(spec: RepoSpec, folder: Path, listing: list[git.Entry]) -> list[str]:
    """Refuse links that leave the tree, make files read-only, sync them; the LFS pointers found."""
    root = os.path.realpath(folder)
    files = []
    for entry in listing:
        path = os.path.join(folder, entry.path)
        if entry.mode != "120000":
            files.append((path, 0o555 if entry.mode == "100755" else 0o444))
            continue
        target = os.readlink(path)
        if os.path.isabs(target) or os.path.commonpath((root, os.path.realpath(path))) != root:
            what = f"{entry.path!r} links to {target!r}, outside the tree"
            raise _refused(spec, what, "running it could reach any file of yours")
    if len(files) > 50:
        from concurrent.futures import ThreadPoolExecutor

        # each waits for the disk: together they wait once
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(_seal_file, files))
    else:
        for file in files:
            _seal_file(file)
    for parent, _, _ in os.walk(folder):
        os.chmod(parent, 0o755)
        paths.sync(Path(parent))
    filtered = any(
        b"filter=lfs" in Path(path).read_bytes()
        for path, _ in files
        if os.path.basename(path) == ".gitattributes"
    )
    return [entry.path for entry in listing if _is_pointer(folder, entry)] if filtered else []


def _seal_file(file: tuple[str, int]) -> None:
    path, mode = file
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.chmod(path, mode)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_pointer(folder: Path, entry: git.Entry) -> bool:
    if not 100 <= entry.size < 1024 or not entry.mode.startswith("100"):
        return False
    with open(folder / entry.path, "rb") as file:
        return file.read(len(_LFS_POINTER)) == _LFS_POINTER


def _refused(spec: RepoSpec, what: str, why: str) -> IntegrityError:
    return IntegrityError(
        f"{spec} is refused: {what}", hint=f"{why}; tell the publisher", spec=str(spec)
    )


# Names and small things


def _marker(tree: Path) -> Path:
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


def _touch(checkout: Checkout) -> None:
    """Note the time of use, where the cache can be written."""
    if checkout.kind != "local":
        with contextlib.suppress(OSError):
            os.utime(_marker(checkout.path))


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
def _scratch(partial: Path) -> Iterator[Path]:
    """A name for a throw-away bare repository; whatever is there at the end goes."""
    partial.mkdir(parents=True, exist_ok=True)
    path = partial / f"{paths.unique()}.git"
    try:
        yield path
    finally:
        _delete(path)


@contextlib.contextmanager
def _naming(spec: RepoSpec) -> Iterator[None]:
    """Name the spec in errors that do not know it."""
    try:
        yield
    except HubError as error:
        error.spec = error.spec or str(spec)
        raise


def _discard(path: Path) -> None:
    """Take `path` out of sight at once, then delete it."""
    trash = paths.partial() / f"{paths.unique()}.trash"
    trash.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        os.rename(path, trash)
        _delete(trash)


def _delete(path: Path) -> None:
    """Delete a file or a folder, read-only ones too; nothing there is fine."""
    if path.is_dir() and not path.is_symlink():
        for parent, _, _ in os.walk(path):
            with contextlib.suppress(OSError):
                os.chmod(parent, stat.S_IRWXU)
        shutil.rmtree(path, ignore_errors=False)
    else:
        path.unlink(missing_ok=True)


def disk_size(path: Path) -> int:
    """The bytes of a file, or of all files below a folder."""
    if not path.is_dir():
        return path.stat().st_size
    return sum(
        os.lstat(os.path.join(parent, name)).st_size
        for parent, _, names in os.walk(path)
        for name in names
    )
