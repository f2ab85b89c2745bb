"""The manager of a group of processes that share named blocks: what unlinks the blocks that killed processes leave.

Note [Manager of named blocks]
The first process that makes a named block starts this file as a program in a session of its own; it imports nothing
of the engine.  Every process that holds such a block is connected to it over a Unix socket in a folder that only this
user can enter, and says which names it holds (`hold`), no longer holds (`drop`) and has unlinked (`gone`).  When a
connection ends without a `drop`, its process was killed: the manager takes its holds off the blocks' counts.
When the last connection ends, what is still known is held by messages alone, whose receivers have not connected yet.
For those the manager waits GRACE seconds, then unlinks them; where there are none it does not wait.  At its end it
removes its socket and its folder.
A manager that was killed is started again, on the same path, by the next process that needs it.

Names are "/torch_<pid>_<16 hexadecimal digits>"; the manager touches no other.  The count of a block's holders is the
last 8 bytes of the block, changed under a file lock.

Note [Groups that were killed whole]
When the manager is killed too, nobody is left to unlink.  So the first 6 digits are the group's, and as long as a
process of the group lives, its manager or a client, it holds a shared lock on the group's mark, the empty block
"/torchshm_<6 digits>"; the kernel lets go of it however the process ends.  A manager that starts looks at this user's
names: a group whose mark it can lock alone is dead, and its names and its folder are removed under that lock.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import selectors
import socket
import struct
import sys
import time

__all__ = ["COUNT", "DIGITS", "FOLDER", "GRACE", "WELCOME", "add", "digits", "join", "leave", "serve", "sweep"]

COUNT = struct.Struct("q")
GRACE = 2.0  # seconds; a handle may be under way to a process that is not connected yet
PAUSE = 0.002  # seconds between two looks, so that not every line of a busy client wakes this process
WELCOME = b"."
_NAME = re.compile(rb"/torch_\d{1,20}_[0-9a-f]{16}")
_SHM = "/dev/shm"  # where Linux lists the names; elsewhere they cannot be listed
FOLDER = "torch_shm_"  # how the name of a manager's folder begins
DIGITS = 6  # of a name, which are its group's
_LINE = 256  # bytes; no client of ours says more


def _posix() -> object:
    import _posixshmem  # not on Windows

    return _posixshmem


def add(name: str, change: int) -> int:
    """The count of a block's holders after `change`, made under the block's file lock; FileNotFoundError if gone."""
    import fcntl  # not on Windows

    fd = _posix().shm_open(name, os.O_RDWR, mode=0o600)  # type: ignore[attr-defined]
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        place = os.fstat(fd).st_size - COUNT.size
        if place < 0:  # its maker was killed before it had a size
            return 0
        count: int = COUNT.unpack(os.pread(fd, COUNT.size, place))[0] + change
        os.pwrite(fd, COUNT.pack(count), place)
        return count
    finally:
        os.close(fd)


def _unlink(name: bytes) -> None:
    with contextlib.suppress(OSError):
        _posix().shm_unlink(name.decode())  # type: ignore[attr-defined]


def digits(folder: str) -> str:
    """Return the common prefix of the names of the group whose manager is at `folder`."""
    return hashlib.sha256(os.fsencode(folder)).hexdigest()[:DIGITS]


def _mark(group: str) -> str:
    return f"/torchshm_{group}"


def _lock_mark(group: str, how: int) -> int:
    """A descriptor that locks the mark of a group, which is made if it is not there."""
    import fcntl

    while True:
        fd: int = _posix().shm_open(_mark(group), os.O_RDWR | os.O_CREAT, mode=0o600)  # type: ignore[attr-defined]
        try:
            fcntl.flock(fd, how)
            now: int = _posix().shm_open(_mark(group), os.O_RDWR, mode=0o600)  # type: ignore[attr-defined]
            try:
                if os.path.samestat(os.fstat(fd), os.fstat(now)):  # else somebody has just removed it
                    return fd
            finally:
                os.close(now)
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def join(folder: str) -> int:
    """Be a process of the group at `folder` until the descriptor that this gives is closed."""
    import fcntl

    return _lock_mark(digits(folder), fcntl.LOCK_SH)


def leave(folder: str, joined: int, patience: float = 0) -> None:
    """Be none any more; the last one removes the mark.

    patience: seconds for others to leave; a process that is ending closes its connection before its hold on the mark.
    """
    import fcntl

    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(joined, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() < deadline:
                time.sleep(PAUSE)
                continue
        else:
            if os.fstat(joined).st_nlink:  # else a sweep has removed it, and another may bear its name
                _unlink(_mark(digits(folder)).encode())
        break
    os.close(joined)


def _remove_folder(folder: str) -> None:
    for left in ("socket", "lock"):
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, left))
    with contextlib.suppress(OSError):
        os.rmdir(folder)


def _this_users(folder: str, beginning: str) -> list[str]:
    found = []
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            with contextlib.suppress(OSError):
                if entry.name.startswith(beginning) and entry.stat(follow_symlinks=False).st_uid == os.getuid():
                    found.append(entry.name)
    return found


def sweep(folder: str) -> None:
    """Remove what groups left that were killed whole: names, and folders beside `folder`."""
    import fcntl

    names: dict[str, list[bytes]] = {}
    folders: dict[str, list[str]] = {}
    for name in _this_users(_SHM, "torch"):
        encoded = f"/{name}".encode(errors="replace")
        if _NAME.fullmatch(encoded):
            names.setdefault(name.rpartition("_")[2][:DIGITS], []).append(encoded)
        elif re.fullmatch(r"torchshm_[0-9a-f]{6}", name):
            names.setdefault(name.rpartition("_")[2], [])
    beside = os.path.dirname(folder)
    for name in _this_users(beside, FOLDER):
        path = os.path.join(beside, name)
        folders.setdefault(digits(path), []).append(path)
    for group in names.keys() | folders.keys():
        if group == digits(folder):
            continue
        with contextlib.suppress(OSError):  # BlockingIOError: somebody lives
            fd = _lock_mark(group, fcntl.LOCK_EX | fcntl.LOCK_NB)
            try:
                for left in names.get(group, ()):
                    _unlink(left)
                for path in folders.get(group, ()):
                    _remove_folder(path)
                _unlink(_mark(group).encode())
            finally:
                os.close(fd)


class _Group:
    """The state of the manager: every name, and who holds it."""

    def __init__(self) -> None:
        self.known: set[bytes] = set()
        self.held: dict[socket.socket, set[bytes]] = {}
        self.unread: dict[socket.socket, bytes] = {}

    def join(self, client: socket.socket) -> None:
        """A client has connected."""
        self.held[client], self.unread[client] = set(), b""

    def hear(self, client: socket.socket, data: bytes) -> bool:
        """Take what a client says; False if it is none of ours."""
        *lines, rest = (self.unread[client] + data).split(b"\n")
        for line in lines:
            word, _, name = line.partition(b" ")
            if not _NAME.fullmatch(name):
                return False
            if word == b"hold":
                self.known.add(name)
                self.held[client].add(name)
            elif word in (b"drop", b"gone"):
                self.held[client].discard(name)
                if word == b"gone":
                    self.known.discard(name)
            else:
                return False
        self.unread[client] = rest
        return len(rest) <= _LINE

    def leave(self, client: socket.socket) -> None:
        """A client's connection has ended; what it held without a `drop` is taken off the counts."""
        del self.unread[client]
        for name in self.held.pop(client):
            try:
                if add(name.decode(), -1) > 0:
                    continue
                _unlink(name)
            except OSError:
                pass
            self.known.discard(name)

    def end(self) -> None:
        """Unlink whatever is left."""
        for name in self.known:
            _unlink(name)


