"""CUDA through CuPy, which `runtime.py` alone imports, at first use.

`load()` gives the backend or one sentence that says why there is none.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from engine.backends import Backend
from engine.backends.cuda import compile as _compiling
from engine.backends.cuda.flags import can_use_efficient_attention as can_use_efficient_attention
from engine.backends.cuda.flags import can_use_flash_attention as can_use_flash_attention
from engine.backends.cuda.flags import cudnn_sdp_enabled as cudnn_sdp_enabled
from engine.backends.cuda.flags import cufft_plan_cache as cufft_plan_cache
from engine.backends.cuda.flags import enable_cudnn_sdp as enable_cudnn_sdp
from engine.backends.cuda.flags import enable_flash_sdp as enable_flash_sdp
from engine.backends.cuda.flags import enable_math_sdp as enable_math_sdp
from engine.backends.cuda.flags import enable_mem_efficient_sdp as enable_mem_efficient_sdp
from engine.backends.cuda.flags import flash_sdp_enabled as flash_sdp_enabled
from engine.backends.cuda.flags import is_built as is_built
from engine.backends.cuda.flags import math_sdp_enabled as math_sdp_enabled
from engine.backends.cuda.flags import matmul as matmul
from engine.backends.cuda.flags import mem_efficient_sdp_enabled as mem_efficient_sdp_enabled
from engine.backends.cuda.flags import preferred_linalg_library as preferred_linalg_library
from engine.backends.cuda.flags import sdp_kernel as sdp_kernel
from engine.backends.cuda.runtime import device_count as device_count
from engine.core.device import device

_devices: dict[int, device] = {}


def device_at(index: int) -> device:
    """`cuda:index`, one object per device."""
    found = _devices.get(index)
    if found is None:
        found = _devices[index] = device("cuda", index)
    return found


class CudaBackend(Backend):
    """CuPy arrays; `device_of` names the GPU."""

    def __init__(self, cupy: Any) -> None:
        from engine.backends.cuda import runtime
        from engine.backends.cuda.array_module import ArrayModule

        super().__init__("cuda", ArrayModule(cupy, self), cupy.ndarray)
        self.cupy, self.runtime = cupy, runtime
        self._guarded: dict[Any, Any] = {}
        self._kernels: dict[Any, Any] = {}  # of ops, under the builder of kernels that there is
        self._generation, self._choose = _compiling.generation, None
        count = runtime.state.device_count
        self._modules = [ArrayModule(cupy, self, functools.partial(runtime.on_device, index)) for index in range(count)]
        self._one = count == 1

    def device_of(self, array: Any) -> device:
        return device_at(array.data.device_id)

    def from_host(self, array: np.ndarray, where: device, non_blocking: bool = False) -> Any:
        return self.runtime.to_device(np.asarray(array), where.index, non_blocking)

    def to_host(self, array: Any, non_blocking: bool = False) -> np.ndarray:
        return self.runtime.to_host(array, non_blocking)

    def to_host_array(self, array: Any, out: np.ndarray, non_blocking: bool = False) -> bool:
        alike = out.dtype == array.dtype and out.shape == array.shape and out.flags.c_contiguous and out.flags.writeable
        if alike and out.size:
            self.runtime.to_host_array(array, out, non_blocking)
        return alike

    def check_type(self, dtype: np.dtype) -> None:
        if dtype.kind == "W":
            raise RuntimeError("complex32 (ComplexHalf) is not available on CUDA: CuPy has no such type; use complex64")

    def xp_at(self, array: Any) -> Any:
        """The array module whose new arrays are on the GPU of `array`."""
        return self.xp if self._one else self._modules[array.data.device_id]

    def current(self) -> device:
        return device_at(int(self.cupy.cuda.runtime.getDevice()))

    def between(self, array: Any, where: device) -> Any:
        return self.runtime.between(array, where.index)

    def inside(self, where: device) -> Any:
        return self.runtime.on_device(where.index)

    def is_pinned(self, array: Any) -> bool:
        return self.runtime.is_pinned(array)

    def pointer(self, array: Any) -> int:
        return array.data.ptr

    def synchronize(self) -> None:
        """Wait for the current GPU."""
        self.cupy.cuda.Device().synchronize()

    def mark(self) -> Any:
        """A CUDA event after the current stream's work of now; None while a graph is captured."""
        if self.runtime.capturing():
            return None
        made = self.cupy.cuda.Event()
        made.record()
        return int(self.cupy.cuda.runtime.getDevice()), made

    def between_marks(self, begin: Any, end: Any) -> tuple[int, float]:
        """(device, microseconds) between two marks, which have been reached when this returns."""
        end[1].synchronize()
        return begin[0], 1e3 * float(self.cupy.cuda.get_elapsed_time(begin[1], end[1]))

    def kernel(self, function: Any) -> Any:
        """A kernel of an op with what a call on a GPU needs round it: the device of its operands, one for all."""
        if self._one:
            return function
        found = self._guarded.get(function)
        if found is None:
            found = self._guarded[function] = self.runtime.on_operands_device(function)
        return found

    def kernel_of(self, record: Any) -> Any:
        choose = record.__class__.choose  # another one while a profile is on
        if self._generation != _compiling.generation or choose is not self._choose:
            self._kernels, self._generation, self._choose = {}, _compiling.generation, choose
        found = self._kernels.get(record)
        if found is None:
            found = self._kernels[record] = self.kernel(record.choose("cuda"))
        return found


def load() -> CudaBackend:
    """The CUDA backend.  Raises RuntimeError in one sentence when CuPy, a driver or a GPU is missing."""
    from engine.backends.cuda import runtime

    return CudaBackend(runtime.library())
