"""torch.onnx's names: export is not supported."""

from __future__ import annotations

import importlib as _importlib
from typing import Any

from engine.torch_names import refused

__all__ = ["export", "is_in_onnx_export", "register_custom_op_symbolic", "unregister_custom_op_symbolic"]

producer_name, producer_version = "engine", "0"


def _refuse(what: str) -> Any:
    raise NotImplementedError(f"torch.onnx.{what} is not supported: the engine records no program to export")


def is_in_onnx_export() -> bool:
    """False."""
    return False


def export(*args: Any, **kwargs: Any) -> Any:
    """NotImplementedError."""
    _refuse("export")


def dynamo_export(*args: Any, **kwargs: Any) -> Any:
    """NotImplementedError."""
    _refuse("dynamo_export")


def register_custom_op_symbolic(symbolic_name: str, symbolic_fn: Any, opset_version: int) -> None:
    """Nothing: packages register at import what only an export would use."""


def unregister_custom_op_symbolic(symbolic_name: str, opset_version: int) -> None:
    """Nothing."""


def __getattr__(name: str) -> Any:
    if name in ("symbolic_helper", "operators", "symbolic_registry", "utils") or name.startswith("symbolic_opset"):
        try:
            return _importlib.import_module(f"engine.torch_names.onnx.{name}")
        except ModuleNotFoundError:
            raise AttributeError(f"module 'torch.onnx' has no attribute '{name}': export is not supported") from None
    if name == "ONNXProgram":
        return refused.kind("onnx", name, "the engine records no program to export")
    if name == "OperatorExportTypes":
        return _importlib.import_module("enum").Enum(name, "ONNX ONNX_ATEN ONNX_ATEN_FALLBACK RAW")
    if name == "TrainingMode":
        return _importlib.import_module("enum").Enum(name, "EVAL PRESERVE TRAINING")
    raise AttributeError(f"module 'torch.onnx' has no attribute '{name}'")
