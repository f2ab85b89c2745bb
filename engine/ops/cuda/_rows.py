"""Launches of row kernels: which dims are rows, how a row is shared, one compiled kernel for operands of a kind.

Note [Calls once more]
Checks of operands, geometry and numbers cost the host more than the launch that they end in, and a training loop asks
the same thing at each step.  An op builds one key of all that its launch depends on (`signature` of its operands, its
other arguments), asks `replay` first, and says with `keep` what a launch of it needs.  Addresses are not part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from engine.backends.cuda import compile as compiling
from engine.core.lru import LRU
from engine.kernels import rows as forms
from engine.kernels.cuda_c import COLUMNS
from engine.kernels.elementwise import collapsed
from engine.ops.cuda._launch import Unfit, built, group_of, host, identifier, on_host, rows_grid, scalar, strides_of

_built: dict[Any, Any] = {}
MANY = 4096  # of each
_ready: LRU[Any, tuple[Any, ...]] = LRU(MANY)  # by shapes and strides
_reductions: LRU[Any, tuple[Any, ...]] = LRU(MANY)  # by kinds of operands: (shape of results, what a launch needs)
_calls: LRU[Any, tuple[Any, ...]] = LRU(MANY)  # Note [Calls once more]

FEW_ROWS, LONG = 256, 1 << 14  # rows so few and so long are reduced in parts first
BLOCKS = 1024  # that a reduction in parts has: an H100 has 132 multiprocessors, each with room for eight of 256 threads


def run(
    name: str,
    write: Callable[[forms.Rows], None],
    arrays: Sequence[Any],
    results: int,
    row_shape: Sequence[int],
    place_shape: Sequence[int],
    strides: Sequence[tuple[Sequence[int], Sequence[int]]],
    numbers: Sequence[tuple[str, Any]] = (),
    key: Any = (),
) -> tuple[Any, ...] | None:
    """Run a row kernel; what a further launch of it needs, None on the host, which keeps that itself.

    arrays: the operands, the last `results` written.  strides: of each, in elements: those of the rows' dims and those
    of the places' dims.  numbers: (type, value).  key: whatever else `write` depends on.
    """
    if on_host(arrays[-1]):
        host.rows(name, write, arrays, results, row_shape, place_shape, strides, numbers, key)
        return None
    kinds = tuple([a.dtype for a in arrays])
    types = tuple([t for t, _ in numbers])
    full = compiling.generation, name, key, kinds, row_shape, place_shape, tuple(strides), types
    ready = _ready.young.get(full) or _ready.get(full)
    if ready is None:
        ready = _ready[full] = _prepare(name, write, kinds, results, row_shape, place_shape, strides, types, key)
    _launch(ready, [a.address if a.__class__ is _Moved else a for a in arrays], numbers)
    return ready


def _launch(ready: tuple[Any, ...], arrays: Sequence[Any], numbers: Sequence[tuple[str, Any]] = ()) -> None:
    call, grid, block, passed, count, wide = ready
    call(grid, block, [*arrays, *passed, *[scalar(v, t, wide) for t, v in numbers], count])


def signature(*arrays: Any) -> tuple[Any, ...]:
    """All of operands (None: one that is not there) that a launch depends on, but their addresses."""
    return tuple([None if a is None else (a.__class__, a.dtype, a.shape, a.strides) for a in arrays])


def replay(xp: Any, key: Any, arrays: Sequence[Any]) -> list[Any] | None:
    """Return the new arrays of a call like one that was cached; None if none was.  Note [Calls once more]."""
    found = _calls.young.get(key) or _calls.get(key)
    if found is None or found[0] != compiling.generation:
        return None
    _, makes, call, grid, block, rest = found
    made = [xp.empty(shape, dtype) for shape, dtype in makes]
    call(grid, block, [*arrays, *made, *rest])
    return made


def keep(
    key: Any, ready: tuple[Any, ...] | None, makes: Sequence[tuple[Any, Any]], numbers: Sequence[tuple[str, Any]] = ()
) -> None:
    """Let `replay` do what `run` did: `ready` is what that returned, makes the (shape, dtype) of results."""
    if ready is None:
        return
    call, grid, block, passed, count, wide = ready
    rest = [*passed, *[scalar(v, t, wide) for t, v in numbers], count]
    _calls[key] = compiling.generation, tuple(makes), call, grid, block, rest


def _prepare(
    name: str,
    write: Any,
    kinds: Any,
    results: int,
    row_shape: Any,
    place_shape: Any,
    strides: Any,
    types: Any,
    key: Any,
) -> tuple[Any, ...]:
    """The compiled kernel and what its launches have in common."""
    by_row = collapsed(row_shape, [r for r, _ in strides])
    by_place = collapsed(place_shape, [p for _, p in strides])
    wide = by_row.wide or by_place.wide or by_row.count * by_place.count >= 2**31
    group = group_of(by_row.count, by_place.count, by_place.strides[0][-1], by_row.strides[0][-1])
    found_key = compiling.generation, name, key, kinds, by_row.classes, by_place.classes, group, wide, types
    call = _built.get(found_key)
    if call is None:
        made = forms.Rows(identifier(name), kinds, results, by_row.classes, by_place.classes, types)
        write(made)
        call = _built[found_key] = built(made.kernel, group=group, wide=wide)
    passed = [scalar(n, "index", wide) for n in (*by_row.numbers(), *by_place.numbers(), by_place.count)]
    grid, block = rows_grid(group, by_row.count, by_place.count)
    return call, grid, block, passed, scalar(by_row.count, "index", wide), wide


def parted(array: Any, axes: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The strides of an array's other dims (rows) and of `axes` (places).  Raises Unfit."""
    own = strides_of(array)
    return tuple([s for d, s in enumerate(own) if d not in axes]), tuple([own[d] for d in axes])


