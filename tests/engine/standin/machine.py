"""The stand-in's machine: devices with a memory of their own, streams, events, pools and captured graphs.

Work is done at once, but its order is kept as CUDA keeps it: every stream has a clock, an event carries one, and memory
knows which stream wrote and read it last.  Work that meets memory of another stream without a wait in between raises
`StreamOrderError`, where a card would sometimes give wrong numbers.  Freed memory is filled with 0xFF (NaN, -1).
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

UNIT = 512  # bytes to which CuPy's pool rounds
FREED = 0xFF


class CUDARuntimeError(RuntimeError):
    """What CuPy raises for a failed call."""


class OutOfMemoryError(MemoryError):
    """What CuPy raises when the device or a pool's limit has no room."""


class StreamOrderError(AssertionError):
    """Two streams use the same memory, one of them writes, and neither waits for the other."""


class Chunk:
    """Memory of a device: its bytes, and which streams used it last."""

    def __init__(self, device: int, size: int) -> None:
        self.device, self.size = device, size
        # pages of its own, which `ipc` can replace; aligned as by CuPy's pool, and not at the begin of the allocation
        self.whole = mmap.mmap(-1, size + UNIT, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.raw = np.frombuffer(self.whole, np.uint8, size, UNIT) if size else np.empty(0, np.uint8)
        self.raw.fill(FREED)
        self.shared: Any = None  # what other processes know of it: `ipc.Shared`
        self.written: tuple[Any, int] | None = None  # (stream, its time)
        self.read: dict[Any, int] = {}
        self.born: object = None  # the capture in which it was taken from the pool

    @property
    def base(self) -> int:
        """Where the allocation begins in which it lies."""
        return int(np.frombuffer(self.whole, np.uint8, 1).ctypes.data)


class Stream:
    """cupy.cuda.Stream."""

    numbers = itertools.count(1)
    null: Stream

    def __init__(
        self, null: bool = False, non_blocking: bool = False, ptds: bool = False, *, priority: int | None = None
    ) -> None:
        self.ptr = 0 if null else next(self.numbers) * 16
        self.is_non_blocking, self.priority = non_blocking, priority
        self.device = here.device
        self.clock: dict[int, int] = {}
        self.key = -1 - self.device if null else self.ptr
        self.captured: list[Callable[[], None]] | None = None
        self.saved: dict[int, tuple[Chunk, np.ndarray | None]] = {}
        self.hangs: threading.Event | None = None  # a collective call on it lacks a process, until this is set
        self.later: list[Callable[[], None]] = []  # copies to the host that nobody has waited for
        here.streams.add(self)

    def __enter__(self) -> Stream:
        here.entered.setdefault(here.device, []).append(self)
        here.current[here.device] = self
        return self

    def __exit__(self, *exc: object) -> None:
        """To the stream of the block outside, or the default one: CuPy forgets what `use` had set."""
        outside = here.entered[here.device]
        outside.pop()
        here.current[here.device] = outside[-1] if outside else null_stream(here.device)

    def use(self) -> Stream:
        here.current[here.device] = self
        return self

    def merge(self, clock: dict[int, int]) -> None:
        for key, at in clock.items():
            if self.clock.get(key, 0) < at:
                self.clock[key] = at

    @property
    def done(self) -> bool:
        return not self.later and (self.hangs is None or self.hangs.is_set())

    def synchronize(self) -> None:
        no_capture("cudaStreamSynchronize")
        if self.hangs is not None:
            self.hangs.wait()
        for copy in self.later:
            copy()
        self.later.clear()
        here.host_waits(self.clock)

    def record(self, event: Event | None = None) -> Event:
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        self.merge(event.clock)
        self.hangs = self.hangs or event.hangs

    def begin_capture(self, mode: int | None = None) -> None:
        if self.ptr == 0:
            raise RuntimeError("cannot capture on the default (legacy) stream")
        self.captured, self.saved = [], {}

    def is_capturing(self) -> bool:
        return self.captured is not None

    def end_capture(self) -> Graph:
        if self.captured is None:
            raise CUDARuntimeError("cudaErrorIllegalState: the stream is not capturing")
        calls, self.captured = self.captured, None
        for chunk, before in self.saved.values():  # nothing of a capture is executed
            chunk.raw[...] = FREED if before is None else before
        self.saved = {}
        return Graph(calls)


class Event:
    """cupy.cuda.Event."""

    def __init__(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False) -> None:
        if interprocess and not disable_timing:
            raise CUDARuntimeError("cudaErrorInvalidValue: invalid argument")
        self.ptr = next(Stream.numbers) * 16
        self.clock: dict[int, int] = {}
        self.timed, self.at = not disable_timing, -1.0
        self.stream: Stream | None = None
        self.hangs: threading.Event | None = None
        self.interprocess, self.shared = interprocess, None  # where others read it: `ipc.publish`
        Machine.events[self.ptr] = self

    def record(self, stream: Stream | None = None) -> None:
        stream = current_stream() if stream is None else stream
        self.clock, self.at, self.stream = dict(stream.clock), time.perf_counter(), stream
        self.hangs = stream.hangs
        if self.shared is not None:
            self._publish()

    def _publish(self) -> None:
        from tests.engine.standin import ipc

        ipc.publish(self)

    def __del__(self) -> None:
        if getattr(self, "shared", None) is not None:
            self.clock = None
            with contextlib.suppress(ImportError, TypeError):  # the interpreter ends
                self._publish()

    @property
    def done(self) -> bool:
        found = (self.stream is None or not self.stream.later) and (self.hangs is None or self.hangs.is_set())
        if found:  # the host has seen it
            here.host_waits(self.clock)
        return found

    def synchronize(self) -> None:
        no_capture("cudaEventSynchronize")
        if self.hangs is not None:
            self.hangs.wait()
        if self.stream is not None:
            for copy in self.stream.later:
                copy()
            self.stream.later.clear()
        here.host_waits(self.clock)


class Graph:
    """cupy.cuda.Graph: the calls of a capture, done again at each launch."""

    def __init__(self, calls: list[Callable[[], None]]) -> None:
        self._calls = calls
        self.launches = 0

    def launch(self, stream: Stream | None = None) -> None:
        with stream or current_stream():
            for call in self._calls:
                call()
        self.launches += 1

    def upload(self, stream: Stream | None = None) -> None:
        pass


def elapsed(start_event: Event, end_event: Event) -> float:
    start, end = start_event, end_event
    if not (start.timed and end.timed) or min(start.at, end.at) < 0:
        raise CUDARuntimeError("cudaErrorInvalidResourceHandle: invalid resource handle")
    return (end.at - start.at) * 1000


class Machine(threading.local):
    """What the calling thread sees: the current device and stream; the devices are shared."""

    def __init__(self) -> None:
        self.device = 0
        self.current: dict[int, Stream] = {}
        self.entered: dict[int, list[Stream]] = {}

    # shared by threads
    count = 2
    capacity = 1 << 28
    held = [0, 0]
    streams: weakref.WeakSet[Stream] = weakref.WeakSet()
    memories: weakref.WeakSet[Memory] = weakref.WeakSet()
    shared: weakref.WeakSet[Any] = weakref.WeakSet()  # `ipc.Shared`
    events: weakref.WeakValueDictionary[int, Event] = weakref.WeakValueDictionary()
    defaults: dict[int, Stream] = {}
    host: dict[int, int] = {}
    allocator: Any = None
    launches = 0

    def host_waits(self, clock: dict[int, int]) -> None:
        """The host has waited: all work that it starts from now on comes after that."""
        for key, at in clock.items():
            if self.host.get(key, 0) < at:
                self.host[key] = at
        for shared in list(self.shared):
            shared.seen(clock)


here = Machine()


def null_stream(device: int) -> Stream:
    """The legacy stream of a device."""
    found = Machine.defaults.get(device)
    if found is None:
        before, here.device = here.device, device
        found = Machine.defaults[device] = Stream(null=True)
        here.device = before
    return found


def current_stream() -> Stream:
    return here.current.get(here.device) or null_stream(here.device)


def capturing() -> bool:
    return current_stream().captured is not None


def no_capture(what: str) -> None:
    """Raise what CUDA raises for a call that a capture does not permit."""
    if capturing():
        raise CUDARuntimeError(
            f"cudaErrorStreamCaptureUnsupported: operation not permitted when stream is capturing ({what})"
        )


def launch(reads: list[Chunk], writes: list[Chunk], again: Callable[[], None] | None = None) -> None:
    """Account for work on the current stream.  `again` does it once more, for a graph."""
    stream = current_stream()
    Machine.launches += 1
    if stream.captured is not None:  # recorded, not done: its order is that of the replay
        if again is not None:
            stream.captured.append(again)
        return
    stream.merge(Machine.host)
    if stream.ptr == 0 or not stream.is_non_blocking:  # the legacy stream and blocking ones wait for each other
        for other in list(here.streams):
            if (
                other is not stream
                and other.device == stream.device
                and 0 in (other.ptr, stream.ptr)
                and not other.is_non_blocking
            ):
                stream.merge(other.clock)
    clock, key = stream.clock, stream.key
    foreign = {id(c): c for c in (*reads, *writes) if c.shared is not None} if Machine.shared else {}
    for chunk in foreign.values():
        chunk.shared.load(chunk)
    now = clock[key] = clock.get(key, 0) + 1
    for chunk in reads:
        _after(stream, chunk.written, "reads", "wrote")
        chunk.read[key] = now
    for chunk in writes:
        _after(stream, chunk.written, "writes", "wrote")
        for other, at in chunk.read.items():
            _after(stream, (other, at), "writes", "reads")
        chunk.written, chunk.read = (key, now), {}
    for chunk in foreign.values():
        chunk.shared.store(chunk)


def before_write(chunks: list[Chunk]) -> None:
    """Keep what a capture must leave as it was."""
    stream = current_stream()
    if stream.captured is None:
        return
    for chunk in chunks:
        if id(chunk) not in stream.saved:
            born_here = chunk.born is stream.captured
            stream.saved[id(chunk)] = (chunk, None if born_here else chunk.raw.copy())


def _after(stream: Stream, use: tuple[int, int] | None, now: str, then: str) -> None:
    if use is not None and use[0] != stream.key and stream.clock.get(use[0], 0) < use[1]:
        raise StreamOrderError(f"stream {stream.key} {now} memory that stream {use[0]} {then}, without waiting for it")


# --- memory


class Memory:
    """cupy.cuda.Memory and the memory of pools: goes back to its pool when nobody holds it."""

    def __init__(self, chunk: Chunk, pool: MemoryPool, arena: tuple[int, int]) -> None:
        self.chunk, self.pool, self.arena = chunk, pool, arena
        self.ptr, self.size, self.device_id = chunk.raw.ctypes.data, chunk.size, chunk.device
        Machine.memories.add(self)

    def __del__(self) -> None:
        self.pool._free(self)


class UnownedMemory:
    """cupy.cuda.UnownedMemory: memory that `owner` keeps."""

    def __init__(self, ptr: int, size: int, owner: Any, device_id: int = -1) -> None:
        self.ptr, self.size, self.owner = ptr, size, owner
        self.device_id = here.device if device_id < 0 else device_id
        self.chunk = Chunk.__new__(Chunk)
        self.chunk.__dict__.update(device=self.device_id, size=size, written=None, read={}, born=None, shared=None)
        array = (np.ctypeslib.ctypes.c_uint8 * size).from_address(ptr)
        self.chunk.raw = np.frombuffer(array, np.uint8)
        if Machine.shared:
            from tests.engine.standin import ipc

            ipc.place(self)


class MemoryPointer:
    """cupy.cuda.MemoryPointer."""

    def __init__(self, mem: Any, offset: int) -> None:
        self.mem, self.offset = mem, offset
        self.ptr, self.device_id = mem.ptr + offset, mem.device_id

    def copy_from_device_async(self, src: MemoryPointer, size: int, stream: Stream | None = None) -> None:
        def copy() -> None:
            launch([src.mem.chunk], [self.mem.chunk])
            self.mem.chunk.raw[self.offset : self.offset + size] = src.mem.chunk.raw[src.offset : src.offset + size]

        with stream or current_stream():
            before_write([self.mem.chunk])
            copy()
            if capturing():
                current_stream().captured.append(copy)


class MemoryPool:
    """cupy.cuda.MemoryPool: free chunks by device and stream; limits; used bytes."""

    def __init__(self, allocator: Any = None) -> None:
        self._arenas: dict[tuple[int, int], list[Chunk]] = {}
        self._used, self._total = [0, 0], [0, 0]
        self._limit = [0, 0]

    def malloc(self, size: int) -> MemoryPointer:
        device = here.device
        rounded = -(-size // UNIT) * UNIT
        arena = (device, current_stream().key)
        free = self._arenas.setdefault(arena, [])
        for i, chunk in enumerate(free):
            if chunk.size == rounded:
                del free[i]
                if chunk.shared is not None:
                    chunk.shared.taken()
                break
        else:
            chunk = self._grow(device, rounded)
        self._used[device] += rounded
        chunk.born = current_stream().captured
        return MemoryPointer(Memory(chunk, self, arena), 0)

    def _grow(self, device: int, rounded: int) -> Chunk:
        for limit, have, shrink in (
            (self._limit[device], lambda: self._total[device], True),
            (Machine.capacity, lambda: Machine.held[device], True),
        ):
            if limit and have() + rounded > limit:
                if shrink:
                    self.free_all_blocks()
                if have() + rounded > limit:
                    raise OutOfMemoryError(
                        f"Out of memory allocating {rounded:,} bytes (allocated so far: {self._total[device]:,} bytes)."
                    )
        self._total[device] += rounded
        Machine.held[device] += rounded
        return Chunk(device, rounded)

    def _free(self, memory: Memory) -> None:
        self._used[memory.device_id] -= memory.size
        memory.chunk.raw.fill(255)  # FREED; no globals are left when the interpreter ends
        if memory.chunk.shared is not None:
            memory.chunk.shared.freed()
        self._arenas.setdefault(memory.arena, []).append(memory.chunk)

    def free_all_blocks(self, stream: Stream | None = None) -> None:
        for (device, _), free in self._arenas.items():
            if device == here.device:
                for chunk in free:
                    self._total[device] -= chunk.size
                    Machine.held[device] -= chunk.size
                free.clear()

    def used_bytes(self) -> int:
        return self._used[here.device]

    def total_bytes(self) -> int:
        return self._total[here.device]

    def free_bytes(self) -> int:
        return self._total[here.device] - self._used[here.device]

    def n_free_blocks(self) -> int:
        return sum(len(free) for (device, _), free in self._arenas.items() if device == here.device)

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        self._limit[here.device] = int(Machine.capacity * fraction) if fraction is not None else int(size or 0)

    def get_limit(self) -> int:
        return self._limit[here.device]


class PinnedMemoryPointer(bytearray):
    """cupy.cuda.PinnedMemoryPointer: a buffer on the host."""

    @property
    def ptr(self) -> int:
        return np.frombuffer(self, np.uint8).ctypes.data


def allocate(size: int) -> MemoryPointer:
    """By the allocator in use, as CuPy's arrays do."""
    return (getattr(here, "own_allocator", None) or Machine.allocator or default_pool.malloc)(size)


@contextlib.contextmanager
def using_allocator(allocator: Any = None) -> Iterator[None]:
    """cupy.cuda.using_allocator: for this thread."""
    before = getattr(here, "own_allocator", None)
    here.own_allocator = allocator
    try:
        yield
    finally:
        here.own_allocator = before


default_pool = MemoryPool()


def reset() -> None:
    """As a machine that was just started: for the next test."""
    global default_pool
    default_pool = MemoryPool()
    Machine.held[:] = [0, 0]
    here.device = 0
    here.current.clear()
    Machine.defaults.clear()
    Machine.host.clear()
    Machine.allocator, Machine.capacity, Machine.count = None, 1 << 28, 2
    here.own_allocator = None
