"""torch.autograd.variable's names."""

from engine.autograd.api import Variable

__all__ = ["Variable"]
