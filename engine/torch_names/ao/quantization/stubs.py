"""torch.ao.quantization.stubs."""

from engine.nn.quantized.preparing import (
    DeQuantStub,
    QuantStub,
    QuantWrapper,
)

__all__ = [
    "DeQuantStub",
    "QuantStub",
    "QuantWrapper",
]
