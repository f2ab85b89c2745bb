"""Records of weight files: one JSON document per file and URL, in `blobs/files/`.

A record is the only thing that a cache hit reads: the digest, the state of the file when it was last
hashed, and which (spec, entrypoint) used it.  One that is damaged counts as none.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from hubcli.base import paths


@dataclass(frozen=True)
class Weight:
    """One weight file of the cache.  `path` is what torch.hub shows, `size` is in bytes."""

    file: str
    path: Path
    url: str | None
    sha256: str
    size: int
    used_by: tuple[tuple[str, str], ...]
    first_seen: float
    last_used: float
    stale: bool


@dataclass(frozen=True)
class Record:
    """The JSON document of one (file, URL).

    `blob`: the content is among the blobs.  `source`: size in bytes, mtime in ns and inode of the file that a
    file: URL names, as it was when it was read; None for other URLs.
    """

    file: str
    path: str
    url: str | None
    sha256: str
    size: int
    mtime_ns: int
    inode: int
    blob: bool
    first_seen: float
    last_used: float
    used_by: tuple[tuple[str, str], ...] = ()
    stale: bool = False
    source: tuple[int, int, int] | None = None

    def weight(self) -> Weight:
        """Return what others may know of it."""
        return Weight(
            self.file,
            paths.hub_dir() / self.path,
            self.url,
            self.sha256,
            self.size,
            self.used_by,
            self.first_seen,
            self.last_used,
            self.stale,
        )

    def content(self) -> Path:
        """Return the file to read."""
        return paths.blob(self.sha256) if self.blob else paths.hub_dir() / self.path

    def fits(self) -> bool:
        """Return whether the file is as it was when it was hashed, as far as can be seen from outside."""
        try:
            status = self.content().stat()
        except OSError:
            return False
        return state_of(status) == (self.size, self.mtime_ns, self.inode)


def state_of(status: os.stat_result) -> tuple[int, int, int]:
    """Return size in bytes, mtime in ns and inode: what differs once a file has changed."""
    return status.st_size, status.st_mtime_ns, status.st_ino


def folder() -> Path:
    """Return where the records are."""
    return paths.blobs().parent / "files"


def shown_path(target: Path) -> str:
    """Relative to the cache, so that the cache can be moved."""
    root = paths.hub_dir()
    return str(target.relative_to(root)) if target.is_relative_to(root) else str(target)


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def key(target: Path, url: str | None) -> str:
    """Names the record, and the lock of the download."""
    return f"{_short(shown_path(target))}-{_short(url or '')}"


def file_of(target: Path, url: str | None) -> Path:
    """Return the path of the record of the file at `target` from `url`."""
    return folder() / f"{key(target, url)}.json"


def known(target: Path) -> bool:
    """Return whether the file at `target` came from some URL through this cache."""
    stem = _short(shown_path(target))
    return any(folder().glob(f"{stem}-*.json"))


def read(target: Path, url: str) -> Record | None:
    """Return the record of the file at `target`, if that is from `url`."""
    record = parse(file_of(target, url))
    if record is None or record.url != url:
        return None
    if not record.blob and not record.fits():
        # a plain file of that name may have been fetched from elsewhere since
        for other in folder().glob(f"{_short(record.path)}-*.json"):
            rival = parse(other)
            if rival is not None and not rival.blob and rival.fits():
                return None
    return record


def parse(file: Path) -> Record | None:
    """Return the record in a file; one that is damaged counts as none, and is written anew."""
    try:
        return load(file)
    except (OSError, ValueError):
        return None


def load(file: Path) -> Record:
    """Return the record in a file.  ValueError if it is damaged, OSError if it cannot be read."""
    content = file.read_bytes()
    try:
        values = json.loads(content)
        values["used_by"] = tuple((str(spec), str(entry)) for spec, entry in values["used_by"])
        if values.get("source") is not None:
            size, mtime_ns, inode = values["source"]
            values["source"] = (int(size), int(mtime_ns), int(inode))
        known = Record.__dataclass_fields__  # a later hub may have added some
        record = Record(**{name: value for name, value in values.items() if name in known})
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None
    if not re.fullmatch(r"[0-9a-f]{64}", str(record.sha256)):
        raise ValueError("no sha256")
    return record


def every() -> Iterator[tuple[Path, Record]]:
    """Every record with its file; damaged ones are left out."""
    for file in sorted(folder().glob("*.json")):
        record = parse(file)
        if record is not None:
            yield file, record


def write(file: Path, record: Record) -> None:
    """Put the record into its file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    values: Mapping[str, Any] = asdict(record)
    paths.write_atomically(file, json.dumps(values, indent=1).encode())


def make(target: Path, url: str | None, digest: str, *, blob: bool) -> Record:
    """Return the record of a file as it is now."""
    status = (paths.blob(digest) if blob else target).stat()
    now = time.time()
    return Record(
        target.name,
        shown_path(target),
        url,
        digest,
        status.st_size,
        status.st_mtime_ns,
        status.st_ino,
        blob,
        now,
        now,
    )


def renew(target: Path, url: str, digest: str, blob: bool, source: tuple[int, int, int] | None = None) -> Record:
    """Write the record of a file that has just come; who used the one before still does."""
    record = replace(make(target, url, digest, blob=blob), source=source)
    before = parse(file_of(target, url))
    if before is not None:
        record = replace(record, used_by=before.used_by)
    write(file_of(target, url), record)
    return record
