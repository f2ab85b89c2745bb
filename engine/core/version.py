"""Versions: the project's, and the torch version whose names and behaviour the engine offers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.version import Version

__all__ = [
    "TorchVersion",
    "__version__",
    "cuda",
    "debug",
    "engine_version",
    "git_version",
    "hip",
    "rocm",
    "torch_version",
    "xpu",
]

engine_version = "0.1.0"


class TorchVersion(str):
    """A version string that also compares by version, with strings and tuples, as torch's does."""

    def _parts(self, other: object) -> tuple[Version, Version]:
        from packaging.version import Version

        if isinstance(other, tuple | list):
            other = ".".join(str(p) for p in other)
        return Version(str(self)), Version(str(other))

    def __lt__(self, other: object) -> bool:
        mine, theirs = self._parts(other)
        return mine < theirs

    def __le__(self, other: object) -> bool:
        mine, theirs = self._parts(other)
        return mine <= theirs

    def __gt__(self, other: object) -> bool:
        mine, theirs = self._parts(other)
        return mine > theirs

    def __ge__(self, other: object) -> bool:
        mine, theirs = self._parts(other)
        return mine >= theirs


torch_version = "2.13.0"
__version__ = TorchVersion(f"{torch_version}+engine.{engine_version}")  # a local version: nobody mistakes it
# what torch's own build was made for: nothing here is compiled
cuda = hip = rocm = xpu = git_version = None
debug = False
