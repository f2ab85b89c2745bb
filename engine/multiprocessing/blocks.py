"""Blocks of memory that several processes map: on a descriptor, or by a name.

Note [Blocks]
A block is the base of one root array of bytes, and is unmapped when no array looks at it any more.  The mapping is the
C library's own: that of Python's `mmap` keeps a duplicate of the descriptor (until 3.13's `trackfd=False`), so that a
process with a limit of 64 open files could hold no more than 60 blocks, named or not.
A block on a descriptor (`Unnamed`, a memfd) is gone when the last process that maps it has ended, however it ended.
A block with a name (`Named`) ends with a count of its holders: the processes that map it and the messages that carry
it.  Who brings the count to 0 unlinks the name; for processes that are killed Note [Manager of named blocks] does.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import importlib
import itertools
import mmap
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from multiprocessing import reduction, util
from typing import Any

import numpy as np

from engine.core.storage import Memory
from engine.multiprocessing import manager

__all__ = ["Block", "Bytes", "Mapping", "Named", "Unnamed", "known", "out_of_files"]


known: weakref.WeakValueDictionary[Any, Block] = weakref.WeakValueDictionary()  # by what is the same in every process


@cache
def _libc() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + 3 * [ctypes.c_int] + [ctypes.c_ssize_t]
    library.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return library


class Mapping:
    """`length` bytes of a descriptor in this process's memory, as long as this object lives; needs no descriptor."""

    def __init__(self, fd: int, length: int) -> None:
        address = _libc().mmap(None, length, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, fd, 0)
        if address == ctypes.c_void_p(-1).value:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        self.address: int = address
        self.length = length
        weakref.finalize(self, _libc().munmap, address, length).atexit = False


class Bytes:
    """`nbytes` bytes at an address, as the base of an array; `retained` live as long as it does."""

    def __init__(self, address: int, nbytes: int, *retained: object) -> None:
        self.retained = retained
        self.__array_interface__ = {"version": 3, "data": (address, False), "shape": (nbytes,), "typestr": "|u1"}


class Block(Mapping):
    """Mapped memory, the base of one root array of bytes; unmapped when no array looks at it any more."""

    shared = True

    def __init__(self, key: Any, fd: int, nbytes: int, mapped: int) -> None:
        super().__init__(fd, mapped)
        self.key, self.nbytes = key, nbytes
        self.__array_interface__ = {
            "version": 3,
            "data": (self.address, False),
            "shape": (nbytes,),
            "typestr": "|u1",
        }
        known[key] = self

    def memory(self) -> Memory:
        """The Memory over this block: one per process."""
        root = self._root() if hasattr(self, "_root") else None
        if root is None:
            root = np.asarray(self)
            self._root = weakref.ref(root)
        return Memory.of(root)

    @classmethod
    def create(cls, nbytes: int, content: Any = None) -> Block:
        """A new block of `nbytes` bytes: `content`, an array of as many uint8, or zeros.

        OSError where there is no room or no free descriptor.
        """
        raise NotImplementedError

    def handle(self) -> tuple[Callable[..., Memory], tuple[Any, ...]]:
        """Return the function and arguments with which `pickle` makes its Memory in another process."""
        raise NotImplementedError


_AT_ONCE = 1 << 16  # bytes; a second copy of fewer costs less than a second call


def _write(fd: int, content: Any, at: int = 0) -> None:
    """Write all bytes of `content`.

    The kernel neither zeroes the pages that a write fills nor takes a fault for each, as it would for a copy into the
    mapping: half the time.  And where there is no room it says so, where a copy would be killed.
    """
    left = memoryview(content)
    while left:
        count = os.pwrite(fd, left, at)  # 2 GB at most
        left, at = left[count:], at + count


# --- on a descriptor


class Unnamed(Block):
    """A block on a descriptor."""

    def __init__(self, fd: int, nbytes: int) -> None:
        self.fd = fd
        super().__init__(_inode(fd), fd, nbytes, max(nbytes, 1))
        weakref.finalize(self, os.close, fd).atexit = False

    @classmethod
    def create(cls, nbytes: int, content: Any = None) -> Unnamed:
        fd = os.memfd_create("torch", os.MFD_CLOEXEC)
        try:
            if content is None or not nbytes:
                os.ftruncate(fd, max(nbytes, 1))
            else:
                _write(fd, content)
            return cls(fd, nbytes)
        except BaseException:
            os.close(fd)
            raise

    def handle(self) -> tuple[Callable[..., Memory], tuple[Any, ...]]:
        try:
            return _from_descriptor, (reduction.DupFd(self.fd), self.nbytes)
        except OSError as error:
            if error.errno != errno.EMFILE:
                raise
            raise RuntimeError(out_of_files()) from error


