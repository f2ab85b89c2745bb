"""Looking after the cache: leftovers of dead processes, what nothing refers to, digests.

Nothing here is needed for correctness, and all of it may run beside other processes: what goes is
renamed out of sight first, and who needed it fetches it again.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

from hubcli import output, paths, settings
from hubcli.cache import leases, records, reftable, store, trees
from hubcli.cache.records import Record
from hubcli.cache.reftable import Published, Table
from hubcli.errors import HubError, NotFoundError
from hubcli.net import database, git
from hubcli.spec import RepoSpec

GRACE = 86400.0
_SETTLED = 60.0  # seconds after which a publication that has not gone on will not go on
_DOWNLOAD = re.compile(r"[0-9a-f]{20}\.")
_GENERATION = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?\.[0-9]+\Z")


@dataclass(frozen=True)
class Problem:
    """Something in the cache that is not what it must be.  `name` is a spec or a file's name.

    `files` are (file, changed|missing|extra, expected, found) of a tree; `superseded`: it is an old generation, which
    no look-up finds.
    """

    kind: Literal["code", "weights", "record"]
    name: str
    path: Path
    problem: str
    repaired: bool = False
    files: tuple[tuple[str, str, str | None, str | None], ...] = ()
    superseded: bool = False
    repair: Callable[[], None] | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Verified:
    """What `verify` has looked at: numbers of trees and weight files, bytes hashed, problems."""

    trees: int
    weights: int
    bytes: int
    problems: tuple[Problem, ...]


@dataclass(frozen=True)
class Pruned:
    """What `prune` took away, or would: specs, file names or paths below the cache; bytes."""

    removed: tuple[str, ...]
    freed: int


# Leftovers


def sweep(key: str, root: Path) -> None:
    """Clear away what dead processes have left of the repository `key`, and in partial/."""
    for path in [*_dead_temporaries(root), *_unfinished(paths.checkouts(key, root))]:
        with contextlib.suppress(OSError):
            paths.discard(path)


def _dead_temporaries(root: Path) -> Iterator[Path]:
    """What is in partial/ and of no use to anybody: not the downloads that can be gone on with."""
    for path in _children(paths.partial(root)):
        download = _DOWNLOAD.match(path.name) and (path / "body").is_file()
        if paths.abandoned(path.name) and not download:
            yield path


def _unfinished(folder: Path) -> Iterator[Path]:
    """Trees that have no marker and markers that have no tree, unless they are quite new."""
    for path in _children(folder):
        tree = path.with_name(path.name.removesuffix(".json"))
        if not _GENERATION.match(tree.name):
            if paths.abandoned(path.name):
                yield path
        elif not _whole(tree):
            with contextlib.suppress(OSError):
                if abs(time.time() - path.lstat().st_ctime) > _SETTLED:
                    yield path


def _whole(tree: Path) -> bool:
    return store.marker(tree).is_file() and tree.is_dir()


# Pruning


def prune(*, grace: float = GRACE, max_size: int | None = None, dry_run: bool = False) -> Pruned:
    """Drop what nothing refers to, then the least recently used until `max_size` bytes are left.

    Nothing refers to: old generations and blobs that were last used more than `grace` seconds ago
    (running processes import lazily), databases of repositories without refs, partial downloads as
    old, links that lead nowhere, what dead processes have left, what code wrote beside itself.
    """
    root = paths.hub_dir()
    if not root.is_dir():
        return Pruned((), 0)
    pruning = _Pruning(root, grace, dry_run)
    for key in _repositories(root):
        with contextlib.nullcontext() if dry_run else store.exclusive(f"repo-{key}", key):
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
        """Old generations, unfinished trees, and the database where no ref is left."""
        folder, db = paths.checkouts(key, self.root), paths.db(key, self.root)
        # what was read before the lock was held may be in use again: tables first, leases then
        tables = [table for table in _tables(self.root) if table.key == key]
        current = {table.path(entry) for table in tables for entry in table.entries.values()}
        current |= leases.held()
        for path in _unfinished(folder):
            self.drop(path)
        for tree in list(_children(folder)):
            old = _GENERATION.match(tree.name) and tree not in current and tree.is_dir()
            if old and self.idle(store.marker(tree)):
                self.drop(tree)
                self.drop(store.marker(tree))
        if db.is_dir():
            if not tables and not any(_children(folder)) and self.idle(db, _SETTLED):
                self.drop(db)
            elif not self.dry_run:
                database.sweep(db)
        if not self.dry_run:
            for path in (folder, db.parent):
                self.remove_empty(path)

    def temporaries(self) -> None:
        """What is in partial/: at once if its process is dead, else when it is old."""
        dead = set(_dead_temporaries(self.root))
        for path in _children(paths.partial(self.root)):
            body = path / "body"
            if path in dead or self.idle(body if body.is_file() else path):
                self.drop(path)

    def written(self) -> None:
        """What code had written into checkouts."""
        for path in _children(paths.written("")):
            if self.idle(path):
                self.drop(path)

    def records(self) -> None:
        """Records of weights, and refs, whose content has gone."""
        for file, record in records.every():
            if not record.content().is_file() and self.idle(file, _SETTLED):
                self.drop(file)
        for file in paths.json_files(paths.refs(self.root)):
            for url, table in reftable.read_all(file).items():
                gone = [ref for ref, one in table.entries.items() if not _whole(table.path(one))]
                if gone and self.idle(file, _SETTLED):
                    spec = store.spec_of(url, table)
                    self.removed += [str(spec.at(ref)) for ref in gone]
                    if not self.dry_run:
                        reftable.update(spec, partial(Table.without, refs=gone))

    def blobs(self) -> None:
        """Contents that no record names."""
        known = {record.content() for _, record in records.every()}
        for blob in _blobs(self.root):
            if blob not in known and self.idle(blob):
                self.drop(blob)
                if not self.dry_run:
                    self.remove_empty(blob.parent)

    def links(self) -> None:
        """Names for people that lead to nothing any more."""
        for path in [*_children(self.root), *_children(paths.checkpoints(self.root))]:
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
        """(last use, names, what removes it and tells the bytes) of all that can be evicted."""
        from hubcli.cache import weights

        repos = store.repos()
        left = {repo.url: {one.path for one in repos if one.url == repo.url} for repo in repos}
        for path in dict.fromkeys(repo.path for repo in repos):
            at = [repo for repo in repos if repo.path == path]

            def remove(at: list[store.CachedRepo] = at, path: Path = path) -> int:
                others = left[at[0].url]
                others.discard(path)
                if self.dry_run:
                    db = paths.db(Table.read(RepoSpec.parse(at[0].spec)).key, self.root)
                    whole = 0 if others or not db.exists() else paths.disk_size(db)
                    return paths.disk_size(path) + paths.disk_size(store.marker(path)) + whole
                freed = 0
                for repo in at:
                    with contextlib.suppress(NotFoundError):  # somebody else was quicker
                        freed += store.remove(RepoSpec.parse(repo.spec)).freed
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
        """Whether `path` was last used longer ago than the grace period."""
        try:
            return self.now - path.lstat().st_mtime > (self.grace if grace is None else grace)
        except OSError:
            return False

    def drop(self, path: Path) -> None:
        """Count `path`, and take it away unless this is a rehearsal."""
        try:
            size = paths.disk_size(path)
            if not self.dry_run:
                paths.discard(path)
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
    """The time that the cache's file system would write on a file: its clock counts, not ours."""
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
        yield from reftable.read_all(file).values()


