"""The names that people and old code see: `<owner>_<repo>_<ref>`, links to the trees.  hub reads none of them."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from hubcli.base import output, paths
from hubcli.base.spec import RepoSpec


def name_of(spec: RepoSpec, ref: str, root: Path) -> Path:
    """Return the link of that ref in the cache `root`."""
    return root / spec.at(ref).name


def show(spec: RepoSpec, ref: str, tree: Path, root: Path) -> None:
    """Point torch's visible name to the tree; a real folder or file of that name stays."""
    link = name_of(spec, ref, root)
    if link.exists() and not link.is_symlink():
        output.detail(f"{link} is not a link of hub's; it is left as it is")
        return
    temporary = link.with_name(f".{link.name[:100]}.{paths.unique()}.tmp")
    try:
        os.symlink(os.path.relpath(tree, link.parent), temporary, target_is_directory=True)
        os.replace(temporary, link)
    except OSError as error:
        output.detail(f"{link} cannot be made: {error}")
        with contextlib.suppress(OSError):
            temporary.unlink()


def points_into(link: Path, folder: Path) -> bool:
    """Return whether `link` leads to a tree in `folder`."""
    if not link.is_symlink():
        return False
    return Path(os.path.normpath(link.parent / os.readlink(link))).parent == folder
