"""Servers that never come to an end, that promise more than they send, and that say once what they do not mean."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import os
import sys
import zipfile
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from hubcli import errors, torch_hub
from hubcli.base import paths, settings
from hubcli.cache import first_seen, records, weights
from hubcli.cache.cache import Cache
from hubcli.errors import HubError, IntegrityError, NetworkError, NotFoundError
from hubcli.net.http import fetch as http
from hubcli.net.http import partials, sessions
from hubcli.running import checkpoints
from hubcli.terminal import cli
from tests.servers import Scripted, scripted_server, send

BODY = bytes(range(256)) * 400
ETAG = '"one"'


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scripted]:
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "http")
    monkeypatch.setattr(http.time, "sleep", lambda seconds: None)
    with scripted_server() as made:
        yield made


def raw(handler: Any, *parts: bytes) -> None:
    for part in parts:
        handler.wfile.write(part)


# What comes beside a body


class Endless(io.RawIOBase):
    """A connection that goes on repeating itself; `given` bytes so far."""

    def __init__(self, first: bytes, again: bytes) -> None:
        self.rest, self.again, self.given = first, again, 0

    def readinto(self, buffer: Any) -> int:
        if not self.rest:
            self.rest = self.again
        count = min(len(buffer), len(self.rest))
        buffer[:count], self.rest = self.rest[:count], self.rest[count:]
        self.given += count
        return count

    def readable(self) -> bool:
        return True


class Socket:
    def __init__(self, source: Endless) -> None:
        self.source = source

    def makefile(self, *args: Any, **more: Any) -> io.BufferedReader:
        return io.BufferedReader(self.source)


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("first", "again"),
    [
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\n", b"A: " + b"x" * 60_000 + b"\r\n"),
        (CHUNKED + b"1\r\nx\r\n0\r\n", b"Trailer: x\r\n"),
        (CHUNKED + b"1", b";extension=" + b"x" * 60_000 + b"\r\n1\r\nx\r\n1"),
    ],
)
def test_what_is_beside_a_body_has_a_budget(first, again):
    source = Endless(first, again)
    response = sessions._Response(Socket(source))
    with pytest.raises((sessions.TooMuch, HTTPException)):
        response.begin()
        while response.read1(1 << 16):
            if source.given > 4 << 20:
                break
    assert source.given <= sessions.HEADER_BYTES + (1 << 20)


def test_headers_have_a_deadline(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(sessions.time, "monotonic", lambda: now[0])

    class Dripping(Endless):
        def readinto(self, buffer: Any) -> int:
            now[0] += 50.0  # each byte comes before a read would give up
            return super().readinto(buffer[:1])

    source = Dripping(b"HTTP/1.1 200 OK\r\nA: ", b"x")
    with pytest.raises(sessions.TooMuch):
        sessions._Response(Socket(source)).begin()
    assert source.given <= 5


def test_an_ordinary_answer_is_none_the_wiser():
    source = Endless(b"HTTP/1.1 100 Continue\r\n\r\n" + CHUNKED + b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nT: v\r\n\r\n", b"")
    response = sessions._Response(Socket(source))
    response.begin()
    assert response.read() == b"abcde"


@pytest.mark.parametrize("kind", ["continue", "trailers"])
def test_a_download_from_such_a_server_ends(scripted, tmp_path, kind):
    sent = [0]

    def answer(handler: Any, count: int) -> None:
        if kind == "trailers":
            raw(handler, CHUNKED + b"1\r\nx\r\n0\r\n")
        line = b"HTTP/1.1 100 Continue\r\n\r\n" if kind == "continue" else b"T: x\r\n"
        while sent[0] < 64 << 20:
            raw(handler, line * 1000)
            sent[0] += len(line) * 1000

    scripted.answer = answer
    with pytest.raises(NetworkError, match="does not come to an end"):
        http.fetch(f"{scripted.url}/x.bin", tmp_path / "x.bin", progress=False)
    assert len(scripted.seen) == http.ATTEMPTS
    assert sent[0] < 64 << 20


def test_what_unpacks_is_held_to_the_limit(tmp_path):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("net.pth", bytes(20 << 20))
    (tmp_path / "net.zip").write_bytes(out.getvalue())
    with (
        settings.overriding(size_limit=1 << 20),
        pytest.warns(FutureWarning),
        pytest.raises(IntegrityError, match="larger than the limit"),
    ):
        checkpoints.read_state_dict(tmp_path / "net.zip", "net.zip")
    assert list(paths.partial().glob("unpacked*")) == []


# Going on with a download


def interrupted(scripted: Scripted, at: int = 40_000, **headers: str) -> str:
    """A URL of which `at` bytes are kept in partial/."""
    url = f"{scripted.url}/net.bin"

    def cut(handler: Any, count: int) -> None:
        send(handler, 200, BODY[:at], Content_Length=str(len(BODY)), **{"ETag": ETAG, **headers})

    scripted.answer = cut
    with pytest.raises(NetworkError):
        http.fetch(url, paths.partial() / "x", progress=False, resumable=True)
    scripted.seen.clear()
    return url


def resumed(url: str) -> http.Fetched:
    return http.fetch(url, paths.partial() / "x", progress=False, resumable=True)


def test_a_resumed_download_names_the_file_it_goes_on_with(scripted):
    url = interrupted(scripted)

    def answer(handler: Any, count: int) -> None:
        start = int(handler.headers["Range"].removeprefix("bytes=").removesuffix("-"))
        assert handler.headers.get("If-Range") == ETAG
        send(handler, 206, BODY[start:], ETag=ETAG, Content_Range=f"bytes {start}-{len(BODY) - 1}/{len(BODY)}")

    scripted.answer = answer
    assert resumed(url).sha256 == hashlib.sha256(BODY).hexdigest()
    assert scripted.seen[0][1]["If-Range"] == ETAG and len(scripted.seen) == 1


@pytest.mark.parametrize("length", [True, False])
def test_a_rest_that_breaks_off_is_not_the_file(scripted, length):
    """The range promises all of it; what comes is less, with or without a length that says so."""
    url = interrupted(scripted)

    def answer(handler: Any, count: int) -> None:
        start = int((handler.headers["Range"] or "bytes=0-").removeprefix("bytes=").removesuffix("-"))
        some = BODY[start : start + 1000]
        promised = f"bytes {start}-{len(BODY) - 1}/{len(BODY)}"
        more = str(len(some)) if length else None
        status = 206 if "Range" in handler.headers else 503
        send(handler, status, some, ETag=ETAG, Content_Range=promised, Content_Length=more)
        handler.close_connection = True

    scripted.answer = answer
    with pytest.raises(NetworkError):
        resumed(url)
    assert scripted.seen


@pytest.mark.parametrize("range_", ["bytes {0}-{1}/*", "bytes {0}-{2}/{3}", "bytes {0}-{1}/{4}", "bytes 0-{1}/{3}"])
def test_ranges_that_contradict_themselves_start_anew(scripted, range_):
    url = interrupted(scripted)
    last = len(BODY) - 1

    def answer(handler: Any, count: int) -> None:
        if "Range" not in handler.headers:
            send(handler, 200, BODY, ETag=ETAG)
            return
        start = int(handler.headers["Range"].removeprefix("bytes=").removesuffix("-"))
        said = range_.format(start, last, last + 5, len(BODY), len(BODY) - 10)
        send(handler, 206, BODY[start:], ETag=ETAG, Content_Range=said)

    scripted.answer = answer
    assert resumed(url).sha256 == hashlib.sha256(BODY).hexdigest()


# Nothing is written where others look


_noting: list[list[str]] = []  # a hook is for good: it notes while there is a list to note in


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if not _noting:
        return
    if event == "open":
        path, mode, flags = arguments
        if set(mode or "") & set("wxa+") or (mode is None and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)):
            _noting[0].append(f"write {path}")
    elif event in ("os.rename", "shutil.copyfile", "os.link", "os.symlink"):
        _noting[0].append(f"{event} {arguments[1]}")


@contextlib.contextmanager
def written() -> Iterator[list[str]]:
    """Every name that is opened for writing, copied to or renamed to."""
    if not _hooked:
        sys.addaudithook(_note)
        _hooked.append(True)
    names: list[str] = []
    _noting.append(names)
    try:
        yield names
    finally:
        _noting.clear()


_hooked: list[bool] = []


def test_everything_in_the_cache_comes_by_rename(scripted, hub_root):
    content = save({"x": np.ones(1000, np.float32)})
    scripted.answer = lambda handler, count: send(handler, 200, content, ETag=ETAG)
    with written() as names:
        torch_hub.load_state_dict_from_url(f"{scripted.url}/net.safetensors", progress=False)
    inside = [(how, Path(name)) for how, _, name in (one.partition(" ") for one in names) if str(hub_root) in name]
    shown = [(how, path.relative_to(hub_root)) for how, path in inside]
    outside = {
        (how, str(path)) for how, path in shown if path.parts[0] not in ("partial", "locks") and how != "os.rename"
    }
    assert outside == set()
    digest = hashlib.sha256(content).hexdigest()
    renamed = {str(path) for how, path in shown if how == "os.rename"}
    assert {f"blobs/sha256/{digest[:2]}/{digest}", "checkpoints/net.safetensors"} <= renamed


def test_a_write_that_fails_leaves_what_was_there(hub_root, monkeypatch):
    paths.ensure_root()
    target = hub_root / "refs" / "x.json"
    target.parent.mkdir()
    target.write_text("old")
    inode = target.stat().st_ino

    def fail(descriptor: int) -> None:
        assert target.read_text() == "old" and target.stat().st_ino == inode
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        paths.write_atomically(target, b"new")
    assert target.read_text() == "old"


def test_a_blob_is_put_in_place_at_once(hub_root, tmp_path):
    """The very file that was written: a copy in place would be half there for a moment."""
    paths.ensure_root()
    temporary, target = paths.partial() / "x", hub_root / "blob"
    paths.partial().mkdir(exist_ok=True)
    temporary.write_bytes(b"new")
    target.write_bytes(b"old")
    before = temporary.stat().st_ino
    with open(target, "rb") as kept:
        paths.place(temporary, target)
        assert target.stat().st_ino == before and kept.read() == b"old"


def test_another_disk_gets_a_copy_that_is_renamed(hub_root, monkeypatch):
    paths.ensure_root()
    temporary, target = paths.partial() / "x", hub_root / "blob"
    paths.partial().mkdir(exist_ok=True)
    temporary.write_bytes(b"new")
    target.write_bytes(b"old")
    real = os.replace
    seen = []

    def replace(source: Any, to: Any) -> None:
        if Path(source) == temporary:
            raise OSError(18, "Invalid cross-device link")
        seen.append(target.read_bytes())
        real(source, to)

    monkeypatch.setattr(os, "replace", replace)
    paths.place(temporary, target)
    assert seen == [b"old"] and target.read_bytes() == b"new" and not temporary.exists()


def test_the_partial_of_a_living_process_is_copied(hub_root, scripted):
    url = interrupted(scripted)
    (one,) = [path for path in paths.partial().iterdir() if (path / "body").is_file()]
    other = partials.Partial(url, Path("x"), paths.partial(), checked=False)
    assert other.path.parent != one and (one / "body").stat().st_ino != other.path.stat().st_ino
    assert other.size == 40_000 and (one / "body").exists()


# What is no checkpoint is not kept


@pytest.mark.parametrize("kind", ["json", "truncated"])
def test_an_error_document_does_not_poison_its_url(scripted, kind):
    good = save({"x": np.ones(1000, np.float32)})
    wrong = b'{"error": "overloaded, try later"}' if kind == "json" else good[:2000]
    scripted.answer = lambda handler, count: send(handler, 200, wrong if count == 1 else good, ETag=f'"{count}"')
    url = f"{scripted.url}/net.safetensors"
    with pytest.raises(IntegrityError, match="was refused") as caught:
        torch_hub.load_state_dict_from_url(url, progress=False)
    assert "nothing of it was stored" in str(caught.value.hint)
    assert weights.list_blobs() == () and first_seen.find("weights", url) is None
    assert list(paths.checkpoints().iterdir()) == [] and Cache.current().verify().problems == ()
    assert torch_hub.load_state_dict_from_url(url, progress=False)["x"].sum().item() == 1000


def test_a_refused_file_of_before_names_the_way_out(scripted, monkeypatch):
    scripted.answer = lambda handler, count: send(handler, 200, b'{"error": "x"}', ETag=ETAG)
    url = f"{scripted.url}/net.safetensors"
    weights.obtain(url, progress=False)
    monkeypatch.setattr(weights, "_fetched", {})  # another process had fetched it
    with pytest.raises(IntegrityError) as caught:
        torch_hub.load_state_dict_from_url(url, progress=False)
    for part in ("hub cache rm net.safetensors", "--accept-changed"):
        assert part in str(caught.value.hint)


def test_a_checkpoint_that_holds_more_than_is_read_stays(scripted):
    import pickle

    from tests.engine.serialization.forge import zipped

    content = zipped(pickle.dumps(zipfile.ZipInfo("x"), 2))
    scripted.answer = lambda handler, count: send(handler, 200, content, ETag=ETAG)
    with pytest.raises(IntegrityError, match="Unsupported global"):
        torch_hub.load_state_dict_from_url(f"{scripted.url}/net.pth", progress=False)
    assert [one.file for one in weights.list_blobs()] == ["net.pth"] and list(records.every())


def test_a_sandboxed_child_poisons_nothing_either(scripted, tmp_path):
    from hubcli.base.spec import RepoSpec
    from hubcli.confined.broker import Broker

    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "hubconf.py").write_text("def net(): pass\n")
    broker = Broker(Cache.current().checkout(RepoSpec.parse(str(tmp_path / "own"))), "net", inbox=tmp_path)
    scripted.answer = lambda handler, count: send(handler, 200, b"busy", ETag=ETAG)
    with pytest.raises(IntegrityError, match="was refused"):
        broker.answer({"ask": "weights", "url": f"{scripted.url}/net.pth", "checkpoint": True})
    assert weights.list_blobs() == () and list(tmp_path.glob("weights*")) == []


# Secrets that a server repeats


@pytest.fixture
def secret(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("HUB_TOKEN", "s3cret-token-value")
    monkeypatch.setattr(errors, "_secrets", set())
    yield base64.b64encode(b"x-access-token:s3cret-token-value").decode()


@pytest.mark.parametrize("status", [404, 418, 503])
def test_an_echoed_authorization_is_masked(scripted, tmp_path, secret, status, capsys):
    def answer(handler: Any, count: int) -> None:
        handler.send_response(status, f"no {handler.headers['Authorization']} and s3cret-token-value")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    scripted.answer = answer
    with pytest.raises((NotFoundError, NetworkError)) as caught:
        http.fetch(f"{scripted.url}/x.bin", tmp_path / "x.bin", progress=False)
    said = f"{caught.value} {caught.value.hint} {caught.value.args} {capsys.readouterr()}"
    assert secret not in said and "s3cret" not in said and "***" in str(caught.value)


def test_tracebacks_are_masked(monkeypatch, secret, capsys):
    monkeypatch.setenv("HUB_DEBUG", "1")
    errors.keep_secret("s3cret-token-value")
    try:
        try:
            raise ValueError(f"Authorization: Basic {secret}")
        except ValueError as error:
            raise OSError("s3cret-token-value \x1b[2J") from error
    except OSError as error:
        cli._report(error, False)
    said = capsys.readouterr().err
    assert "Traceback" in said and secret not in said and "\x1b" not in said
    assert "s3cret-token-value" not in said.replace("hub: s3cret", "")


def test_ordinary_words_are_not_masked():
    for text in ("a basic convolution of BasicBlock", "bearer of good tidings", "Basic blocks: 18"):
        assert str(HubError(text)) == text
