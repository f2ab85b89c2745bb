"""Files that torch opens: the zip archive of 1.6 and later, and the run of pickles before it.

What to write comes from a `ArchiveLayout`: a pickle of the object and the storages it refers to.
"""

from __future__ import annotations

import contextlib
import os
import struct
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.core.checks import contiguous_strides

from .pickler import Global, Persistent, Pickler, PicklingError, Reduce, Token
from .readers import LEGACY_MAGIC, LEGACY_VERSION
from .records import STORAGE_NAMES, numpy_dtype, root_of
from .source import ALIGNMENT, is_path

__all__ = ["ArchiveLayout", "ZipWriter", "opened", "write_legacy", "write_zip"]

_STORAGE_OF = {element: name for name, element in STORAGE_NAMES.items() if "Untyped" not in name}
_CHUNK = 1 << 26  # bytes per write call
ZIP64_LIMIT = 0xFFFFFFFF  # sizes and offsets from here on go into zip64 fields


@dataclass
class ArchiveLayout:
    """The storages of the objects being saved: each block of memory once, under a running number.

    legacy: whether persistent ids get the sixth part of the old format.
    """

    legacy: bool = False
    keys: dict[tuple[int, int], str] = field(default_factory=dict)
    roots: list[np.ndarray] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    copies: dict[int, Any] = field(default_factory=dict)  # host copies of device memory

    def storage(self, root: np.ndarray, name: str, location: str = "cpu") -> tuple[Persistent, str]:
        """The persistent id of the memory of `root` as elements of type `name`, and the type it was first seen as."""
        address = root.__array_interface__["data"][0]
        key = self.keys.get((address, root.nbytes))
        if key is None or not root.nbytes:
            key = self.keys[address, root.nbytes] = str(len(self.roots))
            self.roots.append(root)
            self.names.append(name)
        first = self.names[int(key)]
        numel = root.nbytes // numpy_dtype(first).itemsize
        kind = Global("torch", _STORAGE_OF.get(first, "")) if first in _STORAGE_OF else _UNTYPED
        if first not in _STORAGE_OF:
            numel = root.nbytes
        if self.legacy and first not in _STORAGE_OF:
            raise PicklingError(f"the format before torch 1.6 has no form for elements of type {first}")
        pid = ("storage", kind, key, location, numel)
        return Persistent((*pid, None) if self.legacy else pid), first

    def tensor(self, array: np.ndarray, name: str, requires_grad: bool = False, location: str = "cpu") -> Reduce:
        """The call that rebuilds `array` (element type `name`) as a view of its storage.

        A view keeps its strides and offset, and its storage is saved whole, as torch does; memory with negative
        or partial strides, which torch has no form for, is copied first.
        """
        root = _flat(root_of(array))
        width = array.dtype.itemsize
        offset = 0
        if root is not None:
            offset = array.__array_interface__["data"][0] - root.__array_interface__["data"][0]
        steps = [s for s, n in zip(array.strides, array.shape) if n > 1]
        if root is None or root.nbytes % width or (array.size and any(x % width or x < 0 for x in (*steps, offset))):
            array = array.copy()
            root, offset = array.reshape(-1), 0
        storage, first = self.storage(root, name, location)
        if first != name and (name in _STORAGE_OF or first in _STORAGE_OF):
            # Saved under two types: torch has no form for that, so this one gets a storage of its own.
            array = array.copy()
            storage, _ = self.storage(array.reshape(-1), name, location)
            offset = 0
        offset = offset // width if array.size else 0
        stride = tuple(max(s, 0) // width for s in array.strides)
        if array.flags.c_contiguous:  # numpy leaves the strides of dims of size <= 1 arbitrary
            stride = contiguous_strides(array.shape)
        arguments = (storage, offset, tuple(array.shape), stride, requires_grad, Reduce(_ORDERED))
        if name in _STORAGE_OF:
            return Reduce(Global("torch._utils", "_rebuild_tensor_v2"), *arguments)
        return Reduce(Global("torch._utils", "_rebuild_tensor_v3"), *arguments, Global("torch", name))


_UNTYPED = Global("torch.storage", "UntypedStorage")
_ORDERED = Global("collections", "OrderedDict")


def _flat(root: np.ndarray) -> np.ndarray | None:
    """The block of memory of `root`, 1-dimensional; None where it is not one block."""
    if root.flags.c_contiguous:
        return root.reshape(-1)
    return root.T.reshape(-1) if root.flags.f_contiguous else None


@contextlib.contextmanager
def opened(f: Any) -> Iterator[Any]:
    """A binary file to write to.

    A path is written beside its target and put in place at the end, so that a file which is mapped by tensors in
    use is not changed under them, and a failure leaves the old one.
    """
    if not is_path(f):
        if not hasattr(f, "write"):
            raise AttributeError("expected 'f' to be string, path, or a file-like object with a 'write' attribute")
        yield f
        if hasattr(f, "flush"):
            f.flush()
        return
    target = os.path.realpath(os.fsdecode(os.fspath(f)))
    folder = os.path.dirname(target) or "."
    if os.path.exists(target) and not os.path.isfile(target):  # a pipe or a device
        with open(target, "wb") as out:
            yield out
        return
    if not os.path.isdir(folder):
        raise RuntimeError(f"Parent directory {folder} does not exist.")
    handle, part = tempfile.mkstemp(prefix=f".{os.path.basename(target)[:64]}.", suffix=".part", dir=folder)
    try:
        with os.fdopen(handle, "wb") as out:
            yield out
        if os.path.exists(target):
            mode = os.stat(target).st_mode & 0o7777
        else:
            mask = os.umask(0)
            os.umask(mask)
            mode = 0o666 & ~mask
        os.chmod(part, mode)
        os.replace(part, target)
    except BaseException as error:
        if isinstance(error, OSError) and error.errno is not None and error.filename is None:
            error.filename = target  # a full disk says which file
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise


def _blocks(content: Any) -> Iterator[memoryview]:
    view = memoryview(content)
    view = view if view.format == "B" else view.cast("B")
    for start in range(0, len(view), _CHUNK):
        yield view[start : start + _CHUNK]


def raw(root: np.ndarray) -> np.ndarray:
    """The bytes of a block, as uint8 (nbytes,)."""
    return root.reshape(-1).view(np.uint8)


class ZipWriter:
    """Stored entries whose data begin at multiples of 64 bytes, in the form of torch's own writer."""

    def __init__(self, f: Any) -> None:
        self.f, self.at = f, 0
        self.directory: list[bytes] = []

    def _write(self, content: Any) -> None:
        for block in _blocks(content):
            self.f.write(block)
            self.at += len(block)

    def add(self, name: str, content: Any) -> None:
        """Write one entry."""
        raw, crc, size, header = name.encode("utf-8"), 0, 0, self.at
        for block in _blocks(content):
            crc, size = zlib.crc32(block, crc), size + len(block)
        wide = size >= ZIP64_LIMIT
        extra = struct.pack("<HHQQ", 1, 16, size, size) if wide else b""
        short = 0xFFFFFFFF if wide else size
        # "FB" is the padding field of torch's writer; its 4 bytes of header are part of the sum.
        padding = -(header + 30 + len(raw) + len(extra) + 4) % ALIGNMENT
        extra += struct.pack("<2sH", b"FB", padding) + b"Z" * padding
        version = 45 if wide or header >= ZIP64_LIMIT else 20
        fields = struct.pack("<5H3L2H", version, 0x0800, 0, 0, 0x21, crc, short, short, len(raw), len(extra))
        self._write(b"PK\x03\x04" + fields + raw + extra)
        self._write(content)
        values = ([size, size] if wide else []) + ([header] if header >= ZIP64_LIMIT else [])
        extra = struct.pack(f"<HH{len(values)}Q", 1, 8 * len(values), *values) if values else b""
        fields = struct.pack(
            "<6H3L5H2L",
            version,
            version,
            0x0800,
            0,
            0,
            0x21,
            crc,
            short,
            short,
            len(raw),
            len(extra),
            0,
            0,
            0,
            0,
            min(header, 0xFFFFFFFF) if header < ZIP64_LIMIT else 0xFFFFFFFF,
        )
        self.directory.append(b"PK\x01\x02" + fields + raw + extra)

    def finish(self) -> None:
        """Write the central directory."""
        start, count = self.at, len(self.directory)
        self._write(b"".join(self.directory))
        size, end = self.at - start, self.at
        if count >= 0xFFFF or start >= ZIP64_LIMIT or size >= ZIP64_LIMIT:
            self._write(struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, size, start))
            self._write(struct.pack("<4sLQL", b"PK\x06\x07", 0, end, 1))
            start, size = 0xFFFFFFFF, 0xFFFFFFFF
        count = min(count, 0xFFFF)
        self._write(struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, count, count, size, start, 0))


