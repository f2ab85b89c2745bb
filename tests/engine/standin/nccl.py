"""The stand-in's `cupy.cuda.nccl`: CuPy 14.2's names and parameters over host memory, ranks in processes.

What NCCL does on a stream is done at once, and accounted for on that stream, so that a missing wait is found.  Ranks
meet in a folder whose path is in the unique id.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
import threading
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from engine.distributed.file_store import FileStore
from engine.distributed.reducing import ReduceOp
from engine.distributed.shared_memory import SharedMemory
from engine.distributed.store import DistBackendError
from tests.engine.standin import machine

available = True
(
    NCCL_INT8,
    NCCL_UINT8,
    NCCL_INT32,
    NCCL_UINT32,
    NCCL_INT64,
    NCCL_UINT64,
    NCCL_FLOAT16,
    NCCL_FLOAT32,
    NCCL_FLOAT64,
    NCCL_BFLOAT16,
) = range(10)
NCCL_SUM, NCCL_PROD, NCCL_MAX, NCCL_MIN, NCCL_AVG = range(5)
_TYPES = [
    np.int8,
    np.uint8,
    np.int32,
    np.uint32,
    np.int64,
    np.uint64,
    np.float16,
    np.float32,
    np.float64,
    ml_dtypes.bfloat16,
]
_OPS = [ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MAX, ReduceOp.MIN, ReduceOp.AVG]
calls: list[str] = []


class NcclError(RuntimeError):
    """What CuPy raises for a failed call."""


_grouped: list[Callable[[], None]] | None = None


def get_version() -> int:
    return 22707


def get_unique_id() -> bytes:
    return tempfile.mkdtemp(prefix="nccl_", dir=os.environ.get("STANDIN_NCCL_FOLDER")).encode().ljust(128, b"\0")


def groupStart() -> None:
    global _grouped
    _grouped = []


def groupEnd() -> None:
    global _grouped
    todo, _grouped = _grouped or [], None
    threads = [threading.Thread(target=one) for one in todo]  # sends and receives of a group go on together
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class NcclCommunicator:
    """A rank of a group."""

    def __init__(self, ndev: int, commId: bytes, rank: int, config: Any = None) -> None:
        if not isinstance(commId, bytes) or len(commId) != 128:
            raise TypeError("commId: 128 bytes were expected")
        if not 0 <= rank < ndev:
            raise NcclError("NCCL_ERROR_INVALID_ARGUMENT: invalid argument")
        store = FileStore(commId.rstrip(b"\0").decode() + "/store", ndev)
        self._group = SharedMemory(store, range(ndev), rank, float(os.environ.get("STANDIN_NCCL_PATIENCE", "60")))
        self._aborted = threading.Event()
        self._device = machine.here.device

    def size(self) -> int:
        return self._group.size

    def rank_id(self) -> int:
        return self._group.me

    def device_id(self) -> int:
        return self._device

    def check_async_error(self) -> None:
        pass

    def abort(self) -> None:
        self._aborted.set()
        self._group.close()

    destroy = abort

    def _run(self, name: str, reads: list[Any], writes: list[Any], stream: int, do: Callable[[], None]) -> None:
        if machine.here.device != self._device:
            raise NcclError("NCCL_ERROR_INVALID_USAGE: the communicator is of another device")
        if machine.current_stream().ptr != stream:
            raise NcclError("the stand-in accounts for the current stream alone")
        calls.append(name)
        machine.launch([_chunk(a) for a in reads], [_chunk(a) for a in writes])
        on = machine.current_stream()

        def attempt() -> None:
            try:
                do()
            except DistBackendError as error:  # NCCL's kernel would wait for the other; until somebody aborts it
                if "same calls" in str(error):
                    raise
                on.hangs = self._aborted

        if _grouped is None:
            attempt()
        else:
            _grouped.append(attempt)

    def allReduce(self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, stream: int) -> None:
        source, target = _at(sendbuf, count, datatype), _at(recvbuf, count, datatype)

        def do() -> None:
            work = source.copy()
            self._group.all_reduce(work, _OPS[op])
            target[...] = work

        self._run("allReduce", [source], [target], stream, do)

    def reduce(self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, root: int, stream: int) -> None:
        source, target = _at(sendbuf, count, datatype), _at(recvbuf, count, datatype)

        def do() -> None:
            work = source.copy()
            self._group.reduce(work, root, _OPS[op])
            if self._group.me == root:
                target[...] = work

        self._run("reduce", [source], [target], stream, do)

    def broadcast(self, sendbuff: int, recvbuff: int, count: int, datatype: int, root: int, stream: int) -> None:
        source, target = _at(sendbuff, count, datatype), _at(recvbuff, count, datatype)

        def do() -> None:
            work = source.copy()
            self._group.broadcast(work, root)
            target[...] = work

        self._run("broadcast", [source], [target], stream, do)

    def allGather(self, sendbuf: int, recvbuf: int, count: int, datatype: int, stream: int) -> None:
        source, target = _at(sendbuf, count, datatype), _at(recvbuf, count * self.size(), datatype)
        rows = list(target.reshape(self.size(), -1))
        self._run("allGather", [source], [target], stream, lambda: self._group.all_gather(rows, source.copy()))

    def reduceScatter(self, sendbuf: int, recvbuf: int, recvcount: int, datatype: int, op: int, stream: int) -> None:
        source, target = _at(sendbuf, recvcount * self.size(), datatype), _at(recvbuf, recvcount, datatype)
        pieces = list(source.reshape(self.size(), -1))
        self._run(
            "reduceScatter",
            [source],
            [target],
            stream,
            lambda: self._group.reduce_scatter(target, [p.copy() for p in pieces], _OPS[op]),
        )

    def send(self, sendbuf: int, count: int, datatype: int, peer: int, stream: int) -> None:
        source = _at(sendbuf, count, datatype)
        self._run("send", [source], [], stream, lambda: self._group.send(source.copy(), peer, 0))

    def recv(self, recvbuf: int, count: int, datatype: int, peer: int, stream: int) -> None:
        target = _at(recvbuf, count, datatype)

        def do() -> None:
            work = np.empty_like(target)
            self._group.recv(work, peer, 0)
            target[...] = work

        self._run("recv", [], [target], stream, do)


def _at(pointer: int, count: int, datatype: int) -> np.ndarray:
    kind = np.dtype(_TYPES[datatype])
    nbytes = count * kind.itemsize
    if not nbytes:
        return np.empty(0, kind)
    raw = np.frombuffer((ctypes.c_uint8 * nbytes).from_address(pointer), np.uint8)
    return raw.view(kind)


def _chunk(array: np.ndarray) -> machine.Chunk:
    """The device memory in which an array lies, whole; an error where it does not."""
    if not array.size:
        return machine.Chunk(machine.here.device, 0)
    low = array.ctypes.data
    for memory in list(machine.Machine.memories):
        if memory.ptr <= low and low + array.nbytes <= memory.ptr + memory.size:
            if memory.device_id != machine.here.device:
                raise NcclError("NCCL_ERROR_INVALID_ARGUMENT: memory of another device")
            return memory.chunk
    raise NcclError("NCCL_ERROR_INVALID_ARGUMENT: no device memory is there")
