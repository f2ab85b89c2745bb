"""Stream sockets between every two processes of a group on one machine, and the slabs of memory that they share.

Note [Mesh]
Each process listens on a Unix socket in a folder of its own that only this user can enter, and tells the others its
path through the store; of two processes the one with the higher rank connects.  An exchange sends a header (what is
called, with which dtype and shape, and how large this process's slab is) to every other process and reads theirs: it is
a barrier, it finds calls that do not match, and it notices a process that has ended by the end of its socket, at once
and by name.  Data of more than a few kilobytes goes through slabs, unnamed blocks whose descriptor is sent with the
header of the exchange that first needs it.  There are two slabs a process, used in turn: a process that writes to one
has seen two exchanges since it was used last, so everybody has read it.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import socket
import struct
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.distributed.reducing import differing
from engine.distributed.store import DistBackendError, DistStoreError, Store
from engine.multiprocessing.blocks import Bytes, Mapping

__all__ = ["Mesh"]

_HEADER = struct.Struct("<QQI108s")  # slab's size, payload, parity, the call
CALL = 108  # bytes of the call's description


def machine() -> str:
    """Return a text that is equal for processes that can share memory: host and boot."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{socket.gethostname()} {file.read().strip()}"
    except OSError:
        return socket.gethostname()


class Mesh:
    """Sockets to the processes `ranks` (their global ranks); this one is `ranks[me]`."""

    def __init__(self, store: Store, ranks: Sequence[int], me: int, timeout: float) -> None:
        self.ranks, self.me, self.timeout = list(ranks), me, timeout
        self.peers: dict[int, socket.socket] = {}
        self._slabs: dict[tuple[int, int], Mapping] = {}  # (rank in the group, parity)
        self._fresh: set[int] = set()  # parities of this process's slabs whose descriptor has not been sent
        self._fds: dict[int, int] = {}
        self._parity = 0
        if len(self.ranks) > 1:
            self._connect(store)

    # --- coming together

    def _connect(self, store: Store) -> None:
        folder = tempfile.mkdtemp(prefix="torch_mesh_")
        if len(folder) > 80:  # the path of a Unix socket has room for 104 bytes or a few more
            os.rmdir(folder)
            folder = tempfile.mkdtemp(prefix="torch_mesh_", dir="/tmp")
        path = os.path.join(folder, "s")
        deadline = time.monotonic() + self.timeout
        try:
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(path)
                listener.listen(len(self.ranks))
                store.set(str(self.me), json.dumps([machine(), os.getpid(), path]))
                for rank in range(self.me):
                    self.peers[rank] = self._reach(store, rank, deadline)
                for _ in range(self.me + 1, len(self.ranks)):
                    listener.settimeout(max(0.01, deadline - time.monotonic()))
                    try:
                        peer = listener.accept()[0]
                    except TimeoutError:
                        missing = [self.ranks[r] for r in range(self.me + 1, len(self.ranks)) if r not in self.peers]
                        raise self._missing(missing) from None
                    peer.settimeout(self.timeout)
                    (rank,) = struct.unpack("<I", self._read(peer, 4, -1)[0])
                    self.peers[rank] = peer
        except BaseException:
            self.close()
            raise
        finally:
            with contextlib.suppress(OSError):
                os.unlink(path)
            with contextlib.suppress(OSError):
                os.rmdir(folder)

    def _missing(self, ranks: list[int]) -> DistStoreError:
        return DistStoreError(
            f"Timed out after {self.timeout:.0f} seconds waiting for clients: rank {self.ranks[self.me]} of "
            f"{len(self.ranks)} waited for rank(s) {ranks} to join"
        )

    def _reach(self, store: Store, rank: int, deadline: float) -> socket.socket:
        try:
            store.wait([str(rank)], datetime.timedelta(seconds=max(0.01, deadline - time.monotonic())))
        except RuntimeError as error:
            raise self._missing([self.ranks[rank]]) from error
        where, pid, path = json.loads(store.get(str(rank)))
        if where != machine():
            raise DistBackendError(
                f"rank {self.ranks[rank]} runs on {where.split()[0]}, this one on {socket.gethostname()}: without MPI "
                "the processes of a group share memory, on one machine. Start them with mpirun, and install mpi4py"
            )
        peer = socket.socket(socket.AF_UNIX)
        try:
            peer.settimeout(self.timeout)
            peer.connect(path)
            peer.sendall(struct.pack("<I", self.me))
        except OSError as error:
            peer.close()
            raise DistBackendError(f"rank {self.ranks[rank]} (process {pid}) has ended: {error}") from error
        return peer

    def close(self) -> None:
        """End all connections; the others see that this process has left."""
        for peer in self.peers.values():
            peer.close()
        self.peers.clear()
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()
        self._slabs.clear()

    # --- reading and writing

    def _read(self, peer: socket.socket, count: int, rank: int) -> tuple[bytes, list[int]]:
        """`count` bytes of a peer, and the descriptors that came with them."""
        data = bytearray()
        fds: list[int] = []
        while len(data) < count:
            part, ancillary, _, _ = peer.recvmsg(count - len(data), socket.CMSG_SPACE(4))
            for level, kind, value in ancillary:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    fds += struct.unpack(f"{len(value) // 4}i", value[: len(value) // 4 * 4])
            if not part:
                raise EOFError(rank)
            data += part
        return bytes(data), fds

    def lost(self, rank: int, call: str, error: BaseException) -> DistBackendError:
        """The error for a peer that did not answer."""
        who = self.ranks[rank] if 0 <= rank < len(self.ranks) else "?"
        if isinstance(error, TimeoutError):
            return DistBackendError(f"{call}: rank {who} did not take part within {self.timeout:.0f} s")
        return DistBackendError(f"{call}: rank {who} has ended; the other processes cannot go on without it")

    def exchange(self, call: str, payload: bytes = b"") -> list[bytes]:
        """Meet all others in the same `call`; their payloads (a few kilobytes at most) by rank.

        DistBackendError for a process that has ended, does not come within the timeout, or calls something else.
        """
        parity = self._parity
        own = self._slabs.get((self.me, parity))
        described = call.encode()[:CALL].ljust(CALL)
        header = _HEADER.pack(own.length if own else 0, len(payload), parity, described) + payload
        fds = [self._fds[parity]] if parity in self._fresh else []
        payloads = [b""] * len(self.ranks)
        payloads[self.me] = payload
        rank = -1
        try:
            for rank in sorted(self.peers):
                peer = self.peers[rank]
                if fds:
                    sent = socket.send_fds(peer, [header], fds)
                    peer.sendall(header[sent:])
                else:
                    peer.sendall(header)
            self._fresh.discard(parity)
            if parity in self._fds:
                os.close(self._fds.pop(parity))
            found_differing = None
            for rank in sorted(self.peers):
                peer = self.peers[rank]
                data, came = self._read(peer, _HEADER.size, rank)
                size, length, theirs, other = _HEADER.unpack(data)
                for fd in came:
                    try:
                        self._slabs[rank, theirs] = Mapping(fd, size)
                    finally:
                        os.close(fd)
                payloads[rank] = self._read(peer, length, rank)[0]
                if other != described and found_differing is None:
                    found_differing = rank, other.decode(errors="replace").rstrip()
        except (OSError, EOFError) as error:
            raise self.lost(rank, call.split(" ")[0], error) from error
        if found_differing is not None:
            own_call = described.decode(errors="replace").rstrip()
            raise DistBackendError(
                differing(self.ranks[found_differing[0]], found_differing[1], self.ranks[self.me], own_call)
            )
        return payloads

    # --- slabs

    def own(self, nbytes: int) -> Any:
        """This process's slab of the next exchanges, as `nbytes` bytes to write to."""
        self._parity ^= 1
        key = self.me, self._parity
        if key not in self._slabs or self._slabs[key].length < nbytes:
            length = max(1 << 16, 1 << (nbytes - 1).bit_length())
            fd = os.memfd_create("torch_mesh", os.MFD_CLOEXEC)
            try:
                os.posix_fallocate(fd, 0, length)
                self._slabs[key] = Mapping(fd, length)
            except BaseException:
                os.close(fd)
                raise
            self._fds[self._parity] = fd
            self._fresh.add(self._parity)
        return self.slab(self.me, nbytes)

    def slab(self, rank: int, nbytes: int) -> Any:
        """The first `nbytes` bytes of a process's current slab; valid until the second `own` from now."""
        mapping = self._slabs[rank, self._parity]
        return np.asarray(Bytes(mapping.address, min(nbytes, mapping.length), mapping))
