"""cupy.RawModule of the stand-in: the source that a GPU gets, computed by g++ (`compile.Shim`) on the device's memory.

A launch is accounted for as CuPy's own work is: a parameter `const T *` is read, `T *` written, and of a table of
addresses (`T *const *`) every tensor it names.  Memory of another device, or freed, is refused.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from engine.backends.cuda import compile as compiling
from tests.engine.standin import machine
from tests.engine.standin.arrays import Array
from tests.engine.standin.machine import Chunk, before_write, here, launch

FOLDER = Path(__file__).parents[3] / "build" / "kernels"  # kept from run to run; `make clean` removes it
_PARAMETERS = r"__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s+)?{name}\s*\(([^)]*)\)"


@functools.cache
def shim() -> compiling.Shim:
    """What compiles for all of this process."""
    return compiling.Shim(files=compiling.Cache(FOLDER))


class RawModule:
    """cupy.RawModule."""

    def __init__(
        self, code: str | None = None, *, path: Any = None, options: tuple = (), backend: str = "nvrtc"
    ) -> None:
        if not isinstance(options, tuple):
            raise TypeError(f"options must be tuple, got {type(options)}")
        assert code is not None and backend == "nvrtc"
        self._code, self._module = code, builder().module(code, (), "kernel")

    def get_function(self, name: str) -> RawKernel:
        """The kernel of that name."""
        try:
            call = self._module.function(name)
        except KeyError:
            raise machine.CUDARuntimeError("CUDA_ERROR_NOT_FOUND: named symbol not found") from None
        found = re.search(_PARAMETERS.format(name=re.escape(name)), self._code)
        assert found is not None
        return RawKernel(call, [_kind(p) for p in found[1].split(",")])


def builder() -> Any:
    """`shim()`, or what a test or the preparation put in its place."""
    return other[0] if other else shim()


other: list[Any] = []


def _kind(parameter: str) -> str:
    stars = parameter.count("*")
    if stars == 2:
        return "table"
    return "value" if not stars else "read" if parameter.strip().startswith("const ") else "write"


class RawKernel:
    """cupy.RawKernel, and the cupy.cuda.Function in it."""

    def __init__(self, call: Callable[..., None], kinds: list[str]) -> None:
        self._call, self._kinds = call, kinds

    @property
    def kernel(self) -> RawKernel:
        """The loaded function of the current device."""
        return self

    def __call__(
        self,
        grid: tuple,
        block: tuple,
        args: Any,
        shared_mem: int = 0,
        stream: Any = None,
        enable_cooperative_groups: bool = False,
    ) -> None:
        if not isinstance(grid, tuple) or not isinstance(block, tuple):
            raise TypeError("grid and block must be tuples")
        if len(args) != len(self._kinds):
            raise TypeError(f"the kernel takes {len(self._kinds)} arguments, got {len(args)}")
        # a graph knows addresses alone: what it reads is what lies there at its replay
        values = [a if isinstance(a, np.generic) else np.uint64(a.data.ptr) for a in args]
        chunks = [a.data.mem.chunk if isinstance(a, Array) else None for a in args]

        def run(recording: bool = False) -> None:
            reads, writes = self._accounted(values, chunks)
            if recording:
                before_write(writes)
            else:
                launch(reads, writes)
            self._call(grid, block, values)

        with stream or machine.current_stream():
            if machine.capturing():
                run(recording=True)
                launch([], [], run)
            else:
                run()

    def _accounted(self, values: list[Any], chunks: list[Chunk | None]) -> tuple[list[Chunk], list[Chunk]]:
        reads, writes = [], []
        for kind, value, known in zip(self._kinds, values, chunks):
            if kind == "value":
                continue
            chunk = known or _chunk_at(int(value))
            if chunk.device != here.device:
                raise machine.CUDARuntimeError(
                    f"cudaErrorIllegalAddress: memory of device {chunk.device} in a kernel of device {here.device}"
                )
            (writes if kind == "write" else reads).append(chunk)
            if kind == "table":
                at = int(value) - chunk.raw.ctypes.data
                for address in chunk.raw[at:].view(np.uint64):
                    if address == np.uint64(0xFFFFFFFFFFFFFFFF):  # what the pool added to the table's size
                        break
                    writes.append(_chunk_at(int(address)))
        return reads, writes


def _chunk_at(address: int) -> Chunk:
    for memory in list(machine.Machine.memories):
        if memory.ptr <= address < memory.ptr + memory.size:
            return memory.chunk
    raise machine.CUDARuntimeError(f"cudaErrorIllegalAddress: nothing lies at {address:#x}")
