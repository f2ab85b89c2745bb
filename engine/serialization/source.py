"""Bytes of a checkpoint: a path or file object as one buffer, mapped copy-on-write where that is possible."""

from __future__ import annotations

import contextlib
import io
import mmap
import os
import stat
from collections.abc import Iterator
from typing import Any

import numpy as np

from .errors import UnpicklingError

__all__ = ["ALIGNMENT", "Source", "aligned_empty", "is_path", "naming"]

ALIGNMENT = 64  # bytes; what torch's writer gives every storage
_NEEDED = 16  # bytes; the widest element (complex128) numpy and oneDNN want aligned
_CHUNK = 1 << 30  # bytes per read call; Linux stops at 2 GiB
_PLAIN_FILES = (io.FileIO, io.BufferedReader, io.BufferedRandom)  # a GzipFile has a fileno() too


def is_path(f: Any) -> bool:
    """Return whether `f` names a file (str, bytes or os.PathLike)."""
    return isinstance(f, (str, bytes, os.PathLike))


@contextlib.contextmanager
def naming(f: Any) -> Iterator[None]:
    """Let the errors of a file that the caller gave by a path, or opened by one, begin with its name."""
    try:
        yield
    except UnpicklingError as e:
        name = f if is_path(f) else getattr(f, "name", None)
        if e.file is not None or not is_path(name):
            raise
        raise UnpicklingError(e.reason, os.fsdecode(os.fspath(name)), e.globals) from e.__cause__


def aligned_empty(nbytes: int) -> np.ndarray:
    """An uninitialised, writable uint8 array (nbytes,) whose address is a multiple of 64 bytes."""
    if nbytes == 0:
        return np.empty(0, np.uint8)
    block = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -block.__array_interface__["data"][0] % ALIGNMENT
    # Through a memoryview, so that the array is the root of its own views (records.root_of).
    return np.frombuffer(memoryview(block)[start : start + nbytes], np.uint8)


class Source:
    """The content of `f` from its position to its end.

    f: path or binary file object.  mapped: True demands a mapping, False forbids views into it, None maps
    where the file permits.  `data` is the whole content as a memoryview for parsing; `view(offset, nbytes)`
    gives a writable uint8 array, without a copy where the source is mapped or in memory and the place is
    aligned.  Writing to a view never touches the file.  Raises OSError, and TypeError for text files.
    """

    def __init__(self, f: Any, mapped: bool | None = None) -> None:
        self.name = os.fsdecode(os.fspath(f)) if is_path(f) else str(getattr(f, "name", "") or "<stream>")
        self.start = 0  # where the content begins in the mapping
        self._origin: int | None = None  # where it begins for seek(), None if there is no seeking
        self._fd_owner: Any = None  # the file to read views from
        self._own: Any = None  # the file that this object has opened
        self._keep: Any = None  # the open file behind a mapping
        self.demanded = mapped is True  # a mapping whose pages are read when they are used
        self._zero_copy = mapped is not False
        self._file = None if is_path(f) else f
        if is_path(f):
            # Kept open for as long as the source lives: unmapped reads go through it.
            owner: Any = open(f, "rb", buffering=0)  # noqa: SIM115
            self._own = owner
            try:
                self._open(owner, mapped)
            except BaseException:
                owner.close()
                raise
        elif type(f) in _PLAIN_FILES:
            if f.writable():
                f.flush()
            self.start = self._origin = f.tell()
            self._open(f, mapped)
        else:
            if mapped:
                raise ValueError("f must be a file path in order to use the mmap argument")
            self._read(f)
        self.size = len(self.data)

    def _open(self, owner: Any, mapped: bool | None) -> None:
        info = os.fstat(owner.fileno())
        if not stat.S_ISREG(info.st_mode) or info.st_size <= self.start:
            if mapped:
                raise ValueError(f"{self.name} cannot be mapped: it is empty or not a regular file")
            self._read(owner)
            return
        try:
            mapping = mmap.mmap(owner.fileno(), info.st_size, access=mmap.ACCESS_COPY)
        except (OSError, ValueError):
            if mapped:
                raise
            self._read(owner)
            return
        self._keep = owner
        if not self._zero_copy:
            self._fd_owner = owner
        self.data = memoryview(mapping)[self.start :]

    def _read(self, f: Any) -> None:
        """Take the whole rest of a stream into one aligned block of memory."""
        self.start, self._zero_copy = 0, True
        try:
            here = f.tell()
            size = f.seek(0, os.SEEK_END) - here
            f.seek(here)
            self._origin = here
        except (AttributeError, OSError, ValueError):
            size = -1
        if size < 0 or not hasattr(f, "readinto"):
            content = f.read()
            if not isinstance(content, (bytes, bytearray, memoryview)):
                raise TypeError(f"expected a file opened in binary mode, but read() gave {type(content).__name__}")
            block = aligned_empty(len(content))
            block[:] = np.frombuffer(content, np.uint8)
        else:
            block = aligned_empty(size)
            target, done = memoryview(block), 0
            while done < size:
                count = f.readinto(target[done : done + _CHUNK])
                if not count:
                    break
                done += count
            block = block[:done]
        self.data = memoryview(block)

    def view(self, offset: int, nbytes: int) -> np.ndarray:
        """Writable uint8 array (nbytes,) of the content at `offset`, aligned to 16 bytes.

        The caller has checked the bounds; a file that shrank meanwhile raises UnpicklingError.
        """
        if offset < 0 or nbytes < 0 or offset + nbytes > self.size:
            raise UnpicklingError(f"{nbytes} bytes at offset {offset} lie outside the file of {self.size} bytes")
        if self._zero_copy:
            if nbytes == 0:
                return np.empty(0, np.uint8)
            if (self.start + offset) % _NEEDED == 0:
                return np.frombuffer(self.data[offset : offset + nbytes], np.uint8)
        copy = aligned_empty(nbytes)
        if self._fd_owner is None or not hasattr(os, "preadv"):  # Windows has none: by way of the mapping
            copy[:] = np.frombuffer(self.data[offset : offset + nbytes], np.uint8) if nbytes else copy
            return copy
        target, done, fd = memoryview(copy), 0, self._fd_owner.fileno()
        while done < nbytes:
            count = os.preadv(fd, [target[done : done + _CHUNK]], self.start + offset + done)
            if count == 0:
                raise UnpicklingError(f"the file ends inside the {nbytes} bytes at offset {offset}")
            done += count
        return copy

    def unmapped(self) -> None:
        """From now on copy views out of the file instead of sharing the mapping, where there is one."""
        if self._keep is not None:
            self._fd_owner, self._zero_copy = self._keep, False

    def finish(self, consumed: int) -> None:
        """Leave a seekable file object behind the `consumed` bytes, so that a next object can be read."""
        if self._file is not None and self._origin is not None:
            self._file.seek(self._origin + consumed)

    def close(self) -> None:
        """Close the file that this object opened; views stay valid."""
        if self._own is not None:
            self._own.close()
