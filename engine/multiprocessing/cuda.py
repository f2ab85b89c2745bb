"""Sharing of storages on a GPU with other processes: by CUDA's handles, with counters of their holders.

Note [Sharing CUDA tensors]
The message has the handle of the allocation, where in it the storage is, the handle of an event that follows the work
of now, and a counter.  The receiver opens the allocation once, lets its stream wait for the event, and makes one
storage for the same bytes however often they are sent.  Nothing is copied, both sides see each other's writes; who
writes sees to it that the other side waits (`torch.cuda.synchronize()` before a message says so).
It has the card's number and its UUID, too: where that number is another card to the receiver, one sentence says so.
The sender keeps the memory until the receiver has let go of it.  For that each sending has a counter of its own in a
named block (Note [Blocks]), so that no two processes ever write it at once: the sender sets it to UNDER_WAY, the
receiver to its process id, then, when its last tensor over the storage has gone and its stream is done, to RELEASED.
The sender looks at its counters whenever it sends, is short of memory, or at `torch.cuda.ipc_collect()`.  What a killed
receiver had is taken back, which torch does not; a message that nobody reads keeps its memory until the sender ends.
A sender that ends takes its memory with it: receivers must be done before, and a warning says when they are not.
Only `spawn` and `forkserver` serve: CUDA does not work in a fork of a process that has used it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
import warnings
import weakref
from collections.abc import Callable
from multiprocessing import util
from typing import Any

import numpy as np

from engine.core import dtypes
from engine.core.storage import Memory, root_of
from engine.multiprocessing.blocks import Named

__all__ = ["collect", "reduce"]

RELEASED, UNDER_WAY = 0, 1
_SLOTS = 4096  # counters of a block


class _Counters:
    """A named block of counters, each 8 bytes."""

    def __init__(self, memory: Memory) -> None:
        self.block: Named = memory.root.base
        self.values = memory.root.view(np.int64)
        self.sent: dict[int, _Sent] = {}  # of this process, by place

    def returned(self) -> list[int]:
        """The places whose receivers have let go, or were killed."""
        places = list(self.sent)
        holders = self.values[places]
        gone = [RELEASED, *(h for h in {*holders.tolist()} - {RELEASED, UNDER_WAY} if not _runs(h))]
        return [place for place, holder in zip(places, holders.tolist()) if holder in gone]


class _Sent:
    """A sending: what must live until its counter says RELEASED."""

    def __init__(self, root: Any, event: Any, counters: _Counters, slot: int) -> None:
        self.root, self.event, self.counters, self.slot = root, event, counters, slot


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


class _Sender:
    """The storages that this process has sent and that have not come back."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.name = secrets.token_hex(8)
        self.counters: dict[str, _Counters] = {}  # by the name of their block
        self.free: list[tuple[_Counters, int]] = []
        self.hooked = False

    def begin(self) -> None:
        """At the first sending."""
        if self.hooked:
            return
        from engine.backends.cuda import runtime

        self.hooked = True
        if collect not in runtime.memory.collectors:
            runtime.memory.collectors.append(collect)
        # after queues have sent what was put (-5) and children have been joined
        util.Finalize(None, _warn_of_receivers, exitpriority=-10)

    def send(self, root: Any, event: Any) -> _Sent:
        """A counter for a sending."""
        with self.lock:
            if not self.free:
                counters = _Counters(Named.create(8 * _SLOTS).memory())
                self.counters[counters.block.name] = counters
                self.free += [(counters, slot) for slot in reversed(range(_SLOTS))]
            counters, slot = self.free.pop()
            found = counters.sent[slot] = _Sent(root, event, counters, slot)
            counters.values[slot] = UNDER_WAY
            return found

    def collect(self) -> None:
        """Let go of what has come back."""
        with self.lock:
            for counters in self.counters.values():
                for slot in counters.returned():
                    del counters.sent[slot]
                    self.free.append((counters, slot))

    def left(self) -> list[_Sent]:
        """Return the storages that have not come back."""
        return [one for counters in self.counters.values() for one in counters.sent.values()]


_sender = _Sender()
_deferred: list[Callable[[], None]] = []  # releases that met a capture


def collect() -> None:
    """Let go of memory that receivers have released, and release what could not be while a graph was captured."""
    deferred, _deferred[:] = list(_deferred), []
    for release in deferred:
        release()
    _sender.collect()


def _warn_of_receivers() -> None:
    _sender.collect()
    left = _sender.left()
    if left:
        size = sum(one.root.nbytes for one in {id(one.root): one for one in left}.values())
        warnings.warn(
            "Producer process has been terminated before all shared CUDA tensors released: "
            f"{len(left)} that it sent ({size} bytes) are still held by other processes, or were never received; their "
            "memory is gone with this process.  Keep the sender until the receivers are done, for example by a message "
            "back or join().  See Note [Sharing CUDA tensors]",
            UserWarning,
            stacklevel=1,
        )


# --- sending


