"""The three formats of torch: the zip archive (1.6 and later), the run of pickles before it, and the tar of 2016.

Byte layouts: torch/serialization.py `_load` and `_legacy_load` (release 2.13); none of it is executed here.
"""

from __future__ import annotations

import struct
import tarfile
from collections.abc import Callable
from typing import Any

import numpy as np

from .errors import DEFAULT_LIMITS, Limits, UnpicklingError, shown
from .globals import InertResolver, SafeResolver, StorageType
from .records import Budget, RawStorage, numpy_dtype, strided
from .source import Source
from .unpickler import Unpickler
from .ziparchive import ZipArchive

__all__ = [
    "LEGACY_MAGIC",
    "LEGACY_VERSION",
    "globals_of",
    "list_globals",
    "read_legacy",
    "read_tar",
    "read_zip",
    "storage_reader",
    "zip_root",
]

LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
LEGACY_VERSION = 1001
_MAX_NUMEL = 1 << 60
_LOOK = 16 << 20  # bytes of pickle that the budget of a first look assumes


class _Storages:
    """The storages of one file by key: each byte range is taken once, each element type has one RawStorage."""

    def __init__(self, view: Callable[[str, int], np.ndarray], swap: bool) -> None:
        self.view, self.swap = view, swap
        self.found: dict[tuple[str, str], RawStorage] = {}
        self.arrays: dict[str, np.ndarray] = {}

    def get(self, key: str, name: str, location: str, numel: int) -> RawStorage:
        storage = self.found.get((key, name))
        nbytes = numel * numpy_dtype(name).itemsize
        if storage is None:
            array = self.arrays.get(key)
            if array is None or array.size < nbytes:
                array = self.arrays[key] = self.view(key, nbytes)
            storage = self.found[key, name] = RawStorage(array, name, key, location, self.swap)
        elif storage.array.size < nbytes:
            raise UnpicklingError(f"the storage {shown(key)} is declared with two sizes")
        return storage


def _storage_id(pid: Any) -> tuple[StorageType, str, str, int, Any]:
    """Type, key, location, element count and view of a persistent id; UnpicklingError unless it is a storage's."""
    if type(pid) is not tuple or len(pid) not in (5, 6) or _text(pid[0]) != "storage":
        raise UnpicklingError("the file refers to an object outside its pickle that is not a storage")
    kind, key, location, numel = pid[1:5]
    key, location = _text(key), _text(location)
    if not isinstance(kind, StorageType) or type(key) is not str or type(location) is not str:
        raise UnpicklingError("the file has a storage without a type, a key or a location")
    if type(numel) is not int or not 0 <= numel < _MAX_NUMEL:
        raise UnpicklingError(f"the storage {shown(key)} declares the absurd size {shown(numel)}")
    return kind, key, location, numel, pid[5] if len(pid) == 6 else None


def _text(value: Any) -> Any:
    return value.decode("latin1") if type(value) is bytes else value


# -- zip -----------------------------------------------------------------------------------------------


def zip_root(archive: ZipArchive) -> str:
    """The folder that holds `data.pkl`.  Raises UnpicklingError, naming what the archive is instead."""
    roots = [n[: -len("data.pkl")] for n in archive.entries if n.endswith("/data.pkl") and n.count("/") == 1]
    if not roots:
        names = list(archive.entries)
        if any(n.endswith(".npy") for n in names):
            what = "a numpy .npz file"
        elif any(n.startswith("META-INF/") or n.endswith("/METADATA") for n in names):
            what = "a package"
        else:
            what = "not a checkpoint: it has no data.pkl"
        raise UnpicklingError(f"the zip archive is {what}")
    if len(roots) > 1:
        raise UnpicklingError("the zip archive has more than one data.pkl")
    if f"{roots[0]}constants.pkl" in archive.entries:
        raise UnpicklingError(
            "the file is a TorchScript archive (torch.jit.save): it holds a program, which torch.jit.load reads"
        )
    return roots[0]


def read_zip(source: Source, resolver: SafeResolver, encoding: str, limits: Limits = DEFAULT_LIMITS) -> Any:
    """The object in a zip archive; tensors are views of the file where it is mapped."""
    archive = ZipArchive(source, limits)
    root = zip_root(archive)
    archive.check().verify()
    u = Unpickler(
        archive.read(f"{root}data.pkl"),
        resolver=resolver,
        persistent_load=storage_reader(archive, root),
        encoding=encoding,
        limits=limits,
    )
    return u.load()


