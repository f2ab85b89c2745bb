"""torch.cpu's names."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

__all__ = [
    "current_device",
    "device_count",
    "empty_cache",
    "is_available",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "reset_peak_memory_stats",
    "set_device",
    "stream",
    "synchronize",
]


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


# --- memory of large arrays: engine/backends/cpu/allocator.py


def memory_stats(device: Any = None) -> dict[str, int]:
    """Counts and bytes of the engine's large CPU arrays (from 1 MB on), under the names of `torch.cuda.memory_stats`.

    `allocated_bytes` those in arrays, `reserved_bytes` these and those cached for the next ones, `cached_bytes` the
    latter alone, `cached_bytes.limit` their bound (ENGINE_CACHE_MB).
    """
    from engine.backends.cpu import allocator

    return allocator.memory_stats()


def memory_allocated(device: Any = None) -> int:
    """Bytes in large arrays."""
    return memory_stats()["allocated_bytes.all.current"]


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that were in large arrays at a time."""
    return memory_stats()["allocated_bytes.all.peak"]


def memory_reserved(device: Any = None) -> int:
    """Bytes held from the system for large arrays, in use or cached for the next."""
    return memory_stats()["reserved_bytes.all.current"]


def max_memory_reserved(device: Any = None) -> int:
    """The most bytes that were held from the system."""
    return memory_stats()["reserved_bytes.all.peak"]


def reset_peak_memory_stats(device: Any = None) -> None:
    """Let peaks start again at the present values."""
    from engine.backends.cpu import allocator

    allocator.reset_peak_memory_stats()


def empty_cache() -> None:
    """Give memory that is cached for the next large arrays back to the system; it also is when an allocation fails."""
    from engine.backends.cpu import allocator

    allocator.empty_cache()


if TYPE_CHECKING:
    from engine.torch_names.cpu import amp as amp
else:

    def __getattr__(name: str) -> Any:
        if name == "amp":
            return importlib.import_module("engine.torch_names.cpu.amp")
        raise AttributeError(f"module 'torch.cpu' has no attribute '{name}'")
