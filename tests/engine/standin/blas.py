"""cuBLAS on the stand-in: checks every argument of a call against the memory it names, and computes by numpy."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from tests.engine.standin import machine
from tests.engine.standin.machine import Machine, Memory, before_write, here, launch

INVALID = 7  # CUBLAS_STATUS_INVALID_VALUE
_TYPES = {0: "float32", 1: "float64", 2: "float16", 14: "bfloat16"}
_COMPUTE = {0: (68, 77), 1: (70,), 2: (68, 64), 14: (68,)}


def memory_at(address: int) -> Memory:
    """The memory of the device that holds an address.  AssertionError for one that is free or the host's."""
    for one in list(Machine.memories):
        if one.ptr <= address < one.ptr + max(one.size, 1):
            assert one.device_id == here.device, "the memory is another device's"
            return one
    raise AssertionError(f"cuBLAS was given {address:#x}, which is no memory of the device")


class Cublas:
    """The functions that `engine/backends/cuda/gemm.py` calls."""

    def __init__(self) -> None:
        self.stream: int | None = None
        self.workspace = 0
        self.computes: list[int] = []

    def cublasSetStream_v2(self, handle: int, stream: int) -> int:
        assert handle == here.device + 1
        self.stream, self.workspace = stream, 0  # cuBLAS forgets a workspace with its stream
        return 0

    def cublasSetWorkspace_v2(self, handle: int, address: int, size: int) -> int:
        assert address % 256 == 0 or address % 16 == 0
        memory = memory_at(address)
        assert address + size <= memory.ptr + memory.size
        self.workspace = address
        return 0

    def cublasGemmStridedBatchedEx(
        self, handle: int, turn_a: int, turn_b: int, m: int, n: int, k: int, alpha: int, a: int, a_type: int,
        lead_a: int, step_a: int, b: int, b_type: int, lead_b: int, step_b: int, beta: int, c: int, c_type: int,
        lead_c: int, step_c: int, count: int, compute: int, algorithm: int,
    ) -> int:  # fmt: skip
        if min(m, n, k, count) <= 0 or not a_type == b_type == c_type or compute not in _COMPUTE[a_type]:
            return INVALID
        if lead_a < (k if turn_a else m) or lead_b < (n if turn_b else k) or lead_c < m:
            return INVALID
        assert self.stream == machine.current_stream().ptr, "cuBLAS works on another stream"
        assert self.workspace, "without a workspace cuBLAS allocates inside a capture"
        number: Any = ctypes.c_double if a_type == 1 else ctypes.c_float
        assert number.from_address(alpha).value == 1 and number.from_address(beta).value == 0
        left, where_a = self._matrices(a, a_type, k if turn_a else m, m if turn_a else k, lead_a, step_a, count)
        right, where_b = self._matrices(b, b_type, n if turn_b else k, k if turn_b else n, lead_b, step_b, count)
        result, where_c = self._matrices(c, c_type, m, n, lead_c, step_c, count)
        assert count == 1 or step_c >= lead_c * n, "matrices of the result overlap"
        if turn_a:
            left = left.swapaxes(1, 2)
        if turn_b:
            right = right.swapaxes(1, 2)
        self.computes.append(compute)
        wide = np.float64 if a_type == 1 else np.float32

        def work() -> None:
            result[...] = np.matmul(left.astype(wide), right.astype(wide))

        def again() -> None:
            launch([where_a.chunk, where_b.chunk], [where_c.chunk])
            work()

        before_write([where_c.chunk])
        launch([where_a.chunk, where_b.chunk], [where_c.chunk], again)
        work()
        return 0

    @staticmethod
    def _matrices(
        address: int, kind: int, rows: int, columns: int, lead: int, step: int, count: int
    ) -> tuple[np.ndarray, Memory]:
        """(count, rows, columns) by columns, all of it inside one block of memory."""
        import ml_dtypes

        dtype = np.dtype(ml_dtypes.bfloat16) if kind == 14 else np.dtype(_TYPES[kind])
        memory = memory_at(address)
        last = (count - 1) * step + (columns - 1) * lead + rows
        assert address + last * dtype.itemsize <= memory.ptr + memory.size, "a matrix reaches outside its memory"
        offset = address - memory.ptr
        item = dtype.itemsize
        strides = (step * item, item, lead * item)
        return np.ndarray((count, rows, columns), dtype, memory.chunk.raw, offset, strides), memory
