"""The folders in which torch.hub stores its downloads: read here, never written to."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from hubcli.base import output, paths, settings
from hubcli.errors import UsageError


def caches() -> Iterator[Path]:
    """Yield the folders in which torch.hub has its own: TORCH_HOME, else the cache folder of the user."""
    home = os.environ.get("TORCH_HOME")
    if home:
        yield settings.expanded(home)
    yield settings.expanded(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "torch"


def checkpoints() -> Iterator[Path]:
    """Yield where its weights may be, those of its first versions too."""
    for base in caches():
        yield base / "hub" / "checkpoints"
        yield base / "checkpoints"
        yield base / "models"
    yield settings.expanded("~/.torch/models")


def weights() -> Iterator[Path]:
    """Yield the weight files that are there, but for those in hub's own cache; the first of a name."""
    own = os.path.realpath(paths.checkpoints())
    seen = set()
    for folder in checkpoints():
        if os.path.realpath(folder) == own or not folder.is_dir():
            continue
        for path in sorted(folder.iterdir()):
            if path.is_file() and not re.search(r"^\.|\.(partial|tmp|lock)$|\.[0-9a-f]{32}$", path.name):
                if path.name not in seen:
                    yield path
                seen.add(path.name)


def checkouts() -> Iterator[Path]:
    """Yield the unpacked repositories that are there, `<owner>_<repo>_<ref>`."""
    own = os.path.realpath(paths.hub_dir())
    for base in caches():
        folder = base / "hub"
        if os.path.realpath(folder) == own or not folder.is_dir():
            continue
        for path in sorted(folder.iterdir()):
            if "_" in path.name and not path.is_symlink() and (path / "hubconf.py").is_file():
                yield path


def say_at_first_use() -> None:
    """Name `hub import-torch-hub` where the cache is about to be made and torch.hub has one already."""
    if (paths.hub_dir() / "VERSION").exists():
        return
    found = None
    with contextlib.suppress(UsageError):  # nobody without a home has used torch.hub
        found = next((path.parent for path in (*weights(), *checkouts())), None)
    if found is not None:
        output.message(f"torch.hub has downloads in {found}: `hub import-torch-hub` takes them over")
