"""Shared memory of storages, and how tensors reach other processes by it.

Note [Shared storages]
`share_memory_` moves a storage's bytes into a block that other processes can map, and every tensor over the old memory
to the same place in the new one.  Pickled for another process (`ForkingPickler`: queues, pipes, arguments of a
process), a CPU storage is moved so and sent as a handle: both processes see each other's writes.  Two strategies:
"file_descriptor" (Linux): an unlinked memfd.  The handle is the descriptor; nothing has a name, so nothing is left when
the last process ends, however it ends.  A process holds the descriptors of its blocks: mind `ulimit -n`.
"file_system": a named POSIX block.  Behind the data stands a count of the processes and messages that hold it, changed
under a file lock; who brings it to 0 unlinks the name.  After a process was killed the standard library's resource
tracker does, when the whole family of processes has ended.
Where there is neither (Windows), tensors reach other processes by value and `share_memory_` says that it cannot.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import importlib
import importlib.util
import mmap
import os
import secrets
import struct
import sys
import weakref
from collections.abc import Iterator
from multiprocessing import reduction, resource_tracker, util
from typing import Any

import numpy as np

from engine.layouts import over_buffer
from engine.nn.parameter import Parameter
from engine.storage import Memory, relocate, root_of
from engine.tensor import Tensor, wrap

__all__ = [
    "get_all_sharing_strategies", "get_sharing_strategy", "init_reductions", "reduce_storage", "reduce_tensor",
    "set_sharing_strategy", "share",
]  # fmt: skip


def _strategies() -> list[str]:
    """The ways to share memory that this system has, the default first; none on Windows."""
    if not all(map(importlib.util.find_spec, ("fcntl", "_posixshmem"))):
        return []
    return ["file_descriptor", "file_system"] if hasattr(os, "memfd_create") else ["file_system"]


_STRATEGIES = _strategies()
_strategy = [*_STRATEGIES, "by_value"][:1]


def get_all_sharing_strategies() -> set[str]:
    """The ways to share memory that this system has."""
    return set(_STRATEGIES)


def get_sharing_strategy() -> str:
    """The way new blocks are shared: "file_descriptor" (the default on Linux) or "file_system"; else "by_value"."""
    return _strategy[0]


def set_sharing_strategy(new_strategy: str) -> None:
    """Choose how new blocks are shared, for this process.  AssertionError for an unknown name."""
    assert new_strategy in _STRATEGIES, (
        f"invalid sharing strategy {new_strategy!r}, expected one of {get_all_sharing_strategies()}"
    )
    _strategy[0] = new_strategy


# --- blocks


_blocks: weakref.WeakValueDictionary[Any, _Block] = weakref.WeakValueDictionary()  # by what is the same everywhere


class _Block:
    """Mapped memory, the base of one root array of bytes; unmapped when no array looks at it any more."""

    shared = True

    def __init__(self, key: Any, fd: int, nbytes: int, mapped: int) -> None:
        self.key, self.nbytes = key, nbytes
        # mmap keeps a copy of the descriptor, unless told not to
        options = {"trackfd": False} if sys.version_info >= (3, 13) else {}
        self.map = mmap.mmap(fd, mapped, **options)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        self.__array_interface__ = {
            "version": 3, "data": (self.address, False), "shape": (nbytes,), "typestr": "|u1",
        }  # fmt: skip
        _blocks[key] = self

    def memory(self) -> Memory:
        """The Memory over this block: one a process."""
        root = self._root() if hasattr(self, "_root") else None
        if root is None:
            root = np.asarray(self)
            self._root = weakref.ref(root)
        return Memory.of(root)


class _Unnamed(_Block):
    """A block on a descriptor."""

    def __init__(self, fd: int, nbytes: int) -> None:
        self.fd = fd
        super().__init__(_inode(fd), fd, nbytes, max(nbytes, 1))

    @classmethod
    def create(cls, nbytes: int) -> _Unnamed:
        fd = os.memfd_create("torch", os.MFD_CLOEXEC)
        try:
            os.ftruncate(fd, max(nbytes, 1))
            return cls(fd, nbytes)
        except BaseException:
            os.close(fd)
            raise

    def handle(self) -> tuple:
        """How `pickle` makes it in another process."""
        return _from_descriptor, (reduction.DupFd(self.fd), self.nbytes)

    def __del__(self) -> None:
        os.close(self.fd)


def _inode(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def _from_descriptor(duplicate: Any, nbytes: int) -> Memory:
    fd = duplicate.detach()
    known = _blocks.get(_inode(fd))
    if known is not None:
        os.close(fd)
        return known.memory()
    return _Unnamed(fd, nbytes).memory()


_COUNT = struct.Struct("q")


class _Named(_Block):
    """A block with a name, and a count of its holders behind the data."""

    def __init__(self, name: str, fd: int, nbytes: int) -> None:
        self.name = name
        self.place = -(-nbytes // 8) * 8
        super().__init__(name, fd, nbytes, self.place + _COUNT.size)
        # runs when the block dies or the process ends in order; not in a forked child, which holds no count
        util.Finalize(self, _release, (name, nbytes), exitpriority=0)

    @classmethod
    def create(cls, nbytes: int) -> _Named:
        name = f"/torch_{os.getpid()}_{secrets.token_hex(8)}"
        fd = _open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            resource_tracker.register(name, "shared_memory")
            size = -(-nbytes // 8) * 8 + _COUNT.size
            if hasattr(os, "posix_fallocate"):  # a full file system is an error now, not a SIGBUS later
                os.posix_fallocate(fd, 0, size)
            else:
                os.ftruncate(fd, size)
            block = cls(name, fd, nbytes)
            _COUNT.pack_into(block.map, block.place, 1)
            return block
        except BaseException:
            _unlink(name)
            raise
        finally:
            os.close(fd)

    def handle(self) -> tuple:
        """How `pickle` makes it in another process; the message counts as a holder."""
        _add(self.name, self.nbytes, 1)
        return _from_name, (self.name, self.nbytes)


def _from_name(name: str, nbytes: int) -> Memory:
    known = _blocks.get(name)
    if known is not None:
        _add(name, nbytes, -1)
        return known.memory()
    fd = _open(name, os.O_RDWR)
    try:
        return _Named(name, fd, nbytes).memory()
    finally:
        os.close(fd)


def _posix() -> Any:
    return importlib.import_module("_posixshmem")


def _open(name: str, flags: int) -> int:
    fd: int = _posix().shm_open(name, flags, mode=0o600)
    return fd


def _unlink(name: str) -> None:
    try:
        _posix().shm_unlink(name)
    except FileNotFoundError:
        return
    resource_tracker.unregister(name, "shared_memory")


def _add(name: str, nbytes: int, change: int) -> int:
    """The count of holders after `change`, made under the block's file lock."""
    import fcntl  # not on Windows

    fd = _open(name, os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        place = -(-nbytes // 8) * 8
        count: int = _COUNT.unpack(os.pread(fd, _COUNT.size, place))[0] + change
        os.pwrite(fd, _COUNT.pack(count), place)
        return count
    finally:
        os.close(fd)


def _release(name: str, nbytes: int) -> None:
    try:
        if _add(name, nbytes, -1) <= 0:
            _unlink(name)
    except FileNotFoundError:  # the resource tracker came first
        pass


# --- moving


def share(memory: Memory, tensor: Tensor | None = None) -> None:
    """Move `memory` (of `tensor`, if it is known) to a block that other processes can map; does nothing if it is there.

    RuntimeError where the system has no room for it, NotImplementedError where it cannot share memory at all.
    """
    root = memory.root
    if not isinstance(root, np.ndarray) or memory.is_shared:
        return
    if not _STRATEGIES:
        raise NotImplementedError(
            "share_memory_() is not supported on this platform, which has no POSIX shared memory: tensors reach other "
            "processes by value"
        )
    low, high = np.lib.array_utils.byte_bounds(root) if root.size else (0, 0)
    kind = _Unnamed if _strategy[0] == "file_descriptor" else _Named
    try:
        block = kind.create(high - low)
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, "")
        raise RuntimeError(
            f"unable to share {high - low} bytes by the {_strategy[0]} strategy: {error.strerror} ({name})"
        ) from error
    ctypes.memmove(block.address, low, high - low)
    alone = tensor is not None and _holders(tensor, memory) == _holders_of_one()
    moved: dict[int, Any] = {}
    fresh = block.memory().root
    for t in [tensor] if alone else list(_over(root)):
        array = t.__dict__["_array"]
        if id(array) not in moved:
            offset = array.__array_interface__["data"][0] - low if array.size else 0
            moved[id(array)] = (
                array,
                over_buffer(fresh, array.dtype, array.shape, array.strides, offset),
            )
        t.__dict__["_array"] = moved[id(array)][1]
    relocate(memory, fresh)


def _holders(tensor: Tensor, memory: Memory) -> tuple[bool, int, int]:
    """How many references there are to the array of `tensor` and to the root of its memory."""
    array = tensor.__dict__["_array"]
    return array is memory.root, sys.getrefcount(array), sys.getrefcount(memory.root)


def _holders_of_one() -> tuple[bool, int, int]:
    """`_holders` of a tensor whose memory nobody else sees."""
    tensor = wrap(np.zeros(1))
    memory = Memory.of(tensor._array)
    root = memory.root  # as in `share`
    found = _holders(tensor, memory)
    del root
    return found


def _over(root: Any) -> Iterator[Tensor]:
    """Every tensor over the memory of `root`."""
    for found in gc.get_objects():
        if isinstance(found, Tensor):
            array = found.__dict__.get("_array")
            if array is not None and root_of(array) is root:
                yield found


# --- pickling for other processes


def reduce_storage(memory: Memory) -> tuple:
    """How a storage is pickled for another process."""
    if not isinstance(memory.root, np.ndarray) or not _STRATEGIES:  # of another device, or as on Windows: by value
        return memory.__reduce__()
    share(memory)
    handle: tuple = memory.root.base.handle()
    return handle


def reduce_tensor(tensor: Tensor) -> tuple:
    """How a tensor is pickled for another process.  RuntimeError for one with history."""
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError(
            "Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd does not support "
            "crossing process boundaries.  If you just want to transfer the data, call detach() on the tensor before "
            "serializing (e.g., putting it on the queue)."
        )
    memory = Memory.of(tensor._array)
    if isinstance(memory.root, np.ndarray) and _STRATEGIES:
        share(memory, tensor)
    return tensor.__reduce_ex__(2)


def init_reductions() -> None:
    """Tell the standard library's pickler for other processes about storages and tensors."""
    reduction.ForkingPickler.register(Memory, reduce_storage)
    for kind in (Tensor, Parameter):
        reduction.ForkingPickler.register(kind, reduce_tensor)
