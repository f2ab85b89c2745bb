"""`hub new`: writes a repository that can be published, from the files in `templates/`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from hubcli.errors import UsageError

# file in the new repository: template
FILES = {
    "hubconf.py": "hubconf.py.tmpl",
    "models.py": "models.py.tmpl",
    "README.md": "README.md.tmpl",
    "LICENSE": "LICENSE.tmpl",
    ".gitignore": "gitignore.tmpl",
    ".github/workflows/hub-check.yml": "hub-check.yml.tmpl",
}


@dataclass(frozen=True)
class Created:
    """A new repository's folder, and its files below it."""

    path: Path
    files: tuple[str, ...]


def create(folder: Path) -> Created:
    """Write a repository into `folder`, which must be empty or not there yet.

    Raises UsageError, before anything is written, for a folder with content or what is no folder.
    """
    folder = folder.expanduser().absolute()
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file", hint="name a new folder")
    if folder.is_dir() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty", hint="name a new folder; nothing was written")
    name = re.sub(r"[^A-Za-z0-9._-]", "-", folder.name) or "models"
    templates = resources.files("hubcli") / "templates"
    texts = {
        file: (templates / template).read_text(encoding="utf-8").replace("{name}", name)
        for file, template in FILES.items()
    }
    for file, text in texts.items():
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8", newline="\n") as opened:
            opened.write(text)
    return Created(folder, tuple(texts))
