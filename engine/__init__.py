"""A define-by-run autograd engine with PyTorch's names, on numpy (CPU) and CuPy (CUDA).

Every op of `engine/ops` is served here by name; sub-packages (`nn`, `optim`, ...) are imported at first use.
"""

import gc as _gc
import importlib as _importlib
import warnings as _warnings

_collecting = _gc.isenabled()
_gc.disable()  # thousands of functions are made below: collections find nothing and cost a tenth of the start

# Note [Floating point warnings] in binder.py
_warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"engine\.")

from engine import dispatch as _dispatch  # noqa: E402
from engine import dtypes as _dtypes  # noqa: E402
from engine import ops  # noqa: E402, F401
from engine import storage as _storage  # noqa: E402
from engine._tensor_str import set_printoptions  # noqa: E402, F401
from engine.autograd import api as _api  # noqa: E402, F401  # Tensor.backward
from engine.autograd import gradcheck as _gradcheck  # noqa: E402, F401  # the function, as in torch
from engine.autograd import graph as _graph  # noqa: E402
from engine.autograd.anomaly_mode import is_anomaly_check_nan_enabled, is_anomaly_enabled  # noqa: E402, F401
from engine.autograd.graph import Node as _Node  # noqa: E402, F401
from engine.device import device  # noqa: E402, F401
from engine.grad_mode import (  # noqa: E402, F401
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from engine.layouts import (  # noqa: E402, F401
    channels_last,
    channels_last_3d,
    contiguous_format,
    jagged,
    layout,
    memory_format,
    preserve_format,
    sparse_coo,
    sparse_csr,
    strided,
)
from engine.random import (  # noqa: E402, F401
    Generator,
    default_generator,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
)
from engine.storage import TypedStorage, UntypedStorage  # noqa: E402, F401
from engine.tensor import Size, Tensor, is_tensor  # noqa: E402, F401
from engine.torch_names import MODULES as _TORCH_NAMES  # noqa: E402
from engine.torch_names import _names  # noqa: E402
from engine.torch_names import home as _home  # noqa: E402
from engine.version import __version__  # noqa: E402, F401

_SUBPACKAGES = frozenset(
    [
        "__config__", "_custom_ops", "_library", "_ops", "_utils", "amp", "autograd", "backends", "classes",
        "compiler", "cuda", "distributed", "distributions", "export", "fft", "func", "fx", "jit", "library", "linalg",
        "masked", "multiprocessing", "nested", "nn", "onnx", "optim", "package", "profiler", "quasirandom", "random", "return_types", "serialization", "signal",  # noqa: E501
        "sparse", "special", "storage", "testing", "utils", "version",
        *_TORCH_NAMES,
    ]
)  # fmt: skip
_LAZY = {
    "save": "serialization", "load": "serialization", "sparse_coo_tensor": "sparse",
    "sparse_csr_tensor": "sparse.compressed",
    **dict.fromkeys(("dsmm", "hsmm", "hspmm", "saddmm", "smm", "spmm", "sspaddmm"), "sparse"),
    **dict.fromkeys(_names.OF_QUANTIZED.split(), "quantized"),
    "autocast": "amp", "memory_stats": "torch_names.cpu", "GradScaler": "amp", "Future": "jit",
    **dict.fromkeys(("ScriptFunction", "ScriptModule", "CompilationUnit", "ScriptObject"), "jit"),
    "PyTorchFileReader": "serialization.file_reader",
    **dict.fromkeys([*_names.TOP_LEVEL.split(), *_names.FOREACH], "torch_names._top_level"),
    "TensorType": "torch_names._C",
    **{f"{_name}Storage": "typed_storage" for _name in _names.STORAGES.split()},
}  # fmt: skip


def __getattr__(name: str) -> object:
    """Sub-packages, the names of `_LAZY` and of the lazy families, imported at first use."""
    import sys

    if name in _SUBPACKAGES:
        return _importlib.import_module(_home(f"torch.{name}"))
    if name in _LAZY:
        value = getattr(_importlib.import_module(f"engine.{_LAZY[name]}"), name)
        globals()[name] = value
        return value
    if name == "Storage":  # the class of the default dtype's storages, which may change
        return _importlib.import_module("engine.typed_storage").kind_of(_dtypes.get_default_dtype())
    if name == "__all__":  # from torch import *
        return sorted(n for n in __dir__() if n[0] != "_" and n not in _SUBPACKAGES)
    if name[:2] != "__":
        _dispatch.import_lazy()
        if name in _dispatch.PUBLIC:
            value = _dispatch.PUBLIC[name]
            globals()[name] = value
            return value
    alias = sys.modules.get("engine.torch_alias")
    if alias is not None and alias.elsewhere(name):
        return _importlib.import_module(f"torch.{name}")
    raise AttributeError(f"module 'engine' has no attribute '{name}'")


def __dir__() -> list[str]:
    _dispatch.import_lazy()
    return sorted({*globals(), *_SUBPACKAGES, *_LAZY, *_dispatch.PUBLIC})


def _share(*args: object) -> None:
    from engine.multiprocessing import reductions

    reductions.share(*args)


def _storage_type(name: str) -> object:
    from engine import typed_storage

    return getattr(typed_storage, name, None)


def _saved_hooks(name: str) -> object:
    from engine.autograd import saved_hooks

    return getattr(saved_hooks, name)


def _sparse_rows(*args: object) -> object:
    from engine import sparse

    return sparse.rows(*args)  # type: ignore[arg-type]


def _sparse_sized(*args: object) -> object:
    from engine import sparse

    return sparse.sized(*args)  # type: ignore[arg-type]


def _compile(model: object, *args: object, **kwargs: object) -> object:
    from engine import compiler

    return compiler.compile(model, *args, **kwargs)  # type: ignore[arg-type]


def _from_sparse(name: str) -> object:
    """A Tensor method whose body is in `engine.sparse`, imported at the first call."""

    def method(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        from engine import sparse  # noqa: F401

        return getattr(Tensor, name)(self, *args, **kwargs)

    method.__name__ = name
    method.__doc__ = f"`{name}` of engine.sparse."
    return method


def _class_made(names: set[str] | None = None) -> None:
    from engine.torch_names import _overriding

    _overriding.class_made(names)


def _of_quantized(name: str) -> object:
    """A method that quantized tensors define, of one that is none."""

    def method(self):  # type: ignore[no-untyped-def]
        if name == "dequantize":
            return self.to(_dtypes.float32)
        raise RuntimeError(f"{name}(): the tensor is not quantized, its dtype is {self.dtype}")

    method.__name__ = name
    method.__doc__ = f"`{name}` of engine.quantized."
    return method


def _from_rows(name: str) -> object:
    """A Tensor method whose body is in `engine.sparse.compressed`."""

    def method(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        from engine.sparse import compressed

        return getattr(compressed, name)(self, *args, **kwargs)

    method.__name__ = name
    method.__doc__ = f"`{name}` of engine.sparse.compressed."
    return method


# What low layers need from higher ones is registered here, where all of them may be named.
_storage.registered.share = _share
_storage.registered.tensor = Tensor
_storage.registered.type_named = _storage_type
_dispatch.providers.update(sparse_rows=_sparse_rows, sparse_sized=_sparse_sized, compile=_compile)
_graph.registered.saved_hooks = _saved_hooks
_dispatch.overriding.start.append(_class_made)
for _name in _names.OF_SPARSE.split():
    setattr(Tensor, _name, _from_sparse(_name))
for _name in _names.OF_ROWS.split():
    setattr(Tensor, _name, _from_rows(_name))
for _name in ("dequantize", "int_repr", "q_scale", "q_zero_point"):
    setattr(Tensor, _name, _of_quantized(_name))
globals().update(_dispatch.PUBLIC)
globals().update({_name: getattr(_dtypes, _name) for _name in _dtypes.__all__})
inf, nan, pi, e, newaxis = _dtypes._float("inf"), _dtypes._float("nan"), 3.141592653589793, 2.718281828459045, None

if not _gc.get_freeze_count():  # what was made lives as long as the process: straight to the oldest generation, since
    _gc.freeze()  # the first collection of the youngest would walk all of it, a tenth of the start again
    _gc.unfreeze()
if _collecting:
    _gc.enable()
