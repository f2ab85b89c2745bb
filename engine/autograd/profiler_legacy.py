"""torch.autograd.profiler_legacy's name, and the old switches of the profiler."""

from __future__ import annotations

from engine.autograd import profiler
from engine.autograd.profiler import profile

__all__ = ["profile"]


def _profiler_enabled() -> bool:
    """Return whether a profile is being taken."""
    return bool(profiler._active)


def _disable_profiler() -> None:
    """Nothing: a profile ends with its block."""
