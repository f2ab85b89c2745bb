"""Every op that works element by element as one kernel, recorded from the op's own code (`engine/kernels/trace.py`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engine.backends.cuda import compile as compiling
from engine.backends.cuda.compile import address
from engine.core.lru import LRU
from engine.dispatch import Op
from engine.kernels import cuda_c
from engine.kernels.elementwise import Layout, Recorded, collapsed, order_of, recorded, type_is_number
from engine.kernels.trace import Untraceable
from engine.ops.cuda._launch import (
    Unfit,
    built,
    contiguous_strides,
    host,
    identifier,
    is_array,
    map_grid,
    on_host,
    scalar,
    strides_of,
)

_KINDS: set[type] = set()  # classes of arrays met
VARIANTS = 32  # kernels of one op for one kind of operands, before numbers that must be constants are given up


def kernel_of(record: Op) -> Callable[..., Any]:
    """The kernel of an op with `blocks="elements"`; NotImplemented for what cannot be recorded."""
    return kernel_from(record.name, record.kernel, not (record.outputs or record.many))


def kernel_from(
    name: str, code: Callable[..., Any], single: bool = True, contiguous: bool = False
) -> Callable[..., Any]:
    """The kernel that does `code(xp, *args)` element by element, once for operands of each kind.

    single: code gives one array, else a tuple of them.  contiguous: the result is, however the operands are laid out.
    """
    source = identifier(name), code, single
    plans: dict[Any, list[_Plan]] = {}

    def kernel(xp: Any, *args: Any, **kwargs: Any) -> Any:
        given = (*args, *kwargs.values()) if kwargs else args
        parts: list[Any] = [tuple(kwargs)] if kwargs else []
        arrays, numbers = [], []
        for a in given:
            kind = a.__class__
            if kind is float or kind is int:
                numbers.append(a)
                parts.append(kind)
            elif kind in _KINDS or is_array(a):
                _KINDS.add(kind)
                arrays.append(a)
                parts += (a.dtype, a.shape, a.strides)
            else:
                parts.append(a)
        key = tuple(parts)
        try:
            known = plans.get(key)
        except TypeError:  # an argument that cannot be a key
            return NotImplemented
        if known is not None:
            for plan in known:
                if plan.code is None:
                    return NotImplemented
                if plan.fits(numbers):
                    return plan.run(xp, arrays, numbers)
        plan = _planned(source, args, kwargs, numbers, contiguous)
        plans.setdefault(key, []).append(plan)
        if len(plans[key]) > VARIANTS:
            plans[key] = [_Plan(None)]
        return NotImplemented if plan.code is None else plan.run(xp, arrays, numbers)

    kernel.route = "pointwise"  # type: ignore[attr-defined]
    return kernel


class _Plan:
    """One recording for operands of certain shapes, strides and types, ready to be launched."""

    def __init__(self, code: Recorded | None, constants: Sequence[Any] | None = None) -> None:
        self.code, self.constants = code, constants
        self.layout = Layout((1,), ())
        self.shape: tuple[int, ...] = ()  # of the results
        self.order: tuple[int, ...] | None = None  # dims of the results, slowest first
        self.single = True
        self._ready: tuple[Any, ...] | None = None
        self._last: list[Any] | None = None  # numbers of a call that this recording was for; 0 and nan are not cached
        self._passed: tuple[Any, list[Any], list[Any]] | None = None  # of a launch: what all share, numbers, parameters
        self.host: Any = None  # what `engine.ops.generated` knows of it

    def fits(self, numbers: Sequence[Any]) -> bool:
        """Return whether this recording is that of the numbers."""
        if self.constants is not None:
            return self.constants == numbers
        code = self.code
        if code is None:
            return False
        if not code.guards or self._last == numbers:
            return True
        if not code.fits(numbers):
            return False
        if all(n and n == n for n in numbers):  # -0.0 == 0.0 and may be another case; nan is no number's equal
            self._last = list(numbers)
        return True

    def _launch(self) -> tuple[Any, ...]:
        """Return the arguments shared by all launches, found once per generation of compiled kernels."""
        code, layout = self.code, self.layout
        assert code is not None
        vector = cuda_c.vector_of(code.kernel) if layout.count >= 64 else 1
        passed = [scalar(n, "index", layout.wide) for n in layout.numbers()]
        count = scalar(layout.count, "index", layout.wide)
        dense = [n for n, kind in enumerate(layout.classes) if kind == "dense"]
        found = (compiling.generation, vector, passed, count, dense, code.dtypes, code.numbers, {})
        self._ready = found
        return found

    def _made(self, xp: Any, dtypes: Sequence[Any]) -> list[Any]:
        order = self.order
        if order is None:
            return [xp.empty(self.shape, d) for d in dtypes]
        back = [order.index(d) for d in range(len(order))]
        laid = [self.shape[d] for d in order]
        return [xp.empty(laid, d).transpose(back) for d in dtypes]

    def run(self, xp: Any, given: list[Any], numbers: Sequence[Any], target: Any = None) -> Any:
        """Launch the kernel; the new array or arrays.  target: the array that is written instead, laid out alike."""
        if isinstance(given[0], np.ndarray) and on_host(given[0]):
            made = self._made(xp, self.code.dtypes)  # type: ignore[union-attr]
            host.elements(self, given + made, numbers)
            return made[0] if self.single else tuple(made)
        ready = self._ready
        if ready is None or ready[0] != compiling.generation:
            ready = self._launch()
        _, vector, passed, count, dense, dtypes, types, calls = ready
        if target is not None:
            made = [target]
        else:
            made = [xp.empty(self.shape, d) for d in dtypes] if self.order is None else self._made(xp, dtypes)
        arrays = given + made
        if vector > 1:
            together = 0
            if isinstance(arrays[0], np.ndarray):
                for n in dense:
                    together |= address(arrays[n])
            else:
                for n in dense:
                    together |= arrays[n].data.ptr
            if together & 15:  # 16 bytes cannot be loaded at once
                vector = 1
        found = calls.get(vector)
        if found is None:
            call = built(self.code.kernel, wide=self.layout.wide, vector=vector)  # type: ignore[union-attr]
            found = calls[vector] = (call, *map_grid(self.layout.count, vector))
        call, grid, block = found
        if types:
            known = self._passed
            if known is not None and known[0] is passed and known[1] == numbers:
                passed = known[2]
            else:
                passed, common = passed + [scalar(of(numbers), type) for type, of in types], passed
                if all(n and n == n for n in numbers):
                    self._passed = common, list(numbers), passed
        call(grid, block, [*arrays, *passed, count])
        return made[0] if self.single else tuple(made)


def add_in_place(xp: Any, total: Any, more: Any) -> bool:
    """Add an array to another of its shape, type and layout; False, and nothing done, where no kernel serves."""
    key = compiling.generation, total.dtype, total.shape, total.strides, more.dtype, more.strides
    plan = _sums.get(key) if total.shape == more.shape else None
    if plan is None:
        plan = _planned(("add_in_place", lambda xp, a, b: xp.add(a, b), True), (total, more), {}, ())
        laid = total if plan.order is None else total.transpose(plan.order)
        same = plan.code is not None and plan.code.dtypes == [total.dtype] and plan.shape == total.shape
        _sums[key] = plan = plan if same and laid.flags.c_contiguous else _Plan(None)
    if plan.code is None:
        return False
    plan.run(xp, [total, more], (), total)
    return True


_sums: LRU[Any, _Plan] = LRU(4096)


def _planned(
    source: Any, args: Sequence[Any], kwargs: dict[str, Any], numbers: Sequence[Any], contiguous: bool = False
) -> _Plan:
    """A recording with numbers as parameters, else with numbers as constants; one without code if neither can be."""
    arrays = [a for a in (*args, *kwargs.values()) if is_array(a)]
    try:
        shape = np.broadcast_shapes(*(a.shape for a in arrays))
        strides = [_spread(a, shape) for a in arrays]
    except (ValueError, Unfit):
        return _Plan(None)
    if 0 in shape or not arrays:
        return _Plan(None)
    order = None if contiguous else _order(arrays, shape)
    laid = tuple(shape[d] for d in order) if order else shape
    rows = [tuple(s[d] for d in order) if order else s for s in strides]
    types = [a.dtype if is_array(a) else a for a in args]
    named = {k: v.dtype if is_array(v) else v for k, v in kwargs.items()}
    for symbolic in (True, False) if any(map(type_is_number, (*args, *kwargs.values()))) else (True,):
        try:
            plan = _attempt(source, types, named, laid, rows, symbolic)
        except (Untraceable, compiling.CompileError):
            continue
        except Exception:  # the op's own code refuses these operands, in its own words, when it is called next
            continue
        plan.constants = None if symbolic else list(numbers)
        plan.shape, plan.order = shape, order
        return plan
    return _Plan(None)


def _attempt(source: Any, types: Any, named: Any, laid: Any, rows: Any, symbolic: bool) -> _Plan:
    """The recording, and its layout with as many results as it has."""
    name, run, single = source
    first = recorded(name, run, types, named, ["dense"] * (len(rows) + 8), symbolic, [])
    results = len(first.dtypes)
    layout = collapsed(laid, [*rows, *[contiguous_strides(laid)] * results])
    plan = _Plan(recorded(name, run, types, named, layout.classes, symbolic, first.dtypes))
    plan.layout, plan.single = layout, single
    return plan


def _spread(array: Any, shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of an array broadcast to a shape."""
    own = strides_of(array)
    lead = len(shape) - len(own)
    return (*(0,) * lead, *(0 if n == 1 else s for n, s in zip(array.shape, own)))


def _order(arrays: Sequence[Any], shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The order of dims of the results: that of the first operand of their shape, as torch does."""
    for a in arrays:
        if a.shape == shape:
            return order_of(shape, strides_of(a))
    return None
