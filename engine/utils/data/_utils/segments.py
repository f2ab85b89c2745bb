"""The transport of a worker's batches to the loader: in segments of memory that both map and that are used again.

Note [Segments]
A message is pickled with its arrays left out (pickle protocol 5's out-of-band buffers).  The worker copies those into a
segment, an unnamed block of memory, and sends the rest, a few hundred bytes, through a pipe.  The loader's tensors lie
in the segment itself: from data set to training step a batch is copied once.  When the last array over a batch has died
its segment is free again, and the next job tells the worker so; a loop that keeps two batches alive needs
`prefetch_factor` + 2 segments a worker, whatever the length of the epoch.  A segment's descriptor crosses once, as
ancillary data of the pipe, and is closed on both sides as soon as it is mapped.  What waits in the pipe outlives its
worker.  Where there are no unnamed blocks, or no room for one, everything goes through the pipe.
"""

from __future__ import annotations

import contextlib
import copyreg
import io
import os
import pickle
import socket
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from engine.core import dtypes
from engine.core.storage import Memory
from engine.multiprocessing.blocks import Bytes, Mapping

__all__ = ["Receiver", "Sender"]

SMALL = 4096  # bytes; smaller arrays are pickled with the rest
_LINE = 64  # bytes; where the arrays of a batch begin


def _memory(data: Any) -> Memory:
    array = np.asarray(data)
    return Memory.of(
        array if array.dtype == np.uint8 and array.flags.writeable else np.frombuffer(data, np.uint8).copy()
    )


def _reduce_memory(memory: Memory) -> Any:
    if isinstance(memory.root, np.ndarray) and memory.nbytes >= SMALL:
        return _memory, (pickle.PickleBuffer(memory.flat(dtypes.uint8)),)
    return memory.__reduce__()


def _pickled(message: Any, out_of_band: Callable[[pickle.PickleBuffer], bool] | None) -> bytes:
    stream = io.BytesIO()
    pickler = pickle.Pickler(stream, 5, buffer_callback=out_of_band)
    pickler.dispatch_table = copyreg.dispatch_table.copy()
    if out_of_band is not None:
        pickler.dispatch_table[Memory] = _reduce_memory
    pickler.dump(message)
    return stream.getvalue()


class Sender:
    """A worker's end: packs messages into its segments."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.segments: dict[int, Mapping] = {}
        self.free: set[int] = set()
        self.last = 0
        self.able = hasattr(os, "memfd_create") and hasattr(socket, "send_fds")

    def freed(self, numbers: list[int]) -> None:
        """The loader no longer looks at these segments."""
        self.free.update(numbers)

    def send(self, message: Any) -> None:
        """Send `message`.  An error of pickling is raised before anything is sent."""
        buffers: list[np.ndarray[Any, Any]] = []

        def out_of_band(buffer: pickle.PickleBuffer) -> bool:
            data = np.frombuffer(buffer.raw(), np.uint8)
            if data.size < SMALL:
                return True
            buffers.append(data)
            return False

        packed = _pickled(message, out_of_band if self.able else None)
        where: tuple[int, int, list[tuple[int, int]]] | None = None
        if buffers:
            places, need = [], 0
            for data in buffers:
                places.append((need, data.size))
                need += -(-data.size // _LINE) * _LINE
            try:
                number, mapping = self._segment(need)
            except OSError:  # no room, or no descriptor
                packed = _pickled(message, None)
            else:
                whole = np.asarray(Bytes(mapping.address, mapping.length, mapping))
                for (offset, size), data in zip(places, buffers):
                    whole[offset : offset + size] = data
                where = number, mapping.length, places
        self.connection.send_bytes(pickle.dumps((where, packed), pickle.HIGHEST_PROTOCOL))

    def _segment(self, need: int) -> tuple[int, Mapping]:
        """A free segment of at least `need` bytes, a new one if there is none."""
        fitting = [number for number in self.free if self.segments[number].length >= need]
        if fitting:
            number = min(fitting, key=lambda n: self.segments[n].length)
            self.free.discard(number)
            return number, self.segments[number]
        for number in self.free:  # too small: batches have grown
            del self.segments[number]
        self.free.clear()
        length = -(-(need + need // 8) // 4096) * 4096  # the next batch may be a little larger
        fd = os.memfd_create("torch_batches", os.MFD_CLOEXEC)
        try:
            os.posix_fallocate(fd, 0, length)  # a full machine is an error now, not a SIGBUS later
            mapping = Mapping(fd, length)
            with socket.fromfd(self.connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as pipe:
                self.last += 1
                self.connection.send_bytes(pickle.dumps((self.last, length, list(self.segments))))
                socket.send_fds(pipe, [b"."], [fd])
        finally:
            os.close(fd)
        self.segments[self.last] = mapping
        return self.last, mapping


class _Lease:
    """The lease on a segment that the arrays of one batch share: when the last of them dies, the segment is free."""

    def __init__(self, number: int, freed: deque[int]) -> None:
        self.number, self.freed = number, freed

    def __del__(self) -> None:
        self.freed.append(self.number)


class Receiver:
    """The loader's end of one worker."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.segments: dict[int, Mapping] = {}
        self._freed: deque[int] = deque()  # appended to by whatever thread collects a batch

    def freed(self) -> list[int]:
        """The segments that became free since the last call, for `Sender.freed`."""
        found = []
        with contextlib.suppress(IndexError):
            while True:
                found.append(self._freed.popleft())
        return found

    def receive(self) -> Any:
        """The next message.  EOFError when the worker has ended."""
        while True:
            got = pickle.loads(self.connection.recv_bytes())
            if len(got) == 3:
                self._map(*got)
                continue
            where, packed = got
            if where is None:
                return pickle.loads(packed)
            number, _, places = where
            mapping, lease = self.segments[number], _Lease(number, self._freed)
            return pickle.loads(
                packed, buffers=[np.asarray(Bytes(mapping.address + at, n, mapping, lease)) for at, n in places]
            )

    def _map(self, number: int, length: int, others: list[int]) -> None:
        """A new segment comes; of the old ones only `others` are left."""
        with socket.fromfd(self.connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as pipe:
            _, fds, _, _ = socket.recv_fds(pipe, 1, 1)
        if not fds:
            raise EOFError
        try:
            mapping = Mapping(fds[0], length)
        finally:
            os.close(fds[0])
        self.segments = {n: self.segments[n] for n in others}
        self.segments[number] = mapping
