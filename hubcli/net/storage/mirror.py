"""The mirror of HUB_MIRROR: a static tree that is tried first for whatever a digest names, and never believed.

    index.json              what is there, for people and for the next `hub mirror`; no client reads it
    git/ab/<commit>.pack    one commit with its files, without history
    sha256/ab/<digest>      a weight file

A file under such a name never changes, so any web server, bucket or cache between may keep it for ever.  What a branch
or tag means is no digest: only the origin says that, or a lock file.
"""

from __future__ import annotations

import re

from hubcli.base import once, settings

_SHA256 = re.compile(r"[0-9a-f]{64}\Z")


def place_of_commit(commit: str) -> str:
    """Return the path of the pack of a commit in a mirror."""
    return f"git/{commit[:2]}/{commit}.pack"


def place_of_digest(sha256: str) -> str:
    """Return the path of the content of a sha256 in a mirror."""
    return f"sha256/{sha256[:2]}/{sha256}"


def commit(commit: str) -> str | None:
    """Return the URL to ask for the pack of a commit; None without a mirror."""
    return _address(place_of_commit(commit))


def digest(sha256: str | None) -> str | None:
    """Return the URL to ask for the content of a sha256; None without a mirror, or where it is the beginning of one."""
    if sha256 is None or not _SHA256.match(sha256.lower()):
        return None
    return _address(place_of_digest(sha256.lower()))


def _address(place: str) -> str | None:
    now = settings.current()
    if now.mirror is None or now.offline or once.done("mirror given up", now.mirror):
        return None
    if now.mirror.startswith("http:"):
        settings.check_scheme(now.mirror)
    return f"{now.mirror}/{place}"


def give_up(why: str) -> None:
    """Ask it no more in this process, and say so once."""
    base = settings.current().mirror
    if base is not None:
        text = f"the mirror {base} is left alone from now on, and the origins are asked: {why}"
        once.warning(text, "mirror given up", base)
