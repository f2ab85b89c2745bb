"""torch.backends.cudnn's names: settings that can be set and are without effect."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

__all__ = ["flags", "is_acceptable", "is_available", "set_flags", "version"]

enabled = True
benchmark = False
benchmark_limit = 10
deterministic = False
allow_tf32 = True


def is_available() -> bool:
    """False: cuDNN is not used."""
    return False


def version() -> int | None:
    """None: cuDNN is not used."""
    return None


def is_acceptable(tensor: Any) -> bool:
    """False: cuDNN is not used."""
    return False


def set_flags(*args: Any, **kwargs: Any) -> tuple:
    """Without effect; the settings that stand."""
    return enabled, benchmark, benchmark_limit, deterministic, allow_tf32


@contextlib.contextmanager
def flags(*args: Any, **kwargs: Any) -> Iterator[None]:
    """A context without effect."""
    yield