def storage_reader(
    archive: ZipArchive, root: str, folder: str = "data", suffix: str = ""
) -> Callable[[Any], RawStorage]:
    """Return the function that resolves the persistent ids of a pickle in a zip archive: storages in `folder`, under
    key and suffix."""
    order = b"little"
    if f"{root}byteorder" in archive.entries:
        order = bytes(archive.read(f"{root}byteorder")[:16])
        if order not in (b"little", b"big"):
            raise UnpicklingError(f"the file has the byte order {shown(order)}")
    storages = _Storages(
        lambda key, nbytes: archive.view(f"{root}{folder}/{key if key.endswith(suffix) else key + suffix}", nbytes),
        order != _native(),
    )

    def persistent_load(pid: Any) -> RawStorage:
        kind, key, location, numel, _ = _storage_id(pid)
        return storages.get(key, kind.element, location, numel)

    return persistent_load


def _native() -> bytes:
    return b"little" if struct.pack("=H", 1) == b"\1\0" else b"big"


# -- the run of pickles --------------------------------------------------------------------------------


def _plain(source: Source, position: int, encoding: str, limits: Limits) -> tuple[Any, int]:
    """A pickle of plain data at `position`, and where it ends."""
    u = Unpickler(
        source.data,
        position,
        resolver=_NothingResolver(),
        encoding=encoding,
        limits=limits,
        budget=Budget(limits.base_memory),
    )
    return u.load(), u.position


class _NothingResolver(InertResolver):
    """For headers, which name no globals."""

    def find_global(self, u: Unpickler, module: str, name: str) -> Any:
        raise UnpicklingError(f"Unsupported global: {shown(module)}.{shown(name)} was refused in the file's header")


def _look(
    data: Any, at: int, resolver: InertResolver, persistent_load: Callable[[Any], Any], encoding: str, limits: Limits
) -> Unpickler:
    """Run a pickle whose end is not known, building nothing."""
    budget = Budget(limits.base_memory + limits.memory_ratio * min(len(data) - at, _LOOK))
    u = Unpickler(
        data, at, resolver=resolver, persistent_load=persistent_load, encoding=encoding, limits=limits, budget=budget
    )
    u.load()
    return u


def read_legacy(
    source: Source, resolver: SafeResolver, encoding: str, limits: Limits = DEFAULT_LIMITS
) -> tuple[Any, int]:
    """The object in a file of torch < 1.6, and the position behind it.

    The storages follow the pickle that uses them, so the pickle is run twice: first building nothing, to learn
    the storages' types and where the pickle ends, then in earnest.
    """
    magic, at = _plain(source, 0, encoding, limits)
    if magic != LEGACY_MAGIC:
        raise UnpicklingError("Invalid magic number; corrupt file?")
    version, at = _plain(source, at, encoding, limits)
    if version != LEGACY_VERSION:
        raise UnpicklingError(f"Invalid protocol version: {shown(version)}")
    info, begin = _plain(source, at, encoding, limits)
    if type(info) is not dict:
        raise UnpicklingError("the file has no description of the machine that wrote it")
    little = info.get("little_endian", info.get(b"little_endian", True)) is not False

    declared: dict[str, tuple[str, int]] = {}

    def note(pid: Any) -> Any:
        if type(pid) is tuple and pid and _text(pid[0]) == "module":
            return pid[1] if len(pid) > 1 else None
        kind, key, _, numel, _ = _storage_id(pid)
        name, most = declared.get(key, (kind.element, 0))
        declared[key] = (name, max(most, numel))
        return kind

    first = _look(source.data, begin, InertResolver(), note, encoding, limits)
    keys, at = _plain(source, first.position, encoding, limits)
    if type(keys) is not list or not all(type(_text(k)) is str for k in keys):
        raise UnpicklingError("the file has no list of storages")
    arrays: dict[str, np.ndarray] = {}
    for key in map(_text, keys):
        if key not in declared or key in arrays:
            raise UnpicklingError(f"the file stores {shown(key)}, which its pickle does not use, or stores it twice")
        name, numel = declared[key]
        arrays[key], at = _sized_storage(source, at, name, key)
        if arrays[key].size < numel * numpy_dtype(name).itemsize:
            raise UnpicklingError(
                f"the storage {shown(key)} has {arrays[key].size} bytes, fewer than its pickle declares"
            )
    missing = declared.keys() - arrays.keys()
    if missing:
        raise UnpicklingError(f"the file lacks the storage {shown(min(missing))}")

    swap = little != (_native() == b"little")
    storages = _Storages(lambda key, nbytes: arrays[key][:nbytes], swap)
    whole = _Storages(lambda key, nbytes: arrays[key], swap)

    def persistent_load(pid: Any) -> Any:
        if type(pid) is tuple and pid and _text(pid[0]) == "module":
            if len(pid) != 4:
                raise UnpicklingError("the file describes a module's source wrongly")
            return pid[1]
        kind, key, location, numel, view = _storage_id(pid)
        if view is None:
            return whole.get(key, kind.element, location, numel)
        if type(view) is not tuple or len(view) != 3 or type(_text(view[0])) is not str:
            raise UnpicklingError("the file describes a part of a storage wrongly")
        return _part(whole.get(key, kind.element, location, numel), _text(view[0]), view[1], view[2], storages)

    u = Unpickler(
        source.data[begin : first.position],
        resolver=resolver,
        persistent_load=persistent_load,
        encoding=encoding,
        limits=limits,
    )
    return u.load(), at


