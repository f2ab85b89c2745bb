"""The published trees of the cache: what a spec means on this machine, looked up without network, write or git."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from hubcli.base import output, paths
from hubcli.base.spec import RepoSpec
from hubcli.cache import links, ref_table
from hubcli.cache.ref_table import Kind, Published, Table
from hubcli.errors import NotFoundError

_MONTH = 30 * 86400  # seconds


@dataclass(frozen=True)
class Checkout:
    """A published tree: what `spec` means on this machine.

    `ref` is the branch or tag that was taken, `commit` and `tree` git's ids (None for a folder),
    `fetched_at` and `checked_at` seconds since the epoch, `cached` whether it was there before.
    """

    spec: RepoSpec
    url: str
    ref: str | None
    kind: Kind
    commit: str | None
    tree: str | None
    generation: int
    path: Path
    cached: bool
    fetched_at: float | None
    checked_at: float | None

    def standing(self) -> str:
        """Return which commit the ref has here; for a branch, which moves on, also since when."""
        at = f"{self.kind} {self.ref} at {(self.commit or '')[:12]}"
        return at if self._age() is None else f"{at}, checked {self._age()} ago; --force-reload fetches anew"

    def renewal(self) -> str | None:
        """Return a hint for what this copy of a branch lacks and a newer one may have; None for other refs, and for
        what has been fetched just now."""
        if not self.cached or self._age() is None:
            return None
        command = f"hub pull {shlex.quote(str(self.spec))} --force-reload"
        return f"this copy of branch {self.ref} was checked {self._age()} ago, `{command}` fetches it anew"

    def overdue(self) -> str | None:
        """Return the same where the remote was not asked for a month, else None."""
        old = self.checked_at is not None and time.time() - self.checked_at > _MONTH
        return self.renewal() if old else None

    def _age(self) -> str | None:
        if self.kind != "branch" or self.checked_at is None:
            return None
        return output.age(time.time() - self.checked_at)


@dataclass(frozen=True)
class CachedRepo:
    """One line of the cache listing: a ref of a repository with its tree.  `size` in bytes."""

    name: str
    spec: str
    url: str
    ref: str
    kind: Kind
    commit: str
    path: Path
    size: int
    fetched_at: float
    last_used: float

    def document(self) -> dict[str, Any]:
        """Return it as the JSON documents show it."""
        names = ("name", "spec", "path", "commit", "size", "last_used")
        return {name: str(self.path) if name == "path" else getattr(self, name) for name in names}


def marker(tree: Path) -> Path:
    """Return the file whose existence says that `tree` is complete."""
    return tree.with_name(f"{tree.name}.json")


def lookup(root: Path, spec: RepoSpec) -> Checkout | None:
    """Return the published tree of `spec` in the cache `root`, or None.  No network, no write, no git."""
    if spec.kind == "local":
        return local(spec)
    table = Table.read(spec, root)
    entry = table.find(spec)
    if entry is None:
        return None
    path = table.path(entry)
    if not (marker(path).is_file() and path.is_dir()):
        return None
    return of_entry(spec, entry, path, cached=True)


def repos(root: Path) -> list[CachedRepo]:
    """Return every cached ref, sorted by spec."""
    found = []
    for file in paths.json_files(paths.refs(root)):
        for url, table in ref_table.read_all(file, root).items():
            for ref, entry in table.entries.items():
                spec = spec_of(url, table).at(ref)
                path = table.path(entry)
                with contextlib.suppress(OSError):
                    used = marker(path).stat().st_mtime
                    found.append(
                        CachedRepo(
                            spec.name,
                            str(spec),
                            url,
                            ref,
                            entry.kind,
                            entry.commit,
                            path,
                            entry.size,
                            entry.fetched_at,
                            used,
                        )
                    )
    return sorted(found, key=lambda repo: repo.spec)


def spec_of(url: str, table: Table) -> RepoSpec:
    """Return the repository of a table that is stored under `url`."""
    spec = RepoSpec.parse(table.base)
    if spec.url != url:  # HUB_GIT_URL or HUB_HOST has changed since
        spec = RepoSpec.parse(url)
    return spec


def lacks_lfs(checkout: Checkout) -> bool:
    """Return whether the tree holds Git LFS pointers in the place of what they stand for."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return bool(json.loads(marker(checkout.path).read_bytes()).get("pointers"))
    return False


def remember(root: Path, spec: RepoSpec, kind: Kind, ref: str, commit: str) -> None:
    """Let `spec` mean `commit`, which is there, unless the cache knows better already: what a lock file says of it."""
    name = spec.ref or ref

    def change(table: Table) -> Table:
        entry = table.entries.get(commit)
        if entry is None or name in table.entries or kind == "commit":
            return table
        return table.having(name, replace(entry, kind=kind, ref=ref), None if spec.ref else ref)

    if Table.read(spec, root).find(spec) is None:
        ref_table.update(spec, change, root)
        if (found := lookup(root, spec)) is not None:
            links.show(spec, name, found.path, root)


def of_entry(spec: RepoSpec, entry: Published, path: Path, *, cached: bool) -> Checkout:
    """Return the checkout of a table's entry."""
    return Checkout(
        spec,
        spec.url,
        entry.ref,
        entry.kind,
        entry.commit,
        entry.tree,
        entry.generation,
        path,
        cached,
        entry.fetched_at,
        entry.checked_at,
    )


def local(spec: RepoSpec) -> Checkout:
    path = cast(Path, spec.path)
    if not path.is_dir():
        if not path.exists():
            hint: str | None = "a SPEC that begins with `.`, `/` or `~` is a folder; a repository is written owner/repo"
            raise NotFoundError(f"{path} does not exist", hint=hint, spec=str(spec))
        hint = f"its folder is written {shlex.quote(os.path.dirname(spec.text))}" if path.name == "hubconf.py" else None
        raise NotFoundError(f"{path} is not a folder", hint=hint, spec=str(spec))
    return Checkout(spec, spec.url, None, "local", None, None, 0, path, True, None, None)


def touch(tree: Path) -> None:
    """Note the time of use, where the cache can be written."""
    with contextlib.suppress(OSError):
        os.utime(marker(tree))
