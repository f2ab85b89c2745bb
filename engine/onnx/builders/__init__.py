"""The ONNX nodes of each of the engine's operators: one table, `registry.BUILDERS`."""

from engine.onnx.builders import indexing, nn, pointwise, recurrent, reduction, shape
from engine.onnx.builders.registry import BUILDERS

__all__ = ["BUILDERS", "indexing", "nn", "pointwise", "recurrent", "reduction", "shape"]