def reduce(
    xp: Any,
    name: str,
    by: Sequence[str],
    code: Callable[..., Any],
    after: Callable[..., Any],
    arrays: Sequence[Any],
    axes: Sequence[int],
    results: Sequence[Any],
    whole: bool = False,
    key: Any = (),
    replay_as: Any = None,
) -> list[Any]:
    """Arrays of one shape (broadcast ones with stride 0) reduced over axes: new arrays of the other dims.

    by: the reduction of each array that `code(xp, *arrays)` gives.  after(xp, count, *reduced) makes the results, of
    the dtypes `results`.  whole: must not be reduced in parts (argmax, whose places are counted along all axes).
    replay_as: (key for `replay`, shape that results have there).
    """
    kinds = tuple([(a.dtype, a.shape, a.strides) for a in arrays])
    known = compiling.generation, name, tuple(by), key, kinds, tuple(axes), tuple(results), whole
    found = None if on_host(arrays[0]) else _reductions.young.get(known) or _reductions.get(known)
    if found is not None:
        row_shape, ready = found
        made = [xp.empty(row_shape, d) for d in results]
        _launch(ready, [*arrays, *made])
        return made
    shape = arrays[0].shape
    axes = tuple(sorted(axes))
    row_shape = tuple([n for d, n in enumerate(shape) if d not in axes])
    place_shape = tuple([shape[d] for d in axes])
    if not prod(shape):
        raise Unfit("nothing to reduce")
    strides = [parted(a, axes) for a in arrays]
    made = [xp.empty(row_shape, d) for d in results]
    parts = 1 if whole else _parts(row_shape, place_shape, strides)
    if parts > 1:
        ready = _in_parts(xp, name, by, code, after, arrays, made, row_shape, place_shape, strides, key, parts)
    else:
        ready = _reduce(name, by, code, after, arrays, made, row_shape, place_shape, strides, key)
    if ready is not None:
        _reductions[known] = row_shape, ready
    if replay_as is not None:
        keep(replay_as[0], ready, [(replay_as[1], d) for d in results])
    return made


def _reduce(
    name: str,
    by: Any,
    code: Any,
    after: Any,
    arrays: Any,
    made: Any,
    row_shape: Any,
    place_shape: Any,
    strides: Any,
    key: Any,
) -> tuple[Any, ...] | None:
    of_results = [(strides_of(m), (0,) * len(place_shape)) for m in made]
    return run(
        name,
        lambda rows: forms.reduced(rows, by, code, after, len(arrays)),
        [*arrays, *made],
        len(made),
        row_shape,
        place_shape,
        [*strides, *of_results],
        key=(tuple(by), key),
    )


