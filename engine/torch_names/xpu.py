"""torch.xpu's names: such devices are not supported."""

from __future__ import annotations

from typing import Any

__all__ = [
    "current_device",
    "current_stream",
    "device",
    "device_count",
    "empty_cache",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "get_rng_state_all",
    "init",
    "is_available",
    "is_bf16_supported",
    "is_current_stream_capturing",
    "is_initialized",
    "is_tf32_supported",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "reset_peak_memory_stats",
    "set_device",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
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


def init() -> None:
    """Nothing."""


def is_initialized() -> bool:
    """False."""
    return False


is_bf16_supported = is_tf32_supported = is_current_stream_capturing = is_initialized


def memory_allocated(device: Any = None) -> int:
    """0."""
    return 0


max_memory_allocated = memory_reserved = max_memory_reserved = memory_allocated


def manual_seed_all(seed: int) -> None:
    """Nothing."""


def reset_peak_memory_stats(device: Any = None) -> None:
    """Nothing."""


def get_rng_state_all() -> list:
    """Empty: there is no such device."""
    return []


def set_rng_state_all(new_states: Any) -> None:
    """Nothing."""


def synchronize(*args: Any, **kwargs: Any) -> Any:
    """RuntimeError: there is no such device."""
    raise RuntimeError("device 'xpu' is not supported")


current_device = set_device = get_device_name = get_device_capability = get_device_properties = synchronize
current_stream = set_stream = stream = get_rng_state = set_rng_state = mem_get_info = synchronize


class device:
    """RuntimeError when it is made: there is no such device."""

    def __init__(self, device: Any) -> None:
        synchronize()
