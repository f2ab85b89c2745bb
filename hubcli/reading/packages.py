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

    @property
    def proved(self) -> str:
        """Return the versions from the lowest that `versions` admits to the one tested last: both ends have been
        tried."""
        lower = [one for one in (self.versions or "").split(",") if one.startswith(">")]
        return ",".join([*lower, f"<={self.tested[-1]}"])

    def requirement(self, wanted: str = "") -> str:
        """Return what to install: the proved versions, of those the ones that fit `wanted`, where somebody wants
        others."""
        return self.distribution + (narrowed(self.proved, wanted) or wanted)

    def knows(self, version: str) -> bool:
        """Return whether an installed version is in the range that is known to work."""
        from packaging.specifiers import SpecifierSet

        return self.versions is None or SpecifierSet(self.versions).contains(version, prereleases=True)


def narrowed(range: str, wanted: str) -> str | None:
    """Return the versions that are in both specifiers, as short as that can be said; None where there can be none."""
    from packaging.specifiers import Specifier, SpecifierSet
    from packaging.version import InvalidVersion, Version

    every: list[Specifier] = [*SpecifierSet(range), *SpecifierSet(wanted)]
    exact = [one for one in every if one.operator == "==" and not one.version.endswith(".*")]
    if exact:
        fits = all(one.contains(exact[0].version, prereleases=True) for one in every)
        return f"=={exact[0].version}" if fits else None
    try:
        lower = max((one for one in every if one.operator[0] == ">"), key=_lower, default=None)
        upper = min((one for one in every if one.operator in ("<", "<=")), key=_upper, default=None)
        if lower is not None and upper is not None:
            low, high = Version(lower.version), Version(upper.version)
            if low > high or (low == high and not lower.operator[1:] == upper.operator[1:] == "="):
                return None
    except InvalidVersion:
        return None
    others = sorted({str(one) for one in every if one.operator in ("~=", "!=", "==", "===")})
    return ",".join([*(str(one) for one in (lower, upper) if one is not None), *others])


def _lower(one: Any) -> tuple[Any, bool]:
    from packaging.version import Version

    return Version(one.version), one.operator == ">"


def _upper(one: Any) -> tuple[Any, bool]:
    from packaging.version import Version

    return Version(one.version), one.operator == "<="


def canonical(name: str) -> str:
    """Return a distribution's name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


@functools.cache
def table() -> dict[str, Package]:
    """Every package, by import name."""
    import tomllib

    text = Path(__file__).parents[1].joinpath("data", "packages.toml").read_text(encoding="utf-8")
    made = {}
    for module, fields in tomllib.loads(text).items():
        values: dict[str, Any] = {key: tuple(one) if isinstance(one, list) else one for key, one in fields.items()}
        made[module] = Package(module, **values)
    return made


def find(name: str) -> Package | None:
    """Return the package that is imported as `name` (or a module below it), or is called so on PyPI."""
    known = table().get(name.partition(".")[0].replace("-", "_"))
    if known is not None:
        return known
    wanted = canonical(name)
    return next((one for one in table().values() if canonical(one.distribution) == wanted), None)


def closure(packages: Iterable[Package]) -> Iterator[Package]:
    """Yield the packages and the packages of the table that they need, each once."""
    pending = list(packages)
    seen: set[str] = set()
    while pending:
        one = pending.pop(0)
        if one.module not in seen:
            seen.add(one.module)
            yield one
            pending += [table()[name] for name in one.torchy]
