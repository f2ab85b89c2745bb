"""Pieces of generated kernels on the OpenMP threads that oneDNN has: they wait for work where Python's threads sleep,
and need no interpreter to take it; without oneDNN, on threads of our own (`workers.py`).

The threads take pieces by a counter until none is left, so that one which is held up leaves little.  On two cores of a
Zen 3, while threads are awake, relu of a million elements takes 84 us so, 173 in pieces for Python's threads, 138
alone; gelu of 65,536 takes 39, 71 and 60.
"""

from __future__ import annotations

import ctypes
import functools
import os
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from engine.backends.cpu import threads
from engine.backends.onednn import placement
from engine.kernels import workers
from engine.kernels.compiler import address, linked

__all__ = ["SPLIT", "every", "run", "shared", "split", "start", "step_of"]

_JOB = struct.Struct("<QQqq")
_HEAD = struct.Struct("<qq")  # the number of the next job, how many there are; the jobs follow

_TEXT = """
define void @KERNEL(ptr %data) {
  %of_count = getelementptr i64, ptr %data, i64 1
  %count = load i64, ptr %of_count
  br label %next
next:
  %at = atomicrmw add ptr %data, i64 1 monotonic
  %more = icmp slt i64 %at, %count
  br i1 %more, label %work, label %done
work:
  %before = mul i64 %at, 4
  %place = add i64 %before, 2
  %job = getelementptr i64, ptr %data, i64 %place
  %entry = load ptr, ptr %job
  %of_args = getelementptr i64, ptr %job, i64 1
  %args = load ptr, ptr %of_args
  %of_begin = getelementptr i64, ptr %job, i64 2
  %begin = load i64, ptr %of_begin
  %of_end = getelementptr i64, ptr %job, i64 3
  %end = load i64, ptr %of_end
  call void %entry(ptr %args, i64 %begin, i64 %end)
  br label %next
done:
  ret void
}
"""