def _ours(client: socket.socket) -> bool:
    """Return whether the process at the other end is this user's (known on Linux; elsewhere the folder's mode
    decides).
    """
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    size = struct.calcsize("3i")
    _, uid, _ = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return bool(uid == os.getuid())


def serve(listener: socket.socket, lock: int) -> None:
    """Serve clients of `listener` until the last has gone, and GRACE seconds more if messages hold blocks.

    `lock` guards against the return of a client: who starts a manager has it until it is connected.
    """
    import fcntl

    group = _Group()
    listener.setblocking(False)
    with selectors.DefaultSelector() as watched:
        watched.register(listener, selectors.EVENT_READ)
        idle = time.monotonic()
        while True:
            wait = None if group.held else max(0.0, idle + GRACE - time.monotonic()) if group.known else 0
            ready = watched.select(wait)
            if not ready and not group.held:
                fcntl.flock(lock, fcntl.LOCK_EX)  # who connects now waits, and starts another manager
                ready = watched.select(0)
                if not ready:
                    group.end()
                    return
                fcntl.flock(lock, fcntl.LOCK_UN)
            for key, _ in ready:
                client = key.fileobj
                assert isinstance(client, socket.socket)
                if client is listener:
                    with contextlib.suppress(OSError):
                        new = listener.accept()[0]
                        if _ours(new):
                            group.join(new)
                            watched.register(new, selectors.EVENT_READ)
                            new.send(WELCOME)  # connected may also mean: left in the queue of one that has ended
                        else:
                            new.close()
                    continue
                try:
                    data = client.recv(1 << 16)
                except OSError:
                    data = b""
                if not data or not group.hear(client, data):
                    watched.unregister(client)
                    client.close()
                    group.leave(client)
                    idle = time.monotonic()
            time.sleep(PAUSE)


def _main() -> None:
    listener, lock, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    os.chdir("/")
    joined = join(folder)
    with socket.socket(fileno=listener) as server:
        sweep(folder)
        serve(server, lock)
        _remove_folder(folder)
        leave(folder, joined, GRACE)


if __name__ == "__main__":
    _main()
