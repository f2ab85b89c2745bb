"""Process groups: who takes part, by which transport, and the work that is under way.

https://docs.pytorch.org/docs/2.13/distributed.html#groups

"gloo" and "mpi" are served by MPI where mpirun started the process, "gloo" otherwise by memory that the processes of
one machine share (Note [Mesh]); both carry tensors of the CPU.  "nccl" carries those of GPUs and needs CuPy's NCCL;
"cpu:gloo,cuda:nccl" is both.  Work of one group is done in the order of the
calls: asynchronous work by a thread of the group, other work by the caller once that thread has nothing left to do.
"""

from __future__ import annotations

import datetime
import os
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from engine.distributed import mpi, nccl
from engine.distributed.rendezvous import rendezvous
from engine.distributed.shared_memory import Runner, SharedMemory
from engine.distributed.store import DistBackendError, PrefixStore, Store, seconds

__all__ = [
    "Backend",
    "GroupMember",
    "ProcessGroup",
    "Work",
    "default",
    "default_pg_timeout",
    "destroy_process_group",
    "get_backend",
    "get_global_rank",
    "get_group_rank",
    "get_process_group_ranks",
    "get_rank",
    "get_world_size",
    "group",
    "init_process_group",
    "is_available",
    "is_backend_available",
    "is_gloo_available",
    "is_initialized",
    "is_mpi_available",
    "is_nccl_available",
    "new_group",
]

default_pg_timeout = datetime.timedelta(minutes=30)


class Backend(str):
    """The name of a transport.  ValueError for an unknown one."""

    UNDEFINED, GLOO, NCCL, MPI, UCC, XCCL = "undefined", "gloo", "nccl", "mpi", "ucc", "xccl"
    backend_list = (UNDEFINED, GLOO, NCCL, XCCL, UCC, MPI)
    default_device_backend_map = {"cpu": "gloo", "cuda": "nccl"}

    def __new__(cls, name: str) -> Backend:
        if not isinstance(name, str):
            raise ValueError("Backend constructor parameter must be string-ish")
        return super().__new__(cls, name.lower())


class Work:
    """A call under way: what `async_op=True` gives."""

    def __init__(self) -> None:
        self._done = threading.Event()
        self._error: BaseException | None = None
        self._result: Any = None
        self._source = -1
        self._join: Callable[[], None] | None = None  # lets the current stream of a GPU wait

    def _finish(self, error: BaseException | None) -> None:
        self._error = error
        self._done.set()

    def is_completed(self) -> bool:
        """Return whether it has ended, well or not."""
        return self._done.is_set()

    def is_success(self) -> bool:
        """Return whether it has ended well.  RuntimeError before its end."""
        if not self._done.is_set():
            raise RuntimeError("the work has not ended: wait() for it")
        return self._error is None

    def exception(self) -> BaseException | None:
        """The error that ended it."""
        return self._error

    def wait(self, timeout: datetime.timedelta | None = None) -> bool:
        """Block until it has ended; True.  Its error is raised here; RuntimeError after `timeout`."""
        if not self._done.wait(None if timeout is None else seconds(timeout)):
            raise DistBackendError("the work did not end within the timeout that wait() was given")
        if self._error is not None:
            raise self._error
        if self._join is not None:
            self._join()
        return True

    synchronize = wait

    def result(self) -> Any:
        """The tensors it fills."""
        self.wait()
        return self._result

    def source_rank(self) -> int:
        """Who sent what a `recv` received."""
        self.wait()
        return self._source


