"""torch.ao.quantization.qconfig."""

from engine.nn.quantized.observers import (
    QConfig,
    default_dynamic_qconfig,
    default_per_channel_qconfig,
    default_qconfig,
    float16_dynamic_qconfig,
    get_default_qconfig,
    per_channel_dynamic_qconfig,
)

__all__ = [
    "QConfig",
    "default_dynamic_qconfig",
    "default_per_channel_qconfig",
    "default_qconfig",
    "float16_dynamic_qconfig",
    "get_default_qconfig",
    "per_channel_dynamic_qconfig",
]
