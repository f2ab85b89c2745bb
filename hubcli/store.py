"""The cache on disk: look up, fetch and publish, list, remove (interface first)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hubcli.spec import RepoSpec

Kind = Literal["branch", "tag", "commit", "local"]


@dataclass(frozen=True, slots=True)
class Checkout:
    """A published tree: what `spec` means on this machine.

    `ref` is the branch or tag that was taken, `commit` and `tree` git's ids (None for a folder),
    `fetched_at` and `checked_at` seconds since the epoch, `cached` whether it was there before.
    """

    spec: RepoSpec
    url: str
    ref: str | None
    kind: Kind
    commit: str | None
    tree: str | None
    generation: int
    path: Path
    cached: bool
    fetched_at: float | None
    checked_at: float | None
