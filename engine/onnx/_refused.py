"""The content of modules of symbolic functions: a function for every name, which raises NotImplementedError when
called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def refusing(module: str) -> Callable[[str], Any]:
    """The `__getattr__` of such a module."""

    def find(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module 'torch.onnx.{module}' has no attribute '{name}'")

        def function(*args: Any, **kwargs: Any) -> Any:
            raise NotImplementedError(
                f"torch.onnx.{module}.{name} is not supported: the exporter has its own table, engine/onnx/builders"
            )

        function.__name__ = function.__qualname__ = name
        return function

    return find
