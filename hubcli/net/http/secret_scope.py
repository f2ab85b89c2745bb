"""The hosts that may be sent the user's secrets while something is fetched.

A token, an entry of netrc or a credential helper's answer goes to the hosts that the user's own command named,
whatever else the code that it runs asks for.  Outside of such code every URL is the user's own word.
"""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from urllib.parse import urlsplit

from hubcli.base import settings

_PORTS = {"https": 443, "http": 80, "ssh": 22}

named_hosts: ContextVar[frozenset[str] | None] = ContextVar("hubcli_named_hosts", default=None)


def host(url: str) -> str:
    """Host and port of `url`, as they are compared: an IPv6 address in its shortest form, no port that goes without
    saying.  Empty where there is none."""
    try:
        parts = urlsplit(url)
        name, port = parts.hostname or "", parts.port
        if "[" in parts.netloc:
            name = f"[{ipaddress.IPv6Address(name).compressed}]"
    except ValueError:
        return ""
    return name if port in (None, _PORTS.get(parts.scheme)) else f"{name}:{port}"


def hosts(*urls: str) -> frozenset[str]:
    """Return the hosts of URLs, and those that HUB_REWRITE puts in their place."""
    found = {host(one) for url in urls for one in (url, settings.rewrite_url(url))}
    return frozenset(found - {""})


@contextlib.contextmanager
def naming(named: Iterable[str]) -> Iterator[None]:
    """While foreign code or a foreign file says what is fetched: secrets are for the hosts `named` alone."""
    inherited = named_hosts.get()
    given = frozenset(named)
    token = named_hosts.set(given if inherited is None else given & inherited)
    try:
        yield
    finally:
        named_hosts.reset(token)


def may_have_secrets(url: str) -> bool:
    """Return whether the server of `url` (after HUB_REWRITE) may be sent a token or a password."""
    named = named_hosts.get()
    return named is None or (bool(host(url)) and host(url) in named)