# The words of a range: the code, how many elements, elements of a piece, threads, pieces of a thread, what tells a
# thread its number, where the arguments begin; then how many pieces of each thread were taken, each in a line of the
# cache of its own; then the arguments.
_RANGE = """
define void @KERNEL(ptr %data) {
  %code = load ptr, ptr %data
  %of_count = getelementptr i64, ptr %data, i64 1
  %count = load i64, ptr %of_count
  %of_step = getelementptr i64, ptr %data, i64 2
  %step = load i64, ptr %of_step
  %of_members = getelementptr i64, ptr %data, i64 3
  %members = load i64, ptr %of_members
  %of_each = getelementptr i64, ptr %data, i64 4
  %each = load i64, ptr %of_each
  %of_number = getelementptr i64, ptr %data, i64 5
  %number = load ptr, ptr %of_number
  %of_offset = getelementptr i64, ptr %data, i64 6
  %offset = load i64, ptr %of_offset
  %args = getelementptr i8, ptr %data, i64 %offset
  %own32 = call i32 %number()
  %own = zext i32 %own32 to i64
  br label %share
share:
  %k = phi i64 [ 0, %0 ], [ %k.next, %left ]
  %k.next = add i64 %k, 1
  %sum = add i64 %own, %k
  %whose = urem i64 %sum, %members
  %line = mul i64 %whose, 8
  %place = add i64 %line, 8
  %taken = getelementptr i64, ptr %data, i64 %place
  %first = mul i64 %whose, %each
  br label %next
next:
  %at = atomicrmw add ptr %taken, i64 1 monotonic
  %more = icmp slt i64 %at, %each
  br i1 %more, label %work, label %left
work:
  %piece = add i64 %first, %at
  %begin = mul i64 %piece, %step
  %after = add i64 %begin, %step
  %short = icmp slt i64 %count, %after
  %end = select i1 %short, i64 %count, i64 %after
  %some = icmp slt i64 %begin, %end
  br i1 %some, label %do, label %next
do:
  call void %code(ptr %args, i64 %begin, i64 %end)
  br label %next
left:
  %others = icmp slt i64 %k.next, %members
  br i1 %others, label %share, label %done
done:
  ret void
}
"""
# For generated code that holds `shared`: what `split` does, on memory of its own stack.
SPLIT = """
define internal void @split(ptr %team, ptr %code, ptr %args, i64 %count, i64 %members, i64 %each) {
  %lines = add i64 %members, 1
  %size = mul i64 %lines, 64
  %data = alloca i8, i64 %size, align 64
  call void @llvm.memset.p0.i64(ptr align 64 %data, i8 0, i64 %size, i1 0)
  %pieces = mul i64 %members, %each
  %up = add i64 %count, %pieces
  %more = sub i64 %up, 1
  %exact = udiv i64 %more, %pieces
  %above = add i64 %exact, 63
  %round = and i64 %above, -64
  %long = icmp sgt i64 %exact, 256
  %step = select i1 %long, i64 %round, i64 %exact
  %from = ptrtoint ptr %data to i64
  %to = ptrtoint ptr %args to i64
  %offset = sub i64 %to, %from
  %of.parallel = getelementptr i64, ptr %team, i64 1
  %parallel = load ptr, ptr %of.parallel
  %of.member = getelementptr i64, ptr %team, i64 2
  %member = load ptr, ptr %of.member
  %of.number = getelementptr i64, ptr %team, i64 3
  %number = load i64, ptr %of.number
  %w1 = getelementptr i64, ptr %data, i64 1
  %w2 = getelementptr i64, ptr %data, i64 2
  %w3 = getelementptr i64, ptr %data, i64 3
  %w4 = getelementptr i64, ptr %data, i64 4
  %w5 = getelementptr i64, ptr %data, i64 5
  %w6 = getelementptr i64, ptr %data, i64 6
  store ptr %code, ptr %data
  store i64 %count, ptr %w1
  store i64 %step, ptr %w2
  store i64 %members, ptr %w3
  store i64 %each, ptr %w4
  store i64 %number, ptr %w5
  store i64 %offset, ptr %w6
  %members.32 = trunc i64 %members to i32
  %of.core = getelementptr i64, ptr %team, i64 4
  %core = load ptr, ptr %of.core
  %here.32 = call i32 %core()
  %here = sext i32 %here.32 to i64
  %of.seen = getelementptr i64, ptr %team, i64 5
  %seen = load i64, ptr %of.seen
  %stays = icmp eq i64 %here, %seen
  br i1 %stays, label %go, label %moved
moved:
  %of.moved = getelementptr i64, ptr %team, i64 6
  %told = load ptr, ptr %of.moved
  call void %told()
  br label %go
go:
  call void %parallel(ptr %member, ptr %data, i32 %members.32, i32 0)
  ret void
}

declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
"""
# threads (0: none to share with), GOMP_parallel or what does the same, the code of `_RANGE`, what tells a thread its
# number, what tells it its core, the core on which the others know it, what is called where that is another
shared = np.zeros(7, np.int64)

# `@split` as an entry: the words are those of `_SPLIT_WORDS`, then the arguments of the code
_ENTRY = """
define void @KERNEL(ptr %words, i64 %from, i64 %to) {
  %w1 = getelementptr i64, ptr %words, i64 1
  %w2 = getelementptr i64, ptr %words, i64 2
  %w3 = getelementptr i64, ptr %words, i64 3
  %w4 = getelementptr i64, ptr %words, i64 4
  %args = getelementptr i64, ptr %words, i64 5
  %team = load ptr, ptr %words
  %code = load ptr, ptr %w1
  %count = load i64, ptr %w2
  %members = load i64, ptr %w3
  %each = load i64, ptr %w4
  call void @split(ptr %team, ptr %code, ptr %args, i64 %count, i64 %members, i64 %each)
  ret void
}
"""
_SPLIT_WORDS = struct.Struct("<QQqqq")  # where `shared` is, the code, how many elements, threads, pieces of a thread


class _Threads(NamedTuple):
    """Threads that wait for work."""

    parallel: int  # the address of GOMP_parallel or of what has its signature
    number: int  # of what tells a thread its number
    core: int  # of what tells it its core; `number` where threads are not placed
    apart: Callable[[], int]  # keep the others off the core of this thread, which it returns; 0 where not placed
    grow: Callable[[int], None]  # let so many work at once


_state: _Threads | None = None


