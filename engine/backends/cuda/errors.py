"""The errors of CUDA work, in torch's words."""

from __future__ import annotations

__all__ = ["AcceleratorError", "OutOfMemoryError", "out_of_memory", "size_text"]


class OutOfMemoryError(RuntimeError):
    """The GPU has no memory left."""


class AcceleratorError(RuntimeError):
    """A CUDA call failed."""


def size_text(count: int) -> str:
    """`12.50 MiB`, as torch prints bytes."""
    if count < 1024:
        return f"{count} bytes"
    for unit in ("KiB", "MiB"):
        count_in = count / 1024 ** (1 + ("KiB", "MiB").index(unit))
        if count_in < 1024:
            return f"{count_in:.2f} {unit}"
    return f"{count / 1024**3:.2f} GiB"


def out_of_memory(size: int, index: int, total: int, free: int, used: int, held: int, limit: int) -> OutOfMemoryError:
    """torch's sentence with the numbers: bytes asked for, of the device, in tensors, held by the pool, its limit."""
    allowed = f" {size_text(limit)} allowed;" if limit else ""
    return OutOfMemoryError(
        f"CUDA out of memory. Tried to allocate {size_text(size)}. GPU {index} has a total capacity of "
        f"{size_text(total)} of which {size_text(free)} is free.{allowed} Of the allocated memory {size_text(used)} is "
        f"allocated by tensors, and {size_text(max(0, held - used))} is reserved but unallocated. Use a smaller batch, "
        "delete tensors that are not needed, or run the step under torch.autocast."
    )
