"""CUDA through CuPy: the only place that imports cupy, inside functions.

`load()` gives the backend or one sentence that says why there is none.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.backends import Backend
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
from engine.device import device


class CudaBackend(Backend):
    """CuPy arrays; `device_of` names the GPU."""

    def __init__(self, cupy: Any) -> None:
        super().__init__("cuda", cupy, cupy.ndarray)
        self.cupy = cupy

    def device_of(self, array: Any) -> device:
        return device("cuda", array.device.id)

    def from_host(self, array: np.ndarray, where: device) -> Any:
        index = self.cupy.cuda.Device().id if where.index is None else where.index
        with self.cupy.cuda.Device(index):
            return self.cupy.asarray(array)

    def to_host(self, array: Any) -> np.ndarray:
        return self.cupy.asnumpy(array)

    def pointer(self, array: Any) -> int:
        return array.data.ptr


def device_count() -> int:
    """The number of usable GPUs; 0 without CuPy, a driver or a card."""
    try:
        import cupy

        return int(cupy.cuda.runtime.getDeviceCount())
    except Exception:  # cupy absent, no driver, no device: each has its own class, all mean none
        return 0


def load() -> CudaBackend:
    """The CUDA backend.  Raises RuntimeError in one sentence when CuPy or a GPU is missing."""
    try:
        import cupy
    except ImportError:
        raise RuntimeError(
            "device 'cuda' needs CuPy, which is not installed: pip install 'hubcli[cuda13]' (or cuda12), or use "
            "device='cpu'"
        ) from None
    if device_count() == 0:
        raise RuntimeError(
            "device 'cuda' is not available: CuPy is installed but finds no NVIDIA GPU or driver; use device='cpu'"
        )
    return CudaBackend(cupy)
