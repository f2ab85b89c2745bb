"""Recognise the formats, read any of them, and convert between them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from . import placeholders, plain
from .allow import AllowList
from .arrays import ArrayBuilder
from .errors import DEFAULT_LIMITS, CallerError, Limits, UnpicklingError, UnsupportedGlobalError, shown
from .gguf import MAGIC as GGUF_MAGIC
from .gguf import LazyArray, open_gguf, read_gguf, storage_of
from .globals import Builder, SafeResolver
from .readers import list_globals, read_legacy, read_tar, read_zip
from .safetensors import looks_like, read_safetensors, write_safetensors
from .sharded import is_index, read_index, read_shards
from .source import Source, is_path, naming
from .ziparchive import ZipArchive

__all__ = [
    "Conversion",
    "Description",
    "convert",
    "describe",
    "format_of",
    "get_unsafe_globals_in_checkpoint",
    "read",
    "read_arrays",
    "sniff",
]

_LEGACY_HEAD = b"\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."  # the magic number as LONG1
_OTHERS = (
    (b"\x1f\x8b", "a gzip file: unpack it first"),
    (b"BZh", "a bzip2 file: unpack it first"),
    (b"\xfd7zXZ", "an xz file: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "a zstandard file: unpack it first"),
    (b"\x89HDF", "an HDF5 file (Keras)"),
    (b"\x93NUMPY", "a numpy .npy file"),
    (b"version https://git-lfs", "a Git LFS pointer: the weights themselves were not fetched"),
)


def format_of(source: Source) -> str:
    """`zip`, `torchscript`, `package`, `legacy`, `tar`, `safetensors`, `gguf` or `unknown`, from the content alone."""
    head = bytes(source.data[:512])
    if head[:4] == GGUF_MAGIC:
        return "gguf"
    if head[:4] == b"PK\x03\x04":
        try:
            names = ZipArchive(source).entries
        except UnpicklingError:
            return "zip"
        if any(n.count("/") == 1 and n.endswith("/constants.pkl") for n in names):
            return "torchscript"
        return "package" if any(n.partition("/")[2] == ".data/extern_modules" for n in names) else "zip"
    if head[:1] == b"\x80" and head[2 : 2 + len(_LEGACY_HEAD)] == _LEGACY_HEAD:
        return "legacy"
    if head[257:262] == b"ustar" or _old_tar(head):
        return "tar"
    return "safetensors" if looks_like(head[:16], source.size) else "unknown"


def _old_tar(head: bytes) -> bool:
    """Return whether 512 bytes are a tar header without the `ustar` mark: their checksum tells."""
    if len(head) < 512 or not head[0]:
        return False
    try:
        stated = int(head[148:156].strip(b" \0") or b"x", 8)
    except ValueError:
        return False
    return stated == sum(head[:148]) + 8 * 32 + sum(head[156:])


def sniff(f: Any) -> str:
    """The format of a file: `zip`, `torchscript`, `package`, `legacy`, `tar`, `safetensors`, `gguf`, `sharded` or
    `unknown`.

    f: path or seekable binary file object, which is left where it was.  An index of a sharded checkpoint is known by
    its name.
    """
    if is_index(f):
        return "sharded"
    here = None if is_path(f) else f.tell()
    source = Source(f)
    try:
        return format_of(source)
    finally:
        source.close()
        if here is not None:
            f.seek(here)


def _unknown(source: Source) -> UnpicklingError:
    head = bytes(source.data[:64])
    if not head:
        return UnpicklingError("the file is empty")
    for magic, what in _OTHERS:
        if head.startswith(magic):
            return UnpicklingError(f"the file is {what}")
    if head.lstrip()[:1] == b"<":
        return UnpicklingError("the file is a web page, not a checkpoint: the download failed or needs a log-in")
    if head[:1] == b"\x80":
        return UnpicklingError("Invalid magic number; corrupt file? It is a pickle, but not one of torch")
    if len(head) >= 9 and head[8:9] == b"{":
        return UnpicklingError("the safetensors file is truncated inside its header")
    return UnpicklingError(f"the file is in none of torch's formats: it begins with {shown(head[:8].hex(' '))}")


def _package() -> UnpicklingError:
    return UnpicklingError(
        "the file is a torch.package archive, whose Python source would be executed: torch.package.PackageImporter "
        "does that, for what is trusted"
    )


def read(
    f: Any,
    builder: Builder,
    *,
    allow: AllowList | None = None,
    mmap: bool | None = None,
    encoding: str = "utf-8",
    limits: Limits = DEFAULT_LIMITS,
    formats: tuple[str, ...] = (),
    shards: Mapping[str, Any] | None = None,
) -> Any:
    """The object in a checkpoint of any format (or of `formats` only), its tensors made by `builder`.

    A safetensors or GGUF file gives a dict, and so does the index of a sharded checkpoint: by the name of a path, or
    where `shards` says where its files are.  mmap=True demands a mapping, which only zip, safetensors and GGUF permit
    (there quantized tensors are computed, as float32).
    """
    if shards is not None or (is_index(f) and not formats):
        one = lambda path: read(path, builder, allow=allow, mmap=mmap, encoding=encoding, limits=limits)
        return read_shards(f, one, builder.is_tensor, shards)
    with naming(f):
        source = Source(f, mmap)
        try:
            kind = format_of(source)
            if kind == "package":
                raise _package()
            if formats and kind not in formats and kind != "unknown":
                raise UnpicklingError(f"the file has the format {kind}, not {' or '.join(formats)}")
            if mmap and kind not in ("zip", "torchscript", "safetensors", "gguf"):
                if kind == "unknown":
                    raise _unknown(source)
                raise RuntimeError(
                    "mmap can only be used with files saved with `torch.save(_use_new_zipfile_serialization=True), "
                    "please torch.save your checkpoint with this option in order to use mmap."
                )
            if mmap is None and kind in ("legacy", "tar"):
                source.unmapped()  # their storages are not aligned: read them, so that memory holds them once
            resolver = SafeResolver(builder, allow)
            end = source.size
            if kind in ("zip", "torchscript"):
                result = read_zip(source, resolver, encoding, limits)
            elif kind == "legacy":
                result, end = read_legacy(source, resolver, encoding, limits)
            elif kind == "tar":
                result = read_tar(source, resolver, encoding, limits)
            elif kind == "safetensors":
                arrays, _ = read_safetensors(source, limits)
                result = {name: builder.tensor(array, storage, False) for name, (array, storage) in arrays.items()}
            elif kind == "gguf":
                found = read_gguf(source, limits).tensors
                result = {name: builder.tensor(*storage_of(one), False) for name, one in found.items()}
            else:
                raise _unknown(source)
            source.finish(end)
            return result
        except CallerError as e:
            raise e.original from None
        except UnsupportedGlobalError as e:
            names = dict.fromkeys((e.path, *_unsupported(source, kind, resolver)))
            more = f" (and it names {', '.join(map(shown, list(names)[1:9]))})" if len(names) > 1 else ""
            raise UnpicklingError(f"{e.reason}{more}", globals=tuple(names)) from None
        finally:
            source.close()


def _unsupported(source: Source, kind: str, resolver: SafeResolver) -> list[str]:
    """The globals of a file that would have to be permitted, found without building anything."""
    if kind not in ("zip", "legacy", "tar"):
        return []
    try:
        names, made = list_globals(source, kind)
    except UnpicklingError:
        return []
    return [path for path in names if resolver.would_refuse(path, path in made)]


def read_arrays(
    f: Any,
    allow: Iterable[Any] = (),
    mmap: bool | None = None,
    formats: tuple[str, ...] = (),
    names: Iterable[str] = (),
    shards: Mapping[str, Any] | None = None,
) -> Any:
    """The object in a checkpoint with numpy arrays for tensors (strided views over the file where it is mapped).

    formats: the only ones to take, where not any.  names: of classes, as `safe_names` takes them.
    shards: where the files of an index are, as `load` takes them.
    """
    return read(f, ArrayBuilder(), allow=AllowList(allow, names=names), mmap=mmap, formats=formats, shards=shards)


def get_unsafe_globals_in_checkpoint(f: Any) -> list[str]:
    """The globals in a file that `load` would refuse without an allow-list; nothing is built."""
    if is_index(f):
        folder, files = os.path.dirname(os.fspath(f)), dict.fromkeys(read_index(f).values())
        found = [get_unsafe_globals_in_checkpoint(os.path.join(folder, file)) for file in files]
        return list(dict.fromkeys(name for names in found for name in names))
    with naming(f):
        source = Source(f)
        try:
            kind = format_of(source)
            if kind in ("safetensors", "gguf"):
                return []
            if kind not in ("zip", "legacy", "tar"):
                if kind == "package":
                    raise _package()
                raise _unknown(source) if kind == "unknown" else UnpicklingError("the file is a TorchScript archive")
            paths, made = list_globals(source, kind)
        finally:
            source.close()
    resolver, allow = SafeResolver(ArrayBuilder()), AllowList()
    return [path for path in paths if not resolver.knows(path) and (path in made or not allow.is_absent(path))]


# -- description ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Description:
    """The contents of a checkpoint: tensors as (name, shape, dtype), paths of other values, files, bytes of the
    tensors.

    Names are those that `convert` would give.  metadata: that of a safetensors or GGUF file.  files: of a sharded
    checkpoint.  The types of a GGUF file's tensors are named as there (`Q4_K`), and bytes are those in the file.
    """

    format: str
    tensors: tuple[tuple[str, tuple[int, ...], str], ...]
    bytes: int
    others: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    files: tuple[str, ...] = ()


def describe(f: Any, names: Iterable[str] = ()) -> Description:
    """Describe the checkpoint at the path `f`; its tensors are not copied.

    names: of classes that the file may name, as `safe_names` takes them.  Raises UnpicklingError for a bad file.
    """
    kind = sniff(f)
    if kind == "gguf":
        found = open_gguf(f)
        rows = tuple((name, one.shape, one.type) for name, one in found.tensors.items())
        return Description(kind, rows, sum(one.data.nbytes for one in found.tensors.values()), (), found.metadata)
    tensors, others = _named_tensors(read_arrays(f, names=names))
    listed = tuple((name, array.shape, array.dtype.name) for name, array in tensors.items())
    files = tuple(dict.fromkeys(read_index(f).values())) if kind == "sharded" else ()
    return Description(kind, listed, sum(one.nbytes for one in tensors.values()), tuple(others), _metadata(f), files)


# -- conversion ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Conversion:
    """The result of `convert`.

    bytes: size of the new file.  tensors: how many it holds.  format: safetensors, zip or legacy.  skipped: paths of
    the values that safetensors has no form for.  shared: groups of names whose tensors shared memory and are now
    written each on its own.
    """

    bytes: int
    tensors: int
    format: str
    skipped: tuple[str, ...] = ()
    shared: tuple[tuple[str, ...], ...] = ()


_SUFFIXES = {".safetensors": "safetensors", ".pth": "zip", ".pt": "zip", ".bin": "zip", ".ckpt": "zip", ".tar": "zip"}


def convert(
    source: Any, target: Any, *, format: str | None = None, key: str | None = None, names: Iterable[str] = ()
) -> Conversion:
    """Rewrite a checkpoint as `safetensors`, `zip` or `legacy` (by the suffix of `target` unless given).

    source: a file of any format that `load` reads.  key: the entry of the checkpoint to write (`state_dict`).
    names: of classes that the file may name, as `safe_names` takes them.  A path
    is replaced in one step at the end, so a failure leaves what was there.

    zip and legacy keep everything but safetensors' metadata: sharing, strides, plain values.  For safetensors the
    tensors of nested dicts and lists are named by their path (`optimizer.state.0.exp_avg`), unless the only tensors
    are in one dict, whose names are kept; tensors that share memory are written each on its own; other values are left
    out; quantized tensors become their float values.  The result says which.

    Raises UnpicklingError for a bad file, ValueError for a format or key that is not there, TypeError (safetensors) or
    pickle.PicklingError (legacy) for a dtype that the new format lacks.
    """
    from .writers import ArchiveLayout, opened, write_legacy, write_zip

    if format is None:
        suffix = os.path.splitext(os.fsdecode(os.fspath(target)))[1].lower() if is_path(target) else ""
        format = _SUFFIXES.get(suffix)
        if format is None:
            raise ValueError(f"cannot tell the format from {str(target)!r}: give .safetensors or .pth, or format=")
    if format not in ("safetensors", "zip", "legacy"):
        raise ValueError(f"unknown format {format!r}: use safetensors, zip or legacy")
    metadata = _metadata(source)
    if format == "safetensors" and _is_gguf(source):
        return _from_gguf(source, target, key, metadata)
    if format == "safetensors":
        tensors, skipped = _named_tensors(_entry(read_arrays(source, names=names), key))
        shared = _sharing(tensors)
        with opened(target) as f:
            written = write_safetensors(tensors, f, metadata or {"format": "pt"})  # other readers ask for it
        return Conversion(written, len(tensors), format, tuple(skipped), shared)

    from ._tensors import Tensor, TensorBuilder, rename, substitute

    obj, count = _entry(read(source, TensorBuilder("cpu"), allow=AllowList(names=names)), key), 0

    def counted(plan: ArchiveLayout, value: Any) -> Any:
        nonlocal count
        count += isinstance(value, Tensor)
        return substitute(plan, value)

    with opened(target) as f:
        written = (write_zip if format == "zip" else write_legacy)(obj, f, counted, rename)
    lost = ("__metadata__",) if metadata.keys() - {"format"} else ()
    return Conversion(written, count, format, lost)


def _is_gguf(f: Any) -> bool:
    return (is_path(f) or f.seekable()) and sniff(f) == "gguf"


def _from_gguf(source: Any, target: Any, key: str | None, metadata: Mapping[str, str]) -> Conversion:
    """Write the tensors of a GGUF file as safetensors: one at a time, so that memory holds one of them."""
    from .writers import opened

    found = open_gguf(source)
    with naming(source):
        tensors = {name: LazyArray(one) for name, one in found.tensors.items()}
        if key is not None:
            tensors = {"tensor": _entry(tensors, key)}
        with opened(target) as f:
            written = write_safetensors(tensors, f, {"format": "pt"} | metadata)
    skipped = tuple(name for name in found.metadata if name not in metadata)
    return Conversion(written, len(tensors), "safetensors", skipped)


def _metadata(f: Any) -> dict[str, str]:
    """The metadata of a safetensors file, and that of a GGUF file as far as it is numbers and texts; {} for the other
    formats.  A file object is left where it was."""
    if not is_path(f) and not f.seekable():
        return {}
    kind = sniff(f)
    if kind not in ("safetensors", "gguf"):
        return {}
    here = None if is_path(f) else f.tell()
    try:
        if kind == "gguf":
            values = open_gguf(f).metadata
            return {name: str(value) for name, value in values.items() if not isinstance(value, list)}
        source = Source(f)
        try:
            return read_safetensors(source)[1]
        finally:
            source.close()
    finally:
        if here is not None:
            f.seek(here)


def _entry(obj: Any, key: str | None) -> Any:
    if key is None:
        return obj
    if not isinstance(obj, Mapping) or key not in obj:
        found = ", ".join(map(str, obj)) if isinstance(obj, Mapping) else type(obj).__name__
        raise ValueError(f"the checkpoint has no entry {key!r} (it has: {shown(found, 400)})")
    return obj[key]


def _named_tensors(obj: Any) -> tuple[dict[str, np.ndarray], list[str]]:
    """Arrays of a nested structure by path, and the paths of everything else."""
    found: list[tuple[tuple[str, ...], np.ndarray]] = []
    skipped: list[str] = []
    pending: list[tuple[tuple[str, ...], Any]] = [((), obj)]
    seen: set[int] = set()
    while pending:
        path, value = pending.pop()
        if isinstance(value, np.ndarray) and value.dtype.kind in "biufcV":
            found.append((path, value))
        elif (items := _parts(value)) is not None and id(value) not in seen:
            seen.add(id(value))
            pending.extend(((*path, name), part) for name, part in reversed(items))
        else:
            skipped.append(".".join(path))
    parents = {path[:-1] for path, _ in found}
    prefix = len(next(iter(parents))) if len(parents) == 1 else 0
    tensors: dict[str, np.ndarray] = {}
    for path, array in found:
        name = ".".join(path[prefix:]) or "tensor"
        if name in tensors:
            raise UnpicklingError(f"two tensors of the checkpoint would have the name {shown(name)}")
        tensors[name] = array
    return tensors, skipped


def _parts(value: Any) -> list[tuple[str, Any]] | None:
    """Name and value of all that an object holds; None for what holds nothing."""
    if isinstance(value, (Mapping, list, tuple)):
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        return [(str(name), part) for name, part in items]
    if isinstance(value, placeholders.Placeholder):
        return list(placeholders.parts(value))
    return None if plain.inside(value) is None else list(plain.parts(value))


def _sharing(tensors: Mapping[str, np.ndarray]) -> tuple[tuple[str, ...], ...]:
    """The groups of names whose memory overlaps; UnpicklingError where writing each on its own would multiply the
    file."""
    places = sorted((*byte_bounds(array), name) for name, array in tensors.items() if array.size)
    groups: list[list[str]] = []
    end = distinct = 0
    for start, stop, name in places:
        if groups and start < end:
            groups[-1].append(name)
        else:
            groups.append([name])
        distinct += max(stop - max(start, end), 0)
        end = max(end, stop)
    total = sum(array.nbytes for array in tensors.values())
    if total > DEFAULT_LIMITS.base_memory + DEFAULT_LIMITS.memory_ratio * distinct:
        raise UnpicklingError(f"its tensors share {distinct} bytes and would fill {total} when written apart")
    position = {name: i for i, name in enumerate(tensors)}
    found = [tuple(sorted(group, key=position.__getitem__)) for group in groups if len(group) > 1]
    return tuple(sorted(found, key=lambda group: position[group[0]]))
