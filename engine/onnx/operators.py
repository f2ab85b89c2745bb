"""torch.onnx.operators: shapes as tensors, which exporters trace."""

from __future__ import annotations

from engine.tensor import Tensor
from engine.torch_names._top_level import _shape_as_tensor

__all__ = ["reshape_from_tensor_shape", "shape_as_tensor"]


def shape_as_tensor(x: Tensor) -> Tensor:
    """The sizes as int64: (*a) -> (n)."""
    return _shape_as_tensor(x)


def reshape_from_tensor_shape(x: Tensor, shape: Tensor) -> Tensor:
    """x.reshape(*shape)."""
    return x.reshape([int(n) for n in shape])
