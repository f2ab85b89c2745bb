"""The list of `hub cache ls` and `hub cache rm`: repositories and weights with their size and their last use."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hubcli.base.spec import RepoSpec
from hubcli.cache.cache import Cache
from hubcli.errors import NotFoundError, UsageError


@dataclass(frozen=True)
class Item:
    """A line of the listing.  `idle` is the time since its last use in seconds."""

    name: str
    size: int
    idle: float
    document: dict[str, Any]


Condition = Callable[[Item], bool]


def repos(cache: Cache) -> list[Item]:
    """Return the refs of repositories in the cache."""
    now = time.time()
    return [Item(repo.spec, repo.size, now - repo.last_used, repo.document()) for repo in cache.repos()]


def weights() -> list[Item]:
    """Return the weight files in the cache."""
    from hubcli.cache import weights  # for the weight: the network

    now = time.time()
    names = ("file", "sha256", "size", "url", "last_used")
    return [
        Item(one.file, one.size, now - one.last_used, {name: getattr(one, name) for name in names})
        for one in weights.list_blobs()
    ]


def arranged(items: list[Item], sort: str, wanted: Sequence[Condition]) -> list[Item]:
    """Return the items that meet every condition, sorted by name, size or use."""
    fitting = [item for item in items if all(holds(item) for holds in wanted)]
    if sort == "size":
        return sorted(fitting, key=lambda item: -item.size)
    if sort == "used":
        return sorted(fitting, key=lambda item: item.idle)
    return sorted(fitting, key=lambda item: item.name)


@dataclass(frozen=True)
class Removal:
    """A removal from a cache: refs of repositories, and files of weights."""

    cache: Cache
    specs: tuple[RepoSpec, ...]
    files: tuple[str, ...]

    @classmethod
    def of(cls, cache: Cache, targets: Sequence[str], wanted: Sequence[Condition]) -> Removal:
        """Return what the names mean, or without names what meets every condition."""
        if not targets:
            specs = tuple(RepoSpec.parse(item.name) for item in arranged(repos(cache), "name", wanted))
            return cls(cache, specs, tuple(dict.fromkeys(one.name for one in arranged(weights(), "name", wanted))))
        known = {item.name for item in weights()}
        files = tuple(target for target in targets if target in known)
        return cls(cache, tuple(_spec(target) for target in targets if target not in known), files)

    def carry_out(self, *, dry_run: bool) -> tuple[list[str], int]:
        """Remove it, or only look; return the names and the bytes freed."""
        from hubcli.cache import weights  # for the weight: the network

        removals = [self.cache.remove(spec, dry_run=dry_run) for spec in self.specs]
        freed = sum(removal.freed for removal in removals)
        freed += sum(weights.remove(file, dry_run=dry_run) for file in self.files)
        return [name for removal in removals for name in removal.specs] + list(self.files), freed


def _spec(target: str) -> RepoSpec:
    try:
        return RepoSpec.parse(target)
    except UsageError:
        if "/" in target or ":" in target:
            raise
        raise NotFoundError(  # it looks like the name of a file
            f"no weight file {target!r} in the cache", hint="`hub cache ls` lists what is there"
        ) from None
