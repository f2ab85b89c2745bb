"""Memory formats and layouts: the constants, arrays laid out by strides, and the layout the engine chooses itself.

`contiguous_format`, `channels_last`, `channels_last_3d`, `preserve_format` and `strided`, `sparse_coo` ... are torch's
objects; the functions below work on arrays and `xp`.  Strides here are in bytes, as the arrays have them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from engine.core.checks import contiguous_strides

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from engine.core.arrays import Array, ArrayModule

__all__ = [
    "channels_last",
    "channels_last_3d",
    "contiguous_format",
    "jagged",
    "layout",
    "memory_format",
    "preserve_format",
    "sparse_bsc",
    "sparse_bsr",
    "sparse_coo",
    "sparse_csc",
    "sparse_csr",
    "strided",
]


class memory_format:
    """The order of a tensor's elements in memory: one object per format, `repr` `torch.channels_last`."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> str:
        return self.name


class layout(memory_format):
    """The kind of storage of a tensor: `strided` here; the sparse ones exist as names only."""

    __slots__ = ()


contiguous_format = memory_format("contiguous_format")
channels_last = memory_format("channels_last")
channels_last_3d = memory_format("channels_last_3d")
preserve_format = memory_format("preserve_format")
strided = layout("strided")
sparse_coo = layout("sparse_coo")
sparse_csr = layout("sparse_csr")
sparse_csc = layout("sparse_csc")
sparse_bsr = layout("sparse_bsr")
sparse_bsc = layout("sparse_bsc")
jagged = layout("jagged")

# Note [Channels-last tensors]
# Convolutions compute on channels-last memory, and what stands between two of them (norms, pooling, relu, sums) works
# on it as well.  So results of such ops are *converted*: the array is a `ChannelsLast`, a numpy array with
# channels-last strides, and the tensor holds it in `_channels_last` instead of `_array`.  To everybody else the tensor
# is contiguous. Any read of `_array` copies the memory back to torch's order, once and for good
# (`backends/cpu/relayout.py`, RestoreTorchOrder), so code that does not know of layouts cannot see one: views,
# `numpy()`, `storage()`, `data_ptr()`, in-place writes and pickling all read `_array`.  Code that takes any layout
# reads `tensor.raw_array(t)`: sizes and dtypes, and ops declared `@op(channels_last=True)`.  Those get `ChannelsLast`
# arrays among their arguments and return one (numpy's functions keep the class and the order of dims) or any other
# array; `runtime.hold` stores the result.  Before the first converted tensor nobody asks: `RestoreTorchOrder` comes to
# the class then, and those ops are written again (`binder.begin_conversion`). Weights of convolutions and of recurrent
# layers are converted as well, at the first use without gradients: in the same memory, but nobody can write to it
# unseen, so what oneDNN made of them is kept with them (`ChannelsLast.packed`). A converted tensor has no view and no
# alias, since making one reads `_array`; a saved result keeps its own array, which nobody writes to without raising the
# version.  What a *user* makes channels-last is an ordinary strided tensor.


class ChannelsLast(np.ndarray):
    """An array (N, C, *size) whose memory is (N, *size, C) by the engine's choice: see Note [Channels-last tensors].

    `packed`: of a weight, what a kernel keeps of it in an order of its own; None again once the weight is written to.
    """

    packed: object = None


# The dims of (N, C, *size) as channels-last memory has them, by the number of dims.
INNER = {n: (0, *range(2, n), 1) for n in range(2, 33)}


def is_channels_last(array: Array) -> bool:
    """Return whether (N, C, *size) is laid out as (N, *size, C), densely, and not (also) contiguously."""
    return array.ndim > 2 and not array.flags.c_contiguous and lies_channels_last(array)


def lies_channels_last(array: Array) -> bool:
    """Return whether the memory of (N, C, *size) is that of a contiguous (N, *size, C); dims of size 1 may have any
    stride.
    """
    return bool(array.transpose(INNER[array.ndim]).flags.c_contiguous)


def asks_channels_last(array: Array) -> bool:
    """Return whether a user made a 4-d or 5-d array channels-last, so that results are so, too, as torch's are."""
    return type(array) is not ChannelsLast and array.ndim in (4, 5) and is_channels_last(array)


# The order of dims in memory, outermost first.
ORDERS = {channels_last: (0, 2, 3, 1), channels_last_3d: (0, 2, 3, 4, 1)}


