"""ONNX files: `export` writes a module as one, `load` reads one as a module.

Also torch.onnx's other names.  Packages register symbolic functions at import; the exporter here has a table of its own
(`engine/onnx/builders`), so registering changes nothing and their modules raise when a function of theirs is called.
"""

from __future__ import annotations

import enum as _enum
import importlib as _importlib
import sys as _sys
from typing import TYPE_CHECKING, Any

from engine.onnx.errors import FormatError, OnnxExporterError, UnsupportedOperatorError
from engine.torch_names import refused as _refused

if TYPE_CHECKING:
    from engine.onnx.exporting import ONNXProgram, export
    from engine.onnx.importing import Model, load

__all__ = [
    "FormatError",
    "Model",
    "ONNXProgram",
    "OnnxExporterError",
    "OperatorExportTypes",
    "TensorProtoDataType",
    "TrainingMode",
    "UnsupportedOperatorError",
    "export",
    "is_in_onnx_export",
    "load",
    "register_custom_op_symbolic",
    "unregister_custom_op_symbolic",
]

producer_name, producer_version = "engine", "0"


class TrainingMode(_enum.Enum):
    """The mode in which `export` runs the module."""

    EVAL, PRESERVE, TRAINING = range(3)


class TensorProtoDataType(_enum.IntEnum):
    """The element types of ONNX's tensors, by the numbers of its format."""

    UNDEFINED, FLOAT, UINT8, INT8, UINT16, INT16, INT32, INT64, STRING, BOOL, FLOAT16 = range(11)
    DOUBLE, UINT32, UINT64, COMPLEX64, COMPLEX128, BFLOAT16 = range(11, 17)
    FLOAT8E4M3FN, FLOAT8E4M3FNUZ, FLOAT8E5M2, FLOAT8E5M2FNUZ = range(17, 21)


class OperatorExportTypes(_enum.Enum):
    """torch's ways with operators that ONNX lacks; the engine refuses them."""

    ONNX, ONNX_ATEN, ONNX_ATEN_FALLBACK, RAW = range(4)


def is_in_onnx_export() -> bool:
    """Return whether a module runs for `export` now: some choose another formula then."""
    module = _sys.modules.get("engine.onnx.exporting")
    return module is not None and bool(module.exporting)


def dynamo_export(*args: Any, **kwargs: Any) -> Any:
    """NotImplementedError: `export` is its successor, in torch too."""
    raise NotImplementedError("torch.onnx.dynamo_export is not supported: use torch.onnx.export")


def register_custom_op_symbolic(symbolic_name: str, symbolic_fn: Any, opset_version: int) -> None:
    """Nothing: packages register at import what the exporter here does not ask for."""


def unregister_custom_op_symbolic(symbolic_name: str, opset_version: int) -> None:
    """Nothing."""


_LAZY = {"ONNXProgram": "exporting", "export": "exporting", "Model": "importing", "load": "importing"}
_MODULES = frozenset(
    [
        "builders",
        "errors",
        "exporting",
        "importing",
        "operators",
        "program",
        "symbolic_helper",
        "tensors",
        "utils",
        "wire",
        "writer",
    ]
)


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = getattr(_importlib.import_module(f"engine.onnx.{_LAZY[name]}"), name)
        globals()[name] = value
        return value
    if name in _MODULES or (name.startswith("symbolic_opset") and not _refused.has(f"onnx.{name}")):
        return _importlib.import_module(f"engine.onnx.{name}")
    raise AttributeError(f"module 'torch.onnx' has no attribute '{name}'")
