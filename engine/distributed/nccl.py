"""Collectives of GPUs by NCCL, through CuPy's `cupy.cuda.nccl`.

Every function takes flat arrays on a GPU and ranks within the group, and is called by all its processes.

The calls of a group are queued on a stream of its own, after the work that the current stream has then; `enqueue`
gives what makes the current stream wait for them.  So an asynchronous sum runs beside the backward pass, and the host
waits for nothing but the others' start and barriers: those go by the group's store, which says who has not come.
"""

from __future__ import annotations

import contextlib
import datetime
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from engine.backends.cuda import runtime
from engine.core import dtypes
from engine.distributed.reducing import ReduceOp, describe
from engine.distributed.store import DistBackendError, Store
from engine.distributed.watchdog import Watch

__all__ = ["Nccl", "available"]

_TYPES = {
    "int8": "INT8",
    "uint8": "UINT8",
    "bool": "UINT8",
    "int32": "INT32",
    "int64": "INT64",
    "float16": "FLOAT16",
    "bfloat16": "BFLOAT16",
    "float32": "FLOAT32",
    "float64": "FLOAT64",
    "complex64": "FLOAT32",
    "complex128": "FLOAT64",
}
_OPS = {
    ReduceOp.SUM: "SUM",
    ReduceOp.AVG: "AVG",
    ReduceOp.PRODUCT: "PROD",
    ReduceOp.MIN: "MIN",
    ReduceOp.MAX: "MAX",
}
_OF_FLAGS = {ReduceOp.SUM: "MAX", ReduceOp.MAX: "MAX", ReduceOp.PRODUCT: "MIN", ReduceOp.MIN: "MIN"}


def available() -> bool:
    """Return whether there is a GPU, CuPy, and the NCCL library that its wheel asks for."""
    if not runtime.device_count():
        return False
    try:
        return bool(runtime.library().cuda.nccl.available)
    except RuntimeError:
        return False


