"""The records of consent: `trust.json` in the user's own config folder, for a cache may be shared.

A consent is bound to the canonical URL of a repository.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from hubcli.base import once, paths
from hubcli.base.spec import RepoSpec
from hubcli.cache import locks
from hubcli.errors import HubError, NotFoundError, UsageError

Scope = Literal["commit", "repo"]
_VERSION = 2


@dataclass(frozen=True)
class Trusted:
    """One record: code of the repository at `url` may run at `commit`, or at any if that is None.

    `url` is canonical (`RepoSpec.canonical`), `spec` the repository as it was written, `when` an ISO time, `how` the
    way consent was given.
    """

    url: str
    spec: str
    commit: str | None
    when: str
    how: str

    @property
    def scope(self) -> Scope:
        """`commit` or `repo`."""
        return "repo" if self.commit is None else "commit"


def entries() -> tuple[Trusted, ...]:
    """Every record, in the order they were made."""
    file = paths.trust_file()
    if (what := _of_others(file)) is not None:
        once.warning(f"{what}: who may execute is not read from there")
        return ()
    try:
        if file.exists() and not file.is_file():  # a pipe would keep us waiting
            raise ValueError("it is no plain file")
        document = json.loads(file.read_bytes())
        if document["version"] != _VERSION:
            raise ValueError(f"version {document['version']!r}")
        return tuple(Trusted(**entry) for entry in document["trusted"])
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise HubError(f"{file} cannot be read: {error}", hint="remove it; every consent is asked for again") from None


def _of_others(file: Path) -> str | None:
    """Return why others than this user may have written the list, or None."""
    return paths.belongs_to_others(file) or paths.belongs_to_others(file.parent)


def lookup(spec: RepoSpec, commit: str | None) -> Trusted | None:
    """Return the record that lets `spec` run at `commit`."""
    for entry in entries():
        if entry.url == spec.canonical and entry.commit in (None, commit):
            return entry
    return None


def known_at_all(spec: RepoSpec) -> bool:
    """Return whether somebody has allowed any commit of the repository."""
    return any(entry.url == spec.canonical for entry in entries())


def add(spec: RepoSpec, commit: str | None, how: str) -> Trusted:
    """Let the repository of `spec` run at `commit` (None: at any) from now on."""
    if spec.kind == "local":
        raise UsageError(f"{spec} is a folder of your own: its code runs without consent", spec=str(spec))
    new = _record(spec, commit, how)
    _append([new])
    return new


def _record(spec: RepoSpec, commit: str | None, how: str) -> Trusted:
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return Trusted(spec.canonical, spec.repository, commit, when, how)


def _append(new: list[Trusted]) -> None:
    given = {(one.url, one.commit) for one in new}
    with _exclusive():
        kept = [one for one in entries() if (one.url, one.commit) not in given]
        _write([*kept, *new])


def remove(spec: RepoSpec, commit: str | None = None) -> tuple[Trusted, ...]:
    """Take back the consent for the repository: all of it, or that for one commit."""
    url = spec.canonical
    with _exclusive():
        everything = entries()
        gone = tuple(one for one in everything if one.url == url and (commit is None or one.commit == commit))
        if not gone:
            raise NotFoundError(f"{spec} is not trusted", hint="`hub trust ls` lists what is", spec=str(spec))
        _write([one for one in everything if one not in gone])
    return gone


def import_list(file: Path) -> tuple[Trusted, ...]:
    """Record what a file lists: torch.hub's `trusted_list`, or the trust.json that hub once stored in the cache.

    All of it or, where a line is malformed, nothing.
    """
    try:
        with file.open("rb") as opened:
            text = opened.read(1 << 20).decode()
    except FileNotFoundError:
        raise NotFoundError(f"there is no {file}", hint="torch stores it in its hub folder") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file} is no list of repositories: it is not text") from None
    wanted = _of_hub(file, text) if text.lstrip().startswith("{") else [(one, None) for one in _of_torch(file, text)]
    known = {(one.url, one.commit) for one in entries()}
    new = [_record(spec, commit, "import") for spec, commit in dict.fromkeys(wanted)]
    new = [one for one in new if (one.url, one.commit) not in known]
    if new:
        _append(new)
    return tuple(new)


def _of_hub(file: Path, text: str) -> list[tuple[RepoSpec, str | None]]:
    """Return the repositories and commits of a trust.json."""
    found: list[tuple[RepoSpec, str | None]] = []
    try:
        for entry in json.loads(text)["trusted"]:
            spec, commit = RepoSpec.parse(entry["spec"]), entry["commit"]
            if spec.kind == "local" or not (commit is None or re.fullmatch("[0-9a-f]{40}([0-9a-f]{24})?", commit)):
                raise ValueError(f"{entry['spec']!r} at {commit!r}")
            found.append((spec, commit))
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{file} is no list of repositories: {error}", hint="nothing was imported") from None
    return found


def _of_torch(file: Path, text: str) -> list[RepoSpec]:
    """Return the repositories of a `trusted_list`: `owner_repo` a line.

    GitHub's owners have no underscore: the first one ends the owner's name.
    """
    specs = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        owner, underscore, repo = line.strip().partition("_")
        try:
            folder_like = set("./~") & set(owner) or "/" in repo
            if not (owner and underscore) or folder_like:
                raise UsageError(f"{line.strip()!r} is not owner_repo")
            specs.append(RepoSpec.parse(f"{owner}/{repo}"))
        except UsageError as error:
            raise UsageError(
                f"{file}, line {number}: {error.message}",
                hint="a line is owner_repo; nothing was imported",
            ) from None
    return specs


def _write(everything: list[Trusted]) -> None:
    document = {"version": _VERSION, "trusted": [asdict(one) for one in everything]}
    paths.write_atomically(paths.trust_file(), json.dumps(document, indent=1).encode())


def _exclusive() -> contextlib.AbstractContextManager[None]:
    """One writer at a time, in a folder that only the user writes."""
    folder = paths.trust_file().parent
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if (what := _of_others(paths.trust_file())) is not None:
        raise HubError(f"{what}: no consent is recorded there", hint="look at it, then chown and chmod it")
    return locks.exclusive("trust", "the list of trusted repositories", folder)
