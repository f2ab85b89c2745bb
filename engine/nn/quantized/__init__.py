"""torch.nn.quantized's name that float models use: arithmetic as a module."""

from __future__ import annotations

from typing import Any

from engine.nn.modules.module import Module
from engine.tensor import Tensor

__all__ = ["FloatFunctional"]


class FloatFunctional(Module):
    """Sums, products and joins as methods, so that torch can swap them for quantized ones; here they are plain."""

    def forward(self, x: Tensor) -> Tensor:
        """RuntimeError: the methods are used, not the module."""
        raise RuntimeError("FloatFunctional is not intended to use the 'forward'. Please use the underlying operation")

    def add(self, x: Tensor, y: Any) -> Tensor:
        """x + y."""
        return x + y

    add_scalar = add

    def mul(self, x: Tensor, y: Any) -> Tensor:
        """x * y."""
        return x * y

    mul_scalar = mul

    def cat(self, x: list[Tensor], dim: int = 0) -> Tensor:
        """`torch.cat(x, dim)`."""
        import engine

        return engine.cat(x, dim)

    def add_relu(self, x: Tensor, y: Tensor) -> Tensor:
        """relu(x + y)."""
        return (x + y).relu()

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        """x @ y."""
        return x @ y
