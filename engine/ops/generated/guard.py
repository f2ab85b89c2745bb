"""Guarding an op's generated kernel: it is compared with the op's other route, and dropped where that is faster."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engine.backends.cpu import relayout
from engine.core.layouts import INNER, ChannelsLast
from engine.core.lru import LRU
from engine.core.trials import slower
from engine.ops.generated.comparison import difference, largest_of, size_of
from engine.ops.generated.launch import MANY, Entry, Unfit, proven, trials
from engine.ops.generated.replay import replay

DISABLED, AGAIN, ONCE = object(), object(), object()  # left to the route there was; the whole call again; seen once
PART = 1 << 19  # elements of a part in which a large result is compared
WIDE = 1 << 21  # elements of the part in which times are: more than a second-level cache holds


def guarded(
    name: str,
    variant: Callable[..., Any],
    present: Callable[..., Any],
    replayed: bool,
    into: int | None = None,
    pointwise: bool = False,
    light: bool = False,
    images: bool | Callable[..., Any] = False,
    multiplies: bool = False,
) -> Callable[..., Any]:
    """`variant`, whose kernels are compared with the route `present` at their first use.

    replayed: the variant does nothing but launch, so that later calls of the same kind may only do that.
    into: the array that those may write the result to, if it is laid out as the result is.
    pointwise: there is one result, each of whose elements depends on the operands' elements at its place only.
    light: without it numpy takes one pass, so that calls alone do not pay for a compiler.
    images: operands of the engine's own layout are served, too: of a pointwise op, or as a function gives them.
    multiplies: results are sums of products of the operands (`largest_of`).
    """
    decided: LRU[Any, Any] = LRU(MANY)  # by all that a call is but the elements: what is done with it
    last = decided.young
    images = into is None and images

    def in_memory_order(xp: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if callable(images):
            found = images(*args, **kwargs)
            made = NotImplemented if found is None else kernel(xp, *found[0])
            return made if made is NotImplemented else made.reshape(found[1])
        given = _in_memory_order(args, kwargs)
        if given is None:
            return NotImplemented
        made = kernel(xp, *given, **kwargs)
        if made is NotImplemented:
            return NotImplemented
        return made.transpose(0, made.ndim - 1, *range(1, made.ndim - 1)).view(ChannelsLast)

    def kernel(xp: Any, *args: Any, **kwargs: Any) -> Any:
        parts: list[Any] = [tuple(kwargs)] if kwargs else []
        arrays = []
        for a in (*args, *kwargs.values()) if kwargs else args:
            if a.__class__ is np.ndarray:
                arrays.append(a)
                parts += (a.dtype, a.shape, a.strides)
            elif isinstance(a, np.ndarray):  # of the engine's own layouts
                return in_memory_order(xp, args, kwargs) if images else NotImplemented
            else:
                parts += (a.__class__, a or str(a))  # -0.0 equals 0.0, and is another number
        if len(arrays) > 1 and len(set(map(id, arrays))) < len(arrays):  # x * x says nothing of x * y
            parts.append(tuple([[a is b for b in arrays].index(True) for a in arrays]))
        key = tuple(parts)
        try:
            route = last.get(key) or decided.get(key)
        except TypeError:  # an argument that cannot be a key
            return NotImplemented
        if route is not None:
            if route is DISABLED:
                return NotImplemented
            if route is AGAIN:
                try:
                    return variant(xp, *args, **kwargs)
                except Unfit:  # calls that share its kernel have lost a trial since
                    return NotImplemented
            if route is not ONCE:
                return route(arrays)
        fresh = trials.fresh
        trials.begin(light)
        try:
            found = variant(xp, *args, **kwargs)
        except Unfit:
            found = NotImplemented
        if found is NotImplemented:
            if trials.closed:
                decided[key] = DISABLED
            return NotImplemented
        if trials.trusted:
            return found
        entries = list(fresh)
        fresh.clear()
        if (
            not entries and route is None and any(p is float for p in parts)
        ):  # other numbers than before, which may never come again
            decided[key] = ONCE
            return found
        want = None
        if entries:
            few = _parts(args, kwargs, found) if pointwise else []
            if few:  # of a large result
                passed = _proof_of_parts(name, entries, few, present)
                found = few = None  # type: ignore[assignment]
            else:
                terms = max([a.size for a in arrays], default=1)
                want = present(np, *args, **kwargs)
                passed = proven(name, entries, difference(want, found, largest_of(arrays, multiplies), terms))
            if not passed:
                return present(np, *args, **kwargs) if want is None else want
        again = lambda: variant(xp, *args, **kwargs)
        try:
            route = (replay(variant, xp, args, kwargs) if replayed else None) or AGAIN
            if not entries:
                is_slower = False
            elif found is not None:
                found = None
                mine = again if route is AGAIN else lambda: route(arrays)
                is_slower = slower(mine, lambda: present(np, *args, **kwargs), of=entries)
            else:
                is_slower = _slower_in_part(variant, present, xp, args, kwargs, entries)
        except Unfit:  # its kernel lost a trial since, in another thread or in the parts of this call
            return want if want is not None else present(np, *args, **kwargs) if found is None else found
        if is_slower:
            for entry in entries:
                entry.lost()
            if all(not entry.disabled for entry in entries):
                return (present(np, *args, **kwargs) if found is None else found) if want is None else want
            route = DISABLED
        if into is not None and callable(route):
            over = getattr(route, "over", None)
            route = (over and over(arrays, into)) or route
        decided[key] = route
        if want is None and found is None:
            return present(np, *args, **kwargs) if route in (DISABLED, AGAIN) else route(arrays)
        return found if want is None else want

    def launch_for(arrays: Sequence[Any]) -> Callable[[Sequence[Any]], Any] | None:
        """Return the launch that was decided for arrays of this layout, or None if there is none for arrays alone."""
        route = decided.get(tuple([p for a in arrays for p in (a.dtype, a.shape, a.strides)]))
        return route if callable(route) else None

    def why_not(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Return why a call is left to the route there was, "" where it is not; the kernels are asked once more."""
        if any(isinstance(a, np.ndarray) and a.__class__ is not np.ndarray for a in args):
            found = images(*args, **kwargs) if callable(images) else None
            given = found and found[0] if callable(images) else _in_memory_order(args, kwargs) if images else None
            kwargs = {} if callable(images) else kwargs
            if given is None:
                return "converted to another layout"
            args = given
        trials.begin(light)
        try:
            found = variant(np, *args, **kwargs)
        except Unfit as unfit:
            return str(unfit)
        finally:
            trials.fresh.clear()
        return "does not serve such operands" if found is NotImplemented else ""

    kernel.launch_for = launch_for  # type: ignore[attr-defined]
    kernel.why_not = why_not  # type: ignore[attr-defined]
    return kernel


