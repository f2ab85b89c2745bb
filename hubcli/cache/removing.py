"""Taking repositories out of the cache: the table first, then links and trees, at last the database."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

from hubcli.base import output, paths
from hubcli.base.spec import RepoSpec
from hubcli.cache import leases, links, locks, ref_table
from hubcli.cache.checkouts import marker
from hubcli.cache.ref_table import Table
from hubcli.errors import NotFoundError


class Removal(NamedTuple):
    """The outcome of `remove`, or of its rehearsal: the specs, the top-level paths, the bytes."""

    specs: tuple[str, ...]
    paths: tuple[Path, ...]
    freed: int


def remove(root: Path, spec: RepoSpec, *, dry_run: bool = False) -> Removal:
    """Take a ref of a repository out of the cache, or all its refs where `spec` names none.

    Look-ups fail first, then links go, then trees that no other ref uses, at last the database.
    Trees that running processes use are left for `prune`.
    """
    if spec.kind == "local":
        raise NotFoundError(f"{spec} is a folder of your own, not in the cache", spec=str(spec))
    if dry_run:
        return _remove(root, spec, dry_run)
    with locks.exclusive(f"repo-{Table.read(spec, root).key}", str(spec), paths.locks(paths.ensure_root(root))):
        return _remove(root, spec, dry_run)


def _remove(root: Path, spec: RepoSpec, dry_run: bool) -> Removal:
    table = Table.read(spec, root)
    refs = sorted(table.entries) if spec.ref is None else [spec.ref]
    missing = not refs or any(ref not in table.entries for ref in refs)
    if missing:
        raise NotFoundError(f"{spec} is not in the cache", hint="`hub cache ls` lists what is", spec=str(spec))
    rest = {ref: entry for ref, entry in table.entries.items() if ref not in refs}
    gone = {table.entries[ref].commit for ref in refs} - {one.commit for one in rest.values()}
    folder = paths.checkouts(table.key, root)
    shown = [link for link in (links.name_of(spec, ref, root) for ref in refs) if links.points_into(link, folder)]
    if not dry_run:
        ref_table.update(spec, lambda table: table.without(refs), root)
        for link in shown:
            link.unlink(missing_ok=True)
    held = {path for path in leases.held(root) if path.parent == folder}
    found = (
        (folder.iterdir() if folder.is_dir() else ()) if not rest else (p for c in gone for p in folder.glob(f"{c}.*"))
    )
    kept = held | {marker(path) for path in held}
    victims = sorted(path for path in found if path not in kept)
    if not rest:
        victims.append(paths.db(table.key, root))
    staying = [path for path in held if not rest or path.name.partition(".")[0] in gone]
    freed = sum(paths.disk_size(path) for path in victims)
    if not dry_run:
        for victim in victims:
            if victim.parent == folder and not victim.name.endswith(".json"):
                staying += [victim] * (not discard_tree(root, victim))
            elif victim.parent != folder:
                paths.discard(victim, root)
        for victim in victims:  # markers without a tree
            if victim.name.endswith(".json") and not victim.with_suffix("").is_dir():
                victim.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            folder.rmdir()
    if staying:
        output.message(f"{spec} is in use by a running process; `hub cache prune` takes it later")
    names = tuple(str(spec.at(ref)) for ref in refs)
    return Removal(names, tuple(shown + victims), freed)


def discard_tree(root: Path, tree: Path) -> bool:
    """Take a published tree away, unless a process holds it by now, and return whether it has gone.

    Without locks somebody may have found it since: who uses a tree holds it first and looks for its marker then, so the
    marker goes first here and the leases are read then.
    """
    aside = paths.partial(root) / f"{paths.unique()}.marker"
    try:
        aside.parent.mkdir(parents=True, exist_ok=True)
        os.rename(marker(tree), aside)
    except FileNotFoundError:
        pass  # it was never complete
    if tree in leases.held(root):
        with contextlib.suppress(OSError):
            os.rename(aside, marker(tree))
        return False
    paths.discard(tree, root)
    aside.unlink(missing_ok=True)
    return True