class ProcessGroup:
    """Some of the processes.  `rank()` and `size()` are this process's number in it and how many there are."""

    def __init__(self, transport: Any, ranks: Sequence[int], name: str, backend: str, of_gpus: Any = None) -> None:
        self.of_gpus = of_gpus  # a transport for tensors on GPUs, beside or instead of the other
        self.transport, self.ranks, self.group_name, self.backend = transport, list(ranks), name, backend
        self._runner: Runner | None = None
        self._under_way = 0
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)

    def over(self, device: str) -> Any:
        """The transport for tensors of a kind of device.  RuntimeError where the group has none."""
        found = self.of_gpus if device == "cuda" else None if self.transport is self.of_gpus else self.transport
        if found is None:
            raise RuntimeError(
                f"No backend type associated with device type {device}: the group's backend is {self.backend}, "
                + ("gloo and mpi carry tensors of the CPU" if device == "cuda" else "nccl carries tensors of GPUs")
            )
        return found

    def rank(self) -> int:
        """This process's number in the group."""
        return int(self.transport.me)

    def size(self) -> int:
        """The number of processes."""
        return len(self.ranks)

    def name(self) -> str:
        """The backend."""
        return self.backend

    def __repr__(self) -> str:
        return f"<ProcessGroup {self.group_name} ({self.backend}) rank {self.rank()} of {self.size()}>"

    def queue(self, arrays: Sequence[Any], do: Callable[[], Any], asynchronous: bool, result: Any) -> Work | None:
        """Let the GPUs do `do()` after the calls before it; a Work's `wait` lets the current stream wait."""
        work = Work()
        work._result = result
        work._join = self.of_gpus.enqueue(arrays, do)
        work._finish(None)
        if asynchronous:
            return work
        work.wait()
        return None

    def run(self, do: Callable[[], Any], asynchronous: bool, result: Any = None) -> Work | None:
        """Do `do()`, whose result is a source rank or None, after the calls before it."""
        work = Work()
        work._result = result

        def act() -> None:
            error = None
            try:
                source = do()
                work._source = -1 if source is None else source
            except BaseException as caught:  # raised where somebody waits
                error = caught
            with self._idle:
                self._under_way -= 1
                self._idle.notify_all()
            work._finish(error)

        with self._idle:
            if not asynchronous or getattr(self.transport, "threads", True) is False:
                while self._under_way:
                    self._idle.wait()
            self._under_way += 1
        if asynchronous and getattr(self.transport, "threads", True):
            if self._runner is None:
                self._runner = Runner(f"group {self.group_name}")
            self._runner.submit(act)
            return work
        act()
        if asynchronous:
            return work
        work.wait()
        return None

    def close(self) -> None:
        """Leave the group, once nothing is under way."""
        with self._idle:
            while self._under_way:
                self._idle.wait()
        if self._runner is not None:
            self._runner.end()
        self.transport.close()
        if self.of_gpus is not None and self.of_gpus is not self.transport:
            self.of_gpus.close()


class GroupMember:
    """`GroupMember.WORLD` is the group of all processes; NON_GROUP_MEMBER what others than its members get."""

    WORLD: ProcessGroup | None = None
    NON_GROUP_MEMBER = -100


class _Group(type):
    @property
    def WORLD(cls) -> ProcessGroup | None:
        """All processes."""
        return GroupMember.WORLD


class group(metaclass=_Group):
    """`group.WORLD`: all processes."""


class _State:
    """The state that `init_process_group` sets up."""

    def __init__(self) -> None:
        self.store: Store | None = None
        self.close_store: Callable[[], Any] = int
        self.timeout = default_pg_timeout
        self.groups: list[ProcessGroup] = []
        self.count = 0


_state = _State()


def is_available() -> bool:
    """Return whether processes can communicate here: by shared memory on Linux, by MPI where mpi4py is installed."""
    return is_gloo_available()


def is_mpi_available() -> bool:
    """Return whether mpi4py is installed."""
    return mpi.installed()


def is_gloo_available() -> bool:
    """Return whether there is something to serve the name with."""
    return hasattr(os, "memfd_create") or mpi.installed()


def is_nccl_available() -> bool:
    """Return whether there is a GPU, and CuPy with the NCCL library."""
    return nccl.available()


def is_backend_available(backend: str) -> bool:
    """Return whether `init_process_group(backend)` can work."""
    name = backend.lower()
    return {"gloo": is_gloo_available, "mpi": is_mpi_available, "nccl": is_nccl_available}.get(name, lambda: False)()


def is_initialized() -> bool:
    """Return whether `init_process_group` has been called."""
    return GroupMember.WORLD is not None


def default() -> ProcessGroup:
    """The group of all processes.  ValueError before `init_process_group`."""
    if GroupMember.WORLD is None:
        raise ValueError("Default process group has not been initialized, please make sure to call init_process_group.")
    return GroupMember.WORLD


