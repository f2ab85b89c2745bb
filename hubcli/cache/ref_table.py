"""The ref tables: `refs/<host>/<owner>/<repo>.json`, the only files that look-ups read.

A table file has a section for every clone URL that was known under the name; a section maps refs to
published trees.  Readers need no lock: a file is always replaced as a whole.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from hubcli.base import output, paths
from hubcli.base.spec import RepoSpec
from hubcli.errors import HubError

Kind = Literal["branch", "tag", "commit", "local"]

_SCHEMA = 1
_PATIENCE = 5.0  # seconds; of a writer on another machine nobody knows whether it lives
_KEY = r"[A-Za-z0-9_.~%-]+(/[A-Za-z0-9_.~%-]+)+\Z"
_COMMIT = r"[0-9a-f]{40}([0-9a-f]{24})?\Z"


@dataclass(frozen=True)
class Published:
    """A ref as the table has it.  `commit`'s tree is `<commit>.<generation>`."""

    kind: Kind
    ref: str
    commit: str
    tree: str
    generation: int
    size: int
    fetched_at: float
    checked_at: float
    verdict: str


@dataclass(frozen=True)
class Table:
    """The refs of one clone URL: `base` is the spec without ref, `default` the default branch.

    `key` names the repository's folder; it is cached because hashing the URL costs start-up time.
    """

    base: str
    key: str
    default: str | None
    entries: dict[str, Published]
    root: Path | None = field(default=None, compare=False)  # the cache that it is in, None: that of the settings

    @classmethod
    def read(cls, spec: RepoSpec, root: Path | None = None) -> Table:
        """Return the table of `spec`'s repository; empty where nothing of it is cached."""
        return read_all(_file(spec, root), root).get(spec.url) or cls.empty(spec, root)

    @classmethod
    def empty(cls, spec: RepoSpec, root: Path | None = None) -> Table:
        """Return the table of a repository that is not in the cache."""
        key = paths.repository_key(spec.host, spec.owner, spec.repo, spec.url)
        return cls(spec.repository, key, None, {}, root)

    def find(self, spec: RepoSpec) -> Published | None:
        """Return what `spec` means; a commit also where a branch or tag has brought it."""
        ref = self.default if spec.ref is None else spec.ref
        entry = self.entries.get(ref) if ref is not None else None
        if entry is None and spec.is_commit:
            for other in self.entries.values():
                if other.commit == ref:
                    return replace(other, kind="commit", ref=other.commit)
        return entry

    def path(self, entry: Published) -> Path:
        """Return where the tree of `entry` is."""
        return paths.checkouts(self.key, self.root) / f"{entry.commit}.{entry.generation}"

    def having(self, ref: str, entry: Published, default: str | None) -> Table:
        """This table with `ref` at `entry`; `default` None leaves the default branch as it is."""
        entries = {**self.entries, ref: entry}
        return replace(self, default=default or self.default, entries=entries)

    def without(self, refs: list[str]) -> Table:
        """This table without `refs`."""
        rest = {ref: entry for ref, entry in self.entries.items() if ref not in refs}
        default = self.default if self.default in rest else None
        return replace(self, default=default, entries=rest)


def read_all(file: Path, root: Path | None = None) -> dict[str, Table]:
    """Return the tables of a file by clone URL; a damaged file counts as empty, so that all is fetched."""
    try:
        return load(file, root)
    except ValueError:
        output.warning(f"{file} is damaged; what it listed counts as not cached")
        return {}


def load(file: Path, root: Path | None = None) -> dict[str, Table]:
    """Return the tables of a file by clone URL, none where there is no file.  ValueError if it is damaged.

    A file that a later version of hub has written is a HubError: nothing may be written over it.
    """
    try:
        if not stat.S_ISREG(file.stat().st_mode):  # somebody's pipe would keep every look-up waiting
            raise ValueError(f"{file} is no plain file")
        document = json.loads(file.read_bytes())
        schema = document["schema"]
        if isinstance(schema, int) and schema > _SCHEMA:
            raise HubError(
                f"{file} was written by a later version of hub (form {schema}, known is {_SCHEMA})",
                hint="upgrade hub, or choose another folder with --hub-dir",
            )
        if schema != _SCHEMA:
            raise ValueError(f"unknown form {schema!r}")
        return {url: _parse(section, root) for url, section in document["remotes"].items()}
    except FileNotFoundError:
        return {}
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise ValueError("it is a link to itself") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None


def update(spec: RepoSpec, change: Callable[[Table], Table], root: Path | None = None) -> None:
    """Read, change and replace the table of `spec`; again if another writer came between.

    Without locks two may read the same table: README.md, invariant 3, says how no change is lost.
    """
    file = _file(spec, root)
    empty = Table.empty(spec, root)
    for _ in range(20):
        with _announced(file, root) as own:
            tables = read_all(file, root)
            tables[spec.url] = change(tables.get(spec.url) or empty)
            tables = {url: table for url, table in tables.items() if table.entries}
            if tables:
                file.parent.mkdir(parents=True, exist_ok=True)
                paths.write_atomically(file, _dump(tables))
            else:
                file.unlink(missing_ok=True)
        _until_alone(own)
        written = read_all(file, root).get(spec.url) or empty
        if change(written) == written:
            return
        time.sleep(0.01)


@contextlib.contextmanager
def _announced(file: Path, root: Path | None = None) -> Iterator[Path]:
    """Let other writers of the table see that this one is at work; where that cannot be, go on without."""
    key = file.relative_to(paths.refs(root)).as_posix()
    own = paths.partial(root) / f"table-{zlib.crc32(key.encode()):08x}.{paths.unique()}.writing"
    with contextlib.suppress(OSError):
        own.parent.mkdir(parents=True, exist_ok=True)
        own.touch(exist_ok=False)
    try:
        yield own
    finally:
        with contextlib.suppress(OSError):
            own.unlink(missing_ok=True)


def _until_alone(own: Path) -> None:
    """Wait until nobody writes the table of the announcement `own`; not for the dead, and for nobody very long."""
    group = own.name.partition(".")[0]
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        try:
            names = [name for name in os.listdir(own.parent) if name.startswith(f"{group}.") and name != own.name]
        except OSError:
            return
        if all(paths.abandoned(name) for name in names):
            return
        time.sleep(0.005)


def _parse(section: dict[str, Any], root: Path | None) -> Table:
    known = Published.__dataclass_fields__  # a later hub may have added some
    entries = {
        ref: Published(**{name: value for name, value in values.items() if name in known})
        for ref, values in section["refs"].items()
    }
    for entry in entries.values():
        # they become part of a path
        if not (re.match(_COMMIT, entry.commit) and isinstance(entry.generation, int)):
            raise ValueError(entry.commit)
    if not re.match(_KEY, section["key"]) or ".." in section["key"].split("/"):
        raise ValueError(section["key"])
    return Table(section["spec"], section["key"], section["default"], entries, root)


def _dump(tables: dict[str, Table]) -> bytes:
    remotes = {
        url: {
            "spec": table.base,
            "key": table.key,
            "default": table.default,
            "refs": {ref: asdict(entry) for ref, entry in sorted(table.entries.items())},
        }
        for url, table in sorted(tables.items())
    }
    return json.dumps({"schema": _SCHEMA, "remotes": remotes}, indent=1).encode()


def _file(spec: RepoSpec, root: Path | None = None) -> Path:
    return paths.refs_file(spec.host, spec.owner, spec.repo, root)
