"""Targets of a mirror: a folder, a server that takes PUT, or a bucket.  A file appears whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path
from typing import Protocol

from hubcli.base import paths, settings
from hubcli.errors import IntegrityError, NetworkError, NotFoundError, OfflineError, UsageError
from hubcli.net.http import api
from hubcli.net.http import fetch as http

_FOLDERS = ("git", "sha256")
INDEX = "index.json"


class Target(Protocol):
    """A place for files that are named by what is in them, and for the index."""

    name: str

    def size(self, place: str) -> int | None:
        """Return the bytes of a file that is there."""

    def read(self, place: str) -> bytes | None:
        """Return a small file, if it is there."""

    def put(self, place: str, content: Path | bytes, sha256: str | None = None) -> None:
        """Put a file there; IntegrityError if it is read from disk and has not that digest."""

    def delete(self, place: str) -> None:
        """Remove a file; nothing there is fine."""


def of(text: str) -> Target:
    """Return the target that a user names: a folder, http(s)://... or s3://...."""
    scheme, separator, _ = text.partition("://")
    if not separator:
        return Folder(paths.absolute(text))
    if scheme == "file" or scheme not in settings.MIRRORS:
        raise UsageError(f"{text}: no mirror is written there", hint="name a folder, https://... or s3://...")
    base = settings.mirror_address(text, "the target")
    if settings.current().offline:
        raise OfflineError(f"{base} cannot be written offline", hint="run without --offline, or name a folder")
    if scheme == "s3":
        return Bucket(base)
    settings.check_scheme(base)
    return Server(base)


class Folder:
    """A folder, as a web server shows it."""

    def __init__(self, folder: Path) -> None:
        self.name, self._folder = str(folder), folder
        if folder.exists() and not folder.is_dir():
            raise UsageError(f"{folder} is a file", hint="name a folder, a new one or one that has a mirror")
        found = sorted(one.name for one in folder.iterdir()) if folder.is_dir() else []
        foreign = [name for name in found if name not in (*_FOLDERS, INDEX) and not name.endswith(".tmp")]
        if foreign and INDEX not in found:
            raise UsageError(
                f"{folder} has other things in it, such as {foreign[0]!r}",
                hint="name a new folder, or one that has a mirror; nothing was written",
            )
        for left in folder.glob("**/.*.tmp"):  # of a run that was killed
            if paths.abandoned(left.name):
                left.unlink(missing_ok=True)

    def size(self, place: str) -> int | None:
        """Return the bytes of a file that is there."""
        try:
            return (self._folder / place).stat().st_size
        except FileNotFoundError:
            return None

    def read(self, place: str) -> bytes | None:
        """Return a small file, if it is there."""
        try:
            return (self._folder / place).read_bytes()
        except FileNotFoundError:
            return None

    def put(self, place: str, content: Path | bytes, sha256: str | None = None) -> None:
        """Copy beside, hash on the way, rename."""
        path = self._folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            paths.write_atomically(path, content)
            return
        temporary = path.with_name(f".{path.name[:100]}.{paths.unique()}.tmp")
        digest = hashlib.sha256()
        try:
            with http.disk_full_said(self._folder), content.open("rb") as source, temporary.open("xb") as file:
                while part := source.read(1 << 20):
                    file.write(part)
                    digest.update(part)
                file.flush()
                os.fsync(file.fileno())
            if sha256 not in (None, digest.hexdigest()):
                raise IntegrityError(
                    f"{content} has changed: sha256 must be {sha256}, is {digest.hexdigest()}",
                    hint="mend it with hub cache verify --repair",
                )
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        paths.sync(path.parent)

    def delete(self, place: str) -> None:
        """Remove a file; nothing there is fine."""
        (self._folder / place).unlink(missing_ok=True)


class Server:
    """A web server that takes PUT and DELETE: WebDAV, a repository manager."""

    def __init__(self, base: str) -> None:
        self.name = base

    def size(self, place: str) -> int | None:
        """Return what HEAD says."""
        try:
            return api.send("HEAD", f"{self.name}/{place}")[0]
        except NotFoundError:
            return None

    def read(self, place: str) -> bytes | None:
        """Return a small file, if it is there."""
        try:
            return api.send("GET", f"{self.name}/{place}")[1]
        except NotFoundError:
            return None

    def put(self, place: str, content: Path | bytes, sha256: str | None = None) -> None:
        """PUT."""
        try:
            api.send("PUT", f"{self.name}/{place}", content)
        except (NetworkError, NotFoundError) as error:
            error.hint = "the server must take PUT; user and password for it go into ~/.netrc"
            raise

    def delete(self, place: str) -> None:
        """DELETE; nothing there is fine."""
        with contextlib.suppress(NotFoundError):
            api.send("DELETE", f"{self.name}/{place}")


class Bucket:
    """Object storage that speaks S3."""

    def __init__(self, base: str) -> None:
        from hubcli.net.storage import objects

        self.name, self._objects, self._files = base, objects, objects.filesystem()

    def size(self, place: str) -> int | None:
        """Return the bytes of an object that is there."""
        try:
            return self._objects.info(f"{self.name}/{place}", self._files)[0]
        except NotFoundError:
            return None

    def read(self, place: str) -> bytes | None:
        """Return a small object, if it is there."""
        try:
            return self._objects.read(self._files, f"{self.name}/{place}", 10_000_000)
        except NotFoundError:
            return None

    def put(self, place: str, content: Path | bytes, sha256: str | None = None) -> None:
        """Upload; what breaks off leaves nothing."""
        self._objects.write(self._files, f"{self.name}/{place}", content)

    def delete(self, place: str) -> None:
        """Remove an object; nothing there is fine."""
        self._objects.delete(self._files, f"{self.name}/{place}")
