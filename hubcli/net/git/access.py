"""Access of git to one repository: its secret, its proxy and its address.

A token, an entry of netrc or a helper's answer that the server refuses is left out, and what everybody may have is
fetched without.  A repository that was renamed is followed on its own host, with its token; to another host nothing
secret goes, and a token stops there.  Redirects are followed here, never by git, which would take netrc and helpers
along.  Consent and lock files stay bound to the address that the user typed: its server says where the repository is
now, and what comes from there has the commit that was asked for.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from typing import Literal
from urllib.parse import urlsplit

from hubcli.base import once, settings
from hubcli.errors import HubError, keep_secret
from hubcli.net.git import errors, process
from hubcli.net.git.errors import public
from hubcli.net.http import certificates, credentials, proxies

LOW_SPEED_SECONDS = 30  # a transfer below 1 kB/s for this long is given up

_SECRET = re.compile(r"credential\..*|http\..*\.extraheader")
_CLIENT = re.compile(r"http\.(.*\.)?(sslcert|sslkey)")  # who one is, shown to the named server whichever login is tried
_REDIRECTS = re.compile(r"returned error: 30[12378]\b")
_Login = credentials.Credential | Literal["own", "none"]
_moved: dict[str, str] = {}  # where a repository is now, found out in this process
_lock = threading.Lock()


class Access:
    """The logins for the repository at `url` (after HUB_REWRITE); `environment` is that of the present one.

    A credential of the settings; what git finds by itself (netrc, helpers); nothing.
    """

    def __init__(self, url: str, allowed: bool) -> None:
        self._target = url
        self._allowed = allowed
        self._pairs = process.user_config()
        self.url = moved_to(url)
        self._effective = process.effective_url(self.url, self._pairs)  # which git makes of it by itself
        self._config = process.http_config(self._effective) if _web(self._effective) else {}
        self._refused: list[tuple[str, str]] = []
        web = allowed and _web(url)
        logins: list[_Login] = [*credentials.tokens(url, basic=True)] if web else []
        logins.append("own")
        if web:
            logins.append("none")
        self._logins: Iterator[_Login] = iter(logins)
        self._login: _Login = next(self._logins)
        self.environment = self._environment()

    def another(self, err: str) -> bool:
        """Return whether to try again, after git has failed with these words: at another address, or with another
        secret."""
        if _web(self._effective) and _REDIRECTS.search(err) and self._follow():
            return True
        if not (self._allowed and _web(self._effective) and errors.refused(err)):
            return False
        sources = self._sources()
        login = next(self._logins, None)
        if login is None or (login == "none" and not sources):
            return False
        said = re.search(r"returned error: (40[134])", err)
        self._refused += [(source, said.group(1) if said else "401") for source in sources]
        self._login = login
        self.environment = self._environment()
        return True

    def succeeded(self) -> None:
        """Name what was left out."""
        credentials.left_out(self._target, self._refused)
        self._refused = []

    def failure(self, err: str) -> HubError:
        """Return the error that git's words mean, with the proxy and the settings that have a part in it."""
        low = err.lower()
        error = errors.failure(err, self._target)
        if error.code == "network" and _web(self._effective):
            if "certificate" in low or "ca file" in low or "cafile" in low:
                error.hint = certificates.advice(self._config, err)
            elif proxy := proxies.for_git(self._effective, self._config):
                if "407" in err:
                    error.hint = f"{proxy} asks for user and password, or does not accept them: write them into it"
                else:
                    error.hint = f"check the network and {proxy}; what needs none is listed in NO_PROXY"
        if self._refused:
            sources = " and ".join(dict.fromkeys(source for source, _ in self._refused))
            error.advise(f"{sources} did not help, nor did asking without")
        return error

    def _sources(self) -> list[str]:
        """Return what may have been sent as a secret by the present login, by name."""
        if isinstance(self._login, credentials.Credential):
            return [self._login.source]
        if self._login == "none":
            return []
        found = [one.source for one in credentials.from_netrc(self._effective)]
        if any(key.endswith(".helper") and value for key, value in self._pairs):
            found.append(credentials.HELPER)
        if any(key.endswith(".extraheader") for key, _ in self._pairs):
            found.append("http.extraHeader of your git configuration")
        return found

    def _follow(self) -> bool:
        """Go on where the repository has moved to; False if it has not, an error where a token would have to go too."""
        from hubcli.net.http import api  # for the weight: few repositories move

        before = self._effective
        found = api.moved(before, self._authorization(), netrc=self._allowed and self._login == "own")
        if found == before:
            return False
        once.warning(
            f"{public(self._target)} has moved to {public(found)}: name the new address, the old one may end",
            *("moved", self._target, found),
        )
        self.url, self._effective = found, process.effective_url(found, self._pairs)
        self._config = process.http_config(self._effective)
        if api.same_server(before, found):
            with _lock:
                _moved[self._target] = found
        else:  # which the user has not named
            self._allowed, self._login, self._logins = False, "none", iter(())
        self.environment = self._environment()
        return True

    def _authorization(self) -> str | None:
        """Return what git would send by the present login in a header of its own."""
        if isinstance(self._login, credentials.Credential):
            return self._login.authorization
        name, _, value = self._config.get("http.extraheader", "").partition(":")
        sent = self._login == "own" and self._allowed and name.strip().lower() == "authorization"
        return value.strip() if sent else None

    def _environment(self) -> dict[str, str]:
        """Return the environment for the present login at the present address."""
        trusted = self._allowed and self._login == "own"
        own = [pair for pair in self._pairs if trusted or not _SECRET.fullmatch(pair[0])]
        own = [
            (key, str(settings.expanded(value)) if _CLIENT.fullmatch(key) else value)
            for key, value in own
            if self._allowed or not _CLIENT.fullmatch(key)
        ]
        keep_secret(*(value.rpartition(" ")[2] for key, value in own if key.endswith(".extraheader")))
        config = [*process.CONFIG, *own, ("http.lowSpeedTime", str(LOW_SPEED_SECONDS))]
        if isinstance(self._login, credentials.Credential):
            parts = urlsplit(self.url)
            origin = f"{parts.scheme}://{parts.netloc}/"
            config.append((f"http.{origin}.extraHeader", f"Authorization: {self._login.authorization}"))
        config.append(("http.followRedirects", "false"))
        environment = process.environment_of(config)
        environment["GIT_ALLOW_PROTOCOL"] = ":".join(settings.current().allow_protocols)
        environment |= certificates.for_git(self._effective, self._config) | proxies.git_environment()
        if _web(self._effective) and not trusted:  # libcurl looks for ~/.netrc by itself
            environment |= {"HOME": os.devnull, "USERPROFILE": os.devnull, "NETRC": os.devnull}
        return environment


def moved_to(url: str) -> str:
    """Return where the repository at `url` is now, as far as this process has found out."""
    with _lock:
        return _moved.get(url, url)


def _web(url: str) -> bool:
    return url.startswith(("https://", "http://"))