def reduce(memory: Memory) -> tuple:
    """Pickle a storage on a GPU for another process.  RuntimeError for one that came from another process."""
    from engine.backends.cuda import ipc, runtime

    collect()
    root = memory.root
    if not root.nbytes:
        return memory.__reduce__()
    ipc.refuse_forked()
    with _receiver.lock:
        if _receiver.has(root):
            raise RuntimeError(
                "Attempted to send CUDA tensor received from another process; this is not currently supported. "
                "Consider cloning before sending."
            )
    index = int(root.data.device_id)
    if not (root.flags.c_contiguous or root.flags.f_contiguous):  # as `Memory.flat`: the elements alone
        with runtime.on_device(index):
            root = root_of(memory.flat(dtypes.uint8))
    handle, offset = ipc.export(root)
    _sender.begin()
    event, marked = ipc.mark(index)
    one = _sender.send(root, event)
    try:
        block = one.counters.block.handle()
    except BaseException:
        one.counters.values[one.slot] = RELEASED
        raise
    described = handle, offset, int(root.nbytes), marked
    return _receive, ((_sender.name, os.getpid()), index, ipc.card(index), *described, block, one.slot)


# --- receiving


class _Held:
    """A storage of another process: the owner of the memory of its array here."""

    def __init__(self, opened: Any, counters: _Counters, slot: int) -> None:
        util.Finalize(self, _release, ([opened], counters, slot), exitpriority=10)


def _release(opened: list[Any], counters: _Counters, slot: int) -> None:
    from engine.backends.cuda import ipc

    try:
        if not ipc.synchronize(opened[0].index):
            _deferred.append(lambda: _release(opened, counters, slot))
            return
    except RuntimeError:  # the GPU has failed, and does nothing any more
        pass
    opened.clear()  # closed, if nothing else is in it, before its owner may free it
    counters.values[slot] = RELEASED


class _Receiver:
    """The storages of other processes that this one has."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.roots: dict[Any, weakref.ref[Any]] = {}  # by what the message says of them
        self.ids: dict[int, weakref.ref[Any]] = {}

    def find(self, key: Any) -> Any:
        """The storage of a message that is here already, or None."""
        found = self.roots.get(key)
        return None if found is None else found()

    def has(self, root: Any) -> bool:
        """Return whether an array came from another process."""
        found = self.ids.get(id(root))
        return found is not None and found() is root

    def add(self, key: Any, root: Any) -> None:
        """Know a storage as long as it lives."""
        number = id(root)

        def forget(gone: weakref.ref[Any]) -> None:
            if self.roots.get(key) is gone:
                del self.roots[key]
            if self.ids.get(number) is gone:
                del self.ids[number]

        self.roots[key] = self.ids[number] = weakref.ref(root, forget)


_receiver = _Receiver()


def _receive(
    sender: tuple[str, int],
    index: int,
    card: bytes,
    handle: bytes,
    offset: int,
    nbytes: int,
    marked: bytes | None,
    block: Any,
    slot: int,
) -> Memory:
    """The storage of a message.  RuntimeError where `cuda:index` is another card here than it is for the sender."""
    from engine.backends.cuda import ipc

    make, args = block
    if sender[0] == _sender.name:  # CUDA lets no process open its own handles
        counters = _Counters(make(*args))
        return _back(counters, slot)
    try:
        ipc.refuse_forked()
    except RuntimeError:  # also without a GPU: what cannot be received is not kept
        _Counters(make(*args)).values[slot] = RELEASED
        raise
    collect()
    try:
        counters = _Counters(make(*args))
        counters.values[slot] = os.getpid()
        ipc.check_card(index, card)
        with _receiver.lock:
            key = (sender, index, handle, offset, nbytes)
            root = _receiver.find(key)
            ipc.wait_for(marked, index)
            if root is not None:  # its own counter keeps the memory
                counters.values[slot] = RELEASED
                return Memory.of(root)
            opened = ipc.Opened.of(handle, index)
            root = ipc.array_in(opened, offset, nbytes, _Held(opened, counters, slot))
            _receiver.add(key, root)
            return Memory.of(root)
    except ipc.AnotherCard:
        counters.values[slot] = RELEASED
        raise
    except (RuntimeError, OSError) as error:
        with contextlib.suppress(NameError):
            counters.values[slot] = RELEASED
        first = str(error).partition("\n")[0]
        ended = "" if _runs(sender[1]) else " (which has ended)"
        raise RuntimeError(
            f"a CUDA tensor of process {sender[1]}{ended} cannot be opened ({first}): the process that sends one must "
            "live until its receivers are done with it, and both must see the same GPUs in the same order "
            "(CUDA_VISIBLE_DEVICES); or send tensor.cpu()"
        ) from error


def _back(counters: _Counters, slot: int) -> Memory:
    from engine.backends.cuda import runtime

    with _sender.lock:
        own = _sender.counters.get(counters.block.name)
        one = own.sent.get(slot) if own is not None else None
        if one is None:
            raise RuntimeError("a message with a CUDA tensor can be read once")
        counters.values[slot] = RELEASED
    if one.event is not None:
        with runtime.on_device(int(one.root.data.device_id)):
            runtime.library().cuda.get_current_stream().wait_event(one.event)
    return Memory.of(one.root)


# --- forks


_inherited: list[Any] = []  # kept: CUDA must not be called for them in a forked child


def _in_child() -> None:
    global _sender, _receiver
    _inherited.extend((_sender, _receiver, list(_deferred)))
    _sender, _receiver = _Sender(), _Receiver()
    _deferred.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
