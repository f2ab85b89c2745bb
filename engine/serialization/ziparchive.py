"""The zip container, read strictly: one place for each byte, both headers in agreement.

Layout: https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT, sections 4.3 to 4.5.  `zipfile` is not
used because it is lenient where two readers could see two files: duplicate names, local headers that differ
from the central directory, overlapping entries, bytes before the archive.
"""

from __future__ import annotations

import os
import struct
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from .errors import DEFAULT_LIMITS, Limits, UnpicklingError, shown
from .source import Source, aligned_empty

__all__ = ["Entry", "ZipArchive"]

_END = struct.Struct("<4s4H2LH")  # end of central directory
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR64 = struct.Struct("<4sLQL")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_MAX16, _MAX32 = 0xFFFF, 0xFFFFFFFF
_ENCRYPTED, _DESCRIPTOR, _MASKED = 1, 8, 1 << 13
_STORED, _DEFLATED = 0, 8  # methods
_EXPANSION = 1032  # bytes that one byte of DEFLATE can stand for
_SMALL_PICKLE = 1 << 20  # bytes that a compressed pickle may always have
_PIECE = 1 << 24  # bytes decompressed, or summed up, at once
_WORTH_THREADS = 1 << 23  # bytes whose checksums take longer than threads take to begin
_MAX_THREADS = 8


@dataclass(slots=True)
class Entry:
    """One file of the archive: `size` bytes in `packed` bytes at `offset` of the file, checksum `crc`."""

    name: str
    size: int
    crc: int
    header: int
    method: int
    flags: int
    packed: int
    offset: int = -1
    sound: bool = False  # whether its checksum was compared


