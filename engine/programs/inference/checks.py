"""The check of a plan: it must give what the module gives, on the first input and on that input shuffled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from engine.core.grad_mode import no_grad
from engine.programs.inference.plan import InferencePlan
from engine.programs.values import Unsupported, mapped, tensors_in
from engine.tensor import Tensor, wrap

__all__ = ["NARROW", "TOLERANCE", "check", "copies"]

TOLERANCE = 1e-5
NARROW = 0.5  # of plans in bfloat16 and int8, whose error is reported: what is further off is broken


def copies(value: object, order: np.random.Generator | None = None) -> Any:
    """The arguments with copies of their tensors, the elements shuffled if `order` is a generator."""
    made: dict[int, Tensor] = {}

    def copy(t: Tensor) -> Tensor:
        if id(t) not in made:
            array = np.array(t._array)
            if order is not None:
                array = order.permutation(array.reshape(-1)).reshape(array.shape)
            made[id(t)] = wrap(array)
        return made[id(t)]

    return mapped(value, copy, Tensor)


def check(
    call: Callable[..., object], plan: InferencePlan, given: tuple[object, ...], wanted: object, near: float
) -> None:
    """Raise Unsupported unless the plan gives what the module gives."""
    with no_grad():
        plan.error = _compare(plan(tensors_in(copies(given))), wanted, "on the first input", near)
        order = np.random.default_rng(0)
        other = copies(given, order)
        args, kwargs = copies(other)
        try:
            wanted = call(*args, **kwargs)
        except Exception:
            return  # shuffled, the arguments make no sense
        _compare(plan(tensors_in(other)), wanted, "on other values of the same shapes", near)


def _compare(found: Any, wanted: object, where: str, near: float) -> tuple[float, float]:
    """(largest absolute difference, largest one as a part of the largest value of its tensor)."""
    most = part = 0.0
    pairs = list(zip(tensors_in(found), tensors_in(wanted), strict=True))
    for a, b in pairs:
        x, y = a._array, b._array
        if x.shape != y.shape or x.dtype != y.dtype:
            raise Unsupported(f"a plan gives {x.dtype} {list(x.shape)} {where}, op by op {y.dtype} {list(y.shape)}")
        if x.dtype.kind not in "fcVW":
            if not np.array_equal(x, y):
                raise Unsupported(f"a plan gives other integers {where} than op by op")
            continue
        kind = np.complex128 if x.dtype.kind in "cW" else np.float64
        x, y = x.astype(kind), y.astype(kind)
        with np.errstate(all="ignore"):
            same = (x == y) | (np.isnan(x) & np.isnan(y))
            found_largest = float(abs(y[np.isfinite(y)]).max(initial=0.0))
            largest = max(1.0, found_largest)
            distance = float(np.where(same, 0.0, abs(x - y)).max(initial=0.0))
        most, distance = max(most, distance), distance / largest
        part = max(part, distance * largest / (found_largest or 1.0))
        # 16-bit results are rounded once, wherever that happens
        allowed = near if a._array.dtype.itemsize > 2 else max(near, 2e-2)
        if not distance <= allowed:
            raise Unsupported(f"a plan differs by {distance:.1e} of the largest value {where}")
    return most, part
