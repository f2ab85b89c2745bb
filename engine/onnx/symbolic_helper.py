"""torch.onnx.symbolic_helper: the decorators of symbolic functions change nothing; the rest raises when called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.onnx._refused import refusing

__all__ = ["parse_args", "quantized_args"]


def parse_args(*arg_descriptors: str) -> Callable[[Any], Any]:
    """A decorator that returns its function."""
    return lambda function: function


def quantized_args(*arg_q_descriptors: bool, **kwargs: Any) -> Callable[[Any], Any]:
    """A decorator that returns its function."""
    return lambda function: function


__getattr__ = refusing("symbolic_helper")
