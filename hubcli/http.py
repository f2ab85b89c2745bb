"""The only module that opens a socket: one file at a time, through requests, hashed as it arrives.

`fetch` writes to a temporary file that the caller renames to where it belongs; it is gone after a
failure.  Redirects are followed here, not by requests: every hop must have an allowed scheme, and
the token goes to the host of the first URL only.
"""

from __future__ import annotations

import base64
import contextlib
import email.utils
import errno
import hashlib
import os
import random
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import unquote, urljoin, urlsplit

from hubcli import output, paths, settings
from hubcli._version import __version__
from hubcli.errors import (
    HubError,
    IntegrityError,
    NetworkError,
    NotFoundError,
    OfflineError,
    UsageError,
)

if TYPE_CHECKING:
    import requests

CHUNK = 256 * 1024
ATTEMPTS = 4
CONNECT_TIMEOUT = 15.0
READ_TIMEOUT = 60.0
MAX_REDIRECTS = 10
MAX_WAIT = 60.0
_RETRIED = {408, 425, 429, 500, 502, 503, 504}
_REDIRECTS = {301, 302, 303, 307, 308}
_HTML = (b"<!doctype html", b"<html")


@dataclass(frozen=True)
class Fetched:
    """A complete download in a temporary file.  `size` in bytes; `url` as it was asked for."""

    path: Path
    url: str
    size: int
    sha256: str
    etag: str | None


@dataclass(frozen=True)
class _Answer:
    """An open body: its parts, its length where the server says it, its validator."""

    parts: Iterator[bytes]
    length: int | None
    etag: str | None
    html: bool


class _TryAgain(Exception):
    """A failure that may pass; `wait` is what the server asks for, in seconds."""

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.wait = wait


def fetch(
    url: str,
    beside: Path,
    *,
    token: bool = True,
    refuse_html: bool = False,
    progress: bool = True,
) -> Fetched:
    """Download `url` into a new temporary file named after `beside`, synced to disk.

    `token` allows HUB_TOKEN for the host of the URL; `refuse_html` is for files that are never
    web pages.  Raises OfflineError, NotFoundError, NetworkError, IntegrityError or UsageError.
    """
    if settings.current().offline:
        raise OfflineError(
            f"{public(url)} is not in the cache, and hub is offline",
            hint="run the command once without --offline (HUB_OFFLINE)",
        )
    target = settings.rewrite_url(url)
    settings.check_scheme(target)
    temporary = beside.with_name(f"{beside.name}.{paths.unique()}.partial")
    try:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return _attempt(url, target, temporary, token, refuse_html, progress)
            except _TryAgain as error:
                if attempt == ATTEMPTS:
                    raise NetworkError(
                        f"{public(target)}: {error} ({ATTEMPTS} attempts)",
                        hint="check the network and any proxy (HTTPS_PROXY), then try again",
                    ) from None
                wait = error.wait
                if wait is None:
                    wait = 0.25 * 2 ** (attempt - 1) * (1 + random.random() / 4)
                output.message(f"{public(target)}: {error}; trying again in {wait:.1f} s")
                time.sleep(wait)
        raise AssertionError("unreachable")
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def public(url: str) -> str:
    """`url` as it may be shown: without user, password and query (signed URLs carry keys there)."""
    parts = urlsplit(url)
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    return shown + ("?..." if parts.query else "")


def _attempt(
    url: str, target: str, temporary: Path, token: bool, refuse_html: bool, progress: bool
) -> Fetched:
    with contextlib.ExitStack() as stack:
        answer = (
            _open_file(target, stack)
            if target.startswith("file://")
            else _open(target, token, stack)
        )
        if refuse_html and answer.html:
            raise _is_html(target)
        _check_space(temporary.parent, answer.length, target)
        digest = hashlib.sha256()
        size = 0
        file = stack.enter_context(open(temporary, "wb"))
        bar: output.Progress = output.Progress()
        if progress:
            name = unquote(urlsplit(url).path.rpartition("/")[2]) or public(url)
            bar = stack.enter_context(output.progress(name, answer.length))
        for part in answer.parts:
            if size == 0 and refuse_html and part.lstrip()[:16].lower().startswith(_HTML):
                raise _is_html(target)
            digest.update(part)
            _write(file, part, temporary)
            size += len(part)
            bar.update(len(part))
        if answer.length is not None and size != answer.length:
            raise _TryAgain(f"the connection broke off after {size} of {answer.length} bytes")
        file.flush()
        os.fsync(file.fileno())
    return Fetched(temporary, url, size, digest.hexdigest(), answer.etag)


