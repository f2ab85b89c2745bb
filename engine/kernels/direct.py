"""Launches of generated code by a builtin function: what a small call costs is one call of C, not ten lines of Python.

Note [Direct calls]
`Direct` is a table of launches and a builtin function over it, itself generated.  It compares its arguments with those
that each launch was kept for (arrays: numpy's own class, type, shape, strides; floats: their bits; ints and tuples of
them; all else: the same object), makes the results by numpy's C interface, gives the kernels the same words that
`cpu.Built` packs, and returns the results; NotImplemented where no launch fits.  One of EVERY such calls is handed to
`offer`, which may keep another.  What it reads of objects is probed once (`cpython.py`).  The interpreter's lock is
held throughout, so a launch must be small; nothing of Python's runs between the words' being filled in and the kernel.
A kernel of more work than `cpu.Built.alone` is shared among the threads of `team.py`.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engine.kernels import compiler, cpython, processor, team

__all__ = ["Direct", "readable"]

EVERY = 16  # calls without a launch, of which one is offered
LAUNCHES = 64  # that are looked through; of more, the one that was used least goes
MOST = 4096  # retained in all: those that went are not freed, for they may be running
ARGUMENTS, ARRAYS = 16, 32  # of one call

_OBJECT, _ARRAY, _FLOAT, _INT, _INTS = range(5)  # kinds of arguments
_HEAD = 17  # words before the addresses of launches
_FASTCALL = 0x0080

# The words of a table: how many launches, PyArray_Empty, Py_IncRef, Py_DecRef, PyTuple_New, PyTuple_SetItem,
# NotImplemented, numpy's array type, the float type, calls until one is offered, `offer`, PyObject_Vectorcall, EVERY,
# PyLong_AsLongLongAndOverflow, the types of ints and tuples, the words of `team.shared`.
# The words of a launch: arguments, new arrays, kernels, results (0: one, not in a tuple), arrays given, which array
# refuses (-1: none); then what each
# argument must be, type and shape of the new arrays (results first), and of each kernel its entry, count, how many of
# its words are arrays, how many there are, pieces for each thread (0: not shared), which arrays, the words.
_TEXT = """
define ptr @KERNEL(ptr %self, ptr %args, i64 %nargs) {
  %pool = alloca [ARRAYS x ptr]
  %of_table = getelementptr i8, ptr %self, i64 OFFSET
  %table = load ptr, ptr %of_table
  %count = load i64, ptr %table
  %p.empty = getelementptr i64, ptr %table, i64 1
  %p.incref = getelementptr i64, ptr %table, i64 2
  %p.decref = getelementptr i64, ptr %table, i64 3
  %p.tuple = getelementptr i64, ptr %table, i64 4
  %p.set = getelementptr i64, ptr %table, i64 5
  %p.not = getelementptr i64, ptr %table, i64 6
  %p.array = getelementptr i64, ptr %table, i64 7
  %p.float = getelementptr i64, ptr %table, i64 8
  %p.left = getelementptr i64, ptr %table, i64 9
  %p.offer = getelementptr i64, ptr %table, i64 10
  %p.call = getelementptr i64, ptr %table, i64 11
  %p.every = getelementptr i64, ptr %table, i64 12
  %launches = getelementptr i64, ptr %table, i64 HEAD
  %incref = load ptr, ptr %p.incref
  %decref = load ptr, ptr %p.decref
  %array = load ptr, ptr %p.array
  %float = load ptr, ptr %p.float
  br label %look
look:
  %i = phi i64 [ 0, %0 ], [ %i.next, %other ]
  %none = icmp sge i64 %i, %count
  br i1 %none, label %miss, label %try
try:
  %p.plan = getelementptr i64, ptr %launches, i64 %i
  %plan = load ptr, ptr %p.plan
  %want = load i64, ptr %plan
  %first = getelementptr i64, ptr %plan, i64 6
  %as.many = icmp eq i64 %want, %nargs
  br i1 %as.many, label %argument, label %other
other:
  %i.next = add i64 %i, 1
  br label %look
argument:
  %a = phi i64 [ 0, %try ], [ %a.next, %fits ]
  %at = phi ptr [ %first, %try ], [ %at.next, %fits ]
  %given = phi i64 [ 0, %try ], [ %given.next, %fits ]
  %all = icmp sge i64 %a, %nargs
  br i1 %all, label %found, label %compare
compare:
  %p.obj = getelementptr ptr, ptr %args, i64 %a
  %obj = load ptr, ptr %p.obj
  %kind = load i64, ptr %at
  %p.is = getelementptr i64, ptr %at, i64 1
  %is = load i64, ptr %p.is
  %p.type = getelementptr i8, ptr %obj, i64 TYPE
  %type = load ptr, ptr %p.type
  switch i64 %kind, label %same [
    i64 1, label %an.array i64 2, label %a.float i64 3, label %an.int i64 4, label %a.tuple
  ]
same:
  %obj.word = ptrtoint ptr %obj to i64
  %identical = icmp eq i64 %obj.word, %is
  %at.same = getelementptr i64, ptr %at, i64 2
  br i1 %identical, label %fits, label %other
a.float:
  %is.float = icmp eq ptr %type, %float
  br i1 %is.float, label %bits, label %other
bits:
  %p.value = getelementptr i8, ptr %obj, i64 OFFSET
  %value = load i64, ptr %p.value
  %equal = icmp eq i64 %value, %is
  %at.float = getelementptr i64, ptr %at, i64 2
  br i1 %equal, label %fits, label %other
an.int:
  %int.same = call i1 @same_int(ptr %table, ptr %obj, i64 %is)
  %at.int = getelementptr i64, ptr %at, i64 2
  br i1 %int.same, label %fits, label %other
a.tuple:
  %p.tuple.type = getelementptr i64, ptr %table, i64 15
  %tuple.type = load ptr, ptr %p.tuple.type
  %is.tuple = icmp eq ptr %type, %tuple.type
  br i1 %is.tuple, label %tuple.size, label %other
tuple.size:
  %p.size = getelementptr i8, ptr %obj, i64 OFFSET
  %size = load i64, ptr %p.size
  %size.same = icmp eq i64 %size, %is
  %items = getelementptr i64, ptr %p.size, i64 1
  %w.items = getelementptr i64, ptr %at, i64 2
  br i1 %size.same, label %tuple.next, label %other
tuple.next:
  %q = phi i64 [ 0, %tuple.size ], [ %q.next, %tuple.same ]
  %q.done = icmp sge i64 %q, %is
  %at.tuple = getelementptr i64, ptr %w.items, i64 %is
  br i1 %q.done, label %fits, label %tuple.item
tuple.item:
  %p.item = getelementptr ptr, ptr %items, i64 %q
  %tuple.one = load ptr, ptr %p.item
  %p.w.item = getelementptr i64, ptr %w.items, i64 %q
  %w.item = load i64, ptr %p.w.item
  %item.same = call i1 @same_int(ptr %table, ptr %tuple.one, i64 %w.item)
  br i1 %item.same, label %tuple.same, label %other
tuple.same:
  %q.next = add i64 %q, 1
  br label %tuple.next
an.array:
  %is.array = icmp eq ptr %type, %array
  br i1 %is.array, label %typed, label %other
typed:
  %fields = getelementptr i8, ptr %obj, i64 OFFSET
  %p.descr = getelementptr i64, ptr %fields, i64 5
  %descr = load i64, ptr %p.descr
  %p.nd = getelementptr i64, ptr %fields, i64 1
  %nd.32 = load i32, ptr %p.nd
  %nd = sext i32 %nd.32 to i64
  %p.rank = getelementptr i64, ptr %at, i64 2
  %rank = load i64, ptr %p.rank
  %same.type = icmp eq i64 %descr, %is
  %same.rank = icmp eq i64 %nd, %rank
  %alike = and i1 %same.type, %same.rank
  br i1 %alike, label %shaped, label %other
shaped:
  %p.dims = getelementptr i64, ptr %fields, i64 2
  %dims = load ptr, ptr %p.dims
  %p.steps = getelementptr i64, ptr %fields, i64 3
  %strides = load ptr, ptr %p.steps
  %w.dims = getelementptr i64, ptr %at, i64 3
  %w.strides = getelementptr i64, ptr %w.dims, i64 %rank
  br label %dim
dim:
  %d = phi i64 [ 0, %shaped ], [ %d.next, %dim.same ]
  %d.done = icmp sge i64 %d, %rank
  br i1 %d.done, label %take, label %dim.look
dim.look:
  %p.n = getelementptr i64, ptr %dims, i64 %d
  %n = load i64, ptr %p.n
  %p.wn = getelementptr i64, ptr %w.dims, i64 %d
  %wn = load i64, ptr %p.wn
  %p.s = getelementptr i64, ptr %strides, i64 %d
  %s = load i64, ptr %p.s
  %p.ws = getelementptr i64, ptr %w.strides, i64 %d
  %ws = load i64, ptr %p.ws
  %n.same = icmp eq i64 %n, %wn
  %s.same = icmp eq i64 %s, %ws
  %both = and i1 %n.same, %s.same
  br i1 %both, label %dim.same, label %other
dim.same:
  %d.next = add i64 %d, 1
  br label %dim
take:
  %p.slot = getelementptr ptr, ptr %pool, i64 %given
  store ptr %obj, ptr %p.slot
  %given.more = add i64 %given, 1
  %at.array = getelementptr i64, ptr %w.strides, i64 %rank
  br label %fits
fits:
  %at.next = phi ptr [ %at.same, %same ], [ %at.float, %bits ], [ %at.array, %take ], [ %at.int, %an.int ],
    [ %at.tuple, %tuple.next ]
  %given.next = phi i64 [ %given, %same ], [ %given, %bits ], [ %given.more, %take ], [ %given, %an.int ],
    [ %given, %tuple.next ]
  %a.next = add i64 %a, 1
  br label %argument
found:
  %later = icmp sgt i64 %i, 0
  br i1 %later, label %forward, label %make
forward:
  %i.before = sub i64 %i, 1
  %p.before = getelementptr i64, ptr %launches, i64 %i.before
  %before = load ptr, ptr %p.before
  store ptr %plan, ptr %p.before
  store ptr %before, ptr %p.plan
  br label %make
make:
  %p.nmade = getelementptr i64, ptr %plan, i64 1
  %nmade = load i64, ptr %p.nmade
  %p.nsteps = getelementptr i64, ptr %plan, i64 2
  %nsteps = load i64, ptr %p.nsteps
  %p.nresults = getelementptr i64, ptr %plan, i64 3
  %nresults = load i64, ptr %p.nresults
  %empty = load ptr, ptr %p.empty
  %news = getelementptr ptr, ptr %pool, i64 %given
  br label %new
new:
  %m = phi i64 [ 0, %make ], [ %m.next, %new.kept ]
  %mat = phi ptr [ %at, %make ], [ %mat.next, %new.kept ]
  %m.done = icmp sge i64 %m, %nmade
  br i1 %m.done, label %launch, label %new.make
new.make:
  %m.type = load ptr, ptr %mat
  %p.m.rank = getelementptr i64, ptr %mat, i64 1
  %m.rank = load i64, ptr %p.m.rank
  %m.dims = getelementptr i64, ptr %mat, i64 2
  call void %incref(ptr %m.type)
  %m.rank.32 = trunc i64 %m.rank to i32
  %fresh = call ptr %empty(i32 %m.rank.32, ptr %m.dims, ptr %m.type, i32 0)
  %refused = icmp eq ptr %fresh, null
  br i1 %refused, label %drop, label %new.kept
new.kept:
  %p.fresh = getelementptr ptr, ptr %news, i64 %m
  store ptr %fresh, ptr %p.fresh
  %mat.next = getelementptr i64, ptr %m.dims, i64 %m.rank
  %m.next = add i64 %m, 1
  br label %new
drop:
  %e = phi i64 [ 0, %new.make ], [ %e.next, %drop.one ]
  %e.done = icmp sge i64 %e, %m
  br i1 %e.done, label %failed, label %drop.one
drop.one:
  %p.e = getelementptr ptr, ptr %news, i64 %e
  %dropped = load ptr, ptr %p.e
  call void %decref(ptr %dropped)
  %e.next = add i64 %e, 1
  br label %drop
failed:
  ret ptr null
launch:
  %l = phi i64 [ 0, %new ], [ %l.next, %ran ]
  %lat = phi ptr [ %mat, %new ], [ %lat.next, %ran ]
  %l.done = icmp sge i64 %l, %nsteps
  br i1 %l.done, label %results, label %fill
fill:
  %code = load ptr, ptr %lat
  %p.much = getelementptr i64, ptr %lat, i64 1
  %much = load i64, ptr %p.much
  %p.npicks = getelementptr i64, ptr %lat, i64 2
  %npicks = load i64, ptr %p.npicks
  %p.nwords = getelementptr i64, ptr %lat, i64 3
  %nwords = load i64, ptr %p.nwords
  %p.pieces = getelementptr i64, ptr %lat, i64 4
  %pieces = load i64, ptr %p.pieces
  %picks = getelementptr i64, ptr %lat, i64 5
  %words = getelementptr i64, ptr %picks, i64 %npicks
  br label %word
word:
  %k = phi i64 [ 0, %fill ], [ %k.next, %word.next ]
  %k.done = icmp sge i64 %k, %npicks
  br i1 %k.done, label %run, label %word.look
word.look:
  %p.pick = getelementptr i64, ptr %picks, i64 %k
  %pick = load i64, ptr %p.pick
  %k.next = add i64 %k, 1
  %always = icmp slt i64 %pick, 0
  br i1 %always, label %word.next, label %word.fill
word.fill:
  %p.picked = getelementptr ptr, ptr %pool, i64 %pick
  %picked = load ptr, ptr %p.picked
  %p.word = getelementptr i64, ptr %words, i64 %k
  store ptr %picked, ptr %p.word
  br label %word.next
word.next:
  br label %word
run:
  %p.team = getelementptr i64, ptr %table, i64 16
  %team = load ptr, ptr %p.team
  %members = load i64, ptr %team
  %large = icmp sgt i64 %pieces, 0
  %threads = icmp sgt i64 %members, 1
  %share = and i1 %large, %threads
  br i1 %share, label %shared, label %alone
alone:
  call void %code(ptr %words, i64 0, i64 %much)
  br label %ran
shared:
  call void @split(ptr %team, ptr %code, ptr %words, i64 %much, i64 %members, i64 %pieces)
  br label %ran
ran:
  %lat.next = getelementptr i64, ptr %words, i64 %nwords
  %l.next = add i64 %l, 1
  br label %launch
results:
  %p.refusal = getelementptr i64, ptr %plan, i64 5
  %refusal = load i64, ptr %p.refusal
  %sure = icmp slt i64 %refusal, 0
  br i1 %sure, label %kept.ones, label %ask.refusal
ask.refusal:
  %p.refusing = getelementptr ptr, ptr %pool, i64 %refusal
  %refusing = load ptr, ptr %p.refusing
  %of.refusing = getelementptr i8, ptr %refusing, i64 OFFSET
  %refusing.data = load ptr, ptr %of.refusing
  %refusing.word = load i32, ptr %refusing.data
  %accepted = icmp eq i32 %refusing.word, 0
  br i1 %accepted, label %kept.ones, label %refuse
refuse:
  %u = phi i64 [ 0, %ask.refusal ], [ %u.next, %refuse.drop ]
  %u.done = icmp sge i64 %u, %nmade
  br i1 %u.done, label %nothing, label %refuse.drop
refuse.drop:
  %p.u = getelementptr ptr, ptr %news, i64 %u
  %useless = load ptr, ptr %p.u
  call void %decref(ptr %useless)
  %u.next = add i64 %u, 1
  br label %refuse
kept.ones:
  %single = icmp eq i64 %nresults, 0
  %kept = select i1 %single, i64 1, i64 %nresults
  br label %temporary
temporary:
  %t = phi i64 [ %kept, %kept.ones ], [ %t.next, %temporary.drop ]
  %t.done = icmp sge i64 %t, %nmade
  br i1 %t.done, label %give, label %temporary.drop
temporary.drop:
  %p.t = getelementptr ptr, ptr %news, i64 %t
  %temp = load ptr, ptr %p.t
  call void %decref(ptr %temp)
  %t.next = add i64 %t, 1
  br label %temporary
give:
  br i1 %single, label %one, label %several
one:
  %result = load ptr, ptr %news
  ret ptr %result
several:
  %new.tuple = load ptr, ptr %p.tuple
  %set = load ptr, ptr %p.set
  %tuple = call ptr %new.tuple(i64 %nresults)
  %no.tuple = icmp eq ptr %tuple, null
  br label %item
item:
  %r = phi i64 [ 0, %several ], [ %r.next, %item.next ]
  %r.done = icmp sge i64 %r, %nresults
  br i1 %r.done, label %whole, label %item.take
item.take:
  %p.r = getelementptr ptr, ptr %news, i64 %r
  %one.result = load ptr, ptr %p.r
  br i1 %no.tuple, label %item.drop, label %item.set
item.drop:
  call void %decref(ptr %one.result)
  br label %item.next
item.set:
  %ignored = call i32 %set(ptr %tuple, i64 %r, ptr %one.result)
  br label %item.next
item.next:
  %r.next = add i64 %r, 1
  br label %item
whole:
  ret ptr %tuple
miss:
  %left = load i64, ptr %p.left
  %less = sub i64 %left, 1
  store i64 %less, ptr %p.left
  %wait = icmp sgt i64 %less, 0
  br i1 %wait, label %nothing, label %ask
nothing:
  %not = load ptr, ptr %p.not
  call void %incref(ptr %not)
  ret ptr %not
ask:
  %every = load i64, ptr %p.every
  store i64 %every, ptr %p.left
  %offer = load ptr, ptr %p.offer
  %vectorcall = load ptr, ptr %p.call
  %answer = call ptr %vectorcall(ptr %offer, ptr %args, i64 %nargs, ptr null)
  ret ptr %answer
}

