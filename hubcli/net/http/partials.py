"""Downloads that are not complete yet: stored in partial/, taken up again by a later process.

One download is a folder `partial/<key of the URL>.<unique>/` with `body`
and `origin.json` (validator and length, written before the first byte).  No lock is needed:
- A body has one writer, which only appends: what another process reads of it stays as it is.  A
  file that must start anew is a new file.
- The folder of a process that is dead is taken over by renaming it: one of several wins, and gets
  body and origin together.  Of a process that may be alive (on another machine, say) the body is
  copied instead.
- Whatever is taken over is hashed as it is read; the server is requested to go on only if the file is
  still the one that the validator names.
- What was written before the machine went down may be holes: it is used only where the digest is
  known beforehand.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from hubcli.base import paths

_BUFFER = 1 << 20


@dataclass(frozen=True)
class Origin:
    """The file of a server that the bytes belong to.  `validator` is for If-Range, `total` in bytes."""

    url: str
    validator: str | None
    total: int | None


class Partial:
    """A body that grows.  `size` bytes are there, `digest` is their sha256.

    With a `folder` (partial/) it survives its process; without one it is the temporary file
    `beside`, for targets that are not in the cache.  Append between `with` and its end only.
    """

    def __init__(self, url: str, beside: Path, folder: Path | None, *, checked: bool) -> None:
        self.url = url
        self._beside = beside
        self._folder = folder
        self._key = hashlib.sha256(url.encode()).hexdigest()[:20]
        self.origin = Origin(url, None, None)
        self.size = 0
        self.digest = hashlib.sha256()
        self.resumed = False
        self._home: Path | None = None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self._take_over(folder, checked)
        if self._home is None:
            self._start()

    @property
    def retained(self) -> bool:
        """Return whether it outlives a failure."""
        return self._home is not None

    def begin(self, validator: str | None, total: int | None) -> None:
        """Note what the first bytes to come belong to."""
        self.origin = Origin(self.url, validator, total)
        if self._home is not None:
            document = json.dumps(asdict(self.origin)).encode()
            paths.write_atomically(self._home / "origin.json", document)

    def append(self, part: bytes) -> None:
        """Add bytes at the end."""
        self._file.write(part)
        self.digest.update(part)
        self.size += len(part)

    def __enter__(self) -> Partial:
        self._file = open(self.path, "ab", buffering=_BUFFER)
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None:
            self._file.close()
            return
        try:
            self._file.close()
        except OSError:  # the disk is full: what was not written is not there
            self._reread()

    def sync(self) -> None:
        """Have everything appended on the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def restart(self) -> None:
        """Start anew, with an empty file."""
        self.discard()
        self.origin = Origin(self.url, None, None)
        self.size = 0
        self.digest = hashlib.sha256()
        self.resumed = False
        self._start()

    def discard(self) -> None:
        """Delete it."""
        _remove(self._home or self.path)

    def discard_all(self) -> None:
        """Delete it, and what dead processes have left of the same URL."""
        self.discard()
        if self._folder is not None:
            for one in self._left(self._folder):
                if paths.abandoned(one.name):
                    _remove(one)

    def _start(self) -> None:
        if self._folder is None:
            name = f"{self._beside.name[:100]}.{paths.unique()}.partial"
            self.path = self._beside.with_name(name)
            return
        self._home = self._folder / f"{self._key}.{paths.unique()}"
        self._home.mkdir()
        self.path = self._home / "body"

    def _left(self, folder: Path) -> Iterator[Path]:
        return folder.glob(f"{self._key}.*-*-*")

    def _take_over(self, folder: Path, checked: bool) -> None:
        found = []
        for one in self._left(folder):
            origin = _read_origin(one)
            with contextlib.suppress(OSError):
                size = (one / "body").stat().st_size
                usable = checked or paths.of_this_boot(one.name)
                if usable and size and origin and origin.validator and origin.url == self.url:
                    found.append((size, one, origin))
        for _, one, origin in sorted(found, key=lambda item: -item[0]):
            home = folder / f"{self._key}.{paths.unique()}"
            copied = not paths.abandoned(one.name)
            try:
                if copied:
                    home.mkdir()
                    shutil.copyfile(one / "body", home / "body")
                else:
                    os.rename(one, home)
            except OSError:  # somebody else was quicker, or it is complete by now
                _remove(home)
                continue
            self._home, self.path = home, home / "body"
            try:
                if copied:
                    self.begin(origin.validator, origin.total)
                self.origin = origin
                self._reread()
            except OSError:
                self._home = None
                _remove(home)
                continue
            self.resumed = True
            return

    def _reread(self) -> None:
        """Size and digest of what is on the disk."""
        with open(self.path, "rb") as file:
            self.digest = hashlib.file_digest(file, "sha256")
            self.size = file.tell()


def _read_origin(folder: Path) -> Origin | None:
    try:
        values = json.loads((folder / "origin.json").read_bytes())
        origin = Origin(str(values["url"]), values["validator"], values["total"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    strings = origin.validator is None or isinstance(origin.validator, str)
    return origin if strings and isinstance(origin.total, int | None) else None


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
