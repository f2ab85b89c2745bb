"""Launches of generated kernels on the CPU: which are worth compiling, which have proved themselves.

engine/kernels/README.md says when a kernel is compiled, compared and dropped.
"""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from engine.backends.cpu import relayout
from engine.backends.cpu.fast import fast
from engine.core.layouts import INNER, ChannelsLast
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
FROM_ALLOCATOR = 1 << 22  # bytes from which it makes results, in 3 us: malloc retains what is smaller (`fast.py`)
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
        self.closed = False  # a kernel of this call is disabled
        self.paid = False  # another kernel of the same call was worth compiling: so are the rest
        self.light = False  # of this call: numpy takes one pass, so that calls alone do not pay
        self.direct = False  # of this call: it is tried as a direct one
        self.trusted = processor.always()  # nothing is compared, nothing waits


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


def guarded(
    name: str,
    variant: Callable[..., Any],
    present: Callable[..., Any],
    replayed: bool,
    into: int | None = None,
    pointwise: bool = False,
    light: bool = False,
    images: bool | Callable[..., Any] = False,
    multiplies: bool = False,
) -> Callable[..., Any]:
    """`variant`, whose kernels are compared with the route `present` at their first use.

    replayed: the variant does nothing but launch, so that later calls of the same kind may only do that.
    into: the array that those may write the result to, if it is laid out as the result is.
    pointwise: there is one result, each of whose elements depends on the operands' elements at its place only.
    light: without it numpy takes one pass, so that calls alone do not pay for a compiler.
    images: operands of the engine's own layout are served, too: of a pointwise op, or as a function gives them.
    multiplies: results are sums of products of the operands (`largest_of`).
    """
    decided: LRU[Any, Any] = LRU(MANY)  # by all that a call is but the elements: what is done with it
    last = decided.young
    images = into is None and images

    def in_memory_order(xp: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if callable(images):
            found = images(*args, **kwargs)
            made = NotImplemented if found is None else kernel(xp, *found[0])
            return made if made is NotImplemented else made.reshape(found[1])
        given = _in_memory_order(args, kwargs)
        if given is None:
            return NotImplemented
        made = kernel(xp, *given, **kwargs)
        if made is NotImplemented:
            return NotImplemented
        return made.transpose(0, made.ndim - 1, *range(1, made.ndim - 1)).view(ChannelsLast)

    def kernel(xp: Any, *args: Any, **kwargs: Any) -> Any:
        parts: list[Any] = [tuple(kwargs)] if kwargs else []
        arrays = []
        for a in (*args, *kwargs.values()) if kwargs else args:
            if a.__class__ is np.ndarray:
                arrays.append(a)
                parts += (a.dtype, a.shape, a.strides)
            elif isinstance(a, np.ndarray):  # of the engine's own layouts
                return in_memory_order(xp, args, kwargs) if images else NotImplemented
            else:
                parts += (a.__class__, a or str(a))  # -0.0 equals 0.0, and is another number
        if len(arrays) > 1 and len(set(map(id, arrays))) < len(arrays):  # x * x says nothing of x * y
            parts.append(tuple([[a is b for b in arrays].index(True) for a in arrays]))
        key = tuple(parts)
        try:
            route = last.get(key) or decided.get(key)
        except TypeError:  # an argument that cannot be a key
            return NotImplemented
        if route is not None:
            if route is DISABLED:
                return NotImplemented
            if route is AGAIN:
                try:
                    return variant(xp, *args, **kwargs)
                except Unfit:  # calls that share its kernel have lost a trial since
                    return NotImplemented
            if route is not ONCE:
                return route(arrays)
        fresh = trials.fresh
        fresh.clear()
        trials.paid = trials.closed = False
        trials.light = light
        try:
            found = variant(xp, *args, **kwargs)
        except Unfit:
            found = NotImplemented
        if found is NotImplemented:
            if trials.closed:
                decided[key] = DISABLED
            return NotImplemented
        if trials.trusted:
            return found
        entries = list(fresh)
        fresh.clear()
        if (
            not entries and route is None and any(p is float for p in parts)
        ):  # other numbers than before, which may never come again
            decided[key] = ONCE
            return found
        want = None
        if entries:
            few = _parts(args, kwargs, found) if pointwise else []
            if few:  # of a large result
                passed = _proof_of_parts(name, entries, few, present)
                found = few = None  # type: ignore[assignment]
            else:
                terms = max([a.size for a in arrays], default=1)
                want = present(np, *args, **kwargs)
                passed = proven(name, entries, difference(want, found, largest_of(arrays, multiplies), terms))
            if not passed:
                return present(np, *args, **kwargs) if want is None else want
        again = lambda: variant(xp, *args, **kwargs)
        try:
            route = (replay(variant, xp, args, kwargs) if replayed else None) or AGAIN
            if not entries:
                is_slower = False
            elif found is not None:
                found = None
                mine = again if route is AGAIN else lambda: route(arrays)
                is_slower = slower(mine, lambda: present(np, *args, **kwargs), of=entries)
            else:
                is_slower = _slower_in_part(variant, present, xp, args, kwargs, entries)
        except Unfit:  # its kernel lost a trial since, in another thread or in the parts of this call
            return want if want is not None else present(np, *args, **kwargs) if found is None else found
        if is_slower:
            for entry in entries:
                entry.lost()
            if all(not entry.disabled for entry in entries):
                return (present(np, *args, **kwargs) if found is None else found) if want is None else want
            route = DISABLED
        if into is not None and callable(route):
            over = getattr(route, "over", None)
            route = (over and over(arrays, into)) or route
        decided[key] = route
        if want is None and found is None:
            return present(np, *args, **kwargs) if route in (DISABLED, AGAIN) else route(arrays)
        return found if want is None else want

    def launch_for(arrays: Sequence[Any]) -> Callable[[Sequence[Any]], Any] | None:
        """Return the launch that was decided for arrays of this layout, or None if there is none for arrays alone."""
        route = decided.get(tuple([p for a in arrays for p in (a.dtype, a.shape, a.strides)]))
        return route if callable(route) else None

    def why_not(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Return why a call is left to the route there was, "" where it is not; the kernels are asked once more."""
        if any(isinstance(a, np.ndarray) and a.__class__ is not np.ndarray for a in args):
            found = images(*args, **kwargs) if callable(images) else None
            given = found and found[0] if callable(images) else _in_memory_order(args, kwargs) if images else None
            kwargs = {} if callable(images) else kwargs
            if given is None:
                return "converted to another layout"
            args = given
        trials.paid, trials.light = False, light
        try:
            found = variant(np, *args, **kwargs)
        except Unfit as unfit:
            return str(unfit)
        finally:
            trials.fresh.clear()
        return "does not serve such operands" if found is NotImplemented else ""

    kernel.launch_for = launch_for  # type: ignore[attr-defined]
    kernel.why_not = why_not  # type: ignore[attr-defined]
    return kernel


def _in_memory_order(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
    """The operands of an op on images of the engine's own layout with the dims in the order of memory; None where some
    have another.

    A number for each image or channel, (N, C, 1, ...), or for each place, (N, 1, *), goes with them in whatever layout;
    images in torch's order are copied.
    """
    shape = next((a.shape for a in args if a.__class__ is ChannelsLast), None)
    if shape is None or any(isinstance(a, np.ndarray) for a in kwargs.values()):
        return None
    order, found = INNER[len(shape)], []
    for a in args:
        if isinstance(a, np.ndarray) and a.ndim:
            alike = a.shape == shape and (a.__class__ is ChannelsLast or a.flags.c_contiguous)
            if a.ndim != len(shape) or not (alike or a.shape[1] == 1 or set(a.shape[2:]) == {1}):
                return None
            whole = a.shape == shape and a.__class__ is not ChannelsLast
            a = a.transpose(order).view(np.ndarray)
            a = relayout.contiguous(a) if whole else a
        found.append(a)
    return tuple(found)


DISABLED, AGAIN, ONCE = object(), object(), object()  # left to the route there was; the whole call again; seen once


BLOCK = 1 << 16  # elements that are compared at once
PART = 1 << 19  # elements of a part in which a large result is compared
WIDE = 1 << 21  # elements of the part in which times are: more than a second-level cache holds


def _parts(args: tuple[Any, ...], kwargs: dict[str, Any], found: Any) -> list[tuple[Any, ...]]:
    """Operands and results of the begin, the middle and the end; none of results that are not large."""
    if not isinstance(found, np.ndarray) or found.size <= 4 * PART:
        return []
    return [
        (*_part(args, kwargs, found.shape, at), found[_window(found.shape, found.shape, at, PART)])
        for at in (0.0, 0.5, 1.0)
    ]


def _part(
    args: tuple[Any, ...], kwargs: dict[str, Any], shape: Sequence[int], at: float, count: int = PART
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    cut = lambda a: a[_window(a.shape, shape, at, count)] if isinstance(a, np.ndarray) and a.ndim else a
    return tuple([cut(a) for a in args]), {name: cut(a) for name, a in kwargs.items()}


def _window(own: Sequence[int], shape: Sequence[int], at: float, count: int) -> tuple[slice, ...]:
    """About `count` neighbours in `shape`, `at` of the way through, as slices of an operand that is broadcast to it."""
    found, left, rest = [], count, math.prod(shape)
    for size in shape:
        rest //= size
        width = min(size, max(1, left // rest))
        begin = round((size - width) * at)
        found.append(slice(begin, begin + width))
        left = max(1, left // width)
    return tuple([slice(None) if n == 1 else s for n, s in zip(own, found[len(shape) - len(own) :])])


def _proof_of_parts(
    name: str, entries: Sequence[Entry], few: list[tuple[Any, ...]], present: Callable[..., Any]
) -> bool:
    what = None
    for args, kwargs, found in few:
        arrays = [a for a in (*args, *kwargs.values()) if isinstance(a, np.ndarray)]
        largest = max([size_of(a) for a in arrays], default=0.0)
        what = what or difference(present(np, *args, **kwargs), found, largest)
    return proven(name, entries, what)


def _slower_in_part(
    variant: Callable[..., Any],
    present: Callable[..., Any],
    xp: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    entries: Sequence[Entry],
) -> bool:
    """`slower`, of a part of the operands."""
    shape = np.broadcast_shapes(*[a.shape for a in (*args, *kwargs.values()) if isinstance(a, np.ndarray)])
    some, named = _part(args, kwargs, shape, 0.5, WIDE)
    paid, trials.paid = trials.paid, True
    try:
        if variant(xp, *some, **named) is NotImplemented:
            return False
        return slower(lambda: variant(xp, *some, **named), lambda: present(np, *some, **named), of=entries)
    except Unfit:  # a kernel for fewer elements is disabled
        return False
    finally:
        trials.paid = paid
        trials.fresh.clear()


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


TOLERANCES = {"float64": 1e-9, "float32": 2e-4, "float16": 4e-3, "bfloat16": 3e-2}  # of the largest result


def size_of(array: Any) -> float:
    """The largest finite magnitude in an array of floats."""
    return max(map(_largest, _samples(array)), default=0.0) if array.dtype.kind in "fV" else 0.0


def largest_of(arrays: Sequence[Any], multiplies: bool = False) -> float:
    """The largest finite magnitude in arrays; of operands that are multiplied times the next one, if that is over 1."""
    sizes = sorted([0.0, *map(size_of, arrays)])
    return sizes[-1] * max(1.0, sizes[-2]) if multiplies and len(arrays) > 1 else sizes[-1]


def _samples(array: Any) -> Iterator[Any]:
    """About a million of the elements, all of few, in float64, block by block: a copy of all takes as much memory again
    where the strides of an array are in another order than its axes, and 8 MB in float64.

    The step is odd, so that each lane of the vectors is among them.
    """
    step = array.size >> 20 | 1
    for begin in range(0, array.size, BLOCK * step):
        yield array.flat[begin : begin + BLOCK * step : step].astype(np.float64)


def _largest(block: Any) -> float:
    """The largest finite magnitude in a block of float64."""
    with np.errstate(all="ignore"):
        return float(np.abs(block).max(initial=0.0, where=np.isfinite(block)))


def difference(want: Any, got: Any, largest: float = 0.0, terms: int = 1) -> str | None:
    """Describe the first difference between two results (arrays or tuples of them); None if there is none.

    largest: of the operands, of whose rounding something may be left where terms cancel; terms: how many there were.
    """
    if isinstance(want, tuple | list) or isinstance(got, tuple | list):
        if not isinstance(want, tuple | list) or not isinstance(got, tuple | list) or len(want) != len(got):
            return "another number of results"
        return next((d for a, b in zip(want, got) if (d := difference(a, b, largest, terms)) is not None), None)
    if want is None or got is None:
        return None if want is got else "a result is missing"
    want, got = np.asarray(want), np.asarray(got)
    if want.shape != got.shape or want.dtype != got.dtype:
        return f"{got.dtype} {got.shape} instead of {want.dtype} {want.shape}"
    if want.dtype.kind not in "fV":
        return None if np.array_equal(want, got) else "other values"
    near = TOLERANCES.get(want.dtype.name, 1e-9)
    allowed = near * size_of(want) + near * 1e-2 * largest * max(1, terms / max(1, want.size)) ** 0.5
    seen = wrong = 0
    first = ""
    for a, b in zip(_samples(want), _samples(got)):
        with np.errstate(all="ignore"):
            same = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= allowed)
        if not same.all():
            at = int(same.argmin())
            first = first or f"{b[at]:.9g} instead of {a[at]:.9g} at sample {seen + at}"
            wrong += same.size - int(np.count_nonzero(same))
        seen += same.size
    return f"{first}, {wrong} of {seen} differ" if wrong else None


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


# --- replay
#
# Most of the time of a small call is finding out what to launch.  Once the kernels of a call are proven, what they were
# given is compared with the operands and with the arrays that were made; where that is all there is to the call, the
# next one of the same shapes, strides and numbers makes the same arrays and launches the same kernels, nothing else.


class _Maker:
    """The array module of a call that is watched: keeps the arrays that it makes."""

    def __init__(self, xp: Any) -> None:
        self.xp, self.made = xp, list[Any]()

    def empty(self, shape: Any, dtype: Any = np.float64) -> Any:
        """As numpy's."""
        found = self.xp.empty(shape, dtype)
        self.made.append(found)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self.xp, name)


def _start(array: Any) -> int:
    return array.__array_interface__["data"][0]


def watched(variant: Callable[..., Any], xp: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call's launches, results and new arrays, and what its result was; None where more is done than launches, or
    where operands cannot be distinguished.

    Nothing that the call made lives on: what replays it may have the same memory.
    """
    maker, trials.seen = _Maker(xp), []
    trials.refusals.clear()
    try:
        found = variant(maker, *args, **kwargs)
        seen = trials.seen
    finally:
        trials.seen = None
    results = found if isinstance(found, tuple) else (found,)
    if not all(isinstance(one, np.ndarray) for one in results):
        return None
    given = [a for a in (*args, *kwargs.values()) if isinstance(a, np.ndarray)]
    for n, a in enumerate(given):  # two operands that begin at one place: which of them a kernel was given is not seen
        if any(_start(a) == _start(b) and a is not b for b in given[:n]):
            return None
    places = {_start(a): (n, a) for n, a in [*enumerate([*given, *maker.made])][::-1]}
    steps = []
    for built, arrays, rest, count, each in seen:
        picks = [places.get(_start(a)) for a in arrays]
        if any(p is None or p[1].dtype != a.dtype for p, a in zip(picks, arrays)):
            return None
        shared = count * each > built.alone
        steps.append(
            (
                built.pack,
                built.entry,
                tuple([p[0] for p in picks]),
                tuple(rest),
                count,
                each,
                built.shared if shared else None,
                built.operations,
            )
        )  # type: ignore[index]
    shapes = []
    for one in results:
        at = places.get(_start(one))
        if at is None or at[0] < len(given) or at[1].dtype != one.dtype or at[1].size != one.size:
            return None
        plain = one.shape == at[1].shape and one.strides == at[1].strides
        if not plain and not (one.flags.c_contiguous and at[1].flags.c_contiguous):
            return None
        shapes.append((at[0], None if plain else one.shape))
    specs = []
    for m in maker.made:
        if not m.flags.c_contiguous:
            return None
        specs.append((m.shape, m.dtype, np.empty if m.nbytes < FROM_ALLOCATOR else xp.empty))
    refusals = [places[_start(a)][0] for a in trials.refusals]
    trials.refusals.clear()
    return given, steps, shapes, specs, isinstance(found, tuple), _mark(found), refusals


def replay(variant: Callable[..., Any], xp: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A function of the arrays of a call that does what the call did; None where more is done than launches."""
    passed = watched(variant, fast if xp is np else xp, args, kwargs)
    if passed is None:
        return None
    given, steps, shapes, specs, several, mark, refusals = passed
    if refusals or not steps:  # without a launch the result is whatever its memory holds
        return None
    alone = steps[0] if len(steps) == len(specs) == 1 and shapes == [(len(given), None)] and not several else None

    def single(given: list[Any]) -> Any:
        shape, dtype, make = specs[0]
        made = make(shape, dtype)
        pool = (*given, made)
        pack, entry, picks, rest, count, each, shared, _ = alone  # type: ignore[misc]
        packed = pack(*[id(pool[n]) for n in picks], *rest)
        entry(packed, 0, count) if shared is None else shared(packed, count, each)
        return made

    def run(given: list[Any]) -> Any:
        pool = [*given, *[make(shape, dtype) for shape, dtype, make in specs]]
        for pack, entry, picks, rest, count, each, shared, _ in steps:
            packed = pack(*[id(pool[n]) for n in picks], *rest)
            entry(packed, 0, count) if shared is None else shared(packed, count, each)
        results = [pool[n] if shape is None else pool[n].reshape(shape) for n, shape in shapes]
        return tuple(results) if several else results[0]

    def over(given: list[Any], at: int) -> Any:
        """The same with the result in the memory of an operand; None if its shape or layout differs."""
        target, (shape, dtype, _) = given[at], specs[0]
        if target.shape != shape or target.dtype != dtype or not target.flags.c_contiguous:
            return None

        def inplace(given: list[Any]) -> Any:
            made = given[at]
            pool = (*given, made)
            pack, entry, picks, rest, count, each, shared, _ = alone  # type: ignore[misc]
            packed = pack(*[id(pool[n]) for n in picks], *rest)
            entry(packed, 0, count) if shared is None else shared(packed, count, each)
            return made

        return inplace

    made = run if alone is None else single
    if alone is not None:
        single.over = over  # type: ignore[attr-defined]
    return made if _mark(made(given)) == mark else None


def _mark(array: Any) -> Any:
    """Return a fingerprint of a result: shape, type, a sum of all bits, and some of the elements."""
    if isinstance(array, tuple):
        return [_mark(a) for a in array]
    flat = array.reshape(-1) if array.flags.c_contiguous else array.ravel("K")
    bits = flat.view(f"u{flat.dtype.itemsize}") if flat.dtype.itemsize in (1, 2, 4, 8) else flat.view("u1")
    few = bits[:: max(1, bits.size >> 16)]
    return array.shape, array.dtype, array.strides, int(bits.sum(dtype=np.uint64)), few.tobytes()
