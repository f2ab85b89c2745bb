"""The stand-in's memory and events between processes: CUDA's handles, by files in memory that have no name.

Memory that is exported is replaced, where it lies, by a file that others map.  Behind the bytes the file says which
streams of which process used them last, and whether they are still allocated, so that a missing wait and a use after
the exporter has freed are found in another process as well.  Rules: no process opens its own handles; a handle is of a
whole allocation; it is opened once and closed once, and not while something lies in it; an event must be one between
processes, and live when it is waited for.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import mmap
import os
import struct
import threading
import weakref
from collections.abc import Iterator
from typing import Any

from tests.engine.standin import machine
from tests.engine.standin.machine import CUDARuntimeError, Machine, here

_HANDLE = struct.Struct("qqqq")  # process, descriptor, where (of events: place in the file), bytes
_HEADER = 4096
_EVENT = 1024
_SETTLED = b'{"written": null, "read": {},'
calls: list[str] = []


class UseAfterFree(AssertionError):
    """Another process has freed this memory."""


def _outside(key: Any) -> str:
    return key if isinstance(key, str) else f"{os.getpid()}:{key}"


def _inside(key: str) -> Any:
    process, _, own = key.partition(":")
    return int(own) if int(process) == os.getpid() else key


def _clock_out(clock: dict[Any, int]) -> dict[str, int]:
    return {_outside(key): at for key, at in clock.items()}


def _clock_in(clock: dict[str, int]) -> dict[Any, int]:
    return {_inside(key): at for key, at in clock.items()}


class Shared:
    """What all processes know of an allocation: behind its bytes in its file."""

    lock = threading.RLock()

    def __init__(self, fd: int, at: int) -> None:
        self.fd, self.at = fd, at
        self.generation: int | None = None  # of the memory that another process has opened
        Machine.shared.add(self)

    def __del__(self, close: Any = os.close) -> None:  # no globals are left when the interpreter ends
        close(self.fd)
        self.fd = -1

    @contextlib.contextmanager
    def state(self) -> Iterator[dict[str, Any]]:
        """What is known, to be changed."""
        with self.lock:
            fcntl.flock(self.fd, fcntl.LOCK_EX)
            try:
                text = os.pread(self.fd, _HEADER, self.at).rstrip(b"\0")
                found = json.loads(text) if text else {"written": None, "read": {}, "generation": 0, "alive": True}
                yield found
                text = json.dumps(found).encode()
                assert len(text) <= _HEADER
                os.pwrite(self.fd, text.ljust(_HEADER, b"\0"), self.at)
            finally:
                fcntl.flock(self.fd, fcntl.LOCK_UN)

    def load(self, chunk: Any) -> None:
        """Let a chunk know who used it last."""
        with self.state() as found:
            if self.generation is not None and (not found["alive"] or found["generation"] != self.generation):
                raise UseAfterFree("the process that shared this memory has freed it")
            written = found["written"]
            chunk.written = None if written is None else (_inside(written[0]), written[1])
            chunk.read = _clock_in(found["read"])

    def store(self, chunk: Any) -> None:
        """Say who used it last."""
        with self.state() as found:
            written = chunk.written
            found["written"] = None if written is None else [_outside(written[0]), written[1]]
            found["read"] = _clock_out(chunk.read)

    def seen(self, clock: dict[Any, int]) -> None:
        """The host has waited: what is done need not be waited for by anybody."""
        if os.pread(self.fd, len(_SETTLED), self.at) == _SETTLED:
            return
        outside = _clock_out(clock)
        with self.state() as found:
            written = found["written"]
            if written is not None and outside.get(written[0], 0) >= written[1]:
                found["written"] = None
            found["read"] = {key: at for key, at in found["read"].items() if outside.get(key, 0) < at}

    def freed(self) -> None:
        """The memory has gone back to its pool."""
        if self.fd < 0:  # in one garbage cycle with it
            return
        with self.state() as found:
            found.update(alive=False, written=None, read={})

    def taken(self) -> None:
        """It was given out anew."""
        with self.state() as found:
            found.update(alive=True, generation=found["generation"] + 1)


# --- memory


def _libc() -> Any:
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + 3 * [ctypes.c_int] + [ctypes.c_ssize_t]
    return library


_MAP_FIXED = 0x10


def _export(chunk: Any) -> None:
    """Put a file in the place of a chunk's pages."""
    size = len(chunk.whole)
    fd = os.memfd_create("standin", os.MFD_CLOEXEC)
    os.ftruncate(fd, size + _HEADER)
    os.pwrite(fd, memoryview(chunk.whole), 0)
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    placed = _libc().mmap(chunk.base, size, protection, mmap.MAP_SHARED | _MAP_FIXED, fd, 0)
    assert placed == chunk.base, os.strerror(ctypes.get_errno())
    chunk.shared = Shared(fd, size)
    chunk.shared.store(chunk)


def _get_mem_handle(devPtr: int) -> bytes:
    calls.append("ipcGetMemHandle")
    for memory in list(Machine.memories):
        chunk = memory.chunk
        if chunk.base == devPtr:
            if chunk.device != here.device:
                raise CUDARuntimeError("cudaErrorInvalidValue: memory of another device")
            if chunk.shared is None:
                _export(chunk)
            return _HANDLE.pack(os.getpid(), chunk.shared.fd, chunk.device, len(chunk.whole)).ljust(64, b"\0")
    raise CUDARuntimeError("cudaErrorInvalidValue: invalid argument (no allocation begins there)")