def _repositories(root: Path) -> list[str]:
    """The keys of all repositories of which something is on disk."""
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


# Verifying


def verify(*, repair: bool = False) -> Verified:
    """Hash every tree and weight file again; with `repair` repair what can be repaired.

    A tree is written anew from the database, or fetched; a blob is fetched anew, or else dropped
    (it is fetched at its next use).  A weight file outside the cache is only ever replaced.
    """
    root = paths.hub_dir()
    problems: list[Problem] = []
    tasks: list[Callable[[], tuple[int, Problem | None]]] = []
    seen: set[Path] = set()
    for file in paths.json_files(paths.refs(root)):
        try:
            tables = reftable.load(file)
        except ValueError as error:
            what = f"damaged: {error}"
            problems.append(Problem("record", file.stem, file, what, repair=partial(paths.discard, file)))
            continue
        for url, table in tables.items():
            spec = store.spec_of(url, table)
            for ref, entry in table.entries.items():
                if table.path(entry) not in seen:
                    seen.add(table.path(entry))
                    tasks.append(_TreeCheck(spec.at(ref), table, entry))
    for marker in paths.json_files(root / "checkouts"):
        tree = marker.with_suffix("")
        if _GENERATION.match(tree.name) and tree not in seen and tree.is_dir():
            tasks.append(_OldTreeCheck(tree))
    code = len(tasks)
    contents: dict[Path, list[tuple[Path, Record]]] = {}
    for file in sorted(records.folder().glob("*.json")):
        try:
            record = records.load(file)
        except FileNotFoundError:
            continue  # it was removed meanwhile
        except (OSError, ValueError):
            problems.append(Problem("record", file.stem, file, "damaged", repair=partial(paths.discard, file)))
        else:
            contents.setdefault(record.content(), []).append((file, record))
    tasks += [_WeightsCheck(path, found) for path, found in contents.items()]
    tasks += [_WeightsCheck(path, []) for path in _blobs(root) if path not in contents]
    count = 0
    # hashing lets other threads run; the disk likes a few readers
    with (
        output.progress("verifying", total=len(tasks), unit="files") as bar,
        ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool,
    ):
        for size, problem in pool.map(lambda task: task(), tasks):
            count += size
            bar.update()
            if problem is not None:
                problems.append(problem)
    if repair:
        with ThreadPoolExecutor(4) as pool:  # what must be fetched is fetched together
            problems = list(pool.map(_repaired, problems))
    return Verified(code, len(tasks) - code, count, tuple(problems))


