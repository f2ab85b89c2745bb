"""Pieces of generated kernels on the OpenMP threads that oneDNN has: they wait for work where Python's threads sleep,
and need no interpreter to take it.

The threads take pieces by a counter until none is left, so that one which is held up leaves little.  On two cores of a
Zen 3, while threads are awake, relu of a million elements takes 84 us so, 173 in pieces for Python's threads, 138
alone; gelu of 65,536 takes 39, 71 and 60.
"""

from __future__ import annotations

import ctypes
import functools
import os
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.backends.cpu import threads
from engine.backends.onednn import placement
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
_WORDS = struct.Struct("<QqqqqQq")

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
# threads (0: none to share with), GOMP_parallel, the code of `_RANGE`, what tells a thread its number, what tells it
# its core, the core on which the others know it, what is called where that is another
shared = np.zeros(7, np.int64)


def start() -> None:
    """Let generated code share its work by `shared`, if there are such threads."""
    library = _library() if not shared[1] else None
    if library is None:
        return
    ffi, loaded = library.state.ffi, library.state.library
    places = ffi.addressof(loaded, "GOMP_parallel"), _member(_RANGE)
    placement.apart()
    placed = placement.core() >= 0
    core = int(ffi.cast("uintptr_t", ffi.addressof(loaded, "sched_getcpu"))) if placed else _number()
    told = ctypes.cast(_told, ctypes.c_void_p).value or 0
    shared[1:] = [*[int(ffi.cast("uintptr_t", place)) for place in places], _number(), core, -1 if placed else 0, told]
    threads.changed.append(_follow)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_alone)
    _follow()


def _follow() -> None:
    shared[0] = threads.get_num_threads() if shared[1] else 0
    if placement.core() >= 0:
        shared[5] = -1


def _tell() -> None:
    placement.apart()
    shared[5] = placement.core()


_told = ctypes.PYFUNCTYPE(None)(_tell)


def _alone() -> None:
    """In a forked child, which has none of its parent's threads."""
    shared[:] = 0


@functools.cache
def _member(text: str) -> Any:
    """The address of what each thread of the team does."""
    from engine.backends.onednn import library

    return library.state.ffi.cast("void *", address(linked(text)))


@functools.cache
def _number() -> int:
    """The address of what tells a thread its number in the team."""
    from engine.backends.onednn import library

    ffi = library.state.ffi
    return int(ffi.cast("uintptr_t", ffi.addressof(library.state.library, "omp_get_thread_num")))


def _library() -> Any:
    """The module of oneDNN's library, which has the threads; None where there are none."""
    from engine.backends.onednn import library  # not before there is something to run

    if library.load() is None or library.state.forked or not hasattr(library.state.library, "GOMP_parallel"):
        return None  # a forked child has none of its parent's threads
    return library


def every(member: Any, data: int, count: int) -> None:
    """`member(data)` of up to `count` threads at once, at least of this one; a function of ctypes."""
    library = _library() if count > 1 else None
    if count == 1:
        member(data, 0, 0)
    elif library is None:
        threads.run(lambda _: member(data, 0, 0), list(range(count)))
    else:
        place = library.state.ffi.cast
        placement.apart()
        library.state.library.GOMP_parallel(place("void *", address(member)), place("void *", data), count, 0)


def run(code: int, pieces: Sequence[tuple[bytes, int, int]]) -> bool:
    """Run the code at an address on all pieces (its arguments, begin, end), in any order; False where there are no such
    threads.

    A piece must not depend on another.
    """
    library = _library()
    if library is None:
        return False
    ffi, pack = library.state.ffi, _JOB.pack
    held = {id(args): args for args, _, _ in pieces}
    places = {key: int(ffi.cast("uintptr_t", ffi.from_buffer(args))) for key, args in held.items()}
    jobs = [pack(code, places[id(args)], begin, end) for args, begin, end in pieces]
    data = ffi.from_buffer(bytearray(_HEAD.pack(0, len(jobs)) + b"".join(jobs)))
    placement.apart()
    library.state.library.GOMP_parallel(_member(_TEXT), data, min(threads.get_num_threads(), len(jobs)), 0)
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
    library = _library()
    if library is None:
        return False
    step = step_of(count, members * each)
    size = 64 * (1 + members)
    data = bytearray(size)
    _WORDS.pack_into(data, 0, code, count, step, members, each, _number(), size)
    data += args
    placement.apart()
    library.state.library.GOMP_parallel(_member(_RANGE), library.state.ffi.from_buffer(data), members, 0)
    return True
