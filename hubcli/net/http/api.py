"""Requests with small responses: the LFS batch API, a mirror's server, the address that a repository has now."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hubcli.base import output, settings
from hubcli.base.version import __version__
from hubcli.errors import HubError, NetworkError, OfflineError
from hubcli.net.http import connection_errors, credentials, responses, secret_scope
from hubcli.net.http import fetch as http
from hubcli.net.http.responses import public

_LARGEST = 10_000_000  # bytes of an answer
_REFS = "/info/refs"


def post_json(url: str, document: Any, media_type: str) -> Any:
    """Send a JSON document to the server of a repository; its answer, of at most 10 MB.  No rewrite is applied."""
    http.refuse_credentials(url)
    if settings.current().offline:
        raise OfflineError(f"{public(url)} cannot be asked offline", hint="run without --offline")
    settings.check_scheme(url)
    headers = {"Accept": media_type, "Content-Type": media_type}
    # by foreign code: then neither token nor helper
    secrets: credentials.Secrets = "all" if secret_scope.may_have_secrets(url) else "none"
    try:
        _, _, body = _exchange("POST", url, json.dumps(document).encode(), headers, secrets)
        return json.loads(body)
    except responses.TryAgain as error:
        raise NetworkError(f"{public(url)}: {error}", hint="try again") from None
    except ValueError as error:
        if isinstance(error, HubError):
            raise
        raise NetworkError(f"{public(url)}: {responses.reason_of(error)}") from None


def send(method: str, url: str, content: Path | bytes | None = None) -> tuple[int | None, bytes]:
    """PUT, GET, HEAD or DELETE at the server of a mirror that is written: length and body of the answer.

    Again and again where a failure may pass.  Raises NotFoundError or NetworkError.  HUB_TOKEN is not sent, what
    ~/.netrc has for the host is.
    """
    settings.check_scheme(url)
    for left in range(http.ATTEMPTS - 1, -1, -1):
        try:
            _, headers, body = _exchange(method, url, content, {}, "netrc")
            length = headers.get("Content-Length", "")
            return int(length) if length.isdecimal() else None, body
        except responses.TryAgain as error:
            if not left:
                message = f"{public(url)}: {error} ({http.ATTEMPTS} attempts)"
                raise NetworkError(message, hint="try again later") from None
            output.message(f"{public(url)}: {error}; trying again")
            time.sleep(min(error.wait or 2.0**-left, responses.MAX_WAIT))
    raise AssertionError("unreachable")


def moved(url: str, authorization: str | None, *, netrc: bool = False) -> str:
    """Return where the git repository at `url` is now, by its server's response to git's own first request.

    `url` itself where it does not redirect.  `authorization`, or with `netrc` what netrc and helpers know once the
    server asks, goes to the server of `url` alone, and an `authorization` is not left behind: NetworkError where it
    leads to another host then, and always where it leads to http from https or to what is no repository.
    """
    import requests

    from hubcli.net.http import sessions

    first = requested = f"{url.rstrip('/')}{_REFS}?service=git-upload-pack"
    headers = {"User-Agent": f"git/2 (hub/{__version__})", "Accept-Encoding": "identity"}
    secret = authorization
    with sessions.session() as session:
        for _ in range(http.MAX_REDIRECTS):
            own = same_server(url, requested)
            sent = {**headers, "Authorization": secret} if secret and own else headers
            try:
                with session.get(
                    requested,
                    headers=sent,
                    stream=True,
                    allow_redirects=False,
                    timeout=(http.CONNECT_TIMEOUT, http.READ_TIMEOUT),
                ) as response:
                    location, status = response.headers.get("Location"), response.status_code
            except HubError:
                raise
            except (requests.RequestException, ValueError) as error:
                reason = connection_errors.because(requested, error)
                raise reason if isinstance(reason, HubError) else NetworkError(f"{public(url)}: {reason}") from None
            if status == 401 and netrc and own and secret is None:
                netrc = False
                known = [*credentials.from_netrc(requested), credentials.from_helper(requested)]
                secret = known[0].authorization if known[0] else None
                if secret:
                    continue
            if status not in http.REDIRECTS or not location:
                return url if requested == first else requested.partition("?")[0].removesuffix(_REFS)
            requested = http.redirected(requested, location)
            base = public(requested).removesuffix("?...").removesuffix(_REFS)
            if not urlsplit(requested).path.endswith(_REFS) or "@" in urlsplit(requested).netloc:
                raise NetworkError(
                    f"{public(url)} redirects to {base}, which is no repository's address",
                    hint="is there a page to log in? look at it with a browser",
                )
            if authorization and not same_server(url, requested):
                raise NetworkError(
                    f"{public(url)} redirects elsewhere, to {base}, and what is secret is sent to no second host",
                    hint=f"if you trust it, name it: {base}",
                )
    raise NetworkError(f"{public(url)}: more than {http.MAX_REDIRECTS} redirects")


def same_server(old: str, new: str) -> bool:
    """Return whether two URLs have one host and port; its http may have become https."""
    before, after = http.origin(old), http.origin(new)
    upgraded = (before[0], before[2] or 80, after[0], after[2] or 443) == ("http", 80, "https", 443)
    return before == after or (upgraded and before[1] == after[1])


def _exchange(
    method: str, url: str, content: Path | bytes | None, more: Mapping[str, str], secrets: credentials.Secrets
) -> tuple[int, Mapping[str, str], bytes]:
    """One request with a small answer: status, headers and body, of at most 10 MB.

    A redirect is followed on the same server, with the same method.
    """
    import requests

    from hubcli.net.http import sessions

    headers = {**more, "Accept-Encoding": "identity", "User-Agent": f"hub/{__version__}"}
    login = credentials.Login(url, secrets)
    hops = 0
    try:
        with sessions.session() as session, contextlib.ExitStack() as stack:
            while True:
                data = stack.enter_context(content.open("rb")) if isinstance(content, Path) else content
                with session.request(
                    method,
                    url,
                    data=data,
                    headers={**headers, **login.authorization},
                    stream=True,
                    allow_redirects=False,
                    timeout=(http.CONNECT_TIMEOUT, http.READ_TIMEOUT),
                ) as response:
                    connection_errors.refuse_login(url, response)
                    location = response.headers.get("Location")
                    if response.status_code in http.REDIRECTS and location and hops < http.MAX_REDIRECTS:
                        target = http.redirected(url, location)
                        if not same_server(url, target):
                            raise NetworkError(
                                f"{public(url)} redirects to {public(target)}, another host", hint="name that host"
                            )
                        url, hops = target, hops + 1
                        continue
                    if login.another(response.status_code):
                        continue
                    if response.status_code not in (201, 204):
                        responses.check_status(url, response, ranged=False, sent=login.said)
                    login.accepted()
                    body = b""
                    for part in responses.parts_of(response):
                        body += part
                        if len(body) > _LARGEST:
                            raise NetworkError(f"{public(url)}: the answer is too long")
                    return response.status_code, response.headers, body
    except requests.RequestException as error:
        raise connection_errors.because(url, error) from None
