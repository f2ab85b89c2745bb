"""From a kernel in the source form to calls: printing, compiling once, the shape of grids, the types of arguments."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engine.backends.cuda import compile as compiling
from engine.backends.cuda import routes
from engine.kernels import cuda_c
from engine.kernels.form import Kernel
from engine.ops.generated import launch as host

Unfit = host.Unfit
BLOCKS = 1 << 15  # of a grid at most: the loops of a kernel take what is beyond
WARPS = 8  # rows of a block, a warp each

_TYPES: dict[str, Any] = {
    "bool": np.bool_,
    "int8": np.int8,
    "uint8": np.uint8,
    "int16": np.int16,
    "uint16": np.uint16,
    "int32": np.int32,
    "uint32": np.uint32,
    "int64": np.int64,
    "uint64": np.uint64,
    "float32": np.float32,
    "float64": np.float64,
}


def on_host(array: Any) -> bool:
    """Return whether an array is in this machine's memory, and is computed with there."""
    return isinstance(array, np.ndarray) and not compiling.simulated()


def usable(route: str) -> bool:
    """Return whether there is a builder of kernels, and the route is on."""
    return compiling.in_use() and routes.ROUTES[route].on()


def is_array(value: Any) -> bool:
    """Return whether an argument is an array (no number, no numpy scalar)."""
    return hasattr(value, "strides") and not isinstance(value, np.generic)


def scalar(value: Any, type: str, wide: bool = False) -> Any:
    """A number as a parameter of a type.  Raises OverflowError where a whole number does not fit."""
    if type == "float32" and not -3.4e38 < value < 3.4e38:
        with np.errstate(over="ignore"):
            return np.float32(value)
    if type == "index":
        return np.int64(value) if wide else np.int32(value)
    return _TYPES[type](value)


def strides_of(array: Any) -> tuple[int, ...]:
    """The strides in elements.  Raises Unfit where they are no whole number of them."""
    size = array.itemsize
    found = []
    for s in array.strides:
        if s % size:
            raise Unfit("strides that are no whole elements")
        found.append(s // size)
    return tuple(found)


def built(kernel: Kernel, *, group: str = "block", wide: bool = False, vector: int = 1) -> Callable[..., None]:
    """The compiled kernel."""
    source = cuda_c.printed(kernel, group=group, wide=wide, vector=vector)
    name = f"k_{kernel.name}_{hashlib.sha256(source.encode()).hexdigest()[:12]}"  # its own among all kernels
    source = source.replace(f" {kernel.name}(", f" {name}(", 1)
    return compiling.module(source, (), kernel.name).function(name)


def map_grid(count: int, vector: int = 1) -> tuple[tuple[int], tuple[int]]:
    """(grid, block) of a map over `count` elements."""
    each = cuda_c.THREADS * vector
    return (max(1, min(BLOCKS, -(-count // each))),), (cuda_c.THREADS,)


def rows_grid(group: str, rows: int, width: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(grid, block) of rows that are `width` long."""
    if group == "warp":
        return (max(1, min(BLOCKS, -(-rows // WARPS))),), (32, WARPS)
    if group == "columns":
        return (max(1, min(BLOCKS, -(-rows // cuda_c.COLUMNS[0]))),), cuda_c.COLUMNS
    threads = max(32, min(cuda_c.THREADS, -(-width // 32) * 32))
    return (max(1, min(BLOCKS, rows)),), (threads,)


def group_of(rows: int, width: int, along: int, across: int) -> str:
    """Return the launch shape for rows ("columns", "warp" or "block"): along, across are the distances of neighbours in
    a row and of rows."""
    if across == 1 and along != 1 and rows >= cuda_c.COLUMNS[0]:
        return "columns"
    return "warp" if width <= 512 else "block"


def identifier(*parts: Any) -> str:
    """A name for a kernel from whatever describes it."""
    return "_".join("".join(c if c.isalnum() else "_" for c in str(p)) for p in parts)


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides in elements of a C-contiguous array."""
    found, step = [], 1
    for n in reversed(shape):
        found.append(step)
        step *= n
    return tuple(reversed(found))
