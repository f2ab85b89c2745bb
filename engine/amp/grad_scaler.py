"""torch.amp.grad_scaler's names."""

from engine.amp import GradScaler

__all__ = ["GradScaler"]
