"""torch.backends.mkldnn's names: settings without effect."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

__all__ = ["flags", "is_available", "set_flags", "verbose"]

VERBOSE_OFF, VERBOSE_ON, VERBOSE_ON_CREATION = 0, 1, 2
enabled = True
deterministic = False
allow_tf32 = True


def is_available() -> bool:
    """False: tensors have no mkldnn layout here."""
    return False


def set_flags(*args: Any, **kwargs: Any) -> tuple:
    """Without effect."""
    return (enabled,)


@contextlib.contextmanager
def flags(enabled: bool = False, *args: Any, **kwargs: Any) -> Iterator[None]:
    """A context without effect."""
    yield


@contextlib.contextmanager
def verbose(level: int) -> Iterator[None]:
    """A context without effect."""
    yield
