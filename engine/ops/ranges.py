"""Ranges of numbers: arange, range, linspace, logspace, and the powers of vander."""

from __future__ import annotations

import builtins
import functools
import itertools
import math
import operator
import warnings
from typing import Any

import numpy as np

from engine.backends.cpu import empty, threads
from engine.core import dtypes
from engine.dispatch import composite
from engine.dispatch.arguments import argument_error
from engine.dispatch.promotion import is_number
from engine.ops.copying import converted, number_for
from engine.ops.creation import dense_only, finish, inside, numpy_dtype, out_dtype, place_of
from engine.tensor import Tensor


def _range_dtype(values: tuple, dtype: Any) -> Any:
    if dtype is not None:
        return numpy_dtype(dtype)
    if any(isinstance(v, builtins.float) or (isinstance(v, Tensor) and v.dtype.is_floating_point) for v in values):
        return dtypes.to_numpy(dtypes.get_default_dtype())
    return dtypes.to_numpy(dtypes.int64)


def _plain(value: Any) -> Any:
    if value.__class__ is builtins.int or value.__class__ is builtins.float:
        return value
    return value.item() if isinstance(value, Tensor | np.generic) else value


@composite(method=False, recorded="constant")
def arange(
    *args,
    start: complex = 0,
    end: complex | None = None,
    step: complex = 1,
    out=None,
    dtype=None,
    layout=None,
    device=None,
    pin_memory=False,
    requires_grad=False,
):
    """start, start + step, ... below end.  arange(end), arange(start, end, step) -> (ceil((end - start) / step))."""
    if layout is not None:
        dense_only("arange", layout)
    if args:
        if len(args) == 1 and end is None:
            end = args[0]
        elif len(args) == 1:
            start = args[0]
        elif len(args) == 2:
            start, end = args
        elif len(args) == 3:
            start, end, step = args
        else:
            raise TypeError(f"arange() takes at most 3 positional arguments, got {len(args)}")
    if not all(isinstance(x, Tensor) or is_number(x) for x in (start, end, step)):
        if len(args) == 1:
            raise argument_error("arange", 1, "end", "Number", end)
        kinds = ", ".join(type(x).__name__ for x in (args or (start, end, step)))
        raise TypeError(
            f"arange() received an invalid combination of arguments - got ({kinds}), but expected one of:\n"
            " * (Number end)\n * (Number start, Number end, Number step = 1)\n"
        )
    given = (start, end, step)
    target = out_dtype(out, dtype, lambda: _range_dtype(given, dtype))
    start, end, step = _plain(start), _plain(end), _plain(step)
    _check_range(start, end, step)
    if target.kind in "iu":
        start, end, step = builtins.int(start), builtins.int(end), builtins.int(step)
        if not step:
            raise ValueError("step must be nonzero")
    xp, where = place_of(device)
    with inside(xp, where):
        if isinstance(start, builtins.int) and isinstance(end, builtins.int) and isinstance(step, builtins.int):
            if target.kind in "iu":
                array = xp.arange(start, end, step, dtype=target)
            else:
                array = xp.arange(start, end, step).astype(target)
        else:
            count = builtins.max(math.ceil((end - start) / step), 0)
            array = _steps(xp, start, step, count, target)
    return finish(array, requires_grad, out, "arange")


def _check_range(start: Any, end: Any, step: Any) -> None:
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if not (math.isfinite(start) and math.isfinite(end)):
        raise RuntimeError(f"unsupported range: {start:g} -> {end:g}")
    if (step > 0 and start > end) or (step < 0 and start < end):
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    if abs((end - start) / step) >= 2.0**63:
        raise RuntimeError("invalid size, possible overflow?")


def _steps(xp: Any, start: Any, step: Any, count: builtins.int, target: Any) -> Any:
    if target.kind in "iu":
        return xp.arange(count, dtype=target) * target.type(step) + target.type(start)
    return (xp.arange(count, dtype=np.float64) * step + start).astype(target)


