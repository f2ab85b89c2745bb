"""Exceptions with an exit status, a stable code and a hint: the one map from failure to status.

Every error that a user can cause or meet is a `HubError`; `cli.py` prints `message`, then `hint:`.
docs/reference/exit_status.md explains each status.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple


class ExitStatus(IntEnum):
    """Process exit statuses of `hub` (docs/reference/exit_status.md explains each)."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    NOT_FOUND = 3
    NETWORK = 4
    OFFLINE = 5
    INTEGRITY = 6
    UNTRUSTED = 7
    DEPENDENCIES = 8
    LOCK_MISMATCH = 9
    LOCK_TIMEOUT = 10
    REPOSITORY_CODE = 70
    INTERRUPTED = 130


_secrets: set[str] = set()  # what has been sent to some server: nobody's message may show it
_AUTHORIZATION = r"\b((?i:basic|bearer))\s+(?=\S*[0-9=])[A-Za-z0-9+/_=.~-]{12,}"


def keep_secret(*values: str) -> None:
    """Never show these in an error, whoever repeats them."""
    _secrets.update(value for value in values if len(value) >= 4)


def masked(text: str) -> str:
    """`text` without what was sent as an authorization, and without what looks like one."""
    for secret in sorted(_secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return re.sub(_AUTHORIZATION, r"\1 ***", text)


_CAUSES = ("cause", "context", "part", "note")
_MAX_CAUSES = 16


class Cause(NamedTuple):
    """One line of what led to an error.

    `kind` is cause (`raise ... from`), context (what was being handled), part (of an exception group) or note.
    """

    kind: str
    text: str


class HubError(RuntimeError):
    """An error with four parts: what failed, with which value (`message`), what to do next (`hint`), the spec
    concerned.

    `causes` are what led to it, the nearest first.
    """

    status: ExitStatus = ExitStatus.FAILURE
    code: str = "error"
    foreign: bool = False  # whether the words are those of code in a sandbox

    def __init__(
        self, message: str, *, hint: str | None = None, spec: str | None = None, causes: Sequence[Cause] = ()
    ) -> None:
        message = masked(message)
        super().__init__(message)
        self.message = message
        self.hint = hint and masked(hint)
        self.spec = spec
        self.causes = tuple(Cause(one.kind, masked(one.text)) for one in causes)

    def advise(self, more: str | None) -> None:
        """Add to the hint; None adds nothing."""
        if more:
            self.hint = f"{self.hint}; {more}" if self.hint else more


class UsageError(HubError, ValueError):
    """A malformed spec, option or entrypoint argument.  Also a ValueError, as torch.hub raises."""

    status = ExitStatus.USAGE
    code = "usage"


class NotFoundError(HubError):
    """No such repository, ref, hubconf or entrypoint, or it is private."""

    status = ExitStatus.NOT_FOUND
    code = "not_found"


class RepositoryNotFoundError(NotFoundError):
    """No such repository, or it is private."""


class HubconfNotFoundError(NotFoundError, FileNotFoundError):
    """A repository without hubconf.py.  Also a FileNotFoundError, as torch.hub raises."""


class NetworkError(HubError):
    """The remote could not be reached or broke off."""

    status = ExitStatus.NETWORK
    code = "network"


class NeedsNetworkError(NetworkError):
    """Repository code tried to use the network by itself, which a sandbox has not."""

    code = "needs_network"


class OfflineError(HubError):
    """Not in the cache while offline."""

    status = ExitStatus.OFFLINE
    code = "offline"


class IntegrityError(HubError):
    """A digest, tag, checkpoint or repository content is not what it must be."""

    status = ExitStatus.INTEGRITY
    code = "integrity"


class UntrustedError(HubError):
    """Code would run that nobody has allowed."""

    status = ExitStatus.UNTRUSTED
    code = "untrusted"


class DependencyError(HubError):
    """`dependencies` of a hubconf that are not importable."""

    status = ExitStatus.DEPENDENCIES
    code = "missing_dependencies"


class UnusedDependencyError(DependencyError):
    """A declared dependency is missing, although hubconf.py imports without it: --allow-missing goes on."""

    code = "unused_dependencies"


class LockMismatchError(HubError):
    """`hub.lock` is missing or would change under --locked."""

    status = ExitStatus.LOCK_MISMATCH
    code = "lock_mismatch"


class LockTimeoutError(HubError):
    """Another process held the cache lock for longer than the limit."""

    status = ExitStatus.LOCK_TIMEOUT
    code = "lock_timeout"


class RepositoryCodeError(HubError):
    """hubconf.py does not import, or the entrypoint raised."""

    status = ExitStatus.REPOSITORY_CODE
    code = "repository_code"


class EngineGapError(RepositoryCodeError):
    """Code needs something of torch's that the engine does not have."""

    code = "engine_gap"


@contextlib.contextmanager
def hinting() -> Iterator[None]:
    """Let the traceback of a Python program show the hints of the errors that pass."""
    try:
        yield
    except HubError as error:
        note = f"hint: {error.hint}"
        if error.hint and note not in getattr(error, "__notes__", ()):
            error.add_note(note)
        raise


def as_document(error: HubError) -> dict[str, Any]:
    """Return an error as JSON, for another process."""
    return {
        "code": error.code,
        "message": error.message[:2000],
        "hint": error.hint and error.hint[:2000],
        "spec": error.spec,
        "causes": [{"kind": one.kind, "text": one.text[:2000]} for one in error.causes[:_MAX_CAUSES]],
    }


def as_error(document: Mapping[str, Any]) -> HubError:
    """Return the error that `as_document` was made of; what another process sent is cut, not believed."""
    kinds = {kind.code: kind for kind in globals().values() if isinstance(kind, type) and issubclass(kind, HubError)}
    kinds[NotFoundError.code] = NotFoundError
    texts = {name: value[:2000] if isinstance(value, str) else None for name, value in document.items()}
    kind = kinds.get(texts.get("code") or "", HubError)
    causes = _as_causes(document.get("causes"))
    return kind(texts.get("message") or "", hint=texts.get("hint"), spec=texts.get("spec"), causes=causes)


def _as_causes(sent: object) -> list[Cause]:
    known = [one for one in sent[:_MAX_CAUSES] if isinstance(one, Mapping)] if isinstance(sent, list) else []
    return [
        Cause(str(one["kind"]), one["text"][:2000])
        for one in known
        if one.get("kind") in _CAUSES and isinstance(one.get("text"), str)
    ]
