"""Errors of git, from what it prints on stderr, without secrets or control characters."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hubcli.base import settings
from hubcli.base.output import printable
from hubcli.errors import HubError, IntegrityError, NetworkError, NotFoundError, RepositoryNotFoundError, UsageError
from hubcli.net.git.database import RepositoryError

_PRIVATE = (
    "authentication failed",
    "could not read username",
    "could not read password",
    "terminal prompts disabled",
    "returned error: 401",
    "returned error: 403",
    "invalid username or password",
    "permission denied (publickey",
    "http basic: access denied",
)
_MISSING = (
    "returned error: 404",
    "does not appear to be a git repository",
    "repository not found",
    "project you were looking for could not be found",
)
_UNWRITABLE = (
    "no space left on device",
    "disk quota exceeded",
    "file too large",
    "read-only file system",
    "unable to write",
    "couldn't write",
    "write error",
    "index-pack died",
)
_REFUSED = re.compile(r"fsck error|disallowed submodule|object [0-9a-f]{40,64}: [a-z]\w+:|invalid path")
_UNREADABLE = (
    "unknown repository extension",
    "unknown object format",
    "unknown hash algorithm",
    "mismatched algorithms",
)
_UNREACHABLE = (
    "could not resolve host",
    "failed to connect",
    "couldn't connect",
    "connection refused",
    "connection reset",
    "connection timed out",
    "timed out",
    "operation too slow",
    "early eof",
    "rpc failed",
    "unexpected disconnect",
    "the remote end hung up",
    "could not read from remote",
    "empty reply from server",
    "ssl certificate problem",
    "ssl_",
    "gnutls",
    "certificate verif",
    "returned error: 5",
    "returned error: 4",
    "unable to access",
    "not valid: is this a git repository",
    "network is unreachable",
    "no route to host",
    "recv failure",
    "proxy",
)


def refused(stderr: str) -> bool:
    """Return whether git was asked for credentials, or answered that there is nothing: a stale one may be why."""
    low = stderr.lower()
    return (
        any(sign in low for sign in (*_PRIVATE, *_MISSING)) or re.search(r"repository '.*' not found", low) is not None
    )


def public(url: str) -> str:
    """`url` without user name and password."""
    return re.sub(r"(?<=://)[^/@\s]*@", "", url)


def failure(stderr: str, url: str | None) -> HubError:
    """Return the error that git's stderr means.  Nothing of a secret or control character remains in it."""
    text = _clean(stderr)
    low = text.lower()
    detail = _said(text)
    where = public(url) if url else "the repository"

    def has(signs: Sequence[str]) -> bool:
        return any(sign in low for sign in signs)

    if _REFUSED.search(text):
        return IntegrityError(
            f"{where} holds what git refuses as malformed or dangerous: {detail}",
            hint="tell the publisher; the cache was left as it was",
        )
    if has(_UNWRITABLE):
        return HubError(
            f"git cannot write to the cache: {detail}",
            hint="is the disk full? `hub cache prune` and `hub cache ls` show what could go",
        )
    if has(_UNREADABLE):
        return RepositoryError(
            f"{where} has SHA-256 object names, which this git does not read: {detail}",
            hint="install git 2.42 or newer (hub env says which one is used)",
        )
    if url is None:
        return RepositoryError(f"git failed: {detail}")
    if "transport '" in low and "not allowed" in low:
        return UsageError(f"protocol not allowed: {detail}", hint="see HUB_ALLOW_PROTOCOLS")
    if has(_PRIVATE):
        now = settings.current()
        name, secret = "HUB_TOKEN", now.token
        if settings.is_hugging_face(url) and (now.hf_token or not now.token):
            name, secret = "HF_TOKEN", now.hf_token
        token = f"{name} is not accepted" if secret else f"set {name}"
        return RepositoryNotFoundError(f"{where} does not exist or is private", hint=f"{token}: {detail}")
    if has(_MISSING) or re.search(r"repository '.*' not found", low):
        return RepositoryNotFoundError(f"no repository at {where}", hint="check owner, name and host")
    if "couldn't find remote ref" in low:
        return NotFoundError(f"{detail} in {where}", hint="it was deleted just now; try again")
    if "redirect" in low or "returned error: 3" in low:
        kept = ", and HUB_TOKEN is sent to no second host" if settings.current().token else ""
        return NetworkError(f"{where} redirects elsewhere{kept}: {detail}", hint="use the repository's own address")
    if has(_UNREACHABLE):
        return NetworkError(
            f"cannot reach {where}: {detail}",
            hint="check the network and proxy, or use --offline for what is cached",
        )
    return RepositoryError(f"git failed on {where}: {detail}")


def _clean(text: str) -> str:
    text = public(printable(re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.replace("\r", "\n"))))
    text = re.sub(r"(?i)(authorization:)[^\n]*", r"\1 ***", text)
    token = settings.current().token
    return text.replace(token, "***") if token else text


def _said(text: str) -> str:
    """Return the line that says most: the first `fatal:` or `error:`, else the last one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    chosen = next(
        (line for sign in ("fatal:", "error:") for line in lines if line.startswith(sign)),
        lines[-1] if lines else "no message",
    )
    return chosen.removeprefix("fatal: ").removeprefix("error: ")[:500]


def last_line(stderr: str) -> str:
    """Return what git said, in one line that is fit to be shown."""
    return _said(_clean(stderr))
