"""Ops on large CPU arrays: in blocks, on a few threads, results in memory from a cache.

Imported at the first large array.  Which ops may be cut, and how, they say themselves: `@op(blocks=..., direct=...)`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from engine.backends.cpu import empty, half_floats, threads
from engine.backends.cpu.blocks import pointwise
from engine.backends.cpu.fast import Steps, fast
from engine.backends.cpu.reduce import reduced, rows
from engine.backends.cpu.relayout import contiguous, in_torch_order
from engine.core.checks import wrap_dims
from engine.core.layouts import ChannelsLast
from engine.dispatch import Op, kernel
from engine.ops import extremes, products, reduction
from engine.ops.fusing import fused_later
from engine.ops.pointwise import math as math_ops
from engine.ops.reduction import int64_if_integer, summed_dims, wide

__all__ = ["kernel_of"]

_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)


def kernel_of(record: Op) -> Callable[..., Any]:
    """The kernel of an op for large arrays: `kernel(xp, *args, into=None, **options)`.

    `into` is the target of an in-place op; a kernel that writes there returns it.
    """
    if record.blocks == "copy":
        return _copying(record)
    special = record.kernels.get("blocks")
    if record.blocks == "elements":
        cut = pointwise(record.kernel, fast, record.direct)
        if record.name not in _EXACT:
            cut = _of_halves(record, cut)
        return cut if special is None else _first(special, cut)
    in_rows = record.blocks == "rows"

    def large(xp: Any, *args: Any, into: Any = None, **options: Any) -> Any:
        found = NotImplemented
        if special is not None and args[0].ndim:
            given = [a.view(np.ndarray) if type(a) is ChannelsLast else a for a in args]
            found = special(xp, *given, **options)
            if found is not NotImplemented:
                return found
        if not record.channels_last or "onednn" in record.kernels:
            args = tuple([[in_torch_order(x) for x in a] if type(a) is list else in_torch_order(a) for a in args])
            options = {name: in_torch_order(value) for name, value in options.items()}
        if in_rows:
            found = _in_rows(record, args, options)
        return record.kernel(fast, *args, **options) if found is NotImplemented else found

    return large


def _first(special: Callable[..., Any], cut: Callable[..., Any]) -> Callable[..., Any]:
    def either(xp: Any, *args: Any, into: Any = None, **options: Any) -> Any:
        found = NotImplemented if into is not None else special(xp, *args, **options)
        return cut(xp, *args, into=into, **options) if found is NotImplemented else found

    return either


_EXACT = ("nextafter",)  # what another type has other values of


def _negated(bits: Any) -> Any:
    return np.bitwise_xor(bits, 0x8000, out=empty(bits.shape, bits.dtype))


def _absolute(bits: Any) -> Any:
    return np.bitwise_and(bits, 0x7FFF, out=empty(bits.shape, bits.dtype))


_BITS = {"neg": _negated, "abs": _absolute}  # of 16-bit floats


def _positive(input: Any) -> Any:
    """relu of 16-bit floats by the bit of their sign.  None where a nan has one."""
    bits = input.view(np.uint16)
    if np.maximum.reduce(bits, axis=None) > (0xFC00 if input.dtype.kind == "f" else 0xFF80):
        return None
    found = empty(input.shape, np.dtype(np.int16))
    np.right_shift(input.view(np.int16), 15, out=found)  # all bits of the sign; numpy's maximum branches
    np.invert(found, out=found)
    return np.bitwise_and(found, input.view(np.int16), out=found).view(input.dtype)


def _of_halves(record: Op, large: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel for large operands; 16-bit floats piece by piece in float32, or by their bits."""

    def of_halves(xp: Any, *args: Any, into: Any = None, **options: Any) -> Any:
        first = args[0]
        taken = first.__class__ is np.ndarray and first.dtype.itemsize == 2 and options.get("out") is None
        if taken and first.size and half_floats.is_half(first):
            found = None
            if first.flags.c_contiguous:
                if record.name in _BITS:
                    found = _BITS[record.name](first.view(np.uint16)).view(first.dtype)
                elif record.name == "relu":
                    found = _positive(first)
            if found is None and not (first.dtype.kind == "f" and record.float16_in_numpy):
                found = half_floats.computed(record.kernel, args, options, not record.half)
            if found is not None:
                return found
        return large(xp, *args, into=into, **options)

    return of_halves


def _copying(record: Op) -> Callable[..., Any]:
    copied = pointwise(lambda xp, input: input if isinstance(xp, Steps) else record.kernel(xp, input), fast)
    by_threads = fused_later(record.name, lambda xp, x: x, copied)

    def copy(xp: Any, input: Any, *, memory_format: Any = None, into: Any = None) -> Any:
        if memory_format is not None:
            return record.kernel(fast, input, memory_format=memory_format)
        plain = input.__class__ is np.ndarray and input.flags.c_contiguous
        if (
            plain and input.size >= _SHARED and input.itemsize != 2
        ):  # 16-bit floats would be converted, and nan with them
            found = by_threads(xp, input)
            if found is not NotImplemented:
                return found
        elif input.__class__ is np.ndarray and _in_order(input):  # with gaps, as a slice has
            return contiguous(input)
        return copied(xp, input)

    return copy


def _in_order(array: Any) -> bool:
    """Return whether elements lie in the order of the dims, with gaps between them."""
    steps = [s for s, n in zip(array.strides, array.shape) if n > 1]
    ordered = all(a > b for a, b in itertools.pairwise(steps)) and steps[-1:] >= [array.itemsize]
    return ordered and not array.flags.c_contiguous


_SHARED = 1 << 18  # elements that are copied by several threads


