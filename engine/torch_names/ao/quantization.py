"""torch.ao.quantization: `quantize_dynamic` and its observers; what quantizes results beforehand raises."""

from __future__ import annotations

import copy
from typing import Any

from engine import dtypes, nn
from engine.nn.modules.module import Module
from engine.nn.quantized.observers import (
    MinMaxObserver,
    ObserverBase,
    PerChannelMinMaxObserver,
    PlaceholderObserver,
    QConfig,
    default_dynamic_qconfig,
    default_dynamic_quant_observer,
    default_observer,
    default_per_channel_weight_observer,
    default_weight_observer,
    float16_dynamic_qconfig,
    per_channel_dynamic_qconfig,
)
from engine.tensor import Tensor
from engine.torch_names import refused

__all__ = [
    "DeQuantStub", "FakeQuantizeBase", "MinMaxObserver", "ObserverBase", "PerChannelMinMaxObserver",
    "PlaceholderObserver", "QConfig", "QuantStub", "QuantWrapper", "convert", "default_dynamic_qconfig",
    "default_dynamic_quant_observer", "default_observer", "default_per_channel_weight_observer",
    "default_weight_observer", "float16_dynamic_qconfig", "fuse_modules", "fuse_modules_qat", "get_default_qat_qconfig",
    "get_default_qconfig", "per_channel_dynamic_qconfig", "prepare", "prepare_qat", "quantize_dynamic",
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


class FakeQuantizeBase(Module):
    """What rounds values as quantization would; nothing here does."""


_WHY = "only dynamic quantization is, `quantize_dynamic`"


def _refuse(name: str) -> Any:
    def function(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"torch.ao.quantization.{name} is not supported: {_WHY}")

    function.__name__ = function.__qualname__ = name
    function.__doc__ = "NotImplementedError."
    return function


convert, prepare, prepare_qat = map(_refuse, ["convert", "prepare", "prepare_qat"])
fuse_modules, fuse_modules_qat = map(_refuse, ["fuse_modules", "fuse_modules_qat"])
get_default_qconfig, get_default_qat_qconfig = map(_refuse, ["get_default_qconfig", "get_default_qat_qconfig"])
quantize = _refuse("quantize")
default_qconfig = None


# modules that quantize; each raises NotImplementedError when it is made
_CLASSES = """
FakeQuantizeBase FakeQuantize HistogramObserver MovingAverageMinMaxObserver MovingAveragePerChannelMinMaxObserver
NoopObserver
"""
globals().update({name: refused.kind("ao.quantization", name, _WHY, Module) for name in _CLASSES.split()})
_MORE = """
QConfigMapping QuantType get_default_qconfig_mapping get_default_qat_qconfig_mapping get_observer_state_dict
propagate_qconfig_ quantize_qat swap_module disable_observer enable_observer disable_fake_quant enable_fake_quant
"""
globals().update(refused.names("ao.quantization", _MORE, _WHY))


def _dynamic() -> dict[type, type]:
    from engine.nn.quantized import dynamic

    return {
        nn.Linear: dynamic.Linear, nn.LSTM: dynamic.LSTM, nn.GRU: dynamic.GRU, nn.LSTMCell: dynamic.LSTMCell,
        nn.GRUCell: dynamic.GRUCell, nn.RNNCell: dynamic.RNNCell,
    }  # fmt: skip


def get_default_dynamic_quant_module_mappings() -> dict[type, type]:
    """The quantized class of each class of modules that `quantize_dynamic` replaces."""
    return _dynamic()


def quantize_dynamic(
    model: Module, qconfig_spec: Any = None, dtype: Any = dtypes.qint8, mapping: Any = None, inplace: bool = False
) -> Module:
    """`model`, in eval mode, whose Linear and recurrent modules have weights of 8 bits (float16: of 16).

    qconfig_spec: the classes or names of the modules that are replaced (all that can be), or a dict of them with a
    QConfig each.  mapping: float class -> quantized class.  The model itself is copied unless `inplace`, and not
    replaced if it is such a module.  ValueError for another dtype.
    https://docs.pytorch.org/docs/2.13/generated/torch.ao.quantization.quantize_dynamic.html
    """
    configs = {dtypes.qint8: default_dynamic_qconfig, dtypes.float16: float16_dynamic_qconfig}
    if dtype not in configs:
        raise ValueError(f"Don't know how to quantize with default settings for {dtype}. Provide full qconfig please")
    known = _dynamic() if mapping is None else mapping
    if qconfig_spec is None:
        chosen: dict[Any, Any] = dict.fromkeys(known, configs[dtype])
    elif isinstance(qconfig_spec, dict):
        chosen = qconfig_spec
    else:
        chosen = dict.fromkeys(qconfig_spec, configs[dtype])
    model = model if inplace else copy.deepcopy(model)
    model.eval()
    _swap(model, "", chosen, known, None)
    return model


def _swap(module: Module, prefix: str, chosen: dict[Any, Any], known: dict[type, type], inherited: Any) -> None:
    for name, child in module.named_children():
        path = f"{prefix}.{name}" if prefix else name
        config = chosen.get(path, chosen.get(type(child), inherited))
        if config is not None and type(child) in known:
            child.qconfig = config
            weight = config.weight()
            if weight.dtype is dtypes.float16:
                child._quantized_dtype = dtypes.float16
            setattr(module, name, known[type(child)].from_float(child))  # type: ignore[attr-defined]
        else:
            _swap(child, path, chosen, known, config if path in chosen else inherited)