@composite(method=False)
def range(
    start: complex = 0,
    end: complex | None = None,
    step: complex = 1,
    *,
    out=None,
    dtype=None,
    layout=None,
    device=None,
    requires_grad=False,
):
    """As `arange`, with the end included; deprecated.  -> (floor((end - start) / step) + 1)."""
    if layout is not None:
        dense_only("range", layout)
    if end is None:
        start, end = 0, start
    warnings.warn(
        "torch.range is deprecated and will be removed in a future release because its behavior is inconsistent with "
        "Python's range builtin. Instead, use torch.arange, which produces values in [start, end).",
        stacklevel=2,
    )
    start, end, step = _plain(start), _plain(end), _plain(step)
    _check_range(start, end, step)
    target = out_dtype(out, dtype, lambda: numpy_dtype(dtype))
    xp, where = place_of(device)
    with inside(xp, where):
        array = _steps(xp, start, step, math.floor((end - start) / step) + 1, target)
        return finish(array, requires_grad, out, "range")


def _line_dtype(values: tuple, dtype: Any) -> Any:
    if dtype is not None:
        return numpy_dtype(dtype)
    if any(isinstance(v, builtins.complex) for v in values):
        return dtypes.to_numpy(dtypes.default_complex())
    return dtypes.to_numpy(dtypes.get_default_dtype())


@composite(method=False, recorded="constant")
def linspace(
    start: complex | Tensor,
    end: complex | Tensor,
    steps: int | None = None,
    *,
    out=None,
    dtype=None,
    layout=None,
    device=None,
    pin_memory=False,
    requires_grad=False,
):
    """`steps` numbers from start to end, both included.  -> (steps)."""
    if layout is not None:
        dense_only("linspace", layout)
    start, end = _plain(start), _plain(end)
    target = out_dtype(out, dtype, lambda: _line_dtype((start, end), dtype))
    xp, where = place_of(device)
    few = xp is np and steps.__class__ is builtins.int and 1 < steps <= _FEW and target == np.float32
    if few and _plain_number(start) and _plain_number(end):
        return finish(_short_line(start, end, steps).copy(), requires_grad, out, "linspace")
    with inside(xp, where):
        return finish(_line(xp, start, end, steps, target), requires_grad, out, "linspace")


_FEW = 1 << 12  # elements of a line that is remembered


def _plain_number(value: Any) -> bool:
    """Return whether a number is the only one that is equal to it: -0.0 is not."""
    return value.__class__ in (builtins.int, builtins.float) and (value != 0 or math.copysign(1.0, value) > 0)


@functools.lru_cache(64)
def _short_line(start: float, end: float, steps: int) -> np.ndarray:
    """The float32 line: programs ask for the same few in each pass."""
    return _line(np, start, end, steps, np.dtype("float32"))  # type: ignore[no-any-return]


def _line(xp: Any, start: Any, end: Any, steps: Any, target: Any) -> Any:
    if steps is None:
        raise TypeError('linspace() missing 1 required positional arguments: "steps"')
    steps = operator.index(steps)
    if steps < 0:
        raise RuntimeError("number of steps must be non-negative")
    if steps == 0:
        return xp.zeros(0, target)
    if steps == 1:
        return xp.full(1, number_for(start, target), target)
    # As torch: a step in the working precision, the upper half counted back from the end, each element rounded once (it
    # uses fused multiply-add); float32 products are exact in float64.
    half = steps // 2
    if xp is np and target == np.float32 and steps >= _MANY and not _complex(start, end):
        return _long_line(float_(start), float_(end), steps)
    index = xp.arange(steps)
    if target.kind in "iu":
        start, end = _cut(start, target), _cut(end, target)
        step = (end - start) / (steps - 1)  # in two parts, whose products with an index are exact: as torch, round once
        coarse = float_(np.float32(step))
        up, down = index[:half], steps - 1 - index[half:]
        low, high = (start + up * coarse) + up * (step - coarse), (end - down * coarse) - down * (step - coarse)
    elif target.kind == "c" or target.itemsize == 8:
        step = target.type((end - start) / (steps - 1))
        low, high = index[:half] * step + start, end - (steps - 1 - index[half:]) * step
    else:
        step = float_(target.type((np.float32(end) - np.float32(start)) / np.float32(steps - 1)))
        up, down = index[:half] * step, (steps - 1 - index[half:]) * step
        if target.itemsize == 2:
            up, down = up.astype(target), down.astype(target)
        low, high = up + float_(target.type(start)), float_(target.type(end)) - down
    return xp.concatenate([low, high]).astype(target)