def _inode(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def _from_descriptor(duplicate: Any, nbytes: int) -> Memory:
    try:
        fd = duplicate.detach()
    except OSError as error:
        if error.errno == errno.EMFILE:
            raise RuntimeError(out_of_files()) from error
        raise ConnectionError(
            f"the process that sent a tensor ended before it was received ({error}): keep it until the receiver has "
            "the tensor, or share by names: torch.multiprocessing.set_sharing_strategy('file_system')"
        ) from error
    except (EOFError, RuntimeError) as error:  # the sender (EOF) or this process ("0 items of ancdata") has none free
        raise RuntimeError(out_of_files()) from error
    found = known.get(_inode(fd))
    if found is not None:
        os.close(fd)
        return found.memory()
    try:
        return Unnamed(fd, nbytes).memory()
    except BaseException:
        os.close(fd)
        raise


def out_of_files() -> str:
    """Return the advice for a process whose descriptors have run out."""
    return (
        "Too many open files: the file_descriptor strategy needs one descriptor for each shared storage.  Raise the "
        "limit (`ulimit -n` in the shell), or share by names: "
        "torch.multiprocessing.set_sharing_strategy('file_system') at the beginning of every process"
    )


# --- with a name


_NUMBERS = 16 ** (16 - manager.DIGITS)
_number = itertools.count(secrets.randbelow(_NUMBERS))  # a process before us may have had our number


class Named(Block):
    """A block with a name, and a count of its holders behind the data."""

    def __init__(self, name: str, manager_at: str, fd: int, nbytes: int) -> None:
        self.name, self.manager_at = name, manager_at
        super().__init__(name, fd, nbytes, _size(nbytes))
        self._let_go_at_the_end()
        util.register_after_fork(self, Named._held_by_child)

    def _let_go_at_the_end(self) -> None:
        # runs when the block dies or the process ends in order; not in a forked child, which has a count of its own
        self.holder = os.getpid()
        util.Finalize(self, _release, (self.name, self.manager_at), exitpriority=0)

    def _held_by_child(self) -> None:
        if self.holder == os.getpid():  # came with the arguments of a process that the fork server has forked
            self._let_go_at_the_end()  # its start forgot the first
            return
        with contextlib.suppress(OSError):  # the parent may have let go of the last hold since
            manager.add(self.name, 1)
            _connections.enter(self.manager_at)
            _tell(self.manager_at, "hold", self.name)
            self._let_go_at_the_end()

    @classmethod
    def create(cls, nbytes: int, content: Any = None) -> Named:
        where = _own_manager()
        name = f"/torch_{os.getpid()}_{manager.digits(where)}{next(_number) % _NUMBERS:0{16 - manager.DIGITS}x}"
        _connections.enter(where)
        _tell(where, "hold", name)  # before it exists: killed in between, nothing is left that nobody knows
        fd = _open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            size = _size(nbytes)
            one = manager.COUNT.pack(1)
            if content is not None and nbytes < _AT_ONCE:
                _write(fd, content.tobytes().ljust(size - len(one), b"\0") + one)
            else:
                if content is not None:
                    _write(fd, content)
                elif hasattr(os, "posix_fallocate"):  # a full file system is an error now, not a SIGBUS later
                    os.posix_fallocate(fd, 0, size)
                else:
                    os.ftruncate(fd, size)
                _write(fd, one, size - len(one))
            return cls(name, where, fd, nbytes)
        except BaseException:
            _unlink(name)
            _tell(where, "gone", name)
            _connections.leave(where)
            raise
        finally:
            os.close(fd)

    def handle(self) -> tuple[Callable[..., Memory], tuple[Any, ...]]:
        manager.add(self.name, 1)  # the message is a holder
        return _from_name, (self.name, self.manager_at, self.nbytes)


def _size(nbytes: int) -> int:
    return -(-nbytes // 8) * 8 + manager.COUNT.size


def _from_name(name: str, manager_at: str, nbytes: int) -> Memory:
    found = known.get(name)
    if found is not None:
        manager.add(name, -1)
        return found.memory()
    with _connections.lock:
        if _connections.own is None:  # of the sender's group from now on
            _connections.own = manager_at
    _connections.enter(manager_at)
    try:
        _tell(manager_at, "hold", name)  # what the message held is this process's now
        fd = _open(name, os.O_RDWR)
    except BaseException:
        _connections.leave(manager_at)
        raise
    try:
        return Named(name, manager_at, fd, nbytes).memory()
    finally:
        os.close(fd)


def _posix() -> Any:
    return importlib.import_module("_posixshmem")


def _open(name: str, flags: int) -> int:
    fd: int = _posix().shm_open(name, flags, mode=0o600)
    return fd


def _unlink(name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        _posix().shm_unlink(name)


def _release(name: str, manager_at: str) -> None:
    with contextlib.suppress(OSError):  # the manager came first, or cannot be had any more
        _tell(manager_at, "drop", name)
        if manager.add(name, -1) <= 0:
            _unlink(name)
            _tell(manager_at, "gone", name)
    _connections.leave(manager_at)


# --- talking with the manager


class _Connections:
    """This process's connections to managers, by the folder of their socket: its own group's and those of handles."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.sockets: dict[str, socket.socket] = {}
        self.joined: dict[str, int] = {}  # descriptors: Note [Groups that were killed whole]
        self.own: str | None = None
        self.blocks: Counter[str] = Counter()  # how many this process holds, by manager

    def enter(self, folder: str) -> None:
        """One block more of a manager."""
        with self.lock:
            self.blocks[folder] += 1

    def leave(self, folder: str) -> None:
        """One block less; after the last of another group its manager is left, which may end then."""
        with self.lock:
            self.blocks[folder] -= 1
            if self.blocks[folder] <= 0 and folder != self.own:
                del self.blocks[folder]
                if folder in self.sockets:
                    self.sockets.pop(folder).close()
                if folder in self.joined:
                    os.close(self.joined.pop(folder))


_connections = _Connections()


def _own_manager() -> str:
    """The folder of the manager of the blocks that this process makes."""
    with _connections.lock:
        if _connections.own is None:
            _connections.own = _new_folder()
        return _connections.own


def _new_folder() -> str:
    folder = tempfile.mkdtemp(prefix=manager.FOLDER)
    if len(folder) < 90:  # the path of a Unix socket has room for 104 bytes or a few more
        return folder
    os.rmdir(folder)
    return tempfile.mkdtemp(prefix=manager.FOLDER, dir="/tmp")


def _tell(folder: str, word: str, name: str) -> None:
    """Say one line to the manager at `folder`, which is started if it does not run.  OSError where that fails."""
    line = f"{word} {name}\n".encode()
    with _connections.lock:
        connection = _connections.sockets.get(folder)
        if connection is not None:
            try:
                return connection.sendall(line)
            except OSError:  # it was killed
                connection.close()
                _connections.sockets.pop(folder, None)
        first = folder not in _connections.joined
        if first:
            _connections.joined[folder] = manager.join(folder)
        connection = _connections.sockets[folder] = _connect(folder, wait=not first)
        for block in list(known.values()):
            if isinstance(block, Named) and block.manager_at == folder and block.name != name:
                connection.sendall(f"hold {block.name}\n".encode())
        connection.sendall(line)


def _connect(folder: str, wait: bool = True) -> socket.socket:
    """Return a connection to the manager at `folder`, which is started if it does not run.

    What is said to one that has just been started waits in the socket until it listens, and is read even if this
    process is killed before.  So the first block of a group need not `wait` for an interpreter to start; one that is
    started in the place of another must show that it runs.
    """
    address = os.path.join(folder, "socket")
    with contextlib.suppress(OSError):
        return _connected(address)
    with _locked(folder):
        with contextlib.suppress(OSError):  # somebody else has started it
            return _connected(address)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(address)
        _start(folder, address)
        return _connected(address, wait)


def _connected(address: str, wait: bool = True) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(10)
        connection.connect(address)
        if wait and connection.recv(1) != manager.WELCOME:
            raise ConnectionError(f"the shared memory manager at {address} has just ended")
        connection.settimeout(None)
    except BaseException:
        connection.close()
        raise
    return connection


@contextlib.contextmanager
def _locked(folder: str) -> Iterator[None]:
    import fcntl

    path = os.path.join(folder, "lock")
    while True:
        os.makedirs(folder, 0o700, exist_ok=True)
        status = os.lstat(folder)
        if status.st_uid != os.getuid() or status.st_mode & 0o077:
            raise PermissionError(f"{folder} belongs to somebody else: not used for a shared memory manager")
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # the manager that held it may have swept the folder before it ended
            if os.path.exists(path) and os.path.samestat(os.fstat(lock), os.stat(path)):
                yield
                return
        finally:
            os.close(lock)


# the manager is nobody's child: no `wait` of the program is to meet it
_SHELL = ["/bin/sh", "-c", '"$@" &', "sh"]


def _start(folder: str, address: str) -> None:
    if not os.access(sys.executable or "", os.X_OK):
        raise OSError(
            f"the shared memory manager needs a Python interpreter to run in; sys.executable is {sys.executable!r}"
        )
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(128)
        # another open file of the lock, so that the manager's hold on it is not this process's
        own = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CLOEXEC)
        program = [sys.executable, "-I", "-S", manager.__file__, str(listener.fileno()), str(own), folder]
        try:
            subprocess.run(
                [*_SHELL, *program],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(listener.fileno(), own),
                start_new_session=True,
                check=True,
            )
        except subprocess.CalledProcessError as error:
            raise OSError(f"the shared memory manager did not start: {error}") from error
        finally:
            os.close(own)


def _in_child() -> None:
    """A forked child is a member of its own: its parent's end must be seen although the child lives."""
    global _connections
    inherited, _connections = _connections, _Connections()
    _connections.own, _connections.joined = inherited.own, inherited.joined
    for folder, connection in inherited.sockets.items():
        connection.close()
        with contextlib.suppress(OSError):
            _connections.sockets[folder] = _connected(os.path.join(folder, "socket"))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
