"""An optimizer's step on the CPU: its update in `engine/optim` as one loop over each parameter.

The numbers (learning rate, step) are parameters of the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engine.backends.cpu import threads
from engine.kernels import cpu, team
from engine.kernels.elementwise import Recorded, recorded, type_is_number
from engine.kernels.form import FormError, compute_type
from engine.kernels.trace import Traced, Untraceable, type_of
from engine.ops.generated import comparison, launch

Job = tuple[Sequence[Any], tuple[Any, ...]]
GRADIENT = 1  # its place among the arrays of a parameter: read, not written
PIECE = 1 << 16  # elements that a thread takes at once
MOST = 16  # programs of one update
_count: dict[Any, int] = {}
_programs: dict[Any, list[tuple[Recorded | None, launch.Entry]]] = {}


def run(kernel: Callable[..., None], jobs: Sequence[Job], temporaries: int, plain: Callable[[Job], None]) -> list[Job]:
    """Update what has generated code; the jobs that are left.

    jobs: (flat arrays: parameter, gradient, state..., numbers).  plain(job): the route there was, to be compared with.
    """
    kinds: dict[Any, list[Sequence[Any]]] = {}
    left = []
    for arrays, numbers in jobs:
        try:
            kinds.setdefault((tuple([a.dtype for a in arrays]), numbers), []).append(arrays)
        except TypeError:  # numbers that are tensors
            left.append((arrays, numbers))
    for (dtypes, numbers), group in kinds.items():
        try:
            launches = _launches(kernel, dtypes, numbers, temporaries, group, plain)
        except (launch.Unfit, FormError):
            left += [(arrays, numbers) for arrays in group]
            continue
        _run(*launches)
    return left


def _launches(
    kernel: Any, dtypes: Any, numbers: Any, temporaries: int, group: Sequence[Sequence[Any]], plain: Any
) -> tuple[cpu.Built, list[tuple[bytes, int]]]:
    code, entry = _program(kernel, dtypes, numbers, temporaries)
    if code is None:
        raise launch.Unfit("an update that cannot be recorded")
    launch.trials.paid = False
    fresh = launch.trials.fresh
    fresh.clear()
    work = sum([arrays[0].size for arrays in group])
    built = launch.ready(entry, work, lambda: cpu.build(code.kernel))
    passed = _parameters(numbers)
    rest = [of(passed) for _, of in code.numbers]
    pack = built.pack
    if fresh:
        fresh.clear()
        if not _proven(built, entry, rest, max(group, key=lambda arrays: arrays[0].size), numbers, plain):
            raise launch.Unfit("switched off")
    return built, [(pack(*map(id, arrays), *rest), arrays[0].size) for arrays in group]


def _run(built: cpu.Built, launches: list[tuple[bytes, int]]) -> None:
    entry = built.entry
    if sum([size for _, size in launches]) <= PIECE or threads.get_num_threads() == 1:
        for args, size in launches:
            entry(args, 0, size)
        return
    pieces = [(args, at, min(at + PIECE, size)) for args, size in launches for at in range(0, size, PIECE)]
    if not team.run(built.address, pieces):
        threads.run(lambda piece: entry(*piece), pieces)


def _program(kernel: Any, dtypes: Any, numbers: Any, temporaries: int) -> tuple[Recorded | None, launch.Entry]:
    fixed = tuple([type(n) if type_is_number(n) else n for n in numbers])
    family = kernel, dtypes, temporaries
    if _count.get(family, 0) > MOST:  # a number that is another each time leads to other code
        return None, launch.Entry()
    known = _programs.setdefault((*family, fixed), [])
    passed = _parameters(numbers)
    for code, entry in known:
        if code is None or code.fits(passed):
            return code, entry
    try:
        code = _recorded(kernel, dtypes, numbers, temporaries)
    except (Untraceable, FormError, AttributeError, TypeError):
        code = None
    known.append((code, launch.Entry()))
    _count[family] = _count.get(family, 0) + 1
    return known[-1]


def _parameters(numbers: Sequence[Any]) -> list[Any]:
    """Return the numbers that are parameters of the kernel; the others (flags) are compiled into it."""
    return [n for n in numbers if type_is_number(n)]


def _recorded(kernel: Any, dtypes: Sequence[Any], numbers: Sequence[Any], temporaries: int) -> Recorded:
    count = len(dtypes)

    def code(xp: Any, *given: Any) -> None:
        arrays = given[:count]
        # 16-bit floats are computed in float32 and rounded once
        wide = [Traced(a.trace, a.value, np.float32) if a.dtype.itemsize == 2 else a for a in arrays]
        kind = wide[0].dtype
        zero = wide[0].trace.kernel.constant(0, compute_type(type_of(kind)))
        scratch = [Traced(wide[0].trace, zero, kind) for _ in range(temporaries)]
        kernel(xp, scratch, given[count:], *wide)
        for a, w in zip(arrays, wide):
            a.value = w.value

    written = [n for n in range(count) if n != GRADIENT]
    return recorded("update", code, [*dtypes, *numbers], {}, ["dense"] * count, True, written=written)


def _proven(built: cpu.Built, entry: launch.Entry, rest: Any, arrays: Any, numbers: Any, plain: Any) -> bool:
    """Return whether the kernel does to a copy of a parameter and its state what the route there was does, and not
    slower.
    """
    few = [a[: 1 << 17] for a in arrays]
    mine, there = ([a.copy() for a in few] for _ in range(2))
    size = few[0].size
    again = lambda: built.entry(built.pack(*map(id, mine), *rest), 0, size)
    again()
    plain((there, numbers))
    largest = max([comparison.size_of(a) for a in few])
    if not launch.proven("an optimizer's step", [entry], comparison.difference(tuple(there), tuple(mine), largest)):
        return False
    if launch.slower(again, lambda: plain((there, numbers)), of=[entry]):
        entry.disabled, entry.built, entry.proven = True, None, False
        return False
    return True
