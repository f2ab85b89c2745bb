"""torch.mps's names: such devices are not supported."""

from __future__ import annotations

from typing import Any

__all__ = [
    "current_allocated_memory",
    "device_count",
    "driver_allocated_memory",
    "empty_cache",
    "get_rng_state",
    "is_available",
    "manual_seed",
    "recommended_max_memory",
    "set_rng_state",
    "synchronize",
]


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


def current_allocated_memory() -> int:
    """0."""
    return 0


driver_allocated_memory = recommended_max_memory = current_allocated_memory


def synchronize(*args: Any, **kwargs: Any) -> Any:
    """RuntimeError: there is no such device."""
    raise RuntimeError("device 'mps' is not supported")


get_rng_state = set_rng_state = synchronize
