"""Collectives of processes on one machine, through memory that they share: what the name "gloo" stands for here.

Every function takes flat arrays of one dtype and ranks within the group, and is called by all its processes.
"""

from __future__ import annotations

import contextlib
import itertools
import queue
import socket
import struct
import threading
import time
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.distributed.mesh import Mesh
from engine.distributed.reducing import ReduceOp, combine, describe, finish
from engine.distributed.store import DistBackendError, PrefixStore, Store

__all__ = ["SharedMemory"]

SMALL = 4096  # bytes that go with the header
CHUNK = 8 << 20  # bytes of each process that are in its slab at a time


def _flat_bytes(array: Any) -> Any:
    return array.view(np.uint8)


class SharedMemory:
    """The transport of a group of processes on one machine."""

    name = "gloo"

    def __init__(self, store: Store, ranks: Sequence[int], me: int, timeout: float) -> None:
        self.mesh = Mesh(PrefixStore("mesh", store), ranks, me, timeout)
        self.ranks, self.me, self.size, self.timeout = list(ranks), me, len(ranks), timeout
        self._post = _Post(Mesh(PrefixStore("post", store), ranks, me, timeout))

    def close(self) -> None:
        """Leave the group."""
        self.mesh.close()
        self._post.close()

    # --- everybody's values

    def _chunks(self, array: Any) -> Any:
        step = max(1, CHUNK // array.itemsize)
        for start in range(0, max(array.size, 1), step):
            yield array[start : start + step]

    def barrier(self) -> None:
        """Return when all have called it."""
        self.mesh.exchange("barrier")

    def all_reduce(self, array: Any, op: ReduceOp) -> None:
        """`array` becomes the combination of all."""
        call = describe("all_reduce", array, f" {op.name}")
        if array.nbytes <= SMALL:
            found = self.mesh.exchange(call, array.tobytes())
            combine(op, [np.frombuffer(p, array.dtype) for p in found], array)
        else:
            for part in self._chunks(array):
                edges = [part.size * r // self.size for r in range(self.size + 1)]
                pieces = [part[low:high] for low, high in itertools.pairwise(edges)]
                mine, others = slice(*edges[self.me : self.me + 2]), [r for r in range(self.size) if r != self.me]
                own = self.mesh.own(part.nbytes).view(part.dtype)
                for r in others:  # nobody else needs this process's own piece
                    own[edges[r] : edges[r + 1]] = pieces[r]
                self.mesh.exchange(call)
                slabs = [self._slab(r, part) for r in range(self.size)]
                found = [pieces[r] if r == self.me else slab[mine] for r, slab in enumerate(slabs)]
                combine(op, found, pieces[self.me])
                own[mine] = pieces[self.me]
                self.mesh.exchange("all_reduce")
                for r in others:
                    pieces[r][...] = slabs[r][edges[r] : edges[r + 1]]
        finish(op, array, self.size)

    def _share(self, array: Any, call: str) -> None:
        """Put `array` into this process's slab and meet the others."""
        self.mesh.own(array.nbytes)[...] = _flat_bytes(array)
        self.mesh.exchange(call)

    def _slab(self, rank: int, like: Any) -> Any:
        return self.mesh.slab(rank, like.nbytes).view(like.dtype)

    def reduce(self, array: Any, root: int, op: ReduceOp) -> None:
        """`array` of `root` becomes the combination of all; that of the others stays."""
        call = describe("reduce", array, f" {op.name} to {root}")
        for part in self._chunks(array):
            self._share(part, call)
            if self.me == root:
                combine(op, [self._slab(r, part) for r in range(self.size)], part)
        if self.me == root:
            finish(op, array, self.size)

    def broadcast(self, array: Any, root: int) -> None:
        """`array` becomes that of `root`."""
        call = describe("broadcast", array, f" from {root}")
        for part in self._chunks(array):
            if self.me == root:
                self._share(part, call)
            else:
                self.mesh.own(0)
                self.mesh.exchange(call)
                part[...] = self._slab(root, part)

    def all_gather(self, outputs: Sequence[Any], array: Any) -> None:
        """`outputs[r]` becomes the array of rank r."""
        call = describe("all_gather", array)
        step = max(1, CHUNK // array.itemsize)
        for start, part in enumerate(self._chunks(array)):
            self._share(part, call)
            for r, output in enumerate(outputs):
                output[start * step : start * step + part.size] = self._slab(r, part)

    def gather(self, outputs: Sequence[Any] | None, array: Any, root: int) -> None:
        """`outputs[r]` of `root` becomes the array of rank r."""
        call = describe("gather", array, f" to {root}")
        step = max(1, CHUNK // array.itemsize)
        for start, part in enumerate(self._chunks(array)):
            self._share(part, call)
            for r, output in enumerate(outputs or ()):
                output[start * step : start * step + part.size] = self._slab(r, part)

    # --- everybody's pieces

    def _share_pieces(self, pieces: Sequence[Any], call: str) -> list[list[int]]:
        """Put pieces one after the other into this process's slab; the sizes of everybody's, in bytes."""
        sizes = [p.nbytes for p in pieces]
        slab = self.mesh.own(sum(sizes))
        at = 0
        for piece in pieces:
            slab[at : at + piece.nbytes] = _flat_bytes(piece)
            at += piece.nbytes
        found = self.mesh.exchange(call, struct.pack(f"<{len(sizes)}Q", *sizes))
        return [list(struct.unpack(f"<{len(f) // 8}Q", f)) for f in found]

    def _piece(self, rank: int, sizes: Sequence[int], index: int, dtype: Any) -> Any:
        start = sum(sizes[:index])
        return self.mesh.slab(rank, start + sizes[index])[start:].view(dtype)

    def scatter(self, output: Any, pieces: Sequence[Any] | None, root: int) -> None:
        """`output` of rank r becomes `pieces[r]` of `root`."""
        sizes = self._share_pieces(pieces or (), describe("scatter", output, f" from {root}"))[root]
        output[...] = self._piece(root, sizes, self.me, output.dtype)

    def reduce_scatter(self, output: Any, pieces: Sequence[Any], op: ReduceOp) -> None:
        """`output` of rank r becomes the combination of everybody's `pieces[r]`."""
        sizes = self._share_pieces(pieces, f"reduce_scatter of {output.dtype} {op.name}")
        for r, found in enumerate(sizes):
            if found[self.me] != output.nbytes:
                raise RuntimeError(
                    f"reduce_scatter: rank {self.ranks[r]} gives {found[self.me]} bytes, rank {self.ranks[self.me]} "
                    f"expects {output.nbytes}"
                )
        combine(op, [self._piece(r, sizes[r], self.me, output.dtype) for r in range(self.size)], output)
        finish(op, output, self.size)

    def all_to_all(self, outputs: Sequence[Any], pieces: Sequence[Any]) -> None:
        """`outputs[r]` of rank q becomes `pieces[q]` of rank r."""
        sizes = self._share_pieces(pieces, f"all_to_all of {pieces[0].dtype}")
        for r, output in enumerate(outputs):
            if sizes[r][self.me] != output.nbytes:
                raise RuntimeError(
                    f"all_to_all: rank {self.ranks[r]} sends {sizes[r][self.me]} bytes to rank {self.ranks[self.me]}, "
                    f"which expects {output.nbytes}"
                )
            output[...] = self._piece(r, sizes[r], self.me, output.dtype)

    # --- from one to one

    def send(self, array: Any, to: int, tag: int) -> None:
        """Send `array`; returns when it is under way."""
        self._post.send(array, to, tag)

    def recv(self, array: Any, source: int | None, tag: int) -> int:
        """Fill `array` with what `source` (None: anyone) sent with this tag; who it was."""
        rank, data = self._post.receive(source, tag)
        if len(data) != array.nbytes:
            raise RuntimeError(
                f"recv: rank {self.ranks[rank]} sent {len(data)} bytes, the tensor to receive into has {array.nbytes}"
            )
        array[...] = np.frombuffer(data, array.dtype)
        return rank


_LETTER = struct.Struct("<qQ")


class _Post:
    """Tagged messages between any two processes of a mesh.

    A thread reads whatever comes, so that two processes may send to each other at once; a thread a peer writes.
    """

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self._come: dict[tuple[int, int], deque[bytes]] = defaultdict(deque)
        self._gone: set[int] = set()
        self._changed = threading.Condition()
        self._closed = False
        for rank, peer in mesh.peers.items():
            peer.settimeout(None)
            threading.Thread(target=self._listen, args=(rank, peer), daemon=True, name=f"from rank {rank}").start()
        self._locks = {rank: threading.Lock() for rank in mesh.peers}

    def close(self) -> None:
        self._closed = True
        for peer in self.mesh.peers.values():
            with contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads
        self.mesh.close()

    def _listen(self, rank: int, peer: socket.socket) -> None:
        try:
            while True:
                tag, length = _LETTER.unpack(self.mesh._read(peer, _LETTER.size, rank)[0])
                data = bytearray(length)
                view = memoryview(data)
                while view:
                    count = peer.recv_into(view)
                    if not count:
                        raise EOFError
                    view = view[count:]
                with self._changed:
                    self._come[rank, tag].append(data)  # type: ignore[arg-type]
                    self._changed.notify_all()
        except (OSError, EOFError):
            with self._changed:
                self._gone.add(rank)
                self._changed.notify_all()

    def send(self, array: Any, to: int, tag: int) -> None:
        if to == self.mesh.me:
            with self._changed:
                self._come[to, tag].append(array.tobytes())
                self._changed.notify_all()
            return
        try:
            with self._locks[to]:
                self.mesh.peers[to].sendall(_LETTER.pack(tag, array.nbytes))
                self.mesh.peers[to].sendall(_flat_bytes(array))
        except OSError as error:
            raise self.mesh.lost(to, "send", error) from error

    def receive(self, source: int | None, tag: int) -> tuple[int, bytes]:
        deadline = time.monotonic() + self.mesh.timeout
        everybody = range(len(self.mesh.ranks))
        with self._changed:
            while True:
                for rank in everybody if source is None else (source,):
                    if self._come[rank, tag]:
                        return rank, self._come[rank, tag].popleft()
                others = set(self.mesh.peers)
                if source in self._gone or (source is None and others and self._gone == others):
                    raise self.mesh.lost(source if source is not None else min(others), "recv", EOFError())
                left = deadline - time.monotonic()
                if not self._changed.wait(max(0.0, left)) and left <= 0:
                    who = "any rank" if source is None else f"rank {self.mesh.ranks[source]}"
                    raise DistBackendError(f"recv: nothing came from {who} within {self.mesh.timeout:.0f} s")


class Runner:
    """A thread that does one thing after the other."""

    def __init__(self, name: str) -> None:
        self._todo: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True, name=name).start()

    def _run(self) -> None:
        while (work := self._todo.get()) is not None:
            work()

    def submit(self, work: Any) -> None:
        """Do `work()` after what was submitted before."""
        self._todo.put(work)

    def end(self) -> None:
        """End the thread after what was submitted."""
        self._todo.put(None)
