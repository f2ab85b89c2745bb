"""torch.ao.nn.quantized.modules.linear."""

from engine.nn.quantized.dynamic import LinearPackedParams

__all__ = ["LinearPackedParams"]
