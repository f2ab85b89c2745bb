"""torch.ao.quantization's names: the stubs pass values through, quantizing raises."""

from __future__ import annotations

from typing import Any

from engine.nn.modules.module import Module
from engine.tensor import Tensor
from engine.torch_names import refused

__all__ = [
    "DeQuantStub", "FakeQuantizeBase", "ObserverBase", "QuantStub", "QuantWrapper", "convert", "fuse_modules",
    "fuse_modules_qat", "get_default_qat_qconfig", "get_default_qconfig", "prepare", "prepare_qat", "quantize_dynamic",
]  # fmt: skip


class QuantStub(Module):
    """The identity: (*a) -> (*a)."""

    def __init__(self, qconfig: Any = None) -> None:
        super().__init__()
        if qconfig:
            self.qconfig = qconfig

    def forward(self, x: Tensor) -> Tensor:
        """`x`."""
        return x


class DeQuantStub(QuantStub):
    """The identity: (*a) -> (*a)."""


class QuantWrapper(Module):
    """The module between two identities."""

    def __init__(self, module: Module) -> None:
        super().__init__()
        self.quant, self.dequant, self.module = QuantStub(), DeQuantStub(), module

    def forward(self, X: Tensor) -> Tensor:
        """`module(X)`."""
        return self.dequant(self.module(self.quant(X)))


class ObserverBase(Module):
    """What watches values to quantize them; nothing here is watched."""

    def __init__(self, dtype: Any = None, is_dynamic: bool = False) -> None:
        super().__init__()
        self.dtype, self.is_dynamic = dtype, is_dynamic


class FakeQuantizeBase(Module):
    """What rounds values as quantization would; nothing here does."""


def _refuse(name: str) -> Any:
    def function(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"torch.ao.quantization.{name} is not supported: tensors are not quantized")

    function.__name__ = function.__qualname__ = name
    function.__doc__ = "NotImplementedError."
    return function


convert, prepare, prepare_qat = map(_refuse, ["convert", "prepare", "prepare_qat"])
fuse_modules, fuse_modules_qat = map(_refuse, ["fuse_modules", "fuse_modules_qat"])
quantize_dynamic = _refuse("quantize_dynamic")
get_default_qconfig, get_default_qat_qconfig = map(_refuse, ["get_default_qconfig", "get_default_qat_qconfig"])
quantize = _refuse("quantize")
default_qconfig = None


# modules that quantize; each raises NotImplementedError when it is made
_CLASSES = """
ObserverBase FakeQuantizeBase FakeQuantize HistogramObserver MinMaxObserver MovingAverageMinMaxObserver
MovingAveragePerChannelMinMaxObserver NoopObserver PerChannelMinMaxObserver PlaceholderObserver
"""
globals().update(
    {name: refused.kind("ao.quantization", name, "tensors are not quantized", Module) for name in _CLASSES.split()}
)
_MORE = """
QConfig QConfigMapping QuantType get_default_qconfig_mapping get_default_qat_qconfig_mapping get_observer_state_dict
propagate_qconfig_ quantize_qat swap_module disable_observer enable_observer disable_fake_quant enable_fake_quant
default_dynamic_qconfig float16_dynamic_qconfig per_channel_dynamic_qconfig default_observer default_weight_observer
"""
globals().update(refused.names("ao.quantization", _MORE, "tensors are not quantized"))