def is_in_format(array: Array, wanted: memory_format) -> bool:
    """Return whether `array` is laid out as `wanted` says; False where the number of dims does not fit."""
    if wanted is contiguous_format or wanted is preserve_format:
        return bool(array.flags.c_contiguous)
    order = ORDERS.get(wanted)
    if order is None:
        raise RuntimeError(f"Unsupported memory format {wanted!r}")
    if array.ndim != len(order):
        return False
    expected = array.dtype.itemsize
    for d in reversed(order):
        n = array.shape[d]
        if n == 0:
            return True
        if n != 1:
            if array.strides[d] != expected:
                return False
            expected *= n
    return True


def is_suggested(array: Array, wanted: memory_format) -> bool:
    """Return whether a conversion to `wanted` leaves `array` as it is: contiguous_format stands for all but channels
    last.
    """
    if wanted is contiguous_format:
        return is_in_format(array, wanted) or not (
            is_in_format(array, channels_last) or is_in_format(array, channels_last_3d)
        )
    return is_in_format(array, wanted)


def dense_order(array: Array) -> tuple[int, ...]:
    """The dims from outermost to innermost in memory, as torch sorts them: by stride; a stride of 0 decides nothing."""
    strides, shape = array.strides, array.shape
    order = list(range(array.ndim))[::-1]  # innermost first

    def compare(a: int, b: int) -> int:
        if strides[a] == 0 or strides[b] == 0:
            return 0
        if strides[a] != strides[b]:
            return -1 if strides[a] < strides[b] else 1
        return 1 if shape[a] > shape[b] else 0

    for i in range(1, len(order)):
        at = i
        for j in range(i - 1, -1, -1):
            found = compare(order[j], order[at])
            if found > 0:
                order[j], order[at] = order[at], order[j]
                at = j
            elif found < 0:
                break
    return tuple(reversed(order))


def empty_ordered(
    xp: ArrayModule, shape: Sequence[int], dtype: DTypeLike, order: Sequence[int], fill: object = None
) -> Array:
    """A new array with dims laid out in `order` (outermost first)."""
    make: Callable[..., Array] = xp.empty if fill is None else xp.zeros
    back = [0] * len(order)
    for position, d in enumerate(order):
        back[d] = position
    return make(tuple(shape[d] for d in order), dtype).transpose(back)


def empty_preserved(xp: ArrayModule, array: Array, dtype: DTypeLike) -> Array:
    """A new array of the shape of `array`, laid out as `array` is where that is dense."""
    if array.flags.c_contiguous:
        made: Array = xp.empty(array.shape, dtype)
        return made
    return empty_ordered(xp, array.shape, dtype, dense_order(array))


def copy_preserved(xp: ArrayModule, array: Array) -> Array:
    """A copy with memory of its own, laid out as `array` is where that is dense."""
    flags = array.flags
    if flags.c_contiguous:
        return array.copy()
    if flags.f_contiguous and 1 not in array.shape:
        return array.copy("F")
    result = empty_ordered(xp, array.shape, array.dtype, dense_order(array))
    result[...] = array
    return result


def check_rank(ndim: int, wanted: memory_format) -> None:
    """torch's errors for what is no memory format, and for channels_last of a tensor without the dims for it."""
    if not isinstance(wanted, memory_format):
        raise TypeError(f"argument 'memory_format' must be torch.memory_format, not {type(wanted).__name__}")
    order = ORDERS.get(wanted)
    if order is not None and len(order) != ndim:
        raise RuntimeError(f"required rank {len(order)} tensor to use {wanted.name} format")


def empty_in_format(
    xp: ArrayModule,
    shape: Sequence[int],
    dtype: DTypeLike,
    wanted: memory_format | None,
    like: Array | None = None,
) -> Array:
    """A new array in a memory format; None and preserve_format follow `like`."""
    if wanted is None or wanted is preserve_format:
        if like is not None and like.shape == tuple(shape):
            return empty_preserved(xp, like, dtype)
        wanted = contiguous_format
    if wanted is contiguous_format:
        made: Array = xp.empty(shape, dtype)
        return made
    check_rank(len(shape), wanted)
    return empty_ordered(xp, shape, dtype, ORDERS[wanted])


