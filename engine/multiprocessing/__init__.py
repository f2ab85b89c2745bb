"""The standard library's `multiprocessing` with torch.multiprocessing's additions.

CPU tensors reach other processes through memory that both share (Note [Shared storages] in reductions.py), those of a
GPU by CUDA's handles (Note [Sharing CUDA tensors] in cuda.py).
Spawned children see the torch names if this process does (`engine.torch_alias`).
"""

from __future__ import annotations

import multiprocessing as _standard
from collections.abc import Callable
from multiprocessing import (
    Array,
    AuthenticationError,
    Barrier,
    BoundedSemaphore,
    BufferTooShort,
    Condition,
    Event,
    JoinableQueue,
    Lock,
    Manager,
    Pipe,
    Pool,
    Process,
    ProcessError,
    Queue,
    RawArray,
    RawValue,
    RLock,
    Semaphore,
    SimpleQueue,
    TimeoutError,
    Value,
    active_children,
    allow_connection_pickling,
    cpu_count,
    current_process,
    freeze_support,
    get_all_start_methods,
    get_context,
    get_logger,
    get_start_method,
    log_to_stderr,
    parent_process,
    set_executable,
    set_forkserver_preload,
    set_start_method,
)
from multiprocessing import reducer as reducer
from typing import TYPE_CHECKING, Any

from engine.multiprocessing.reductions import (
    get_all_sharing_strategies,
    get_sharing_strategy,
    init_reductions,
    set_sharing_strategy,
)

__all__ = [
    "Array", "AuthenticationError", "Barrier", "BoundedSemaphore", "BufferTooShort", "Condition", "Event",
    "JoinableQueue", "Lock", "Manager", "Pipe", "Pool", "Process", "ProcessContext", "ProcessError",
    "ProcessException", "ProcessExitedException", "ProcessRaisedException", "Queue", "RLock", "RawArray", "RawValue",
    "Semaphore", "SimpleQueue", "SpawnContext", "TimeoutError", "Value", "active_children",
    "allow_connection_pickling", "cpu_count", "current_process", "freeze_support", "get_all_sharing_strategies",
    "get_all_start_methods", "get_context", "get_logger", "get_sharing_strategy", "get_start_method",
    "init_reductions", "log_to_stderr", "parent_process", "set_executable", "set_forkserver_preload",
    "set_sharing_strategy", "set_start_method", "spawn", "start_processes",
]  # fmt: skip

if TYPE_CHECKING:
    from multiprocessing import connection as connection
    from multiprocessing import context as context
    from multiprocessing import managers as managers
    from multiprocessing import pool as pool
    from multiprocessing import process as process
    from multiprocessing import queues as queues
    from multiprocessing import reduction as reduction
    from multiprocessing import synchronize as synchronize
    from multiprocessing import util as util
else:

    def __getattr__(name: str) -> Any:
        if name in (
            "pool",
            "queues",
            "connection",
            "managers",
            "synchronize",
            "context",
            "process",
            "util",
            "reduction",
        ):
            import importlib

            return importlib.import_module(f"multiprocessing.{name}")
        return getattr(_standard, name)


class ProcessException(Exception):
    """A child failed: `error_index` says which, `error_pid` its process."""

    def __init__(self, msg: str, error_index: int, pid: int | None) -> None:
        super().__init__(msg)
        self.msg, self.error_index, self.error_pid = msg, error_index, pid


class ProcessRaisedException(ProcessException):
    """A child raised an exception; the message has its traceback."""


class ProcessExitedException(ProcessException):
    """A child ended with `exit_code`, or by a signal."""

    def __init__(self, msg: str, error_index: int, error_pid: int | None, exit_code: int) -> None:
        super().__init__(msg, error_index, error_pid)
        self.exit_code = exit_code


def _run(fn: Callable, index: int, args: tuple, errors: Any) -> None:
    try:
        fn(index, *args)
    except KeyboardInterrupt:
        pass
    except Exception:
        import sys
        import traceback

        errors.put(traceback.format_exc())
        sys.exit(1)


class ProcessContext:
    """The running children of `spawn(join=False)`."""

    def __init__(self, processes: list, error_queues: list) -> None:
        self.processes, self.error_queues = processes, error_queues

    def pids(self) -> list[int]:
        """The children's process ids."""
        return [int(process.pid) for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait until all have ended (True), or one failed: the others are ended and its exception raised."""
        from multiprocessing import connection

        alive = {process.sentinel: process for process in self.processes if process.is_alive()}
        for sentinel in connection.wait(list(alive), timeout) if alive else []:
            alive.pop(sentinel).join()  # the sentinel may come before the exit code
        failed = next((i for i, p in enumerate(self.processes) if p.exitcode not in (None, 0)), None)
        if failed is None:
            return not alive
        for process in self.processes:
            if process.is_alive():
                process.terminate()
            process.join(grace_period)
        process, errors = self.processes[failed], self.error_queues[failed]
        if errors.empty():
            raise ProcessExitedException(
                f"process {failed} terminated with exit code {process.exitcode}",
                failed,
                process.pid,
                process.exitcode,
            )
        raise ProcessRaisedException(
            f"\n\n-- Process {failed} terminated with the following error:\n{errors.get()}",
            failed,
            process.pid,
        )


class SpawnContext(ProcessContext):
    """torch 1.0's name of ProcessContext."""


def start_processes(
    fn: Callable,
    args: tuple = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Run `fn(i, *args)` in `nprocs` processes; the context without `join`.  An error in one ends all."""
    context = _standard.get_context(start_method)
    processes, queues = [], []
    for i in range(nprocs):
        errors = context.SimpleQueue()
        process = context.Process(target=_run, args=(fn, i, args, errors), daemon=daemon)
        process.start()
        processes.append(process)
        queues.append(errors)
    running = ProcessContext(processes, queues)
    if not join:
        return running
    while not running.join():
        pass
    return None


def spawn(
    fn: Callable,
    args: tuple = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """`start_processes` with spawned processes."""
    return start_processes(fn, args, nprocs, join, daemon, start_method)


init_reductions()
