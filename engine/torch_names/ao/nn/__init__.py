"""torch.ao.nn: quantized and fused modules."""

from engine.torch_names.ao.nn import intrinsic, quantized

__all__ = ["intrinsic", "quantized"]
