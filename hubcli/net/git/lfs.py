"""Git LFS: the contents that a repository's pointer files stand for, fetched when the user asks.

The batch API (https://github.com/git-lfs/git-lfs/blob/main/docs/api/batch.md) spoken by `http`, with its
resuming, limits and digest checks; no git-lfs is needed, no filter runs, and a repository's .lfsconfig,
which could name another server, is not read.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hubcli.base import output, paths, settings
from hubcli.base.request import Request
from hubcli.errors import HubError, IntegrityError, NetworkError, NotFoundError
from hubcli.net.git import access, process
from hubcli.net.http import api
from hubcli.net.http import fetch as http
from hubcli.net.storage import mirror

MEDIA_TYPE = "application/vnd.git-lfs+json"
_POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n(?:ext-[^\n]*\n)*"
    rb"oid sha256:([0-9a-f]{64})\nsize ([0-9]{1,18})\n?\Z"
)
_BATCH = 100
_PARALLEL = 4


@dataclass(frozen=True)
class Pointer:
    """A pointer file: its place in the tree, its text, and what it stands for (bytes)."""

    path: str
    text: bytes
    oid: str
    size: int


def parse(path: str, text: bytes) -> Pointer | None:
    """Return the pointer that `text` is, if it is one."""
    match = _POINTER.match(text)
    return Pointer(path, text, match.group(1).decode(), int(match.group(2))) if match else None


def fill(url: str, folder: Path, pointers: Sequence[Pointer], request: Request) -> None:
    """Put the contents in the place of the pointers below `folder`, read-only and synced.

    `url` is the repository's clone URL.  The mirror is tried first, and the server for the rest.  Raises
    NotFoundError, NetworkError or IntegrityError.
    """
    wanted = {pointer.oid: pointer for pointer in reversed(pointers)}
    fetched: dict[str, http.Fetched] = {}
    try:
        with ThreadPoolExecutor(_PARALLEL) as pool:
            for one in pool.map(lambda pointer: _from_mirror(pointer, request), wanted.values()):
                fetched.update(one)
            rest = [pointer for oid, pointer in wanted.items() if oid not in fetched]
            if rest:
                now = _address_now(url)
                _refuse_other_protocols(now)
                fetched.update(pool.map(lambda one: _fetch(one[0], one[1], one[2], request), _actions(now, rest)))
        for pointer in pointers:
            _place(fetched[pointer.oid].path, folder / pointer.path)
    finally:
        for done in fetched.values():
            done.release()


def _address_now(url: str) -> str:
    """Return where git finds the repository at `url`: after HUB_REWRITE, where it has moved, by the user's
    insteadOf rules."""
    return process.effective_url(access.moved_to(settings.rewrite_url(url)))


def _refuse_other_protocols(url: str) -> None:
    if urlsplit(url).scheme not in ("http", "https"):
        raise HubError(
            f"Git LFS over {urlsplit(url).scheme}:// is not supported",
            hint="name the repository by its https address, or leave --lfs out",
        )


def _from_mirror(pointer: Pointer, request: Request) -> dict[str, http.Fetched]:
    """Return what the mirror has of it, by its digest."""
    address = mirror.digest(pointer.oid)
    if address is None:
        return {}
    beside = paths.partial() / pointer.oid
    found = http.from_mirror(address, beside, address, expected=pointer.oid, request=request)
    return {} if found is None else {pointer.oid: found}


def _actions(url: str, pointers: list[Pointer]) -> Iterator[tuple[Pointer, str, dict[str, str]]]:
    """(pointer, where to get it, what to send) as the server says it."""
    endpoint = f"{url.rstrip('/').removesuffix('.git')}.git/info/lfs/objects/batch"
    for start in range(0, len(pointers), _BATCH):
        some = {pointer.oid: pointer for pointer in pointers[start : start + _BATCH]}
        document = {
            "operation": "download",
            "transfers": ["basic"],
            "hash_algo": "sha256",
            "objects": [{"oid": one.oid, "size": one.size} for one in some.values()],
        }
        answer = api.post_json(endpoint, document, MEDIA_TYPE)
        try:
            for item in answer["objects"]:
                pointer = some.pop(item["oid"])
                if "error" in item:
                    raise NotFoundError(
                        f"the LFS server has no {pointer.path}: {item['error'].get('message')}",
                        hint="tell the publisher, or leave --lfs out",
                    )
                action = item["actions"]["download"]
                yield pointer, _address(endpoint, action), _headers(action)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            if isinstance(error, HubError):  # UsageError is a ValueError
                raise
            raise NetworkError(f"{http.public(endpoint)}: the answer is none of the LFS batch API: {error!r}") from None
        if some:
            missing = ", ".join(one.path for one in some.values())
            raise NotFoundError(f"the LFS server says nothing of {missing}")


def _address(endpoint: str, action: dict[str, Any]) -> str:
    href = str(action["href"])
    if urlsplit(endpoint).scheme == "https" and urlsplit(href).scheme != "https":
        raise NetworkError(f"the LFS server sends to {http.public(href)}, which is not encrypted")
    return href


def _headers(action: dict[str, Any]) -> dict[str, str]:
    """Return what the server wants to be sent to its store, but for what `http` itself decides."""
    own = {"host", "range", "if-range", "accept-encoding", "content-length", "user-agent"}
    given = action.get("header") or {}
    return {str(key): str(value) for key, value in given.items() if str(key).lower() not in own}


def _fetch(pointer: Pointer, href: str, headers: dict[str, str], request: Request) -> tuple[str, http.Fetched]:
    fetched = http.fetch(
        href,
        paths.partial() / pointer.oid,
        token=False,
        expected=pointer.oid,
        resumable=True,
        headers=headers,
        request=request,
        pinned=True,  # the commit has the pointer, which is a digest
    )
    if fetched.sha256 != pointer.oid or fetched.size != pointer.size:
        fetched.release()
        raise IntegrityError(
            f"{pointer.path}: the LFS server sent sha256 {fetched.sha256} of {fetched.size} bytes, the pointer names "
            f"{pointer.oid} of {pointer.size}",
            hint="tell the publisher, or leave --lfs out",
        )
    output.detail(f"{pointer.path}: {output.size(pointer.size)} from Git LFS")
    return pointer.oid, fetched


def _place(content: Path, path: Path) -> None:
    """Link or copy: several pointers may stand for one content."""
    import shutil

    mode = path.stat().st_mode
    temporary = path.with_name(f".{paths.unique()}")
    try:
        with open(content, "rb") as source, open(temporary, "xb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
            target.flush()
            os.fsync(target.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
