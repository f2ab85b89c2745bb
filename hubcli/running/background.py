"""Threads and processes that repository code leaves running: the command that ran it ends all the same.

Python waits at its end for threads that are no daemons (also threads of executors and timers) and for processes of
multiprocessing.  A program that calls `hubcli.load` goes on as it always did; a command has nothing more to do.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, NoReturn

from hubcli.base import output
from hubcli.cache import weights
from hubcli.net.http import secret_scope
from hubcli.running import stray_files

GRACE = 2.0  # seconds for what is about to end
CLEANING = 30.0  # for what is done at exit, once the threads have ended
_SHOWN = 3
_before: set[threading.Thread] = set()
_noted = False


def note() -> None:
    """Remember the threads there are before repository code runs for the first time in this process."""
    global _noted
    if not _noted:
        _noted = True
        _before.update(threading.enumerate())


@contextlib.contextmanager
def separate_output() -> Iterator[None]:
    """Let what threads print that the code starts, and may leave running, go to stderr: stdout is for the result.

    It is so before the code runs: a thread that is printing while stdout is put back meets this stream, not the other.
    """
    before = sys.stdout
    if isinstance(before, _OfOneThread):
        yield
        return
    made = _OfOneThread(before)
    sys.stdout = made
    try:
        yield
    finally:
        if sys.stdout is made and not _left(daemons=True):
            sys.stdout = before


@contextlib.contextmanager
def threads_inherit() -> Iterator[None]:
    """Let threads that a command's code starts be bound as its entrypoint is: consent, weights, hosts of secrets.

    A thread begins with an empty context, in which whatever is fetched would be the user's own wish.
    """
    start = threading.Thread.start

    def start_bound(thread: threading.Thread) -> None:
        run, caller, hosts = thread.run, weights.caller.get(), secret_scope.named_hosts.get()

        def run_bound() -> None:
            weights.caller.set(caller)
            secret_scope.named_hosts.set(hosts)
            run()

        thread.run = run_bound  # type: ignore[method-assign]  # of this thread alone
        start(thread)

    threading.Thread.start = start_bound  # type: ignore[method-assign, assignment]  # `self` is called `thread`
    try:
        yield
    finally:
        threading.Thread.start = start  # type: ignore[method-assign]


class _OfOneThread:
    """A stream for the thread that made it; any other has stderr."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._thread = stream, threading.get_ident()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream if threading.get_ident() == self._thread else sys.stderr, name)


def leave(status: int) -> None:
    """Have this process end with `status` within seconds, whatever repository code has left running.

    Call it last: what still runs then is named, and ended without a word to its code.
    """
    if not _noted:
        return
    _end_processes()
    reached = threading.Event()
    atexit.register(reached.set)  # the last to be registered runs first
    threading.Thread(target=_watch, args=(status, reached), daemon=True).start()


def _left(daemons: bool = False) -> list[threading.Thread]:
    here = threading.current_thread()
    found = [one for one in threading.enumerate() if not (one is here or one in _before)]
    return [one for one in found if daemons or not one.daemon]


def _watch(status: int, reached: threading.Event) -> NoReturn:
    time.sleep(GRACE)
    if reached.is_set():
        time.sleep(CLEANING)
    names = [one.name for one in _left() if one is not threading.main_thread()]
    with contextlib.suppress(Exception):
        if names:
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            shown = f"{', '.join(names[:_SHOWN])}{more}"
            output.warning(f"the code left threads running: {shown}; they end with the command")
        else:
            output.warning("what the code has registered to be done at exit does not end; it is left undone")
        stray_files.collect()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(status)


def _end_processes() -> None:
    """End processes of multiprocessing, which Python would wait for, after the grace."""
    processes = sys.modules.get("multiprocessing")
    left = processes.active_children() if processes is not None else []
    deadline = time.monotonic() + GRACE
    for child in left:
        child.join(max(deadline - time.monotonic(), 0.0))
    for child in left:
        if child.is_alive():
            output.warning(f"the code left the process {child.name} running; it ends with the command")
            child.terminate()
            child.join(1.0)
            if child.is_alive():
                child.kill()
