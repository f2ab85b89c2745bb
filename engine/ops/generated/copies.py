"""Copies of arrays of any strides, and of what is repeated, as generated kernels (the extra `jit`).

numpy copies by a loop for each line, or takes a line as one element of bytes: of short lines the loop, or the call for
such an element, takes most of the time.  Repeated elements are those of a view with strides of 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from math import gcd, prod
from typing import Any, NamedTuple

import numpy as np

from engine.backends.cpu import relayout
from engine.core.checks import wrap_dim
from engine.core.layouts import channels_last, channels_last_3d, contiguous_format, is_in_format
from engine.core.lru import LRU
from engine.dispatch import kernel
from engine.kernels import copies, cpu, processor
from engine.kernels.elementwise import collapsed
from engine.kernels.form import Kernel
from engine.ops import copying, joining, rearranging, shape
from engine.ops.generated import comparison, launch, replay, transposes
from engine.ops.generated.layers import prepared, run
from engine.ops.generated.nested import nested
from engine.ops.nn import embedding

_DIMS = 5  # of an array, once those that are one run of memory are joined
_WRITTEN = 128  # bytes of a line that are written out
_APART = 4  # elements from one neighbour to the next up to which they are written out, too
_LONG = 1 << 14  # elements of a line that is cut
_PARTS = 16  # rows at least, where there are so many
_NEAR = 64  # bytes: neighbours that are farther apart are left to copies that read lines whole
_SEVERAL = 16  # neighbours that may be farther apart, where the lines beside them are near: as many runs are read


class _Plan(NamedTuple):
    """A kernel for a layout, its numbers, rows, and the elements, or lines that are written out, of each."""

    write: Callable[[str], Kernel]
    numbers: list[int]
    rows: int
    each: int
    type: str


def _planned(shape: Sequence[int], strides: Sequence[int], item: int) -> _Plan | None:
    """The copy of what has these strides in bytes; None for what is left to other copies."""
    if item not in (1, 2, 4, 8) or 0 in shape or any(s % item for s in strides):
        return None
    sizes, steps = relayout.runs(shape, strides)
    far = abs(steps[-1]) > _NEAR
    if len(sizes) > _DIMS or (far and not (sizes[-1] <= _SEVERAL and len(sizes) > 1 and abs(steps[-2]) <= _NEAR)):
        return None
    *outer, n = sizes
    *apart, step = [s // item for s in steps]
    if not outer and n >= _LONG:  # one line: in parts, which threads share
        parts = next((p for p in range(_PARTS, 1, -1) if n % p == 0), 1)
        n, outer, apart = n // parts, [parts], [n // parts * step]
    if far and prod(outer[:-1]) < _PARTS and outer[-1] >= _PARTS:  # as those of one image: in parts
        parts = next((p for p in range(_PARTS, 1, -1) if outer[-1] % p == 0), 1)
        outer[-1:], apart[-1:] = [parts, outer[-1] // parts], [outer[-1] // parts * apart[-1], apart[-1]]
    several = len(outer) > 1 and (far or prod(outer[:-1]) >= _PARTS)
    lines, line = (outer.pop(), apart.pop()) if several else (1, 0)
    outer, apart = outer or [1], apart or [0]
    between = 0
    if 1 < step <= _APART and n * item > _WRITTEN and n % 4 == 0:  # as lines of a few that are written out
        if lines > 1:
            outer, apart = [*outer, lines], [*apart, line]
        between, width = step, 8 if n % 8 == 0 else 4
        lines, line, n = n // width, step * width, width
    written = n * item <= _WRITTEN  # whose operations are counted for a line
    write = copies.copied(len(outer), n if written else 0, between)
    each = lines if written else lines * n
    return _Plan(write, [*outer[1:], *apart, lines, line, n, step], prod(outer), each, f"uint{8 * item}")


def _arranged(xp: Any, x: Any, shape: Sequence[int], strides: Sequence[int], made_shape: Sequence[int]) -> Any:
    """The elements of `x`, read with a shape and strides in bytes from its first one, in a new array."""

    def plan() -> Any:
        found = _planned(shape, strides, x.itemsize)
        return (None, None, None) if found is None else (found, *prepared(*found))

    found, entry, build = _arrangings.made((tuple(shape), tuple(strides), x.itemsize), plan)
    if found is None:
        return NotImplemented
    made = xp.empty(tuple(made_shape), x.dtype)
    built = launch.ready(entry, made.size, build)
    launch.launched(built, [x, made], found.numbers, found.rows, found.each)
    return made


def repeated(xp: Any, x: Any, axis: int, times: Sequence[int]) -> Any:
    """Each entry of the dims from `axis` on `times` times beside itself, of a contiguous array, or NotImplemented."""
    shape, strides = list(x.shape[:axis]), list(x.strides[:axis])
    for n, step, several in zip(x.shape[axis:], x.strides[axis:], times, strict=True):
        shape += (n, several)
        strides += (step, 0)
    return _arranged(xp, x, shape, strides, (*x.shape[:axis], *[n * k for n, k in zip(x.shape[axis:], times)]))


_arrangings: LRU[Any, Any] = LRU(4096)
_plans: LRU[Any, Any] = LRU(4096)


def contiguous(x: Any) -> Any:
    """A copy of an array in the order of its dims, or NotImplemented."""

    def plan() -> Any:
        found = _planned(x.shape, x.strides, x.itemsize)
        return (None, None, None) if found is None else (found, *prepared(*found, use="contiguous"))

    found, entry, build = _plans.made((x.shape, x.strides, x.itemsize), plan)
    if found is None:
        return _of_transposed(x)

    def copy(built: Any) -> Any:
        made = _made(x.shape, x.dtype, x.size)
        built([x, made, *found.numbers], found.rows, found.each)
        return made

    return nested("contiguous", entry, build, copy, lambda: relayout.plainly(x), x.size, found.type)


def _of_transposed(x: Any) -> Any:
    """`contiguous` of transposed matrices."""
    if not transposes.serves(x):
        return NotImplemented

    made = _made(x.shape, x.dtype, x.size)
    return made if transposes.transposed(made, x) else NotImplemented


def _made(shape: tuple[int, ...], dtype: Any, count: int) -> Any:
    """A new array of that many elements: malloc's, which it has at once, where it retains such memory."""
    return (np if count * dtype.itemsize < replay.FROM_ALLOCATOR else relayout).empty(shape, dtype)


