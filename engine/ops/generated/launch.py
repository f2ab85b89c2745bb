"""Launches of generated kernels on the CPU: which are worth compiling, which have proved themselves.

engine/kernels/README.md says when a kernel is compiled, compared and dropped.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from engine.core.lru import LRU
from engine.core.trials import Standing
from engine.core.trials import slower as slower  # for those who launch by these rules, too
from engine.kernels import cpu, processor
from engine.kernels.elementwise import Layout
from engine.kernels.form import Array, FormError, Kernel

PAYS = 1 << 19
MUCH = 32  # operations
CALLS = 32
MANY = 4096  # kinds of calls that are remembered
SHORT = 48  # places of a row up to which masked lanes cost less than places one by one
COLUMNS = 8  # rows side by side from which they are worth a vector
LINE = 128  # elements of a line of an elementwise kernel up to which its code is for lines of that many


class Unfit(Exception):
    """Operands that are left to the route there was: why, and the standing of the kernel where that is the reason."""

    def __str__(self) -> str:
        return ": ".join(map(str, self.args))


class Entry(Standing):
    """A kernel for operands of one kind and magnitude: its calls so far, and the verdict."""

    __slots__ = ("built", "calls", "work")

    def __init__(self) -> None:
        super().__init__()
        self.built: cpu.Built | None = None
        self.work = self.calls = 0

    def lost(self) -> None:
        """Note that it was slower in a trial; the code of one that is disabled is not needed any more."""
        super().lost()
        if self.disabled:
            self.built = None


class _Trials(threading.local):
    def __init__(self) -> None:
        self.fresh: list[Entry] = []  # used in the present call, not proven yet
        self.seen: list[Any] | None = None  # launches, while a call is watched
        self.refusals: list[Any] = []  # arrays of such a call, which must be 0
        self.constants: list[Any] = []  # arrays of such a call, which are no operands and never change
        self.closed = False  # a kernel of this call is disabled
        self.paid = False  # another kernel of the same call was worth compiling: so are the rest
        self.light = False  # of this call: numpy takes one pass, so that calls alone do not pay
        self.direct = False  # of this call: it is tried as a direct one
        self.trusted = processor.always()  # nothing is compared, nothing waits

    def begin(self, light: bool) -> None:
        """Begin a call, of which nothing has run yet."""
        self.fresh.clear()
        self.paid = self.closed = False
        self.light = light

    @contextlib.contextmanager
    def worth_compiling(self, direct: bool = False) -> Iterator[None]:
        """Within it every kernel is; direct: for a launch of its own, so that also one is that was slower in others."""
        before, self.paid, self.direct = (self.paid, self.direct), True, direct
        try:
            yield
        finally:
            self.paid, self.direct = before

    @contextlib.contextmanager
    def watching(self) -> Iterator[list[Any]]:
        """Within it launches are put into the list; `refusals` and `constants` are those of this call."""
        self.refusals.clear()
        self.constants.clear()
        self.seen = seen = []
        try:
            yield seen
        finally:
            self.seen = None


trials = _Trials()


def ready(entry: Entry, work: int, make: Callable[[], cpu.Built]) -> cpu.Built:
    """The kernel of an entry.  Raises Unfit where it is not worth compiling yet, or is disabled."""
    if not (trials.direct and entry.slower_trials):  # what is slower through Python may yet be the faster
        if entry.rest:
            entry.rest -= 1
            raise Unfit("resting", entry)
        if entry.disabled:
            trials.closed = True
            raise Unfit("switched off", entry)
    built = entry.built
    if built is None:
        entry.work += work
        entry.calls += not trials.light
        if entry.work < PAYS and entry.calls < CALLS and not (trials.paid or trials.trusted):
            raise Unfit("too little work for a compiler")
        try:
            built = entry.built = make()
        except FormError:
            entry.disabled = trials.closed = True
            raise Unfit("no such code") from None
        except Exception as error:  # whatever llvmlite says of this machine
            entry.disabled = True
            warn(f"generated code is not used here: {type(error).__name__}: {error}")
            raise Unfit("no code") from error
    if not entry.proven and not trials.trusted:
        trials.fresh.append(entry)
    trials.paid = True
    return built


def magnitude(count: int) -> int:
    """Sizes that are alike for the choice of a route: within a factor of 8."""
    return count.bit_length() // 3


_warned: set[str] = set()


def warn(text: str) -> None:
    if text not in _warned:
        _warned.add(text)
        warnings.warn(text, RuntimeWarning, stacklevel=5)


def proven(name: str, entries: Sequence[Entry], what: str | None) -> bool:
    """Mark kernels as proven; where something differs (`what`), as disabled, with a warning."""
    for entry in entries:
        entry.proven = what is None
        if what is not None:
            entry.disabled, entry.built = True, None
    if what is not None:
        warn(
            f"the generated kernel of {name} is switched off: {what}.  Please report this with the output of `hub env`."
        )
    return what is None


# --- rows


_rows: LRU[Any, Any] = LRU(MANY)
_entries: dict[Any, Entry] = {}


def rows(
    name: str,
    write: Callable[[Any], None],
    arrays: Sequence[Any],
    results: int,
    row_shape: Sequence[int],
    place_shape: Sequence[int],
    strides: Sequence[tuple[Sequence[int], Sequence[int]]],
    numbers: Sequence[tuple[str, Any]] = (),
    key: Any = (),
) -> None:
    """Run a row kernel; as `engine.ops.cuda._rows.run`."""
    kinds = tuple([a.dtype for a in arrays])
    full = name, key, kinds, tuple(row_shape), tuple(place_shape), tuple(strides), tuple([t for t, _ in numbers])
    found = _rows.young.get(full) or _rows.get(full)
    if found is None:
        found = _rows[full] = _row_plan(name, write, kinds, results, row_shape, place_shape, strides, numbers, key)
    entry, make, passed, count, width = found
    built = ready(entry, count * width, make)
    given = [a if isinstance(a, np.ndarray) else a.view() for a in arrays]
    launched(built, given, [*passed, *[v for _, v in numbers]], count, width)


def _row_plan(
    name: str,
    write: Any,
    kinds: Any,
    results: int,
    row_shape: Any,
    place_shape: Any,
    strides: Any,
    numbers: Any,
    key: Any,
) -> tuple[Any, ...]:
    from engine.kernels import rows as forms
    from engine.kernels.elementwise import collapsed

    by_row = collapsed(row_shape, [r for r, _ in strides])
    by_place = collapsed(place_shape, [p for _, p in strides])
    count, width = by_row.count, by_place.count
    columns = by_row.strides[0][-1] == 1 != by_place.strides[0][-1] and by_row.sizes[-1] >= COLUMNS
    passed = [*by_row.numbers(), *by_place.numbers(), width]
    ones = tuple([n == 1 for n in passed])
    types = tuple([t for t, _ in numbers])
    short = width <= SHORT
    kind = name, key, kinds, by_row.classes, by_place.classes, ones, columns, types, magnitude(count * width), short
    entry = _entries.setdefault(kind, Entry())

    def make() -> cpu.Built:
        made = forms.Rows("rows", kinds, results, by_row.classes, by_place.classes, types)
        write(made)
        return cpu.build(made.kernel, columns=columns, known=known(made.kernel, passed), short=short)

    return entry, make, passed, count, width


def known(kernel: Kernel, passed: Sequence[int], most: int = 1) -> dict[str, int]:
    """The parameters that are 1, or small: LLVM sees that neighbours lie side by side, or how far apart."""
    names = [p.name for p in kernel.parameters if not isinstance(p, Array)]
    return {name: value for name, value in zip(names, passed) if value == 1 or 1 < value <= most}


# --- elements


def line_of(layout: Layout) -> dict[str, int]:
    """The size of a layout's fastest dim, by the name of `elementwise.Walk`, where code is written for it."""
    last = len(layout.sizes) - 1
    return {f"n{last}": layout.sizes[-1]} if last and layout.sizes[-1] <= LINE else {}


