"""The one error of this package and the limits that keep a hostile file bounded in time and memory."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

__all__ = ["DEFAULT_LIMITS", "CallerError", "Limits", "UnpicklingError", "shown"]


class UnpicklingError(pickle.UnpicklingError, RuntimeError):
    """A checkpoint was refused; the message is one sentence that names the reason.

    It is a `pickle.UnpicklingError` (what torch raises for a bad pickle) and a RuntimeError (what torch
    raises for a bad archive), so that code written for torch catches it.
    """


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
    key_parts: elements of a tuple used as a key.  tuple_keys: keys with numbers in tuples (their
    hashes can be made to collide).  base_memory, memory_ratio: a pickle of n bytes may create objects
    of `base_memory + memory_ratio * n` bytes.  expanded: elements of a view that repeats its storage.
    entries: files in an archive.  header: bytes of a safetensors header.
    """

    opcodes: int = 32_000_000
    marks: int = 1_000
    depth: int = 256
    digits: int = 512
    line: int = 1_024
    key_parts: int = 64
    tuple_keys: int = 65_536
    base_memory: int = 64 << 20
    memory_ratio: int = 32
    expanded: int = 1 << 26
    entries: int = 1_000_000
    header: int = 100_000_000


DEFAULT_LIMITS = Limits()


def shown(text: object, length: int = 120) -> str:
    """`text` made safe for an error message: printable ASCII, at most `length` characters."""
    short = str(text)[: length + 1]
    short = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in short)
    return short if len(short) <= length else short[: length - 3] + "..."
