"""Sessions of requests whose servers cannot stall them: what comes beside a body is bounded in bytes and in time.

The standard library takes any number of `100 Continue` answers and of lines after the last chunk, and its time limit
is for each piece that arrives, not for the whole.  Here all that is read between two parts of a body, headers, the
length of a chunk, trailers, has a budget of bytes and a deadline.
"""

from __future__ import annotations

import http.client
import io
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.response import HTTPResponse

from hubcli.net.git import process
from hubcli.net.http import certificates
from hubcli.net.http import proxies as proxies_of

HEADER_BYTES = 256 << 10  # of everything before a body
TRAILER_BYTES = 64 << 10  # of everything after it, and of the length of one chunk
SECONDS = 120.0  # for either


class TooMuch(http.client.HTTPException):
    """A server sends more than an answer needs, or takes too long for it."""


class _Source(io.RawIOBase):
    """The bytes of a connection, counted against `left` until `until` while there is a limit."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw
        self.left: int | None = None
        self.until = 0.0

    def readable(self) -> bool:
        """It is read."""
        return True

    def limit(self, nbytes: int) -> None:
        """Allow the next message `nbytes`, within `SECONDS`."""
        self.left, self.until = nbytes, time.monotonic() + SECONDS

    def readinto(self, buffer: Any) -> Any:
        """Read what is there; TooMuch beyond the limit."""
        if self.left is None:
            return self.raw.readinto(buffer)
        if self.left <= 0 or time.monotonic() > self.until:
            raise TooMuch("the server does not come to an end with what belongs to no file")
        count = self.raw.readinto(memoryview(buffer)[: max(min(len(buffer), self.left), 1)])
        self.left -= count or 0
        return count

    def close(self) -> None:
        """Close the connection's file."""
        self.raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    """An answer whose lines are counted."""

    def __init__(self, sock: Any, *args: Any, **more: Any) -> None:
        super().__init__(sock, *args, **more)
        self.source = _Source(self.fp.detach())
        self.fp = io.BufferedReader(self.source)

    def begin(self) -> None:
        """Read status and headers, and any number of `100 Continue` that fits."""
        self.source.limit(HEADER_BYTES)
        super().begin()
        self.source.left = None

    def _read_next_chunk_size(self) -> Any:
        self.source.limit(TRAILER_BYTES)
        size = super()._read_next_chunk_size()  # type: ignore[misc]
        self.source.left = None
        return size

    def _read_and_discard_trailer(self) -> None:
        self.source.limit(TRAILER_BYTES)
        super()._read_and_discard_trailer()  # type: ignore[misc]
        self.source.left = None


class _Plain(HTTPConnection):
    response_class = _Response


class _Secure(HTTPSConnection):
    response_class = _Response


class _PlainPool(HTTPConnectionPool):
    ConnectionCls = _Plain


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _Secure


_POOLS = {"http": _PlainPool, "https": _SecurePool}


class _Adapter(HTTPAdapter):
    def init_poolmanager(self, *args: Any, **more: Any) -> None:
        super().init_poolmanager(*args, **more)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, proxy: str, **more: Any) -> Any:
        manager = super().proxy_manager_for(proxy, **more)
        if not proxy.lower().startswith("socks"):
            manager.pool_classes_by_scheme = _POOLS
        return manager


def as_answered(url: str, file: Path, size: int) -> requests.Response:
    """Return what requests would have answered to a GET of `url`, whose body is in `file`; not read yet."""
    said = {"Content-Length": str(size)}
    answer = HTTPResponse(file.open("rb"), said, 200, reason="OK", preload_content=False)
    return HTTPAdapter().build_response(requests.Request("GET", url).prepare(), answer)


class _Session(requests.Session):
    def merge_environment_settings(self, url: Any, proxies: Any, stream: Any, verify: Any, cert: Any) -> Any:
        """Return the proxy and the authorities for `url`, by hub's own rules."""
        config = process.http_config(url)
        proxy = proxies_of.for_files(url, config)
        return {
            "proxies": {urlsplit(url).scheme: proxy.address} if proxy else {},
            "stream": stream,
            "verify": certificates.for_files(url, config),
            "cert": cert,
        }


def session() -> requests.Session:
    """Return a session for one exchange; nothing but what the caller says is sent as a secret."""
    made = _Session()
    made.auth = lambda request: request  # requests' own look-up in netrc would ignore who may be sent what
    for scheme in ("http://", "https://"):
        made.mount(scheme, _Adapter())
    return made