def _sized_storage(source: Source, at: int, name: str, key: str) -> tuple[np.ndarray, int]:
    """Bytes of a storage written as int64 element count and raw data, and where they end."""
    if at + 8 > source.size:
        raise UnpicklingError("the file is truncated inside its storages")
    (numel,) = struct.unpack_from("<q", source.data, at)
    if not 0 <= numel < _MAX_NUMEL:
        raise UnpicklingError(f"the storage {shown(key)} declares the absurd size {numel}")
    nbytes = numel * numpy_dtype(name).itemsize
    if at + 8 + nbytes > source.size:
        raise UnpicklingError(f"the storage {shown(key)} of {nbytes} bytes is truncated")
    return source.view(at + 8, nbytes), at + 8 + nbytes


def _part(root: RawStorage, key: str, offset: Any, numel: Any, parts: _Storages) -> RawStorage:
    """The elements [offset, offset + numel) of a storage, as a storage that shares its memory."""
    width = root.dtype.itemsize
    if type(offset) is not int or type(numel) is not int or offset < 0 or numel < 0:
        raise UnpicklingError("the file describes a part of a storage wrongly")
    if (offset + numel) * width > root.array.size:
        raise UnpicklingError(f"the part {shown(key)} reaches outside its storage of {root.array.size} bytes")
    part = parts.found.get((key, root.name))
    if part is None:
        array = root.native(root.dtype)[offset * width : (offset + numel) * width]
        part = parts.found[key, root.name] = RawStorage(array, root.name, key, root.location)
    return part


# -- tar -----------------------------------------------------------------------------------------------


