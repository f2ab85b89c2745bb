"""Collectives by MPI (mpi4py): several machines, and the name "gloo" under `mpirun`.

Every function takes flat arrays of one dtype and ranks within the group, and is called by all its processes.
Dtypes that MPI lacks (float16, bfloat16) are combined as float32.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.distributed.reducing import ReduceOp, describe, differing, finish
from engine.distributed.store import DistBackendError

__all__ = ["Mpi", "installed", "under_mpirun", "world"]

_WORDS = 108  # bytes of a call's description
_RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD_RANK")


def installed() -> bool:
    """Return whether mpi4py is installed (its MPI library may still be missing)."""
    return importlib.util.find_spec("mpi4py") is not None


def under_mpirun() -> bool:
    """Return whether this process was started by mpirun or a launcher like it."""
    return any(name in os.environ for name in _RANKS)


def _mpi() -> Any:
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise RuntimeError(
            f"Distributed package doesn't have MPI built in: {error}. Install mpi4py and an MPI library (the extra "
            "`mpi` brings MPICH), and start the program with mpirun"
        ) from error
    return MPI


def world(timeout: float) -> Mpi:
    """The group of all processes that mpirun started.  RuntimeError without MPI, and where Slurm started several that
    know nothing of each other."""
    found = Mpi(_mpi().COMM_WORLD, timeout)
    started = os.environ.get("SLURM_STEP_NUM_TASKS", "1")  # only in what srun starts
    if found.size == 1 and started.isdigit() and int(started) > 1 and not under_mpirun():
        raise RuntimeError(
            f"Slurm has started {started} processes, each of which is alone by its MPI: start them with "
            "`srun --mpi=pmi2` (`srun --mpi=list` shows what there is), or with mpirun"
        )
    return found


class Mpi:
    """The transport of a communicator."""

    name = "mpi"

    def __init__(self, communicator: Any, timeout: float) -> None:
        self.mpi, self.communicator, self.timeout = _mpi(), communicator, timeout
        self.me: int = communicator.Get_rank()
        self.size: int = communicator.Get_size()
        self._here: tuple[Any, list[Any]]
        self.checks = os.environ.get("TORCH_DISTRIBUTED_DEBUG") != "OFF"
        self.threads: bool = self.mpi.Query_thread() == self.mpi.THREAD_MULTIPLE

    def sub(self, ranks: Sequence[int]) -> Mpi:
        """The group of some of the processes; called by those alone."""
        group = self.communicator.Get_group().Incl(list(ranks))
        return Mpi(self.communicator.Create_group(group), self.timeout)

    def close(self) -> None:
        """Leave the group."""
        if self.communicator is not self.mpi.COMM_WORLD:
            self.communicator.Free()

    def _wait(self, request: Any, call: str) -> None:
        deadline, pause = time.monotonic() + self.timeout, 0.0
        while not request.Test():
            if time.monotonic() > deadline:
                raise self._timed_out(call)
            time.sleep(pause)
            pause = min(pause + 1e-5, 1e-3)

    def _timed_out(self, call: str) -> DistBackendError:
        """The error for a call that does not end: all whose time is up tell the others; who is not heard is named."""
        mpi, tag = self.mpi, self.mpi.COMM_WORLD.Get_attr(self.mpi.TAG_UB)  # a tag that no message has
        silent = set(range(self.size)) - {self.me}
        self._here = np.zeros(1, np.uint8), []  # as long as this: a message to a process that has not come stays
        self._here[1].extend(self.communicator.Isend(self._here[0], rank, tag) for rank in silent)
        end = time.monotonic() + min(1.0, self.timeout / 2)
        while silent and time.monotonic() < end:
            status = mpi.Status()
            message = self.communicator.Improbe(mpi.ANY_SOURCE, tag, status)
            if message is None:
                time.sleep(1e-3)
                continue
            message.Recv(np.empty(1, np.uint8))
            silent.discard(status.Get_source())
        who = f"rank(s) {sorted(self._global(*silent))}" if silent else "not all processes"
        return DistBackendError(
            f"{call}: {who} {'did not take' if silent else 'took'} part within {self.timeout:.0f} s"
        )

    def _global(self, *ranks: int) -> list[int]:
        """The ranks among all processes of ranks of this group."""
        world = self.mpi.COMM_WORLD.Get_group()
        found: list[int] = self.communicator.Get_group().Translate_ranks(list(ranks), world)
        return list(found)

    def _agree(self, call: str) -> None:
        """DistBackendError unless all make the same call: MPI itself would give wrong numbers, or end the processes.

        It costs a message of 16 bytes; with TORCH_DISTRIBUTED_DEBUG=OFF nothing is compared.
        """
        if not self.checks:
            return
        said = call.encode()[:_WORDS]
        number = int.from_bytes(hashlib.blake2b(said, digest_size=7).digest(), "little")
        found = np.array([number, -number], np.int64)
        self._wait(self.communicator.Iallreduce(self.mpi.IN_PLACE, found, self.mpi.MAX), call.split(" ")[0])
        if found[0] == -found[1]:
            return
        everybody = np.empty((self.size, _WORDS), np.uint8)
        mine = np.frombuffer(said.ljust(_WORDS), np.uint8)
        self._wait(self.communicator.Iallgather(mine, everybody), call.split(" ")[0])
        words = [row.tobytes().rstrip() for row in everybody]
        other = next(r for r, one in enumerate(words) if one != said)
        theirs, own = self._global(other, self.me)
        raise DistBackendError(differing(theirs, words[other].decode(errors="replace"), own, call))

    def _op(self, op: ReduceOp, array: Any) -> Any:
        mpi = self.mpi
        found = {
            ReduceOp.SUM: mpi.SUM,
            ReduceOp.AVG: mpi.SUM,
            ReduceOp.PRODUCT: mpi.PROD,
            ReduceOp.MIN: mpi.MIN,
            ReduceOp.MAX: mpi.MAX,
            ReduceOp.BAND: mpi.BAND,
            ReduceOp.BOR: mpi.BOR,
            ReduceOp.BXOR: mpi.BXOR,
        }.get(op)
        if found is None or (op.name.startswith("B") and array.dtype.kind not in "biu"):
            raise RuntimeError(f"Cannot use ReduceOp.{op.name} with non-integral dtype {array.dtype}")
        if array.dtype.kind == "b":  # as numpy: + is or, * is and
            if op in (ReduceOp.SUM, ReduceOp.MAX):
                return mpi.LOR
            if op in (ReduceOp.PRODUCT, ReduceOp.MIN):
                return mpi.LAND
        return found

    def _reducible(self, array: Any) -> Any:
        """`array` in a dtype that MPI can combine."""
        if array.dtype.kind == "b":
            return array.view(np.uint8)
        return array if array.dtype.kind in "iufc" and array.dtype != np.float16 else array.astype(np.float32)

    def barrier(self) -> None:
        """Return when all have called it."""
        self._agree("barrier")
        self._wait(self.communicator.Ibarrier(), "barrier")

    def all_reduce(self, array: Any, op: ReduceOp) -> None:
        """`array` becomes the combination of all."""
        work, how = self._reducible(array), self._op(op, array)
        self._agree(describe("all_reduce", array, f" {op.name}"))
        self._wait(self.communicator.Iallreduce(self.mpi.IN_PLACE, work, how), "all_reduce")
        if work.base is not array:
            array[...] = work
        finish(op, array, self.size)

    def reduce(self, array: Any, root: int, op: ReduceOp) -> None:
        """`array` of `root` becomes the combination of all; that of the others stays."""
        work, how = self._reducible(array), self._op(op, array)
        self._agree(describe("reduce", array, f" {op.name} to {root}"))
        total = np.empty_like(work) if self.me == root else None
        self._wait(self.communicator.Ireduce(work, total, how, root), "reduce")
        if self.me == root:
            array[...] = total.view(array.dtype) if array.dtype.kind == "b" else total  # type: ignore[union-attr]
            finish(op, array, self.size)

    def broadcast(self, array: Any, root: int) -> None:
        """`array` becomes that of `root`."""
        self._agree(describe("broadcast", array, f" from {root}"))
        self._wait(self.communicator.Ibcast(array.view(np.uint8), root), "broadcast")

    def all_gather(self, outputs: Sequence[Any], array: Any) -> None:
        """`outputs[r]` becomes the array of rank r."""
        self._agree(describe("all_gather", array))
        whole = np.empty((self.size, array.nbytes), np.uint8)
        self._wait(self.communicator.Iallgather(array.view(np.uint8), whole), "all_gather")
        for output, row in zip(outputs, whole):
            output[...] = row.view(array.dtype)

    def gather(self, outputs: Sequence[Any] | None, array: Any, root: int) -> None:
        """`outputs[r]` of `root` becomes the array of rank r."""
        self._agree(describe("gather", array, f" to {root}"))
        whole = np.empty((self.size, array.nbytes), np.uint8) if self.me == root else None
        self._wait(self.communicator.Igather(array.view(np.uint8), whole, root), "gather")
        for output, row in zip(outputs or (), whole if whole is not None else ()):
            output[...] = row.view(array.dtype)

    def scatter(self, output: Any, pieces: Sequence[Any] | None, root: int) -> None:
        """`output` of rank r becomes `pieces[r]` of `root`."""
        self._agree(describe("scatter", output, f" from {root}"))
        whole = np.stack([p.view(np.uint8) for p in pieces or ()]) if self.me == root else None
        self._wait(self.communicator.Iscatter(whole, output.view(np.uint8), root), "scatter")

    def reduce_scatter(self, output: Any, pieces: Sequence[Any], op: ReduceOp) -> None:
        """`output` of rank r becomes the combination of everybody's `pieces[r]`."""
        work = self._reducible(np.concatenate(list(pieces)))
        own, how = np.empty(output.size, work.dtype), self._op(op, output)
        counts = [p.size for p in pieces]
        self._agree(f"reduce_scatter of {output.dtype} {op.name}, pieces of {counts}")
        self._wait(self.communicator.Ireduce_scatter(work, own, counts, how), "reduce_scatter")
        output[...] = own.view(output.dtype) if output.dtype.kind == "b" else own
        finish(op, output, self.size)

    def all_to_all(self, outputs: Sequence[Any], pieces: Sequence[Any]) -> None:
        """`outputs[r]` of rank q becomes `pieces[q]` of rank r."""
        self._agree(f"all_to_all of {pieces[0].dtype}")
        sent, mpi = [p.nbytes for p in pieces], self.mpi
        wanted = [o.nbytes for o in outputs]
        theirs = np.empty(self.size, np.int64)
        self._wait(self.communicator.Ialltoall(np.array(sent, np.int64), theirs), "all_to_all")
        for r, (come, expected) in enumerate(zip(theirs.tolist(), wanted)):
            if come != expected:
                raise RuntimeError(
                    f"all_to_all: rank {r} sends {come} bytes to rank {self.me}, which expects {expected}"
                )
        whole = np.concatenate([p.view(np.uint8) for p in pieces])
        found = np.empty(sum(wanted), np.uint8)
        request = self.communicator.Ialltoallv([whole, sent, mpi.BYTE], [found, wanted, mpi.BYTE])
        self._wait(request, "all_to_all")
        at = 0
        for output in outputs:
            output[...] = found[at : at + output.nbytes].view(output.dtype)
            at += output.nbytes

    def send(self, array: Any, to: int, tag: int) -> None:
        """Send `array`; returns when it may be written to again."""
        self._wait(self.communicator.Isend(array.view(np.uint8), to, tag), "send")

    def recv(self, array: Any, source: int | None, tag: int) -> int:
        """Fill `array` with what `source` (None: anyone) sent with this tag; who it was."""
        mpi, status = self.mpi, self.mpi.Status()
        origin = mpi.ANY_SOURCE if source is None else source
        deadline, pause = time.monotonic() + self.timeout, 0.0
        while (message := self.communicator.Improbe(origin, tag, status)) is None:
            if time.monotonic() > deadline:
                who = "any rank" if source is None else f"rank {source}"
                raise DistBackendError(f"recv: nothing came from {who} within {self.timeout:.0f} s")
            time.sleep(pause)
            pause = min(pause + 1e-5, 1e-3)
        length, rank = status.Get_count(mpi.BYTE), status.Get_source()
        data = np.empty(length, np.uint8)
        message.Recv(data)
        if length != array.nbytes:
            raise RuntimeError(f"recv: rank {rank} sent {length} bytes, the tensor to receive into has {array.nbytes}")
        array[...] = data.view(array.dtype)
        return int(rank)
