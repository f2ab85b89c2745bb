"""Large elementwise operations: block by block, on a few threads, into memory from the cache.

The kernel of a pointwise op runs on blocks of its operands: what it keeps between its steps stays in the processor's
cache, threads share the blocks, and only the result goes to memory.  The blocks follow from shapes and strides alone,
so results do not depend on the number of threads.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engine.backends.cpu import threads
from engine.backends.cpu.allocator import LARGE, empty
from engine.backends.cpu.fast import Steps

__all__ = ["BLOCK", "pointwise"]

# Elements of a block.  Measured with two threads on 1e7 float32: half of it waits for the interpreter lock (gelu 26 ms
# against 19), four times of it falls out of the second-level cache (25 ms).
BLOCK = 1 << 17
LONG = 1 << 19  # of a kernel of one step


def pointwise(kernel: Callable[..., Any], whole: Any, direct: bool = False) -> Callable[..., Any]:
    """The kernel for large operands: `large(xp, *args, into=None, **options)`.

    `into`: an array that takes the result and is returned; it may be an operand.  `whole`: the array module for what
    is not worth blocks.  `direct`: no operand is read after the step that makes the result, so that step may overwrite
    one.
    """

    def large(xp: Any, *args: Any, into: np.ndarray | None = None, **options: Any) -> Any:
        if options.get("out") is not None:  # the kernel writes there itself, and knows its shape
            return kernel(whole, *args, **options)
        for a in args:
            if isinstance(a, np.ndarray) and a.nbytes >= LARGE:
                break
        else:  # small operands may have a large result: an outer product
            if _shape([a for a in args if a.__class__ is np.ndarray and a.ndim]) is None:
                return kernel(whole, *args, **options)
        kinds = {type(a) for a in args if isinstance(a, np.ndarray)} - {np.ndarray}
        with np.errstate(all="ignore"):
            if not kinds:
                found = _run(kernel, args, options, into, direct)
            elif len(kinds) == 1 and (into is None or type(into) in kinds):  # a subclass says how the array is laid out
                found = _run(
                    kernel, tuple(_alike(args)), options, into if into is None else into.view(np.ndarray), direct
                )
                found = found if found is None else found.view(kinds.pop()) if into is None else into
            else:
                found = None
            return kernel(whole, *args, **options) if found is None else found

    return large


def _alike(args: Sequence[Any]) -> list[Any]:
    """The arrays among the arguments as plain ones, those of the shape of a converted one in its order."""
    from engine.backends.cpu.relayout import to_channels_last

    relaid = {a.shape for a in args if isinstance(a, np.ndarray) and type(a) is not np.ndarray}
    given = [to_channels_last(a) if type(a) is np.ndarray and a.shape in relaid else a for a in args]
    return [a.view(np.ndarray) if isinstance(a, np.ndarray) else a for a in given]


def _run(kernel: Any, args: tuple, options: dict, into: np.ndarray | None, direct: bool) -> np.ndarray | None:
    """The result, or None where the kernel must see whole arrays."""
    places = [i for i, a in enumerate(args) if a.__class__ is np.ndarray and a.ndim]
    arrays = [args[i] for i in places]
    shape = _shape(arrays)
    if shape is None:
        return None
    if into is not None:
        # an error in a later block must not leave a half-written target: floats have none
        if into.shape != shape or into.dtype.kind not in "fc" or not _disjoint(into, arrays):
            return None
        arrays.append(into)
    order = _order(next((a for a in arrays if a.shape == shape), None), shape)
    if order is None:
        return None
    arrays, sizes, flat = _in_order(arrays, shape, order)
    target = arrays.pop() if into is not None else None
    slices = _slices(sizes)
    args_of = list(args)

    def block(xp: Any, index: Any) -> Any:
        own = args_of.copy()
        for i, a in zip(places, arrays):
            own[i] = a[index]
        return kernel(xp, *own, **options)

    steps = Steps()
    first = block(steps, slices[0])
    last = steps.of(first)
    del steps
    result = into
    if target is None:
        if first.__class__ is not np.ndarray:
            return None
        result = empty(shape, first.dtype, order)
        target = result.transpose(order)
        if flat:
            target = target.reshape(-1)
    elif first.dtype != target.dtype:
        return None
    if first.shape != target[slices[0]].shape:
        return None
    target[slices[0]] = first
    if into is not None and not direct:
        last = 0
    rest = slices[1:]
    if last == 1 and flat and len(slices) > 1:  # one step, nothing to keep in the cache
        rest = [slice(i, i + LONG) for i in range(slices[0].stop, sizes[0], LONG)]

    def work(index: Any) -> None:
        with np.errstate(all="ignore"):
            part = target[index]
            found = block(Steps(last, part), index)
            if found is not part:
                part[...] = found

    threads.run(work, rest)
    return result


def _shape(arrays: list[np.ndarray]) -> tuple[int, ...] | None:
    """The shape of the result; None where there is nothing to cut."""
    if not arrays:
        return None
    shape = arrays[0].shape
    if any(a.shape != shape for a in arrays):
        try:
            shape = np.broadcast_shapes(*[a.shape for a in arrays])
        except ValueError:
            return None  # the kernel says it better
    return shape if math.prod(shape) * max(a.itemsize for a in arrays) >= LARGE else None


def _in_order(
    arrays: list[np.ndarray], shape: tuple[int, ...], order: list[int]
) -> tuple[list[np.ndarray], tuple[int, ...], bool]:
    """The arrays with dims from the outermost to the innermost, their sizes, and whether all are one run of memory."""
    sizes = shape
    if order != list(range(len(shape))):
        arrays = [np.broadcast_to(a, shape) if a.shape != shape else a for a in arrays]
        arrays = [a.transpose(order) for a in arrays]
        sizes = tuple([shape[d] for d in order])
    if all(a.shape == sizes and a.flags.c_contiguous for a in arrays):
        return [a.reshape(-1) for a in arrays], (math.prod(sizes),), True
    return [np.broadcast_to(a, sizes) if a.shape != sizes else a for a in arrays], sizes, False


def _disjoint(target: np.ndarray, operands: list[np.ndarray]) -> bool:
    """Return whether each operand is the target itself or shares no memory with it."""
    start = target.__array_interface__["data"][0]
    for a in operands:
        same = (
            a.__array_interface__["data"][0] == start
            and a.strides == target.strides
            and a.shape == target.shape
            and a.dtype == target.dtype
        )
        if not same and np.may_share_memory(a, target):
            return False
    return True


def _order(full: np.ndarray | None, shape: tuple[int, ...]) -> list[int] | None:
    """The dims of the result from the outermost to the innermost: those of the first operand of its shape."""
    dims = list(range(len(shape)))
    if full is None or full.flags.c_contiguous:
        return dims
    strides = full.strides
    if any(s <= 0 and n > 1 for s, n in zip(strides, shape)):
        return None  # expanded or reversed
    return sorted(dims, key=lambda d: -strides[d] if shape[d] > 1 else 0)


def _slices(sizes: tuple[int, ...]) -> list[Any]:
    """Indices that cut an array of these sizes into blocks of at most BLOCK elements, none much smaller."""
    inner = 1
    d = len(sizes)
    while d and inner * sizes[d - 1] <= BLOCK:
        d -= 1
        inner *= sizes[d]
    if not d:
        return [(slice(None),)]
    count = -(-sizes[d - 1] // max(1, BLOCK // inner))
    step = -(-sizes[d - 1] // count)
    cuts = [slice(i, min(i + step, sizes[d - 1])) for i in range(0, sizes[d - 1], step)]
    if d == 1:
        return cuts
    outer = [[slice(i, i + 1) for i in range(n)] for n in sizes[: d - 1]]
    return list(itertools.product(*outer, cuts))
