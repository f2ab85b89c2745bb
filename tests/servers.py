"""Real servers on 127.0.0.1 for tests and the demo: git over smart HTTP, and files with ranges.

Nothing here is a mock: git is git's own `http-backend`, the files come through sockets.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote, urlsplit

_IDENTITY = {
    "GIT_AUTHOR_NAME": "tests",
    "GIT_AUTHOR_EMAIL": "tests@localhost",
    "GIT_COMMITTER_NAME": "tests",
    "GIT_COMMITTER_EMAIL": "tests@localhost",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
}


@dataclass(frozen=True)
class Request:
    """One request as the server has seen it."""

    method: str
    path: str
    headers: Mapping[str, str]


@dataclass
class Served:
    """What a running server has counted, and how it is to behave from now on."""

    url: str
    requests: list[Request] = field(default_factory=list)
    sent: int = 0
    delay: float = 0.0
    credentials: str | None = None
    redirect: str | None = None
    fault: Callable[[Any], bool | int] | None = None
    writable: bool = False

    def reset(self) -> None:
        """Count from nothing again."""
        self.requests.clear()
        self.sent = 0


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(
        self, handler: type[_Handler], root: Path, host: str = "127.0.0.1", context: ssl.SSLContext | None = None
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, 0), handler)
        self.root = root
        self.lock = threading.Lock()
        shown = f"[{host}]" if ":" in host else host
        self.served = Served(f"{'https' if context else 'http'}://{shown}:{self.server_address[1]}")
        if context:
            self.socket = context.wrap_socket(self.socket, server_side=True)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are two writes: Nagle would add 40 ms to each
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def admitted(self) -> bool:
        """Log the request; answer it here if the server is to ask for credentials or redirect."""
        served = self.server.served
        with self.server.lock:
            served.requests.append(Request(self.command, self.path, dict(self.headers)))
        if served.delay:
            time.sleep(served.delay)
        self.cut: int | None = None
        if served.fault is not None:
            found = served.fault(self)
            if found is True:
                return False
            self.cut = None if found is False else found
        if served.redirect:
            self.answer(302, b"", {"Location": served.redirect + self.path})
            return False
        if served.credentials is not None:
            wanted = base64.b64encode(f"x-access-token:{served.credentials}".encode()).decode()
            if self.headers.get("Authorization") != f"Basic {wanted}":
                self.answer(401, b"credentials\n", {"WWW-Authenticate": 'Basic realm="tests"'})
                return False
        return True

    def answer(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        """Send a whole answer and count its bytes."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if not any(name.lower() == "content-length" for name in headers):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with self.server.lock:
            self.server.served.sent += len(body)
        if self.command != "HEAD":
            self.wfile.write(body[: self.cut])
            if self.cut is not None and self.cut < len(body):
                self.hang_up()

    def hang_up(self) -> None:
        """End the connection here and now."""
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


class _GitHandler(_Handler):
    def do_GET(self) -> None:
        self._backend(b"")

    def do_POST(self) -> None:
        self.received = self._body()
        self._backend(self.received)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        chunks = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def _backend(self, body: bytes) -> None:
        if not self.admitted():
            return
        parts = urlsplit(self.path)
        environment = {
            "PATH": os.environ["PATH"],
            **_IDENTITY,
            "GIT_PROJECT_ROOT": str(self.server.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": unquote(parts.path),
            "QUERY_STRING": parts.query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "REMOTE_ADDR": self.client_address[0],
        }
        result = subprocess.run(["git", "http-backend"], input=body, env=environment, capture_output=True, check=False)
        head, _, content = result.stdout.partition(b"\r\n\r\n")
        headers = {}
        for line in head.decode().splitlines():
            name, _, value = line.partition(": ")
            headers[name] = value
        status = int(headers.pop("Status", "200 OK").split()[0])
        if result.returncode != 0 and not head:
            status, content = 500, result.stderr
        self.answer(status, content, headers)


class _FileHandler(_Handler):
    def do_GET(self) -> None:
        self._file()

    def do_HEAD(self) -> None:
        self._file()

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._change(lambda path: (path.parent.mkdir(parents=True, exist_ok=True), path.write_bytes(body)))

    def do_DELETE(self) -> None:
        self._change(lambda path: path.unlink())

    def _change(self, change: Callable[[Path], Any]) -> None:
        if not self.admitted():
            return
        path = self._path()
        if not self.server.served.writable or not path.is_relative_to(self.server.root.resolve()):
            self.answer(405, b"read only\n", {})
            return
        try:
            change(path)
        except FileNotFoundError:
            self.answer(404, b"no such file\n", {})
        else:
            self.answer(204, b"", {})

    def _path(self) -> Path:
        return (self.server.root / unquote(urlsplit(self.path).path).lstrip("/")).resolve()

    def _file(self) -> None:
        if not self.admitted():
            return
        path = self._path()
        if not path.is_relative_to(self.server.root.resolve()) or not path.is_file():
            self.answer(404, b"no such file\n", {"Content-Type": "text/plain"})
            return
        status = path.stat()
        etag = f'"{status.st_mtime_ns:x}-{status.st_size:x}"'
        headers = {
            "ETag": etag,
            "Accept-Ranges": "bytes",
            "Content-Type": "application/octet-stream",
        }
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        start, stop = 0, status.st_size
        if wanted and self.headers.get("If-Range", etag) == etag:
            start = int(wanted.group(1))
            stop = min(int(wanted.group(2) or stop - 1) + 1, stop)
            if start >= stop:
                self.answer(416, b"", {**headers, "Content-Range": f"bytes */{status.st_size}"})
                return
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{status.st_size}"
        self.send_response(206 if "Content-Range" in headers else 200)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(stop - start))
        self.end_headers()
        if self.command == "HEAD":
            return
        until = stop if self.cut is None else min(stop, start + self.cut)
        with path.open("rb") as file:
            while start < until:
                sent = self.connection.sendfile(file, start, min(until - start, 1 << 20))
                start += sent
                with self.server.lock:
                    self.server.served.sent += sent
        if until < stop:
            self.hang_up()


