"""A few threads that share the pieces of a large operation.

numpy lets the interpreter lock go inside its loops, so pieces of a large array really run at once.  What the pieces
are never depends on the number of threads: neither do results.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from typing import Any

__all__ = ["get_num_threads", "run", "set_num_threads"]

_MOST = 8  # beyond, numpy's pieces wait for the interpreter lock more than they win

_count: int | None = None  # None: not asked for yet
_tasks: SimpleQueue[_Task] = SimpleQueue()
_workers = 0
_starting = threading.Lock()


def _forked() -> None:
    """Threads do not survive a fork; they start again at need."""
    global _tasks, _workers, _starting
    _tasks, _workers, _starting = SimpleQueue(), 0, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def get_num_threads() -> int:
    """How many threads one operation may use.

    What `set_num_threads` said last, else ENGINE_NUM_THREADS, else OMP_NUM_THREADS, else the processors this process
    may run on.
    """
    global _count
    if _count is None:
        given = _asked("ENGINE_NUM_THREADS")
        if given:
            set_num_threads(given)
        else:  # the libraries read OMP_NUM_THREADS themselves
            _count = _asked("OMP_NUM_THREADS") or _processors()
    return _count  # type: ignore[return-value]


def _asked(name: str) -> int:
    """A number of threads from the environment; 0 for none.  OMP's may be a list, one a level."""
    given = os.environ.get(name, "").split(",")[0].strip()
    return int(given) if given.isdigit() else 0


def _processors() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def set_num_threads(count: int) -> None:
    """Let one operation use `count` threads: here, in BLAS and in oneDNN."""
    global _count
    _count = count
    import threadpoolctl

    from engine.backends import routes
    from engine.backends.onednn import library

    threadpoolctl.threadpool_limits(count, user_api="blas")
    library.threads_changed()
    routes.threads_changed()


class _Task:
    """Pieces of work that threads take from `pieces`; what each has done is put into `done`."""

    __slots__ = ("done", "pieces", "work")

    def __init__(self, work: Callable[[Any], Any], pieces: Iterable[Any]) -> None:
        self.work = work
        self.pieces = deque(pieces)
        self.done: SimpleQueue[Any] = SimpleQueue()

    def help(self) -> None:
        """Take pieces until none is left."""
        finished, failure = 0, None
        while True:
            try:
                piece = self.pieces.popleft()
            except IndexError:
                break
            finished += 1
            if failure is None:
                try:
                    self.work(piece)
                except BaseException as error:
                    failure = error  # the pieces that are left are only counted
        if finished:
            self.done.put((finished, failure))


def _serve() -> None:
    tasks = _tasks
    while True:
        tasks.get().help()


def run(work: Callable[[Any], Any], pieces: list[Any]) -> None:
    """`work(piece)` for every piece, in any order, on up to `get_num_threads()` threads; the caller's is one of them.

    A piece must not depend on another.  The first error of a piece is raised when no thread works any more.
    """
    helpers = min(get_num_threads(), _MOST, len(pieces)) - 1
    if helpers < 1:
        for piece in pieces:
            work(piece)
        return
    if _workers < helpers:
        _start(helpers)
    task = _Task(work, pieces)
    for _ in range(helpers):
        _tasks.put(task)
    task.help()
    left, failure = len(pieces), None
    while left:  # a helper that woke up too late for a piece says nothing, and nobody waits for it
        finished, error = task.done.get()
        left -= finished
        failure = failure or error
    if failure is not None:
        raise failure


def _start(helpers: int) -> None:
    global _workers
    with _starting:
        while _workers < helpers:
            threading.Thread(target=_serve, name=f"engine-{_workers}", daemon=True).start()
            _workers += 1
