"""torch.cuda.memory: what the GPU's memory is used for, by the pool that CuPy and the engine share."""

from __future__ import annotations

from typing import Any

from engine.backends.cuda.errors import OutOfMemoryError as OutOfMemoryError
from engine.backends.cuda.errors import size_text
from engine.cuda._device import index_of, initialized, library, runtime

__all__ = [
    "empty_cache",
    "get_per_process_memory_fraction",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
]


def memory_stats(device: Any = None) -> dict[str, int]:
    """Bytes and calls under torch's names; empty before a GPU is used.

    `allocated_bytes.all.current`, `.peak`, `.allocated` (since the start), `reserved_bytes.all.current`, `.peak`,
    `allocation.all.allocated` (calls), `num_ooms`.  Sizes are rounded up to 512 bytes, as in the pool.
    """
    return runtime().memory.statistics(index_of(device)) if initialized() else {}


def _statistic(name: str, doc: str) -> Any:
    def read(device: Any = None) -> int:
        return memory_stats(device).get(name, 0)

    read.__doc__ = doc
    return read


memory_allocated = _statistic("allocated_bytes.all.current", "Bytes in tensors on the GPU; 0 before one is used.")
max_memory_allocated = _statistic("allocated_bytes.all.peak", "The most bytes in tensors so far.")
memory_reserved = _statistic("reserved_bytes.all.current", "Bytes held from the GPU; 0 before one is used.")
max_memory_reserved = _statistic("reserved_bytes.all.peak", "The most bytes held from the GPU so far.")
memory_cached, max_memory_cached = memory_reserved, max_memory_reserved


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """`memory_stats` as a table of text."""
    rows = memory_stats(device)
    width = max(map(len, rows), default=0)
    return "\n".join(
        f"{name:<{width}}  {size_text(value) if 'bytes' in name else value}" for name, value in rows.items()
    )


def empty_cache() -> None:
    """Give memory that no tensor uses back to the GPU; nothing before one is used."""
    if initialized():
        module = library()
        for collect in list(runtime().memory.collectors):
            collect()
        for index in range(runtime().state.device_count):
            with runtime().on_device(index):
                module.get_default_memory_pool().free_all_blocks()


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """(free, total) bytes of the GPU, whoever uses them.  RuntimeError without one."""
    with runtime().on_device(index_of(device)):
        free, total = library().cuda.runtime.memGetInfo()
    return int(free), int(total)


def reset_peak_memory_stats(device: Any = None) -> None:
    """Let the peaks begin at what is in use now."""
    if initialized():
        runtime().memory.reset_peak(index_of(device))


reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """Let the counts begin at 0."""
    if initialized():
        counters = runtime().memory.at(index_of(device))
        counters.allocations = counters.bytes = counters.failures = 0


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """Limit the memory of this process to a part of the GPU's.  ValueError unless 0 <= fraction <= 1."""
    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    with runtime().on_device(index_of(device)):
        library().get_default_memory_pool().set_limit(fraction=fraction)


def get_per_process_memory_fraction(device: Any = None) -> float:
    """The part of the GPU's memory that this process may use."""
    with runtime().on_device(index_of(device)):
        limit = library().get_default_memory_pool().get_limit()
        total = library().cuda.runtime.memGetInfo()[1]
    return min(1.0, limit / total) if limit else 1.0
