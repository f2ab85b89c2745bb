"""torch.signal's name: `windows`."""

from engine.torch_names.signal import windows

__all__ = ["windows"]
