"""Responses of a server: a body as it arrives, its place in the file and its length; or the reason that it has none.

Nothing is requested here: `http` sends the requests, and decides what is tried again.
"""

from __future__ import annotations

import email.utils
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from hubcli.base import settings
from hubcli.errors import IntegrityError, NetworkError, NotFoundError, masked

if TYPE_CHECKING:
    import requests

    from hubcli.net.http.partials import Partial

CHUNK = 1 << 20
MAX_WAIT = 60.0
MIN_RATE = 1000  # bytes in a second; whoever is slower
PACE_SECONDS = 30.0  # for this long has stalled
_RETRIED = {408, 425, 429, 500, 502, 503, 504}


@dataclass(frozen=True)
class Answer:
    """An open body: its parts, the offset of the first byte, the whole file's length and ETag.

    `validator` is what If-Range takes; `length` and `validator` None where the server says none;
    `framed` says that a body which breaks off can be distinguished from one that ends.
    """

    parts: Iterator[bytes]
    start: int
    length: int | None
    etag: str | None
    validator: str | None
    html: bool
    framed: bool = True
    linked: str | None = None  # the sha256 that the first server gives for what it redirects to


class TryAgain(Exception):
    """A failure that may pass; `wait` is what the server asks for, in seconds."""

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.wait = wait


class StartAnew(Exception):
    """The bytes here do not belong to the file that the server has now."""


def public(url: str) -> str:
    """`url` as it may be shown: without user, password and query (signed URLs carry keys there)."""
    try:
        parts = urlsplit(url)
    except ValueError:  # an IPv6 address that is none
        return re.sub(r"(?<=://)[^/@\s]*@|[?#].*", "", url)
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    return shown + ("?..." if parts.query else "")


def read(
    url: str, response: requests.Response, partial: Partial | None, range_start: int | None, sent: str = ""
) -> Answer:
    """Return the open body of a response; raises what its status means (`sent` as in `check_status`)."""
    status = response.status_code
    if status == 416 and range_start is not None:
        raise StartAnew("the server does not have the rest")
    check_status(url, response, ranged=range_start is not None, sent=sent)
    encoding = response.headers.get("Content-Encoding", "").strip().lower()
    if encoding not in ("", "identity"):
        raise IntegrityError(
            f"{public(url)}: the server sends the file as {encoding}, which was not asked for",
            hint="a small answer could unpack to any size; tell whoever runs the server",
        )
    etag = response.headers.get("ETag")
    start = 0
    length = _length(response)
    if status == 206 and partial is not None:
        start, length = _content_range(response, partial, range_start or 0)
    return Answer(
        parts_of(response),
        start,
        length,
        etag,
        _validator(response),
        response.headers.get("Content-Type", "").partition(";")[0].strip() == "text/html",
        length is not None or _chunked(response),
    )


def announced(response: requests.Response) -> str | None:
    """Return the sha256 in `X-Linked-Etag`, by which Hugging Face names a large file before it redirects to its
    store."""
    value = response.headers.get("X-Linked-Etag", "").removeprefix("W/").strip('"').lower()
    return value if re.fullmatch(r"[0-9a-f]{64}", value) else None


def _content_range(response: requests.Response, partial: Partial, wanted: int) -> tuple[int, int | None]:
    """Start and whole length of a 206, which must be what was asked for of the same file."""
    found = re.fullmatch(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)", response.headers.get("Content-Range", ""))
    if found is None or int(found.group(1)) != wanted:
        raise StartAnew("the server answers with another range")
    total = None if found.group(3) == "*" else int(found.group(3))
    promised, announced = int(found.group(2)) + 1 - wanted, _length(response)
    if promised <= 0 or announced not in (None, promised) or (total is not None and wanted + promised > total):
        raise StartAnew("the server's range and length contradict each other")
    etag = response.headers.get("ETag")
    known = partial.origin
    strong = known.validator if (known.validator or "").startswith('"') else None
    if (strong and etag and etag != strong) or (known.total and total and total != known.total):
        raise StartAnew("the file has changed")
    if total is None and known.total is None:
        raise StartAnew("the server does not say how long the file is")
    return wanted, known.total if total is None else total


def _validator(response: requests.Response) -> str | None:
    """Return what If-Range takes: a strong ETag, else a date that is surely older than any later change."""
    etag = response.headers.get("ETag", "")
    if re.fullmatch(r'"[\x21\x23-\x7e]{1,500}"', etag):
        return etag
    if etag:
        return None  # a weak one says that bytes may differ
    modified = response.headers.get("Last-Modified")
    try:
        changed = email.utils.parsedate_to_datetime(modified or "").timestamp()
        now = email.utils.parsedate_to_datetime(response.headers.get("Date", "")).timestamp()
    except (TypeError, ValueError):
        return None
    return modified if now - changed >= 60 else None


def check_status(url: str, response: requests.Response, *, ranged: bool, sent: str = "") -> None:
    """Raise what the status means, unless it is good; `sent` says in a hint which credentials were sent, if any."""
    status = response.status_code
    if status == 200 or (status == 206 and ranged):
        return
    reason = masked(f"the server answered {status} {response.reason or ''}".rstrip())
    if status in _RETRIED:
        raise TryAgain(reason, _retry_after(response.headers.get("Retry-After")))
    if status in (401, 403, 404, 410):
        now = settings.current()
        name, token = ("HF_TOKEN", now.hf_token) if settings.is_hugging_face(url) else ("HUB_TOKEN", now.token)
        private = sent or ("" if token else f": set {name} if it is private")
        raise NotFoundError(f"{public(url)}: {reason}", hint=f"the file does not exist or is private{private}")
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
    return int(text) if re.fullmatch(r"[0-9]{1,20}", text) and not _chunked(response) else None


def _chunked(response: requests.Response) -> bool:
    return "chunked" in response.headers.get("Transfer-Encoding", "").lower()


def parts_of(response: requests.Response) -> Iterator[bytes]:
    """Yield the bytes as they come over the wire, whatever has arrived; not below MIN_RATE for long."""
    from http.client import HTTPException

    import urllib3

    since, count = time.monotonic(), 0
    while True:
        try:
            part = response.raw.read1(CHUNK, decode_content=False)
        except (urllib3.exceptions.HTTPError, HTTPException, OSError) as error:
            raise TryAgain(reason_of(error)) from None
        if not part:
            return
        yield part
        count += len(part)
        elapsed = time.monotonic() - since
        if elapsed >= PACE_SECONDS:
            if count < MIN_RATE * elapsed:
                raise TryAgain(f"slower than {MIN_RATE} bytes/s for {elapsed:.0f} s")
            since, count = time.monotonic(), 0


def reason_of(error: Any) -> str:
    """Return the innermost reason of a nested requests / urllib3 error, on one line."""
    for _ in range(8):
        inner = getattr(error, "reason", None)
        if not isinstance(inner, BaseException):
            inner = next((one for one in error.args if isinstance(one, BaseException)), None)
        if inner is None:
            break
        error = inner
    text = " ".join(str(error).split()).rpartition(">: ")[2] or type(error).__name__
    text = re.sub(r"\A\w+\(host=[^)]*\): ", "", text)  # of urllib3's own connection
    return masked(re.sub(r"(?<=://)[^/@\s]*@|\?\S*", "", text))[:200]
