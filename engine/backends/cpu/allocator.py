"""Memory for large CPU arrays: cached when an array dies and given to the next one of about its size.

The first write to fresh memory costs more than the arithmetic: the system clears every page of it.  So arrays above
`LARGE` bytes that the engine makes live in blocks from a cache.  A block is a private mapping (huge pages where the
system has them, address a multiple of 4096).  An array over it has a `Lease` as its `.base`: views reach the lease
through the array, and when the last of them is gone the lease gives the block back.  The array ends where its elements
end, so a Storage, a pickle or a checkpoint never sees the rest of the block.

Free blocks are bounded by ENGINE_CACHE_MB (default: an eighth of the memory of this machine or container); above it
the one that waited longest goes back to the system.  All go when an allocation fails.  A forked child starts without.
Arrays that users make with numpy are never taken from here.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = [
    "LARGE",
    "Lease",
    "empty",
    "empty_cache",
    "memory_stats",
    "reset_peak_memory_stats",
]

LARGE = 1 << 20  # bytes from which an array comes from here

_MARGIN = 2  # a free block serves if it is at most this many size classes too large (of 8 a doubling)


class Lease:
    """The base of an array over a block of a cache: gives the block back when nothing refers to it any more."""

    __slots__ = ("__array_interface__", "__weakref__", "block", "cache", "nbytes")

    def __init__(self, cache: Any, block: Any, nbytes: int) -> None:
        self.cache, self.block, self.nbytes = cache, block, nbytes

    def array(self, shape: Sequence[int], dtype: np.dtype, strides: tuple[int, ...] | None) -> np.ndarray:
        """The one array over the block."""
        plain = dtype.kind != "V"
        self.__array_interface__ = {
            "version": 3,
            "data": (self.block.address, False),
            "shape": tuple(shape),
            "strides": strides,
            "typestr": dtype.str if plain else f"<u{dtype.itemsize}",
        }
        made = np.asarray(self)
        return made if plain else made.view(dtype)

    def __del__(self) -> None:
        self.cache.give_back(self.block, self.nbytes)


class Block:
    """One mapping.  `size` its bytes, `address` its first byte, `freed` a count that says which one waits longest."""

    __slots__ = ("address", "freed", "memory", "size")

    def __init__(self, size: int) -> None:
        import mmap  # with the first large array

        if hasattr(mmap, "MAP_PRIVATE"):
            self.memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            if size >= 1 << 22 and hasattr(mmap, "MADV_HUGEPAGE"):
                with contextlib.suppress(OSError):  # a kernel without huge pages
                    self.memory.madvise(mmap.MADV_HUGEPAGE)
        else:
            self.memory = mmap.mmap(-1, size)
        self.size = size
        self.address: int = np.frombuffer(self.memory, np.uint8, 1).ctypes.data
        self.freed = 0


class Cache:
    """Free blocks by size class, oldest first, and what is counted.

    `give_back` runs wherever an array dies, also in the middle of `take` (a garbage collection): it takes no lock
    that is held, but leaves the block in `returned`, and whoever holds the lock sorts it in.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit  # bytes of free blocks; None: not read yet
        self.returned: deque[tuple[Block, int]] = deque()
        self.used = self.in_use = self.count = self.requests = self.hits = self.retries = 0
        self.start()
        self.reset_peaks()

    def start(self) -> None:
        """Without free blocks (also in a forked child, where the lock may have been held)."""
        self.lock = threading.Lock()
        self.free: dict[int, list[Block]] = {}
        self.free_bytes = 0
        self.clock = 0

    def reset_peaks(self) -> None:
        self.peak_used = self.used
        self.peak_reserved = self.in_use + self.free_bytes

    def take(self, nbytes: int) -> Lease:
        """A lease of a block of at least `nbytes`.  MemoryError when the system has no more."""
        size = _rounded(nbytes)
        with self.lock:
            self._sort_in()
            block = self._cached(size)
            self.requests += 1
            self.hits += block is not None
        if block is None:
            block = self._new(size)
        lease = Lease(self, block, nbytes)
        with self.lock:
            self.count += 1
            self.used += nbytes
            self.in_use += block.size
            self.peak_used = max(self.peak_used, self.used)
            self.peak_reserved = max(self.peak_reserved, self.in_use + self.free_bytes)
        return lease

    def _cached(self, size: int) -> Block | None:
        for _ in range(_MARGIN + 1):
            waiting = self.free.get(size)
            if waiting:
                self.free_bytes -= size
                return waiting.pop()
            size = _rounded(size + 1)
        return None

    def _new(self, size: int) -> Block:
        try:
            return Block(size)
        except (OSError, MemoryError, OverflowError, ValueError):
            self.retries += 1
            self.empty()
        try:
            return Block(size)
        except (OSError, OverflowError, ValueError) as error:
            raise MemoryError(
                f"DefaultCPUAllocator: can't allocate memory: you tried to allocate {size} bytes."
            ) from error

    def give_back(self, block: Block, nbytes: int) -> None:
        """The block is free: keep it, within the limit."""
        self.returned.append((block, nbytes))
        if self.lock.acquire(blocking=False):
            try:
                self._sort_in()
            finally:
                self.lock.release()

    def _sort_in(self) -> None:
        if self.limit is None:
            self.limit = _limit()
        while self.returned:
            block, nbytes = self.returned.popleft()
            self.count -= 1
            self.used -= nbytes
            self.in_use -= block.size
            if block.size <= self.limit:
                self.clock += 1
                block.freed = self.clock
                self.free.setdefault(block.size, []).append(block)
                self.free_bytes += block.size
        while self.free_bytes > self.limit:
            oldest = min((b for b in self.free.values() if b), key=lambda b: b[0].freed)
            self.free_bytes -= oldest.pop(0).size

    def empty(self) -> int:
        """Give all free blocks back to the system; how many bytes that were."""
        with self.lock:
            self._sort_in()
            size, self.free_bytes = self.free_bytes, 0
            self.free.clear()
        return size

    def stats(self) -> dict[str, int]:
        """See `engine.memory_stats`."""
        with self.lock:
            self._sort_in()
            reserved = self.in_use + self.free_bytes
            return {
                "allocated_bytes.all.current": self.used,
                "allocated_bytes.all.peak": self.peak_used,
                "reserved_bytes.all.current": reserved,
                "reserved_bytes.all.peak": max(self.peak_reserved, reserved),
                "allocation.all.current": self.count,
                "allocation.all.allocated": self.requests,
                "cached_bytes.all.current": self.free_bytes,
                "cached_bytes.limit": self.limit or 0,
                "num_cache_hits": self.hits,
                "num_alloc_retries": self.retries,
            }


