"""Downloads against a real server: what arrives, what is refused, and what is left behind."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hubcli.base import settings
from hubcli.errors import (
    HubError,
    IntegrityError,
    NetworkError,
    NotFoundError,
    OfflineError,
    UsageError,
)
from hubcli.net.http import credentials, responses
from hubcli.net.http import fetch as http
from hubcli.net.http.partials import Partial
from tests.servers import Scripted, dead_server, file_server, scripted_server, send

REAL_SLEEP = time.sleep
BODY = bytes(range(256)) * 40


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    with scripted_server() as made:
        yield made


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
    scripted.answer = lambda handler, count: send(handler, 200, BODY)
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
            send(handler, 200, BODY)

    scripted.answer = answer
    assert http.fetch(f"{scripted.url}/net.pth", beside).size == len(BODY)
    assert quick[0] == 7.0
    assert 0 < quick[1] < 1


def test_a_server_that_asks_for_an_hour_is_not_obeyed_for_long(scripted, beside, quick):
    def answer(handler, count):
        send(handler, 429 if count == 1 else 200, BODY, Retry_After="3600")

    scripted.answer = answer
    http.fetch(f"{scripted.url}/net.pth", beside)
    assert quick == [responses.MAX_WAIT]


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
            send(handler, 200, BODY)

    scripted.answer = answer
    assert http.fetch(f"{scripted.url}/net.pth", beside).path.read_bytes() == BODY
    scripted.answer = lambda handler, count: send(handler, 200, b"x", Content_Length="10")
    with pytest.raises(NetworkError):
        http.fetch(f"{scripted.url}/net.pth", beside)


def test_web_pages_are_refused_for_weights(scripted, beside):
    scripted.answer = lambda handler, count: send(handler, 200, BODY, Content_Type="text/html; charset=utf-8")
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
    scripted.answer = lambda handler, count: send(handler, 200, BODY)

    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(Partial, "append", interrupt)
    with pytest.raises(KeyboardInterrupt):
        http.fetch(f"{scripted.url}/net.pth", beside)
    assert left(beside) == []


def test_a_compressed_answer_is_refused(scripted, beside):
    # ten bytes could become ten gigabytes; `identity` was asked for
    scripted.answer = lambda handler, count: send(handler, 200, BODY, Content_Encoding="gzip")
    with pytest.raises(IntegrityError, match="gzip, which was not asked for"):
        http.fetch(f"{scripted.url}/net.pth", beside)
    assert left(beside) == []


def test_credentials_in_a_url_are_refused_before_they_are_stored(beside):
    with pytest.raises(UsageError, match="carries credentials") as caught:
        http.fetch("https://user:pa55@example.org/net.pth", beside)
    assert "pa55" not in f"{caught.value}{caught.value.hint}"


def test_https_never_becomes_http(monkeypatch):
    with pytest.raises(NetworkError, match="not encrypted"):
        http.redirected("https://example.org/net.pth", "http://example.org/net.pth")
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "https")
    with pytest.raises(NetworkError, match="protocol http is not allowed"):
        http.redirected("http://example.org/net.pth", "http://example.org/other.pth")
    assert http.redirected("https://a.org/x/net.pth", "../y") == "https://a.org/y"


def test_netrc_is_for_the_first_server_only(scripted, beside, isolated, tmp_path):
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "net.pth").write_bytes(BODY)
    (isolated / ".netrc").write_text("machine 127.0.0.1 login me password pa55\n")
    with file_server(tmp_path / "files") as other:
        scripted.answer = lambda handler, count: send(handler, 302, b"", Location=f"{other.url}/net.pth")
        http.fetch(f"{scripted.url}/net.pth", beside)
        assert scripted.seen[0][1]["Authorization"] == credentials._basic("me", "pa55")
        assert "Authorization" not in other.requests[0].headers  # netrc knows no ports; hub does
        http.fetch(f"{scripted.url}/net.pth", beside, token=False)
        assert "Authorization" not in scripted.seen[-1][1]
    with settings.overriding(token="t0ken"):
        assert credentials.known(scripted.url)[0].authorization == credentials._basic("x-access-token", "t0ken")


def test_gits_credential_helpers_are_asked_when_the_server_asks(scripted, beside, isolated):
    helper = isolated / "helper"
    helper.write_text('#!/bin/sh\ntest "$1" = get || exit 0\ncat > ~/asked\necho username=me\necho password=pa55\n')
    helper.chmod(0o755)
    (isolated / ".gitconfig").write_text(f"[credential]\n helper = {helper}\n")

    def answer(handler, count):
        right = handler.headers.get("Authorization") == credentials._basic("me", "pa55")
        send(handler, 200 if right else 401, BODY)

    scripted.answer = answer
    assert http.fetch(f"{scripted.url}/a/net.pth", beside).size == len(BODY)
    host = scripted.url.removeprefix("http://")
    asked = (isolated / "asked").read_text().splitlines()
    assert {"protocol=http", f"host={host}"} <= set(asked)
    (isolated / "asked").unlink()
    with pytest.raises(NotFoundError):
        http.fetch(f"{scripted.url}/a/net.pth", beside, token=False)
    assert not (isolated / "asked").exists()
    helper.write_text("#!/bin/sh\necho quit=1\n")
    with pytest.raises(NotFoundError, match="401"):
        http.fetch(f"{scripted.url}/a/net.pth", beside)


def test_a_server_that_drips_is_given_up(scripted, beside, monkeypatch):
    monkeypatch.setattr(responses, "PACE_SECONDS", 0.2)
    monkeypatch.setattr(http, "ATTEMPTS", 2)

    def answer(handler, count):
        handler.send_response(200)
        handler.send_header("Content-Length", "100000")
        handler.end_headers()
        for _ in range(100):
            handler.wfile.write(b"x")
            REAL_SLEEP(0.05)

    scripted.answer = answer
    with pytest.raises(NetworkError, match="slower than 1000 bytes/s"):
        http.fetch(f"{scripted.url}/net.pth", beside)
    assert len(scripted.seen) == 2 and left(beside) == []


def test_the_size_limit(scripted, beside):
    with settings.overriding(size_limit=1000):
        scripted.answer = lambda handler, count: send(handler, 200, BODY)
        with pytest.raises(IntegrityError, match=r"larger than the limit of 1\.0 kB"):
            http.fetch(f"{scripted.url}/net.pth", beside)
        scripted.answer = lambda handler, count: send(handler, 200, BODY, Content_Length=None)
        with pytest.raises(IntegrityError, match="larger than the limit"):
            http.fetch(f"{scripted.url}/net.pth", beside, expected="00")
        scripted.answer = lambda handler, count: send(handler, 200, BODY[:1000])
        assert http.fetch(f"{scripted.url}/net.pth", beside).size == 1000


def test_what_servers_say_is_no_escape_sequence(scripted, beside, capsys):
    scripted.answer = lambda handler, count: handler.wfile.write(b"HTTP/1.0 503 \x1b]0;owned\x07 s3cret\r\n\r\n")
    with settings.overriding(token="s3cret"), pytest.raises(NetworkError):
        http.fetch(f"{scripted.url}/net.pth", beside)
    said = capsys.readouterr().err
    assert "503 ]0;owned ***" in said and "\x1b" not in said and "\x07" not in said


def test_a_body_without_length_or_end_needs_a_digest(scripted, beside):
    scripted.answer = lambda handler, count: send(handler, 200, BODY[:99], Content_Length=None)
    with pytest.raises(NetworkError, match="neither how long the file is nor where it ends"):
        http.fetch(f"{scripted.url}/net.pth", beside)
    digest = hashlib.sha256(BODY[:99]).hexdigest()
    assert http.fetch(f"{scripted.url}/net.pth", beside, expected=digest[:8]).size == 99


def test_a_chunked_body(scripted, beside):
    def answer(handler, count):
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (BODY[:7], BODY[7:]))
        end = b"0\r\n\r\n" if count > 1 else b""
        send(handler, 200, chunks + end, Content_Length=None, Transfer_Encoding="chunked")

    scripted.answer = answer
    assert http.fetch(f"{scripted.url}/net.pth", beside).path.read_bytes() == BODY
    assert len(scripted.seen) == 2
