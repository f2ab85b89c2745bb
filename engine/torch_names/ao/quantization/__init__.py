"""torch.ao.quantization: `quantize_dynamic`, and `prepare` and `convert` of static quantization after training.

Quantization in training (`prepare_qat`) and by graphs (`quantize_fx`) raise NotImplementedError.
"""

from __future__ import annotations

import copy
from typing import Any

from engine import nn
from engine.core import dtypes
from engine.nn.modules.module import Module
from engine.nn.quantized.observers import (
    FixedQParamsObserver,
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    NoopObserver,
    ObserverBase,
    PerChannelMinMaxObserver,
    PlaceholderObserver,
    QConfig,
    default_debug_observer,
    default_dynamic_qconfig,
    default_dynamic_quant_observer,
    default_histogram_observer,
    default_observer,
    default_per_channel_qconfig,
    default_per_channel_weight_observer,
    default_qconfig,
    default_weight_observer,
    float16_dynamic_qconfig,
    get_default_qconfig,
    per_channel_dynamic_qconfig,
)
from engine.nn.quantized.preparing import (
    DeQuantStub,
    QuantStub,
    QuantWrapper,
    add_quant_dequant,
    convert,
    fuse_modules,
    get_default_static_quant_module_mappings,
    prepare,
    propagate_qconfig_,
    quantize,
    swap_module,
)
from engine.torch_names import refused

__all__ = [
    "DeQuantStub", "FakeQuantizeBase", "FixedQParamsObserver", "HistogramObserver", "MinMaxObserver",
    "MovingAverageMinMaxObserver", "MovingAveragePerChannelMinMaxObserver", "NoopObserver", "ObserverBase",
    "PerChannelMinMaxObserver", "PlaceholderObserver", "QConfig", "QuantStub", "QuantWrapper", "add_quant_dequant",
    "convert", "default_debug_observer", "default_dynamic_qconfig", "default_dynamic_quant_observer",
    "default_histogram_observer", "default_observer", "default_per_channel_qconfig",
    "default_per_channel_weight_observer", "default_qconfig", "default_weight_observer", "float16_dynamic_qconfig",
    "fuse_modules", "fuse_modules_qat", "get_default_qat_qconfig", "get_default_qconfig",
    "get_default_static_quant_module_mappings", "per_channel_dynamic_qconfig", "prepare", "prepare_qat",
    "propagate_qconfig_", "quantize", "quantize_dynamic", "swap_module",
]  # fmt: skip


_WHY = "dynamic and static quantization after training are, `quantize_dynamic`, `prepare` and `convert`"


class FakeQuantizeBase(Module):
    """The base of modules that round values as quantization would; nothing here does."""


def _refuse(name: str) -> Any:
    def function(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"torch.ao.quantization.{name} is not supported: {_WHY}")

    function.__name__ = function.__qualname__ = name
    function.__doc__ = "NotImplementedError."
    return function


prepare_qat, fuse_modules_qat = _refuse("prepare_qat"), _refuse("fuse_modules_qat")
get_default_qat_qconfig = _refuse("get_default_qat_qconfig")


# modules that quantize during training; each raises NotImplementedError when it is made
globals().update({"FakeQuantize": refused.kind("ao.quantization", "FakeQuantize", _WHY, Module)})
_MORE = """
QConfigMapping QuantType get_default_qconfig_mapping get_default_qat_qconfig_mapping get_observer_state_dict
quantize_qat disable_observer enable_observer disable_fake_quant enable_fake_quant
"""
globals().update(refused.names("ao.quantization", _MORE, _WHY))


def _dynamic() -> dict[type, type]:
    from engine.nn.quantized import dynamic

    return {
        nn.Linear: dynamic.Linear,
        nn.LSTM: dynamic.LSTM,
        nn.GRU: dynamic.GRU,
        nn.LSTMCell: dynamic.LSTMCell,
        nn.GRUCell: dynamic.GRUCell,
        nn.RNNCell: dynamic.RNNCell,
    }


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
