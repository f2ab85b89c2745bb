"""Matrix products by cuBLAS itself: strided batches and transposes without copies, 16-bit types, TF32, in graphs.

CuPy's own wrapper cannot be captured, widens float16 batches and fails for bfloat16 ones.  One function of cuBLAS does
all: cublasGemmStridedBatchedEx (https://docs.nvidia.com/cuda/cublas/#cublasgemmstridedbatchedex), called by ctypes
with the handle that CuPy keeps for the device.  cuBLAS counts by columns: C = A B by rows is C' = B' A' for it.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np

from engine.backends.cuda import runtime
from engine.backends.cuda.flags import matmul as settings

__all__ = ["matmul", "serves"]

# numpy's name -> (cudaDataType, cublasComputeType, type of alpha and beta)
_TYPES = {
    "float16": (2, 68, ctypes.c_float), "bfloat16": (14, 68, ctypes.c_float), "float32": (0, 68, ctypes.c_float),
    "float64": (1, 70, ctypes.c_double),
}  # fmt: skip
_TF32 = 77  # CUBLAS_COMPUTE_32F_FAST_TF32
_WORKSPACE = 32 << 20  # bytes, what NVIDIA recommends for Hopper
_LIMIT = 2**31 - 1


@functools.cache
def _library() -> Any:
    """cuBLAS, which CuPy has loaded or can find; None where it cannot be had."""
    try:
        from cuda import pathfinder

        found = ctypes.CDLL(pathfinder.load_nvidia_dynamic_lib("cublas").abs_path)
        call = found.cublasGemmStridedBatchedEx
    except Exception:  # no wheel, no such function: each has its own error, all mean CuPy's way
        return None
    i, p, far = ctypes.c_int, ctypes.c_void_p, ctypes.c_longlong
    call.argtypes = [p, i, i, i, i, i, p, p, i, i, far, p, i, i, far, p, p, i, i, far, i, i, i]
    found.cublasSetStream_v2.argtypes = [p, p]
    found.cublasSetWorkspace_v2.argtypes = [p, p, ctypes.c_size_t]
    return found


def _cublas() -> Any:
    return runtime.state.blas if runtime.state.stand_in else _library()


def serves(a: Any, b: Any) -> bool:
    """Whether this route takes two operands of `matmul`."""
    return (
        a.dtype.name in _TYPES and a.dtype == b.dtype and a.ndim > 1 and b.ndim > 1 and "gemm" not in runtime.state.off
        and max(*a.shape[-2:], *b.shape[-2:]) <= _LIMIT and _cublas() is not None
    )  # fmt: skip


def _matrix(array: Any) -> tuple[Any, int, int]:
    """(array, 1 if its columns lie side by side else 0, elements from one row or column to the next).

    A copy where neither rows nor columns are dense.
    """
    item = array.itemsize
    rows, columns = array.shape[-2:]
    down, along = array.strides[-2:]
    if columns == 1 or along == item:
        if rows == 1:
            return array, 0, max(columns, 1)
        if down >= columns * item and down % item == 0 and (along == item or down == item):
            return array, 0, down // item
    if (rows == 1 or down == item) and along >= rows * item and along % item == 0:
        return array, 1, along // item
    array = runtime.library().ascontiguousarray(array)
    return array, 0, max(columns, 1)


def _batch(array: Any, shape: tuple[int, ...]) -> tuple[Any, int]:
    """(array, elements between matrices) with leading dims `shape`; 0 where one matrix serves all.

    A copy where the leading dims are no one step apart.
    """
    lead = array.ndim - 2
    if all(n == 1 for n in array.shape[:lead]):
        return array, 0
    if array.shape[:lead] == shape:
        steps = [(n, s) for n, s in zip(array.shape[:lead], array.strides[:lead]) if n != 1]
        step = steps[-1][1]
        expected = step
        for n, s in reversed(steps):
            if s != expected:
                break
            expected *= n
        else:
            if step % array.itemsize == 0 and step >= 0:
                return array, step // array.itemsize
    xp = runtime.library()
    array = xp.ascontiguousarray(xp.broadcast_to(array, (*shape, *array.shape[-2:])))
    return array, array.shape[-2] * array.shape[-1]


_workspaces: dict[tuple[int, int, int], Any] = {}


def _handle(blas: Any) -> int:
    """CuPy's handle of the current device, set to the current stream with memory of that stream's, or graph's, own."""
    module = runtime.library()
    here = module.cuda.Device()
    stream = module.cuda.get_current_stream()
    handle = int(here.cublas_handle)
    pool = getattr(runtime.memory.own, "pool", None)
    key = (here.id, stream.ptr, id(pool) if stream.is_capturing() else 0)
    space = _workspaces.get(key)
    if space is None or key[2]:
        space = module.empty(_WORKSPACE, np.uint8)
        if key[2]:
            runtime.memory.hold(space)  # as long as the graph
        else:
            _workspaces[key] = space
    _checked(blas.cublasSetStream_v2(handle, stream.ptr))
    _checked(blas.cublasSetWorkspace_v2(handle, space.data.ptr, _WORKSPACE))
    return handle


def _checked(status: int) -> None:
    if status:
        raise RuntimeError(f"cuBLAS refused a matrix product: CUBLAS status {status}")


def matmul(a: Any, b: Any, out: Any = None) -> Any:
    """a @ b for operands that `serves` takes.  (*, n, k), (*, k, m) -> (*, n, m).  ValueError for sizes that differ."""
    n, k = a.shape[-2:]
    if b.shape[-2] != k:
        raise ValueError(f"shapes {a.shape} and {b.shape} not aligned: {k} != {b.shape[-2]}")
    m = b.shape[-1]
    xp = runtime.library()
    shape = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    result = out if out is not None and out.flags.c_contiguous else xp.empty((*shape, n, m), a.dtype)
    count = int(np.prod(shape)) if shape else 1
    if result.size:
        if k == 0:
            result[...] = 0
        else:
            (a, step_a), (b, step_b) = _batch(a, shape), _batch(b, shape)
            before = a, b
            (a, turn_a, lead_a), (b, turn_b, lead_b) = _matrix(a), _matrix(b)
            if a is not before[0] and step_a:
                step_a = n * k
            if b is not before[1] and step_b:
                step_b = k * m
            kind, compute, number = _TYPES[a.dtype.name]
            if kind == 0 and settings.tf32():
                compute = _TF32
            one, nothing = number(1), number(0)
            blas = _cublas()
            _checked(
                blas.cublasGemmStridedBatchedEx(
                    _handle(blas), turn_b, turn_a, m, n, k, ctypes.addressof(one),
                    b.data.ptr, kind, lead_b, step_b, a.data.ptr, kind, lead_a, step_a, ctypes.addressof(nothing),
                    result.data.ptr, kind, m, n * m, count, compute, -1,
                )
            )  # fmt: skip
    if out is not None and result is not out:
        out[...] = result
    return result if out is None else out