if processor.available():
    relayout.providers.contiguous = contiguous

_placings: LRU[Any, Any] = LRU(4096)
_Dim = tuple[int, int, int, int]  # size; start, step and count of what is placed there


def _dims(shape: Sequence[int], index: Sequence[Any]) -> list[_Dim] | None:
    """What an index of ints, slices and an ellipsis is of each dim; None for others, and for steps back."""
    used = sum(i is not Ellipsis for i in index)
    spread = [slice(None)] * (len(shape) - used)
    items: list[Any] = []
    for i in index:
        items += spread if i is Ellipsis else [i]
    items += [slice(None)] * (len(shape) - len(items))
    found = []
    for size, item in zip(shape, items, strict=True):
        if item.__class__ is slice:
            start, stop, step = item.indices(size)
            found.append((size, start, step, len(range(start, stop, step))))
        elif item.__class__ is int:
            found.append((size, item + size if item < 0 else item, 1, 1))
        else:
            return None
    return None if any(step < 1 or not count for _, _, step, count in found) else found


def _joined(dims: list[_Dim]) -> list[_Dim]:
    """The dims with those whose places are neighbours in both arrays as one."""
    joined: list[_Dim] = []
    for size, start, step, count in dims:
        whole = count == size
        if joined and whole and (joined[-1][2] == 1 or joined[-1][3] == 1):  # as many neighbours of the dim before
            n, first, _, many = joined[-1]
            joined[-1] = n * size, first * size, 1, many * size
        elif size > 1 or not joined:
            joined.append((size, start, step if count > 1 else 1, count))
    return joined