class ZipArchive:
    """The entries of a zip file by name.

    Entries are stored as they are, or deflated, as archives are that somebody has packed again.  Creating one reads the
    central directory; `check()` must pass before anything is read from an entry.  Both raise UnpicklingError for
    anything but plain entries that do not overlap.

    Whatever is read from an entry has the CRC-32 that the directory states; UnpicklingError else.  A CRC-32 of 0
    says that none was computed (`torch.serialization.set_crc32_options(False)`).  Where the caller has demanded a
    mapping (`mmap=True`), views of stored entries are not summed up: that would read the whole file.
    """

    def __init__(self, source: Source, limits: Limits = DEFAULT_LIMITS) -> None:
        self.source = source
        self.limits = limits
        count, self._directory, size = self._find_directory()
        self.entries = self._read_directory(count, self._directory, size)
        self._inflated: dict[str, np.ndarray] = {}

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

    def check(self) -> ZipArchive:
        """Refuse entries that are encrypted, truncated, overlapping, described in two ways or absurdly compressed."""
        data, free, directory, unpacked = self.source.data, 0, self._directory, 0
        for entry in sorted(self.entries.values(), key=lambda e: e.header):
            if entry.flags & (_ENCRYPTED | _MASKED):
                raise UnpicklingError(f"the zip entry {shown(entry.name)} is encrypted")
            if entry.method == _DEFLATED:
                unpacked += entry.size
                most = _EXPANSION * entry.packed
                if entry.name.endswith(".pkl"):  # a byte of it costs more time and memory than one of a tensor
                    most = min(most, _SMALL_PICKLE + self.limits.inflated_ratio * entry.packed)
                if entry.size > most:
                    raise UnpicklingError(
                        f"the zip entry {shown(entry.name)} is compressed to {entry.packed} bytes, too few for the "
                        f"{entry.size} bytes that it declares"
                    )
            elif entry.method != _STORED or entry.packed != entry.size:
                raise UnpicklingError(
                    f"the zip entry {shown(entry.name)} is compressed by a method other than DEFLATE, or its sizes "
                    "disagree"
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
        most = self.limits.inflated + self.limits.inflated_ratio * self.source.size
        if unpacked > most:
            raise UnpicklingError(
                f"the zip archive's compressed entries would fill {unpacked} bytes, more than {most} for a file of "
                f"{self.source.size} bytes; pack it again without compression if you trust it"
            )
        return self

    def verify(self) -> ZipArchive:
        """Compare the checksums of all stored entries, on several threads where that is worth it."""
        waiting = [e for e in self.entries.values() if e.method == _STORED and not self._is_sound(e)]
        threads = min(_MAX_THREADS, os.cpu_count() or 1, len(waiting))
        if threads > 1 and sum(e.size for e in waiting) >= _WORTH_THREADS:
            waiting.sort(key=lambda e: -e.size)
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(self._verify, waiting))
        else:
            for entry in waiting:
                self._verify(entry)
        return self

    def _is_sound(self, entry: Entry) -> bool:
        """Return whether there is nothing to compare: it was compared, is lazily mapped, or has no checksum."""
        return entry.sound or entry.crc == 0 or (self.source.demanded and entry.method == _STORED)

    def _verify(self, entry: Entry) -> None:
        if self._is_sound(entry):
            return
        content, crc = self.source.data[entry.offset : entry.offset + entry.size], 0
        for start in range(0, entry.size, _PIECE):
            crc = zlib.crc32(content[start : start + _PIECE], crc)
        self._compare(entry, crc)

    def _compare(self, entry: Entry, crc: int) -> None:
        if crc != entry.crc != 0:
            raise UnpicklingError(
                f"the zip entry {shown(entry.name)} is damaged: its CRC-32 is {crc:08x}, the archive says "
                f"{entry.crc:08x}"
            )
        entry.sound = True

    def read(self, name: str) -> memoryview:
        """The content of an entry, without a copy where it is stored.  Raises KeyError if there is none."""
        entry = self.entries[name]
        if entry.method == _DEFLATED:
            return memoryview(self._inflate(entry))
        self._verify(entry)
        return self.source.data[entry.offset : entry.offset + entry.size]

    def text(self, name: str, most: int) -> bytes:
        """The content of an entry of at most `most` bytes; UnpicklingError if it has more."""
        entry = self.entries[name]
        if entry.size > most:
            raise UnpicklingError(f"the zip entry {shown(name)} has {entry.size} bytes, more than {most}")
        return bytes(self.read(name))

    def _inflate(self, entry: Entry) -> np.ndarray:
        """The decompressed content of an entry: uint8 (size,), writable, made once."""
        made = self._inflated.get(entry.name)
        if made is not None:
            return made
        made, at, crc = aligned_empty(entry.size), 0, 0
        target, rest = memoryview(made), self.source.data[entry.offset : entry.offset + entry.packed]
        inflater = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            while not inflater.eof:
                piece = inflater.decompress(rest, min(_PIECE, entry.size - at + 1))
                rest = inflater.unconsumed_tail
                if at + len(piece) > entry.size or not (piece or rest or inflater.eof):
                    break  # more than is declared, or an end before the stream's
                target[at : at + len(piece)] = piece
                crc, at = zlib.crc32(piece, crc), at + len(piece)
        except zlib.error as e:
            raise UnpicklingError(f"the zip entry {shown(entry.name)} cannot be decompressed: {shown(e)}") from None
        if not inflater.eof or at != entry.size or inflater.unused_data:
            raise UnpicklingError(
                f"the zip entry {shown(entry.name)} is damaged: it does not decompress to the {entry.size} bytes that "
                "it declares"
            )
        self._compare(entry, crc)
        self._inflated[entry.name] = made
        return made

    def view(self, name: str, nbytes: int) -> np.ndarray:
        """The first `nbytes` of an entry as a writable uint8 array (nbytes,)."""
        entry = self.entries.get(name)
        if entry is None:
            if nbytes == 0:
                return np.empty(0, np.uint8)
            raise UnpicklingError(f"the zip archive lacks the entry {shown(name)}")
        if nbytes > entry.size:
            raise UnpicklingError(f"the zip entry {shown(name)} has {entry.size} bytes, but {nbytes} are declared")
        if entry.method == _DEFLATED:
            made = self._inflate(entry)
            return made if nbytes == entry.size else made[:nbytes]
        self._verify(entry)
        return self.source.view(entry.offset, nbytes)

    def damaged(self) -> list[str]:
        """Names of the entries whose content is not what the directory says; reads the whole file."""
        found = []
        for name in self.entries:
            try:
                self.read(name)
            except UnpicklingError:
                found.append(name)
        return found


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
