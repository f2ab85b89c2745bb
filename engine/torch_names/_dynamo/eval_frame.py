"""torch._dynamo.eval_frame's names."""

from engine.programs.inference import OptimizedModule
from engine.torch_names._dynamo import disable, optimize

__all__ = ["OptimizedModule", "disable", "is_dynamo_supported", "optimize"]


def is_dynamo_supported() -> bool:
    """False: Python code is not compiled."""
    return False
