"""Keeping OpenMP's threads off the core of the thread that they work with.

Linux may wake a thread on the core of the one that wakes it, though another core is idle; then the two take turns until
the kernel balances them, some 8 ms later.  On a virtual machine of two cores (Linux 6.18), a tenth of a second after
the last call, 30 times relu of 262,144 elements took 318 us each so and 14 like this, six 3 x 3 convolutions of
(1, 96, 54, 54) 1,190 and 410.  So the threads of a team may run on every core but that one.  Where the thread runs
costs nothing to ask; they are told when it has moved.

What the user says of places (OMP_PROC_BIND, OMP_PLACES, GOMP_CPU_AFFINITY) stands.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Sequence

from engine.backends.cpu import threads
from engine.backends.onednn import library

__all__ = ["apart", "core", "keep_off"]


class _Team(threading.local):
    """What a thread knows of the threads that work with it."""

    core = -2  # on which it ran when they were told; -2 before
    count = 0  # how many there were
    members: tuple[int, ...] = ()  # the kernel's numbers of the others


_team = _Team()


def _nowhere() -> int:
    return -1


def _unknown() -> int:
    return -1


core: Callable[[], int] = _unknown  # the core on which a thread runs; -1 where threads are not placed


def apart() -> None:
    """Keep the threads that work with this one off its core; before they are woken."""
    if core() != _team.core:
        _place()


def keep_off(members: Sequence[int], core: int) -> bool:
    """Let threads, the kernel's numbers of them, run on every core of this process but one; False where one has ended
    or the system does not allow it."""
    others, allowed = os.sched_getaffinity(0) - {core}, True
    for number in members:
        if others and os.path.exists(f"/proc/self/task/{number}"):  # it may have ended since
            try:
                os.sched_setaffinity(number, others)
            except OSError:  # it ended now, or the system does not allow it
                allowed = False
    return allowed


def _place() -> None:
    if core is _unknown:
        _start()
    here, team = core(), _team
    team.core = here
    if here < 0:
        return
    count = library.thread_count()
    if not 1 < count <= len(os.sched_getaffinity(0)):
        return
    if team.count != count:
        team.members, team.count = _numbers(count), count
    if not keep_off(team.members, here):
        team.members = ()


def _start() -> None:
    """Find out whether threads can be placed; once the library is loaded."""
    global core
    has = all(hasattr(library.state.library, name) for name in ("GOMP_parallel", "sched_getcpu"))
    said = {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"} & os.environ.keys()
    if said or not has or not hasattr(os, "sched_setaffinity") or library.state.forked:
        core = _nowhere
        return
    core = library.state.library.sched_getcpu
    threads.changed.append(_again)
    os.register_at_fork(after_in_child=_alone)


def _numbers(count: int) -> tuple[int, ...]:
    """The kernel's numbers of the threads that work with this one."""
    found: list[int] = []
    try:
        note = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: found.append(threading.get_native_id()))
    except MemoryError:  # where no memory may be executed
        return ()
    ffi, own = library.state.ffi, threading.get_native_id()
    code = ffi.cast("void *", ctypes.cast(note, ctypes.c_void_p).value)
    library.state.library.GOMP_parallel(code, ffi.NULL, count, 0)
    return tuple([number for number in found if number != own])


def _again() -> None:
    """Other threads work from now on."""
    global _team
    _team = _Team()


def _alone() -> None:
    """In a forked child, which has none of its parent's threads."""
    global core
    core = _nowhere
    _again()
