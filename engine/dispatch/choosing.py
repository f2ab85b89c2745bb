"""Which kernel computes on large CPU arrays: oneDNN's, generated code, or the op's own in blocks."""

from __future__ import annotations

import functools
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

    if not generated(record):
        return present
    made: Any = None
    over: Any = None

    def kernel(xp: Any, *args: Any, into: Any = None, **kwargs: Any) -> Any:
        nonlocal made, over
        if made is None and not worth_loading(args[0].size):
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


_LOADED_FOR = 1 << 23  # elements
_left = [_LOADED_FOR]  # elements until generated code is loaded


def worth_loading(size: int) -> bool:
    """Whether so much was computed, `size` elements included, that the modules of generated code are worth loading: a
    program that runs a small model once does without them."""
    if _left[0] > 0:
        from engine.kernels import processor

        _left[0] -= max(size, 1 << 16) if not processor.always() else _LOADED_FOR
    return _left[0] <= 0


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