def start() -> bool:
    """Let generated code share its work by `shared`; return whether there are threads for that: OpenMP's where oneDNN
    is in use, else those of `workers.py`."""
    global _state
    if _state is not None:
        return True
    found = _openmp() or _workers()
    if found is None:
        return False
    told = ctypes.cast(_told, ctypes.c_void_p).value or 0
    shared[1:] = [found.parallel, address(linked(_RANGE)), found.number, found.core, -1, told]
    _state = found
    _watch()
    _follow()
    return True


def _openmp() -> _Threads | None:
    """Return the threads that oneDNN has, if they are OpenMP's."""
    from engine.backends.onednn import library  # not before there is something to run

    if library.load() is None or library.state.forked or not hasattr(library.state.library, "GOMP_parallel"):
        return None  # a forked child has none of its parent's threads
    ffi, loaded = library.state.ffi, library.state.library

    def place(name: str) -> int:
        return int(ffi.cast("uintptr_t", ffi.addressof(loaded, name)))

    def apart() -> int:
        placement.apart()
        return max(placement.core(), 0)

    apart()
    number = place("omp_get_thread_num")
    core = place("sched_getcpu") if placement.core() >= 0 else number
    return _Threads(place("GOMP_parallel"), number, core, apart, lambda _: None)


def _workers() -> _Threads | None:
    """Return threads of our own."""
    made = workers.start()
    return None if made is None else _Threads(made.parallel, made.core, made.core, made.apart, made.grow)


@functools.cache
def _watch() -> None:
    threads.changed.append(_follow)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_alone)


def _follow() -> None:
    """Use as many threads as operations may use now."""
    if _state is not None:
        _state.grow(threads.get_num_threads())
        shared[0], shared[5] = threads.get_num_threads(), -1


def _tell() -> None:
    if _state is not None:
        shared[5] = _state.apart()


_told = ctypes.CFUNCTYPE(None)(_tell)


def _alone() -> None:
    """In a forked child, which has none of its parent's threads."""
    global _state
    _state = None
    shared[:] = 0
    workers.forked()


@functools.cache
def _split() -> Callable[[bytes, int, int], None]:
    return linked(_ENTRY + SPLIT)


_PARALLEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)


def every(member: Any, data: int, count: int) -> None:
    """`member(data)` of up to `count` threads at once, at least of this one; a function of ctypes."""
    if count == 1:
        member(data, 0, 0)
    elif not start():
        threads.run(lambda _: member(data, 0, 0), list(range(count)))
    else:
        _parallel(address(member), data, count)


def _parallel(code: int, data: int, count: int) -> None:
    assert _state is not None
    _state.apart()
    _PARALLEL(_state.parallel)(code, data, count, 0)


def run(code: int, pieces: Sequence[tuple[bytes, int, int]]) -> bool:
    """Run the code at an address on all pieces (its arguments, begin, end), in any order; False where there are no such
    threads.

    A piece must not depend on another.
    """
    if not start():
        return False
    held = {id(args): args for args, _, _ in pieces}
    places = {key: ctypes.cast(ctypes.c_char_p(args), ctypes.c_void_p).value or 0 for key, args in held.items()}
    jobs = [_JOB.pack(code, places[id(args)], begin, end) for args, begin, end in pieces]
    data = ctypes.create_string_buffer(_HEAD.pack(0, len(jobs)) + b"".join(jobs))
    several = min(threads.get_num_threads(), len(jobs))
    _parallel(address(linked(_TEXT)), ctypes.addressof(data), several)
    return True


def step_of(count: int, pieces: int) -> int:
    """The elements of one of so many pieces of a range; pieces of many begin at multiples of 64."""
    step = -(-count // pieces)
    return -(-step // 64) * 64 if step > 256 else step


def split(code: int, args: bytes, count: int, members: int, each: int) -> bool:
    """Run the code at an address on the elements 0..count in `each` pieces for each of so many threads; False where
    there are no such threads.

    A thread begins with its own part, which the same call before left in its cache, then helps the others.  Pieces
    begin at multiples of 64.
    """
    if not start():
        return False
    _split()(_SPLIT_WORDS.pack(shared.ctypes.data, code, count, members, each) + args, 0, 0)
    return True
