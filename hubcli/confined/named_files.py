"""Files that the user names in an entrypoint's arguments (`-k path=weights.pth`): readable in a sandbox, at that name.

Naming a file is consent to its being read, as naming a repository is to its being fetched.  A folder counts where it is
written as a path (with a separator), and is neither the user's home nor anything above it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubcli.base import paths
from hubcli.running import checkpoints

if TYPE_CHECKING:
    from hubcli.confined.jobs import Job

_MOST = 256  # files and folders
_LONGEST = 4096


@dataclass(frozen=True)
class Named:
    """The paths to allow: `read` are absolute paths; `linked` the relative names that lead to some of them, and where
    to."""

    read: tuple[str, ...]
    linked: tuple[tuple[str, str], ...]


def find(job: Job) -> tuple[Job, Named]:
    """Return the files that the arguments of `job` name, and the job with names that lead upwards made absolute.

    The child stands in a folder of its own, where `link` puts the relative names.
    """
    read: dict[str, None] = {}
    linked: dict[str, str] = {}

    def changed(text: str) -> str:
        if len(read) >= _MOST or not _is_named(text):
            return text
        whole, upwards = os.path.abspath(text), ".." in Path(text).parts
        for path in checkpoints.files_of(Path(whole)):
            read[str(path)] = read[os.path.realpath(path)] = None
            if not (os.path.isabs(text) or upwards):
                linked[os.path.join(os.path.dirname(text.rstrip(os.sep)), path.name)] = str(path)
        return whole if upwards else text

    args = tuple(_walk(value, changed) for value in job.args)
    kwargs = {name: _walk(value, changed) for name, value in job.kwargs.items()}
    return replace(job, args=args, kwargs=kwargs), Named(tuple(read), tuple(linked.items()))


def link(named: Named, folder: Path) -> None:
    """Put the relative names into the folder that the child stands in; a name that is taken there stays what it is."""
    for name, target in named.linked:
        place = folder / name
        with contextlib.suppress(OSError):
            place.parent.mkdir(parents=True, exist_ok=True)
            os.symlink(target, place)


def _walk(value: Any, changed: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return changed(value)
    if isinstance(value, list | tuple):
        return [_walk(one, changed) for one in value]
    if isinstance(value, dict):
        return {key: _walk(one, changed) for key, one in value.items()}
    return value


def _is_named(text: str) -> bool:
    if not text or len(text) > _LONGEST or "\0" in text or "://" in text or ".git" in Path(text).parts:
        return False
    whole = Path(os.path.abspath(text))
    with contextlib.suppress(OSError, ValueError):
        if whole.is_file():
            return True
        return os.sep in text and whole.is_dir() and not any(_within(one, whole) for one in _protected())
    return False


def _protected() -> Iterator[Path]:
    yield Path("/")
    with contextlib.suppress(RuntimeError):
        yield Path.home()
    yield paths.hub_dir()


def _within(path: Path, folder: Path) -> bool:
    """Return whether `path` is `folder` or is below it, links followed."""
    real, above = os.path.realpath(path), os.path.realpath(folder)
    return real == above or real.startswith(above.rstrip(os.sep) + os.sep)
