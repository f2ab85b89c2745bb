"""A child with all that it starts: how much memory it really has, and that nothing of it outlives this process.

README.md, invariant 6, says how memory of the kernel is counted.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hubcli.base import paths

_SLACK = 64 << 20  # bytes beyond the limit at which the kernel steps in: we look twenty times a second
_SOCKET, _PIPE = 212_992 + 65_536, 65_536  # bytes that one may hold, with what the kernel needs for it
_FEW = 64 << 20  # bytes of descriptors that are not looked at one by one
_SHELL = "/bin/sh"


@dataclass(frozen=True)
class Cgroup:
    """A memory cgroup of our own (`version` 1 or 2)."""

    folder: Path
    version: int

    @classmethod
    def make(cls, limit: int) -> Cgroup | None:
        """One that holds what is in it to `limit` bytes and a little; None where this process may not make any."""
        if sys.platform != "linux" or not os.access(_SHELL, os.X_OK):
            return None
        for parent, version in _places():
            folder = parent / f"hub-{paths.unique()}"
            try:
                folder.mkdir()
            except OSError:
                continue
            made = cls(folder, version)
            try:
                name = "memory.limit_in_bytes" if version == 1 else "memory.max"
                (folder / name).write_text(str(limit + _SLACK), encoding="ascii")
                with contextlib.suppress(OSError):
                    (folder / "memory.swap.max").write_text("0", encoding="ascii")
                if os.access(folder / "cgroup.procs", os.W_OK):
                    return made
            except OSError:
                pass
            made.close()
        return None

    def entering(self, command: Sequence[str]) -> list[str]:
        """`command`, in a process that joins first: nothing that it starts is left out."""
        script = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
        return [_SHELL, "-c", script, str(self.folder), *command]

    def used(self) -> int:
        """Bytes of memory, the kernel's for the family too, without what only caches files."""
        try:
            name = "memory.usage_in_bytes" if self.version == 1 else "memory.current"
            used = int((self.folder / name).read_text(encoding="ascii"))
            prefix = "total_" if self.version == 1 else ""
            for line in (self.folder / "memory.stat").read_text(encoding="ascii").splitlines():
                field, _, value = line.partition(" ")
                if field in (f"{prefix}inactive_file", f"{prefix}active_file"):
                    used -= int(value)
            return used
        except (OSError, ValueError):
            return 0

    def overran(self) -> bool:
        """Return whether the kernel has ended a process for its memory."""
        name = "memory.oom_control" if self.version == 1 else "memory.events"
        with contextlib.suppress(OSError, ValueError, IndexError):
            for line in (self.folder / name).read_text(encoding="ascii").splitlines():
                if line.split()[0] == "oom_kill":
                    return int(line.split()[1]) > 0
        return False

    def close(self) -> None:
        """Remove it; its processes have ended, or are about to."""
        for _ in range(100):
            try:
                self.folder.rmdir()
                return
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.02)


def _places() -> Iterator[tuple[Path, int]]:
    """Folders in which a memory cgroup may be made, with their version."""
    root = Path("/sys/fs/cgroup")
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, place = line.split(":", 2)
        if "memory" in controllers.split(","):
            yield root / "memory" / place.lstrip("/"), 1
        elif not controllers:
            # beside us: a cgroup that has processes hands no controllers down
            top = root / "unified" if (root / "unified" / "cgroup.procs").exists() else root
            own = top / place.lstrip("/")
            with contextlib.suppress(OSError):
                if own != top and "memory" in (own.parent / "cgroup.subtree_control").read_text().split():
                    yield own.parent, 2


class Keeper:
    """A process that ends the group `pgid` when this one dies, however that happens.

    A signal on the parent's death reaches the child alone: what the child has started lives on.
    """

    def __init__(self, pgid: int) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        with contextlib.suppress(OSError):
            self.process = subprocess.Popen(
                [_SHELL, "-c", 'read -r line; kill -9 "-$0"', str(pgid)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
                cwd="/",
                start_new_session=True,
            )

    def close(self) -> None:
        """It is no longer needed; to be called before the group's number may belong to another."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            assert self.process.stdin is not None
            self.process.stdin.close()


def usage(root: int) -> tuple[list[int], int]:
    """Tasks of a process and all below it, by their process, and bytes of memory that is no file's.

    What forked processes share is counted for each of them.
    """
    tasks: list[int] = []
    memory = 0
    pending = [root]
    seen: set[int] = set()
    while pending and len(seen) < 4096:
        pid = pending.pop()
        if pid in seen:
            continue
        seen.add(pid)
        with contextlib.suppress(OSError, ValueError, IndexError):
            with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
                memory += sum(_kilobytes(file, ("RssAnon", "RssShmem", "VmPTE"))) * 1024
            for task in os.listdir(f"/proc/{pid}/task"):
                tasks.append(pid)
                with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
                    pending += map(int, file.read().split())
    return tasks, memory + _descriptors(seen)


def _descriptors(processes: Iterable[int]) -> int:
    """Bytes that the open sockets and pipes of processes may hold, each counted once; 0 where they are few."""
    opened: list[str] = []
    for pid in processes:
        with contextlib.suppress(OSError):
            opened += [f"/proc/{pid}/fd/{name}" for name in os.listdir(f"/proc/{pid}/fd")]
    if len(opened) * _SOCKET < _FEW:
        return 0
    found = set()
    for name in opened:
        with contextlib.suppress(OSError):
            found.add(os.readlink(name))
    sockets = sum(one.startswith("socket:") for one in found)
    return sockets * _SOCKET + sum(one.startswith("pipe:") for one in found) * _PIPE


def shared_once(tasks: list[int]) -> int:
    """Return the memory of `usage`, each page divided among those who share it: exact, and slower."""
    memory = 0
    for pid in set(tasks):
        try:
            with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
                memory += sum(_kilobytes(file, ("Pss_Anon", "Pss_Shmem"))) * 1024
        except FileNotFoundError:  # it has ended
            continue
        except OSError:
            with contextlib.suppress(OSError), open(f"/proc/{pid}/status") as file:
                memory += sum(_kilobytes(file, ("RssAnon", "RssShmem"))) * 1024
    return memory + _descriptors(set(tasks))


def _kilobytes(lines: Iterable[str], names: tuple[str, ...]) -> Iterator[int]:
    for line in lines:
        name, _, value = line.partition(":")
        if name in names:
            yield int(value.split()[0])