def _repaired(problem: Problem) -> Problem:
    try:
        if problem.repair is None:
            return problem
        problem.repair()
    except (HubError, OSError) as error:
        why = error.message if isinstance(error, HubError) else str(error)
        return replace(problem, problem=f"{problem.problem}; not repaired: {why}")
    return replace(problem, repaired=True)


@dataclass(frozen=True)
class _TreeCheck:
    """A tree that a ref stands at."""

    spec: RepoSpec
    table: Table
    entry: Published

    def __call__(self) -> tuple[int, Problem | None]:
        path = self.table.path(self.entry)
        wrong = None
        if not _whole(path):
            wrong = "missing"
        else:
            try:
                made = trees.identity(path)
            except OSError as error:
                wrong = f"cannot be read: {error.strerror}"
            else:
                if made != self.entry.tree:
                    wrong = f"changed: its tree is {made}, must be {self.entry.tree}"
        if wrong and self._standing():
            files: tuple[tuple[str, str, str | None, str | None], ...] = ()
            if wrong.startswith("changed"):
                with contextlib.suppress(HubError, OSError):
                    files = tuple(trees.differences(path, git.blobs(paths.db(self.table.key), self.entry.commit)))
            problem = Problem("code", str(self.spec), path, wrong, repair=self._repair, files=files)
            return 0 if wrong == "missing" else self.entry.size, problem
        return self.entry.size, None

    def _standing(self) -> bool:
        """Whether the ref is still there: another process may have removed it meanwhile."""
        return Table.read(self.spec).entries.get(self.spec.ref or "") == self.entry

    def _repair(self) -> None:
        store.republish(self.spec, self.entry)


@dataclass(frozen=True)
class _OldTreeCheck:
    """An old generation, which a running process may still import from."""

    path: Path

    def __call__(self) -> tuple[int, Problem | None]:
        marker = store.marker(self.path)
        try:
            known = json.loads(marker.read_bytes())
            wrong = None
            if trees.identity(self.path) != known["tree"]:
                wrong = f"changed: its tree must be {known['tree']}"
            size, name = int(known["size"]), str(known["spec"])
        except FileNotFoundError:
            return 0, None
        except (OSError, ValueError, KeyError, TypeError) as error:
            size, name, wrong = 0, self.path.name, f"damaged: {error}"
        if wrong and self.path.is_dir():
            what = f"an old generation has {wrong}"
            return size, Problem("code", name, self.path, what, repair=self._repair, superseded=True)
        return size, None

    def _repair(self) -> None:
        paths.discard(self.path)
        paths.discard(store.marker(self.path))


@dataclass(frozen=True)
class _WeightsCheck:
    """A content, and the records that name it: none for a blob that nothing refers to."""

    path: Path
    records: list[tuple[Path, Record]]

    def __call__(self) -> tuple[int, Problem | None]:
        from hubcli.cache import weights

        expected = self.records[0][1].sha256 if self.records else self.path.name
        wrong = digest = None
        size = 0
        try:
            size = self.path.stat().st_size
            digest = weights.digest_of(self.path)
            if digest != expected:
                wrong = f"changed: its sha256 is {digest}, must be {expected}"
        except FileNotFoundError:
            wrong = "missing"
        except OSError as error:
            wrong = f"cannot be read: {error.strerror}"
        current = [record for file, record in self.records if records.parse(file) == record]
        if wrong is None or (self.records and not current) or (not self.records and not size):
            return size, None
        name = current[0].file if current else self.path.name
        found = None if digest is None else f"sha256 {digest}"
        files = ((name, wrong.partition(":")[0], f"sha256 {expected}", found),)
        return size, Problem("weights", name, self.path, wrong, repair=self._repair, files=files)

    def _repair(self) -> None:
        from hubcli.cache import weights

        known = [record for _, record in self.records if record.url is not None]
        if self.path.is_relative_to(paths.blobs()):
            paths.discard(self.path)  # whoever reads it now keeps what it has
            if not known or settings.current().offline:
                return
        elif not known:
            raise NotFoundError("it is known from nowhere", hint="put the right file there")
        weights.refetch(known[0])


def _blobs(root: Path) -> Iterator[Path]:
    for folder in _children(paths.blobs(root)):
        for blob in _children(folder):
            if re.fullmatch(r"[0-9a-f]{64}", blob.name):
                yield blob


def _children(folder: Path) -> list[Path]:
    """What is in `folder` now; nothing where it is not there."""
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
