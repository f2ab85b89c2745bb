"""Pruning the cache: leftovers of dead processes, and what nothing refers to.

Nothing here is needed for correctness, and all of it may run beside other processes: what goes is
renamed out of sight first, and who needed it fetches it again.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hubcli.base import output, paths
from hubcli.base.spec import RepoSpec
from hubcli.cache import checkouts, leases, locks, records, ref_table, removing
from hubcli.cache.ref_table import Table
from hubcli.errors import NotFoundError
from hubcli.net.git import database

GRACE = 86400.0
_ABANDONED = 60.0  # seconds after which a publication that has not gone on will not go on
_DOWNLOAD = re.compile(r"[0-9a-f]{20}\.")
GENERATION = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?\.[0-9]+\Z")


@dataclass(frozen=True)
class Pruned:
    """The outcome of `prune`, or of its rehearsal: specs, file names or paths below the cache; bytes."""

    removed: tuple[str, ...]
    freed: int


# Leftovers


def sweep(key: str, root: Path) -> None:
    """Clear away what dead processes have left of the repository `key`, and in partial/."""
    for path in [*_dead_temporaries(root), *_unfinished(paths.checkouts(key, root))]:
        with contextlib.suppress(OSError):
            paths.discard(path, root)


def _dead_temporaries(root: Path) -> Iterator[Path]:
    """Yield what is in partial/ and of no use to anybody: not the downloads that can be gone on with."""
    for path in children(paths.partial(root)):
        download = _DOWNLOAD.match(path.name) and (path / "body").is_file()
        if paths.abandoned(path.name) and not download:
            yield path


def _unfinished(folder: Path) -> Iterator[Path]:
    """Trees that have no marker and markers that have no tree, unless they are quite new."""
    for path in children(folder):
        tree = path.with_name(path.name.removesuffix(".json"))
        if not GENERATION.match(tree.name):
            if paths.abandoned(path.name):
                yield path
        elif not whole(tree):
            with contextlib.suppress(OSError):
                if abs(time.time() - path.lstat().st_ctime) > _ABANDONED:
                    yield path


def whole(tree: Path) -> bool:
    return checkouts.marker(tree).is_file() and tree.is_dir()


# Pruning


def prune(root: Path, *, grace: float = GRACE, max_size: int | None = None, dry_run: bool = False) -> Pruned:
    """Drop what nothing refers to, then the least recently used until `max_size` bytes are left.

    Nothing refers to: old generations and blobs that were last used more than `grace` seconds ago
    (running processes import lazily), databases of repositories without refs, partial downloads as
    old, links that lead nowhere, what dead processes have left, what code wrote beside itself.
    """
    if not root.is_dir():
        return Pruned((), 0)
    pruning = _Pruning(root, grace, dry_run)
    for key in _repositories(root):
        with (
            contextlib.nullcontext()
            if dry_run
            else locks.exclusive(f"repo-{key}", key, paths.locks(paths.ensure_root(root)))
        ):
            pruning.repository(key)
    pruning.temporaries()
    pruning.written()
    pruning.records()
    pruning.blobs()
    pruning.links()
    if max_size is not None:
        pruning.least_recently_used(max_size)
    return Pruned(tuple(pruning.removed), pruning.freed)


class _Pruning:
    def __init__(self, root: Path, grace: float, dry_run: bool) -> None:
        self.root, self.grace, self.dry_run = root, grace, dry_run
        self.now = _now(root)
        self.removed: list[str] = []
        self.freed = 0

    def repository(self, key: str) -> None:
        """Drop old generations, unfinished trees, and the database where no ref is left."""
        folder, db = paths.checkouts(key, self.root), paths.db(key, self.root)
        # what was read before the lock was held may be in use again: tables first, leases then
        tables = [table for table in _tables(self.root) if table.key == key]
        current = {table.path(entry) for table in tables for entry in table.entries.values()}
        current |= leases.held(self.root)
        for path in _unfinished(folder):
            self.drop(path)
        for tree in list(children(folder)):
            old = GENERATION.match(tree.name) and tree not in current and tree.is_dir()
            if old and self.idle(checkouts.marker(tree)):
                self.drop(tree)
                self.drop(checkouts.marker(tree))
        if db.is_dir():
            if not tables and not any(children(folder)) and self.idle(db, _ABANDONED):
                self.drop(db)
            elif not self.dry_run:
                database.sweep(db)
        if not self.dry_run:
            for path in (folder, db.parent):
                self.remove_empty(path)

    def temporaries(self) -> None:
        """Drop what is in partial/: at once if its process is dead, else when it is old."""
        dead = set(_dead_temporaries(self.root))
        for path in children(paths.partial(self.root)):
            body = path / "body"
            if path in dead or self.idle(body if body.is_file() else path):
                self.drop(path)

    def written(self) -> None:
        """Drop what code had written into checkouts."""
        for path in children(paths.written("")):
            if self.idle(path):
                self.drop(path)

    def records(self) -> None:
        """Drop records of weights, and refs, whose content has gone."""
        for file, record in records.every():
            if not record.content().is_file() and self.idle(file, _ABANDONED):
                self.drop(file)
        for file in paths.json_files(paths.refs(self.root)):
            for url, table in ref_table.read_all(file, self.root).items():
                gone = [ref for ref, one in table.entries.items() if not whole(table.path(one))]
                if gone and self.idle(file, _ABANDONED):
                    spec = checkouts.spec_of(url, table)
                    self.removed += [str(spec.at(ref)) for ref in gone]
                    if not self.dry_run:
                        ref_table.update(spec, partial(Table.without, refs=gone), self.root)

    def blobs(self) -> None:
        """Drop contents that no record names."""
        known = {record.content() for _, record in records.every()}
        for blob in blobs(self.root):
            if blob not in known and self.idle(blob):
                self.drop(blob)
                if not self.dry_run:
                    self.remove_empty(blob.parent)

    def links(self) -> None:
        """Drop names for people that lead to nothing any more."""
        for path in [*children(self.root), *children(paths.checkpoints(self.root))]:
            if path.is_symlink() and not path.exists():
                target = os.path.normpath(path.parent / os.readlink(path))
                if Path(target).is_relative_to(self.root):
                    self.drop(path)

    def least_recently_used(self, limit: int) -> None:
        """Remove trees (with every ref at them) and weight files, the longest unused first."""
        parts = (paths.blobs, paths.checkpoints)
        folders = [self.root / "db", self.root / "checkouts", *(part(self.root) for part in parts)]
        total = sum(paths.disk_size(folder) for folder in folders if folder.exists())
        if self.dry_run:
            total -= self.freed
        for _, names, remove in sorted(self._units(), key=lambda unit: unit[0]):
            if total <= limit:
                return
            freed = remove()
            if freed:
                total -= freed
                self.removed += names
                self.freed += freed

    def _units(self) -> Iterator[tuple[float, list[str], Callable[[], int]]]:
        """(last use, names, what removes it and returns the bytes) of all that can be evicted."""
        from hubcli.cache import weights

        repos = checkouts.repos(self.root)
        left = {repo.url: {one.path for one in repos if one.url == repo.url} for repo in repos}
        for path in dict.fromkeys(repo.path for repo in repos):
            at = [repo for repo in repos if repo.path == path]

            def remove(at: list[checkouts.CachedRepo] = at, path: Path = path) -> int:
                others = left[at[0].url]
                others.discard(path)
                if self.dry_run:
                    db = paths.db(Table.read(RepoSpec.parse(at[0].spec), self.root).key, self.root)
                    whole = 0 if others or not db.exists() else paths.disk_size(db)
                    return paths.disk_size(path) + paths.disk_size(checkouts.marker(path)) + whole
                freed = 0
                for repo in at:
                    with contextlib.suppress(NotFoundError):  # somebody else was quicker
                        freed += removing.remove(self.root, RepoSpec.parse(repo.spec)).freed
                return freed

            yield max(repo.last_used for repo in at), [repo.spec for repo in at], remove
        found = [one for one in weights.list_blobs() if one.path.is_relative_to(self.root)]
        for name in dict.fromkeys(one.file for one in found):
            used = max(one.last_used for one in found if one.file == name)
            yield used, [name], partial(self.remove_weights, name)

    def remove_weights(self, name: str) -> int:
        """Remove the weight file `name`; the bytes."""
        from hubcli.cache import weights

        try:
            return weights.remove(name, dry_run=self.dry_run)
        except NotFoundError:
            return 0

    def idle(self, path: Path, grace: float | None = None) -> bool:
        """Return whether `path` was last used longer ago than the grace period."""
        try:
            return self.now - path.lstat().st_mtime > (self.grace if grace is None else grace)
        except OSError:
            return False

    def drop(self, path: Path) -> None:
        """Count `path`, and take it away unless this is a rehearsal."""
        try:
            size = paths.disk_size(path)
            if not self.dry_run:
                paths.discard(path, self.root)
        except FileNotFoundError:  # somebody else was quicker
            return
        except OSError as error:  # what cannot go is out of sight, and in nobody's way
            output.warning(f"{path} cannot be removed: {error.strerror or error}; it is left in {paths.partial()}")
            return
        self.freed += size
        self.removed.append(str(path.relative_to(self.root)))

    def remove_empty(self, folder: Path) -> None:
        """Remove `folder` and what is above it as far as nothing else is there."""
        while folder != self.root:
            try:
                folder.rmdir()
            except OSError:
                return
            folder = folder.parent


def _now(root: Path) -> float:
    """Return the time that the cache's file system would write on a file: its clock counts, not ours."""
    file = paths.temporary_for(root / "now")
    try:
        file.touch()
        return file.stat().st_mtime
    except OSError:
        return time.time()
    finally:
        with contextlib.suppress(OSError):
            file.unlink()


def _tables(root: Path) -> Iterator[Table]:
    for file in paths.json_files(paths.refs(root)):
        yield from ref_table.read_all(file, root).values()


def _repositories(root: Path) -> list[str]:
    """Return the keys of all repositories that have something on disk."""
    found = {table.key for table in _tables(root)}
    for top, suffix in ((root / "db", ".git"), (root / "checkouts", "")):
        for folder, folders, _ in os.walk(top):
            inside = [name for name in folders if _is_repository(name, suffix)]
            for name in inside:
                folders.remove(name)
                key = str((Path(folder) / name).relative_to(top)).removesuffix(suffix)
                found.add(key)
    return sorted(found)


def _is_repository(name: str, suffix: str) -> bool:
    return re.search(rf"-[0-9a-f]{{16}}{re.escape(suffix)}\Z", name) is not None


def blobs(root: Path) -> Iterator[Path]:
    for folder in children(paths.blobs(root)):
        for blob in children(folder):
            if re.fullmatch(r"[0-9a-f]{64}", blob.name):
                yield blob


def children(folder: Path) -> list[Path]:
    """Return what is in `folder` now; nothing where it is not there."""
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