def read_tar(source: Source, resolver: SafeResolver, encoding: str, limits: Limits = DEFAULT_LIMITS) -> Any:
    """The object in a tar file of torch < 0.1.10: members `storages`, `tensors` and `pickle`."""
    members = _tar_members(source)
    for name in ("storages", "tensors", "pickle"):
        if name not in members:
            raise UnpicklingError(f"the tar file is truncated or not a checkpoint: it has no member {name}")
    objects: dict[Any, Any] = {}
    swap = _native() != b"little"

    def declare(key: Any, value: Any) -> None:
        if type(key) is not int or key in objects:
            raise UnpicklingError(f"the tar file has the object {shown(key)} twice, or under no number")
        objects[key] = value

    def is_storage(key: Any) -> bool:
        return type(key) is int and type(objects.get(key)) is RawStorage

    def header(position: int, end: int) -> tuple[Any, int]:
        u = Unpickler(
            source.data[:end],
            position,
            resolver=resolver,
            encoding=encoding,
            limits=limits,
            budget=Budget(limits.base_memory),
        )
        return u.load(), u.position

    def count(value: Any, what: str, end: int) -> int:
        if type(value) is not int or not 0 <= value <= end:
            raise UnpicklingError(f"the tar file declares {shown(value)} {what}")
        return value

    at, size = members["storages"]
    end = at + size
    number, at = header(at, end)
    for _ in range(count(number, "storages", size)):
        described, at = header(at, end)
        if type(described) is not tuple or len(described) != 3 or not isinstance(described[2], StorageType):
            raise UnpicklingError("the tar file describes a storage wrongly")
        key, location, kind = described
        location = _text(location)
        if type(key) is not int or type(location) is not str:
            raise UnpicklingError("the tar file describes a storage wrongly")
        array, at = _sized_storage(source, at, kind.element, str(key))
        if at > end:
            raise UnpicklingError(f"the storage {shown(key)} is truncated")
        declare(key, RawStorage(array, kind.element, str(key), location, swap))
    views, at = header(at, end)
    for view in views if type(views) is list else ():
        if type(view) is not tuple or len(view) != 4 or not is_storage(view[1]) or type(view[0]) is not int:
            raise UnpicklingError("the tar file describes a part of a storage wrongly")
        declare(view[0], _part(objects[view[1]], str(view[0]), view[2], view[3], _Storages(source.view, swap)))

    at, size = members["tensors"]
    end = at + size
    number, at = header(at, end)
    for _ in range(count(number, "tensors", size)):
        described, at = header(at, end)
        if type(described) is not tuple or len(described) != 3 or not is_storage(described[1]):
            raise UnpicklingError("the tar file describes a tensor wrongly")
        storage = objects[described[1]]
        ndim = struct.unpack_from("<i", source.data, at)[0] if at + 8 <= end else -1
        if not 0 <= ndim <= 64 or at + 16 + 16 * ndim > end:
            raise UnpicklingError(f"the tar file has a tensor of {ndim} dimensions, or is truncated")
        numbers = struct.unpack_from(f"<{2 * ndim + 1}q", source.data, at + 8)
        at += 16 + 16 * ndim
        array = strided(storage, storage.name, numbers[-1], numbers[:ndim], numbers[ndim:-1], limits)
        declare(described[0], resolver.builder.tensor(array, storage, False))

    def persistent_load(pid: Any) -> Any:
        if type(pid) is tuple and pid:  # (class, source file, source) of a module
            return pid[0]
        if type(pid) not in (int, str) or not str(pid).isdecimal() or int(pid) not in objects:
            raise UnpicklingError(f"the tar file refers to the object {shown(pid)}, which it does not have")
        return objects[int(pid)]

    at, size = members["pickle"]
    u = Unpickler(
        source.data[at : at + size],
        resolver=resolver,
        persistent_load=persistent_load,
        encoding=encoding,
        limits=limits,
    )
    return u.load()


def _tar_members(source: Source) -> dict[str, tuple[int, int]]:
    """Offset and size of the regular members of a tar file."""
    members: dict[str, tuple[int, int]] = {}
    at = 0
    while at + 512 <= source.size and len(members) < 64:
        block = bytes(source.data[at : at + 512])
        if not any(block):
            break
        try:
            info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except (tarfile.HeaderError, ValueError) as e:
            raise UnpicklingError(f"the tar file is malformed: {shown(e)}") from None
        start = at + 512
        if info.size < 0 or start + info.size > source.size:
            raise UnpicklingError(f"the tar member {shown(info.name)} is truncated")
        name = info.name.removeprefix("./")
        if info.isreg():
            if name in members:
                raise UnpicklingError(f"the tar file has the member {shown(name)} twice")
            members[name] = (start, info.size)
        elif info.type in (tarfile.GNUTYPE_SPARSE, tarfile.LNKTYPE, tarfile.SYMTYPE):
            raise UnpicklingError(f"the tar member {shown(name)} is a link or a sparse file, which is refused")
        at = start + -(-info.size // 512) * 512
    return members


# -- inspection ----------------------------------------------------------------------------------------


def globals_of(data: Any, limits: Limits = DEFAULT_LIMITS) -> list[str]:
    """The global names in one pickle (a buffer), found without building anything."""
    resolver = InertResolver()
    _look(data, 0, resolver, lambda pid: None, "utf-8", limits)
    return list(resolver.paths)


def list_globals(
    source: Source, kind: str, encoding: str = "utf-8", limits: Limits = DEFAULT_LIMITS
) -> tuple[list[str], set[str]]:
    """The global names in a file of format `kind` (`zip`, `legacy` or `tar`), and those that objects are made of.

    Nothing is built.
    """
    resolver = InertResolver()
    if kind == "zip":
        archive = ZipArchive(source, limits)
        root = zip_root(archive)
        data, at = archive.check().read(f"{root}data.pkl"), 0
    elif kind == "legacy":
        data, at = source.data, 0
        for _ in range(3):
            _, at = _plain(source, at, encoding, limits)
    else:
        members = _tar_members(source)
        begin, size = members.get("pickle", (0, 0))
        data, at = source.data[begin : begin + size], 0
    _look(data, at, resolver, lambda pid: None, encoding, limits)
    return list(resolver.paths), resolver.made
