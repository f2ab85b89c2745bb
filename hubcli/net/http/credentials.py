"""Credentials for a server: HF_TOKEN, HUB_TOKEN, netrc, git's credential helpers.

Each is tried in turn, and none of them last: a token or an entry that has become stale must not stand between the user
and a file that everybody may have.  What was refused is named once the file has come without.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from hubcli.base import once, settings
from hubcli.errors import keep_secret
from hubcli.net.http.responses import public

Secrets = Literal["all", "netrc", "none"]
REFUSALS = (401, 403, 404)  # GitHub answers 404 to a token that does not fit, also for public files


@dataclass(frozen=True)
class Credential:
    """An Authorization, and where it comes from."""

    source: str
    authorization: str


class Login:
    """The credentials for the server of one URL, in the order in which they are tried."""

    def __init__(self, url: str, secrets: Secrets) -> None:
        self._url = url
        self._left = known(url) if secrets == "all" else from_netrc(url) if secrets == "netrc" else []
        self._helper = secrets == "all"
        # at a mirror 404 says that a file is not there
        self._refusals = REFUSALS if secrets == "all" else (401, 403)
        self._refused: list[tuple[str, int]] = []
        self.current = self._left.pop(0) if self._left else None

    @property
    def authorization(self) -> dict[str, str]:
        """Return the header to send now."""
        return {} if self.current is None else {"Authorization": self.current.authorization}

    def another(self, status: int) -> bool:
        """Return whether there is something else to try after this answer: it is `current` then."""
        if status not in self._refusals:
            return False
        if self.current is not None:
            self._refused.append((self.current.source, status))
            if self.current.source == HELPER:
                return False  # it was asked last, when without any had been refused
            self.current = self._left.pop(0) if self._left else None
            return True
        if self._helper:
            self._helper = False
            self.current = from_helper(self._url)
        return self.current is not None

    def accepted(self) -> None:
        """Name what was left out, now that the server has given what was asked for."""
        left_out(self._url, self._refused)

    @property
    def said(self) -> str:
        """Return what a hint has to add about what was sent in vain."""
        sources = list(dict.fromkeys(source for source, _ in self._refused))
        return f" ({' and '.join(sources)} did not help, nor did asking without)" if sources else ""


HELPER = "git's credential helper"
NETRC = "~/.netrc"


def known(url: str, *, basic: bool = False) -> list[Credential]:
    """Return what the settings and the netrc file have for the server of `url`; `basic` is for git, which wants a
    user."""
    found = tokens(url, basic=basic)
    return found + from_netrc(url)


def tokens(url: str, *, basic: bool = False) -> list[Credential]:
    """Return the tokens of the settings that are for the server of `url`."""
    now = settings.current()
    found = []
    if now.hf_token and settings.is_hugging_face(url):
        keep_secret(now.hf_token)
        # as Hugging Face's own client sends it
        word = _basic("hf_user", now.hf_token) if basic else f"Bearer {now.hf_token}"
        found.append(Credential("HF_TOKEN", word))
    if now.token:
        found.append(Credential("HUB_TOKEN", _basic("x-access-token", now.token)))  # as git sends it
    return found


def from_netrc(url: str) -> list[Credential]:
    """Return the Authorization that the user's netrc file has for the server of `url`, if any."""
    from netrc import NetrcParseError

    from requests.utils import get_netrc_auth

    try:
        pair = get_netrc_auth(url, raise_errors=True)
    except (NetrcParseError, OSError, ValueError) as error:
        # the parser's own words may show a password
        reason = f"line {error.lineno}" if isinstance(error, NetrcParseError) else getattr(error, "strerror", "no text")
        once.warning(f"your {NETRC} cannot be read, and is left out: {reason}", "netrc", reason)
        return []
    return [Credential(NETRC, _basic(*pair))] if pair else []


def from_helper(url: str) -> Credential | None:
    """Return the Authorization that the user's git credential helpers know, once a server asks for one."""
    from hubcli.net.git import helpers  # for the weight: few servers ask

    pair = helpers.credential(url)
    return Credential(HELPER, _basic(*pair)) if pair else None


def left_out(url: str, refused: Sequence[tuple[str, int | str]]) -> None:
    """Say, once for each server, which credentials it refused for something that it gives out without them."""
    host = urlsplit(url).netloc
    for source, status in refused:
        what = f"the entry of {NETRC} for {urlsplit(url).hostname}" if source == NETRC else source
        once.warning(
            f"{host} refuses {what} ({status}); it was left out for {public(url)}: renew or remove it", source, host
        )


def _basic(user: str, password: str) -> str:
    encoded = base64.b64encode(f"{user}:{password}".encode()).decode()
    keep_secret(password, encoded)
    return f"Basic {encoded}"
