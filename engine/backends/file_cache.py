"""A cache of files under a digest of their inputs: compiled kernels.  Safe among processes; a lost file is made
again.

What writes imports `tempfile` and `shutil` itself: they take longer to load than most processes need to look here.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path

__all__ = ["Cache", "whole"]


def _digest(parts: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{len(part)}:".encode() + part.encode())
    return digest.hexdigest()


def _remove(folder: Path, process: int) -> None:
    """Remove the folder that `process` made; a child that was forked leaves it to its parent."""
    if os.getpid() == process:
        import shutil

        shutil.rmtree(folder, ignore_errors=True)


def whole(path: Path) -> bytes | None:
    """Return the bytes that `Cache.put` wrote to a file; None without it, or where they are not what was written."""
    with contextlib.suppress(OSError):
        found = path.read_bytes()
        if hashlib.sha256(found[32:]).digest() == found[:32]:
            return found[32:]
    return None


class Cache:
    """Files under a digest of their inputs.  A folder that cannot be written is replaced by a private one, with one
    warning."""

    def __init__(self, folder: Path | None = None) -> None:
        self._wanted = folder
        self._lock = threading.Lock()

    def wanted(self) -> Path:
        """Return the preferred folder: the one given, else ENGINE_KERNEL_CACHE, else the user's cache folder."""
        if self._wanted is not None:
            return self._wanted
        named = os.environ.get("ENGINE_KERNEL_CACHE")
        home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        return Path(named) if named else Path(home) / "engine" / "kernels"

    @functools.cached_property
    def folder(self) -> Path:
        """The folder of the files: the preferred one, or a temporary one where that cannot be written."""
        import tempfile

        wanted = self.wanted()
        try:
            wanted.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=wanted):
                return wanted
        except OSError as error:
            private = Path(tempfile.mkdtemp(prefix="engine-kernels-"))
            weakref.finalize(self, _remove, private, os.getpid())
            warnings.warn(
                f"compiled kernels are not stored: the folder {wanted} cannot be written "
                f"({error.strerror or error}); set ENGINE_KERNEL_CACHE to one that can",
                RuntimeWarning,
                stacklevel=2,
            )
            return private

    def _path(self, parts: Sequence[str], suffix: str) -> Path:
        with self._lock:
            return self.folder / (_digest(parts) + suffix)

    def find(self, parts: Sequence[str], suffix: str) -> Path | None:
        """Return the cached file of `parts`; None without one."""
        path = self._path(parts, suffix)
        return path if path.exists() else None

    def get(self, parts: Sequence[str], suffix: str, make: Callable[[Path], None]) -> Path:
        """Return the file that `make(path)` writes, or the one it wrote before for the same `parts`."""
        path = self._path(parts, suffix)
        if not path.exists():
            import tempfile

            with tempfile.TemporaryDirectory(dir=path.parent, prefix="making-") as work:
                made = Path(work) / ("made" + suffix)
                make(made)
                os.replace(made, path)  # another process may have been first: the same file
        return path

    def content(self, parts: Sequence[str], suffix: str, make: Callable[[], bytes]) -> bytes:
        """Return the bytes of `make()`, cached where the folder can be written."""
        found = self.look(parts, suffix)
        if found is None:
            found = make()
            with contextlib.suppress(OSError):  # without the file it is made again next time
                self.put(parts, suffix, found)
        return found

    def path(self, parts: Sequence[str], suffix: str) -> Path:
        """Return the path that `look` and `put` use for `parts`; the file need not exist."""
        return self.wanted() / (_digest(parts) + suffix)

    def look(self, parts: Sequence[str], suffix: str) -> bytes | None:
        """Return the cached bytes of `parts`; None without a file, or where it cannot be read.

        The file begins with their digest: one that was damaged, or cut short, is as good as none.
        """
        return whole(self.path(parts, suffix))

    def put(self, parts: Sequence[str], suffix: str, made: bytes) -> None:
        """Write the bytes of `parts`, in place of older ones; a reader meanwhile finds either.
        OSError where the folder cannot be written."""
        import tempfile

        path = self.path(parts, suffix)
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix="making-", delete=False) as file:
            try:
                file.write(hashlib.sha256(made).digest() + made)
                file.close()
                os.replace(file.name, path)
            except BaseException:
                os.unlink(file.name)
                raise
