"""`ShapeProp` runs a graph on example inputs and notes shape, dtype and stride of every value."""

from __future__ import annotations

import traceback
from typing import Any

from engine.fx.interpreter import Interpreter
from engine.fx.node import Node, map_aggregate
from engine.fx.tensor_metadata import TensorMetadata, _extract_tensor_metadata
from engine.tensor import Tensor

__all__ = ["ShapeProp", "TensorMetadata"]


class ShapeProp(Interpreter):
    """`ShapeProp(module).propagate(*inputs)` runs the graph and notes what its values are."""

    def __init__(self, gm: Any, fake_mode: Any = None) -> None:
        super().__init__(gm)
        if fake_mode is not None:
            raise NotImplementedError("ShapeProp(fake_mode=...) is not supported: there are no fake tensors")

    def run_node(self, n: Node) -> Any:
        try:
            result = super().run_node(n)
        except Exception as error:
            traceback.print_exc()
            raise RuntimeError(f"ShapeProp error for: node={n.format_node()} with meta={n.meta}") from error
        found = False

        def extract(value: Any) -> Any:
            nonlocal found
            if isinstance(value, Tensor):
                found = True
                return _extract_tensor_metadata(value)
            return value

        meta = map_aggregate(result, extract)
        if found:
            n.meta["tensor_meta"] = meta
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args: Any) -> Any:
        """Run the graph; what it gives."""
        return super().run(*args)