def _in_rows(record: Op, args: tuple, options: dict) -> Any:
    dim = options.get("dim", record.defaults.get("dim"))
    if "dim" in record.positional:
        at = record.positional.index("dim")
        dim = args[at] if at < len(args) else dim
    ndim = args[0].ndim
    if dim is None or dim == ():
        return NotImplemented
    try:
        dims = tuple(wrap_dims(dim, ndim))
    except (IndexError, RuntimeError, TypeError):
        return NotImplemented  # the kernel says it better
    return rows(record.kernel, fast, args, options, dims)


@kernel(reduction.sum, "blocks")
def _sum(xp: Any, input: Any, dim: Any = None, keepdim: Any = False, *, dtype: Any = None) -> Any:
    if dtype is not None or wide(input) is not None:
        return NotImplemented
    dims = None if dim is None else tuple(wrap_dims(dim, input.ndim))
    return reduced(np.add, input, dims, keepdim, int64_if_integer(input))


@kernel(reduction.mean, "blocks")
def _(xp: Any, input: Any, dim: Any = None, keepdim: Any = False, *, dtype: Any = None) -> Any:
    if dtype is not None or wide(input) is not None or input.dtype.kind not in "fc":
        return NotImplemented
    found = _sum(xp, input, dim, keepdim)
    return np.true_divide(found, found.dtype.type(input.size // max(1, found.size)))


@kernel(reduction.sum_to_size, "blocks")
def _(xp: Any, input: Any, size: Any) -> Any:
    if wide(input) is not None:
        return NotImplemented
    lead, ones = summed_dims(input.shape, size)
    if not lead and not ones:
        return NotImplemented
    to = input.dtype if int64_if_integer(input) else None
    return reduced(np.add, input, lead + ones, True, to).reshape(size)


# Elements of the result that einsum writes at once.  It fills them with zeros and then adds to them, in the cache: for
# 51 MB in 3.2 ms, where np.multiply, which starts anew for each row, takes 6.7 and filling with a number 1.9.
_OUTER = 1 << 18


@kernel(products.outer_each, "blocks")
def _outer(xp: Any, input: Any, other: Any) -> Any:
    if input.__class__ is not np.ndarray or other.__class__ is not np.ndarray or input.dtype not in (_F32, _F64):
        return NotImplemented
    if input.ndim != 3 or other.ndim != 3 or input.dtype != other.dtype or input.shape[2] != 1 or other.shape[1] != 1:
        return NotImplemented
    count, n, m = input.shape[0], input.shape[1], other.shape[2]
    if other.shape[0] != count or count * n * m < _OUTER:
        return NotImplemented
    made, columns, rows = empty((count, n, m), input.dtype), input[:, :, 0], other[:, 0]
    step = max(1, _OUTER // (n * m))

    def work(start: int) -> None:
        part = slice(start, start + step)
        with np.errstate(all="ignore"):
            np.einsum("bi,bj->bij", columns[part], rows[part], out=made[part])

    threads.run(work, list(range(0, count, step)))
    return made


def _angle(xp: Any, y: Any, x: Any) -> Any:
    """arctan2 of float32: the smaller by the larger, an odd polynomial (Cephes' atanf), and the octant it was in."""
    high, wide = xp.absolute(y), xp.absolute(x)
    most, least = xp.maximum(high, wide), xp.minimum(high, wide)
    share = xp.where(least == math.inf, _F32.type(1), least / xp.where(most > 0, most, _F32.type(1)))
    upper = share > 0.41421356
    z = xp.where(upper, (share - 1) / (share + 1), share)
    s = z * z
    angle = (((s * 8.05374449538e-2 - 1.38776856032e-1) * s + 1.99777106478e-1) * s - 3.33329491539e-1) * s * z + z
    angle = angle + xp.where(upper, _F32.type(math.pi / 4), _F32.type(0))
    angle = xp.where(high > wide, _F32.type(math.pi / 2) - angle, angle)
    angle = xp.where(xp.signbit(x), _F32.type(math.pi) - angle, angle)
    return xp.copysign(angle, y)


def _angles(xp: Any, y: Any, x: Any) -> Any:
    made = empty(y.shape, _F32)
    ys, xs, target = y.reshape(-1), x.reshape(-1), made.reshape(-1)

    def work(part: slice) -> None:
        with np.errstate(all="ignore"):
            target[part] = _angle(fast, ys[part], xs[part])

    threads.run(work, [slice(i, i + _PIECE) for i in range(0, target.size, _PIECE)])
    return made


_PIECE = 1 << 14  # elements that some 30 steps keep in the cache
_generated_angle = fused_later("atan2", _angle, _angles)


@kernel(math_ops.atan2, "blocks")
def _(xp: Any, input: Any, other: Any) -> Any:
    """numpy's arctan2 of 100,000 takes 2.9 ms, this 0.7, and 0.1 as one generated kernel."""
    for a in (input, other):
        if a.__class__ is not np.ndarray or a.dtype != _F32 or a.shape != input.shape or not a.flags.c_contiguous:
            return NotImplemented
    found = _generated_angle(xp, input, other)
    return _angles(xp, input, other) if found is NotImplemented else found


def _extreme(function: Any, ufunc: np.ufunc) -> None:
    @kernel(function, "blocks")
    def extreme(xp: Any, input: Any, dim: Any = None, keepdim: Any = False) -> Any:
        if input.dtype.kind == "c":
            return NotImplemented
        dims = None if dim is None or dim == () else tuple(wrap_dims(dim, input.ndim))
        return reduced(ufunc, input, dims, keepdim)


_extreme(extremes.amax, np.maximum)
_extreme(extremes.amin, np.minimum)
_extreme(extremes.max_all, np.maximum)
_extreme(extremes.min_all, np.minimum)
