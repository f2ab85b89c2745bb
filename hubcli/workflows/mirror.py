"""`hub mirror`: writes what a lock file names as a static tree that clients with HUB_MIRROR ask first.

Which files it has and who reads them: `hubcli/net/storage/mirror.py`.  Files under a digest's name never change, so the
next run continues one that was killed, a second run writes what is new, and the index comes last.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hubcli.base import output, paths
from hubcli.base.request import Request
from hubcli.base.spec import RepoSpec
from hubcli.cache import checkouts, trees
from hubcli.cache.cache import Cache
from hubcli.cache.lockfile import Lock, Repo, Weights
from hubcli.cache.ref_table import Table
from hubcli.cache.weights import Weight
from hubcli.errors import IntegrityError
from hubcli.net.git.lfs import Pointer
from hubcli.net.storage import mirror
from hubcli.net.storage.targets import INDEX, Target
from hubcli.workflows import locking

_SCHEMA = 1
_PLACE = re.compile(r"git/[0-9a-f]{2}/[0-9a-f]{40}(?:[0-9a-f]{24})?\.pack|sha256/[0-9a-f]{2}/[0-9a-f]{64}")


@dataclass(frozen=True)
class LargeFile:
    """The file that a Git LFS pointer of a pinned commit stands for; `url` is the repository's."""

    spec: str
    url: str
    pointer: Pointer


@dataclass(frozen=True)
class Item:
    """A file of the mirror: `pin` is what it holds, `size` in bytes, `written` by this run."""

    pin: Repo | Weights | LargeFile
    place: str
    size: int
    written: bool


@dataclass(frozen=True)
class Mirrored:
    """The outcome of a run: files of the lock file in its order, and how many others it removed.

    `pointers` counts the Git LFS files of those commits that were not asked for and are not there.
    """

    target: str
    items: tuple[Item, ...]
    removed: int
    pointers: int = 0


def name_of(pin: Repo | Weights | LargeFile) -> str:
    """Return what people know it by: a spec, the name of a file, or a spec and the path of a file in it."""
    if isinstance(pin, LargeFile):
        return f"{pin.spec} {pin.pointer.path}"
    return pin.spec if isinstance(pin, Repo) else pin.file


def write(lock: Lock, target: Target, *, prune: bool = False, lfs: bool = False) -> Mirrored:
    """Fetch all that `lock` names, and bring what `target` lacks of it there; with `prune` take the rest away.

    `lfs` adds what the Git LFS pointers of those commits stand for.
    Raises IntegrityError where an index is that hub has not written.
    """
    index = _read_index(target)
    request = Request.current(lock=lock)
    fetched = locking.fetch(lock, request)
    with output.progress(f"mirroring to {target.name}", None) as bar:
        items = [_write_commit(target, pin, index, request, bar) for pin in lock.repos]
        items += [_write_weights(target, pin, weight, bar) for pin, weight in zip(lock.weights, fetched)]
        large = [one for pin in lock.repos for one in _write_large(target, pin, lfs, index, request, bar)]
        items += [one for one in large if one is not None]
    entries = {} if prune else dict(index)
    entries |= {place: _entry(place, items) for place in dict.fromkeys(item.place for item in items)}
    if entries != index:
        document = {"schema": _SCHEMA, "files": dict(sorted(entries.items()))}
        target.put(INDEX, json.dumps(document, indent=1).encode() + b"\n")
    gone = sorted(set(index) - set(entries))
    for place in gone:
        target.delete(place)
    return Mirrored(target.name, tuple(items), len(gone), large.count(None))


def _write_commit(target: Target, pin: Repo, index: Mapping[str, Any], request: Request, bar: output.Progress) -> Item:
    from hubcli.net.git import remote as git

    place = mirror.place_of_commit(pin.commit)
    # only of what the index names is the size known that a whole pack has
    size = target.size(place) if place in index else None
    if size is not None and size == index[place]["size"]:
        return Item(pin, place, size, False)
    spec = RepoSpec.parse(pin.spec)
    db = paths.db(Table.read(spec).key)
    if not git.has_commit(db, pin.commit):
        Cache.current().checkout(spec, replace(request, reload=True))
    partial = paths.partial(paths.ensure_root())
    partial.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{paths.unique()}.", dir=partial) as folder:
        pack = git.write_pack(db, pin.commit, Path(folder))
        size = pack.stat().st_size
        target.put(place, pack)
    bar.update(size)
    return Item(pin, place, size, True)


def _write_weights(target: Target, pin: Weights, weight: Weight, bar: output.Progress) -> Item:
    place = mirror.place_of_digest(pin.sha256)
    missing = target.size(place) != pin.size
    if missing:
        target.put(place, weight.path, pin.sha256)
        bar.update(pin.size)
    return Item(pin, place, pin.size, missing)


def _write_large(
    target: Target, pin: Repo, wanted: bool, index: Mapping[str, Any], request: Request, bar: output.Progress
) -> list[Item | None]:
    """Return the files behind the Git LFS pointers of a commit; None for what is neither `wanted` nor in the index."""
    cache = Cache.current()
    checkout = cache.checkout(RepoSpec.parse(pin.spec), request)
    found = {one: mirror.place_of_digest(one.oid) for one in trees.pointers(checkout.path)}
    lacking = {place for one, place in found.items() if target.size(place) != one.size}
    if lacking and wanted and checkouts.lacks_lfs(checkout):
        checkout = cache.checkout(checkout.spec, replace(request, lfs=True, reload=True))
    items: list[Item | None] = []
    for one, place in found.items():
        missing = place in lacking
        if missing and wanted:
            target.put(place, checkout.path / one.path, one.oid)
            lacking.discard(place)
            bar.update(one.size)
        there = wanted or (not missing and place in index)
        items.append(Item(LargeFile(pin.spec, pin.url, one), place, one.size, missing) if there else None)
    return items


def _entry(place: str, items: list[Item]) -> dict[str, Any]:
    here = [item for item in items if item.place == place]
    urls = sorted({item.pin.url for item in here})
    names = sorted({name_of(item.pin) for item in here})
    return {"size": here[0].size, "urls": urls, "names": names}


def _read_index(target: Target) -> dict[str, Any]:
    """Return what the index lists, by place."""
    content = target.read(INDEX)
    if content is None:
        return {}
    try:
        document = json.loads(content)
        if document["schema"] != _SCHEMA:
            raise ValueError(f"its form is {document['schema']!r}")
        files = dict(document["files"])
        for place, entry in files.items():
            if not _PLACE.fullmatch(place) or not isinstance(entry["size"], int):
                raise ValueError(f"{place[:100]!r} is no file of a mirror")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise IntegrityError(
            f"{target.name}/{INDEX} is none that hub has written: {str(error)[:200]}",
            hint="name another place, or remove that file if it is a broken mirror's",
        ) from None
    return files
