"""The only module that opens a socket: one file at a time, through requests, hashed as it arrives.

`fetch` writes to a temporary file that the caller puts where it belongs; what came before a failure
is stored in partial/ and taken up again (see `partials`).  Redirects are followed here, not by
requests: every hop must have an allowed scheme, https never becomes http, and credentials go to the
first URL's own server only.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urljoin, urlsplit

from hubcli.base import output, paths, settings
from hubcli.base.request import Request
from hubcli.base.version import __version__
from hubcli.errors import (
    HubError,
    IntegrityError,
    LockMismatchError,
    NetworkError,
    NotFoundError,
    OfflineError,
    UsageError,
)
from hubcli.net.http import connection_errors, credentials, responses, secret_scope
from hubcli.net.http.partials import Partial
from hubcli.net.http.responses import public as public
from hubcli.net.storage import mirror

if TYPE_CHECKING:
    import requests

ATTEMPTS = 4
CONNECT_TIMEOUT = 15.0
READ_TIMEOUT = 60.0
MAX_REDIRECTS = 10
PROGRESS = 1 << 20  # an attempt that brings this much counts as none
REDIRECTS = {301, 302, 303, 307, 308}
_HTML = (b"<!doctype html", b"<html")


@dataclass(frozen=True)
class Fetched:
    """A complete download in a temporary file.  `size` in bytes; `url` as it was requested."""

    path: Path
    url: str
    size: int
    sha256: str
    etag: str | None
    _partial: Partial = field(repr=False, compare=False)

    def release(self) -> None:
        """Delete what is left of it: after it was put in its place, or was refused."""
        self._partial.discard_all()


def fetch(
    url: str,
    beside: Path,
    *,
    token: bool = True,
    refuse_html: bool = False,
    progress: bool = True,
    expected: str | None = None,
    resumable: bool = False,
    headers: Mapping[str, str] | None = None,
    pinned: bool = False,
    request: Request | None = None,
) -> Fetched:
    """Download `url` into a temporary file, synced to disk.

    `beside` names the target.  With `resumable` the file is in partial/, outlives a failure and is
    gone on with; without, it is beside the target and is gone after a failure.  `token` allows
    credentials for the server of the URL; `refuse_html` is for files that are never web pages;
    `headers` go to that server, too;
    `expected` is the beginning of the sha256 where it is known (a resumed file that does not fit is
    fetched whole; the caller compares); where it is the whole of it, the mirror is tried first.
    Under a lock file only what that names is fetched, or what has its digest from there (`pinned`).  Raises
    OfflineError, NotFoundError, NetworkError, IntegrityError, LockMismatchError or UsageError.
    """
    request = Request.current() if request is None else request
    refuse_credentials(url)
    lock = None if pinned else request.lock
    pin = None if lock is None else lock.weight(url, public(url)).sha256
    expected = pin or expected
    if settings.current().offline and not url.lower().startswith("file:"):
        raise OfflineError(
            f"{public(url)} is not in the cache, and hub is offline",
            hint="run the command once without --offline (HUB_OFFLINE)",
        )
    target = settings.rewrite_url(url)
    settings.check_scheme(target)
    address = mirror.digest(expected)
    if address is not None:
        mirrored = from_mirror(
            address, beside, url, expected=expected, progress=progress, resumable=resumable, request=request
        )
        if mirrored is not None:
            return mirrored
    secrets: credentials.Secrets = "all" if token else "none"
    transfer = _Transfer(
        target, secrets, refuse_html, progress, expected is not None, headers or {}, request.size_limit
    )
    fetched = _download(transfer, url, beside, expected, resumable)
    if pin not in (None, fetched.sha256):
        fetched.release()
        raise LockMismatchError(
            f"{public(url)} is not what the lock file says: sha256 must be {pin}, is {fetched.sha256}",
            hint="what the URL names has changed, or the lock file was changed by hand; hub lock pins anew",
        )
    return fetched


def from_mirror(
    address: str,
    beside: Path,
    url: str,
    *,
    expected: str | None = None,
    progress: bool = True,
    resumable: bool = True,
    request: Request | None = None,
) -> Fetched | None:
    """Return what the mirror has at `address` for `url`; None where it lacks it.

    Also where it fails, or sends what is not `expected`: then it is tried no more.  HUB_TOKEN is not for
    mirrors; what ~/.netrc has for the host is.
    """
    limit = (request or Request.current()).size_limit
    transfer = _Transfer(address, "netrc", True, progress, expected is not None, {}, limit)
    try:
        fetched = _download(transfer, url, beside, expected, resumable, key=address)
    except NotFoundError as error:
        output.detail(f"not in the mirror: {error.message}")
        return None
    except HubError as error:
        mirror.give_up(error.message)
        return None
    if expected is not None and fetched.sha256 != expected.lower():
        fetched.release()
        mirror.give_up(f"{public(address)} has sha256 {fetched.sha256}")
        return None
    output.detail(f"from the mirror: {public(address)}")
    return fetched


def _download(
    request: _Transfer, url: str, beside: Path, expected: str | None, resumable: bool, key: str | None = None
) -> Fetched:
    """Return the file, from what is left of an earlier attempt on; `key` names those attempts, if not `url`."""
    partial = Partial(key or url, beside, paths.partial() if resumable else None, checked=expected is not None)
    try:
        fetched = _attempts(request, url, partial)
        if partial.resumed and expected and not fetched.sha256.startswith(expected.lower()):
            output.message(f"{public(url)}: what was resumed does not fit; fetching it whole")
            partial.restart()
            fetched = _attempts(request, url, partial)
        return fetched
    except BaseException as error:
        refused = isinstance(error, IntegrityError | NotFoundError | LockMismatchError)
        if not resumable or refused or not partial.size:
            partial.discard()
        raise


@dataclass(frozen=True)
class _Transfer:
    """A request to a server; `secrets` may be sent to the server of the target."""

    target: str
    secrets: credentials.Secrets
    refuse_html: bool
    progress: bool
    checked: bool
    headers: Mapping[str, str]
    limit: int | None  # bytes


def _attempts(request: _Transfer, url: str, partial: Partial) -> Fetched:
    left, best = ATTEMPTS, partial.size
    while True:
        wait: float | None = None
        try:
            return _attempt(request, url, partial)
        except responses.StartAnew as error:
            reason, wait = str(error), 0.0
            partial.restart()
            left -= 1
        except responses.TryAgain as error:
            reason, wait = str(error), error.wait
            left = ATTEMPTS - 1 if partial.size >= best + PROGRESS else left - 1
            best = max(best, partial.size)
        if left <= 0:
            kept = f", {partial.size} bytes are stored" if partial.size and partial.retained else ""
            raise NetworkError(
                f"{public(request.target)}: {reason} ({ATTEMPTS} attempts{kept})",
                hint="check the network and any proxy (HTTPS_PROXY), then try again",
            )
        if wait is None:
            wait = 0.25 * 2 ** (ATTEMPTS - 1 - left) * (1 + random.random() / 4)
        output.message(f"{public(request.target)}: {reason}; trying again in {wait:.1f} s")
        time.sleep(wait)


def refuse_credentials(url: str) -> None:
    """Raise UsageError for a URL with user or password in it: it would be stored with the file."""
    settings.check_address(url)
    parts = urlsplit(url)
    if "@" in parts.netloc and parts.scheme != "file":
        raise UsageError(
            f"{public(url)} carries credentials",
            hint="leave them out of the URL; set HUB_TOKEN, or use ~/.netrc or git's credential helper",
        )


def _attempt(request: _Transfer, url: str, partial: Partial) -> Fetched:
    target = request.target
    if partial.size and partial.origin.validator is None:
        partial.restart()  # nothing says whether the file is still the same
    with contextlib.ExitStack() as stack:
        stack.enter_context(disk_full_said(partial.path.parent))
        if target.startswith("file://"):
            answer = _open_file(target, stack)
        elif target.startswith("s3://"):
            answer = _open_object(target, partial)
        else:
            answer = _open(target, request, partial, stack)
        if answer.start == 0 and partial.size:
            partial.restart()  # the file has changed, or the server gives no ranges
        if request.refuse_html and answer.html:
            raise _is_html(target)
        if not (answer.framed or request.checked):
            raise NetworkError(
                f"{public(target)}: the server says neither how long the file is nor where it ends",
                hint="so half of it would look like all of it; a file name with its hash would help",
            )
        check_size(target, answer.length, request.limit)
        rest = None if answer.length is None else answer.length - partial.size
        _check_space(partial.path.parent, rest, target)
        if partial.size == 0:
            partial.begin(answer.validator, answer.length)
        skip = partial.size - answer.start  # a byte that was there, asked for to hear of changes
        stack.enter_context(partial)
        bar: output.Progress = output.Progress()
        if request.progress:
            name = unquote(urlsplit(url).path.rpartition("/")[2]) or public(url)
            bar = stack.enter_context(output.progress(name, answer.length))
            bar.update(partial.size)
        for part in answer.parts:
            if skip:
                skip, part = max(skip - len(part), 0), part[skip:]
            page = request.refuse_html and part.lstrip()[:16].lower().startswith(_HTML)
            if partial.size == 0 and page:
                raise _is_html(target)
            partial.append(part)
            if answer.length is None:
                check_size(target, partial.size, request.limit)
            bar.update(len(part))
        if answer.length is not None and partial.size != answer.length:
            raise responses.TryAgain(f"the connection broke off after {partial.size} of {answer.length} bytes")
        partial.sync()
    if answer.linked not in (None, partial.digest.hexdigest()):
        raise IntegrityError(
            f"{public(target)}: sha256 is {partial.digest.hexdigest()}, its server says {answer.linked}",
            hint="what the server redirects to is not what it announces; nothing of it was stored",
        )
    return Fetched(partial.path, url, partial.size, partial.digest.hexdigest(), answer.etag, partial)


def _open(url: str, request: _Transfer, partial: Partial | None, stack: contextlib.ExitStack) -> responses.Answer:
    """Send the request, for the rest of `partial` if there is any; follow redirects; `stack` closes what was opened."""
    import requests
    import urllib3

    from hubcli.net.http import sessions

    session = stack.enter_context(sessions.session())
    first = url
    allowed = request.secrets if request.secrets != "all" or secret_scope.may_have_secrets(url) else "none"
    login = credentials.Login(first, allowed)
    range_start = None if partial is None else _range_start(partial)
    refused: requests.Response | None = None
    linked: str | None = None
    hops = 0
    while hops <= MAX_REDIRECTS:
        headers = {"Accept-Encoding": "identity", "User-Agent": f"hub/{__version__}"}
        if origin(url) == origin(first):
            headers |= {**request.headers, **login.authorization}
        if partial is not None and range_start is not None:
            headers["Range"] = f"bytes={range_start}-"
            headers["If-Range"] = str(partial.origin.validator)
        try:
            response = session.get(
                url,
                headers=headers,
                stream=True,
                allow_redirects=False,
                timeout=(CONNECT_TIMEOUT, READ_TIMEOUT),
            )
        except HubError:  # a setting that names no authority
            raise
        except (requests.RequestException, urllib3.exceptions.HTTPError, ValueError) as error:
            raise connection_errors.because(url, error) from None
        stack.callback(response.close)
        connection_errors.refuse_login(url, response)
        if origin(url) == origin(first):
            linked = responses.announced(response) or linked
        location = response.headers.get("Location")
        if response.status_code in REDIRECTS and location:
            url = redirected(url, location)
            hops += 1
            continue
        if origin(url) == origin(first):
            refused = _telling(refused, response)
            if login.another(response.status_code):
                url = first
                continue
            if response.status_code in credentials.REFUSALS:
                response = refused
        if response.ok:
            login.accepted()
        sent = login.said or _withheld(first, request.secrets, allowed)
        return replace(responses.read(url, response, partial, range_start, sent), linked=linked)
    raise NetworkError(f"{public(url)}: more than {MAX_REDIRECTS} redirects")


def _telling(before: requests.Response | None, now: requests.Response) -> requests.Response:
    """Of two refusals the one to report: that somebody who is known has met, not that a stranger is unknown."""
    return now if before is None or before.status_code == 401 else before


def _withheld(url: str, wanted: credentials.Secrets, allowed: credentials.Secrets) -> str:
    """Return what a hint has to add where a token was not for this server to see."""
    sources = [one.source for one in credentials.tokens(url)] if (wanted, allowed) == ("all", "none") else []
    return f" ({' and '.join(sources)} is sent only to servers that your own command names)" if sources else ""


def length(url: str) -> int | None:
    """Return how many bytes the server says a file has; None where it does not.  No secret is sent, nothing of it
    is read."""
    settings.check_scheme(settings.rewrite_url(url))
    request = _Transfer(settings.rewrite_url(url), "none", True, False, False, {}, None)
    with contextlib.ExitStack() as stack:
        try:
            answer = _open(request.target, request, None, stack)
        except (HubError, responses.TryAgain):
            return None
        return None if answer.html else answer.length


def _range_start(partial: Partial) -> int | None:
    """Return where to go on; at a complete file its last byte, so that a change is heard of."""
    if not partial.size or partial.origin.validator is None:
        return None
    return partial.size - (partial.size == partial.origin.total)


def origin(url: str) -> tuple[str, str | None, int | None]:
    """Scheme, host and port, by which servers are distinguished."""
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = None
    return parts.scheme, parts.hostname, port


def redirected(url: str, location: str) -> str:
    """Return where an answer of `url` leads; NetworkError where that may not be."""
    try:
        target = urljoin(url, location)
        scheme = urlsplit(target).scheme
    except ValueError:
        raise NetworkError(f"{public(url)} redirects to {location[:200]!r}, which is no address") from None
    if scheme == "file":
        raise NetworkError(f"{public(url)} redirects to a local file, which is refused")
    if scheme != "https" and urlsplit(url).scheme == "https":
        raise NetworkError(
            f"{public(url)} redirects to {public(target)}, which is not encrypted",
            hint="tell whoever runs the server",
        )
    try:
        settings.check_scheme(target)
    except UsageError as error:
        raise NetworkError(f"{public(url)} redirects to {public(target)}: {error.message}", hint=error.hint) from None
    return target


def file_path(url: str) -> Path:
    """Return the path that a file: URL names."""
    return Path(unquote(urlsplit(url).path))


def _open_file(url: str, stack: contextlib.ExitStack) -> responses.Answer:
    path = file_path(url)
    if not path.is_file():  # nor a pipe, which would keep us waiting
        raise NotFoundError(f"{url}: no such file", hint="check the path")
    file = stack.enter_context(path.open("rb"))
    parts = iter(lambda: file.read(responses.CHUNK), b"")
    return responses.Answer(parts, 0, os.fstat(file.fileno()).st_size, None, None, False)


def _open_object(url: str, partial: Partial) -> responses.Answer:
    from hubcli.net.storage import objects

    size, etag = objects.info(url)
    start = partial.size if etag is not None and etag == partial.origin.validator and partial.size <= size else 0
    return responses.Answer(objects.parts(url, start, size), start, size, etag, etag, False)


def check_size(url: str, size: int | None, limit: int | None) -> None:
    """Raise IntegrityError for what is larger than --size-limit."""
    if limit is not None and size is not None and size > limit:
        raise IntegrityError(
            f"{public(url) if '://' in url else url} is larger than the limit of {output.size(limit)}",
            hint="raise --size-limit if you want it",
        )


def _check_space(folder: Path, length: int | None, url: str) -> None:
    if length is not None:
        free = shutil.disk_usage(folder).free
        if length > free:
            raise _disk_full(folder, f"{public(url)} has {length} bytes, {free} are free")


@contextlib.contextmanager
def disk_full_said(folder: Path) -> Iterator[None]:
    """Have a full disk said like every other trouble, with a hint."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise _disk_full(folder, str(error.strerror)) from None
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
