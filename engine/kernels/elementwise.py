"""One kernel over the elements of broadcast arrays of any strides, from the array code of an op.

`Layout` reduces shapes and strides to the fewest dims in which all operands are regular: operands that lie alike become
one dim and are read by their element's number; what broadcasts has stride 0; only the rest pays for index arithmetic.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np

from engine.kernels.form import Array, Kernel, Value, compute_type
from engine.kernels.trace import DType, DTypeLike, Number, Reader, Trace, Traced, TracedModule, Untraceable, type_of

Class: TypeAlias = "str | tuple[bool, ...]"  # of an operand: "dense", or whether each stride is not 0


@dataclass(frozen=True, slots=True)
class Layout:
    """sizes: of the dims that are left, slowest first; strides[operand][dim] in elements."""

    sizes: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]

    @property
    def count(self) -> int:
        """Elements in all."""
        return prod(self.sizes)

    @property
    def classes(self) -> tuple[Class, ...]:
        """The part of a layout that a kernel depends on: its rank, and which strides are 0 or dense."""
        return tuple(["dense" if s in ((1,), ()) else tuple([bool(n) for n in s]) for s in self.strides])

    @property
    def wide(self) -> bool:
        """Return whether counts or offsets need 64 bits."""
        reach = [sum(abs(s) * (n - 1) for s, n in zip(strides, self.sizes)) for strides in self.strides]
        return max([self.count, *reach]) + (1 << 24) >= 2**31

    def numbers(self) -> list[int]:
        """Return the numbers passed to a kernel of these classes: the sizes but the slowest, then the strides that are
        not 0."""
        passed = list(self.sizes[1:])
        for kind, strides in zip(self.classes, self.strides):
            if kind != "dense":
                passed += [s for s in strides if s]
        return passed


def collapsed(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> Layout:
    """The layout of operands of one shape, with strides in elements (0 where one is broadcast)."""
    dims = [d for d in range(len(shape)) if shape[d] != 1]
    sizes: list[int] = []
    kept: list[list[int]] = []  # a row for each dim that is left: the strides of all operands
    for d in dims:
        row = [s[d] for s in strides]
        if kept and all(before == one * shape[d] for before, one in zip(kept[-1], row)):
            sizes[-1] *= shape[d]
            kept[-1] = row
        else:
            sizes.append(shape[d])
            kept.append(row)
    if not sizes:
        return Layout((1,), tuple([(1,) for _ in strides]))
    return Layout(tuple(sizes), tuple([tuple([row[k] for row in kept]) for k in range(len(strides))]))


def order_of(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...] | None:
    """The dims from slowest to fastest of an array that is dense in another order than C's; None for others."""
    order = sorted(range(len(shape)), key=lambda d: (-abs(strides[d]), d))
    step = 1
    for d in reversed(order):
        if shape[d] != 1:
            if strides[d] != step:
                return None
            step *= shape[d]
    return None if order == sorted(order) else tuple(order)


class Walk:
    """Offsets of the elements of a layout's operands, of which a kernel knows the classes."""

    def __init__(self, kernel: Kernel, classes: Sequence[Class], prefix: str = "") -> None:
        self.kernel = kernel
        self.rank = max([len(c) for c in classes if c != "dense"], default=1)
        self._classes, self._prefix = classes, prefix
        self._sizes: list[Value] = []
        self._strides: list[list[Value | None]] = []
        self._coordinates: dict[str, list[Value]] = {}

    def parameters(self) -> None:
        """Add the numbers of `Layout.numbers` as parameters, in that order."""
        k, p = self.kernel, self._prefix
        self._sizes = [k.scalar(f"{p}n{d}", "index") for d in range(1, self.rank)]
        for place, kind in enumerate(self._classes):
            flags = () if isinstance(kind, str) else kind
            self._strides.append([k.scalar(f"{p}s{place}_{d}", "index") if on else None for d, on in enumerate(flags)])

    def offset(self, place: int, index: Value) -> Value:
        """Return the offset of element number `index` in operand number `place`."""
        if self._classes[place] == "dense":
            return index
        found = self.kernel.constant(0, "index")
        if not any(self._classes[place]):
            return found
        for c, stride in zip(self._at(index), self._strides[place]):
            if stride is not None:
                found = c * stride if found.constant is not None else found + c * stride
        return found

    def _at(self, index: Value) -> list[Value]:
        """The coordinates of an element; those of one index are found once, where it is first asked for."""
        found = self._coordinates.get(index.name)
        if found is None:
            left, behind = index, []
            for n in reversed(self._sizes):
                behind.append(left % n)
                left = left // n
            found = self._coordinates[index.name] = [left, *reversed(behind)]
        return found


@dataclass(slots=True)
class Recorded:
    """A kernel recorded from array code.

    guards: (function of the numbers, answer) that must hold; numbers: (type, function of the numbers), the parameters
    after those of the layout; dtypes: of the results.
    """

    kernel: Kernel
    guards: list[tuple[Reader, bool]]
    numbers: list[tuple[str, Reader]]
    dtypes: list[DType]

    def fits(self, numbers: Sequence[float]) -> bool:
        """Return whether the numbers of a call lead to the same code."""
        return all(bool(ask(numbers)) == answer for ask, answer in self.guards)


