"""torch._tensor's name."""

from engine.tensor import Tensor

__all__ = ["Tensor"]
