"""The bytes that the cache takes on the disk, by kind, what no listing names included."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

_KINDS = {"checkouts": "code", "blobs": "weights", "checkpoints": "weights", "db": "databases", "partial": "partial"}


@dataclass(frozen=True)
class Usage:
    """Bytes of the files in the cache folder by kind; a file with several names (hard links) counts once.

    `code`: published trees, old generations included.  `weights`: files of weights and their records.  `databases`:
    the git objects that trees are written from.  `partial`: downloads that were interrupted, and what is being
    fetched.  `other`: records, locks, and files that hub did not make.
    """

    code: int = 0
    weights: int = 0
    databases: int = 0
    partial: int = 0
    other: int = 0

    @property
    def total(self) -> int:
        """Return the sum of all kinds."""
        return sum(asdict(self).values())


def measure(root: Path) -> Usage:
    """Return the usage of the cache folder `root`; what is removed meanwhile counts nothing."""
    sizes: Counter[str] = Counter()
    seen: set[tuple[int, int]] = set()
    pending = [(str(root), "")]
    while pending:
        folder, kind = pending.pop()
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                named = kind or _KINDS.get(entry.name, "other")
                if named == "partial" and entry.name.endswith(".use"):
                    named = "other"  # which tree a running process uses: see `leases`
                with contextlib.suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        pending.append((entry.path, named))
                        continue
                    status = entry.stat(follow_symlinks=False)
                    if status.st_nlink > 1:
                        if (status.st_dev, status.st_ino) in seen:
                            continue
                        seen.add((status.st_dev, status.st_ino))
                    sizes[named] += status.st_size
    return Usage(**sizes)
