"""cublasLt on the stand-in: checks every argument (`tests/engine/cublaslt.py`) against the memory of the device that it
names, and is accounted for as any other work of a stream."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.engine.cublaslt import KINDS, CublasLt, Refused
from tests.engine.standin import machine
from tests.engine.standin.machine import Machine, Memory, before_write, here, launch


def memory_at(address: int) -> Memory:
    """The memory of the device that holds an address.  Refused for one that is free or the host's."""
    for one in list(Machine.memories):
        if one.ptr <= address < one.ptr + max(one.size, 1):
            if one.device_id != here.device:
                raise Refused("the memory is another device's")
            return one
    raise Refused(f"cublasLt was given {address:#x}, which is no memory of the device")


class Standin(CublasLt):
    """The functions of the library that `engine/backends/cuda/blaslt.py` calls."""

    def __init__(self) -> None:
        super().__init__(workspace=1 << 16)

    def current_stream(self) -> int:
        return machine.current_stream().ptr

    def _seen(self, address: int, layout: dict, batch: int) -> np.ndarray:
        kind = KINDS[layout["type"]]
        memory, size, ld, stride = memory_at(address), kind.itemsize, layout["ld"], layout.get("stride", 0)
        last = (batch - 1) * stride + (layout["cols"] - 1) * ld + layout["rows"]
        if address + last * size > memory.ptr + memory.size:
            raise Refused("memory outside of every array")
        shape, strides = (batch, layout["rows"], layout["cols"]), (stride * size, size, ld * size)
        return np.ndarray(shape, kind, memory.chunk.raw, address - memory.ptr, strides)

    def launch(self, reads: list[int], writes: list[int], work: Any) -> None:
        read, written = ([memory_at(a).chunk for a in found] for found in (reads, writes))

        def again() -> None:
            launch(read, written)
            work()

        before_write(written)
        launch(read, written, again)
        work()
