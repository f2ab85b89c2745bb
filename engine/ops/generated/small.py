"""Small calls of ops as direct launches: Note [Direct calls] in engine/kernels/direct.py.

A call that comes often enough is run by its generated kernel once, compared with the route it has without, and timed
against that; if it is right and faster, the launch is retained.  Larger calls are left to `guard.guarded`, which
releases the interpreter's lock.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from engine.backends.cpu.fast import fast
from engine.core import dtypes, layouts
from engine.core.lru import LRU
from engine.core.trials import Standing
from engine.dispatch import Op
from engine.kernels import compiler, cpu, direct
from engine.kernels.form import FormError
from engine.ops import generated
from engine.ops.generated import comparison, launch, replay

__all__ = ["function_for", "function_of"]

OFFERS = 16  # of the same call, each one of `direct.EVERY`, before it is tried; fewer of many elements
OPERATIONS = 1 << 21  # of a launch, as `cpu.operations` counts them: some 10 to 30 us
SOON = 1 << 14  # elements for which a call counts as one more
FEW = 1 << 15  # elements of operands up to which an op's own code runs however large the result is
MOST = OPERATIONS << 2  # operations of a launch for those
MANY = 4096  # kinds of calls that are counted
_REFUSED = 1 << 30
_PLAIN = (float, int, bool, str, type(None), tuple, dtypes.dtype, layouts.memory_format)


def function_of(record: Op, present: Callable[..., Any]) -> Callable[..., Any] | None:
    """The builtin function that an op's calls try first; None where there is none.

    present(np, *args, **kwargs): the route without.  The function takes the arguments one after the other, keyword-only
    ones last, of a list its elements; it returns NotImplemented for what is left to that route.
    """
    if not direct.readable():
        return None
    variant = generated.variant_of(record, small=True)
    count = len(record.positional)
    names = record.keyword
    if record.lists:  # of one list, which comes first
        after = len(record.params) - 1
        plain = lambda xp, *args: variant(xp, list(args[: len(args) - after]), *args[len(args) - after :])
        there = lambda *args: present(np, list(args[: len(args) - after]), *args[len(args) - after :])
    else:
        plain = lambda xp, *args: variant(xp, *args[:count], **dict(zip(names, args[count:])))
        there = lambda *args: present(np, *args[:count], **dict(zip(names, args[count:])))
    return function_for(record.name, plain, there, [record.params.index(p) for p in record.large_by])


def function_for(
    name: str, plain: Callable[..., Any], there: Callable[..., Any], sized: Sequence[int] = ()
) -> Callable[..., Any] | None:
    """The builtin function for calls that `plain` does by launches alone: plain(array module, *args).

    there(*args): the route without.  sized: the numbers of the operands whose elements are counted, which are then
    multiplied with each other; by default all are counted.
    """
    if not direct.readable():
        return None
    seen: LRU[Any, int] = LRU(MANY)  # calls that were offered
    lost: LRU[Any, int] = LRU(MANY)  # trials in which the launch was slower

    def offer(*args: Any) -> Any:
        size, parts = 0, []
        for place, a in enumerate(args):
            if a.__class__ is np.ndarray:
                size = size if sized and place not in sized else max(size, a.size)
                parts.append((a.dtype, a.shape, a.strides))
            elif a.__class__ in _PLAIN:
                parts.append((a.__class__, a or str(a)))  # -0.0 equals 0.0, and is another number
            else:
                return NotImplemented
        if not 0 < size <= OPERATIONS:
            return NotImplemented
        key = tuple(parts)
        try:
            calls = (seen.get(key) or 0) + 1
        except TypeError:  # a tuple of what cannot be a key
            return NotImplemented
        if calls > OFFERS:
            return NotImplemented
        trusted = launch.trials.trusted
        calls += _more(args)
        tried = calls >= OFFERS or trusted
        seen[key] = _REFUSED if tried else calls
        if not tried:
            return NotImplemented
        result, slower = _compiled(compiled, name, plain, there, args, len(sized) > 1)
        if slower:
            trials = lost[key] = (lost.get(key) or 0) + 1
            if trials < Standing.TRIALS:  # the machine may have been busy
                seen[key] = 0
        return result

    try:
        compiled = direct.Direct(name, offer, 1 if launch.trials.trusted else direct.EVERY)
    except Exception as error:  # whatever llvmlite says of this machine
        launch.warn(f"generated code is not used here: {type(error).__name__}: {error}")
        return None
    return compiled.function


def _more(args: tuple[Any, ...]) -> int:
    """How many more calls one counts as, of many elements or of few that give a result of many."""
    shapes = [a.shape for a in args if a.__class__ is np.ndarray]
    count = max(map(prod, shapes))
    if len(shapes) == 2 and shapes[0] != shapes[1]:
        with contextlib.suppress(ValueError):
            count = max(count, prod(np.broadcast_shapes(*shapes)))
    return count // SOON


def _compiled(
    compiled: direct.Direct,
    name: str,
    variant: Callable[..., Any],
    there: Callable[..., Any],
    args: tuple[Any, ...],
    multiplies: bool,
) -> tuple[Any, bool]:
    """Try a call, and keep its launch if that is right and faster; the call's result in any case, and whether the
    launch was slower."""
    trials = launch.trials
    given, args = args, _flat(args)
    want = NotImplemented if trials.trusted else there(*args)
    trials.fresh.clear()
    try:
        with trials.worth_compiling(direct=True):
            watched = replay.watched(variant, fast, args, {})
    except (launch.Unfit, FormError):
        watched = None
    entries = list(trials.fresh)
    trials.fresh.clear()
    if any(a.strides != b.strides for a, b in zip(args, given) if a.__class__ is np.ndarray):
        return want, False
    found = _add(compiled, args, watched) if watched is not None else 0
    if not found:
        return want, False
    if trials.trusted:
        return compiled.function(*args), False
    arrays = [a for a in args if a.__class__ is np.ndarray]
    largest = comparison.largest_of(arrays, multiplies)
    what = comparison.difference(want, compiled.function(*args), largest, max(a.size for a in arrays))
    right = launch.proven(name, entries, what)
    slower = right and launch.slower(lambda: compiled.function(*args), lambda: there(*args), 1.0, entries)
    if slower or not right:
        compiled.remove(found)
    return want, slower


def _flat(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments, with a copy of an array that begins where another does: what is seen of x * x must serve x * y."""
    begins: set[int] = set()
    found = []
    for a in args:
        if a.__class__ is np.ndarray:
            a = _twin(a) if (begin := a.__array_interface__["data"][0]) in begins else a
            begins.add(begin)
        found.append(a)
    return tuple(found)