def recorded(
    name: str,
    code: Callable[..., Any],
    args: Sequence[object],
    keywords: dict[str, object],
    classes: Sequence[Class],
    symbolic: bool,
    dtypes: Sequence[DTypeLike] | None = None,
    written: Sequence[int] = (),
    first: Callable[[Trace], object] | None = None,
) -> Recorded:
    """The kernel that does `code(first or xp, *args, **keywords)` for each element.

    args, keywords: arrays stand as numpy dtypes.  classes: of the layout's operands, the arrays in the order in which
    they come, then the results.  symbolic: numbers become parameters, else constants.  dtypes: of the results where
    they are known before.  written: arrays (by their number) that `code` changes in place.
    """
    kernel = Kernel(name, "map")
    trace = Trace(kernel)
    arrays: list[Traced] = []
    numbers = 0
    slots: list[Array] = []

    def stand_in(given: object) -> object:
        nonlocal numbers
        if isinstance(given, np.dtype):
            place = len(slots)
            type = type_of(given)
            slots.append(kernel.array(f"x{place}", type, place in written, classes[place] == "dense"))
            made = Traced(trace, kernel.index, given)
            arrays.append(made)
            return made
        if type_is_number(given):
            place = numbers
            numbers += 1
            return Number(trace, given, operator.itemgetter(place)) if symbolic else given
        return given

    stands = [stand_in(a) for a in args]
    named = {k: stand_in(v) for k, v in keywords.items()}
    if dtypes is None and not written:
        dtypes = _result_types(code, args, keywords, symbolic, first)
    outs = [
        kernel.array(f"out{n}", type_of(d), True, classes[len(slots) + n] == "dense")
        for n, d in enumerate(dtypes or ())
    ]
    walk = Walk(kernel, classes)
    walk.parameters()
    loaded = []
    for place, (slot, one) in enumerate(zip(slots, arrays)):
        one.value = kernel.load(slot, walk.offset(place, kernel.index))
        loaded.append(one.value)
    found = code(TracedModule(trace) if first is None else first(trace), *stands, **named)
    results = list(found) if isinstance(found, tuple) else [] if found is None else [found]
    if not written and not all(isinstance(r, Traced) for r in results):
        raise Untraceable("a result that is no array")
    for n, (slot, one) in enumerate(zip(outs, results)):
        kernel.store(slot, walk.offset(len(slots) + n, kernel.index), one.value)
    for place in written:
        if arrays[place].value is not loaded[place]:
            kernel.store(slots[place], walk.offset(place, kernel.index), arrays[place].value)
    types = [(type, of) for _, type, of in trace.numbers]
    return Recorded(kernel, trace.guards, types, [r.dtype for r in results])


def type_is_number(value: object) -> bool:
    """Return whether an argument is a number that may differ from call to call."""
    return type(value) in (int, float)


def _result_types(
    code: Callable[..., Any],
    args: Sequence[object],
    keywords: dict[str, object],
    symbolic: bool,
    first: Callable[[Trace], object] | None,
) -> list[DType]:
    """The dtypes of the results, by a recording that is thrown away."""
    count = sum(isinstance(a, np.dtype) for a in [*args, *keywords.values()])
    return recorded("types", code, args, keywords, ["dense"] * (count + 8), symbolic, [], (), first).dtypes


def recorded_many(
    name: str,
    code: Callable[..., Any],
    dtypes: Sequence[DTypeLike],
    temporaries: int,
    given: Sequence[object],
    read: Sequence[int],
    symbolic: bool,
    replayed: bool = False,
) -> Recorded:
    """The kernel of an optimizer's `code(xp, scratch, numbers, *arrays)` over many tensors at once.

    replayed: the numbers are read from memory; `Recorded.numbers` has a type and a function that gives all of it.

    dtypes: of the arrays of one tensor; those of 16 bits are computed in float32.  given: the numbers.  read: arrays
    that code only reads.  Parameters: for each array the addresses of all tensors; of each chunk its tensor, its first
    element and its end; the elements of a chunk; the numbers.  Element i is number i % chunk of chunk i // chunk.
    """
    k = Kernel(name + "_replayed" * replayed, "map")
    trace = Trace(k, replayed)
    tables = [k.pointers(f"x{n}", type_of(d)) for n, d in enumerate(dtypes)]
    tensor, first, end = k.array("tensor", "int32"), k.array("first", "int64"), k.array("end", "int64")
    size = k.scalar("size", "index")
    chunk = k.index // size
    at = k.cast(k.load(first, chunk) + k.cast(k.index % size, "int64"), "int64")
    with k.when(at < k.load(end, chunk)):
        which = k.cast(k.load(tensor, chunk), "index")
        wide = [np.dtype("float32") if d.itemsize == 2 else d for d in [np.dtype(each) for each in dtypes]]
        arrays = [Traced(trace, k.load(t, at, which), d) for t, d in zip(tables, wide)]
        before = [a.value for a in arrays]
        scratch = [Traced(trace, k.constant(0, compute_type(type_of(wide[0]))), wide[0]) for _ in range(temporaries)]
        numbers = tuple(
            [
                Number(trace, n, operator.itemgetter(p)) if symbolic and type_is_number(n) else n
                for p, n in enumerate(given)
            ]
        )
        code(TracedModule(trace), scratch, numbers, *arrays)
        for n, (table, one) in enumerate(zip(tables, arrays)):
            if one.value is not before[n] and n not in read:
                k.store(table, at, one.value, which)
    if trace.memory is not None:
        types = [(type, _together(all_of)) for type, (_, all_of) in trace.memory.items()]
    else:
        types = [(type, of) for _, type, of in trace.numbers]
    return Recorded(k, trace.guards, types, [])


def _together(readers: Sequence[Reader]) -> Reader:
    """What reads all that the readers do, in a list."""
    return lambda values: [of(values) for of in readers]