def member(group: Any) -> ProcessGroup | None:
    """The group that an argument names; None (and a warning) where this process is not in it."""
    if group is None:
        return default()
    if group is GroupMember.NON_GROUP_MEMBER:
        warnings.warn(
            f"Running a collective on global rank {get_rank()} which does not belong to the given group.", stacklevel=4
        )
        return None
    if not isinstance(group, ProcessGroup):
        raise ValueError(
            f"Process group {group} is not initialized in the world group map. Please initialize the group first: "
            "new_group() makes one"
        )
    if group is not GroupMember.WORLD and group not in _state.groups:
        raise ValueError("Invalid process group specified")
    return group


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: datetime.timedelta | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: Store | None = None,
    group_name: str = "",
    pg_options: Any = None,
    device_id: Any = None,
) -> None:
    """Join the other processes; all call it, and it returns when all have.

    Args:
        backend: "gloo" (the default), "mpi", "nccl", "cpu:gloo,cuda:nccl".
        init_method: "env://" (the default: MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE), "tcp://host:port" or
            "file:///path" with `rank` and `world_size`.  Under mpirun the ranks are MPI's.
        timeout: How long any call waits for the others.
        world_size: The number of processes, where init_method does not say it.
        rank: The number of this process, from 0.
        store: A store instead of init_method.
        group_name: Accepted.
        pg_options: Accepted.
        device_id: The GPU of this process.

    Raises:
        ValueError: arguments exclude each other, or the call is a second one.
        TypeError: timeout is no timedelta.
        AssertionError: the backend is unknown, as in torch.
        RuntimeError: the backend is not there.
        DistBackendError: a process does not come.
    """
    if GroupMember.WORLD is not None:
        raise ValueError("trying to initialize the default process group twice!")
    if store is not None and init_method is not None:
        raise ValueError("Cannot specify both init_method and store.")
    if timeout is not None and not isinstance(timeout, datetime.timedelta):
        raise TypeError(f"Expected timeout argument to be of type datetime.timedelta, got {timeout}")
    name = Backend(backend or "gloo")
    with_gpus = name == "nccl"
    if ":" in name:  # "cpu:gloo,cuda:nccl"
        parts = dict(part.split(":", 1) for part in name.split(","))
        name, with_gpus = Backend(parts.get("cpu", "undefined")), parts.get("cuda") == "nccl"
    if name not in ("gloo", "mpi", "nccl"):
        raise AssertionError(f"Unknown backend type {backend}: gloo, mpi and nccl can be had")
    if with_gpus and not is_nccl_available():
        raise RuntimeError(
            "Distributed package doesn't have NCCL built in: it needs a GPU, CuPy and its NCCL library (pip install "
            "nvidia-nccl-cu13); the gloo and the mpi backend serve the CPU"
        )
    limit = seconds(timeout, default_pg_timeout)
    transport: Any
    if with_gpus and name != "gloo" and (name == "mpi" or mpi.under_mpirun()) and "MASTER_ADDR" not in os.environ:
        raise ValueError("nccl needs a store to meet: set MASTER_ADDR and MASTER_PORT, or give init_method")
    if name == "mpi" or (
        mpi.under_mpirun() and name == "gloo" and not with_gpus and init_method is None and store is None and rank < 0
    ):
        transport = mpi.world(limit)
        if world_size not in (-1, transport.size) or rank not in (-1, transport.me):
            raise ValueError(
                f"For MPI backend, world_size ({world_size}) and rank ({rank}) are assigned by the MPI runtime: "
                f"{transport.size} and {transport.me}."
            )
    else:
        if name == "gloo" and not is_gloo_available():
            raise RuntimeError("Distributed package doesn't have Gloo built in: it needs Linux, or mpi4py")
        close_store: Callable[[], Any] = int  # a store that was given is its owner's
        if store is None:
            found = rendezvous(init_method or "env://", rank, world_size, timeout=timeout or default_pg_timeout)
            store, rank, world_size = next(found)
            close_store = getattr(store, "close", int)
        if world_size < 1 or not 0 <= rank < world_size:
            raise ValueError(f"rank {rank} and world_size {world_size}: expected 0 <= rank < world_size")
        store.set_timeout(datetime.timedelta(seconds=limit))
        try:
            transport = _transport(name, store, "default", range(world_size), rank, limit)
        except BaseException:
            close_store()
            raise
        _state.close_store = close_store
    _state.store, _state.timeout, _state.count = store, timeout or default_pg_timeout, 0
    of_gpus = _of_gpus(transport, with_gpus, store, "default", range(transport.size), transport.me, limit)
    shown = Backend(backend or name) if with_gpus else name
    GroupMember.WORLD = ProcessGroup(transport, range(transport.size), group_name or "default", shown, of_gpus)
    GroupMember.WORLD.run(transport.barrier, False)


def _transport(name: str, store: Store, group: str, ranks: Sequence[int], me: int, limit: float) -> Any:
    kind = nccl.Nccl if name == "nccl" else SharedMemory
    return kind(PrefixStore(group, store), ranks, me, limit)


