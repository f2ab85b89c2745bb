"""Threads of generated code, for processes without OpenMP's: they wait for work as those do.

A thread of Python that is woken needs the interpreter, some 30 us; what these find to do is code alone.  Between two
calls a worker spins, for about as long as an operation takes, then it sleeps on a futex.  One team serves the process:
while it works for one thread, another that calls does all of its work itself.

The system call of a futex is known here for Linux on x86-64 and aarch64; elsewhere there are no such threads.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
import threading

from engine.backends.onednn import placement
from engine.kernels.compiler import linked

__all__ = ["Team", "forked", "start"]

_FUTEX = {"x86_64": 202, "aarch64": 98}
_PAUSE = {"x86_64": ("@llvm.x86.sse2.pause(", ""), "aarch64": ("@llvm.aarch64.hint(", "i32 1")}  # of a loop that waits
_TURNS = 6000  # of the wait for work before sleep, as OpenMP's threads have here (`library.py`)
_MOST = 1 << 14  # threads of a team

# The words of @team, each in a line of the cache of its own: 0 whether a thread uses the team; 8 the number of the
# latest work, on which sleepers wait; 16 how many may still begin with it (from bit 16 on) and how many are at it;
# 24 how many sleep; 32 the code, and 33 its data.
_TEXT = """
@team = internal global [40 x i64] zeroinitializer, align 64

declare i64 @syscall(i64, ...)
declare i32 @sched_getcpu()
declare i32 @sched_yield()
declare void DECLARED

define void @KERNEL(ptr %out, i64 %from, i64 %to) {
  %1 = getelementptr ptr, ptr %out, i64 1
  %2 = getelementptr ptr, ptr %out, i64 2
  %3 = getelementptr ptr, ptr %out, i64 3
  store ptr @parallel, ptr %out
  store ptr @serve, ptr %1
  store ptr @sched_getcpu, ptr %2
  store ptr @team, ptr %3
  ret void
}

define internal void @parallel(ptr %code, ptr %data, i32 %count, i32 %flags) {
  %few = icmp ult i32 %count, 2
  br i1 %few, label %alone, label %ask
ask:
  %got = cmpxchg ptr @team, i64 0, i64 1 acquire monotonic
  %free = extractvalue { i64, i1 } %got, 1
  br i1 %free, label %post, label %alone
alone:
  call void %code(ptr %data)
  ret void
post:
  %ticket = getelementptr i64, ptr @team, i64 8
  %places = getelementptr i64, ptr @team, i64 16
  %of.sleepers = getelementptr i64, ptr @team, i64 24
  %of.code = getelementptr i64, ptr @team, i64 32
  %of.data = getelementptr i64, ptr @team, i64 33
  store ptr %code, ptr %of.code
  store ptr %data, ptr %of.data
  %others = sub i32 %count, 1
  %wide = zext i32 %others to i64
  %open = shl i64 %wide, 16
  store atomic i64 %open, ptr %places release, align 8
  %earlier = atomicrmw add ptr %ticket, i64 1 seq_cst
  %sleepers = load atomic i64, ptr %of.sleepers seq_cst, align 8
  %asleep = icmp sgt i64 %sleepers, 0
  br i1 %asleep, label %wake, label %work
wake:
  %woken = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %ticket, i32 129, i32 %others, i64 0)
  br label %work
work:
  call void %code(ptr %data)
  %left = atomicrmw and ptr %places, i64 65535 acq_rel
  br label %wait
wait:
  %turn = phi i64 [ 0, %work ], [ %turn.next, %again ]
  %turn.next = add i64 %turn, 1
  %inside = load atomic i64, ptr %places acquire, align 8
  %ended = icmp eq i64 %inside, 0
  br i1 %ended, label %done, label %look
look:
  call void PAUSE
  %long = icmp ugt i64 %turn, TURNS
  br i1 %long, label %yield, label %again
yield:
  %ignored = call i32 @sched_yield()
  br label %again
again:
  br label %wait
done:
  store atomic i64 0, ptr @team release, align 8
  ret void
}

