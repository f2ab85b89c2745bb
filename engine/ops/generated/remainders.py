"""Remainders and rounded quotients of float32 through float64, as generated kernels (the extra `jit`).

numpy calls C's fmod for each element (7 to 10 ns).  The quotient of two float32 numbers below 2 ** 28 rounds to no
integer that it is not in float64: it is an integer, or at least 2 ** -24 away from the next, where rounding moves it by
2 ** -25 at most; its product with the divisor and their difference are exact.  A kernel marks what is larger, and
divisors that are not finite, by nan, and numpy does those.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engine.kernels import scans
from engine.ops.cuda.elementwise import kernel_from
from engine.ops.generated import launch
from engine.ops.generated.layers import run

__all__ = ["floor_div", "floor_divide", "fmod", "looked_at", "remainder"]

_F32 = np.dtype("float32")
_EXACT = 2.0**28  # of quotients
_ROUNDED = 2.0**22  # of quotients that numpy finds by a division in float32, up to which that is exact as well


def looked_at(xp: Any, found: Any, plain: Callable[..., Any], operands: Sequence[Any]) -> Any:
    """Replace what a kernel marked by nan with what `plain` makes of the operands there; where the launches are going
    to be repeated without this code, such calls are left to the other route."""
    if found is NotImplemented or not found.size:
        return found
    if launch.trials.seen is not None:
        marked = xp.empty((1,), "int32")
        run(scans.any_nan, [found, marked], [found.size], 1, found.size)
        launch.refuse_if(marked)
    elif np.isnan(found.max()):
        left = np.isnan(found)
        found[left] = plain(*[np.broadcast_to(x, found.shape)[left] for x in operands])
    return found


def _made(
    name: str, plain: Callable[..., Any], whole: str, most: float, finish: Callable[..., Any]
) -> Callable[..., Any]:
    """The kernel of an op: `finish(xp, a, b, quotient)` of numbers in float64, the quotient rounded by `whole`."""

    def code(xp: Any, x: Any, y: Any) -> Any:
        a, b = x.astype("float64"), y.astype("float64")
        quotient = getattr(xp, whole)(a / b)
        exact = (xp.abs(quotient) < most) & (xp.abs(b) < float("inf"))
        return xp.where(exact, finish(xp, a, b, quotient), float("nan")).astype("float32")

    made = kernel_from(f"{name}_of_float32", code)

    def kernel(xp: Any, input: Any, other: Any) -> Any:
        number = lambda x: launch.constant(np.asarray(x, _F32))
        operands = [number(x) if isinstance(x, int | float) else x for x in (input, other)]
        if any(x.dtype != _F32 for x in operands):
            return NotImplemented
        return looked_at(xp, made(xp, *operands), plain, operands)

    return kernel


remainder = _made("remainder", np.remainder, "floor", _EXACT, lambda xp, a, b, q: xp.copysign(a - q * b, b))
fmod = _made("fmod", np.fmod, "trunc", _EXACT, lambda xp, a, b, q: xp.copysign(a - q * b, a))
floor_divide = floor_div = _made("floor_divide", np.floor_divide, "floor", _ROUNDED, lambda xp, a, b, q: q)