class Nccl:
    """The transport of a group of processes with a GPU each."""

    name = "nccl"
    threads = False

    def __init__(self, store: Store, ranks: Sequence[int], me: int, timeout: float) -> None:
        self.store, self.ranks, self.me, self.size, self.timeout = store, list(ranks), me, len(ranks), timeout
        self._nccl = runtime.library().cuda.nccl
        self._communicator: Any = None
        self._stream: Any = None
        self._device = -1
        self._met = 0
        self._watch: Watch | None = None
        self._what = "a call"  # the one that is being queued

    def close(self) -> None:
        """Leave the group."""
        try:
            self.check("destroy_process_group")
        finally:
            if self._watch is not None:
                self._watch.end()
            if self._communicator is not None:
                with runtime.on_device(self._device):
                    self._communicator.destroy()
                self._communicator = None

    # --- who is there

    def _meet(self, what: str) -> None:
        """Wait for all others by the store.  DistBackendError that names who has not come within the timeout."""
        self._met += 1
        keys = [f"{self._met}/{rank}" for rank in range(self.size)]
        self.store.set(keys[self.me], what)
        try:
            self.store.wait(keys, datetime.timedelta(seconds=self.timeout))
        except RuntimeError as error:
            missing = [self.ranks[r] for r, key in enumerate(keys) if not self.store.check([key])]
            raise DistBackendError(
                f"{what}: rank(s) {missing} did not take part within {self.timeout:.0f} s"
            ) from error

    def _on(self, index: int) -> Any:
        """The communicator, made at the first use, with the GPU of the first array."""
        if self._communicator is None:
            self._meet("the first NCCL call")
            if self.me == 0:
                self.store.set("id", bytes(self._nccl.get_unique_id()))
            key = self.store.get("id")
            cuda = runtime.library().cuda
            with runtime.on_device(index):
                self._communicator = self._nccl.NcclCommunicator(self.size, key, self.me)
                self._stream = cuda.Stream(non_blocking=True)
            self._device = index
            self._watch = Watch(self.store, self.ranks, self.me, self.timeout, self._abort, self._broken)
        elif index != self._device:
            raise RuntimeError(
                f"the group uses cuda:{self._device} in this process, the tensor is on cuda:{index}: one GPU a process "
                "and group; torch.cuda.set_device(local_rank) before the first call"
            )
        return self._communicator

    def _abort(self) -> None:
        """End what is queued; its numbers are lost."""
        communicator, self._communicator = self._communicator, None
        if communicator is not None:
            communicator.abort()

    def _broken(self) -> None:
        communicator = self._communicator
        if communicator is not None:
            communicator.check_async_error()

    def _failed(self) -> None:
        """Raise what the watch has found."""
        if self._watch is not None and self._watch.error is not None:
            raise self._watch.error

    def enqueue(self, arrays: Sequence[Any], do: Callable[[], None]) -> Callable[[], None]:
        """Queue the calls of NCCL in `do()`, on `arrays`; calling the result makes the current stream wait for it."""
        self._failed()
        index = arrays[0].data.device_id if arrays else max(self._device, 0)
        self._on(index)
        cuda = runtime.library().cuda
        with runtime.on_device(index):
            ready = cuda.get_current_stream().record(cuda.Event(disable_timing=True))
            self._stream.wait_event(ready)
            with runtime.on_stream(self._stream):
                do()
                end = self._stream.record(cuda.Event(disable_timing=True))
            for array in arrays:
                runtime.record_stream(array, self._stream)
            if not self._stream.is_capturing() and self._watch is not None:
                self._watch.note(self._what, end)

        def join() -> None:
            with runtime.on_device(index):
                cuda.get_current_stream().wait_event(end)

        return join

    def check(self, what: str) -> None:
        """Wait on the host until all that is queued is done.  DistBackendError if it does not end: Note [Watching]."""
        self._failed()
        if self._communicator is None:
            return
        with self._waiting():
            pause = 1e-5
            while not self._stream.done:
                self._failed()
                time.sleep(pause)
                pause = min(pause * 2, 1e-3)
            self._failed()  # an aborted stream is done, too

    @contextlib.contextmanager
    def _waiting(self) -> Iterator[None]:
        """The host waits in a call that raises what the watch finds."""
        if self._watch is not None:
            self._watch.waiting = True
        try:
            yield
        finally:
            if self._watch is not None:
                self._watch.waiting = False

    def barrier(self) -> None:
        """Return when all have called it and what was queued is done."""
        with self._waiting():
            self._meet("barrier")
        self.check("barrier")

    # --- calls

    def _type(self, array: Any) -> tuple[int, int]:
        """NCCL's number of an array's type, and how many elements of it there are."""
        name = _TYPES.get(array.dtype.name)
        if name is None:
            raise TypeError(
                "Input tensor data type is not supported for NCCL process group: "
                f"{dtypes.scalar_name(dtypes.from_numpy(array.dtype))}"
            )
        return getattr(self._nccl, "NCCL_" + name), array.size * (2 if array.dtype.kind == "c" else 1)

    def _op(self, op: ReduceOp, array: Any) -> int:
        kind = array.dtype.kind
        name = (_OF_FLAGS if kind == "b" else _OPS).get(op)
        if name is None or (kind == "c" and name not in ("SUM", "AVG")):
            raise ValueError(f"Cannot use ReduceOp.{op.name} with NCCL and tensors of {array.dtype}")
        if name == "AVG" and kind in "iu":
            raise ValueError(f"Cannot use ReduceOp.AVG with NCCL and tensors of {array.dtype}: sum and divide")
        return int(getattr(self._nccl, "NCCL_" + name))

    def _bytes(self, array: Any) -> tuple[int, int, int]:
        return array.data.ptr, array.nbytes, self._nccl.NCCL_UINT8

    def all_reduce(self, array: Any, op: ReduceOp) -> None:
        """`array` becomes the combination of all."""
        self._what = describe("all_reduce", array)
        kind, count = self._type(array)
        number, at = self._op(op, array), array.data.ptr
        self._communicator.allReduce(at, at, count, kind, number, self._stream.ptr)

    def reduce(self, array: Any, root: int, op: ReduceOp) -> None:
        """`array` of `root` becomes the combination of all; that of the others stays."""
        self._what = describe("reduce", array)
        kind, count = self._type(array)
        number, at = self._op(op, array), array.data.ptr
        self._communicator.reduce(at, at, count, kind, number, root, self._stream.ptr)

    def broadcast(self, array: Any, root: int) -> None:
        """`array` becomes that of `root`."""
        self._what = describe("broadcast", array)
        at, count, kind = self._bytes(array)
        self._communicator.broadcast(at, at, count, kind, root, self._stream.ptr)

    def all_gather(self, outputs: Sequence[Any], array: Any) -> None:
        """`outputs[r]` becomes the array of rank r."""
        self._what = describe("all_gather", array)
        whole = runtime.library().empty((self.size, *array.shape), array.dtype)
        at, count, kind = self._bytes(array)
        self._communicator.allGather(at, whole.data.ptr, count, kind, self._stream.ptr)
        for output, row in zip(outputs, whole):
            output[...] = row

    def reduce_scatter(self, output: Any, pieces: Sequence[Any], op: ReduceOp) -> None:
        """`output` of rank r becomes the combination of everybody's `pieces[r]`, which are of one size."""
        self._what = describe("reduce_scatter", output)
        if any(p.size != output.size for p in pieces):
            raise RuntimeError(f"reduce_scatter: all inputs must have the output's {output.size} elements with NCCL")
        kind, count = self._type(output)
        whole, number = runtime.library().concatenate(list(pieces)), self._op(op, output)
        self._communicator.reduceScatter(whole.data.ptr, output.data.ptr, count, kind, number, self._stream.ptr)

    @contextlib.contextmanager
    def grouped(self) -> Iterator[None]:
        """Sends and receives of this context go on together."""
        self._nccl.groupStart()
        try:
            yield
        finally:
            self._nccl.groupEnd()

    def _send(self, array: Any, to: int) -> None:
        self._communicator.send(*self._bytes(array), to, self._stream.ptr)

    def _recv(self, array: Any, source: int) -> None:
        self._communicator.recv(*self._bytes(array), source, self._stream.ptr)

    def gather(self, outputs: Sequence[Any] | None, array: Any, root: int) -> None:
        """`outputs[r]` of `root` becomes the array of rank r."""
        self._what = describe("gather", array)
        with self.grouped():
            for r, output in enumerate(outputs or ()):
                if r != root:
                    self._recv(output, r)
            if self.me != root:
                self._send(array, root)
        if outputs is not None:
            outputs[root][...] = array

    def scatter(self, output: Any, pieces: Sequence[Any] | None, root: int) -> None:
        """`output` of rank r becomes `pieces[r]` of `root`."""
        self._what = describe("scatter", output)
        with self.grouped():
            for r, piece in enumerate(pieces or ()):
                if r != root:
                    self._send(piece, r)
            if self.me != root:
                self._recv(output, root)
        if pieces is not None:
            output[...] = pieces[root]

    def all_to_all(self, outputs: Sequence[Any], pieces: Sequence[Any]) -> None:
        """`outputs[r]` of rank q becomes `pieces[q]` of rank r."""
        self._what = f"all_to_all of {len(pieces)} pieces"
        with self.grouped():
            for r in range(self.size):
                if r != self.me:
                    self._send(pieces[r], r)
                    self._recv(outputs[r], r)
        outputs[self.me][...] = pieces[self.me]

    def send(self, array: Any, to: int, tag: int) -> None:
        """Send `array`; NCCL has no tags: messages between two processes come in the order they were sent."""
        self._what = describe("send", array)
        self._send(array, to)

    def recv(self, array: Any, source: int | None, tag: int) -> int:
        """Fill `array` with what `source` sent."""
        self._what = describe("recv", array)
        if source is None:
            raise ValueError("NCCL cannot receive from any rank: name the source")
        self._recv(array, source)
        return source
