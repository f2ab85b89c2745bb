"""The provenance of this installation, for others to install the same: no package index has hub."""

from __future__ import annotations

import json
from importlib import metadata
from typing import Any

UNKNOWN = "git+https://HOST/OWNER/hub.git"


def source() -> str | None:
    """Return the git URL at a commit, as pip takes it, that this hub was installed from; None where it was not from
    git.

    What pip and uv have recorded (PEP 610).  One with a password in it is nobody else's.
    """
    try:
        text = metadata.distribution("hubcli").read_text("direct_url.json")
        found: dict[str, Any] = json.loads(text or "{}")
        git = found["vcs_info"]
        url, commit = str(found["url"]), str(git["commit_id"])
    except (metadata.PackageNotFoundError, ValueError, KeyError, TypeError):
        return None
    usable = git.get("vcs") == "git" and url.startswith("https://") and "@" not in url and commit.isalnum()
    return f"git+{url}@{commit}" if usable and url.isprintable() and not set(url) & set(" \"'`$\\;") else None
