"""torch._dynamo.eval_frame's names."""

from engine._dynamo import disable, optimize

__all__ = ["OptimizedModule", "disable", "optimize"]


class OptimizedModule:
    """What torch.compile makes of modules; nothing is one here."""
