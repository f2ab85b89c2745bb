"""torch.backends.cuda's names: settings of products and of attention; the others can be set and are without effect."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from engine.backends.cuda import runtime

__all__ = [
    "can_use_efficient_attention",
    "can_use_flash_attention",
    "cudnn_sdp_enabled",
    "cufft_plan_cache",
    "enable_cudnn_sdp",
    "enable_flash_sdp",
    "enable_math_sdp",
    "enable_mem_efficient_sdp",
    "flash_sdp_enabled",
    "is_built",
    "math_sdp_enabled",
    "matmul",
    "mem_efficient_sdp_enabled",
    "preferred_linalg_library",
    "sdp_kernel",
]


class _Matmul:
    """`torch.backends.cuda.matmul`: the settings of products."""

    allow_tf32 = False
    allow_fp16_reduced_precision_reduction = True
    allow_bf16_reduced_precision_reduction = True
    allow_fp16_accumulation = False
    fp32_precision = "none"

    def tf32(self) -> bool:
        """Return whether products of float32 may round their operands to 10 bits (`set_float32_matmul_precision`,
        too).
        """
        return self.allow_tf32 or self.fp32_precision == "tf32"


class _PlanCache:
    """`torch.backends.cuda.cufft_plan_cache`."""

    size = 0
    max_size = 0

    def clear(self) -> None:
        """Nothing."""


matmul, cufft_plan_cache = _Matmul(), _PlanCache()


def is_built() -> bool:
    """Return whether a GPU can be used: there is no build with or without CUDA here."""
    return runtime.device_count() > 0


def math_sdp_enabled() -> bool:
    """True: the one kernel of attention."""
    return True


def flash_sdp_enabled() -> bool:
    """False."""
    return False


mem_efficient_sdp_enabled = flash_sdp_enabled
_cudnn_sdp = [True]


def cudnn_sdp_enabled() -> bool:
    """Return whether attention may go to cuDNN; True unless `enable_cudnn_sdp(False)` was called."""
    return _cudnn_sdp[0]


def enable_cudnn_sdp(enabled: bool) -> None:
    """Let attention of 16-bit types go to cuDNN, or not: then products and softmax compute it."""
    _cudnn_sdp[0] = bool(enabled)


def enable_math_sdp(enabled: bool) -> None:
    """Without effect."""


enable_flash_sdp = enable_mem_efficient_sdp = enable_math_sdp


def can_use_flash_attention(params: Any, debug: bool = False) -> bool:
    """False."""
    return False


can_use_efficient_attention = can_use_flash_attention


def preferred_linalg_library(backend: Any = None) -> None:
    """Without effect."""


@contextlib.contextmanager
def sdp_kernel(*args: Any, **kwargs: Any) -> Iterator[None]:
    """A context without effect: there is one kernel."""
    yield
