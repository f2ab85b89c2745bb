"""Verifying the cache: every tree and every weight file is hashed again, and repaired where that is asked for.

A weight file whose digest is right may be damaged all the same, by the server that it came from: what is a zip archive
is compared with the CRC-32 of its entries.
"""

from __future__ import annotations

import contextlib
import json
import os
import zipfile
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from hubcli.base import output, paths, settings
from hubcli.base.spec import RepoSpec
from hubcli.cache import checkouts, fetching, records, ref_table, trees
from hubcli.cache.prune import GENERATION, blobs, whole
from hubcli.cache.records import Record
from hubcli.cache.ref_table import Published, Table
from hubcli.errors import HubError, NotFoundError
from hubcli.net.git import remote as git

_CHUNK = 1 << 20
_LARGEST = 1 << 30  # bytes that an archive's entries may have beyond 64 times those of the archive


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
    """The outcome of `verify`: numbers of trees and weight files, bytes hashed, problems."""

    trees: int
    weights: int
    bytes: int
    problems: tuple[Problem, ...]

    def document(self) -> dict[str, Any]:
        """Return it as the JSON document shows it."""
        return {
            "checked": {"trees": self.trees, "weights": self.weights, "bytes": self.bytes},
            "problems": [
                {
                    "kind": one.kind,
                    "name": one.name,
                    "path": str(one.path),
                    "file": file,
                    "what": what,
                    "expected": expected,
                    "found": seen,
                    "problem": one.problem,
                    "repaired": one.repaired,
                    "superseded": one.superseded,
                }
                for one in self.problems
                for file, what, expected, seen in one.files or [(None, one.problem.partition(":")[0], None, None)]
            ],
        }


def verify(root: Path, *, repair: bool = False) -> Verified:
    """Hash every tree and weight file again; with `repair` repair what can be repaired.

    A tree is written anew from the database, or fetched; a blob is fetched anew, or else dropped
    (it is fetched at its next use).  A weight file outside the cache is only ever replaced.
    """
    problems: list[Problem] = []
    tasks: list[Callable[[], tuple[int, Problem | None]]] = []
    seen: set[Path] = set()
    for file in paths.json_files(paths.refs(root)):
        try:
            tables = ref_table.load(file, root)
        except ValueError as error:
            what = f"damaged: {error}"
            problems.append(Problem("record", file.stem, file, what, repair=partial(paths.discard, file)))
            continue
        for url, table in tables.items():
            spec = checkouts.spec_of(url, table)
            for ref, entry in table.entries.items():
                if table.path(entry) not in seen:
                    seen.add(table.path(entry))
                    tasks.append(_TreeCheck(spec.at(ref), table, entry))
    for marker in paths.json_files(root / "checkouts"):
        tree = marker.with_suffix("")
        if GENERATION.match(tree.name) and tree not in seen and tree.is_dir():
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
    tasks += [_WeightsCheck(path, []) for path in blobs(root) if path not in contents]
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
        if not whole(path):
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
                    files = tuple(
                        trees.differences(path, git.blobs(paths.db(self.table.key, self.table.root), self.entry.commit))
                    )
            problem = Problem("code", str(self.spec), path, wrong, repair=self._repair, files=files)
            return 0 if wrong == "missing" else self.entry.size, problem
        return self.entry.size, None

    def _standing(self) -> bool:
        """Return whether the ref is still there: another process may have removed it meanwhile."""
        return Table.read(self.spec, self.table.root).entries.get(self.spec.ref or "") == self.entry

    def _repair(self) -> None:
        fetching.republish(self.table.root or paths.hub_dir(), self.spec, self.entry)


@dataclass(frozen=True)
class _OldTreeCheck:
    """An old generation, which a running process may still import from."""

    path: Path

    def __call__(self) -> tuple[int, Problem | None]:
        marker = checkouts.marker(self.path)
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
        paths.discard(checkouts.marker(self.path))


@dataclass(frozen=True)
class _WeightsCheck:
    """A content, and the records that name it: none for a blob that nothing refers to."""

    path: Path
    records: list[tuple[Path, Record]]

    def __call__(self) -> tuple[int, Problem | None]:
        from hubcli.cache import weight_files

        expected = self.records[0][1].sha256 if self.records else self.path.name
        wrong = digest = None
        size = 0
        try:
            size = self.path.stat().st_size
            digest = weight_files.digest_of(self.path)
            if digest != expected:
                wrong = f"changed: its sha256 is {digest}, must be {expected}"
            elif (entry := damaged_entry(self.path)) is not None:
                wrong = f"damaged: the CRC-32 of {entry} in it is not what the archive says"
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
        repair = None if wrong.startswith("damaged") else self._repair  # its server has it so
        return size, Problem("weights", name, self.path, wrong, repair=repair, files=files)

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


def damaged_entry(path: Path) -> str | None:
    """Return the first entry of a zip archive whose content has not the CRC-32 that stands beside it, else None.

    None also for what is no archive, or cannot be read as one: loading it says why.  A CRC of 0 is not compared, for
    torch writes that where it computes none.
    """
    try:
        with path.open("rb") as file:
            if file.read(4) != b"PK\x03\x04":
                return None
        with zipfile.ZipFile(path) as archive:
            left = _LARGEST + 64 * path.stat().st_size
            for entry in archive.infolist():
                left -= entry.file_size
                if left < 0 or entry.flag_bits & 1:  # more than any checkpoint has, or encrypted
                    return None
                if entry.CRC and not _is_whole(archive, entry):
                    return str(output.printable(entry.filename))
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile):
        pass
    return None


def _is_whole(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bool:
    try:
        with archive.open(entry) as content:
            while content.read(_CHUNK):
                pass
    except (zipfile.BadZipFile, zlib.error, EOFError):
        return False
    return True
