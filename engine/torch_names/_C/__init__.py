"""The few names of torch's compiled core that Python code reaches for."""

from __future__ import annotations

import importlib as _importlib
from types import SimpleNamespace as _SimpleNamespace
from typing import Any

from engine.core.device import device
from engine.core.dtypes import dtype
from engine.core.grad_mode import is_grad_enabled, mode
from engine.core.layouts import layout, memory_format
from engine.dispatch import overriding
from engine.ops.creation import get_default_device as _get_default
from engine.random import Generator, default_generator
from engine.tensor import Size, _TensorMeta  # noqa: F401
from engine.tensor import Tensor as TensorBase
from engine.torch_names._C import _switches
from engine.torch_names.facade import facade

__all__ = [
    "Generator",
    "Size",
    "TensorBase",
    "default_generator",
    "device",
    "dtype",
    "is_grad_enabled",
    "layout",
    "memory_format",
]

_TensorBase = TensorBase
_has_distributed = _has_cuda = has_cuda = has_mkl = has_openmp = has_mkldnn = _has_mps = False
_disabled_torch_function_impl = overriding.disabled
DisableTorchFunctionSubclass = overriding.Without


class DisableTorchFunction(overriding.Without):
    """A context in which neither classes nor modes handle calls."""

    def __init__(self) -> None:
        super().__init__(modes=True)


def _set_grad_enabled(enabled: bool) -> None:
    """Set the grad mode of this thread."""
    mode.enabled = bool(enabled)


def _log_api_usage_once(event: str) -> None:
    """Nothing."""


def _get_tracing_state() -> None:
    """None: nothing is traced."""


def _are_functorch_transforms_active() -> bool:
    """False: there are no transforms of functions."""
    return False


def _get_privateuse1_backend_name() -> str:
    """`privateuseone`: no other backend was named."""
    return "privateuseone"


_jit_can_fuse_on_cpu = _jit_can_fuse_on_gpu = _jit_can_fuse_on_cpu_legacy = lambda: False
_GLIBCXX_USE_CXX11_ABI = True


_DISPATCH = frozenset(
    [
        "DispatchKey",
        "DispatchKeySet",
        "_AutoDispatchBelowADInplaceOrView",
        "_AutoDispatchBelowAutograd",
        "_ExcludeDispatchKeyGuard",
        "_IncludeDispatchKeyGuard",
        "_dispatch_get_all_op_names",
        "_dispatch_has_kernel",
        "_dispatch_has_kernel_for_dispatch_key",
        "_dispatch_key_for_device",
        "_dispatch_keys",
        "_dispatch_tls_is_dispatch_key_excluded",
    ]
)


def _get_accelerator(check: Any = None) -> Any:
    """The kind of device beside the CPU: CUDA where there is one, else the CPU."""
    from engine import cuda

    return device("cuda" if cuda.is_available() else "cpu")


def _get_default_device() -> str:
    """The device on which factories make tensors."""
    return str(_get_default())


def _set_math_sdp_allow_fp16_bf16_reduction(enabled: bool) -> None:
    """Nothing: sums of products are accumulated in float32."""


# classes of compiled programs
_JIT = frozenset(
    ["Graph", "Node", "Value", "Block", "ScriptFunction", "ScriptMethod", "ScriptModule", "ScriptObject", "Future"]
)


class _Compiled:
    """The functions of a module under the names that they have in torch's core: `_linalg.linalg_norm`."""

    def __init__(self, module: str, prefix: str) -> None:
        self._module, self._prefix = _importlib.import_module(module), prefix

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, "logsigmoid" if name == "log_sigmoid" else name.removeprefix(self._prefix))


def __getattr__(name: str) -> Any:
    if name == "_nn":
        return _importlib.import_module("engine.torch_names._C._nn")
    if name == "_functions":  # of all the classes of nodes the one that code compares with
        return _SimpleNamespace(AccumulateGrad=_importlib.import_module("engine.autograd.graph").AccumulateGrad)
    if name == "_infer_size":
        return lambda one, other: Size(_importlib.import_module("engine.core.checks").broadcast_shapes(one, other))
    if name == "_VariableFunctions":
        return facade()
    if name in ("_fft", "_linalg", "_special"):
        return _Compiled(f"engine.{name[1:]}", f"{name[1:]}_")
    if name[:1].isupper() or name in _DISPATCH:
        if name in _importlib.import_module("engine.torch_names._C.types").TYPES:
            return getattr(_importlib.import_module("engine.torch_names._C.types"), name)
        if name in ("FunctionSchema", "Argument"):
            return getattr(_importlib.import_module("engine.library.schema"), name)
    if name == "_LinAlgError":
        return _importlib.import_module("engine.ops.linalg.systems").LinAlgError
    if name == "parse_schema":
        return _importlib.import_module("engine.library.schema").parse_schema
    if name == "_is_tracing":
        return _importlib.import_module("engine.jit").is_tracing
    if name in _switches.NAMES:
        return _switches.function(name)
    if name == "FileCheck":
        return _importlib.import_module("engine.jit.archive.file_check").FileCheck
    if name == "Use":
        return _importlib.import_module("engine.jit.archive.listing").Use
    if name in _JIT:
        return getattr(_importlib.import_module("engine.jit"), name)
    if name == "PyTorchFileReader":
        return _importlib.import_module("engine.serialization.file_reader").PyTorchFileReader
    if name in _DISPATCH:
        return getattr(_importlib.import_module("engine.torch_names._C.dispatch"), name)
    raise AttributeError(f"module 'torch._C' has no attribute '{name}': the engine has no such compiled core")
