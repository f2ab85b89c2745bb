"""torch.xpu's names: such devices are not supported."""

from __future__ import annotations

from typing import Any

__all__ = ["device_count", "empty_cache", "is_available", "manual_seed", "synchronize"]


def is_available() -> bool:
    """False."""
    return False


def device_count() -> int:
    """0."""
    return 0


def empty_cache() -> None:
    """Nothing."""


def manual_seed(seed: int) -> None:
    """Nothing."""


def synchronize(device: Any = None) -> None:
    """RuntimeError: there is no such device."""
    raise RuntimeError("device 'xpu' is not supported")
