"""The standard library's `multiprocessing` with torch.multiprocessing's additions.

CPU tensors reach other processes through memory that both share (Note [Shared storages] in reductions.py), those of a
GPU by CUDA's handles (Note [Sharing CUDA tensors] in cuda.py).
Spawned children see the torch names if this process does (`engine.torch_alias`).
"""

from __future__ import annotations

import multiprocessing as _standard
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
from engine.multiprocessing.spawn import (
    ProcessContext,
    ProcessException,
    ProcessExitedException,
    ProcessRaisedException,
    SpawnContext,
    spawn,
    start_processes,
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


init_reductions()
