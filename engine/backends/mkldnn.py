"""torch.backends.mkldnn's names: whether oneDNN is there, and a switch to disable it.

`enabled` is True while ops may use it; `flags(enabled=False)` disables it in a context.  `describe()` says which
library is in use, or why none is.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Iterator
from typing import Any

from engine.backends.onednn.library import describe, is_available, state

__all__ = ["describe", "flags", "is_available", "set_flags", "verbose"]

VERBOSE_OFF, VERBOSE_ON, VERBOSE_ON_CREATION = 0, 1, 2
deterministic = False
allow_tf32 = True


class _Settings(types.ModuleType):
    """The module, with `enabled` as a setting that works when it is assigned."""

    @property
    def enabled(self) -> bool:
        return state.enabled

    @enabled.setter
    def enabled(self, value: bool) -> None:
        state.enabled = bool(value)


sys.modules[__name__].__class__ = _Settings


def set_flags(_enabled: bool | None = None, *args: Any, **kwargs: Any) -> tuple:
    """Set `enabled`; returns what it was, in a tuple, as torch does.  The other settings are without effect."""
    before = state.enabled
    if _enabled is not None:
        state.enabled = bool(_enabled)
    return (before,)


@contextlib.contextmanager
def flags(enabled: bool = False, *args: Any, **kwargs: Any) -> Iterator[None]:
    """A context with `enabled` as given."""
    (before,) = set_flags(enabled)
    try:
        yield
    finally:
        set_flags(before)


@contextlib.contextmanager
def verbose(level: int) -> Iterator[None]:
    """A context without effect."""
    yield
