"""Files by a digest of all that made them: compiled kernels.  Safe among processes; a lost file is made again."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import shutil
import tempfile
import threading
import warnings
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path

__all__ = ["Cache"]


def _digest(parts: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{len(part)}:".encode() + part.encode())
    return digest.hexdigest()


def _remove(folder: Path, process: int) -> None:
    """Remove the folder that `process` made; a child that was forked leaves it to its parent."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


class Cache:
    """Files by a digest of all that made them.  A folder that cannot be written is replaced by a private one, with one
    warning."""

    def __init__(self, folder: Path | None = None) -> None:
        self._wanted = folder
        self._lock = threading.Lock()

    def wanted(self) -> Path:
        """Where the files should lie: the folder given, else ENGINE_KERNEL_CACHE, else the user's cache folder."""
        if self._wanted is not None:
            return self._wanted
        named = os.environ.get("ENGINE_KERNEL_CACHE")
        home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        return Path(named) if named else Path(home) / "engine" / "kernels"

    @functools.cached_property
    def folder(self) -> Path:
        """Where the files lie."""
        wanted = self.wanted()
        try:
            wanted.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=wanted):
                return wanted
        except OSError as error:
            private = Path(tempfile.mkdtemp(prefix="engine-kernels-"))
            weakref.finalize(self, _remove, private, os.getpid())
            warnings.warn(
                f"compiled kernels are not kept: the folder {wanted} cannot be written "
                f"({error.strerror or error}); set ENGINE_KERNEL_CACHE to one that can",
                RuntimeWarning,
                stacklevel=2,
            )
            return private

    def _path(self, parts: Sequence[str], suffix: str) -> Path:
        with self._lock:
            return self.folder / (_digest(parts) + suffix)

    def find(self, parts: Sequence[str], suffix: str) -> Path | None:
        """The file kept for `parts`; None without one."""
        kept = self._path(parts, suffix)
        return kept if kept.exists() else None

    def get(self, parts: Sequence[str], suffix: str, make: Callable[[Path], None]) -> Path:
        """The file that `make(path)` writes, or the one it wrote before for the same `parts`."""
        kept = self._path(parts, suffix)
        if not kept.exists():
            with tempfile.TemporaryDirectory(dir=kept.parent, prefix="making-") as work:
                made = Path(work) / ("made" + suffix)
                make(made)
                os.replace(made, kept)  # another process may have been first: the same file
        return kept

    def content(self, parts: Sequence[str], suffix: str, make: Callable[[], bytes]) -> bytes:
        """The bytes of `make()`, kept where that can be."""
        found = self.look(parts, suffix)
        if found is None:
            found = make()
            with contextlib.suppress(OSError):  # without the file it is made again next time
                self.put(parts, suffix, found)
        return found

    def path(self, parts: Sequence[str], suffix: str) -> Path:
        """Where `look` and `put` have the file, which need not be there."""
        return self.wanted() / (_digest(parts) + suffix)

    def look(self, parts: Sequence[str], suffix: str) -> bytes | None:
        """The bytes kept for `parts`; None without a file, or where it cannot be read.

        The file begins with their digest: one that was damaged, or cut short, is as good as none.
        """
        with contextlib.suppress(OSError):
            found = self.path(parts, suffix).read_bytes()
            if hashlib.sha256(found[32:]).digest() == found[:32]:
                return found[32:]
        return None

    def put(self, parts: Sequence[str], suffix: str, made: bytes) -> None:
        """Keep these bytes for `parts`, in place of those before; whoever reads meanwhile finds the ones or the others.
        OSError where the folder cannot be written."""
        kept = self.path(parts, suffix)
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=kept.parent, prefix="making-", delete=False) as file:
            try:
                file.write(hashlib.sha256(made).digest() + made)
                file.close()
                os.replace(file.name, kept)
            except BaseException:
                os.unlink(file.name)
                raise
