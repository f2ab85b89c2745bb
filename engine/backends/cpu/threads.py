"""A few threads that share the pieces of a large operation.

numpy lets the interpreter lock go inside its loops, so pieces of a large array really run at once.  What the pieces
are never depends on the number of threads: neither do results.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from engine.core.slots import Several

if TYPE_CHECKING:
    from queue import SimpleQueue

__all__ = ["get_num_threads", "run", "set_num_threads"]

_MOST = 8  # beyond, numpy's pieces wait for the interpreter lock more than they win

changed: Several[Callable[[], None]] = Several()  # called when the number of threads is another
_count: int | None = None  # None: not asked for yet
_tasks: SimpleQueue[_Task] | None = None  # from the first task on
_workers = 0
_starting = threading.Lock()


def _forked() -> None:
    """Threads do not survive a fork; they start again at need."""
    global _tasks, _workers, _starting
    _tasks, _workers, _starting = None, 0, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def get_num_threads() -> int:
    """Return the number of threads that one operation may use.

    What `set_num_threads` said last, else ENGINE_NUM_THREADS, else OMP_NUM_THREADS, else the processors this process
    may run on.
    """
    global _count
    if _count is None:
        given = _from_environment("ENGINE_NUM_THREADS")
        if given:
            set_num_threads(given)
        else:  # the libraries read OMP_NUM_THREADS themselves
            _count = _from_environment("OMP_NUM_THREADS") or _processors()
    return _count  # type: ignore[return-value]


def _from_environment(name: str) -> int:
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

    threadpoolctl.threadpool_limits(count, user_api="blas")
    for follow in changed:
        follow()


def _queue() -> SimpleQueue[Any]:
    """Return an empty queue.  The module comes with the first task, not with `import engine`."""
    from queue import SimpleQueue

    return SimpleQueue()


class _Task:
    """Pieces of work that threads take from `pieces`; what each has done is put into `done`."""

    __slots__ = ("done", "pieces", "work")

    def __init__(self, work: Callable[[Any], Any], pieces: Iterable[Any]) -> None:
        self.work = work
        self.pieces = deque(pieces)
        self.done = _queue()

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


def _serve(tasks: SimpleQueue[_Task]) -> None:
    import numpy as np

    with np.errstate(all="ignore"):  # a thread begins with numpy's own, whatever holds in that of the caller
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
    tasks = _tasks if _tasks is not None and _workers >= helpers else _start(helpers)
    task = _Task(work, pieces)
    for _ in range(helpers):
        tasks.put(task)
    task.help()
    left, failure = len(pieces), None
    while left:  # a helper that woke up too late for a piece says nothing, and nobody waits for it
        finished, error = task.done.get()
        left -= finished
        failure = failure or error
    if failure is not None:
        raise failure


def _start(helpers: int) -> SimpleQueue[_Task]:
    """Start threads until there are `helpers`; return the queue from which they take their tasks."""
    global _tasks, _workers
    with _starting:
        if _tasks is None:
            _tasks = _queue()
        while _workers < helpers:
            threading.Thread(target=_serve, args=(_tasks,), name=f"engine-{_workers}", daemon=True).start()
            _workers += 1
        return _tasks
