"""Neural networks: Module and its kinds, functional, init, utils, under torch.nn's names."""

import importlib as _importlib

from engine.nn import functional, init, modules
from engine.nn.modules import __all__ as _all
from engine.nn.modules.module import (  # noqa: F401
    register_module_backward_hook,
    register_module_buffer_registration_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from engine.nn.parameter import (
    Buffer,
    Parameter,
    UninitializedBuffer,
    UninitializedParameter,
)

globals().update({_name: getattr(modules, _name) for _name in _all})

__all__ = [
    *_all,
    "Buffer",
    "Parameter",
    "UninitializedBuffer",
    "UninitializedParameter",
    "functional",
    "init",
]

_LAZY = frozenset(["attention", "backends", "common_types", "grad", "parallel", "quantized", "utils"])


def __getattr__(name: str) -> object:
    if name in _LAZY:
        return _importlib.import_module(f"engine.nn.{name}")
    if name == "DataParallel":
        return _importlib.import_module("engine.nn.parallel").DataParallel
    raise AttributeError(f"module 'torch.nn' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, "DataParallel"})
