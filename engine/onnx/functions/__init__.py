"""The function of the engine for each ONNX operator: one table, `registry.FUNCTIONS`."""

from engine.onnx.functions import arrays, layers, math
from engine.onnx.functions.registry import FUNCTIONS

__all__ = ["FUNCTIONS", "arrays", "layers", "math"]