def _open(url: str, token: bool, stack: contextlib.ExitStack) -> _Answer:
    """Send the request and follow redirects; `stack` closes what was opened."""
    import requests
    import urllib3

    session = stack.enter_context(requests.Session())
    first_host = urlsplit(url).netloc
    for _ in range(MAX_REDIRECTS + 1):
        headers = {"Accept-Encoding": "identity", "User-Agent": f"hub/{__version__}"}
        secret = settings.current().token
        if token and secret and urlsplit(url).netloc == first_host:
            pair = base64.b64encode(f"x-access-token:{secret}".encode()).decode()
            headers["Authorization"] = f"Basic {pair}"  # as git sends it
        try:
            response = session.get(
                url,
                headers=headers,
                stream=True,
                allow_redirects=False,
                timeout=(CONNECT_TIMEOUT, READ_TIMEOUT),
            )
        except requests.exceptions.SSLError as error:
            raise NetworkError(
                f"{public(url)}: the certificate was refused: {_reason(error)}",
                hint="set REQUESTS_CA_BUNDLE to your own authority's file if there is one",
            ) from None
        except (requests.ConnectionError, requests.Timeout) as error:
            raise _TryAgain(_reason(error)) from None
        except (requests.RequestException, urllib3.exceptions.HTTPError, ValueError) as error:
            raise NetworkError(f"{public(url)}: {_reason(error)}") from None
        stack.callback(response.close)
        location = response.headers.get("Location")
        if response.status_code in _REDIRECTS and location:
            url = _redirected(url, location)
            continue
        _check_status(url, response)
        return _Answer(
            _body(response),
            _length(response),
            response.headers.get("ETag"),
            response.headers.get("Content-Type", "").partition(";")[0].strip() == "text/html",
        )
    raise NetworkError(f"{public(url)}: more than {MAX_REDIRECTS} redirects")


def _redirected(url: str, location: str) -> str:
    target = urljoin(url, location)
    if urlsplit(target).scheme == "file":
        raise NetworkError(f"{public(url)} redirects to a local file, which is refused")
    try:
        settings.check_scheme(target)
    except UsageError as error:
        raise NetworkError(
            f"{public(url)} redirects to {public(target)}: {error.message}", hint=error.hint
        ) from None
    return target


def _check_status(url: str, response: requests.Response) -> None:
    status = response.status_code
    if status == 200:
        return
    reason = f"the server answered {status} {response.reason or ''}".rstrip()
    if status in _RETRIED:
        raise _TryAgain(reason, _retry_after(response.headers.get("Retry-After")))
    if status in (401, 403, 404, 410):
        private = "" if settings.current().token else ": set HUB_TOKEN if it is private"
        raise NotFoundError(
            f"{public(url)}: {reason}", hint=f"the file does not exist or is private{private}"
        )
    raise NetworkError(f"{public(url)}: {reason}")


def _retry_after(value: str | None) -> float | None:
    """Seconds to wait, from a number or a date; None where the server does not say."""
    if value is None:
        return None
    try:
        wait = float(value)
    except ValueError:
        try:
            wait = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except (TypeError, ValueError):
            return None
    return min(max(wait, 0.0), MAX_WAIT) if wait == wait else None


def _length(response: requests.Response) -> int | None:
    text = response.headers.get("Content-Length", "")
    return int(text) if text.isascii() and text.isdigit() else None


def _body(response: requests.Response) -> Iterator[bytes]:
    """The bytes as they came over the wire, not decoded: lengths and digests mean these."""
    import urllib3

    try:
        yield from response.raw.stream(CHUNK, decode_content=False)
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise _TryAgain(_reason(error)) from None


def _open_file(url: str, stack: contextlib.ExitStack) -> _Answer:
    path = Path(unquote(urlsplit(url).path))
    if not path.is_file():  # nor a pipe, which would keep us waiting
        raise NotFoundError(f"{url}: no such file", hint="check the path")
    file = stack.enter_context(path.open("rb"))
    parts = iter(lambda: file.read(CHUNK), b"")
    return _Answer(parts, os.fstat(file.fileno()).st_size, None, False)


def _check_space(folder: Path, length: int | None, url: str) -> None:
    if length is not None:
        free = shutil.disk_usage(folder).free
        if length > free:
            raise _disk_full(folder, f"{public(url)} has {length} bytes, {free} are free")


def _write(file: BinaryIO, part: bytes, path: Path) -> None:
    try:
        file.write(part)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _disk_full(path.parent, str(error.strerror)) from None
        raise


def _disk_full(folder: Path, detail: str) -> HubError:
    return HubError(
        f"no space in {folder}: {detail}",
        hint="`hub cache ls` shows what could go; --hub-dir names another place",
    )


def _is_html(url: str) -> IntegrityError:
    hint = "the server answered with a page, perhaps a login or an error"
    if "/blob/" in url:
        hint = f"use the file's own address: {public(url).replace('/blob/', '/raw/')}"
    return IntegrityError(f"{public(url)} is a web page, not a file of weights", hint=hint)


def _reason(error: Any) -> str:
    """The innermost reason of a nested requests / urllib3 error, on one line."""
    for _ in range(8):
        inner = getattr(error, "reason", None)
        if not isinstance(inner, BaseException):
            inner = next((one for one in error.args if isinstance(one, BaseException)), None)
        if inner is None:
            break
        error = inner
    text = " ".join(str(error).split()).rpartition(">: ")[2] or type(error).__name__
    return text[:200]