_MANY = 1 << 14  # elements of a line that are made in blocks
_BLOCK = 1 << 13


def _complex(*values: Any) -> bool:
    return any(isinstance(v, builtins.complex) for v in values)


def _long_line(start: float, end: float, steps: int) -> np.ndarray:
    """The float32 line of `_line`, in blocks and on all threads: multiples of a float32 step are exact in float64."""
    made, half = empty((steps,), np.float32), steps // 2
    step = float_((np.float32(end) - np.float32(start)) / np.float32(steps - 1))
    first, last = float_(np.float32(start)), float_(np.float32(end))
    ramp = np.arange(_BLOCK, dtype="float64") * step

    def fill(piece: tuple[int, int]) -> None:
        some = np.empty(_BLOCK)
        for i in builtins.range(*piece, _BLOCK):
            count = min(_BLOCK, piece[1] - i)
            index = some[:count]
            if piece[0] < half:
                np.add(ramp[:count], i * step, out=index)
                index += first
            else:
                np.subtract((steps - 1 - i) * step, ramp[:count], out=index)
                np.subtract(last, index, out=index)
            made[i : i + count] = index

    share = -(-half // (4 * _BLOCK)) * _BLOCK
    edges = [*builtins.range(0, half, share), *builtins.range(half, steps, share), steps]
    threads.run(fill, list(itertools.pairwise(edges)))
    return made


def _cut(value: Any, target: Any) -> Any:
    """An end point of a line of integers: cut towards zero before the step is found, as torch does."""
    return value if isinstance(value, builtins.complex) else builtins.int(number_for(value, target))


float_ = builtins.float


@composite(method=False)
def logspace(
    start: complex | Tensor,
    end: complex | Tensor,
    steps: int | None = None,
    base: float = 10.0,
    *,
    out=None,
    dtype=None,
    layout=None,
    device=None,
    pin_memory=False,
    requires_grad=False,
):
    """base ** linspace(start, end, steps).  -> (steps)."""
    if layout is not None:
        dense_only("logspace", layout)
    start, end = _plain(start), _plain(end)
    target = out_dtype(out, dtype, lambda: _line_dtype((start, end), dtype))
    xp, where = place_of(device)
    with inside(xp, where):
        if target.kind in "iu" and steps != 1:
            start, end = _cut(start, target), _cut(end, target)
        line = _line(xp, start, end, steps, np.dtype(np.float64) if target.kind != "c" else target)
        if target.itemsize == 2 and target.kind in "fV" and steps > 1:  # torch rounds the ends and their distance
            low, high = target.type(start), target.type(end)
            step = float_(target.type(float_(high) - float_(low))) / (steps - 1)
            index, half = xp.arange(steps), steps // 2
            line[:half] = float_(low) + index[:half] * step
            line[half:] = float_(high) - (steps - 1 - index[half:]) * step
        return finish((base**line).astype(target), requires_grad, out, "logspace")


@composite(method=False)
def vander(x: Tensor, N: int | None = None, increasing: bool = False):
    """Powers of a vector as columns.  x (n) -> (n, N)."""
    from engine.ops.shape import unsqueeze

    if x.dim() != 1:
        raise RuntimeError("x must be a one-dimensional tensor.")
    count = x.numel() if N is None else N
    if count < 0:
        raise RuntimeError("N must be non-negative.")
    powers = arange(count) if increasing else arange(count - 1, -1, -1) if count else arange(0)
    if x.dtype.category < dtypes.FLOATING:
        x = converted(x, dtypes.int64)
    return unsqueeze(x, 1) ** powers.to(x.device)
