"""torch.cuda.amp's names: those of `engine.amp` for CUDA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine import amp
from engine.core import dtypes

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]


class autocast(amp.autocast):
    """`amp.autocast("cuda")`."""

    @amp.deprecated("autocast", "cuda")
    def __init__(self, enabled: bool = True, dtype: Any = dtypes.float16, cache_enabled: bool = True) -> None:
        super().__init__("cuda", dtype, enabled, cache_enabled)


class GradScaler(amp.GradScaler):
    """`amp.GradScaler("cuda")`."""

    @amp.deprecated("GradScaler", "cuda")
    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        super().__init__("cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled)


@amp.deprecated("custom_fwd", "cuda")
def custom_fwd(fwd: Callable | None = None, *, cast_inputs: Any = None) -> Any:
    """`amp.custom_fwd(device_type="cuda")`."""
    return amp.custom_fwd(fwd, device_type="cuda", cast_inputs=cast_inputs)


@amp.deprecated("custom_bwd", "cuda")
def custom_bwd(bwd: Callable | None = None) -> Any:
    """`amp.custom_bwd(device_type="cuda")`."""
    return amp.custom_bwd(bwd, device_type="cuda")
