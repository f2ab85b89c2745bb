"""Memory and events of a GPU that other processes open, by CUDA's handles; Linux only, as in CUDA.

A handle stands for a whole allocation of the driver: memory of a pool is at an offset in one.  A process opens the
handle of an allocation once (`Opened`), and closes it when nothing that is in it is used any more.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
import weakref
from typing import Any

from engine.backends.cuda import runtime

__all__ = [
    "AnotherCard",
    "Opened",
    "array_in",
    "card",
    "check_card",
    "export",
    "mark",
    "refuse_forked",
    "synchronize",
    "wait_for",
]

_LAZY_PEER_ACCESS = 1  # cudaIpcMemLazyEnablePeerAccess, the only flag there is


@functools.cache
def _driver() -> Any:
    """The driver's library, which CuPy has loaded; CuPy lacks the one call that is needed here."""
    found = ctypes.CDLL("libcuda.so.1")
    found.cuMemGetAddressRange_v2.argtypes = [
        ctypes.POINTER(ctypes.c_uint64),
        ctypes.POINTER(ctypes.c_size_t),
        ctypes.c_uint64,
    ]
    return found


def _allocation(pointer: int) -> int:
    """Return the start of the driver's allocation that contains `pointer`.  RuntimeError where the driver has none
    there."""
    driver = runtime.state.driver if runtime.state.stand_in else _driver()
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    status = driver.cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), pointer)
    if status:
        raise RuntimeError(f"the driver knows no memory at {pointer:#x} (cuMemGetAddressRange: error {status})")
    return int(base.value)


def export(array: Any) -> tuple[bytes, int]:
    """The handle of the allocation that holds a device array, and the offset of the array in it, in bytes.

    RuntimeError where the memory cannot be shared: that of `cudaMallocAsync`, of another library's pool.
    """
    runtime.refuse_in_capture("sending a tensor to another process")
    pointer = int(array.data.ptr)
    with runtime.on_device(array.data.device_id):
        try:
            base = _allocation(pointer)
            handle = runtime.library().cuda.runtime.ipcGetMemHandle(base)
        except (RuntimeError, OSError) as error:
            raise RuntimeError(
                f"a CUDA tensor cannot be shared with other processes ({str(error).partition(chr(10))[0]}): its memory "
                "must come from cudaMalloc; send tensor.clone() of the engine's own pool, or tensor.cpu()"
            ) from error
    return bytes(handle), pointer - base


class AnotherCard(RuntimeError):
    """`cuda:N` of the sender is another card than `cuda:N` here."""


def card(index: int) -> bytes:
    """The UUID of a GPU, which is the same in every process; b"" where CUDA does not tell."""
    library = runtime.library()
    found = _cards.get((id(library), index))
    if found is None:  # asking takes a millisecond
        uuid = library.cuda.runtime.getDeviceProperties(index).get("uuid")
        found = _cards[id(library), index] = bytes(uuid) if isinstance(uuid, bytes) else b""
    return found


_cards: dict[tuple[int, int], bytes] = {}


def check_card(index: int, wanted: bytes) -> None:
    """Raise AnotherCard unless `cuda:index` of this process is the card of that UUID."""
    here = range(runtime.device_count())
    if not wanted or (index in here and card(index) in (wanted, b"")):
        return
    same = [f"cuda:{n}" for n in here if card(n) == wanted]
    found = f"that card is {same[0]} in this process" if same else "this process does not see that card"
    raise AnotherCard(
        f"a CUDA tensor on cuda:{index} of another process cannot be opened: {found}; start both with the same "
        "CUDA_VISIBLE_DEVICES, or send tensor.cpu()"
    )


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def mark(index: int) -> tuple[Any, bytes | None]:
    """An event after the work of now, which must live until the other side has waited, and its handle.

    In a thread other than the main one (that of a queue or a pool) the stream that made the tensor is not known: the
    whole GPU is waited for, and there is no event.
    """
    module = runtime.library()
    with runtime.on_device(index):
        if not _in_main_thread():
            module.cuda.Device().synchronize()
            return None, None
        event = module.cuda.Event(disable_timing=True, interprocess=True)
        event.record()
        return event, bytes(module.cuda.runtime.ipcGetEventHandle(event.ptr))


def wait_for(handle: bytes | None, index: int) -> None:
    """Let the current stream wait for the event of another process; the host, where it is not the main thread."""
    if handle is None:
        return
    module = runtime.library()
    calls = module.cuda.runtime
    with runtime.on_device(index):
        event = calls.ipcOpenEventHandle(handle)
        try:
            if _in_main_thread():
                calls.streamWaitEvent(module.cuda.get_current_stream().ptr, event)
            else:
                calls.eventSynchronize(event)
        finally:
            calls.eventDestroy(event)


def synchronize(index: int) -> bool:
    """Wait until this process has done with memory that it is about to give back; False in a capture, which cannot."""
    if runtime.capturing():
        return False
    module = runtime.library()
    with runtime.on_device(index):
        if _in_main_thread():
            module.cuda.get_current_stream().synchronize()
        else:
            module.cuda.Device().synchronize()
    return True


def refuse_forked() -> None:
    """Raise torch's error in a child that was forked from a process that has used a GPU."""
    runtime.library()
    if runtime.state.process != os.getpid():
        raise RuntimeError(runtime.FORKED)


class Opened:
    """An allocation of another process, mapped here as long as this object lives; one per process for each."""

    known: weakref.WeakValueDictionary[tuple[int, bytes], Opened] = weakref.WeakValueDictionary()
    lock = threading.RLock()

    def __init__(self, handle: bytes, index: int) -> None:
        with runtime.on_device(index):
            self.pointer = int(runtime.library().cuda.runtime.ipcOpenMemHandle(handle, _LAZY_PEER_ACCESS))
        self.index = index
        weakref.finalize(self, _close, self.pointer, index).atexit = False  # the driver closes what a process leaves

    @classmethod
    def of(cls, handle: bytes, index: int) -> Opened:
        """The allocation of a handle.  CuPy's CUDARuntimeError where it is gone."""
        with cls.lock:
            found = cls.known.get((index, handle))
            if found is None:
                found = cls.known[index, handle] = cls(handle, index)
            return found


def _close(pointer: int, index: int) -> None:
    with runtime.on_device(index):
        runtime.library().cuda.runtime.ipcCloseMemHandle(pointer)


def array_in(opened: Opened, offset: int, nbytes: int, owner: Any) -> Any:
    """The bytes of an opened allocation from `offset` on as an array, which keeps `owner`."""
    cuda = runtime.library().cuda
    with runtime.on_device(opened.index):
        memory = cuda.UnownedMemory(opened.pointer + offset, nbytes, owner, opened.index)
        return runtime.library().ndarray((nbytes,), "uint8", cuda.MemoryPointer(memory, 0))
