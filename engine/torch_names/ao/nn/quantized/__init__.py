"""torch.ao.nn.quantized: `dynamic` and FloatFunctional; modules whose results are quantized raise."""

from engine.nn.quantized import FloatFunctional
from engine.torch_names import refused

__all__ = ["FloatFunctional"]

globals().update(
    refused.names("ao.nn.quantized", "Conv1d Conv2d Conv3d Linear QFunctional", "only dynamic quantization is")
)
