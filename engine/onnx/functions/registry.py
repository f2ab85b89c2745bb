"""The table of ONNX operators: name -> a function of the engine's tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.core import dtypes
from engine.onnx.tensors import dtype_of
from engine.tensor import Tensor

__all__ = ["FUNCTIONS", "implements", "ints", "of_code", "tensor_of"]

FUNCTIONS: dict[str, Callable[..., Any]] = {}


def implements(*names: str) -> Callable[[Any], Any]:
    """The decorated function is the ONNX operator of these names.

    Its positional parameters are the operator's inputs, those by keyword its attributes; one that it has not got is
    refused when a file is loaded.  `opset` among them is the version of the operators in the file.
    """

    def add(function: Any) -> Any:
        for name in names:
            if name in FUNCTIONS:
                raise ValueError(f"{name} is there twice")
            FUNCTIONS[name] = function
        function.__name__ = function.__qualname__ = names[0]  # in the text of graphs
        return function

    return add


def ints(value: Any) -> list[int]:
    """The integers of a 1-d tensor, a list or one number."""
    if value is None:
        return []
    if isinstance(value, Tensor):
        value = value.tolist()
    return [int(v) for v in value] if isinstance(value, list | tuple) else [int(value)]


def of_code(code: Any) -> dtypes.dtype:
    """The dtype of ONNX's number."""
    found: dtypes.dtype = dtype_of(code)
    return found


def tensor_of(values: Any, dtype: Any = dtypes.int64) -> Tensor:
    """A tensor of Python numbers."""
    from engine.dispatch import PUBLIC

    made: Tensor = PUBLIC["tensor"](values, dtype=dtype)
    return made
