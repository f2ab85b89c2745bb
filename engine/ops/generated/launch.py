"""Launches of generated kernels on the CPU: which are worth compiling, which have proved themselves.

Note [Generated kernels on the CPU]
A kernel is compiled when the work that asked for it pays for the compiler: after PAYS elements, or CALLS calls, for
operands of one kind.  Until then `Unfit` leaves them to the route there was.  The first result of a kernel for a kind
of operands and a magnitude of sizes is compared with that route, and its time with that route's (`trial`): one that
differs is switched off with a warning, one that is slower without.  ENGINE_ROUTES=static does not look at times, so
that the same program takes the same routes each time.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from engine.kernels import cpu
from engine.kernels.form import Array, FormError, Kernel

PAYS = 1 << 19
CALLS = 32
COLUMNS = 8  # rows side by side from which they are worth a vector


class Unfit(Exception):
    """Operands that are left to the route there was."""


class Entry:
    """A kernel for operands of one kind and magnitude: what was asked of it, and what became of it."""

    __slots__ = ("built", "calls", "off", "proven", "work")

    def __init__(self) -> None:
        self.built: cpu.Built | None = None
        self.work = self.calls = 0
        self.proven = self.off = False


class _Trials(threading.local):
    def __init__(self) -> None:
        self.fresh: list[Entry] = []  # used in the present call, not proven yet
        self.paid = False  # another kernel of the same call was worth compiling: so are the rest
        self.trusted = False  # whoever calls compares for himself


trials = _Trials()


def ready(entry: Entry, work: int, make: Callable[[], cpu.Built]) -> cpu.Built:
    """The kernel of an entry.  Raises Unfit where it is not worth compiling yet, or is off."""
    built = entry.built
    if built is None:
        if entry.off:
            raise Unfit("switched off")
        entry.work += work
        entry.calls += 1
        if entry.work < PAYS and entry.calls < CALLS and not (trials.paid or trials.trusted):
            raise Unfit("too little work for a compiler")
        try:
            built = entry.built = make()
        except FormError:
            entry.off = True
            raise
        except Exception as error:  # whatever llvmlite says of this machine
            entry.off = True
            _warn(f"generated code is not used here: {type(error).__name__}: {error}")
            raise Unfit("no code") from error
    if not entry.proven and not trials.trusted:
        if entry.off:
            raise Unfit("switched off")
        trials.fresh.append(entry)
    trials.paid = True
    return built


def magnitude(count: int) -> int:
    """Sizes that are alike for the choice of a route: within a factor of 8."""
    return count.bit_length() // 3


_warned: set[str] = set()


def _warn(text: str) -> None:
    if text not in _warned:
        _warned.add(text)
        warnings.warn(text, RuntimeWarning, stacklevel=5)


def guarded(name: str, variant: Callable[..., Any], present: Callable[..., Any]) -> Callable[..., Any]:
    """`variant`, whose kernels are compared with the route `present` at their first use."""

    def kernel(xp: Any, *args: Any, into: Any = None, **kwargs: Any) -> Any:
        fresh = trials.fresh
        trials.paid = False
        if fresh:
            fresh.clear()
        try:
            found = variant(xp, *args, **kwargs)
        except Unfit:
            return NotImplemented
        if fresh and found is not NotImplemented:
            largest = max([_size(a) for a in args if isinstance(a, np.ndarray)], default=0.0)
            again, there = lambda: variant(xp, *args, **kwargs), lambda: present(np, *args, **kwargs)
            return trial(name, fresh, found, again, there, largest)
        return found

    return kernel


def trial(
    name: str, fresh: list[Entry], found: Any, again: Callable[[], Any], present: Callable[[], Any], largest: float
) -> Any:  # fmt: skip
    """The result of the route there was; the kernels in `fresh` are proven or off."""
    entries = list(fresh)
    fresh.clear()
    began = time.perf_counter()
    want = present()
    took = time.perf_counter() - began
    if (what := difference(want, found, largest)) is not None:
        for entry in entries:
            entry.off, entry.built = True, None
        _warn(
            f"the generated kernel of {name} is switched off: {what}.  Please report this with the output of `hub env`."
        )
        return want
    del found
    slower = False
    if os.environ.get("ENGINE_ROUTES", "").lower() != "static":
        mine = []
        for _ in range(3 if took < 0.02 else 1):
            began = time.perf_counter()
            again()
            mine.append(time.perf_counter() - began)
            if took < 0.02:
                began = time.perf_counter()
                present()
                took = min(took, time.perf_counter() - began)
        slower = min(mine) > took
    fresh.clear()
    for entry in entries:
        entry.proven = True
        if slower:
            entry.off, entry.built = True, None
    return want


TOLERANCES = {"float64": 1e-9, "float32": 2e-4, "float16": 4e-3, "bfloat16": 3e-2}  # of the largest result


def _size(array: Any) -> float:
    """The largest finite magnitude in an array of floats."""
    if array.dtype.kind not in "fV" or not array.size:
        return 0.0
    with np.errstate(all="ignore"):
        few = np.abs(_sampled(array))
    return float(few[np.isfinite(few)].max(initial=0.0))


def _sampled(array: Any) -> Any:
    """About a million of the elements, all of few, in float64."""
    return array.reshape(-1)[:: max(1, array.size >> 20)].astype(np.float64)


def difference(want: Any, got: Any, largest: float = 0.0) -> str | None:
    """What differs between two results (arrays or tuples of them); None if nothing does.

    largest: of the operands, of whose rounding something may be left where terms cancel.
    """
    if isinstance(want, tuple | list) or isinstance(got, tuple | list):
        if not isinstance(want, tuple | list) or not isinstance(got, tuple | list) or len(want) != len(got):
            return "another number of results"
        return next((d for a, b in zip(want, got) if (d := difference(a, b, largest)) is not None), None)
    if want is None or got is None:
        return None if want is got else "a result is missing"
    want, got = np.asarray(want), np.asarray(got)
    if want.shape != got.shape or want.dtype != got.dtype:
        return f"{got.dtype} {got.shape} instead of {want.dtype} {want.shape}"
    if want.dtype.kind not in "fV":
        return None if np.array_equal(want, got) else "other values"
    a, b = _sampled(want), _sampled(got)
    near = TOLERANCES.get(want.dtype.name, 1e-9)
    with np.errstate(all="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        scale = np.abs(a[np.isfinite(a)]).max(initial=0.0)
        close = np.abs(a - b) <= near * float(scale) + near * 1e-2 * largest
    wrong = np.flatnonzero(~(same | close))
    if not wrong.size:
        return None
    first = wrong[0]
    return f"{b[first]:.9g} instead of {a[first]:.9g} at sample {first}, {wrong.size} of {a.size} differ"


# --- rows


_rows: dict[Any, Any] = {}
_entries: dict[Any, Entry] = {}
MANY = 4096  # of `_rows`, then all are forgotten


def rows(
    name: str, write: Callable[[Any], None], arrays: Sequence[Any], results: int, row_shape: Sequence[int],
    place_shape: Sequence[int], strides: Sequence[tuple[Sequence[int], Sequence[int]]],
    numbers: Sequence[tuple[str, Any]] = (), key: Any = (),
) -> None:  # fmt: skip
    """Run a row kernel; as `engine.ops.cuda._rows.run`."""
    kinds = tuple([a.dtype for a in arrays])
    full = name, key, kinds, tuple(row_shape), tuple(place_shape), tuple(strides), tuple([t for t, _ in numbers])
    found = _rows.get(full)
    if found is None:
        if len(_rows) >= MANY:
            _rows.clear()
        found = _rows[full] = _row_plan(name, write, kinds, results, row_shape, place_shape, strides, numbers, key)
    entry, make, told, count, width = found
    built = ready(entry, count * width, make)
    given = [a if a.__class__ is np.ndarray else getattr(a, "address", a) for a in arrays]
    built([*given, *told, *[v for _, v in numbers]], count, width)


def _row_plan(
    name: str, write: Any, kinds: Any, results: int, row_shape: Any, place_shape: Any, strides: Any, numbers: Any,
    key: Any,
) -> tuple[Any, ...]:  # fmt: skip
    from engine.kernels import rows as forms
    from engine.kernels.elementwise import collapsed

    by_row = collapsed(row_shape, [r for r, _ in strides])
    by_place = collapsed(place_shape, [p for _, p in strides])
    count, width = by_row.count, by_place.count
    columns = by_row.strides[0][-1] == 1 != by_place.strides[0][-1] and by_row.sizes[-1] >= COLUMNS
    told = [*by_row.numbers(), *by_place.numbers(), width]
    ones = tuple([n == 1 for n in told])
    types = tuple([t for t, _ in numbers])
    kind = name, key, kinds, by_row.classes, by_place.classes, ones, columns, types, magnitude(count * width)
    entry = _entries.setdefault(kind, Entry())

    def make() -> cpu.Built:
        made = forms.Rows("rows", kinds, results, by_row.classes, by_place.classes, types)
        write(made)
        return cpu.build(made.kernel, columns=columns, known=_known(made.kernel, told))

    return entry, make, told, count, width


def _known(kernel: Kernel, told: Sequence[int]) -> Mapping[str, int]:
    """The parameters that are 1: LLVM sees that neighbours lie side by side."""
    names = [p.name for p in kernel.parameters if not isinstance(p, Array)]
    return {name: 1 for name, value in zip(names, told) if value == 1}


# --- elements


def elements(plan: Any, arrays: Sequence[Any], numbers: Sequence[Any]) -> None:
    """Run a kernel recorded from array code over the layout of a plan (`engine.ops.cuda.elementwise`)."""
    code, layout = plan.code, plan.layout
    found = plan.host
    if found is None:
        told = layout.numbers()
        entry = _entries.setdefault((code.kernel, magnitude(layout.count)), Entry())
        found = plan.host = entry, told, layout.count
    entry, told, count = found
    built = ready(entry, count, lambda: cpu.build(code.kernel, known=_known(code.kernel, told)))
    built([*arrays, *told, *[of(numbers) for _, of in code.numbers]], count)
