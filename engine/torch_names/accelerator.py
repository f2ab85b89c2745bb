"""torch.accelerator's names: the one kind of device beside the CPU, which is CUDA where there is one."""

from __future__ import annotations

from typing import Any

from engine import cuda
from engine.core.device import device

__all__ = [
    "current_accelerator",
    "current_device_idx",
    "current_device_index",
    "current_stream",
    "device_count",
    "device_index",
    "empty_cache",
    "is_available",
    "max_memory_allocated",
    "memory_allocated",
    "reset_peak_memory_stats",
    "set_device_idx",
    "set_device_index",
    "synchronize",
]

device_index = cuda.device
is_available, device_count = cuda.is_available, cuda.device_count
current_device_index = current_device_idx = cuda.current_device
set_device_index = set_device_idx = cuda.set_device
current_stream, synchronize, empty_cache = cuda.current_stream, cuda.synchronize, cuda.empty_cache
memory_allocated, max_memory_allocated = cuda.memory_allocated, cuda.max_memory_allocated
reset_peak_memory_stats = cuda.reset_peak_memory_stats


def current_accelerator(check_available: bool = False) -> Any:
    """The device `cuda` where there is one, else None."""
    return device("cuda") if is_available() else None