def _parts(row_shape: Sequence[int], place_shape: Sequence[int], strides: Any) -> int:
    """Into how many parts rows are cut, so that there are blocks for a whole card."""
    rows, width = prod(row_shape), prod(place_shape)
    along, across = (
        collapsed(shape, [s[n] for s in strides]).strides[0][-1] for n, shape in ((1, place_shape), (0, row_shape))
    )
    if group_of(rows, width, along, across) == "columns":
        return min(-(-BLOCKS * COLUMNS[0] // rows), width // (16 * COLUMNS[1]))
    return min(-(-BLOCKS // rows), width // 2048) if rows < FEW_ROWS and width >= LONG else 1


def _in_parts(
    xp: Any,
    name: str,
    by: Any,
    code: Any,
    after: Any,
    arrays: Any,
    made: Any,
    row_shape: Any,
    place_shape: Any,
    strides: Any,
    key: Any,
    parts: int,
) -> tuple[Any, ...] | None:
    """Reduce long rows cut into parts, each by a block of its own; then the parts.  What a further launch needs."""
    width = prod(place_shape)
    flat = collapsed(place_shape, [p for _, p in strides])
    # the slowest dim is cut into `parts` pieces of `each`, and what is left of it
    n, inner = flat.sizes[0], flat.sizes[1:]
    parts = max(1, min(n, parts))
    each = n // parts
    rest = n - parts * each
    count = parts + (rest > 0)
    kinds = [_kind(code, arrays, n) for n in range(len(by))]
    partial = [xp.empty((count, *row_shape), k) for k in kinds]
    plain = lambda xp, count, *reduced: reduced
    steps = []
    for first, pieces, length in ((0, parts, each), (parts, 1, rest)):
        if not length:
            continue
        places = [first * each * f[0] for f in flat.strides]
        moved = [_after(a, p) for a, p in zip(arrays, places)]
        cut = [((each * f[0], *r), f) for (r, _), f in zip(strides, flat.strides)]  # neighbours remain neighbours
        target = [p if pieces == count else p[first : first + pieces] for p in partial]
        ready = _reduce(
            name + "_part", by, code, plain, moved, target, (pieces, *row_shape), (length, *inner), cut, key
        )
        steps.append((ready, places, None if pieces == count else slice(first, first + pieces)))
    same = lambda xp, *given: given
    counted = lambda xp, count, *reduced: after(xp, _constant(xp, width), *reduced)
    of_parts = [parted(p, (0,)) for p in partial]
    last = _reduce(name + "_whole", by, same, counted, partial, made, row_shape, (count,), of_parts, (key, width))
    if last is None:
        return None
    empty = (getattr(xp, "backend", None) and xp.backend.xp.empty) or xp.empty  # of the current device, as launches are
    inputs, outputs = len(arrays), len(made)  # numbers alone: what is cached must hold no array of this call

    def call(grid: Any, block: Any, args: Sequence[Any]) -> None:
        given, results = args[:inputs], args[inputs : inputs + outputs]
        between = [empty((count, *row_shape), k) for k in kinds]
        for ready, places, share in steps:
            from_there = [_after(a, p) if p else a for a, p in zip(given, places)]
            target = between if share is None else [b[share] for b in between]
            _launch(ready, [a.address if a.__class__ is _Moved else a for a in (*from_there, *target)])
        _launch(last, [*between, *results])

    return call, (), (), [], 0, False


def _constant(xp: Any, number: int) -> Any:
    from engine.kernels.trace import Traced

    return Traced(xp._trace, xp._trace.kernel.constant(float(number), "float64"), np.float64)


def _after(array: Any, elements: int) -> Any:
    """The array from a number of elements further on."""
    return _Moved(array, elements * array.itemsize) if elements else array


class _Moved:
    """An address within an array, for a launch."""

    def __init__(self, array: Any, offset: int) -> None:
        self.dtype, self.address = array.dtype, np.uint64(int(compiling.argument(array)) + offset)
        self._array = array  # lives as long

    def view(self) -> Any:
        """numpy's array of the element there."""
        self.__array_interface__ = {
            "version": 3,
            "shape": (1,),
            "typestr": f"|V{self.dtype.itemsize}",
            "data": (int(self.address), False),
        }
        return np.asarray(self).view(self.dtype)


def _kind(code: Any, arrays: Any, n: int) -> Any:
    """The dtype of the n-th array that code gives."""
    from engine.kernels.form import Kernel
    from engine.kernels.trace import Trace, Traced, TracedModule

    trace = Trace(Kernel("kind", "map"))
    found = code(
        TracedModule(trace),
        *[Traced(trace, trace.kernel.scalar(f"x{p}", _plain(a.dtype)), a.dtype) for p, a in enumerate(arrays)],
    )
    found = found[n] if isinstance(found, tuple) else found
    return np.dtype("float32") if found.dtype.itemsize == 2 and found.dtype.kind in "fV" else found.dtype


def _plain(dtype: Any) -> str:
    from engine.kernels.form import compute_type
    from engine.kernels.trace import type_of

    return compute_type(type_of(dtype))
