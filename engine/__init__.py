"""A define-by-run autograd engine with PyTorch's names, on numpy (CPU) and CuPy (CUDA).

Every op of `engine/ops` is served here by name; sub-packages (`nn`, `optim`, ...) are imported at first use.
"""

import gc as _gc
import importlib as _importlib
import warnings as _warnings

_collecting = _gc.isenabled()
_gc.disable()  # thousands of functions are made below: collections find nothing and cost a tenth of the start

# Note [Floating point warnings] in function_source.py
_warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"engine\.")

from engine.core.blas_waits import import_numpy as _import_numpy  # noqa: E402

_import_numpy()

import engine.ops.functions as _functions  # noqa: E402  # `from engine.ops` would ask for a family of the name
from engine import dispatch as _dispatch  # noqa: E402
from engine import ops  # noqa: E402, F401
from engine.autograd import api as _api  # noqa: E402, F401  # Tensor.backward
from engine.autograd import grad_dtype as _grad_dtype  # noqa: E402, F401  # the attribute
from engine.autograd import graph as _graph  # noqa: E402
from engine.autograd.anomaly_mode import is_anomaly_check_nan_enabled, is_anomaly_enabled  # noqa: E402, F401
from engine.autograd.graph import Node as _Node  # noqa: E402, F401
from engine.core import dtypes as _dtypes  # noqa: E402
from engine.core import storage as _storage  # noqa: E402
from engine.core.storage import TypedStorage, UntypedStorage  # noqa: E402, F401
from engine.core.version import __version__  # noqa: E402, F401
from engine.tensor import Tensor  # noqa: E402
from engine.torch_names import MODULES as _TORCH_NAMES  # noqa: E402
from engine.torch_names import _names  # noqa: E402
from engine.torch_names import hide_no_attribute as _hide_no_attribute  # noqa: E402
from engine.torch_names import home as _home  # noqa: E402

_hide_no_attribute("engine")

_SUBPACKAGES = frozenset(
    [
        "__config__", "_custom_ops", "_library", "_ops", "_utils", "amp", "autograd", "backends", "classes", "cuda",
        "distributed", "distributions", "export", "fft", "func", "fx", "jit", "library", "linalg", "masked",
        "multiprocessing", "nested", "nn", "onnx", "optim", "package", "random", "serialization", "sparse", "special",
        "storage", "utils", "version", *_TORCH_NAMES,
    ]
)  # fmt: skip
_LAZY = {
    "save": "serialization",
    "load": "serialization",
    "sparse_coo_tensor": "sparse",
    "sparse_csr_tensor": "sparse.compressed",
    **dict.fromkeys(("dsmm", "hsmm", "hspmm", "saddmm", "smm", "spmm", "sspaddmm"), "sparse"),
    **dict.fromkeys(_names.OF_QUANTIZED.split(), "quantized"),
    "autocast": "amp",
    "explain": "dispatch.judge",
    "memory_stats": "torch_names.cpu",
    "set_printoptions": "core.printing",
    "GradScaler": "amp",
    "Future": "jit",
    **dict.fromkeys(("ScriptFunction", "ScriptModule", "CompilationUnit", "ScriptObject"), "jit"),
    "PyTorchFileReader": "serialization.file_reader",
    **dict.fromkeys([*_names.TOP_LEVEL.split(), *_names.FOREACH], "torch_names._top_level"),
    "TensorType": "torch_names._C",
    **{f"{_name}Storage": "typed_storage" for _name in _names.STORAGES.split()},
}


def __getattr__(name: str) -> object:
    """Sub-packages, the names of `_LAZY` and of the lazy families, imported at first use."""
    import sys

    if name in _SUBPACKAGES:
        return _importlib.import_module(_home(f"torch.{name}"))
    if name in _LAZY:
        value = getattr(_importlib.import_module(_home(f"torch.{_LAZY[name]}")), name)
        globals()[name] = value
        return value
    if name == "Storage":  # the class of the default dtype's storages, which may change
        return _importlib.import_module("engine.torch_names.typed_storage").kind_of(_dtypes.get_default_dtype())
    if name == "__all__":  # from torch import *
        return sorted(n for n in __dir__() if n[0] != "_" and n not in _SUBPACKAGES)
    if hasattr(_functions, name):
        value = globals()[name] = getattr(_functions, name)
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
    from engine.torch_names import typed_storage

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
    from engine.torch_names import compiler

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
    method.__doc__ = f"`{name}` of engine.encoded.quantized."
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
_dispatch.providers.sparse_rows = _sparse_rows
_dispatch.providers.sparse_sized = _sparse_sized
_dispatch.providers.compile = _compile
_graph.registered.saved_hooks = _saved_hooks
_dispatch.overriding.handling.start = _class_made
for _name in _names.OF_SPARSE.split():
    setattr(Tensor, _name, _from_sparse(_name))
for _name in _names.OF_ROWS.split():
    setattr(Tensor, _name, _from_rows(_name))
for _name in ("dequantize", "int_repr", "q_scale", "q_zero_point"):
    setattr(Tensor, _name, _of_quantized(_name))
globals().update({_n: _v for _n, _v in vars(_functions).items() if _n[0] != "_" or _n in _dispatch.PUBLIC})

if not _gc.get_freeze_count():  # what was made lives as long as the process: straight to the oldest generation, since
    _gc.freeze()  # the first collection of the youngest would walk all of it, a tenth of the start again
    _gc.unfreeze()
if _collecting:
    _gc.enable()
