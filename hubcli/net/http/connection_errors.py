"""Errors of a connection: the proxy, the certificate or the network, each with the setting that it comes from."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from hubcli.errors import HubError, NetworkError
from hubcli.net.git import process
from hubcli.net.http import certificates, proxies, responses
from hubcli.net.http.responses import public

if TYPE_CHECKING:
    import requests

_LOGIN = "put user and password into its address: {setting} = http://USER:PASSWORD@HOST:PORT"


def because(url: str, error: Exception) -> HubError | responses.TryAgain:
    """Return what an exception of requests or urllib3 means that a request to `url` has ended with."""
    import requests

    reason = responses.reason_of(error)
    config = process.http_config(url)
    if isinstance(error, requests.exceptions.SSLError) and "certificate" in reason.lower():
        return NetworkError(
            f"{public(url)}: the certificate was refused: {reason}", hint=certificates.advice(config, reason)
        )
    proxy = proxies.for_files(url, config)
    if proxy is None:
        passing = isinstance(error, requests.ConnectionError | requests.Timeout)
        return responses.TryAgain(reason) if passing else NetworkError(f"{public(url)}: {reason}")
    if isinstance(error, requests.exceptions.InvalidSchema) and "SOCKS" in reason:
        return NetworkError(
            f"{public(url)}: {proxy} is a SOCKS proxy, for which hub lacks a package (git has its own)",
            hint=f"install PySocks where hub runs: {sys.executable} -m pip install 'requests[socks]'",
        )
    if tunnel := re.search(r"Tunnel connection failed: (\d{3})\s*(.*)", reason):
        status, words = int(tunnel.group(1)), tunnel.group(2)
        if status == 407:
            return _login(url, proxy)
        said = f"{proxy} does not connect to {urlsplit(url).hostname}: {status} {words}".rstrip()
        if status >= 500:
            return responses.TryAgain(said)
        return NetworkError(f"{public(url)}: {said}", hint="if the host needs no proxy, list it in NO_PROXY")
    if isinstance(error, requests.exceptions.ProxyError):
        return responses.TryAgain(f"{proxy} cannot be reached: {reason}")
    if isinstance(error, requests.ConnectionError | requests.Timeout):
        return responses.TryAgain(f"through {proxy}: {reason}")
    return NetworkError(
        f"{public(url)}: through {proxy}: {reason}", hint=f"{proxy.setting} must be the address of a proxy"
    )


def refuse_login(url: str, response: requests.Response) -> None:
    """Raise NetworkError where a proxy wants to know who asks."""
    if response.status_code == 407:
        proxy = proxies.for_files(url, process.http_config(url))
        raise _login(url, proxy) if proxy else NetworkError(f"{public(url)}: the server answers as a proxy: 407")


def _login(url: str, proxy: proxies.Proxy) -> NetworkError:
    known = "does not accept user and password" if "@" in proxy.address else "asks for user and password"
    return NetworkError(f"{public(url)}: {proxy} {known} (407)", hint=_LOGIN.format(setting=proxy.setting))