def _in_memory_order(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
    """The operands of an op on images of the engine's own layout with the dims in the order of memory; None where some
    have another.

    A number for each image or channel, (N, C, 1, ...), or for each place, (N, 1, *), goes with them in whatever layout;
    images in torch's order are copied.
    """
    shape = next((a.shape for a in args if a.__class__ is ChannelsLast), None)
    if shape is None or any(isinstance(a, np.ndarray) for a in kwargs.values()):
        return None
    order, found = INNER[len(shape)], []
    for a in args:
        if isinstance(a, np.ndarray) and a.ndim:
            alike = a.shape == shape and (a.__class__ is ChannelsLast or a.flags.c_contiguous)
            if a.ndim != len(shape) or not (alike or a.shape[1] == 1 or set(a.shape[2:]) == {1}):
                return None
            whole = a.shape == shape and a.__class__ is not ChannelsLast
            a = a.transpose(order).view(np.ndarray)
            a = relayout.contiguous(a) if whole else a
        found.append(a)
    return tuple(found)


def _parts(args: tuple[Any, ...], kwargs: dict[str, Any], found: Any) -> list[tuple[Any, ...]]:
    """Operands and results of the begin, the middle and the end; none of results that are not large."""
    if not isinstance(found, np.ndarray) or found.size <= 4 * PART:
        return []
    return [
        (*_part(args, kwargs, found.shape, at), found[_window(found.shape, found.shape, at, PART)])
        for at in (0.0, 0.5, 1.0)
    ]


def _part(
    args: tuple[Any, ...], kwargs: dict[str, Any], shape: Sequence[int], at: float, count: int = PART
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    cut = lambda a: a[_window(a.shape, shape, at, count)] if isinstance(a, np.ndarray) and a.ndim else a
    return tuple([cut(a) for a in args]), {name: cut(a) for name, a in kwargs.items()}


def _window(own: Sequence[int], shape: Sequence[int], at: float, count: int) -> tuple[slice, ...]:
    """About `count` neighbours in `shape`, `at` of the way through, as slices of an operand that is broadcast to it."""
    found, left, rest = [], count, math.prod(shape)
    for size in shape:
        rest //= size
        width = min(size, max(1, left // rest))
        begin = round((size - width) * at)
        found.append(slice(begin, begin + width))
        left = max(1, left // width)
    return tuple([slice(None) if n == 1 else s for n, s in zip(own, found[len(shape) - len(own) :])])


def _proof_of_parts(
    name: str, entries: Sequence[Entry], few: list[tuple[Any, ...]], present: Callable[..., Any]
) -> bool:
    what = None
    for args, kwargs, found in few:
        arrays = [a for a in (*args, *kwargs.values()) if isinstance(a, np.ndarray)]
        largest = max([size_of(a) for a in arrays], default=0.0)
        what = what or difference(present(np, *args, **kwargs), found, largest)
    return proven(name, entries, what)


def _slower_in_part(
    variant: Callable[..., Any],
    present: Callable[..., Any],
    xp: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    entries: Sequence[Entry],
) -> bool:
    """`slower`, of a part of the operands."""
    shape = np.broadcast_shapes(*[a.shape for a in (*args, *kwargs.values()) if isinstance(a, np.ndarray)])
    some, named = _part(args, kwargs, shape, 0.5, WIDE)
    try:
        with trials.worth_compiling():
            if variant(xp, *some, **named) is NotImplemented:
                return False
            return slower(lambda: variant(xp, *some, **named), lambda: present(np, *some, **named), of=entries)
    except Unfit:  # a kernel for fewer elements is disabled
        return False
    finally:
        trials.fresh.clear()
