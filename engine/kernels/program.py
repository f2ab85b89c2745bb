"""Programs of generated code: stages one after the other, each of jobs that threads share, in one call.

A network at batch 1 is fifty kernels of some 50 us.  To hand each to other threads and to wait for them takes 5 to
60 us of that, and what Python does between them more, since a kernel leaves nothing of it in the caches.  Here threads
come once: each takes jobs of a stage, those of its own share first, then what others have left, and goes on when all
jobs of the stage are done, by whichever thread.  So a thread that comes late, or not at all, is not waited for; and
where all come, each finds in its own cache what it made in the stage before: the shares of two stages that go by the
same rows are the same rows.  A job is a chain of steps, which one thread does in turn, for results that stay in its
cache.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engine.backends.cpu import threads
from engine.kernels import compiler, team

__all__ = ["Program", "Stage", "Step"]

Step = tuple[Callable[[], Any], np.ndarray, int, int]  # what gives the code; its arguments, int64; begin, end
Stage = Sequence[Sequence[Sequence[Step]]]  # of a thread, of a job
_SPINS = 1 << 11  # looks at a counter, some 40 us, after each of which a thread that waits sleeps for a moment
_MOMENT = 20  # microseconds; at least, since to wake takes 50

# data: threads that have come, stages, the address of usleep, threads that may come; then 8 numbers a stage: jobs done,
# jobs, the address of (steps, how many) of each, how many bytes further those of the next thread are, the address of
# marks, 16 bytes apart: 1 for each job that somebody has taken.
_TEXT = """
define void @KERNEL(ptr %data, i64, i64) {
entry:
  %me = atomicrmw add ptr %data, i64 1 monotonic
  %of_stages = getelementptr i64, ptr %data, i64 1
  %stages = load i64, ptr %of_stages
  %of_sleep = getelementptr i64, ptr %data, i64 2
  %sleep = load ptr, ptr %of_sleep
  %of_members = getelementptr i64, ptr %data, i64 3
  %members = load i64, ptr %of_members
  br label %stage
stage:
  %s = phi i64 [ 0, %entry ], [ %following, %over ]
  %more = icmp slt i64 %s, %stages
  br i1 %more, label %begin, label %end
begin:
  %eight = mul i64 %s, 8
  %at = add i64 %eight, 4
  %done = getelementptr i64, ptr %data, i64 %at
  %of_count = getelementptr i64, ptr %done, i64 1
  %count = load i64, ptr %of_count
  %of_jobs = getelementptr i64, ptr %done, i64 2
  %all = load ptr, ptr %of_jobs
  %of_apart = getelementptr i64, ptr %done, i64 3
  %stride = load i64, ptr %of_apart
  %of_marks = getelementptr i64, ptr %done, i64 4
  %marks = load ptr, ptr %of_marks
  %mine = mul i64 %stride, %me
  %jobs = getelementptr i8, ptr %all, i64 %mine
  %of_shares = mul i64 %me, %count
  %share = udiv i64 %of_shares, %members
  br label %take
take:
  %tried = phi i64 [ 0, %begin ], [ %after, %seek ], [ %after, %claim ], [ %after, %finished ]
  %did = phi i64 [ 0, %begin ], [ %did, %seek ], [ %did, %claim ], [ %did_more, %finished ]
  %left = icmp slt i64 %tried, %count
  br i1 %left, label %seek, label %report
seek:
  %after = add i64 %tried, 1
  %from_share = add i64 %share, %tried
  %k = urem i64 %from_share, %count
  %two = mul i64 %k, 2
  %mark = getelementptr i64, ptr %marks, i64 %two
  %state = load atomic i64, ptr %mark monotonic, align 8
  %free = icmp eq i64 %state, 0
  br i1 %free, label %claim, label %take
claim:
  %was = atomicrmw xchg ptr %mark, i64 1 monotonic
  %won = icmp eq i64 %was, 0
  br i1 %won, label %job, label %take
job:
  %of_steps = getelementptr i64, ptr %jobs, i64 %two
  %first = load ptr, ptr %of_steps
  %of_many = getelementptr i64, ptr %of_steps, i64 1
  %many = load i64, ptr %of_many
  br label %chain
chain:
  %n = phi i64 [ 0, %job ], [ %next, %step ]
  %unfinished = icmp slt i64 %n, %many
  br i1 %unfinished, label %step, label %finished
step:
  %four = mul i64 %n, 4
  %of_entry = getelementptr i64, ptr %first, i64 %four
  %entry_code = load ptr, ptr %of_entry
  %of_args = getelementptr i64, ptr %of_entry, i64 1
  %args = load ptr, ptr %of_args
  %of_from = getelementptr i64, ptr %of_entry, i64 2
  %from = load i64, ptr %of_from
  %of_to = getelementptr i64, ptr %of_entry, i64 3
  %to = load i64, ptr %of_to
  call void %entry_code(ptr %args, i64 %from, i64 %to)
  %next = add i64 %n, 1
  br label %chain
finished:
  %did_more = add i64 %did, 1
  br label %take
report:
  %before = atomicrmw add ptr %done, i64 %did release
  br label %wait
wait:
  %spins = phi i64 [ 1, %report ], [ %again, %pause ], [ %again, %rest ]
  %seen = load atomic i64, ptr %done acquire, align 8
  %ready = icmp sge i64 %seen, %count
  br i1 %ready, label %over, label %look
look:
  %again = add i64 %spins, 1
  %part = and i64 %again, MASK
  %long = icmp eq i64 %part, 0
  br i1 %long, label %rest, label %pause
rest:
  %ignored = call i32 %sleep(i32 MOMENT)
  br label %wait
pause:
  PAUSE
  br label %wait
over:
  %following = add i64 %s, 1
  br label %stage
end:
  ret void
}
"""
_PAUSES = {
    "x86_64": ("call void @llvm.x86.sse2.pause()", "declare void @llvm.x86.sse2.pause()"),
    "aarch64": ("call void @llvm.aarch64.hint(i32 1)", "declare void @llvm.aarch64.hint(i32)"),
}
_PAUSES |= {"amd64": _PAUSES["x86_64"], "arm64": _PAUSES["aarch64"]}
_MEMBER = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_HEAD, _STAGE, _MARK = 4, 8, 2  # numbers


@functools.cache
def _member() -> Any:
    """Return the address of the function that each thread of the team runs."""
    pause, declared = _PAUSES.get(platform.machine().lower(), ("", ""))
    text = (
        _TEXT.replace("PAUSE", pause).replace("MASK", str(_SPINS - 1)).replace("MOMENT", str(_MOMENT)) + declared + "\n"
    )
    return _MEMBER(compiler.address(compiler.linked(text)))


@functools.cache
def _sleep() -> int:
    """The address of what lets other programs run; on Windows, of what takes no moment, but lets them."""
    found = ctypes.WinDLL("kernel32").SwitchToThread if os.name == "nt" else ctypes.CDLL(None).usleep  # type: ignore[attr-defined]
    return ctypes.cast(found, ctypes.c_void_p).value or 0


class Program:
    """Stages, each of jobs, each of steps; called, it runs them all.

    A stage: one list of jobs that serves all threads, or one for each of `members` threads, of the same jobs with
    memory of the thread's own.  Arguments are read in each call, so that addresses in them can be changed between
    calls.  retained: memory that they name.
    """

    def __init__(self, stages: Sequence[Stage], members: int, retained: Any = None) -> None:
        self._member, self._retained = _member(), [retained]
        self._most = members if any(len(stage) > 1 for stage in stages) else 1 << 30
        size = _HEAD + _STAGE * len(stages)
        buffer = np.zeros(size + 8, np.int64)
        skipped = (-(buffer.ctypes.data // 8) - _HEAD) % 8  # each stage has a line of the cache
        data = self._data = buffer[skipped : skipped + size]
        data[1:3] = len(stages), _sleep()
        records = data[_HEAD:].reshape(-1, _STAGE)
        self._done = records[:, 0]
        marks = np.zeros(8 + _MARK * sum(len(stage[0]) for stage in stages), np.int64)
        self._marks = marks[-(marks.ctypes.data // 8) % 8 :]  # a line of the cache has those of four jobs
        at = self._marks.ctypes.data
        for stage, record in zip(stages, records):
            table = np.array([self._chain(job) for jobs in stage for job in jobs], np.int64)
            self._retained.append(table)
            stride = table[0].nbytes * len(stage[0]) if len(stage) > 1 else 0
            record[1:5] = len(stage[0]), table.ctypes.data, stride, at
            at += _MARK * 8 * len(stage[0])
        self._address = data.ctypes.data

    def _chain(self, steps: Sequence[Step]) -> tuple[int, int]:
        table = np.array([(compiler.address(code()), a.ctypes.data, *span) for code, a, *span in steps], np.int64)
        self._retained += [table, *[a for _, a, *_ in steps]]
        return table.ctypes.data, len(steps)

    def __call__(self) -> None:
        members = min(self._most, threads.get_num_threads())
        self._data[0], self._data[3] = 0, members
        self._done.fill(0)
        self._marks.fill(0)
        team.every(self._member, self._address, members)
