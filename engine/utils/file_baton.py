"""A file that one process at a time has: torch.utils.file_baton's name."""

from __future__ import annotations

import os
import time
import warnings

__all__ = ["FileBaton"]


class FileBaton:
    """A lock for work that one process does while others wait: the file at `lock_file_path` exists while it works.

    wait_seconds: between two looks; warn_after_seconds: after which a wait warns once, None for never.
    """

    def __init__(self, lock_file_path: str, wait_seconds: float = 0.1, warn_after_seconds: float | None = None) -> None:
        self.lock_file_path = lock_file_path
        self.wait_seconds = wait_seconds
        self.warn_after_seconds = warn_after_seconds
        self.fd: int | None = None

    def try_acquire(self) -> bool:
        """Return whether this process has it now: False where the file is there already."""
        try:
            self.fd = os.open(self.lock_file_path, os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            return False
        return True

    def wait(self) -> None:
        """Return when the file is gone."""
        began, warned = time.monotonic(), self.warn_after_seconds is None
        while os.path.exists(self.lock_file_path):
            time.sleep(self.wait_seconds)
            if not warned and time.monotonic() - began > (self.warn_after_seconds or 0):
                warnings.warn(
                    f"waited {self.warn_after_seconds} s for {self.lock_file_path!r}: remove it if its process is dead",
                    stacklevel=2,
                )
                warned = True

    def release(self) -> None:
        """Give it back: the file goes.  A process that does not have it leaves the file to the one that does."""
        if self.fd is None:
            return
        os.close(self.fd)
        self.fd = None
        os.remove(self.lock_file_path)