def _pickler(plan: ArchiveLayout, substitute: Callable[[ArchiveLayout, Any], Token | None], rename: Any) -> Pickler:
    return Pickler(lambda obj: substitute(plan, obj), rename)


def write_zip(
    obj: Any, f: Any, substitute: Callable[[ArchiveLayout, Any], Token | None], rename: Any, root: str = "archive"
) -> int:
    """Write `obj` as the zip archive that torch >= 1.6 reads; returns the number of bytes.

    substitute(plan, obj) turns tensors into Tokens; rename gives the names of classes and functions.
    """
    plan = ArchiveLayout()
    data = _pickler(plan, substitute, rename).dump(obj)
    out = ZipWriter(f)
    out.add(f"{root}/data.pkl", data)
    out.add(f"{root}/.storage_alignment", str(ALIGNMENT).encode())
    out.add(f"{root}/byteorder", sys.byteorder.encode())
    for key, block in enumerate(plan.roots):
        out.add(f"{root}/data/{key}", raw(block))
    out.add(f"{root}/version", b"3\n")
    out.finish()
    return out.at


def write_legacy(obj: Any, f: Any, substitute: Callable[[ArchiveLayout, Any], Token | None], rename: Any) -> int:
    """Write `obj` in the format before torch 1.6; returns the number of bytes."""
    plan = ArchiveLayout(legacy=True)
    info = {
        "protocol_version": LEGACY_VERSION,
        "little_endian": sys.byteorder == "little",
        "type_sizes": {"short": 2, "int": 4, "long": 4},
    }
    main = _pickler(plan, substitute, rename).dump(obj)
    head = b"".join(Pickler().dump(x) for x in (LEGACY_MAGIC, LEGACY_VERSION, info))
    head += main + Pickler().dump([str(k) for k in range(len(plan.roots))])
    f.write(head)
    total = len(head)
    for block, name in zip(plan.roots, plan.names):
        width = numpy_dtype(name).itemsize if name in _STORAGE_OF else 1
        f.write(struct.pack("<q", block.nbytes // width))
        for part in _blocks(raw(block)):
            f.write(part)
        total += 8 + block.nbytes
    return total