def costs(kernel: Kernel, layout: Layout, fixed: Mapping[str, int]) -> tuple[int, int]:
    """The operations of an element, and how many elements' work one is with its share of the loop over its line."""
    own = cpu.operations(kernel, fixed)
    return own, 1 + cpu.line_operations(kernel) // (layout.sizes[-1] * own)


def elements(plan: Any, arrays: Sequence[Any], numbers: Sequence[Any]) -> None:
    """Run a kernel recorded from array code over the layout of a plan (`engine.ops.cuda.elementwise`)."""
    code, layout = plan.code, plan.layout
    found = plan.host
    if found is None:
        passed, count = layout.numbers(), layout.count
        fixed = known(code.kernel, passed) | line_of(layout)
        own, each = costs(code.kernel, layout, fixed)
        entry = _entries.setdefault((code.kernel, magnitude(count)), Entry())
        found = plan.host = entry, passed, fixed, count, each, count * each * own // MUCH
    entry, passed, fixed, count, each, work = found
    built = ready(entry, work if trials.light else count, lambda: cpu.build(code.kernel, known=fixed))
    launched(built, arrays, [*passed, *[of(numbers) for _, of in code.numbers]], count, each)


def launched(built: cpu.Built, arrays: Sequence[Any], rest: Sequence[Any], count: int, each: int) -> None:
    try:
        built([*arrays, *rest], count, each)
    except OverflowError:  # raised before anything runs
        rest = built.rounded(rest)
        built([*arrays, *rest], count, each)
    if trials.seen is not None:
        trials.seen.append((built, list(arrays), list(rest), count, each))


def refuse_if(array: Any) -> None:
    """Leave a call to the route there was where a kernel has written other than 0 to the first place of an int32 array:
    operands of which that route makes an error.  Raises Unfit."""
    if trials.seen is not None:
        trials.refusals.append(array)
    elif array.reshape(-1)[0]:
        raise Unfit("operands")


def constant(array: Any) -> Any:
    """Return an array that all calls share and none writes, a table, after telling what may replay this call of it."""
    if trials.seen is not None:
        trials.constants.append(array)
    return array
