"""The contents of a package, read without executing anything of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.serialization import UnpicklingError
from engine.serialization.readers import globals_of
from engine.serialization.source import Source, naming
from engine.serialization.ziparchive import ZipArchive

__all__ = ["Contents", "contents", "extern_names", "root_of"]

_EXTERN = ".data/extern_modules"
_MOST_NAMES = 1 << 20  # bytes of the list of extern modules


@dataclass(frozen=True)
class Contents:
    """The parts of a package.

    python: the version it was written with.  extern: modules that it imports from the process.  modules: size of the
    source by module name.  pickles: the classes and functions that each names.  files: size of other files by path.
    storages: count and bytes of the tensors' memory.
    """

    python: str | None
    extern: tuple[str, ...]
    modules: dict[str, int]
    pickles: dict[str, tuple[str, ...]]
    files: dict[str, int]
    storages: tuple[int, int]


def root_of(archive: ZipArchive) -> str:
    """The folder of all of a package's entries, with its slash; UnpicklingError for what is no package."""
    roots = {name.split("/", 1)[0] + "/" if "/" in name else "" for name in archive.entries}
    if len(roots) != 1 or "" in roots:
        raise UnpicklingError("the file is not a package: its entries do not lie in one folder")
    root = roots.pop()
    if root + _EXTERN not in archive.entries:
        raise UnpicklingError("the file is not a package: it has no .data/extern_modules")
    return root


def extern_names(archive: ZipArchive, root: str) -> tuple[str, ...]:
    """The modules that the package's code imports from the process; UnpicklingError for a list that is no text."""
    try:
        text = archive.text(root + _EXTERN, _MOST_NAMES).decode("utf-8")
    except UnicodeDecodeError:
        raise UnpicklingError("the package's list of extern modules is not UTF-8") from None
    return tuple(name for name in text.split("\n") if name)


def contents(file_or_buffer: Any) -> Contents:
    """Return the contents of a package: nothing of it is imported, called or built.

    file_or_buffer: path or binary file object.  Raises UnpicklingError for a file that is damaged or no package.
    """
    with naming(file_or_buffer):
        source = Source(file_or_buffer)
        try:
            archive = ZipArchive(source).check()
            root = root_of(archive)
            modules: dict[str, int] = {}
            pickles: dict[str, tuple[str, ...]] = {}
            files: dict[str, int] = {}
            count = size = 0
            for name, entry in archive.entries.items():
                path = name.removeprefix(root)
                if path.startswith(".data/") or path in ("byteorder", "version"):
                    if path.endswith(".storage"):
                        count, size = count + 1, size + entry.size
                elif path.endswith(".py"):
                    modules[path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")] = entry.size
                elif path.endswith(".pkl"):
                    pickles[path] = tuple(globals_of(archive.read(name)))
                else:
                    files[path] = entry.size
            version = root + ".data/python_version"
            python = archive.text(version, 1000).decode("utf-8", "replace") if version in archive.entries else None
            return Contents(python, extern_names(archive, root), modules, pickles, files, (count, size))
        finally:
            source.close()
