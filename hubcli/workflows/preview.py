"""`hub pull --dry-run`: what a pull would bring, and how large it is, before it is fetched.

Of a commit that is not here the file names and the small files are fetched into a throw-away; git does not tell the
size of a file without sending it.  Servers of weights are chosen by the code: they are queried for sizes only once that
is trusted.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from hubcli.base import settings
from hubcli.base.request import Request
from hubcli.base.spec import RepoSpec
from hubcli.cache import records, trees
from hubcli.cache.cache import Cache
from hubcli.errors import OfflineError
from hubcli.trust import records as consents

SMALL = 256 << 10  # bytes; larger files are left where they are
_MOST = 50  # weight files that are named
_WEIGHTS = re.compile(
    rb"""["\'](https?://[^\s"\'<>{}\\]{1,500}\.(?:pth|pt|pkl|th|tar|bin|ckpt|safetensors|gguf|onnx|h5|npz|zip|gz)(?:\?[^\s"\']{0,99})?)["\']"""
)


@dataclass(frozen=True)
class File:
    """A weight file that the code names; `size` None where no server was queried, or none said it."""

    url: str
    size: int | None
    cached: bool


@dataclass(frozen=True)
class Preview:
    """The meaning of `spec` now.

    `files` small ones with `size` bytes together, and `larger` others of more than SMALL each; all of it is here
    already if `cached`.  `trusted`: the sizes of weights were queried.
    """

    spec: RepoSpec
    ref: str | None
    kind: str
    commit: str | None
    cached: bool
    files: int
    size: int
    larger: int
    trusted: bool
    weights: tuple[File, ...]
    small: int = SMALL


def look(spec: RepoSpec, request: Request | None = None) -> Preview:
    """Return what a pull of `spec` would bring; nothing is published or executed."""
    request = request or Request.current()
    found = Cache.current().lookup(spec) if request.lock is None else None
    if found is not None:
        sizes = {path: path.stat().st_size for path in sorted(found.path.rglob("*")) if path.is_file()}
        texts = [path.read_bytes() for path, size in sizes.items() if path.suffix == ".py" and size <= SMALL]
        allowed = _allowed(spec, found.commit, request)
        named = _weights(texts, allowed)
        return Preview(
            spec, found.ref, found.kind, found.commit, True, len(sizes), sum(sizes.values()), 0, allowed, named
        )
    return _remote(spec, request)


def _remote(spec: RepoSpec, request: Request) -> Preview:
    from hubcli.net.git import remote as git

    if settings.current().offline:
        raise OfflineError(f"{spec} is not in the cache offline", hint="run without --offline", spec=str(spec))
    pinned = spec if request.lock is None else spec.at(request.lock.repo(spec).commit)
    remote = git.Remote.of(spec.url)
    resolved = remote.resolve(pinned.ref)
    with tempfile.TemporaryDirectory(prefix="hub-") as folder:
        db = Path(folder) / "db.git"
        git.create(db, resolved.commit)
        remote.fetch(
            db,
            f"+{resolved.source}:{git.OBJECTS}/seen",
            "--depth=1",
            f"--filter=blob:limit={SMALL}",
            limit=request.size_limit,
        )
        listing = [entry for entry in git.entries(db, resolved.commit) if entry.mode != trees.SUBMODULE]
        here = {entry.path: entry.size for entry in listing if 0 <= entry.size <= SMALL}
        large = [entry for entry in listing if entry.path not in here]
        ids = git.blobs(db, resolved.commit)
        texts = [path for path in here if path.endswith(".py") and ids[path].startswith("100")]
        contents = git.contents(db, [ids[path].split()[1] for path in texts], Path(folder))
        allowed = _allowed(spec, resolved.commit, request)
        named = _weights(contents, allowed)
    # a server that does not filter has sent the large ones, too
    size = sum(here.values()) + sum(entry.size for entry in large if entry.size > 0)
    unknown = sum(entry.size < 0 for entry in large)
    ref, kind = resolved.name, resolved.kind
    return Preview(spec, ref, kind, resolved.commit, False, len(listing) - unknown, size, unknown, allowed, named)


def _allowed(spec: RepoSpec, commit: str | None, request: Request) -> bool:
    now = settings.current()
    if now.offline:
        return False
    if spec.kind == "local" or request.trust is not None or request.lock is not None:
        return True
    return now.trust in settings.TRUST_CHOICES or consents.lookup(spec, commit) is not None


def _weights(texts: Iterable[bytes], allowed: bool) -> tuple[File, ...]:
    """Return the weight files that the texts name, with their sizes as far as they are known or may be asked for."""
    from hubcli.net.http import fetch as http

    urls: dict[str, None] = {}
    for text in texts:
        urls.update(dict.fromkeys(found.decode("ascii", "replace") for found in _WEIGHTS.findall(text)))
    known = {one.url: one.size for _, one in records.every() if one.url and one.content().is_file()}
    some = list(urls)[:_MOST]

    def size(url: str) -> int | None:
        return known[url] if url in known else http.length(url) if allowed else None

    with ThreadPoolExecutor(8) as pool:
        return tuple(File(url, got, url in known) for url, got in zip(some, pool.map(size, some)))
