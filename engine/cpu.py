"""torch.cpu's names."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

__all__ = ["current_device", "device_count", "is_available", "set_device", "stream", "synchronize"]


def is_available() -> bool:
    """True."""
    return True


def device_count() -> int:
    """1."""
    return 1


def current_device() -> str:
    """`cpu`."""
    return "cpu"


def set_device(device: Any) -> None:
    """Nothing."""


def synchronize(device: Any = None) -> None:
    """Nothing: operations are done when they return."""


@contextlib.contextmanager
def stream(stream: Any) -> Iterator[None]:
    """A context without effect."""
    yield
