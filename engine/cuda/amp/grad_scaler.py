"""torch.cuda.amp.grad_scaler's name."""

from engine.cuda.amp import GradScaler

__all__ = ["GradScaler"]
