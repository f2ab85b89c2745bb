"""Downloads against a real server: what arrives, what is refused, and what is left behind."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from hubcli import http, settings
from hubcli.errors import (
    HubError,
    IntegrityError,
    NetworkError,
    NotFoundError,
    OfflineError,
    UsageError,
)
from tests.servers import dead_server, file_server

BODY = bytes(range(256)) * 40


class Scripted:
    """A server whose every answer is chosen by the test; `seen` holds (path, headers)."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.answer: Callable[[BaseHTTPRequestHandler, int], None] = lambda handler, count: None
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.seen.append((self.path, dict(self.headers)))
                outer.answer(self, len(outer.seen))

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


def send(handler, status=200, body=BODY, **headers) -> None:
    handler.send_response(status)
    headers.setdefault("Content_Length", str(len(body)))
    for name, value in headers.items():
        if value is not None:
            handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    made = Scripted()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    waits: list[float] = []
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "https,http")
    monkeypatch.setattr(http.time, "sleep", waits.append)
    return waits


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    folder = tmp_path / "downloads"
    folder.mkdir()
    return folder / "net.pth"


def left(beside: Path) -> list[Path]:
    return list(beside.parent.iterdir())


def test_a_file_arrives(tmp_path, beside):
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "net.pth").write_bytes(BODY)
    with file_server(tmp_path / "files") as served:
        fetched = http.fetch(f"{served.url}/net.pth", beside)
        headers = served.requests[0].headers
    assert fetched.path.read_bytes() == BODY
    assert fetched.size == len(BODY)
    assert fetched.sha256 == hashlib.sha256(BODY).hexdigest()
    assert fetched.etag is not None
    assert headers["Accept-Encoding"] == "identity"
    assert headers["User-Agent"].startswith("hub/")
    assert left(beside) == [fetched.path]


def test_rewritten_addresses(scripted, beside, monkeypatch):
    monkeypatch.setenv("HUB_REWRITE", f"https://example.org/files/={scripted.url}/mirror/")
    scripted.answer = lambda handler, count: send(handler)
    fetched = http.fetch("https://example.org/files/net.pth", beside)
    assert scripted.seen[0][0] == "/mirror/net.pth"
    assert fetched.url == "https://example.org/files/net.pth"


def test_schemes_that_are_not_allowed(beside, monkeypatch):
    monkeypatch.delenv("HUB_ALLOW_PROTOCOLS")
    for url in ("http://127.0.0.1/x", "file:///etc/hostname", "ftp://example.org/x", "x"):
        with pytest.raises(UsageError):
            http.fetch(url, beside)


def test_local_files_where_allowed(tmp_path, beside, monkeypatch):
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "file")
    (tmp_path / "a b.pth").write_bytes(BODY)
    assert http.fetch(f"file://{tmp_path}/a%20b.pth", beside).size == len(BODY)
    with pytest.raises(NotFoundError):
        http.fetch(f"file://{tmp_path}/nowhere", beside)


def test_offline(beside):
    with settings.overriding(offline=True), pytest.raises(OfflineError) as caught:
        http.fetch("https://example.org/net.pth", beside)
    assert caught.value.status == 5


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_not_found_or_private(scripted, beside, status):
    scripted.answer = lambda handler, count: send(handler, status, b"no")
    with pytest.raises(NotFoundError, match=str(status)) as caught:
        http.fetch(f"{scripted.url}/net.pth?key=secret", beside)
    assert "HUB_TOKEN" in str(caught.value.hint)
    assert "secret" not in str(caught.value)
    assert len(scripted.seen) == 1
    assert left(beside) == []


def test_errors_that_pass_are_tried_again(scripted, beside, quick):
    def answer(handler, count):
        if count == 1:
            send(handler, 503, b"", Retry_After="7")
        elif count == 2:
            send(handler, 500, b"")
        else:
            send(handler)

    scripted.answer = answer
    assert http.fetch(f"{scripted.url}/net.pth", beside).size == len(BODY)
    assert quick[0] == 7.0
    assert 0 < quick[1] < 1


