"""torch._dynamo.eval_frame's names."""

from engine.torch_names._dynamo import disable, optimize

__all__ = ["OptimizedModule", "disable", "optimize"]


class OptimizedModule:
    """What torch.compile makes of modules; nothing is one here."""