def _rounded(nbytes: int) -> int:
    """The size class of a request: 8 classes a doubling, so at most an eighth is not used."""
    step = max(1 << (nbytes - 1).bit_length() - 4, 1 << 16)
    return -(-nbytes // step) * step


def _limit() -> int:
    """ENGINE_CACHE_MB, else an eighth of the memory."""
    given = os.environ.get("ENGINE_CACHE_MB")
    if given:
        try:
            return max(0, int(given)) << 20
        except ValueError:
            raise ValueError(f"ENGINE_CACHE_MB must be a whole number of megabytes, not {given!r}") from None
    found = [1 << 33]
    if hasattr(os, "sysconf"):
        with contextlib.suppress(OSError, ValueError):
            found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError), open(name) as file:  # no container, or "max"
            found.append(int(file.read()))
    return min(found) // 8


_cache = Cache()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_cache.start)


def empty(shape: Sequence[int], dtype: Any = np.float32, order: Sequence[int] | None = None) -> np.ndarray:
    """A dense array with undefined elements: from the cache, 64-byte aligned, if large, else numpy's own.

    shape (*).  dtype: numpy's, or anything that it takes for one.  order: the dims from the outermost to the
    innermost in memory; C order without it.
    """
    dtype = np.dtype(dtype)
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes < LARGE or dtype.hasobject:
        if order is None:
            return np.empty(shape, dtype)
        made = np.empty([shape[d] for d in order], dtype)
        return made.transpose(np.argsort(order))
    strides = None
    if order is not None:
        step, found = dtype.itemsize, [0] * len(shape)
        for d in reversed(order):
            found[d] = step
            step *= shape[d]
        strides = tuple(found)
    return _cache.take(nbytes).array(shape, dtype, strides)


def empty_cache() -> int:
    """Give the free blocks back to the system.  Bytes given back."""
    return _cache.empty()


def memory_stats() -> dict[str, int]:
    """Counts and bytes of large CPU arrays, under the names of torch.cuda.memory_stats where it has them."""
    return _cache.stats()


def reset_peak_memory_stats() -> None:
    """Peaks start again at the present values."""
    _cache.reset_peaks()
