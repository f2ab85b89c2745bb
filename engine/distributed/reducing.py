"""`ReduceOp`: how the values of several processes become one."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

import numpy as np

__all__ = ["ReduceOp", "combine", "describe", "differing", "finish", "reduce_op"]


class ReduceOp(Enum):
    """The operation that combines the values of all processes."""

    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BAND = 5
    BOR = 6
    BXOR = 7
    PREMUL_SUM = 8


class reduce_op:
    """The old name of `ReduceOp`."""

    SUM, PRODUCT, MIN, MAX = ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX


ReduceOp.RedOpType = ReduceOp  # type: ignore[attr-defined]

_UFUNCS: dict[ReduceOp, Any] = {
    ReduceOp.SUM: np.add,
    ReduceOp.AVG: np.add,
    ReduceOp.PRODUCT: np.multiply,
    ReduceOp.MIN: np.minimum,
    ReduceOp.MAX: np.maximum,
    ReduceOp.BAND: np.bitwise_and,
    ReduceOp.BOR: np.bitwise_or,
    ReduceOp.BXOR: np.bitwise_xor,
}


_BLOCK = 1 << 16  # elements; what is between two operations stays in the cache


def combine(op: ReduceOp, arrays: Sequence[Any], out: Any) -> None:
    """`out` becomes the flat arrays combined in their order, so that every process gets the same bits.

    `out` may be one of the arrays.  RuntimeError for an operation that their dtype lacks.
    """
    ufunc = _UFUNCS.get(op)
    bitwise = op in (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)
    if ufunc is None or (bitwise and arrays[0].dtype.kind not in "biu"):
        raise RuntimeError(f"Cannot use ReduceOp.{op.name} with non-integral dtype {arrays[0].dtype}")
    if len(arrays) == 1:
        if out is not arrays[0]:
            out[...] = arrays[0]
        return
    for start in range(0, out.size, _BLOCK):
        first, second, *more = (array[start : start + _BLOCK] for array in arrays)
        target = out[start : start + _BLOCK]
        if not more:
            ufunc(first, second, out=target)
            continue
        total = ufunc(first, second)
        for array in more:
            ufunc(total, array, out=total)
        target[...] = total


def describe(name: str, array: Any, more: str = "") -> str:
    """A call in a few words, which must be the same in all processes of a group."""
    return f"{name} of {array.size} {array.dtype}{more}"


def differing(their_rank: int, theirs: str, own_rank: int, own: str) -> str:
    """Return the error message for two calls that do not match."""
    return (
        f"the processes of a group must make the same calls: rank {their_rank} called {theirs}, rank {own_rank} called "
        f"{own}"
    )


def finish(op: ReduceOp, array: Any, count: int) -> None:
    """Divide the combined values of `count` processes for AVG, in place; other operations are complete."""
    if op is ReduceOp.AVG:
        if array.dtype.kind in "biu":
            np.floor_divide(array, count, out=array)
        else:
            array /= array.dtype.type(count)
