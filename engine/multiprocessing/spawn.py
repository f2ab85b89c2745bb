"""Processes that run one function: `spawn`, `start_processes`, and the errors of those that fail.

https://docs.pytorch.org/docs/2.13/multiprocessing.html#spawning-subprocesses
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from multiprocessing import connection
from typing import Any

__all__ = [
    "ProcessContext",
    "ProcessException",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SpawnContext",
    "spawn",
    "start_processes",
]

_PR_SET_PDEATHSIG = 1  # of Linux' prctl: the signal that a process gets when its parent ends


class ProcessException(Exception):
    """A child failed: `error_index` says which, `error_pid` its process id, `msg` the whole message."""

    def __init__(self, msg: str, error_index: int, error_pid: int | None) -> None:
        super().__init__(msg)
        self.msg, self.error_index, self.error_pid = msg, error_index, error_pid

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.msg, self.error_index, self.error_pid)


class ProcessRaisedException(ProcessException):
    """A child raised an exception; the message has its traceback."""


class ProcessExitedException(ProcessException):
    """A child ended with `exit_code`; where a signal ended it that is negative, and `signal_name` its name."""

    def __init__(
        self, msg: str, error_index: int, error_pid: int | None, exit_code: int, signal_name: str | None = None
    ) -> None:
        super().__init__(msg, error_index, error_pid)
        self.exit_code, self.signal_name = exit_code, signal_name

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.msg, self.error_index, self.error_pid, self.exit_code, self.signal_name)


def _end_with_parent() -> None:
    """Let Linux interrupt this process when the one that started it ends, so that no orphan computes on."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT)


def _run(fn: Callable[..., Any], index: int, args: tuple[Any, ...], errors: connection.Connection) -> None:
    _end_with_parent()
    try:
        fn(index, *args)
    except KeyboardInterrupt:
        pass
    except Exception:
        with contextlib.suppress(OSError):  # the parent no longer listens
            errors.send(traceback.format_exc())
        sys.exit(1)


class ProcessContext:
    """The running children of `start_processes(join=False)`: `processes`, `pids()` and `join()`."""

    def __init__(self, processes: list[Any], errors: list[connection.Connection]) -> None:
        self.processes = processes
        self.sentinels = {process.sentinel: index for index, process in enumerate(processes)}
        self._errors = errors
        self._tracebacks: dict[int, str] = {}

    def pids(self) -> list[int]:
        """Return the children's process ids."""
        return [int(process.pid) for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait for the next child to end, at most `timeout` seconds, and return whether all have ended without error.

        Once a child failed the others have `grace_period` seconds to end by themselves, then they are terminated, and
        after as long again (30 s if not given) killed.  Raises ProcessRaisedException with the traceback of the child
        that raised, ProcessExitedException for one that ended by a signal or with another status than 0.
        """
        end = None if timeout is None else time.monotonic() + timeout
        ended: list[int] = []
        while self.sentinels and not ended:
            left = None if end is None else max(0.0, end - time.monotonic())
            ended = self._wait(left)
            if left == 0.0:
                break
        failed = next((i for i in ended if self.processes[i].exitcode != 0), None)
        if failed is None:
            return not self.sentinels
        self._end_others(grace_period)
        raise self._error(failed)

    def _wait(self, timeout: float | None) -> list[int]:
        """The indices of the children that have ended since.  Tracebacks are read at once: a pipe holds few bytes."""
        readers = {e: i for i, e in enumerate(self._errors) if not e.closed}
        ended = []
        for ready in connection.wait([*self.sentinels, *readers], timeout):
            if ready in readers:
                self._read(readers[ready])
            else:
                index = self.sentinels.pop(ready)
                self.processes[index].join()  # the sentinel may come before the exit code
                ended.append(index)
        return ended

    def _read(self, index: int) -> None:
        errors = self._errors[index]
        with contextlib.suppress(EOFError, OSError):
            self._tracebacks[index] = errors.recv()
        errors.close()

    def _end_others(self, grace_period: float | None) -> None:
        if grace_period is not None:
            self._join_all(grace_period)
        for process in self.processes:
            if process.is_alive():
                process.terminate()
        self._join_all(30.0 if grace_period is None else grace_period)
        for process in self.processes:
            if process.is_alive():
                process.kill()
            process.join()

    def _join_all(self, timeout: float) -> None:
        end = time.monotonic() + timeout
        for process in self.processes:
            process.join(max(0.0, end - time.monotonic()))

    def _error(self, index: int) -> ProcessException:
        process, errors = self.processes[index], self._errors[index]
        if not errors.closed and errors.poll():
            self._read(index)
        if index in self._tracebacks:
            text = f"\n\n-- Process {index} terminated with the following error:\n{self._tracebacks[index]}"
            return ProcessRaisedException(text, index, process.pid)
        code, name = process.exitcode, None
        how = f"exit code {code}"
        if code < 0:
            try:
                name = signal.Signals(-code).name
            except ValueError:
                name = f"<Unknown signal {-code}>"
            how = f"signal {name}"
        return ProcessExitedException(f"process {index} terminated with {how}", index, process.pid, code, name)


class SpawnContext(ProcessContext):
    """The name of ProcessContext in torch 1.0 to 1.3."""

    def __init__(self, processes: list[Any], errors: list[connection.Connection]) -> None:
        warnings.warn("SpawnContext is renamed to ProcessContext since 1.4 release.", stacklevel=2)
        super().__init__(processes, errors)


def start_processes(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Run `fn(i, *args)` in `nprocs` processes, `i` from 0 on; an error in one ends all and is raised here.

    With `join=False` return the ProcessContext at once.  `fn` is a function of a module, so that it can be pickled, and
    `start_method` one of "spawn", "fork" and "forkserver".
    """
    start = multiprocessing.get_context(start_method)
    processes, readers = [], []
    for index in range(nprocs):
        reader, writer = start.Pipe(duplex=False)
        process = start.Process(target=_run, args=(fn, index, args, writer), daemon=daemon)  # type: ignore[attr-defined]
        process.start()
        writer.close()  # the child's end is the only one left: its end is seen here
        processes.append(process)
        readers.append(reader)
    running = ProcessContext(processes, readers)
    if not join:
        return running
    while not running.join():
        pass
    return None


def spawn(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """`start_processes` with spawned processes; any other `start_method` is a FutureWarning and not used."""
    if start_method != "spawn":
        warnings.warn(
            f"This method only supports start_method=spawn (got: {start_method}).\nTo use a different start_method "
            "use:\n\t\t torch.multiprocessing.start_processes(...)",
            FutureWarning,
            stacklevel=2,
        )
    return start_processes(fn, args, nprocs, join, daemon, start_method="spawn")
