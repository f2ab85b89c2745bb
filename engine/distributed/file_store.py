"""`FileStore`: keys in a file that all processes of a job can lock.

Note [Files of a store]
The file begins with a line that says that a store writes it, and whether a store made it (`_MADE`) or found it there
and empty (`_FOUND`); then come the changes, one after the other.  Any other file is refused before anything is written
to it: one with other content, a device, a pipe, a folder, a symbolic link.  The last of `world_size` processes to go
leaves what was there before: no file where a store made it, an empty one where it was found.
"""

from __future__ import annotations

import contextlib
import os
import stat
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

from engine.distributed.store import DistStoreError, Store, _bytes, _packed, _unpacked

__all__ = ["FileStore"]

_MADE, _FOUND = b"torch FileStore 1, made\n", b"torch FileStore 1, here\n"
_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}


class FileStore(Store):
    """Keys in a file that all processes can lock: one changed value after the other.

    file_name: where no file is, or an empty one that the processes agreed on, or the file of the same job.
    DistStoreError for anything else (Note [Files of a store]).  The last of `world_size` processes to go removes the
    file if a store made it; with `world_size` -1 it stays.
    """

    def __init__(self, file_name: str | os.PathLike[str], world_size: int = -1) -> None:
        self.path = os.fspath(file_name)
        self.world_size = world_size
        _begin(self.path)
        if world_size > 0:
            weakref.finalize(self, _leave, self.path, world_size, os.getpid())

    @contextlib.contextmanager
    def _locked(self) -> Iterator[Any]:
        try:
            with _locked(self.path) as file:
                if file.read(len(_MADE)) in (_MADE, _FOUND):
                    yield file
                    return
        except FileNotFoundError:
            pass
        raise DistStoreError(f"the file {self.path!r} of the store is gone: the last process of its job has left")

    def _values(self, file: Any) -> dict[str, bytes]:
        file.seek(len(_MADE))
        values: dict[str, bytes] = {}

        def read(count: int) -> bytes:
            data: bytes = file.read(count)
            if len(data) < count:
                raise EOFError
            return data

        while True:
            try:
                key, *value = _unpacked(read)
            except EOFError:  # the end, or what a killed process wrote of its last change
                return values
            if value:
                values[key.decode()] = value[0]
            else:
                values.pop(key.decode(), None)

    def _append(self, file: Any, *strings: bytes) -> None:
        file.seek(0, os.SEEK_END)
        file.write(_packed(strings))
        file.flush()

    def set(self, key: str, value: str | bytes) -> None:
        with self._locked() as file:
            self._append(file, key.encode(), _bytes(value))

    def check(self, keys: Sequence[str]) -> bool:
        with self._locked() as file:
            values = self._values(file)
        return all(key in values for key in keys)

    def add(self, key: str, amount: int) -> int:
        with self._locked() as file:
            total = int(self._values(file).get(key, b"0")) + amount
            self._append(file, key.encode(), str(total).encode())
            return total

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        with self._locked() as file:
            held = self._values(file).get(key)
            if held is None and _bytes(expected):
                return _bytes(expected)
            if held is None or held == _bytes(expected):
                held = _bytes(desired)
                self._append(file, key.encode(), held)
            return held

    def delete_key(self, key: str) -> bool:
        with self._locked() as file:
            there = key in self._values(file)
            self._append(file, key.encode())
            return there

    def num_keys(self) -> int:
        with self._locked() as file:
            return len(self._values(file))

    def _read(self, key: str) -> bytes:
        with self._locked() as file:
            return self._values(file)[key]


def _refusal(path: str, what: str) -> DistStoreError:
    return DistStoreError(
        f"FileStore: {path!r} is {what}; a store takes a path where no file is, or an empty file, and never writes to "
        "or removes what it did not make"
    )


def _begin(path: str) -> None:
    """Make the file of a store at `path`, or see that the one that is there is one."""
    try:
        while not _begun(path):
            pass  # the last process of an earlier job has just removed it
    except OSError as error:
        raise DistStoreError(f"FileStore: cannot open {path!r}: {error.strerror or error}") from error


def _begun(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _FLAGS, 0o600))
        made = True
    except FileExistsError:
        made = False
    try:
        with _locked(path) as file:
            begin = file.read(len(_MADE))
            if begin == _MADE or (begin == _FOUND and not made):
                return True
            if begin not in (b"", _FOUND):  # _FOUND: another process locked the file that this one has made
                raise _refusal(path, "a file with other content")
            file.seek(0)
            file.write(_MADE if made else _FOUND)
            return True
    except FileNotFoundError:
        if not os.path.isdir(os.path.dirname(path) or "."):
            raise
        return False


@contextlib.contextmanager
def _locked(path: str) -> Iterator[Any]:
    """The regular file at `path`, at its begin and locked.  FileNotFoundError where there is none any more."""
    import fcntl  # not on Windows

    kind = stat.S_IFMT(os.lstat(path).st_mode)  # first: opening a device or a pipe may already do something
    if kind != stat.S_IFREG:
        raise _refusal(path, _KINDS.get(kind, "no regular file"))
    fd = os.open(path, os.O_RDWR | _FLAGS)
    with os.fdopen(fd, "r+b") as file:
        fcntl.flock(fd, fcntl.LOCK_EX)
        if not os.path.samestat(os.fstat(fd), os.lstat(path)):
            raise FileNotFoundError(path)
        yield file
        file.flush()  # before it is unlocked


def _leave(path: str, world_size: int, process: int) -> None:
    """Count one process that goes; the last one leaves at `path` what was there before the job."""
    if os.getpid() != process:  # a child that was forked: it has not joined
        return
    with contextlib.suppress(OSError, DistStoreError), _locked(path) as file:
        begin = file.read(len(_MADE))
        if begin not in (_MADE, _FOUND):
            return
        store = FileStore.__new__(FileStore)
        left = int(store._values(file).get("left/", b"0")) + 1
        store._append(file, b"left/", str(left).encode())
        if left < world_size:
            return
        if begin == _FOUND:
            os.ftruncate(file.fileno(), 0)
        else:
            os.unlink(path)
