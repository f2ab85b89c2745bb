"""torch.ao.nn.intrinsic.quantized."""

from engine.nn.quantized.static import (
    BNReLU2d,
    BNReLU3d,
    ConvReLU1d,
    ConvReLU2d,
    ConvReLU3d,
    LinearReLU,
)

__all__ = [
    "BNReLU2d",
    "BNReLU3d",
    "ConvReLU1d",
    "ConvReLU2d",
    "ConvReLU3d",
    "LinearReLU",
]