define internal i1 @same_int(ptr %table, ptr %obj, i64 %want) alwaysinline {
  %overflow = alloca i32
  %p.long = getelementptr i64, ptr %table, i64 14
  %long = load ptr, ptr %p.long
  %p.type = getelementptr i8, ptr %obj, i64 TYPE
  %type = load ptr, ptr %p.type
  %is.int = icmp eq ptr %type, %long
  br i1 %is.int, label %convert, label %differs
convert:
  %p.convert = getelementptr i64, ptr %table, i64 13
  %converter = load ptr, ptr %p.convert
  %value = call i64 %converter(ptr %obj, ptr %overflow)
  %large = load i32, ptr %overflow
  %whole = icmp eq i32 %large, 0
  %equal = icmp eq i64 %value, %want
  %same = and i1 %whole, %equal
  ret i1 %same
differs:
  ret i1 0
}

"""


class _Method(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("code", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


def readable() -> bool:
    """Return whether such functions can be made here, and may read what they are given."""
    return processor.available() and cpython.readable("calls")


class Direct:
    """Kept launches, and `function`, which runs the one that fits its arguments.

    offer(*args): called with some arguments for which there is none; what it returns is the call's result.
    """

    def __init__(self, name: str, offer: Callable[..., Any], every: int = EVERY) -> None:
        api = ctypes.pythonapi
        here: Callable[[Any], int] = lambda function: ctypes.cast(function, ctypes.c_void_p).value or 0
        self.table = np.zeros(_HEAD + LAUNCHES, np.int64)
        self.retained: list[Any] = [offer]
        self.table[1:_HEAD] = [
            cpython.numpy_function(cpython.EMPTY),
            here(api.Py_IncRef),
            here(api.Py_DecRef),
            here(api.PyTuple_New),
            here(api.PyTuple_SetItem),
            id(NotImplemented),
            id(np.ndarray),
            id(float),
            every,
            id(offer),
            here(api.PyObject_Vectorcall),
            every,
            here(api.PyLong_AsLongLongAndOverflow),
            id(int),
            id(tuple),
            team.shared.ctypes.data,
        ]
        words = dict(ARRAYS=ARRAYS, HEAD=_HEAD, OFFSET=cpython.HEAD, TYPE=cpython.TYPE)
        text = _TEXT + team.SPLIT
        for word, value in words.items():
            text = text.replace(word, str(value))
        method = _Method(name.encode(), compiler.address(compiler.linked(text)), _FASTCALL, None)
        make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
            ("PyCFunction_NewEx", api)
        )
        self.retained.append(method)
        self.function = make(ctypes.addressof(method), self.table, None)
        _all.append(self)  # the builtin function may outlive whoever holds this

    def add(
        self,
        args: Sequence[Any],
        made: Sequence[tuple[Sequence[int], Any]],
        steps: Sequence[tuple[int, int, Sequence[int], bytes, int]],
        results: int,
        refusal: int = -1,
        tables: Sequence[Any] = (),
    ) -> int:
        """Keep a launch: what `remove` calls it; 0 where there is no room for such.

        args: as the calls will have them.  made: (shape, dtype) of new arrays, of which the first `results` are
        returned in a tuple, or the very first where that is 0.  steps: (address of the code, count, arrays, words,
        pieces for each thread or 0) of each kernel: the first of the words are the arrays', numbered as they stand in
        args, then in made; -1 where the word is the address of an array that is always the same, one of `tables`.
        refusal: the number of a new int32 array; where its first element is not 0, the call is NotImplemented.
        """
        given = [a for a in args if a.__class__ is np.ndarray]
        if len(args) > ARGUMENTS or len(given) + len(made) > ARRAYS or len(self.retained) >= MOST:
            return 0
        words = [len(args), len(made), len(steps), results, len(given), refusal]
        for a in args:
            if a.__class__ is np.ndarray:
                words += [_ARRAY, id(a.dtype), a.ndim, *a.shape, *a.strides]
            elif a.__class__ is float:
                words += [_FLOAT, struct.unpack("<q", struct.pack("<d", a))[0]]
            elif a.__class__ is int and abs(a) < 1 << 62:
                words += [_INT, a]
            elif a.__class__ is tuple and all(n.__class__ is int and abs(n) < 1 << 62 for n in a):
                words += [_INTS, len(a), *a]
            else:
                words += [_OBJECT, id(a)]
        for shape, dtype in made:
            words += [id(dtype), len(shape), *shape]
        for code, count, picks, packed, pieces in steps:
            rest = struct.unpack(f"<{len(packed) // 8}q", packed)
            words += [code, count, len(picks), len(rest), pieces, *picks, *rest]
            if pieces:
                team.start()
        launch = np.array(words, np.int64)
        held = [a.dtype if a.__class__ is np.ndarray else a for a in args]
        self.retained.append((launch, held, [dtype for _, dtype in made], tables))
        count = int(self.table[0])
        at = min(count, LAUNCHES - 1)
        self.table[_HEAD + at] = launch.ctypes.data
        self.table[0] = at + 1
        return launch.ctypes.data

    def remove(self, launch: int) -> None:
        """Look for a launch no more."""
        count = int(self.table[0])
        rest = [a for a in self.table[_HEAD : _HEAD + count].tolist() if a != launch]
        self.table[_HEAD : _HEAD + len(rest)] = rest
        self.table[0] = len(rest)


_all: list[Direct] = []
