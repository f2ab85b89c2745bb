"""The few names of torch's compiled core that Python code reaches for."""

from __future__ import annotations

import importlib as _importlib
from typing import Any

from engine.device import device
from engine.dtypes import dtype
from engine.grad_mode import is_grad_enabled, mode
from engine.layouts import layout, memory_format
from engine.random import Generator, default_generator
from engine.tensor import Size
from engine.tensor import Tensor as TensorBase

__all__ = [
    "Generator", "Size", "TensorBase", "default_generator", "device", "dtype", "is_grad_enabled", "layout",
    "memory_format",
]  # fmt: skip

_TensorBase = TensorBase
_has_distributed = _has_cuda = has_cuda = has_mkl = has_openmp = has_mkldnn = _has_mps = False
DisableTorchFunctionSubclass = DisableTorchFunction = type(
    "DisableTorchFunction",
    (),
    {"__doc__": "A context without effect.", "__enter__": lambda self: self, "__exit__": lambda self, *exc: None},
)


def _set_grad_enabled(enabled: bool) -> None:
    """Set the grad mode of this thread."""
    mode.enabled = bool(enabled)


def _log_api_usage_once(event: str) -> None:
    """Nothing."""


def _get_tracing_state() -> None:
    """None: nothing is traced."""


def _disabled_torch_function_impl(func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    return func(*args, **(kwargs or {}))


def _jit_set_profiling_mode(value: bool) -> bool:
    """Nothing; what stood before."""
    return False


_jit_set_profiling_executor = _jit_override_can_fuse_on_cpu = _jit_override_can_fuse_on_gpu = _jit_set_profiling_mode
_jit_set_texpr_fuser_enabled = _jit_set_nvfuser_enabled = _jit_set_profiling_mode


class _Compiled:
    """The functions of a module under the names that they have in torch's core: `_linalg.linalg_norm`."""

    def __init__(self, module: str, prefix: str) -> None:
        self._module, self._prefix = _importlib.import_module(module), prefix

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, "logsigmoid" if name == "log_sigmoid" else name.removeprefix(self._prefix))


def __getattr__(name: str) -> Any:
    if name == "_nn":
        return _Compiled("engine.nn.functional", "")
    if name == "_VariableFunctions":
        return _importlib.import_module("engine")
    if name in ("_fft", "_linalg", "_special"):
        return _Compiled(f"engine.{name[1:]}", f"{name[1:]}_")
    raise AttributeError(f"module 'torch._C' has no attribute '{name}': the engine has no such compiled core")