@contextlib.contextmanager
def _serve(handler: type[_Handler], root: Path, **more: Any) -> Iterator[Served]:
    server = _Server(handler, root, **more)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server.served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.contextmanager
def git_server(root: Path, **more: Any) -> Iterator[Served]:
    """Serve the bare repositories below `root` by `git http-backend`: `<url>/<owner>/<repo>.git`.

    Set `credentials` to demand that token, `redirect` to send clients elsewhere, `delay` to be slow.  `host` may be
    "::1", an ssl `context` makes it https.
    """
    with _serve(_GitHandler, root, **more) as served:
        yield served


@contextlib.contextmanager
def file_server(root: Path, **more: Any) -> Iterator[Served]:
    """Serve the files below `root` with strong ETags and byte ranges; `writable` takes PUT and DELETE.

    Set `fault` (here or at a git server) to a function of the request's handler: True says that it
    has answered itself, a number that the connection breaks off after so many bytes of the body.
    """
    with _serve(_FileHandler, root, **more) as served:
        yield served


class Scripted:
    """A server whose every answer is chosen by the test: `answer(handler, number of the request)`.

    `seen` holds the requests so far as (path, headers).
    """

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.answer: Callable[[BaseHTTPRequestHandler, int], None] = lambda handler, count: None
        self.url = ""


def send(handler: BaseHTTPRequestHandler, status: int, body: bytes, **headers: str | None) -> None:
    """Answer a request; `Content_Length=None` leaves that header out."""
    handler.send_response(status)
    headers.setdefault("Content_Length", str(len(body)))
    for name, value in headers.items():
        if value is not None:
            handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)


@contextlib.contextmanager
def scripted_server() -> Iterator[Scripted]:
    """A server that says whatever the test wants it to say."""
    made = Scripted()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.seen.append((self.path, dict(self.headers)))
            with contextlib.suppress(ConnectionError):  # the client may hang up
                made.answer(self, len(made.seen))

        do_CONNECT = do_GET  # as a proxy hears it

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.block_on_close = False
    made.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.contextmanager
def dead_server() -> Iterator[str]:
    """A URL where nothing listens, and nothing else will for as long as the block lasts."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@contextlib.contextmanager
def silent_server() -> Iterator[str]:
    """A URL whose server accepts connections and never says a word."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(16)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@dataclass(frozen=True)
class Repository:
    """A bare repository below a git server's root, and a work tree to commit from."""

    bare: Path
    work: Path

    @classmethod
    def create(cls, root: Path, name: str, branch: str = "main", format: str = "sha1") -> Self:
        """Make `<root>/<owner>/<repo>.git` for the name `owner/repo`; `format` is that of its objects' names."""
        bare = root / f"{name}.git"
        work = root / ".work" / name
        for path in (bare, work):
            path.mkdir(parents=True)
        made = cls(bare, work)
        made.git("init", "-q", "--bare", "-b", branch, f"--object-format={format}", cwd=bare)
        made.git("init", "-q", "-b", branch, f"--object-format={format}")
        made.git("remote", "add", "origin", str(bare))
        made.git("config", "uploadpack.allowFilter", "true", cwd=bare)
        return made

    def git(self, *command: str, cwd: Path | None = None) -> str:
        """Run git in the work tree; its stdout."""
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.work), **_IDENTITY}
        result = subprocess.run(
            ["git", *command],
            cwd=cwd or self.work,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode:
            raise RuntimeError(f"git {' '.join(command)}: {result.stderr}")
        return result.stdout.strip()

    def commit(self, files: Mapping[str, str | bytes], *, tag: str | None = None, message: str = "commit") -> str:
        """Write `files`, commit everything, push the branch (and `tag`); the commit's id."""
        for name, content in files.items():
            path = self.work / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        if tag:
            self.git("tag", tag)
        self.push()
        return self.git("rev-parse", "HEAD")

    def push(self) -> None:
        """Push all branches and tags."""
        self.git("push", "-q", "--force", "--all", "origin")
        self.git("push", "-q", "--force", "--tags", "origin")

    def mirror(self, folder: Path) -> None:
        """Copy the bare repository to `folder`."""
        shutil.copytree(self.bare, folder)
