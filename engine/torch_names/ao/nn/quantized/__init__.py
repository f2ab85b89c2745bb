"""torch.ao.nn.quantized: modules of quantized tensors, and FloatFunctional."""

from engine.nn.quantized import FloatFunctional
from engine.nn.quantized.arithmetic import Hardswish, LeakyReLU, QFunctional, ReLU6, Sigmoid
from engine.nn.quantized.static import BatchNorm2d, BatchNorm3d, Conv1d, Conv2d, Conv3d, DeQuantize, Linear, Quantize
from engine.torch_names import refused

__all__ = [
    "BatchNorm2d",
    "BatchNorm3d",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "DeQuantize",
    "FloatFunctional",
    "Hardswish",
    "LeakyReLU",
    "Linear",
    "QFunctional",
    "Quantize",
    "ReLU6",
    "Sigmoid",
]

_REST = """
ConvTranspose1d ConvTranspose2d ConvTranspose3d Dropout ELU Embedding EmbeddingBag FXFloatFunctional GroupNorm
InstanceNorm1d InstanceNorm2d InstanceNorm3d LSTM LayerNorm MaxPool2d MultiheadAttention PReLU Softmax
"""
globals().update(refused.names("ao.nn.quantized", _REST, "use the float module between DeQuantStub and QuantStub"))
