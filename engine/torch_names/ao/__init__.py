"""torch.ao: quantization."""

from engine.torch_names.ao import nn, quantization

__all__ = ["nn", "quantization"]