def root_of(array: Array) -> Array:
    """The array that owns the memory `array` looks at."""
    while True:
        base = array.base
        if base is None or type(base) is not type(array):
            return adopted.get(id(array), array) if adopted else array
        array = base


adopted: dict[int, Array] = {}  # by the id of an array without a `.base` that shows memory of another: the root of that


def adopt(array: Array, owner: Array) -> Array:
    """Return `array`, which shows memory of `owner` and has no `.base` that says so, after noting whose it is."""
    if array.base is None and array is not owner:
        adopted[id(array)] = root_of(owner)
        weakref.finalize(array, adopted.pop, id(array), None).atexit = False
    return array


def restride(xp: ArrayModule, array: Array, shape: Sequence[int], strides: Sequence[int], offset: int = 0) -> Array:
    """A writable view of `array` from byte `offset` on, with these sizes and byte strides.  Bounds are the caller's.

    Its `.base` leads to the same root as that of `array`: numpy's as_strided would break the chain that Storage
    follows.
    """
    if type(array) is not np.ndarray:
        if offset:
            array = array.reshape(-1)[offset // array.dtype.itemsize :]
        view: Array = xp.lib.stride_tricks.as_strided(array, shape, strides)
        return view
    if 0 in shape:
        return array.reshape(-1)[:0].reshape(shape)
    whole = array
    if not array.flags.c_contiguous:
        while type(whole.base) is np.ndarray:
            whole = whole.base
        if not whole.flags.c_contiguous:
            whole = whole.T
            if not whole.flags.c_contiguous:
                return np.lib.stride_tricks.as_strided(array, shape, strides)
        offset += array.ctypes.data - whole.ctypes.data
    return over_buffer(whole, array.dtype, shape, strides, offset)


def over_buffer(whole: Array, dtype: np.dtype, shape: Sequence[int], strides: Sequence[int], offset: int) -> Array:
    """np.ndarray over the memory of a contiguous array; bfloat16, which has no buffer protocol, by way of uint16."""
    if dtype.kind == "V":
        return np.ndarray(shape, np.uint16, whole.view(np.uint16), offset, strides).view(dtype)
    return np.ndarray(shape, dtype, whole, offset, strides)


def empty_strided(xp: ArrayModule, shape: Sequence[int], strides: Sequence[int], dtype: DTypeLike) -> Array:
    """A new array with these byte strides."""
    item = np.dtype(dtype).itemsize
    reach = 0 if 0 in shape else 1 + sum((n - 1) * (s // item) for n, s in zip(shape, strides))
    made: Array = xp.empty(reach or shape, dtype)
    return restride(xp, made, shape, strides) if reach else made


def view_strides(shape: Sequence[int], strides: Sequence[int], new: Sequence[int]) -> tuple[int, ...] | None:
    """Strides that show an array of `shape` and `strides` under the sizes `new`; None if only a copy could."""
    if 0 in shape:
        return (0,) * len(new)
    if not shape:
        return (1,) * len(new)
    result = [0] * len(new)
    at = len(new) - 1
    base = strides[-1]
    count = view_count = 1
    for d in range(len(shape) - 1, -1, -1):
        count *= shape[d]
        if d == 0 or (shape[d - 1] != 1 and strides[d - 1] != count * base):
            while at >= 0 and (view_count < count or new[at] == 1):
                result[at] = view_count * base
                view_count *= new[at]
                at -= 1
            if view_count != count:
                return None
            if d > 0:
                base = strides[d - 1]
                count = view_count = 1
    return tuple(result) if at == -1 else None


def element_strides(array: Array) -> tuple[int, ...]:
    """Strides in elements as torch counts them: numpy leaves those of new and empty dims arbitrary, mostly 0."""
    shape = array.shape
    if array.base is None and array.flags.c_contiguous and (not adopted or id(array) not in adopted):
        return contiguous_strides(shape)
    item = array.dtype.itemsize
    if 0 in shape:  # numpy keeps the strides of an empty slice, but no others
        return contiguous_strides(shape) if 0 in array.strides else tuple(s // item for s in array.strides)
    strides = [s // item for s in array.strides]
    if 0 in strides:
        for d in range(len(shape) - 1, -1, -1):
            if shape[d] == 1 and not strides[d]:
                strides[d] = shape[d + 1] * strides[d + 1] if d + 1 < len(shape) else 1
    return tuple(strides)
