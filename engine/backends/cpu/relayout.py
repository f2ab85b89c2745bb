"""Copies of arrays that lie in another order: transposed matrices, heads of attention, images.

Note [Transposed copies]
numpy copies along the last dim of the target.  Where the source has another order, each of those elements comes from
a line of memory of its own; of widths like 512 and 1024 those lines share few places of the cache, so that each is
read many times: a transposed matrix of 1536 x 512 took 3.2 ms, PyTorch 0.8.  oneDNN makes a program for such a copy
(0.3 ms), which takes 0.2: it does for what is large, or is copied like that again.  Other types, and processors
without oneDNN: the target's last dim is cut, so that a line is read whole while it is in the cache (0.7 ms).
Where both have short runs of neighbours in memory (heads of attention, windows of a signal), a run is one element of
numpy's type void: runs of 8 floats take 0.6 of the time of a loop for each, those of 2 take 0.4.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engine.backends.cpu import threads
from engine.backends.cpu.allocator import empty
from engine.core.layouts import (
    ChannelsLast,
    asks_channels_last,
    channels_last,
    channels_last_3d,
    contiguous_format,
    copy_preserved,
    empty_in_format,
    lies_channels_last,
    preserve_format,
)
from engine.core.lru import LRU
from engine.core.slots import Slot, Slots

__all__ = [
    "RestoreTorchOrder",
    "as_channels_last",
    "contiguous",
    "copy",
    "copy_in_format",
    "empty_channels_last",
    "empty_image",
    "follow",
    "image",
    "in_c_order",
    "in_torch_order",
    "joined",
    "plainly",
    "providers",
    "runs",
    "taken",
    "to_channels_last",
    "write",
]

FEW = 1 << 14  # elements below which numpy's copy is as fast
_FEW_SHORT = 1 << 12  # the same where neighbours are few and far apart: it starts a loop for each few of them
_SHORT, _FAR = 16, 64  # elements, bytes
_MANY = 1 << 20  # elements whose first copy pays for a program
_PROGRAM = 1 << 15  # elements below which no program of oneDNN's is faster than numpy
_CUT = 32  # elements of the target's last dim that are copied at once
_ALIKE = 2048  # bytes: elements so far apart, or a multiple, share places of the cache
_SHARE = 1 << 17  # elements per thread copies at least
_TAKEN = 1 << 17  # elements at an index, or of arrays that are joined, that are shared among threads
_WRITTEN = 1 << 15  # elements of short lines of a slice that generated code writes: numpy's loops take 12 to 17 us
_WRITTEN_LINE = 64  # elements of such a line
_FILLED = 1 << 20  # bytes that generated code fills
_RUN = 1 << 12  # bytes of a run of neighbours up to which the loop for each costs something

_seen: LRU[Any, bool] = LRU(1 << 12)  # layouts that were copied once


class Providers(Slots):
    """What copies need of the layers above."""

    # contiguous(source): a copy in C order by generated code, or NotImplemented
    contiguous: Slot[Callable[[np.ndarray], Any] | None] = None
    # placed(grad, shape, index, plain): zeros with `grad` at an index, or NotImplemented
    placed: Slot[Callable[..., Any] | None] = None
    # added(array, grad, index): array[index] += grad, in place; False where that is left to numpy
    added: Slot[Callable[[np.ndarray, np.ndarray, Any], bool] | None] = None
    # taken(array, index, axis): the entries of a dim at an index that is within it, or NotImplemented
    taken: Slot[Callable[[np.ndarray, np.ndarray, int], Any] | None] = None
    # transposed(target, source): target[...] = source of transposed matrices; False where that is left to numpy
    transposed: Slot[Callable[[np.ndarray, np.ndarray], bool] | None] = None
    # written(target, source): target[...] = source, of one shape; False where that is left to numpy
    written: Slot[Callable[[np.ndarray, np.ndarray], bool] | None] = None
    # filled(target, value): target[...] = value, a 0-dim array of its type; False where that is left to numpy
    filled: Slot[Callable[[np.ndarray, np.ndarray], bool] | None] = None
    # joined(arrays, axis): arrays one after the other along a dim, in C order, or NotImplemented
    joined: Slot[Callable[[Sequence[np.ndarray], int], Any] | None] = None


providers = Providers()


def contiguous(source: np.ndarray) -> np.ndarray:
    """A copy in C order.  (*) -> (*)."""
    few = source.size < FEW
    if few and source.size >= _FEW_SHORT and source.shape[-1] <= _SHORT and source.strides[-1] > _FAR:
        few = False
    if few or source.flags.c_contiguous or source.dtype.hasobject:
        return source.copy("C")
    if providers.contiguous is not None:
        found: Any = providers.contiguous(source)
        if found is not NotImplemented:
            return found  # type: ignore[no-any-return]
    return plainly(source)


def plainly(source: np.ndarray, squares: bool = True) -> np.ndarray:
    """A copy in C order without generated code but that of transposed matrices (`squares`).  (*) -> (*)."""
    target = empty(source.shape, source.dtype)
    copy(target, source, squares)
    return target


def copy(target: np.ndarray, source: np.ndarray, squares: bool = True) -> None:
    """target[...] = source, of one shape and dtype, in memory that they do not share.  Note [Transposed copies]

    squares: transposed matrices may be copied by generated code.
    """
    if source.size < FEW or source.dtype != target.dtype:
        target[...] = source
        return
    if not target.flags.c_contiguous:
        order = sorted(range(target.ndim), key=lambda d: -target.strides[d])
        target, source = target.transpose(order), source.transpose(order)
    sizes, _ = runs(source.shape, source.strides)
    if not target.flags.c_contiguous or len(sizes) < 2:
        target[...] = source
        return
    target, source = target.reshape(sizes), source.reshape(sizes)
    run = sizes[-1] * source.itemsize
    if source.strides[-1] == source.itemsize and source.size < _MANY and run <= _RUN:
        target.view(_of_bytes(run))[...] = source.view(_of_bytes(run))
        return
    if squares and providers.transposed is not None and providers.transposed(target, source):
        return
    if _by_program(target, source):
        return
    if source.strides[-1] == source.itemsize and run <= _RUN:
        target.view(_of_bytes(run))[...] = source.view(_of_bytes(run))
        return
    if not source.strides[-1] or source.strides[-1] % _ALIKE or sizes[-1] <= _CUT:
        target[...] = source
        return
    _in_cuts(target, source)


def taken(array: np.ndarray, index: np.ndarray, axis: int) -> np.ndarray:
    """array.take(index, axis), of an index within the dim: what is large is shared among threads."""
    count = array.size // (array.shape[axis] or 1) * index.size
    if count >= _TAKEN and providers.taken and threads.get_num_threads() > 1:
        found: Any = providers.taken(array, index, axis)
        if found is not NotImplemented:
            return found  # type: ignore[no-any-return]
    return array.take(index, axis=axis)


def joined(arrays: Sequence[np.ndarray], axis: int) -> Any:
    """Large arrays one after the other along a dim, in C order, shared among threads; NotImplemented for others."""
    if sum(a.size for a in arrays) < _TAKEN or threads.get_num_threads() == 1 or providers.joined is None:
        return NotImplemented
    return providers.joined(arrays, axis)


def write(target: np.ndarray, source: np.ndarray) -> None:
    """target[...] = source: of large parts of arrays, as a slice has them, threads write a part each."""
    least = _WRITTEN if target.ndim and target.shape[-1] <= _WRITTEN_LINE else _TAKEN
    if target.size >= least and providers.written and threads.get_num_threads() > 1 and target.dtype == source.dtype:
        spread = source if source.shape == target.shape else np.broadcast_to(source, target.shape)
        ahead = min(target.strides) > 0 and min(spread.strides) >= 0
        gaps = not (target.flags.c_contiguous and spread.flags.c_contiguous)
        if ahead and gaps and not np.may_share_memory(target, source) and providers.written(target, spread):
            return
    target[...] = source


def fill(target: np.ndarray, value: Any) -> None:
    """target[...] = value, a number that its type has; many bytes are shared among threads."""
    if target.__class__ is np.ndarray and target.nbytes >= _FILLED and target.flags.c_contiguous:
        value = np.asarray(value, target.dtype)
        if providers.filled is not None and providers.filled(target, value):
            return
    target[...] = value


@functools.cache
def _of_bytes(count: int) -> np.dtype[np.void]:
    """The type of elements of that many bytes, which are copied without a look at what they are."""
    return np.dtype((np.void, count))


def runs(shape: Sequence[int], strides: Sequence[int]) -> tuple[list[int], list[int]]:
    """Sizes and strides with dims that are one run of memory, or one step, as one."""
    sizes: list[int] = []
    steps: list[int] = []
    for n, s in zip(shape, strides):
        if n == 1:
            continue
        if sizes and steps[-1] == n * s:
            sizes[-1] *= n
            steps[-1] = s
        else:
            sizes.append(n)
            steps.append(s)
    return sizes or [1], steps or [0]


def _by_program(target: np.ndarray, source: np.ndarray) -> bool:
    if source.itemsize != 4 or source.ndim > 6 or any(s <= 0 or s % 4 for s in source.strides):
        return False
    if source.size < _PROGRAM and source.strides[-1] % _ALIKE:
        return False
    if source.size < _MANY:
        key = (source.shape, source.strides)
        if not _seen.get(key):
            _seen[key] = True
            return False
    from engine.backends.onednn import arrays  # for the weight: only for large copies

    return arrays.reorder(source, target)


def _in_cuts(target: np.ndarray, source: np.ndarray) -> None:
    size = target.shape[-1]
    share = max(_CUT, size * _SHARE // target.size // _CUT * _CUT)

    def work(first: int) -> None:
        for i in range(first, min(first + share, size), _CUT):
            target[..., i : i + _CUT] = source[..., i : i + _CUT]

    threads.run(work, list(range(0, size, share)))


# --- by memory format


def in_torch_order(array: Any) -> Any:
    """A ChannelsLast array as the contiguous array it stands for; anything else as it is."""
    if type(array) is not ChannelsLast:
        return array
    if array.flags.c_contiguous:  # a weight: the array it shows
        shown: Any = array.base
        return shown if shown.shape == array.shape else array.view(np.ndarray)
    return in_c_order(array.view(np.ndarray))


class RestoreTorchOrder:
    """The descriptor `_array` of the class: it is reached only of a converted tensor, whose memory it copies back.

    It comes to the class with the first converted tensor (Note [Channels-last tensors]): with it Python reads `_array`
    more slowly, also where it is set.
    """

    def __get__(self, tensor: Any, owner: Any = None) -> Any:
        if tensor is None:
            return self
        converted = tensor._channels_last
        if converted is None:
            raise AttributeError(f"'{owner.__name__}' object has no attribute '_array'")
        array = tensor._array = in_torch_order(converted)
        tensor._channels_last = None
        return array


def to_channels_last(array: np.ndarray) -> ChannelsLast:
    """A copy in channels-last memory; no copy of what the engine converted already, but of a weight, which it converts
    where it is."""
    if type(array) is ChannelsLast:
        if lies_channels_last(array):
            return array
        array = array.view(np.ndarray)
    result = empty_channels_last(array.shape, array.dtype)
    copy(result.view(np.ndarray), array)
    return result


def image(array: Any) -> Any:
    """Return the array in channels-last memory, as a plain numpy array: a copy unless it is laid out so."""
    found = array if lies_channels_last(array) else to_channels_last(array)
    return found.view(np.ndarray)


def as_channels_last(array: Any) -> Any:
    """Return the array in channels-last memory: a copy unless it is laid out so."""
    return array if lies_channels_last(array) else to_channels_last(array)


def empty_channels_last(shape: Sequence[int], dtype: Any) -> ChannelsLast:
    """A new ChannelsLast array of logical sizes (N, C, *size)."""
    inner, back = _order(tuple(shape))
    return empty(inner, dtype).transpose(back).view(ChannelsLast)


def empty_image(shape: Sequence[int], *operands: Any) -> Any:
    """Return a new float32 image in channels-last memory: converted, or as users lay it out where an operand is so."""
    made = empty_channels_last(shape, "float32")
    return made.view(np.ndarray) if any(asks_channels_last(a) for a in operands) else made


@functools.lru_cache(4096)
def _order(shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The sizes (N, *size, C) of the memory of (N, C, *size), and the permutation that leads from there back."""
    ndim = len(shape)
    return (shape[0], *shape[2:], shape[1]), (0, ndim - 1, *range(1, ndim - 1))


def follow(xp: Any, result: Any, *operands: Any) -> Any:
    """`result`, copied channels-last if the user made one of the operands so: the rule of convolutions and pooling."""
    if not any(a is not None and asks_channels_last(a) for a in operands) or result.ndim not in (
        4,
        5,
    ):
        return result
    return copy_in_format(xp, result, channels_last if result.ndim == 4 else channels_last_3d)


def copy_in_format(xp: Any, array: Any, wanted: Any) -> Any:
    """A copy in a memory format."""
    if wanted is None or wanted is preserve_format:
        return copy_preserved(xp, array)
    if wanted is contiguous_format:
        return in_c_order(array)
    result = empty_in_format(xp, array.shape, array.dtype, wanted)
    if type(array) is type(result) is np.ndarray:
        copy(result, array)
    else:
        result[...] = array
    return result


def in_c_order(array: Any) -> Any:
    """A copy whose elements lie in the order of the dims."""
    if type(array) is not np.ndarray:
        return array.copy("C")
    return contiguous(array)
