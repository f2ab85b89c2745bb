"""`TensorMetadata`: shape, dtype and strides of the value of a node."""

from __future__ import annotations

from typing import Any, NamedTuple

from engine.core import layouts
from engine.tensor import Tensor

__all__ = ["TensorMetadata"]


class TensorMetadata(NamedTuple):
    """The metadata of a tensor, in `node.meta["tensor_meta"]`."""

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
