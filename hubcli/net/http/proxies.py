"""The proxy in between, and the setting that names it: for the downloads, and for what git reports of its own.

The environment's (`HTTPS_PROXY`, `ALL_PROXY`, ...) comes first for files, as in requests, and git's own `http.proxy`
where the environment names none; git itself takes its own first.  NO_PROXY is obeyed for both.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from hubcli.errors import keep_secret

_IN_GIT = "http.proxy of your git configuration"


@dataclass(frozen=True)
class Proxy:
    """A proxy's address, with its password, and the setting that it comes from."""

    address: str
    setting: str

    def __str__(self) -> str:
        """As a message has it: without user and password."""
        shown = re.sub(r"(?:^|(?<=://))[^/\s]*@", "", self.address)
        return f"the proxy {shown} ({self.setting})"


def for_files(url: str, config: Mapping[str, str]) -> Proxy | None:
    """Return the proxy for a download of `url`; `config` is git's for it."""
    return None if bypassed(url) else _environment(url) or _git(config)


def for_git(url: str, config: Mapping[str, str]) -> Proxy | None:
    """Return the proxy that git takes for `url`."""
    if bypassed(url):
        return None
    return _git(config) if "http.proxy" in config else _environment(url)


def bypassed(url: str) -> bool:
    """Return whether NO_PROXY names the host of `url`, an IPv6 address with or without brackets."""
    from requests.utils import should_bypass_proxies

    if should_bypass_proxies(url, None):
        return True
    host = (urlsplit(url).hostname or "").lower()
    if ":" not in host:
        return False
    address = ipaddress.ip_address(host)
    for entry in _no_proxy().replace(" ", "").split(","):
        port = re.search(r"(?<=\]):([0-9]+)\Z", entry)
        if port and int(port.group(1)) != urlsplit(url).port:
            continue
        name = entry.removesuffix(port.group() if port else "").replace("[", "").replace("]", "")
        try:
            if address in ipaddress.ip_network(name, strict=False):
                return True
        except ValueError:
            continue
    return False


def git_environment() -> dict[str, str]:
    """NO_PROXY as libcurl reads it: IPv6 addresses without brackets."""
    text = _no_proxy()
    return {"no_proxy": re.sub(r"[\[\]]", "", text)} if "[" in text else {}


def _no_proxy() -> str:
    return os.environ.get("no_proxy") or os.environ.get("NO_PROXY", "")


def _environment(url: str) -> Proxy | None:
    from requests.utils import get_environ_proxies, select_proxy

    address = select_proxy(url, get_environ_proxies(url))
    if not address:
        return None
    names = (f"{urlsplit(url).scheme}_proxy", "all_proxy")
    spelt = [one for name in names for one in (name, name.upper()) if os.environ.get(one) == address]
    return _recorded(address, spelt[0] if spelt else "the system's settings")


def _git(config: Mapping[str, str]) -> Proxy | None:
    address = config.get("http.proxy")
    return _recorded(address, _IN_GIT) if address else None


def _recorded(address: str, setting: str) -> Proxy:
    userinfo = address.rpartition("@")[0].rpartition("://")[2]
    _, _, password = userinfo.partition(":")
    keep_secret(password, unquote(password))
    return Proxy(address, setting)