def test_a_server_that_asks_for_an_hour_is_not_obeyed_for_long(scripted, beside, quick):
    def answer(handler, count):
        send(handler, 429 if count == 1 else 200, Retry_After="3600")

    scripted.answer = answer
    http.fetch(f"{scripted.url}/net.pth", beside)
    assert quick == [http.MAX_WAIT]


def test_a_dead_server(beside, quick):
    with dead_server() as url, pytest.raises(NetworkError, match="refused") as caught:
        http.fetch(f"{url}/net.pth", beside)
    assert caught.value.status == 4
    assert len(quick) == http.ATTEMPTS - 1
    assert left(beside) == []


def test_a_body_that_breaks_off_is_fetched_again(scripted, beside):
    def answer(handler, count):
        if count == 1:
            send(handler, 200, BODY[:100], Content_Length=str(len(BODY)))
        else:
            send(handler)

    scripted.answer = answer
    assert http.fetch(f"{scripted.url}/net.pth", beside).path.read_bytes() == BODY
    scripted.answer = lambda handler, count: send(handler, 200, b"x", Content_Length="10")
    with pytest.raises(NetworkError):
        http.fetch(f"{scripted.url}/net.pth", beside)


def test_a_body_is_not_decoded(scripted, beside):
    scripted.answer = lambda handler, count: send(handler, Content_Encoding="gzip")
    assert http.fetch(f"{scripted.url}/net.pth", beside).path.read_bytes() == BODY


def test_web_pages_are_refused_for_weights(scripted, beside):
    scripted.answer = lambda handler, count: send(handler, Content_Type="text/html; charset=utf-8")
    with pytest.raises(IntegrityError, match="web page") as caught:
        http.fetch(f"{scripted.url}/o/r/blob/main/net.pth", beside, refuse_html=True)
    assert "/o/r/raw/main/net.pth" in str(caught.value.hint)
    scripted.answer = lambda handler, count: send(handler, 200, b"\n<!DOCTYPE html><p>log in")
    with pytest.raises(IntegrityError):
        http.fetch(f"{scripted.url}/net.pth", beside, refuse_html=True)
    assert left(beside) == []
    assert http.fetch(f"{scripted.url}/page.html", beside).size > 0


def test_redirects_keep_the_token_at_home(scripted, beside, tmp_path):
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "net.pth").write_bytes(BODY)
    with file_server(tmp_path / "files") as other, settings.overriding(token="s3cret"):

        def answer(handler, count):
            if handler.path == "/net.pth":
                send(handler, 302, b"", Location="/moved")
            else:
                send(handler, 307, b"", Location=f"{other.url}/net.pth")

        scripted.answer = answer
        http.fetch(f"{scripted.url}/net.pth", beside)
        assert ["Authorization" in headers for _, headers in scripted.seen] == [True, True]
        assert "Authorization" not in other.requests[0].headers
        http.fetch(f"{scripted.url}/net.pth", beside, token=False)
        assert "Authorization" not in scripted.seen[-1][1]


def test_redirects_that_are_refused(scripted, beside):
    for target, what in (
        ("file:///etc/hostname", "local file"),
        ("ftp://example.org/x", "ftp"),
        (f"{scripted.url}/again", "redirects"),
    ):
        scripted.answer = lambda handler, count, to=target: send(handler, 302, b"", Location=to)
        with pytest.raises(NetworkError, match=what):
            http.fetch(f"{scripted.url}/net.pth", beside)
    assert left(beside) == []


def test_a_full_disk_is_said_before_it_is_full(scripted, beside):
    def answer(handler, count):
        handler.send_response(200)
        handler.send_header("Content-Length", str(1 << 60))
        handler.end_headers()

    scripted.answer = answer
    with pytest.raises(HubError, match="no space") as caught:
        http.fetch(f"{scripted.url}/net.pth", beside)
    assert caught.value.status == 1
    assert left(beside) == []


def test_an_interrupt_leaves_nothing(scripted, beside, monkeypatch):
    scripted.answer = lambda handler, count: send(handler)

    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(http, "_write", interrupt)
    with pytest.raises(KeyboardInterrupt):
        http.fetch(f"{scripted.url}/net.pth", beside)
    assert left(beside) == []
