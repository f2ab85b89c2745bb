"""The lists that `hub search` reads: a small list of repositories that comes with hub, and one that the user fetched.

    {"schema": 1, "repositories": [{"name": "owner/repo", "description": "...", "topics": ["..."], "entrypoints": 3}]}

A list from elsewhere is a stranger's word: nothing of it is fetched or run, and what has another form is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

from hubcli.base import output, paths, settings
from hubcli.base.request import Request
from hubcli.base.spec import RepoSpec
from hubcli.errors import IntegrityError, NotFoundError, OfflineError, UsageError

_SCHEMA = 1
LARGEST = 2_000_000  # bytes
_TOPIC = re.compile(r"[a-z0-9][a-z0-9-]{0,39}\Z")
_FIELDS = {"name", "description", "topics", "entrypoints"}


@dataclass(frozen=True)
class Listed:
    """A repository of the list; `entrypoints` None where nobody has counted."""

    name: str
    description: str
    topics: tuple[str, ...]
    entrypoints: int | None


@dataclass(frozen=True)
class Updated:
    """The list that was fetched: where it came from, its digest, how many repositories, whether it is another."""

    url: str
    sha256: str
    repositories: int
    changed: bool


def search(words: Iterable[str]) -> tuple[Listed, ...]:
    """Return what has every word in its name, topics or description; the best first, NotFoundError where nothing
    has."""
    wanted = [word.casefold() for word in words]
    everything = {one.name.casefold(): one for one in (*shipped(), *fetched())}.values()
    ranked = []
    for one in everything:
        ranks = [_rank(one, word) for word in wanted]
        if None not in ranks:
            ranked.append((sum(rank or 0 for rank in ranks), one.name.casefold(), one))
    if not ranked:
        raise NotFoundError(f"no repository is listed with {' '.join(words)!r}", hint=_advice(wanted, everything))
    return tuple(one for _, _, one in sorted(ranked, key=lambda item: item[:2]))


def _rank(one: Listed, word: str) -> int | None:
    if word in one.topics or word in re.split(r"[/_.-]", one.name.casefold()):
        return 0
    if word in one.name.casefold() or any(word in topic for topic in one.topics):
        return 1
    return 2 if word in one.description.casefold() else None


def _advice(wanted: list[str], everything: Iterable[Listed]) -> str:
    import difflib

    topics = sorted({topic for one in everything for topic in one.topics})
    close = [match for word in wanted for match in difflib.get_close_matches(word, topics, 2, 0.6)]
    said = f"did you mean {' or '.join(close)}? " if close else ""
    return f"{said}topics are {', '.join(topics[:8])}, ...; `hub search` alone lists all"


def shipped() -> tuple[Listed, ...]:
    """Return the list that comes with hub."""
    return parse((resources.files("hubcli") / "data" / "published.json").read_bytes(), "hub's own list")


def fetched() -> tuple[Listed, ...]:
    """Return the list that `update` has put into the cache; one that is damaged counts as none."""
    try:
        content = _file().read_bytes()
    except FileNotFoundError:
        return ()
    try:
        return parse(content, str(_file()))
    except IntegrityError as error:
        output.warning(f"{error.message}; it is left out")
        return ()


def update(url: str, sha256: str | None = None) -> Updated:
    """Fetch a list, check its form and (if given) its digest, and keep it beside hub's own, in the place of the last.

    Raises IntegrityError for anything else than such a list, and nothing is changed.
    """
    from hubcli.net.http import fetch as http

    if sha256 is not None and not re.fullmatch(r"[0-9a-f]{64}", sha256):
        raise UsageError(f"{sha256!r} is no sha256", hint="64 hexadecimal digits, as sha256sum prints them")
    if settings.current().offline:
        raise OfflineError(f"{http.public(url)} cannot be fetched offline", hint="run without --offline")
    file = _file()
    paths.ensure_root()
    request = Request.current()
    limit = min(request.size_limit or LARGEST, LARGEST)
    try:
        got = http.fetch(url, file, progress=False, expected=sha256, request=replace(request, size_limit=limit))
    except IntegrityError as error:
        error.hint = f"a list has at most {output.size(limit)}; docs/how-to/publish.md has one"
        raise
    try:
        if sha256 not in (None, got.sha256):
            raise IntegrityError(
                f"{http.public(url)} has sha256 {got.sha256}, not {sha256}", hint="ask whoever gave you the digest"
            )
        content = got.path.read_bytes()
        listed = parse(content, http.public(url))
        changed = not file.exists() or file.read_bytes() != content
        if changed:
            paths.write_atomically(file, content)
    finally:
        got.release()
    return Updated(http.public(url), got.sha256, len(listed), changed)


def parse(content: bytes, what: str) -> tuple[Listed, ...]:
    """Return the list of that content; IntegrityError names the first thing that is wrong."""
    try:
        if len(content) > LARGEST:
            raise ValueError(f"it has more than {output.size(LARGEST)}")
        document = json.loads(content)
        if not isinstance(document, dict) or document.get("schema") != _SCHEMA:
            raise ValueError(f"it is not of the form {_SCHEMA}")
        entries = document.get("repositories")
        if not isinstance(entries, list):
            raise ValueError("repositories is no list")
        return tuple(_listed(entry, number) for number, entry in enumerate(entries, 1))
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise IntegrityError(
            f"{what} is no list of repositories: {reason}", hint="docs/how-to/publish.md has one"
        ) from None


def _listed(entry: Any, number: int) -> Listed:
    where = f"repository {number}"
    if not isinstance(entry, Mapping) or not _FIELDS - {"entrypoints"} <= set(entry) <= _FIELDS:
        raise ValueError(f"{where} has not the fields {', '.join(sorted(_FIELDS))}")
    name, description, topics = entry["name"], entry["description"], entry["topics"]
    count = entry.get("entrypoints")
    if not isinstance(name, str):
        raise ValueError(f"{where}: its name is no text")
    spec = RepoSpec.parse(name)
    if spec.kind == "local" or spec.ref is not None or str(spec) != name:
        raise ValueError(f"{where}: {name[:100]!r} is no owner/repo")
    if not isinstance(description, str) or not description.isprintable() or not 0 < len(description) <= 200:
        raise ValueError(f"{where}: the description is not one printable line of at most 200 characters")
    if (
        not isinstance(topics, list)
        or len(topics) > 20
        or not all(isinstance(t, str) and _TOPIC.match(t) for t in topics)
    ):
        raise ValueError(f"{where}: topics are up to 20 words of a to z, digits and -")
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or not 0 <= count < 1_000_000):
        raise ValueError(f"{where}: entrypoints is no number")
    return Listed(name, description, tuple(topics), count)


def document(one: Listed) -> dict[str, Any]:
    """As the JSON documents show it."""
    return {**asdict(one), "topics": list(one.topics)}


def _file() -> Path:
    return paths.hub_dir() / "search.json"
