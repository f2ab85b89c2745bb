"""`hub import-torch-hub`: takes over what torch.hub has downloaded; its folders stay as they are, nothing is executed.

Weights are checked against the digest in their names.  A checkout of torch.hub is an unpacked archive: no commit says
what it is, and without a commit nothing is trusted or stored.  So the repository is pulled at the ref in the folder's
name, and compared with the old files.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hubcli.base import output, settings
from hubcli.base.spec import RepoSpec
from hubcli.cache import torch_hub_cache, weight_files
from hubcli.cache.cache import Cache
from hubcli.errors import HubError, IntegrityError, NetworkError, NotFoundError, UsageError

_MOST = 6  # readings of a folder's name that are tried


@dataclass(frozen=True)
class File:
    """A weight file of torch.hub: `status` is new (imported, or would be), there, or refused, with the `reason`."""

    path: Path
    size: int
    sha256: str | None
    status: str
    reason: str | None


@dataclass(frozen=True)
class Copy:
    """A checkout of torch.hub.

    `status` is pulled, there (it was already), found (a dry run does not pull), or left, with the `reason`; `spec` is
    how the folder's name was understood, `changed` how many of its files are others than in the commit that was pulled.
    """

    path: Path
    spec: str | None
    status: str
    changed: int | None
    reason: str | None


@dataclass(frozen=True)
class Imported:
    """The weights and checkouts found and copied; `trusted_list` is torch.hub's list of whom to trust."""

    weights: tuple[File, ...]
    checkouts: tuple[Copy, ...]
    trusted_list: Path | None


def run(*, dry_run: bool = False) -> Imported:
    """Import what is in torch.hub's folders; with `dry_run` only tell."""
    files = tuple(_file(path, dry_run) for path in list(torch_hub_cache.weights()))
    copies = tuple(_copy(path, dry_run) for path in list(torch_hub_cache.checkouts()))
    lists = (base / "hub" / "trusted_list" for base in torch_hub_cache.caches())
    return Imported(files, copies, next((path for path in lists if path.is_file()), None))


def _file(path: Path, dry_run: bool) -> File:
    size = path.stat().st_size
    try:
        digest, new = weight_files.put(path, dry_run=dry_run)
    except (IntegrityError, UsageError) as error:
        return File(path, size, None, "refused", error.message)
    except OSError as error:
        return File(path, size, None, "refused", str(error.strerror))
    return File(path, size, digest, "new" if new else "there", None)


def _copy(path: Path, dry_run: bool) -> Copy:
    specs = list(_specs(path.name, _trusted(path.parent / "trusted_list")))
    if not specs:
        return Copy(path, None, "left", None, "its name is not owner_repo_ref")
    cache = Cache.current()
    for spec in specs:
        found = cache.lookup(spec)
        if found is not None:
            return Copy(path, str(spec), "there", _changed(path, found.path), None)
    if dry_run:
        return Copy(path, str(specs[0]), "found", None, None)
    reason = "hub is offline" if settings.current().offline else ""
    for spec in [] if reason else specs:
        try:
            checkout = cache.checkout(spec)
        except (NotFoundError, IntegrityError) as error:
            reason = reason or error.message
            continue
        except NetworkError as error:
            reason = error.message
            break
        except HubError as error:
            reason = error.message
            continue
        return Copy(path, str(spec), "pulled", _changed(path, checkout.path), None)
    return Copy(path, str(specs[0]), "left", None, reason)


def _specs(name: str, trusted: list[str]) -> Iterator[RepoSpec]:
    """Yield what `<owner>_<repo>_<ref>` may mean, the likeliest first: owners have no `_`, most refs neither."""
    owner, _, rest = name.partition("_")
    parts = rest.split("_")
    cuts = range(len(parts) - 1, 0, -1)
    known = [one.count("_") for one in trusted if name.startswith(f"{one}_")]
    count = 0
    for cut in (*(cut for cut in cuts if cut in known), *(cut for cut in cuts if cut not in known)):
        repo, words = "_".join(parts[:cut]), parts[cut:]
        refs = ("_".join(words), "/".join((words[0], "_".join(words[1:]))), "/".join(words))
        for ref in dict.fromkeys(refs) if len(words) > 1 else refs[:1]:
            try:
                spec = RepoSpec.parse(f"{owner}/{repo}:{ref}")
            except UsageError:
                continue
            count += 1
            if count > _MOST:
                return
            yield spec


def _trusted(file: Path) -> list[str]:
    """Return the `owner_repo` of torch.hub's list, which say where the ref of a name begins."""
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()[:10_000]
    except OSError:
        return []
    return [line.strip() for line in lines if re.fullmatch(r"[\w.-]+_[\w.-]+", line.strip())]


def _changed(old: Path, new: Path) -> int:
    """Return how many files of either folder the other has not, or has with other content."""

    def files(folder: Path) -> dict[str, Path]:
        found = {}
        for path in folder.rglob("*"):
            if path.is_file() and not path.is_symlink() and path.suffix != ".pyc":
                found[path.relative_to(folder).as_posix()] = path
        return found

    before, now = files(old), files(new)
    common = before.keys() & now.keys()
    return len(before.keys() ^ now.keys()) + sum(not _same(before[name], now[name]) for name in common)


def _same(one: Path, other: Path) -> bool:
    """Return whether two files have the same content; what cannot be read has another."""
    with contextlib.suppress(OSError):
        return one.stat().st_size == other.stat().st_size and one.read_bytes() == other.read_bytes()
    return False


def freed(made: Imported) -> str:
    """Return what the old folders take, for people."""
    return output.size(sum(one.size for one in made.weights))
