"""Which kernel computes on large CPU arrays: oneDNN's, generated code, or the op's own in blocks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from engine.backends import routes
from engine.dispatch import GENERATED, PICTURES, Op, providers

measured = routes.chosen


def large_kernel(record: Op) -> Any:
    """The kernel for large and for converted arrays: oneDNN's variant, and for what that leaves the op's own, in
    blocks.

    `into`: the target of an in-place op; a kernel that has written there returns it.
    """
    blocks: Any = None
    least, plain = record.large if generated(record) else 0, np.ndarray

    def present(xp: Any, *args: Any, into: Any = None, **kwargs: Any) -> Any:
        nonlocal blocks
        row = measured.get(record.name)  # Note [Measured routes] in engine/backends/routes.py
        route = None
        if row is not None and args[0].__class__ is plain:
            route = routes.route(row, args[0].size)
            if route == "numpy":
                return record.kernel(xp, *args, **kwargs)
        if route is None and least and args[0].__class__ is plain and args[0].size < least:
            return record.kernel(xp, *args, **kwargs)  # only generated code is asked for so few
        if route != "blocks":
            variant = record.kernels.get("onednn") if onednn_kernels() else _pictures(record, args[0])
            if variant is not None:
                if into is not None and "into" in variant.__code__.co_varnames:
                    found = variant(xp, *args, into=into, **kwargs)
                else:
                    found = variant(xp, *args, **kwargs)
                if found is not NotImplemented:
                    return found
        if record.large_by and args[0].size < Op.large:  # few elements of much work
            return record.kernel(xp, *args, **kwargs)
        if blocks is None:
            blocks = providers["blocks"](record)
        return blocks(xp, *args, into=into, **kwargs)

    if not generated(record) or record.lists:
        return present
    made: Any = None
    over: Any = None

    def kernel(xp: Any, *args: Any, into: Any = None, **kwargs: Any) -> Any:
        nonlocal made, over
        if made is None and not worth_loading(_size(args)):
            return present(xp, *args, into=into, **kwargs)
        if into is not None and into is args[0] and _apart(into, args[1:]):
            if over is None:
                over = providers["generated"](record, present, 0)
            found = over(xp, *args, **kwargs)
        else:
            if made is None:
                made = providers["generated"](record, present)
            found = made(xp, *args, **kwargs)
        return present(xp, *args, into=into, **kwargs) if found is NotImplemented else found

    return kernel


def _pictures(record: Op, first: Any) -> Any:
    """The kernel of channels-last pictures where no library serves; None for ops without one, and until generated code
    is worth loading."""
    if record.name not in PICTURES or not worth_loading(first.size) or not _pictured():
        return None
    return record.kernels.get("pictures")


@functools.cache
def _pictured() -> bool:
    """Whether there are such kernels; the first call imports them."""
    from engine.kernels import processor

    return processor.available() and bool(providers["pictures"]())


_LOADED_FOR = 3 << 22  # elements; a first pass of ResNet-18 over one picture is 8 million
_left = [_LOADED_FOR]  # elements until generated code is loaded
_ASKED = 64  # small calls that are counted at once, as _SMALL elements
_SMALL = 1 << 14


def worth_loading(size: int, least: int = 1 << 16) -> bool:
    """Whether so much was computed, `size` elements included (or `least`), that the modules of generated code are worth
    loading: a program that runs a small model once does without them."""
    if _left[0] > 0:
        from engine.kernels import processor

        _left[0] -= max(size, least) if not processor.always() else _LOADED_FOR
    return _left[0] <= 0


def direct_calls(record: Op) -> Callable[..., Any] | None:
    """What small calls of an op ask first: Note [Direct calls] in engine/kernels/direct.py.  Until generated code is
    worth loading, a function that counts; None for ops without generated code.

    Its arguments are the op's, keyword-only ones last, of a list its elements; it returns NotImplemented for what is
    left to other kernels.
    """
    if record.quick is ...:
        record.quick = _counting(record) if generated(record) else None
    found: Callable[..., Any] | None = record.quick
    return found


def _counting(record: Op) -> Callable[..., Any]:
    calls = 0
    often = 1 if fewest(record) == 1 else _ASKED
    small = min(record.large, GENERATED[record.name]) if record.blocks == "elements" else record.large

    def counting(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls % often == 0 and worth_loading(_SMALL, 0):
            large = large_kernel(record)

            def present(xp: Any, *given: Any, **named: Any) -> Any:
                few = record.lists or _size(given) < small
                return (record.kernel if few else large)(xp, *given, **named)

            record.quick = providers["direct"](record, present)
            for space in record.namespaces:
                if space["direct"] is not None:
                    space["direct"] = record.quick
        return NotImplemented

    return counting


def asked(function: Any, *args: Any) -> Any:
    """What a small call of an op gives by generated code, from arrays; NotImplemented where there is none for it."""
    found = function.op.quick
    if found is ...:
        found = direct_calls(function.op)
    return NotImplemented if found is None else found(*args)


def quickly(backward: Any, own: Callable[[Any, Any], Any], *more: Any) -> Callable[[Any, Any], Any]:
    """`own(grad, result)`, a gradient over arrays, behind what the op `backward` has for small calls."""

    def gradient(grad: Any, result: Any) -> Any:
        found = asked(backward, grad, result, *more)
        return own(grad, result) if found is NotImplemented else found

    return gradient


def _size(args: Any) -> int:
    """Elements of the first operand, or of the second where that is a number."""
    found: int = args[0].size if isinstance(args[0], np.ndarray) else args[1].size
    return found


def _apart(target: Any, others: Any) -> bool:
    """Whether what is written can be read meanwhile: no other operand has a part of its memory."""
    return not any(isinstance(a, np.ndarray) and a is not target and np.may_share_memory(target, a) for a in others)


def fewest(record: Op) -> int:
    """Elements from which generated code of an op is asked for."""
    from engine.kernels import processor

    return 1 if processor.always() else GENERATED[record.name]


def generated(record: Op) -> bool:
    """Whether the op has kernels that are generated here: the extra `jit` is installed and not turned off."""
    if record.name not in GENERATED:
        return False
    from engine.kernels import processor

    return processor.available()


@functools.cache
def onednn_kernels() -> bool:
    """Whether oneDNN is in use; the first call looks for it and loads the kernels that call it."""
    from engine.backends import onednn

    if onednn.is_available():
        providers["onednn"]()
    return onednn.is_available()
