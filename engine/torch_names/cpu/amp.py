"""torch.cpu.amp's names: those of `engine.amp` for the CPU."""

from __future__ import annotations

from typing import Any

from engine import amp
from engine.core import dtypes

__all__ = ["GradScaler", "autocast"]


class autocast(amp.autocast):
    """`amp.autocast("cpu")`."""

    @amp.deprecated("autocast", "cpu")
    def __init__(self, enabled: bool = True, dtype: Any = dtypes.bfloat16, cache_enabled: bool = True) -> None:
        super().__init__("cpu", dtype, enabled, cache_enabled)


class GradScaler(amp.GradScaler):
    """`amp.GradScaler("cpu")`."""

    @amp.deprecated("GradScaler", "cpu")
    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        super().__init__("cpu", init_scale, growth_factor, backoff_factor, growth_interval, enabled)
