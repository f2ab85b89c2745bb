"""Quantization after training, in three steps: fuse, prepare (observers watch calibration data), convert.

https://docs.pytorch.org/docs/2.13/quantization.html#post-training-static-quantization
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from engine import nn
from engine.nn import intrinsic
from engine.nn.modules.module import Module
from engine.nn.quantized import FloatFunctional, arithmetic, static
from engine.tensor import Tensor

__all__ = [
    "DeQuantStub",
    "QuantStub",
    "QuantWrapper",
    "add_quant_dequant",
    "convert",
    "fuse_modules",
    "get_default_static_quant_module_mappings",
    "prepare",
    "propagate_qconfig_",
    "quantize",
    "swap_module",
]


class QuantStub(Module):
    """The point where floats become quantized: the identity (*) -> (*) until `convert`."""

    def __init__(self, qconfig: Any = None) -> None:
        super().__init__()
        if qconfig:
            self.qconfig = qconfig

    def forward(self, x: Tensor) -> Tensor:
        """`x`."""
        return x


class DeQuantStub(QuantStub):
    """The point where quantized tensors become floats: the identity (*) -> (*) until `convert`."""


class QuantWrapper(Module):
    """The module between the two stubs."""

    def __init__(self, module: Module) -> None:
        super().__init__()
        qconfig = getattr(module, "qconfig", None)
        self.quant, self.dequant, self.module = QuantStub(qconfig), DeQuantStub(qconfig), module
        self.train(module.training)

    def forward(self, X: Tensor) -> Tensor:
        """`module(X)`."""
        return self.dequant(self.module(self.quant(X)))


_STATIC: dict[type, type] = {
    QuantStub: static.Quantize,
    DeQuantStub: static.DeQuantize,
    FloatFunctional: arithmetic.QFunctional,
    nn.Linear: static.Linear,
    nn.Conv1d: static.Conv1d,
    nn.Conv2d: static.Conv2d,
    nn.Conv3d: static.Conv3d,
    nn.BatchNorm2d: static.BatchNorm2d,
    nn.BatchNorm3d: static.BatchNorm3d,
    nn.ReLU6: arithmetic.ReLU6,
    nn.Hardswish: arithmetic.Hardswish,
    nn.LeakyReLU: arithmetic.LeakyReLU,
    intrinsic.LinearReLU: static.LinearReLU,
    intrinsic.ConvReLU1d: static.ConvReLU1d,
    intrinsic.ConvReLU2d: static.ConvReLU2d,
    intrinsic.ConvReLU3d: static.ConvReLU3d,
    intrinsic.BNReLU2d: static.BNReLU2d,
    intrinsic.BNReLU3d: static.BNReLU3d,
}
# what torch quantizes and the engine does not: with a qconfig these raise, instead of staying floats unnoticed
_REFUSED = (
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
    nn.ELU,
    nn.Embedding,
    nn.EmbeddingBag,
    nn.GroupNorm,
    nn.InstanceNorm1d,
    nn.InstanceNorm2d,
    nn.InstanceNorm3d,
    nn.LayerNorm,
    nn.PReLU,
    nn.LSTM,
    nn.MultiheadAttention,
)


def get_default_static_quant_module_mappings() -> dict[type, type]:
    """The quantized class of each class of modules that `convert` replaces."""
    return dict(_STATIC)


def propagate_qconfig_(module: Module, qconfig_dict: Any = None, prepare_custom_config_dict: Any = None) -> None:
    """Give every module of `module` the `qconfig` that it has itself, that `qconfig_dict` has for its name or class, or
    that the module around it has."""
    _propagate(module, dict(qconfig_dict or {}), None, "")


def _propagate(module: Module, configs: dict[Any, Any], above: Any, prefix: str) -> None:
    config = configs.get(type(module), configs.get(prefix, above))
    module.qconfig = getattr(module, "qconfig", config)
    for name, child in module.named_children():
        _propagate(child, configs, module.qconfig, f"{prefix}.{name}" if prefix else name)


def prepare(
    model: Module,
    inplace: bool = False,
    allow_list: Any = None,
    observer_non_leaf_module_list: Any = None,
    prepare_custom_config_dict: Any = None,
) -> Module:
    """A copy of `model` (itself if `inplace`) whose modules observe their results, by their `qconfig`.

    Run calibration data through it, then `convert` it.  allow_list: the classes that are observed, instead of those
    that `convert` replaces.  NotImplementedError for a module with a qconfig that torch would quantize and the engine
    cannot; set its `qconfig = None` to leave it as it is.
    https://docs.pytorch.org/docs/2.13/generated/torch.ao.quantization.prepare.html
    """
    model = model if inplace else copy.deepcopy(model)
    _propagate(model, {}, None, "")
    allowed = tuple(_STATIC) if allow_list is None else tuple(allow_list)
    more = tuple(observer_non_leaf_module_list or ())
    for name, module in [*model.named_modules()]:
        if isinstance(module, _REFUSED) and module.qconfig is not None:
            kind = type(module).__name__
            raise NotImplementedError(
                f"{name or 'the model'}: static quantization of {kind} is not supported: set its qconfig = None"
            )
    _observe(model, allowed, more)
    return model


def _observe(module: Module, allowed: tuple[type, ...], more: tuple[type, ...]) -> None:
    for child in module.children():
        kind = type(child)
        if isinstance(child, FloatFunctional):
            if child.qconfig is not None:
                child.activation_post_process = child.qconfig.activation()
        elif kind is DeQuantStub:
            continue
        elif isinstance(child, intrinsic._FusedModule):
            if child.qconfig is not None and kind in allowed:
                _insert(child, child.qconfig.activation())
        else:
            _observe(child, allowed, more)
            chosen = kind in more or (kind in allowed and not [*child.children()])
            if chosen and child.qconfig is not None:
                _insert(child, child.qconfig.activation())


class _Observing:
    """The forward hook of an observed module."""

    def __call__(self, module: Any, args: Any, output: Any) -> Any:
        return module.activation_post_process(output)


def _insert(module: Module, observer: Module) -> None:
    if not hasattr(module, "activation_post_process"):
        module.add_module("activation_post_process", observer)
        module.register_forward_hook(_Observing(), prepend=True)


def convert(
    module: Module,
    mapping: dict[type, type] | None = None,
    inplace: bool = False,
    remove_qconfig: bool = True,
    is_reference: bool = False,
    convert_custom_config_dict: Any = None,
    use_precomputed_fake_quant: bool = False,
) -> Module:
    """A copy of a prepared module (itself if `inplace`) whose modules are replaced by quantized ones, by `from_float`.

    mapping: float class -> quantized class.  Modules without a `qconfig` stay.  ValueError where a module was not
    observed, NotImplementedError for reference modules.
    https://docs.pytorch.org/docs/2.13/generated/torch.ao.quantization.convert.html
    """
    if is_reference:
        raise NotImplementedError("torch.ao.quantization.convert(is_reference=True) is not supported")
    module = module if inplace else copy.deepcopy(module)
    _convert(module, _STATIC if mapping is None else mapping)
    if remove_qconfig:
        for each in [*module.modules()]:
            each.__dict__.pop("qconfig", None)
            if not isinstance(each, arithmetic.QFunctional):
                each._modules.pop("activation_post_process", None)
            _forget_observing(each)
    return module


def _convert(module: Module, mapping: dict[type, type]) -> None:
    for name, child in [*module.named_children()]:
        if not isinstance(child, intrinsic._FusedModule) and type(child) not in mapping:
            _convert(child, mapping)
        module._modules[name] = swap_module(child, mapping)


def swap_module(mod: Module, mapping: dict[type, type], *more: Any) -> Module:
    """The quantized module of `mod` with its hooks, if it has a `qconfig` and `mapping` has its class; else `mod`."""
    kind = mapping.get(type(mod))
    if kind is None or getattr(mod, "qconfig", None) is None:
        return mod
    if kind is not static.DeQuantize and not hasattr(mod, "activation_post_process"):
        raise ValueError(f"{type(mod).__name__} was not observed: call prepare(model) before convert(model)")
    made: Module = kind.from_float(mod)  # type: ignore[attr-defined]
    _forget_observing(mod)
    for hook in mod._forward_pre_hooks.values():
        made.register_forward_pre_hook(hook)
    for after in mod._forward_hooks.values():
        made.register_forward_hook(after)
    made.train(mod.training)
    return made


def _forget_observing(module: Module) -> None:
    for key, hook in [*module._forward_hooks.items()]:
        if isinstance(hook, _Observing):
            del module._forward_hooks[key]


def quantize(
    model: Module, run_fn: Callable[..., Any], run_args: Sequence[Any], mapping: Any = None, inplace: bool = False
) -> Module:
    """`prepare`, `run_fn(model, *run_args)` with the calibration data, `convert`."""
    model = model if inplace else copy.deepcopy(model)
    model.eval()
    prepare(model, inplace=True)
    run_fn(model, *run_args)
    convert(model, mapping, inplace=True)
    return model


def add_quant_dequant(module: Module) -> Module:
    """`module` with a QuantWrapper around each of its leaves that has a `qconfig`."""
    if not [*module.children()] and getattr(module, "qconfig", None):
        return QuantWrapper(module)
    for name, child in [*module.named_children()]:
        module._modules[name] = add_quant_dequant(child)
    return module


# --- fusion

_CONVOLUTIONS = {nn.Conv1d: nn.BatchNorm1d, nn.Conv2d: nn.BatchNorm2d, nn.Conv3d: nn.BatchNorm3d}
_WITH_RELU: dict[type, Any] = {
    nn.Conv1d: intrinsic.ConvReLU1d,
    nn.Conv2d: intrinsic.ConvReLU2d,
    nn.Conv3d: intrinsic.ConvReLU3d,
    nn.Linear: intrinsic.LinearReLU,
    nn.BatchNorm2d: intrinsic.BNReLU2d,
    nn.BatchNorm3d: intrinsic.BNReLU3d,
}


def fuse_modules(
    model: Module,
    modules_to_fuse: Any,
    inplace: bool = False,
    fuser_func: Any = None,
    fuse_custom_config_dict: Any = None,
) -> Module:
    """A copy of `model` (itself if `inplace`) whose modules of these names are fused.

    The first of them becomes the fused module, the others become identities.

    modules_to_fuse: a list of names, or of lists of names: convolution and batch norm (folded into its weight), either
    or Linear and ReLU, Linear and BatchNorm1d.  The model is in eval mode: AssertionError else, and for other kinds.
    https://docs.pytorch.org/docs/2.13/generated/torch.ao.quantization.fuse_modules.fuse_modules.html
    """
    model = model if inplace else copy.deepcopy(model)
    groups = [modules_to_fuse] if all(isinstance(name, str) for name in modules_to_fuse) else modules_to_fuse
    for names in groups:
        modules = [model.get_submodule(name) for name in names]
        fused = (fuser_func or fuse_known_modules)(modules)
        for name, made in zip(names, fused):
            above, _, last = name.rpartition(".")
            setattr(model.get_submodule(above), last, made)
    return model


def fuse_known_modules(
    mod_list: Sequence[Module], is_qat: bool = False, additional_fuser_method_mapping: Any = None
) -> list[Module]:
    """The fused module of a list of modules, and identities for the others."""
    kinds = tuple(type(module) for module in mod_list)
    first, rest = mod_list[0], list(mod_list[1:])
    normed = kinds[1:2] == (_CONVOLUTIONS.get(kinds[0], nn.BatchNorm1d if kinds[0] is nn.Linear else None),)
    tail = kinds[2:] if normed else kinds[1:]
    known = (normed or tail) and tail in ((), (nn.ReLU,)) and (not tail or kinds[0] in _WITH_RELU)
    if not known or (normed and tail and kinds[0] is nn.Linear):
        raise AssertionError(f"did not find fuser method for: {kinds} ")
    if any(module.training for module in mod_list):
        raise AssertionError("Fusion only for eval!" if normed else "Fused modules must all be in eval mode")
    made = _folded(first, rest.pop(0)) if normed else first
    if tail:
        made = _WITH_RELU[kinds[0]](made, rest[0])
    for hook in first._forward_pre_hooks.values():
        made.register_forward_pre_hook(hook)
    for after in mod_list[-1]._forward_hooks.values():
        made.register_forward_hook(after)
    made.eval()
    others = [nn.Identity() for _ in mod_list[1:]]
    for other in others:
        other.eval()
    return [made, *others]


def _folded(module: Any, norm: Any) -> Module:
    """A convolution or Linear that computes what it and the batch norm behind it compute by its running statistics."""
    made = copy.deepcopy(module)
    made._forward_hooks.clear()
    made._forward_pre_hooks.clear()
    scale = (norm.running_var + norm.eps).rsqrt()
    if norm.weight is not None:
        scale = scale * norm.weight.detach()
    around = [-1] + [1] * (module.weight.dim() - 1)
    shift = -norm.running_mean if module.bias is None else module.bias.detach() - norm.running_mean
    bias = shift * scale if norm.bias is None else shift * scale + norm.bias.detach()
    made.weight = nn.Parameter(module.weight.detach() * scale.reshape(around), module.weight.requires_grad)
    made.bias = nn.Parameter(bias, module.weight.requires_grad)
    return made
