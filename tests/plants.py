"""Faults to plant in hub, for `python -m tests.torture --plant NAME`: the torture must find them.

Each is the kind of mistake that a change could bring in: a function of the cache does less than it must.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def direct_write() -> None:
    """Documents are written in place, not renamed."""
    from hubcli.base import paths

    def write(path: Path, content: bytes) -> None:
        with open(path, "wb", buffering=0) as file:
            for start in range(0, len(content), 64):
                file.write(content[start : start + 64])

    paths.write_atomically = write


def copied_blob() -> None:
    """Blobs are copied to where they belong, not renamed."""
    from hubcli.base import paths

    def place(temporary: Path, path: Path) -> None:
        if temporary.is_symlink():
            os.replace(temporary, path)
            return
        with open(temporary, "rb") as source, open(path, "wb", buffering=0) as target:
            shutil.copyfileobj(source, target, 4096)
        temporary.unlink(missing_ok=True)

    paths.place = place


def no_if_range() -> None:
    """What is resumed may belong to another file: no If-Range, and nothing compared."""
    from hubcli.net.http import responses

    answer = responses._content_range

    def trusting(response: Any, partial: Any, wanted: int) -> Any:
        with contextlib.suppress(responses.StartAnew):
            return answer(response, partial, wanted)
        return wanted, partial.origin.total

    responses._content_range = trusting
    import requests

    get = requests.Session.get

    def without(self: Any, url: str, **more: Any) -> Any:
        headers = {name: value for name, value in more.pop("headers").items() if name != "If-Range"}
        return get(self, url, headers=headers, **more)

    requests.Session.get = without  # type: ignore[method-assign]


def truncated() -> None:
    """A body that breaks off is taken for the whole."""
    from hubcli.net.http import fetch as http
    from hubcli.net.http import responses

    whole = http._open

    def shorter(url: str, request: Any, partial: Any, stack: Any) -> Any:
        return dataclasses.replace(whole(url, request, partial, stack), length=None, framed=True)

    def parts(response: Any) -> Any:
        with contextlib.suppress(responses.TryAgain):
            yield from body(response)

    body = responses.parts_of
    http._open, responses.parts_of = shorter, parts


def no_digest() -> None:
    """What is fetched is not compared with the hash in its name."""
    from hubcli.cache import weight_files

    weight_files.require_prefix = lambda digest, prefix, what: None


def marker_first() -> None:
    """A tree is shown before it is whole."""
    from hubcli.base import paths
    from hubcli.net.git import remote as git

    checkout = git.checkout

    def slow(db: Path, commit: str, folder: Path) -> None:
        checkout(db, commit, folder)
        for path in sorted(folder.rglob("*.bin")):
            content = path.read_bytes()
            path.write_bytes(content[: len(content) // 2])
            later.append((path, content, folder))

    later: list[tuple[Path, bytes, Path]] = []
    rename = os.rename

    def renamed(source: Any, target: Any) -> None:
        rename(source, target)
        if paths.checkouts("x").parent in Path(target).parents and later:
            time.sleep(0.02)
            for path, content, folder in later:
                place = Path(target) / path.relative_to(folder)
                with contextlib.suppress(OSError):
                    place.chmod(0o644)
                    place.write_bytes(content)
                    place.chmod(0o444)
            later.clear()

    git.checkout, os.rename = slow, renamed


def lost_update() -> None:
    """A table is written from what was read long before."""
    from hubcli.base import paths
    from hubcli.cache import ref_table

    def old(spec: Any, change: Callable[[Any], Any], root: Path | None = None) -> None:
        file = ref_table._file(spec, root)
        tables = ref_table.read_all(file, root)
        time.sleep(0.2)
        tables[spec.url] = change(tables.get(spec.url) or ref_table.Table.empty(spec, root))
        file.parent.mkdir(parents=True, exist_ok=True)
        paths.write_atomically(file, ref_table._dump(tables))

    ref_table.update = old


def shared_partial() -> None:
    """Two processes append to the same partial download."""
    from hubcli.net.http import partials

    class Shared(partials.Partial):
        def _start(self) -> None:
            if self._folder is None:
                super()._start()
                return
            self._home = self._folder / f"{self._key}.{'0' * 8}-1-{'0' * 12}"
            self._home.mkdir(exist_ok=True)
            self.path = self._home / "body"

        def _take_over(self, folder: Path, checked: bool) -> None:
            self._start()
            with contextlib.suppress(OSError):
                self._reread()
                self.origin = partials._read_origin(self._home) or self.origin  # type: ignore[arg-type]

    from hubcli.net.http import fetch as http

    partials.Partial = http.Partial = Shared  # type: ignore[misc]


PLANTS: dict[str, Callable[[], None]] = {
    one.__name__: one
    for one in (
        direct_write,
        copied_blob,
        no_if_range,
        truncated,
        no_digest,
        marker_first,
        lost_update,
        shared_partial,
    )
}
