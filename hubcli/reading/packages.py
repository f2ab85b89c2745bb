"""The table of packages that build on torch, `packages.toml`: what installs each beside the engine."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Package:
    """One table of the file; its header explains the fields."""

    module: str
    distribution: str
    versions: str | None = None
    tested: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    torchy: tuple[str, ...] = ()
    torch: bool = True
    reason: str | None = None

    def requirement(self, wanted: str = "") -> str:
        """What to install: the version tested last, or what fits `wanted`, where somebody wants another."""
        if wanted:
            from packaging.specifiers import SpecifierSet

            fitting = [one for one in self.tested if SpecifierSet(wanted).contains(one)]
            return f"{self.distribution}=={fitting[-1]}" if fitting else self.distribution + wanted
        return f"{self.distribution}=={self.tested[-1]}"

    def knows(self, version: str) -> bool:
        """Whether an installed version lies in the range that is known to work."""
        from packaging.specifiers import SpecifierSet

        return self.versions is None or SpecifierSet(self.versions).contains(version, prereleases=True)


def canonical(name: str) -> str:
    """A distribution's name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


@functools.cache
def table() -> dict[str, Package]:
    """Every package, by import name."""
    import tomllib

    text = Path(__file__).parents[1].joinpath("packages.toml").read_text(encoding="utf-8")
    made = {}
    for module, fields in tomllib.loads(text).items():
        values: dict[str, Any] = {key: tuple(one) if isinstance(one, list) else one for key, one in fields.items()}
        made[module] = Package(module, **values)
    return made


def find(name: str) -> Package | None:
    """The package that is imported as `name` (or a module below it), or is called so on PyPI."""
    known = table().get(name.partition(".")[0].replace("-", "_"))
    if known is not None:
        return known
    wanted = canonical(name)
    return next((one for one in table().values() if canonical(one.distribution) == wanted), None)


def closure(packages: Iterable[Package]) -> Iterator[Package]:
    """The packages and those of the table that they need, each once."""
    pending = list(packages)
    seen: set[str] = set()
    while pending:
        one = pending.pop(0)
        if one.module not in seen:
            seen.add(one.module)
            yield one
            pending += [table()[name] for name in one.torchy]