def _twin(array: Any) -> Any:
    """A copy of the same strides."""
    if not array.size or min(array.strides, default=0) < 0:
        return array.copy("K")
    span = sum([(n - 1) * s for n, s in zip(array.shape, array.strides)]) + array.itemsize
    made: Any = np.ndarray(array.shape, array.dtype, np.empty(span, np.uint8), 0, array.strides)
    made[...] = array
    return made


def _add(compiled: direct.Direct, args: tuple[Any, ...], watched: Any) -> int:
    """Keep what `replay.watched` saw; 0 where it is too much for a direct call."""
    given, steps, shapes, specs, several, _, refusals, tables = watched
    few = all([a.size < FEW for a in args if a.__class__ is np.ndarray]) and len(steps) == len(specs) == 1
    few = few and prod(specs[0][0]) >= FEW  # a product of elements with each other
    if not steps or len(refusals) > 1 or any(s[4] * s[5] * s[7] > (MOST if few else OPERATIONS) for s in steps):
        return 0
    first = [n - len(given) for n, _ in shapes]
    if len(set(first)) != len(first):
        return 0
    order = first + [n for n in range(len(specs)) if n not in first]  # results, then what is dropped
    place = {len(given) + n: len(given) + at for at, n in enumerate(order)}
    fixed = {len(given) + len(specs) + n: id(table) for n, table in enumerate(tables)}
    place |= dict.fromkeys(fixed, -1)
    made = [
        (shapes[at][1] if at < len(first) and shapes[at][1] is not None else specs[n][0], specs[n][1])
        for at, n in enumerate(order)
    ]
    if any(np.empty(shape, dtype).nbytes >= replay.FROM_ALLOCATOR for shape, dtype in made) and not few:
        return 0  # whose memory is the allocator's
    launches = []
    for pack, entry, picks, rest, count, _, shared, _ in steps:
        packed = pack(*[fixed.get(p, 0) for p in picks], *rest)
        pieces = 0 if shared is None else cpu.PIECES
        launches.append((compiler.address(entry), count, [place.get(p, p) for p in picks], packed, pieces))
    refusal = place.get(refusals[0], refusals[0]) if refusals else -1
    return compiled.add(args, made, launches, len(first) if several else 0, refusal, tables)
