"""torch.ao.nn.quantized.dynamic.modules.linear."""

from engine.nn.quantized.dynamic import Linear

__all__ = ["Linear"]
