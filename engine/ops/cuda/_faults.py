"""Faults of operands that a kernel has found (an index out of range), checked after the launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.backends.cuda import runtime


def look(flags: Any, error: Callable[[], Exception]) -> None:
    """Raise error() where an element of `flags` (integers) is not 0; not while a graph is captured, where the host must
    not wait.  Kernels read and write nothing out of bounds in that case, so a call that does not look computes wrong
    numbers but harms no memory."""
    if not runtime.capturing() and int(flags.max()):
        raise error()
