"""Tools round modules: gradient clipping, packing of sequences, reparametrisation, parameter vectors."""

from typing import TYPE_CHECKING

from engine.core.packages import functions_first as _functions_first
from engine.nn.utils import parametrizations, parametrize, rnn, stateless
from engine.nn.utils.clip_grad import _clip_grads_with_norm_ as clip_grads_with_norm_
from engine.nn.utils.clip_grad import _get_total_norm as get_total_norm
from engine.nn.utils.clip_grad import clip_grad_norm, clip_grad_norm_, clip_grad_value_
from engine.nn.utils.convert_parameters import parameters_to_vector, vector_to_parameters
from engine.nn.utils.fusion import (
    fuse_conv_bn_eval,
    fuse_conv_bn_weights,
    fuse_linear_bn_eval,
    fuse_linear_bn_weights,
)
from engine.nn.utils.init import skip_init
from engine.nn.utils.memory_format import (
    convert_conv2d_weight_memory_format,
    convert_conv3d_weight_memory_format,
)
from engine.nn.utils.spectral_norm import remove_spectral_norm, spectral_norm
from engine.nn.utils.weight_norm import remove_weight_norm, weight_norm

_functions_first(__name__)

__all__ = [
    "clip_grad_norm",
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "convert_conv2d_weight_memory_format",
    "convert_conv3d_weight_memory_format",
    "fuse_conv_bn_eval",
    "fuse_conv_bn_weights",
    "fuse_linear_bn_eval",
    "fuse_linear_bn_weights",
    "get_total_norm",
    "parameters_to_vector",
    "parametrizations",
    "parametrize",
    "remove_spectral_norm",
    "remove_weight_norm",
    "rnn",
    "skip_init",
    "spectral_norm",
    "stateless",
    "vector_to_parameters",
    "weight_norm",
]

if TYPE_CHECKING:
    from engine.nn.utils import prune as prune
else:

    def __getattr__(name: str) -> object:
        if name == "prune":
            import importlib

            return importlib.import_module("engine.nn.utils.prune")
        raise AttributeError(f"module 'torch.nn.utils' has no attribute '{name}'")
