"""torch.signal's name: `windows`."""

from engine.signal import windows

__all__ = ["windows"]
