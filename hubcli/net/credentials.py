"""What a server of files may be sent as the user's word: HUB_TOKEN, netrc, git's credential helpers."""

from __future__ import annotations

import base64

from hubcli import settings
from hubcli.errors import keep_secret


def of(url: str) -> str | None:
    """The Authorization for the server of `url`: HUB_TOKEN, else the user's netrc file."""
    secret = settings.current().token
    if secret:
        return _basic("x-access-token", secret)  # as git sends it
    return from_netrc(url)


def from_netrc(url: str) -> str | None:
    """The Authorization that the user's netrc file has for the server of `url`."""
    from requests.utils import get_netrc_auth

    pair = get_netrc_auth(url)
    return _basic(*pair) if pair else None


def from_helper(url: str) -> str | None:
    """The Authorization that the user's git credential helpers know, once a server asks for one."""
    from hubcli.net import git

    pair = git.credential(url)
    return _basic(*pair) if pair else None


def _basic(user: str, password: str) -> str:
    encoded = base64.b64encode(f"{user}:{password}".encode()).decode()
    keep_secret(password, encoded)
    return f"Basic {encoded}"
