"""The one error of this package and the limits that keep a hostile file bounded in time and memory."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

__all__ = [
    "DEFAULT_LIMITS",
    "CallerError",
    "Limits",
    "SourceChangeWarning",
    "UnpicklingError",
    "UnsupportedGlobalError",
    "shown",
]


class UnpicklingError(pickle.UnpicklingError, RuntimeError):
    """A checkpoint was refused; the message is one sentence that names the reason.

    It is a `pickle.UnpicklingError` (what torch raises for a bad pickle) and a RuntimeError (what torch
    raises for a bad archive), so that code written for torch catches it.  reason: the sentence without the file's
    name.  file: that name, where the caller gave a path.  globals: the classes and functions that the file names and
    that would have to be permitted.
    """

    def __init__(self, reason: str, file: str | None = None, globals: tuple[str, ...] = ()) -> None:
        super().__init__(f"{shown(file, 300)}: {reason}" if file else reason)
        self.reason, self.file, self.globals = reason, file, globals


class SourceChangeWarning(Warning):
    """What torch says of a module whose code is not the one that was saved; never given here, code is not compared."""


class UnsupportedGlobalError(UnpicklingError):
    """A file names a class or function (`path`) that is neither known nor permitted."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"Unsupported global: {shown(path)} was refused; if you trust the file, permit this class with "
            f"allow=[...] or add_safe_globals([...])",
            globals=(path,),
        )
        self.path = path


class CallerError(Exception):
    """Carries an exception of the caller's own code (`map_location`) past the checks of the file."""

    def __init__(self, original: Exception) -> None:
        super().__init__(str(original))
        self.original = original


@dataclass(frozen=True)
class Limits:
    """Ceilings for one file.  Nothing real comes near them; a hostile file meets them early.

    opcodes: pickle instructions.  marks: open MARKs.  depth: nesting of containers in the result.
    digits: characters of a number written as text, and bytes of an integer.  line: bytes of a name.
    key_parts: elements of a tuple used as a key.  probes: steps that dictionaries and sets may take at worst for
    keys whose hashes a file can choose: all but text, bytes and whole numbers in about their order (32,000 large
    numbers or 7,000 pairs of numbers in one dictionary reach it).  base_memory, memory_ratio: a pickle of n bytes
    may create objects of `base_memory + memory_ratio * n` bytes.  expanded: elements of a view that repeats a storage.
    entries: files in an archive.  inflated, inflated_ratio: compressed entries of a file of n bytes may fill
    `inflated + inflated_ratio * n` bytes.  header: bytes of a safetensors header; header_values: what stands in it.
    """

    opcodes: int = 32_000_000
    marks: int = 1_000
    depth: int = 256
    digits: int = 512
    line: int = 1_024
    key_parts: int = 64
    probes: int = 1 << 29
    base_memory: int = 64 << 20
    memory_ratio: int = 32
    expanded: int = 1 << 26
    entries: int = 1_000_000
    inflated: int = 1 << 30
    inflated_ratio: int = 64
    header: int = 100_000_000
    header_values: int = 8_000_000


DEFAULT_LIMITS = Limits()


def _words(obj: object, depth: int = 2) -> str:
    if isinstance(obj, str):
        return obj[:1000]
    if isinstance(obj, bytes):
        return repr(obj[:200])
    if obj is None or type(obj) in (bool, int, float, complex):
        return str(obj)
    if isinstance(obj, BaseException):
        return ", ".join(_words(arg, 0) for arg in obj.args[:3])
    if isinstance(obj, (tuple, list)) and depth:
        inside = ", ".join(_words(item, depth - 1) for item in obj[:8]) + (", ..." if len(obj) > 8 else "")
        return f"[{inside}]" if isinstance(obj, list) else f"({inside}{',' * (len(obj) == 1)})"
    return f"<{type(obj).__name__}>"


def shown(obj: object, length: int = 120) -> str:
    """A value of a file made safe for an error message: printable, one line, at most `length` characters.

    Only scalars and the beginnings of flat lists are written out: the text of a list that shares its halves would be
    exponentially long, and that of a tensor may be costly.
    """
    short = _words(obj)[: length + 1]
    short = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in short)
    return short if len(short) <= length else short[: length - 3] + "..."