class Opening:
    """An allocation of another process."""

    def __init__(self, fd: int, size: int) -> None:
        self.map = mmap.mmap(fd, size)
        self.size = size
        self.pointer = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        self.shared = Shared(fd, size)
        with self.shared.state() as found:
            self.shared.generation = found["generation"]
        self.inside: weakref.WeakSet[Any] = weakref.WeakSet()


opened: dict[bytes, Opening] = {}


def _other(handle: bytes) -> tuple[int, int, int, int]:
    if not isinstance(handle, bytes) or len(handle) != 64:
        raise TypeError("a handle is 64 bytes")
    found = _HANDLE.unpack(handle[: _HANDLE.size])
    if found[0] == os.getpid():
        raise CUDARuntimeError("cudaErrorInvalidContext: a process cannot open its own handle")
    return found  # type: ignore[return-value]


def _reach(process: int, fd: int) -> int:
    try:
        return os.open(f"/proc/{process}/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        raise CUDARuntimeError("cudaErrorMapBufferObjectFailed: mapping of buffer object failed") from None


def _open_mem_handle(handle: bytes, flags: int = 1) -> int:
    calls.append("ipcOpenMemHandle")
    process, fd, device, size = _other(handle)
    if flags != 1:
        raise CUDARuntimeError("cudaErrorInvalidValue: invalid argument (flags)")
    if device != here.device:
        raise CUDARuntimeError("cudaErrorInvalidDevice: the current device is another")
    if handle in opened:
        raise AssertionError("the handle is open in this process")
    found = opened[handle] = Opening(_reach(process, fd), size)
    return found.pointer


def _close_mem_handle(devPtr: int) -> None:
    calls.append("ipcCloseMemHandle")
    for handle, found in list(opened.items()):
        if found.pointer == devPtr:
            assert not list(found.inside), "closed while something lies in it"
            del opened[handle]
            return
    raise CUDARuntimeError("cudaErrorInvalidValue: invalid argument (not opened)")


def place(memory: Any) -> None:
    """Account for memory that another library owns: whether another process does."""
    for found in opened.values():
        if found.pointer <= memory.ptr and memory.ptr + memory.size <= found.pointer + found.size:
            memory.chunk.shared = found.shared
            found.inside.add(memory)


# --- events


_board: list[Any] = []  # the file of this process's events, and how many it has
_foreign: dict[int, tuple[int, int]] = {}


def publish(event: Any) -> None:
    """Write what an event that others may open carries; None when it is no more."""
    fd, at = event.shared
    text = json.dumps(None if event.clock is None else _clock_out(event.clock)).encode()
    assert len(text) <= _EVENT
    os.pwrite(fd, text.ljust(_EVENT, b"\0"), at)


def _get_event_handle(event: int) -> bytes:
    calls.append("ipcGetEventHandle")
    found = Machine.events.get(event)
    if found is None or not found.interprocess:
        raise CUDARuntimeError("cudaErrorInvalidResourceHandle: invalid resource handle (not an interprocess event)")
    if found.shared is None:
        if not _board or _board[0] != os.getpid():
            _board[:] = [os.getpid(), os.memfd_create("events", os.MFD_CLOEXEC), 0]
        found.shared = (_board[1], _board[2] * _EVENT)
        _board[2] += 1
        publish(found)
    return _HANDLE.pack(os.getpid(), *found.shared, 0).ljust(64, b"\0")


def _open_event_handle(handle: bytes) -> int:
    calls.append("ipcOpenEventHandle")
    process, fd, at, _ = _other(handle)
    pointer = next(machine.Stream.numbers) * 16
    _foreign[pointer] = (_reach(process, fd), at)
    return pointer


def _clock_of(event: int) -> dict[Any, int]:
    own = Machine.events.get(event)
    if own is not None:
        return own.clock
    if event not in _foreign:
        raise CUDARuntimeError("cudaErrorInvalidResourceHandle: invalid resource handle")
    fd, at = _foreign[event]
    found = json.loads(os.pread(fd, _EVENT, at).rstrip(b"\0"))
    assert found is not None, "the process that made the event has destroyed it"
    return _clock_in(found)


def _stream_wait_event(stream: int, event: int, flags: int = 0) -> None:
    calls.append("streamWaitEvent")
    for found in [machine.null_stream(here.device), *here.streams]:
        if found.ptr == stream and found.device == here.device:
            return found.merge(_clock_of(event))
    raise CUDARuntimeError("cudaErrorInvalidResourceHandle: invalid resource handle")


def _event_synchronize(event: int) -> None:
    calls.append("eventSynchronize")
    here.host_waits(_clock_of(event))


def _event_destroy(event: int) -> None:
    calls.append("eventDestroy")
    fd, _ = _foreign.pop(event)
    os.close(fd)


RUNTIME = {
    "ipcGetMemHandle": _get_mem_handle,
    "ipcOpenMemHandle": _open_mem_handle,
    "ipcCloseMemHandle": _close_mem_handle,
    "ipcGetEventHandle": _get_event_handle,
    "ipcOpenEventHandle": _open_event_handle,
    "streamWaitEvent": _stream_wait_event,
    "eventSynchronize": _event_synchronize,
    "eventDestroy": _event_destroy,
}


class Driver:
    """libcuda's part that the engine calls itself."""

    @staticmethod
    def cuMemGetAddressRange_v2(pbase: Any, psize: Any, dptr: int) -> int:
        for memory in list(Machine.memories):
            chunk = memory.chunk
            if chunk.base <= dptr < chunk.base + len(chunk.whole):
                pbase._obj.value, psize._obj.value = chunk.base, len(chunk.whole)
                return 0
        return 1  # CUDA_ERROR_INVALID_VALUE
