"""torch.cuda.amp.autocast_mode's names."""

from engine.cuda.amp import autocast, custom_bwd, custom_fwd

__all__ = ["autocast", "custom_bwd", "custom_fwd"]
