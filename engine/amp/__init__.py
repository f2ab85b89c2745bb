"""Automatic mixed precision: `autocast` computes products in 16 bits, `GradScaler` keeps float16 gradients alive."""

from engine.amp.autocast_mode import autocast, custom_bwd, custom_fwd, deprecated, is_autocast_available  # noqa: F401
from engine.amp.grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]