def _placing(shape: Sequence[int], index: Sequence[Any], item: int) -> _Plan | None:
    """The kernel for gradients of a slice; None for what is left to numpy."""
    dims = _dims(shape, index) if item in (1, 2, 4, 8) and 0 not in shape else None
    if dims is None:
        return None
    joined = _joined(dims)
    n, start, step, count = joined[-1]
    common = gcd(n, start, count) if step == 1 else 1
    if 1 < common < n and common * item >= _WRITTEN:  # rows that are placed whole, or not at all
        joined[-1:] = [(n // common, start // common, 1, count // common), (common, 0, 1, common)]
    n, start, step, count = joined[-1]
    if prod(d[0] for d in joined[:-1]) < _PARTS and count == n >= _LONG:
        parts = next((p for p in range(_PARTS, 1, -1) if n % p == 0), 1)
        joined[-1:] = [(parts, 0, 1, parts), (n // parts, 0, 1, n // parts)]
    if len(joined) > _DIMS:
        return None
    outer, last = joined[:-1] or [(1, 0, 1, 1)], joined[-1]
    n, start, step, count = last
    even = 1 < step <= _APART and start < step and count * step == n
    write = copies.placed(len(outer), step == 1, (start, step) if even else (0, 1))
    numbers = [number for d in (*outer, last) for number in d]
    return _Plan(write, numbers, prod(d[0] for d in outer), last[0], f"uint{8 * item}")


def placed(grad: Any, shape: tuple[int, ...], index: tuple[Any, ...], plain: Callable[[], Any]) -> Any:
    """Zeros with `grad` at an index, or NotImplemented.  grad (*) -> (*shape)."""
    if not grad.flags.c_contiguous or grad.dtype.hasobject:
        return NotImplemented

    def plan() -> Any:
        found = _placing(shape, index, grad.itemsize)
        return (None, None, None) if found is None else (found, *prepared(*found, use="placed"))

    key = [(i.start, i.stop, i.step) if i.__class__ is slice else i for i in index]
    if not all(part.__class__ in (tuple, int) or part is Ellipsis for part in key):  # True is no 1
        return NotImplemented
    found, entry, build = _placings.made((shape, tuple(key), grad.itemsize), plan)
    if found is None:
        return NotImplemented

    def place(built: Any) -> Any:
        made = _made(shape, grad.dtype, prod(shape))
        built([grad, made, *found.numbers], found.rows, found.each)
        return made

    return nested("place", entry, build, place, plain, prod(shape), found.type)


if processor.available():
    relayout.providers.placed = placed


def _adding(shape: Sequence[int], index: Sequence[Any], type: str) -> _Plan | None:
    """The kernel that adds to a slice; None for what is left to numpy."""
    dims = _dims(shape, index) if type in ("float32", "float64") and 0 not in shape else None
    if dims is None:
        return None
    joined = _joined(dims)
    if joined[-1][3] == 1 and len(joined) > 1:  # places of a dim before: rows of one element would be short
        (size, start, step, count), (n, at, _, _) = joined[-2:]
        joined[-2:] = [(size * n, start * n + at, step * n, count)]
    strides = [prod(d[0] for d in joined[i + 1 :]) for i in range(len(joined))]
    first = sum(d[1] * s for d, s in zip(joined, strides))
    counts, steps = [d[3] for d in joined], [d[2] * s for d, s in zip(joined, strides)]
    many, step = counts[-1], steps[-1]
    if len(counts) == 1 and many >= _LONG:  # one line: in parts, which threads share
        parts = next((p for p in range(_PARTS, 1, -1) if many % p == 0), 1)
        counts, steps, many = [parts, many // parts], [many // parts * step, step], many // parts
    counts, steps = counts[:-1] or [1], steps[:-1] or [0]
    if len(counts) > _DIMS:
        return None
    return _Plan(copies.added_at(len(counts)), [*counts[1:], *steps, first, many, step], prod(counts), many, type)


_addings: LRU[Any, Any] = LRU(4096)


def added(array: Any, grad: Any, index: tuple[Any, ...]) -> bool:
    """Add `grad` to a contiguous array at an index, in place; False for what is left to numpy."""
    if not grad.flags.c_contiguous:
        return False

    def plan() -> Any:
        found = _adding(array.shape, index, array.dtype.name)
        return (None, None, None) if found is None else (found, *prepared(*found, use="added"))

    key = [(i.start, i.stop, i.step) if i.__class__ is slice else i for i in index]
    if not all(part.__class__ in (tuple, int) or part is Ellipsis for part in key):  # True is no 1
        return False
    found, entry, build = _addings.made((array.shape, tuple(key), array.dtype), plan)
    if found is None:
        return False
    trials = launch.trials
    fresh, paid = len(trials.fresh), trials.paid
    try:
        built = launch.ready(entry, grad.size, build)
    except launch.Unfit:
        return False
    finally:
        del trials.fresh[fresh:]
        trials.paid = paid

    def add(to: Any) -> None:
        built([grad, to, *found.numbers], found.rows, found.each)

    def plain(to: Any) -> None:
        part = to[index]
        np.add(part, grad, out=part)

    if not (entry.proven or trials.trusted):
        want, made = array.copy(), array.copy()
        plain(want)
        add(made)
        if not launch.proven("add at", [entry], comparison.difference(want, made)):
            return False
        if launch.slower(lambda: add(made), lambda: plain(want), of=[entry]):
            entry.lost()
    add(array)
    return True


if processor.available():
    relayout.providers.added = added

_LINE = 64  # bytes of neighbours that are copied at once, below which numpy's loop is as fast


def taken(array: Any, index: Any, axis: int) -> Any:
    """The entries of a dim at an index within it, shared among threads, or NotImplemented.

    array (*before, n, *after), index (*) of int64 -> (*before, *, *after).
    """
    before, n, after = prod(array.shape[:axis]), array.shape[axis], prod(array.shape[axis + 1 :])
    fit = array.flags.c_contiguous and index.flags.c_contiguous and index.dtype == np.int64
    if not fit or array.itemsize not in (1, 2, 4, 8) or array.dtype.hasobject or after * array.itemsize < _LINE:
        return NotImplemented
    numbers, rows, type = [n, index.size, after], before * index.size, f"uint{8 * array.itemsize}"

    def take(built: Any) -> Any:
        made = _made((*array.shape[:axis], *index.shape, *array.shape[axis + 1 :]), array.dtype, rows * after)
        built([array, index, made, *numbers], rows, after)
        return made

    entry, build = prepared(copies.taken, numbers, rows, after, type, use="taken")
    if entry.disabled:
        return NotImplemented
    return nested("take", entry, build, take, lambda: array.take(index, axis=axis), rows * after, type)


if processor.available():
    relayout.providers.taken = taken


@kernel(embedding.embedding, "cpu")
def _embedding(xp, weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    if weight.ndim != 2 or not weight.size or not indices.size or indices.dtype.name not in ("int32", "int64"):
        return NotImplemented
    if weight.itemsize not in (1, 2, 4, 8) or not weight.flags.c_contiguous or not indices.flags.c_contiguous:
        return NotImplemented
    (n, after), count, kind = weight.shape, indices.size, indices.dtype.name
    wrong, made = xp.empty((1,), np.dtype("int32")), xp.empty((*indices.shape, after), weight.dtype)
    run(copies.outside(kind), [indices, wrong], [n, count], 1, count, kind)
    launch.refuse_if(wrong)
    run(copies.looked_up(kind), [weight, indices, made], [n, after], count, after, f"uint{8 * weight.itemsize}")
    return made


@kernel(rearranging.repeat, "cpu", only_launches=True)
def _repeat(xp, input, repeats):
    lead = len(repeats) - input.ndim
    if lead < 0 or min(repeats, default=1) < 1:
        return NotImplemented
    own, strides = (1,) * lead + input.shape, (0,) * lead + input.strides
    shape = [size for pair in zip(repeats, own) for size in pair]
    steps = [step for s in strides for step in (0, s)]
    return _arranged(xp, input, shape, steps, [r * n for r, n in zip(repeats, own)])


@kernel(rearranging.repeat_each, "cpu", only_launches=True)
def _repeat_each(xp, input, repeats, dim):
    shape = (*input.shape[: dim + 1], repeats, *input.shape[dim + 1 :])
    return _arranged(xp, input, shape, (*input.strides[: dim + 1], 0, *input.strides[dim + 1 :]), shape)


# --- copies of few elements; those of more are `relayout.py`'s, which has the kernels above


@kernel(copying.clone, "direct", serves=lambda *_: False)
def _clone(xp, input, *, memory_format=None):
    if memory_format is not contiguous_format and not (memory_format is None and input.flags.c_contiguous):
        return NotImplemented
    return _arranged(xp, input, input.shape, input.strides, input.shape)


@kernel(shape.reshape_copy, "direct", serves=lambda *_: False)
def _reshape_copy(xp, input, shape):
    return _arranged(xp, input, input.shape, input.strides, shape)


def paired(xp: Any, real: Any, imag: Any) -> Any:
    """The complex64 numbers of two float32 parts of one shape, or NotImplemented."""
    plain = isinstance(real, np.ndarray) and isinstance(imag, np.ndarray) and real.shape == imag.shape
    if not plain or not real.dtype == imag.dtype == np.float32 or not real.size:
        return NotImplemented
    if not real.flags.c_contiguous or not imag.flags.c_contiguous:
        return NotImplemented
    made = xp.empty(real.shape, np.dtype("complex64"))
    run(copies.paired, [real, imag, made], [], made.size, 1, "uint32")
    return made


# --- joined

_MANY = 32  # arrays that are joined
_TOGETHER = 8  # arrays of one shape that are joined by one launch
_SHORT = 1 << 12  # bytes of a line of what is joined, up to which all parts of it are written at once
_LINES = 64  # that one row of such a kernel has at most, so that rows are few
_CLOSE = 8  # elements of a step, and of a place, up to which code is written for them: neighbours of several arrays
_moves: dict[Any, launch.Entry] = {}


def _joined_arrays(xp: Any, arrays: Sequence[Any], shape: tuple[int, ...], dim: int, ends: Sequence[int]) -> Any:
    """Arrays one after the other along a dim of a new array; ends: of their places there.  Arrays (*) -> (*shape)."""
    first = arrays[0]
    made, item = xp.empty(shape, first.dtype), first.itemsize
    to = [s // item for s in made.strides]
    begins, groups = [0, *ends], dict[Any, list[int]]()
    for n, a in enumerate(arrays):
        groups.setdefault(a.shape, []).append(n)
    for members in groups.values():
        for at in range(0, len(members), _TOGETHER):
            some = members[at : at + _TOGETHER]
            starts = [begins[m] * to[dim] for m in some]
            entry, build, numbers, count, each = _move([arrays[m] for m in some], to, starts)
            built = launch.ready(entry, count, build)
            launch.launched(built, [*[arrays[m] for m in some], made], numbers, count, each)
    return made


def _move(arrays: Sequence[Any], to: Sequence[int], starts: Sequence[int]) -> tuple[Any, ...]:
    """The kernel that writes arrays of one shape with strides `to` from their starts on: its standing, what compiles
    it, its numbers, elements, and the work of each."""
    own, item = arrays[0].shape, arrays[0].itemsize
    strides = [[s // item if n > 1 else 0 for s, n in zip(a.strides, own)] for a in arrays]
    layout = collapsed(own, [*strides, to])
    numbers = [*layout.numbers(), *starts]
    code = copies.moved(layout.classes)(f"uint{8 * item}")
    fixed = launch.known(code, numbers, _CLOSE) | launch.line_of(layout)
    key = layout.classes, item, tuple(fixed.items()), launch.magnitude(layout.count)
    entry = _moves.setdefault(key, launch.Entry())
    each = launch.costs(code, layout, fixed)[1]
    return entry, partial(cpu.build, code, known=fixed), numbers, layout.count, each


_joins: LRU[Any, Any] = LRU(4096)


def joined(arrays: Sequence[Any], dim: int) -> Any:
    """Arrays one after the other along a dim, shared among threads, or NotImplemented."""
    first = arrays[0]
    if len(arrays) > _TOGETHER or not _fit(arrays):
        return NotImplemented
    if any(a.shape != first.shape for a in arrays):
        return _joined_apart(arrays, dim)
    n = first.shape[dim]
    shape = (*first.shape[:dim], n * len(arrays), *first.shape[dim + 1 :])

    def plan() -> Any:
        to = [prod(shape[d + 1 :]) for d in range(len(shape))]
        return _move(arrays, to, [m * n * to[dim] for m in range(len(arrays))])

    key = first.itemsize, dim, first.shape, tuple([a.strides for a in arrays])
    entry, build, numbers, count, each = _joins.made(key, plan)

    def join(built: Any) -> Any:
        made = _made(shape, first.dtype, prod(shape))
        built([*arrays, made, *numbers], count, each)
        return made

    def plain() -> Any:
        return np.concatenate(arrays, axis=dim, out=_made(shape, first.dtype, prod(shape)))

    return nested("join", entry, build, join, plain, count, f"uint{8 * first.itemsize}")


def _joined_apart(arrays: Sequence[Any], dim: int) -> Any:
    """`joined` of arrays of other sizes along the dim, each by itself."""
    first = arrays[0]
    sizes = [a.shape[dim] for a in arrays]
    shape = (*first.shape[:dim], sum(sizes), *first.shape[dim + 1 :])
    if any((*a.shape[:dim], *a.shape[dim + 1 :]) != (*shape[:dim], *shape[dim + 1 :]) for a in arrays):
        return NotImplemented
    made = _made(shape, first.dtype, prod(shape))
    if prod(shape[dim:]) * first.itemsize < _SHORT:
        lines = [_lines(a, dim) for a in arrays]
        if None not in lines:
            return _joined_lines(arrays, made, dim, lines)
    for a, end in zip(arrays, accumulate(sizes)):
        place = (slice(None),) * dim + (slice(end - a.shape[dim], end),)
        found = _moved_to(made, place, a, (end - a.shape[dim]) * prod(shape[dim + 1 :]))
        if found is not NotImplemented:
            made[place] = found
    return made


def _lines(array: Any, dim: int) -> int | None:
    """The elements from one line of the dims from `dim` on to the next, None where they are not alike, or a line is not
    one run of memory."""
    line, steps = relayout.runs(array.shape[dim:], array.strides[dim:])
    lines, apart = relayout.runs(array.shape[:dim], array.strides[:dim])
    if len(line) > 1 or len(lines) > 1 or (line != [1] and steps != [array.itemsize]):
        return None
    return apart[0] // array.itemsize  # type: ignore[no-any-return]


def _joined_lines(arrays: Sequence[Any], made: Any, dim: int, apart: Sequence[int]) -> Any:
    """Arrays of short lines joined in `made`, line by line; NotImplemented until that is compiled."""
    sizes, count = [prod(a.shape[dim:]) for a in arrays], prod(made.shape[:dim])
    several = next((n for n in range(_LINES, 1, -1) if count % n == 0), 1)
    widths = tuple(n if n <= _WRITTEN // 8 else 0 for n in sizes)
    numbers = [several, sum(sizes), *[n for pair in zip(sizes, apart) for n in pair]]
    kind = f"uint{8 * made.itemsize}"

    def plan() -> Any:
        code = copies.joined(widths)(kind)
        entry = _moves.setdefault((widths, kind, launch.magnitude(made.size)), launch.Entry())
        return entry, partial(cpu.build, code)

    entry, build = _joins.made((widths, kind, *numbers, count), plan)

    def copy(built: Any) -> Any:
        built([*arrays, made, *numbers], count // several, several * sum(sizes))
        return made

    plain = lambda: np.concatenate(arrays, axis=dim, out=np.empty_like(made))
    return nested("join", entry, build, copy, plain, made.size, kind)


def _moved_to(made: Any, place: tuple[slice, ...], array: Any, start: int) -> Any:
    """Write an array to a place of `made`, from its element `start` on; return NotImplemented, or what is still to be
    written there."""
    to = [s // made.itemsize for s in made.strides]
    key = made.itemsize, array.shape, array.strides, made.strides, start
    entry, build, numbers, count, each = _joins.made(key, lambda: _move([array], to, [start]))

    def copy(built: Any) -> Any:
        built([array, made, *numbers], count, each)
        return made[place]

    def plain() -> Any:
        other = _made(made.shape, made.dtype, made.size)
        other[place] = array
        return other[place]

    found = nested("join", entry, build, copy, plain, count, f"uint{8 * made.itemsize}")
    if found is NotImplemented:
        return array
    return NotImplemented if np.may_share_memory(found, made) else found


def written(target: Any, source: Any) -> bool:
    """target[...] = source of one type, in memory that they do not share; False where that is left to numpy."""
    item, to = target.itemsize, [s // target.itemsize for s in target.strides]
    if item not in (1, 2, 4, 8) or target.dtype.hasobject or any(s % item for s in (*target.strides, *source.strides)):
        return False
    key = item, target.shape, source.strides, target.strides
    entry, build, numbers, count, each = _joins.made(key, lambda: _move([source], to, [0]))

    def copy(built: Any) -> Any:
        built([source, target, *numbers], count, each)
        return target

    def plain() -> Any:
        other = np.lib.stride_tricks.as_strided(np.empty(1 + _last(target), target.dtype), target.shape, target.strides)
        other[...] = source
        return other

    found = nested("write", entry, build, copy, plain, count, f"uint{8 * item}")
    if found is not NotImplemented and found is not target:
        target[...] = found
    return found is not NotImplemented


def filled(target: Any, value: Any) -> bool:
    """target[...] = value, in C order, of one type; False where that is left to numpy."""
    item = target.itemsize
    if item not in (1, 2, 4, 8) or target.dtype.hasobject:
        return False
    everywhere = lambda: _move([np.broadcast_to(value, (target.size,))], [1], [0])
    entry, build, numbers, count, each = _joins.made((item, target.size), everywhere)

    def write(built: Any) -> Any:
        built([value, target, *numbers], count, each)
        return target

    def plain() -> Any:
        return np.full(target.shape, value, target.dtype)

    found = nested("fill", entry, build, write, plain, count, f"uint{8 * item}")
    if found is not NotImplemented and found is not target:
        target[...] = found
    return found is not NotImplemented


def _last(array: Any) -> int:
    """The place of the last element behind the first."""
    return sum(s // array.itemsize * (n - 1) for s, n in zip(array.strides, array.shape))


if processor.available():
    relayout.providers.joined = joined
    relayout.providers.written = written
    relayout.providers.filled = filled


def _fit(arrays: Sequence[Any]) -> bool:
    """Return whether arrays are of one type and number of dims, few, with elements, and their join is in C order."""
    first = arrays[0]
    if len(arrays) > _MANY or not first.ndim or first.itemsize not in (1, 2, 4, 8) or first.dtype.hasobject:
        return False
    item = first.itemsize
    if any(a.ndim != first.ndim or a.dtype != first.dtype or not a.size for a in arrays):
        return False
    if any(s % item for a in arrays for s in a.strides):
        return False
    wanted = {4: channels_last, 5: channels_last_3d}.get(first.ndim)
    return all(a.flags.c_contiguous for a in arrays) or not (wanted and all(is_in_format(a, wanted) for a in arrays))


@kernel(joining.cat, "direct")
def _cat(xp, tensors, dim=0):
    if not _fit(tensors):
        return NotImplemented
    first = tensors[0]
    axis = wrap_dim(dim, first.ndim)
    lead, tail = first.shape[:axis], first.shape[axis + 1 :]
    if any(a.shape[:axis] != lead or a.shape[axis + 1 :] != tail for a in tensors):
        return NotImplemented
    ends = list(accumulate(a.shape[axis] for a in tensors))
    return _joined_arrays(xp, tensors, (*lead, ends[-1], *tail), axis, ends)


@kernel(joining.stack_tensors, "direct")
def _stack(xp, tensors, dim=0):
    shape = tensors[0].shape
    dim = wrap_dim(dim, len(shape) + 1)
    parts = [a[(*[slice(None)] * dim, None)] for a in tensors]
    if any(a.shape != shape for a in tensors) or not _fit(parts):
        return NotImplemented
    return _joined_arrays(xp, parts, (*shape[:dim], len(parts), *shape[dim:]), dim, range(1, len(parts) + 1))