define internal void @serve() {
  %ticket = getelementptr i64, ptr @team, i64 8
  %places = getelementptr i64, ptr @team, i64 16
  %of.sleepers = getelementptr i64, ptr @team, i64 24
  %of.code = getelementptr i64, ptr @team, i64 32
  %of.data = getelementptr i64, ptr @team, i64 33
  br label %begin
begin:
  %seen = phi i64 [ 0, %0 ], [ %seen, %slept ], [ %now, %enter ], [ %now, %finished ]
  br label %spin
spin:
  %turn = phi i64 [ 0, %begin ], [ %turn.next, %pause ]
  %turn.next = add i64 %turn, 1
  %now = load atomic i64, ptr %ticket acquire, align 8
  %same = icmp eq i64 %now, %seen
  br i1 %same, label %idle, label %enter
idle:
  %long = icmp ugt i64 %turn, TURNS
  br i1 %long, label %sleep, label %pause
pause:
  call void PAUSE
  br label %spin
sleep:
  %before = atomicrmw add ptr %of.sleepers, i64 1 seq_cst
  %latest = load atomic i64, ptr %ticket seq_cst, align 8
  %still = icmp eq i64 %latest, %seen
  br i1 %still, label %futex, label %slept
futex:
  %expected = trunc i64 %seen to i32
  %woken = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %ticket, i32 128, i32 %expected, i64 0)
  br label %slept
slept:
  %after = atomicrmw sub ptr %of.sleepers, i64 1 seq_cst
  br label %begin
enter:
  %held = load atomic i64, ptr %places acquire, align 8
  %open = icmp ugt i64 %held, 65535
  br i1 %open, label %claim, label %begin
claim:
  %fewer = sub i64 %held, 65535
  %got = cmpxchg ptr %places, i64 %held, i64 %fewer acq_rel monotonic
  %mine = extractvalue { i64, i1 } %got, 1
  br i1 %mine, label %work, label %enter
work:
  %code = load ptr, ptr %of.code
  %data = load ptr, ptr %of.data
  call void %code(ptr %data)
  br label %finished
finished:
  %one.less = atomicrmw sub ptr %places, i64 1 release
  br label %begin
}
"""


class Team:
    """The workers of this process, and `parallel(code, data, count, flags)`, which has the signature of GOMP_parallel:
    code(data) by this thread and up to count - 1 others at once."""

    def __init__(self) -> None:
        system = platform.machine()
        pause, hint = _PAUSE[system]
        words = {
            "FUTEX": _FUTEX[system],
            "TURNS": _TURNS,
            "DECLARED": f"{pause}{hint[:3]})",
            "PAUSE": f"{pause}{hint})",
        }
        text = _TEXT
        for word, value in words.items():
            text = text.replace(word, str(value))
        out = ctypes.create_string_buffer(4 * 8)
        linked(text)(out, 0, 0)  # type: ignore[arg-type]  # memory that is written
        self.parallel, self._serve, self.core, self._words = struct.unpack("<4Q", out)
        self._core = ctypes.PYFUNCTYPE(ctypes.c_int)(self.core)
        self._members: list[int] = []  # the system's numbers of the threads
        self._starting = threading.Lock()
        self._known = -1  # the core that the workers keep off

    def grow(self, count: int) -> None:
        """Start workers until `count` threads can work at once, the caller being one of them."""
        with self._starting:
            while len(self._members) < min(count, _MOST) - 1:
                ready = threading.Event()
                threading.Thread(
                    target=self._work, args=(ready,), name=f"engine-worker-{len(self._members)}", daemon=True
                ).start()
                ready.wait()
        self._known = -1

    def _work(self, ready: threading.Event) -> None:
        self._members.append(threading.get_native_id())
        ready.set()
        ctypes.CFUNCTYPE(None)(self._serve)()

    def apart(self) -> int:
        """Keep the workers off the core of this thread, and return it."""
        here = int(self._core())
        if here != self._known:
            self._known = here
            if len(self._members) < len(os.sched_getaffinity(0)):
                placement.keep_off(self._members, here)
        return here

    def forget(self) -> None:
        """In a forked child, which has none of its parent's threads."""
        ctypes.memset(self._words, 0, 40 * 8)
        self._members, self._starting, self._known = [], threading.Lock(), -1


_team: list[Team] = []


def start() -> Team | None:
    """Return the team of this process, without workers as yet; None where there can be none."""
    if not _team and sys.platform == "linux" and platform.machine() in _FUTEX:
        _team.append(Team())
    return _team[0] if _team else None


def forked() -> None:
    """Begin anew in a child, which has none of its parent's threads."""
    for team in _team:
        team.forget()
