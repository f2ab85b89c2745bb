"""`ShapeProp` runs a graph on example inputs and notes shape, dtype and stride of every value."""

from __future__ import annotations

import traceback
from typing import Any, NamedTuple

from engine import layouts
from engine.fx.interpreter import Interpreter
from engine.fx.node import Node, map_aggregate
from engine.tensor import Tensor

__all__ = ["ShapeProp", "TensorMetadata"]


class TensorMetadata(NamedTuple):
    """What is noted of a tensor, in `node.meta["tensor_meta"]`."""

    shape: Any
    dtype: Any
    requires_grad: bool
    stride: tuple[int, ...]
    memory_format: Any
    is_quantized: bool
    qparams: dict[str, Any]


def _extract_tensor_metadata(result: Tensor, include_contiguity: bool = True) -> TensorMetadata:
    memory_format = None
    if include_contiguity:
        formats = (layouts.contiguous_format, layouts.channels_last, layouts.channels_last_3d)
        memory_format = next((f for f in formats if _fits(result, f) and result.is_contiguous(memory_format=f)), None)
    return TensorMetadata(
        result.shape, result.dtype, result.requires_grad, tuple(result.stride()), memory_format, False, {}
    )


def _fits(tensor: Tensor, memory_format: Any) -> bool:
    dims = {"torch.channels_last": 4, "torch.channels_last_3d": 5}.get(str(memory_format))
    return dims is None or tensor.dim() == dims


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
