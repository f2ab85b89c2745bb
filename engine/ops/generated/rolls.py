"""`roll` as one kernel (the extra `jit`), where slices of the two ends of each dim are as many copies."""

from __future__ import annotations

from math import prod
from typing import Any

from engine.core.checks import wrap_dim
from engine.dispatch import kernel
from engine.kernels import copies
from engine.ops import rearranging
from engine.ops.generated.layers import run

_LEVELS = 2  # dims that are shifted before the last
_WRITTEN = 128  # bytes of a line that is written out
_LINES = 64  # that a row of such a kernel has at most
_PART = 1 << 13  # elements of a part of a line


def _shifts(shape: tuple[int, ...], shifts: Any, dims: Any) -> dict[int, int] | None:
    """How far each dim is shifted, of those that are; None for what the op refuses."""
    shifts = (shifts,) if isinstance(shifts, int) else tuple(shifts)
    dims = () if dims is None else (dims,) if isinstance(dims, int) else tuple(dims)
    if len(shifts) != len(dims) or not all(-len(shape) <= d < len(shape) for d in dims):
        return None
    by = dict.fromkeys([wrap_dim(d, len(shape)) for d in dims], 0)
    for d, shift in zip(dims, shifts):
        by[d % len(shape)] += shift
    return {d: shift % shape[d] for d, shift in sorted(by.items()) if shift % shape[d]}


@kernel(rearranging.roll, "cpu", only_launches=True)
def _roll(xp: Any, input: Any, shifts: Any, dims: Any = ()) -> Any:
    shape, item = input.shape, input.itemsize
    if not input.size or not input.flags.c_contiguous or item not in (1, 2, 4, 8) or input.dtype.hasobject:
        return NotImplemented
    if dims in ((), None) and isinstance(shifts, int | tuple):
        shape, dims = (input.size,), 0
    by = _shifts(shape, shifts, dims)
    if not by or len(by) > _LEVELS + 1:
        return NotImplemented
    *before, last = by
    n, shift, end = prod(shape[last:]), by[last] * prod(shape[last + 1 :]), last
    levels: list[int] = []
    for d in reversed(before):
        levels[:0] = prod(shape[d:end]), by[d] * prod(shape[d + 1 : end])
        end = d
    lines, size = input.size // n, n
    if n * item <= _WRITTEN:
        write = copies.rolled(len(before), n, shift)
        several = next(count for count in range(min(_LINES, lines), 0, -1) if lines % count == 0)
        rows, each = lines // several, several
    else:
        write, several = copies.rolled(len(before)), -(-n // _PART)
        size = -(-n // several)
        rows, each = lines * several, size
    made = xp.empty(input.shape, input.dtype)
    run(write, [input, made], [*levels, several, size, n, shift], rows, each, f"uint{8 * item}")
    return made
