"""The zip container, read strictly: one place for each byte, both headers in agreement.

Layout: https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT, sections 4.3 to 4.5.  `zipfile` is not
used because it is lenient where two readers could see two files: duplicate names, local headers that differ
from the central directory, overlapping entries, bytes before the archive.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .errors import DEFAULT_LIMITS, Limits, UnpicklingError, shown
from .source import Source

__all__ = ["Entry", "ZipArchive"]

_END = struct.Struct("<4s4H2LH")  # end of central directory
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR64 = struct.Struct("<4sLQL")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_MAX16, _MAX32 = 0xFFFF, 0xFFFFFFFF
_ENCRYPTED, _DESCRIPTOR, _MASKED = 1, 8, 1 << 13
_DEFLATED = 8  # the method


@dataclass(slots=True)
class Entry:
    """One file of the archive: `size` bytes at `offset` of the content, checksum `crc`."""

    name: str
    size: int
    crc: int
    header: int
    method: int
    flags: int
    packed: int
    offset: int = -1


class ZipArchive:
    """The entries of a zip file by name.

    Entries are stored as they are; those that a caller of `check` names may be compressed, and are read by `inflated`.
    Creating one reads the central directory; `check()` must pass before anything is read from an entry.  Both
    raise UnpicklingError for anything but plain stored entries that do not overlap.
    """

    def __init__(self, source: Source, limits: Limits = DEFAULT_LIMITS) -> None:
        self.source = source
        self.limits = limits
        count, self._directory, size = self._find_directory()
        self.entries = self._read_directory(count, self._directory, size)

    def _find_directory(self) -> tuple[int, int, int]:
        """Number of entries, offset and size of the central directory."""
        data, length = self.source.data, self.source.size
        tail = bytes(data[max(0, length - _END.size - _MAX16) :])
        at = tail.rfind(b"PK\x05\x06")
        while at >= 0:
            if len(tail) - at >= _END.size:
                fields = _END.unpack_from(tail, at)
                if at + _END.size + fields[7] == len(tail):
                    break
            at = tail.rfind(b"PK\x05\x06", 0, at)
        else:
            raise UnpicklingError("the zip archive is truncated: it has no central directory at its end")
        end = length - len(tail) + at
        _, disk, first_disk, here, count, size, start, _ = fields
        if end >= _LOCATOR64.size and bytes(data[end - _LOCATOR64.size : end][:4]) == b"PK\x06\x07":
            _, disk64, where, disks = _LOCATOR64.unpack_from(data, end - _LOCATOR64.size)
            if disk64 or disks > 1 or where + _END64.size > end - _LOCATOR64.size:
                raise UnpicklingError("the zip archive has a malformed zip64 directory")
            magic, _, _, _, disk, first_disk, here, count, size, start = _END64.unpack_from(data, where)
            if magic != b"PK\x06\x06":
                raise UnpicklingError("the zip archive has a malformed zip64 directory")
            end = where
        if disk or first_disk or here != count:
            raise UnpicklingError("the zip archive is one part of several")
        if start + size != end:
            raise UnpicklingError("the zip archive's central directory is not where the archive says")
        if count > self.limits.entries or count * _CENTRAL.size > size:
            raise UnpicklingError(f"the zip archive declares {count} entries in a directory of {size} bytes")
        return count, start, size

    def _read_directory(self, count: int, start: int, size: int) -> dict[str, Entry]:
        directory = bytes(self.source.data[start : start + size])
        entries: dict[str, Entry] = {}
        at, unpack, width = 0, _CENTRAL.unpack_from, _CENTRAL.size
        for _ in range(count):
            if at + width > size:
                raise UnpicklingError("the zip archive's central directory is truncated")
            (magic, _, _, flags, method, _, _, crc, packed, full, n_name, n_extra, n_comment, disk, _, _, header) = (
                unpack(directory, at)
            )
            stop = at + width + n_name
            if magic != b"PK\x01\x02" or stop + n_extra + n_comment > size:
                raise UnpicklingError("the zip archive's central directory is malformed")
            try:
                name = directory[at + width : stop].decode("utf-8")
            except UnicodeDecodeError:
                raise UnpicklingError("the zip archive has an entry whose name is not UTF-8") from None
            if _MAX32 in (full, packed, header):
                full, packed, header = _zip64(directory[stop : stop + n_extra], full, packed, header)
            if name in entries:
                raise UnpicklingError(f"the zip archive has the entry {shown(name)} twice")
            if disk not in (0, _MAX16):
                raise UnpicklingError("the zip archive is one part of several")
            entries[name] = Entry(name, full, crc, header, method, flags, packed)
            at = stop + n_extra + n_comment
        if at != size:
            raise UnpicklingError("the zip archive's central directory has bytes behind its last entry")
        return entries

    def check(self, compressed: Callable[[str], bool] = lambda name: False) -> ZipArchive:
        """Refuse entries that are compressed, encrypted, truncated, overlapping or described in two ways.

        compressed(name) tells which entries may be deflated: torch's archives of programs compress their code.
        """
        data, free, directory = self.source.data, 0, self._directory
        for entry in sorted(self.entries.values(), key=lambda e: e.header):
            if entry.flags & (_ENCRYPTED | _MASKED):
                raise UnpicklingError(f"the zip entry {shown(entry.name)} is encrypted")
            deflated = entry.method == _DEFLATED and compressed(entry.name)
            if not deflated and (entry.method != 0 or entry.packed != entry.size):
                raise UnpicklingError(
                    f"the zip entry {shown(entry.name)} is compressed; checkpoints store their entries"
                )
            if entry.header < free:
                raise UnpicklingError(f"the zip entry {shown(entry.name)} overlaps another")
            if entry.header + _LOCAL.size > directory:
                raise UnpicklingError(f"the zip entry {shown(entry.name)} is truncated")
            (magic, _, flags, method, _, _, crc, packed, full, n_name, n_extra) = _LOCAL.unpack_from(data, entry.header)
            if magic != b"PK\x03\x04":
                raise UnpicklingError(f"the zip entry {shown(entry.name)} has no header where the directory says")
            begin = entry.header + _LOCAL.size
            name = bytes(data[begin : begin + n_name])
            offset = begin + n_name + n_extra
            if offset + entry.packed > directory:
                raise UnpicklingError(f"the zip entry {shown(entry.name)} is truncated")
            if _MAX32 in (packed, full):
                full, packed, _ = _zip64(bytes(data[begin + n_name : offset]), full, packed, 0)
            deferred = bool(flags & _DESCRIPTOR) and (crc, packed, full) == (0, 0, 0)
            if (
                name != entry.name.encode("utf-8")
                or method != entry.method
                or flags & (_ENCRYPTED | _MASKED)
                or not (deferred or (crc, packed, full) == (entry.crc, entry.packed, entry.size))
            ):
                raise UnpicklingError(f"the zip entry {shown(entry.name)} differs between its header and the directory")
            entry.offset, free = offset, offset + entry.packed
        return self

    def read(self, name: str) -> memoryview:
        """The bytes of an entry, without a copy.  Raises KeyError if there is none."""
        entry = self.entries[name]
        return self.source.data[entry.offset : entry.offset + entry.size]

    def inflated(self, name: str, most: int) -> bytes:
        """The content of an entry of at most `most` bytes, its checksum verified; UnpicklingError if it has more."""
        entry = self.entries[name]
        if entry.size > most:
            raise UnpicklingError(f"the zip entry {shown(name)} has {entry.size} bytes, more than {most}")
        packed = self.source.data[entry.offset : entry.offset + entry.packed]
        if entry.method != _DEFLATED:
            content = bytes(packed)
        else:
            inflater = zlib.decompressobj(-zlib.MAX_WBITS)
            try:
                content = inflater.decompress(packed, entry.size + 1)
            except zlib.error as e:
                raise UnpicklingError(f"the zip entry {shown(name)} cannot be decompressed: {shown(e)}") from None
        if len(content) != entry.size or zlib.crc32(content) != entry.crc:
            raise UnpicklingError(f"the zip entry {shown(name)} is damaged: size or checksum differ")
        return content

    def view(self, name: str, nbytes: int) -> np.ndarray:
        """The first `nbytes` of an entry as a writable uint8 array (nbytes,)."""
        entry = self.entries.get(name)
        if entry is None:
            if nbytes == 0:
                return np.empty(0, np.uint8)
            raise UnpicklingError(f"the zip archive lacks the entry {shown(name)}")
        if nbytes > entry.size:
            raise UnpicklingError(f"the zip entry {shown(name)} has {entry.size} bytes, but {nbytes} are declared")
        return self.source.view(entry.offset, nbytes)

    def damaged(self) -> list[str]:
        """Names of the entries whose checksum is wrong; reads the whole file."""
        return [
            name
            for name, entry in self.entries.items()
            if not entry.method and zlib.crc32(self.read(name)) != entry.crc
        ]


def _zip64(extra: bytes, full: int, packed: int, header: int) -> tuple[int, int, int]:
    """Sizes and offset, those that are all ones taken from the zip64 extra field."""
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, at)
        if kind == 1:
            field, values, i = extra[at + 4 : at + 4 + length], [full, packed, header], 0
            for k, value in enumerate(values):
                if value == _MAX32:
                    if i + 8 > len(field):
                        raise UnpicklingError("the zip archive has a malformed zip64 entry")
                    values[k] = struct.unpack_from("<Q", field, i)[0]
                    i += 8
            return values[0], values[1], values[2]
        at += 4 + length
    return full, packed, header
