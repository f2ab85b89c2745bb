"""Operators beside aten's, built in (those of other packages' compiled extensions): a module for each namespace.

Each module defines schemas with `_ops.define_built_in(namespace, schema, function)`; it comes when its namespace is
first asked.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["LIBRARIES", "NAMESPACES", "known", "packages"]

# namespace of torch.ops -> the module here that defines it
NAMESPACES = {
    "torchvision": "torchvision",
    "image": "image",
    "torchaudio": "torchaudio",
    "_torchaudio": "torchaudio",
    "profiler": "profiler",
}
# package -> stems of its compiled files that need not be loaded
LIBRARIES = {
    "torchvision": ("_C", "_C_stable", "image", "image_stable"),
    "torchaudio": ("_torchaudio", "libtorchaudio"),
}


def known(path: Path) -> bool:
    """Return whether the operators of a compiled file are built in."""
    stem = path.name.partition(".")[0]
    return any(package in path.parts and stem in stems for package, stems in LIBRARIES.items())


def packages() -> list[str]:
    """The packages whose operators are built in."""
    return sorted(LIBRARIES)
