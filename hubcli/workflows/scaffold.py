"""`hub new`: writes a repository that can be published, from the files in `templates/`, and makes it one of git."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from hubcli.base import output, provenance
from hubcli.errors import HubError, UsageError

# file in the new repository: template
FILES = {
    "hubconf.py": "hubconf.py.tmpl",
    "models.py": "models.py.tmpl",
    "README.md": "README.md.tmpl",
    "LICENSE": "LICENSE.tmpl",
    ".gitignore": "gitignore.tmpl",
    ".github/workflows/hub-check.yml": "hub-check.yml.tmpl",
}
_OWNER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}\Z")


@dataclass(frozen=True)
class Created:
    """A new repository's folder, its files below it, who owns it (None: nobody has said), whether git was set up.

    `source` is what its workflow installs hub from.
    """

    path: Path
    files: tuple[str, ...]
    owner: str | None
    git: bool
    source: str | None


def create(folder: Path, *, owner: str | None = None, git: bool = True, source: str | None = None) -> Created:
    """Write a repository into `folder`, which must be empty or not there yet.

    `owner` is taken from git's `github.user` where it is None, `source` from how this hub was installed; inside of
    another work tree, or without git, there is no `git init`.  Raises UsageError, before anything is written, for a
    folder with content or what is no folder.
    """
    folder = folder.expanduser().absolute()
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file", hint="name a new folder")
    if folder.is_dir() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty", hint="name a new folder; nothing was written")
    if owner is not None and not _OWNER.match(owner):
        raise UsageError(f"{owner!r} is no owner of a repository", hint="e.g. --owner my-name")
    if source is not None and not re.fullmatch(r"git\+https://[\w./~@%+:-]+", source):
        raise UsageError(f"{source!r} is no git address for pip", hint=f"e.g. --hub-source {provenance.UNKNOWN}")
    owner = owner or _user()
    source = source or provenance.source()
    name = re.sub(r"[^A-Za-z0-9._-]", "-", folder.name) or "models"
    templates = resources.files("hubcli") / "data" / "templates"
    words = {"{name}": name, "{owner}": owner or "OWNER", "{source}": source or provenance.UNKNOWN}
    texts = {}
    for file, template in FILES.items():
        texts[file] = (templates / template).read_text(encoding="utf-8")
        for word, value in words.items():
            texts[file] = texts[file].replace(word, value)
    for file, text in texts.items():
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8", newline="\n") as opened:
            opened.write(text)
    return Created(folder, tuple(texts), owner, git and _init(folder), source)


def _user() -> str | None:
    """Who the user is on GitHub, if git's configuration says so."""
    from hubcli.net.git import remote as git

    try:
        name = git.user_setting("github.user")
    except HubError:  # no git
        return None
    return name if name and _OWNER.match(name) else None


def _init(folder: Path) -> bool:
    """`git init`, unless the folder is in a work tree already."""
    from hubcli.net.git import remote as git

    outer = next((one for one in folder.parents if (one / ".git").exists()), None)
    if outer is not None:
        output.message(f"{folder} is in the repository {outer}: no git init")
        return False
    try:
        git.init(folder)
    except HubError as error:
        output.warning(f"no git init: {error.message}")
        return False
    return True