def _of_gpus(
    transport: Any, wanted: bool, store: Store | None, group: str, ranks: Sequence[int], me: int, limit: float
) -> Any:
    """The transport for tensors on GPUs, which may be the only one."""
    if not wanted:
        return None
    if isinstance(transport, nccl.Nccl):
        return transport
    assert store is not None
    return nccl.Nccl(PrefixStore(f"{group}/gpus", store), ranks, me, limit)


def new_group(
    ranks: Sequence[int] | None = None,
    timeout: datetime.timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: Any = None,
) -> Any:
    """A group of some processes; all of the default group call it, with the same ranks.

    Others than its members get `GroupMember.NON_GROUP_MEMBER`.
    """
    everybody = default()
    chosen = sorted(range(everybody.size()) if ranks is None else ranks)
    last = everybody.size() - 1
    for rank in chosen:
        if not 0 <= rank <= last:
            raise ValueError(f"Rank {rank} is out of range. Valid ranks are 0 to {last} (world_size={last + 1})")
    if len(set(chosen)) != len(chosen):
        raise ValueError(f"ranks {list(ranks or ())}: expected different ones between 0 and {last}")
    _state.count += 1
    name = str(_state.count)
    if everybody.rank() not in chosen:
        return GroupMember.NON_GROUP_MEMBER
    transport: Any
    if isinstance(everybody.transport, mpi.Mpi):
        transport = everybody.transport.sub(chosen)
    else:
        assert _state.store is not None
        limit = seconds(timeout, _state.timeout)
        place = chosen.index(everybody.rank())
        kind = "nccl" if (backend or everybody.backend) == "nccl" else "gloo"
        if kind == "nccl" and not is_nccl_available():
            raise RuntimeError("Distributed package doesn't have NCCL built in")
        transport = _transport(kind, _state.store, f"group{name}", chosen, place, limit)
    gpus = (everybody.of_gpus is not None and backend is None) or "nccl" in (backend or "")
    of_gpus = _of_gpus(
        transport, gpus, _state.store, f"group{name}", chosen, transport.me, seconds(timeout, _state.timeout)
    )
    made = ProcessGroup(transport, chosen, group_desc or name, Backend(backend or everybody.backend), of_gpus)
    _state.groups.append(made)
    return made


def destroy_process_group(group: Any = None) -> None:
    """Leave a group, or with None all of them; `init_process_group` may be called again then."""
    if GroupMember.WORLD is None:
        raise AssertionError("Process group cannot be None: init_process_group() has not been called")
    found = member(group)
    if found is None:
        return
    if found is not GroupMember.WORLD:
        found.close()
        _state.groups.remove(found)
        return
    for one in _state.groups:
        one.close()
    found.close()
    _state.close_store()
    GroupMember.WORLD = None
    _state.groups, _state.store, _state.close_store = [], None, int


def get_rank(group: Any = None) -> int:
    """This process's number in the group, -1 outside it.  ValueError before `init_process_group`."""
    if group is GroupMember.NON_GROUP_MEMBER:
        return -1
    return (group or default()).rank()


def get_world_size(group: Any = None) -> int:
    """Return the number of processes of the group, -1 outside it.  ValueError before `init_process_group`."""
    if group is GroupMember.NON_GROUP_MEMBER:
        return -1
    return (group or default()).size()


def get_backend(group: Any = None) -> Backend:
    """The name of a group's backend."""
    found = member(group)
    return Backend(found.backend if found else "undefined")


def get_default_backend_for_device(device: Any) -> str:
    """The backend of a kind of device where none is named: gloo of the CPU, nccl of CUDA.  ValueError of others."""
    kind = device if isinstance(device, str) else device.type
    found = {"cpu": "gloo", "cuda": "nccl"}.get(kind.partition(":")[0])
    if found is None:
        raise ValueError(f"Default backend not registered for device : {device}")
    return found


def get_process_group_ranks(group: Any = None) -> list[int]:
    """The global ranks of a group."""
    found = member(group)
    return list(found.ranks) if found else []


def get_global_rank(group: ProcessGroup, group_rank: int) -> int:
    """The global rank of a group's member.  ValueError if there is none."""
    if not 0 <= group_rank < group.size():
        raise ValueError(f"Group rank {group_rank} is not part of group {group}")
    return group.ranks[group_rank]


def get_group_rank(group: ProcessGroup, global_rank: int) -> int:
    """The number in a group of a process.  ValueError if it is not in it."""
    if global_rank not in group.ranks:
        raise ValueError(f"Global rank {global_rank} is not part of group {group}")
    return group.ranks.index(global_rank)
