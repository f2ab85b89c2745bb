"""Suggestions for a spec that was not found, from what is cached."""

from __future__ import annotations

import difflib
import os
import shlex
from pathlib import Path

from hubcli.base.spec import RepoSpec
from hubcli.cache import checkouts


def like(root: Path, spec: RepoSpec) -> str | None:
    """Return the folder of that name, else other cached refs of the repository, else a cached one with a like name."""
    if spec.text[:1] not in "./~" and "://" not in spec.text and os.path.isfile(os.path.join(spec.text, "hubconf.py")):
        return f"the folder here is written {shlex.quote(f'./{spec.text}')}"
    if spec.text.endswith("/hubconf.py") and "://" not in spec.text and os.path.isfile(spec.text):
        return f"the folder here is written {shlex.quote(f'./{os.path.dirname(spec.text)}')}"
    known = checkouts.repos(root)
    same = [one.spec for one in known if one.url == spec.url]
    if same:
        return f"cached of it: {', '.join(same[:5])}"
    names = sorted({str(RepoSpec.parse(one.spec).at(None)) for one in known})
    close = difflib.get_close_matches(spec.repository, names, 1, 0.75)
    if not close:  # another owner's
        close = [name for name in names if name.rpartition("/")[2].removesuffix(".git").lower() == spec.repo.lower()]
    return f"did you mean {shlex.quote(close[0])}, which is cached?" if close else None
