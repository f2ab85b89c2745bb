"""The verdict file: what was measured or checked on this machine, for later processes.

One file per kind ("cpu", "cuda") and identity (processor or card, versions, limits) in one folder of the user's cache;
what it holds is a JSON object with the identity as `for`.  Every writer replaces the whole file under a lock, which
spans reading and writing; a reader takes none and finds a whole file or none.  A file that is damaged or of another
identity is as good as none.  Where the folder cannot be written there is one warning, and verdicts hold in this process
only.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from engine.backends.file_cache import Cache

__all__ = ["Verdicts", "folder"]


def folder() -> Path:
    """Return the folder of the files, whether it is there or not."""
    from pathlib import Path

    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "engine" / "verdicts"


def _cache() -> Cache:
    from engine.backends.file_cache import Cache

    return Cache(folder())


class Verdicts:
    """The verdicts of one kind.

    identity: the facts that they are valid for; unwritable: what the warning says where they cannot be written.
    """

    def __init__(self, kind: str, identity: Callable[[], dict[str, str]], unwritable: str) -> None:
        self.kind, self.identity, self.unwritable = kind, identity, unwritable
        self.warned = False

    @property
    def _suffix(self) -> str:
        return f".{self.kind}.json"

    def path(self) -> Path:
        """Return the path of this machine's file, whether it is there or not."""
        return _cache().path(tuple(self.identity().values()), self._suffix)

    def read(self) -> dict[str, Any]:
        """Return what is stored for this machine; {} where there is nothing, or no whole file."""
        if not folder().is_dir():
            return {}
        this = self.identity()
        found = _document(_cache().look(tuple(this.values()), self._suffix))
        return found if found.get("for") == this else {}

    def newest(self) -> dict[str, Any]:
        """Return what was stored last, for whatever identity; {} without a file."""
        from engine.backends.file_cache import whole

        try:
            path = max(folder().glob("*" + self._suffix), key=lambda path: path.stat().st_mtime)
        except (OSError, ValueError):  # none
            return {}
        return _document(whole(path))

    def update(self, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        """Store `change(what is stored)`; one warning where that cannot be."""
        import json

        this = self.identity()
        try:
            with _locked():
                document = {**change(self.read()), "for": this}
                _cache().put(tuple(this.values()), self._suffix, json.dumps(document).encode())
        except OSError as error:
            if not self.warned:
                self.warned = True
                warnings.warn(
                    f"{self.unwritable}: {folder()} cannot be written ({error.strerror or error})",
                    RuntimeWarning,
                    stacklevel=5,
                )


def _document(content: bytes | None) -> dict[str, Any]:
    import json

    if content is None:
        return {}
    try:
        found = json.loads(content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    """Hold the lock of the folder, which other processes wait for; where a system has none, a writer may undo what
    another adds at the same time."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    folder().mkdir(parents=True, exist_ok=True)
    at = os.open(folder(), os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(at, fcntl.LOCK_EX)
        yield
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(at, fcntl.LOCK_UN)
        os.close(at)
