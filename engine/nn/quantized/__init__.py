"""torch.nn.quantized: arithmetic as a module for float models; the quantized modules are in `static` and `dynamic`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from engine.dispatch import PUBLIC
from engine.nn.modules.linear import Identity
from engine.nn.modules.module import Module
from engine.tensor import Tensor

if TYPE_CHECKING:
    from engine.nn.quantized.arithmetic import Hardswish, LeakyReLU, QFunctional, ReLU6, Sigmoid
    from engine.nn.quantized.static import (
        BatchNorm2d,
        BatchNorm3d,
        Conv1d,
        Conv2d,
        Conv3d,
        DeQuantize,
        Linear,
        Quantize,
    )

__all__ = [
    "BatchNorm2d",
    "BatchNorm3d",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "DeQuantize",
    "FloatFunctional",
    "Hardswish",
    "LeakyReLU",
    "Linear",
    "QFunctional",
    "Quantize",
    "ReLU6",
    "Sigmoid",
]


class FloatFunctional(Module):
    """Sums, products and joins as methods, so that `convert` can replace them by quantized ones.

    The result of each passes `activation_post_process`, which `prepare` makes an observer.
    """

    def __init__(self) -> None:
        super().__init__()
        self.activation_post_process: Module = Identity()

    def forward(self, x: Tensor) -> Tensor:
        """RuntimeError: the methods are used, not the module."""
        raise RuntimeError("FloatFunctional is not intended to use the 'forward'. Please use the underlying operation")

    def add(self, x: Tensor, y: Any) -> Tensor:
        """x + y."""
        return self.activation_post_process(x + y)

    def add_scalar(self, x: Tensor, y: Any) -> Tensor:
        """x + y; not observed, as in torch."""
        return x + y

    def mul(self, x: Tensor, y: Any) -> Tensor:
        """x * y."""
        return self.activation_post_process(x * y)

    def mul_scalar(self, x: Tensor, y: Any) -> Tensor:
        """x * y; not observed, as in torch."""
        return x * y

    def cat(self, x: list[Tensor], dim: int = 0) -> Tensor:
        """`torch.cat(x, dim)`."""
        return self.activation_post_process(PUBLIC["cat"](x, dim))

    def add_relu(self, x: Tensor, y: Tensor) -> Tensor:
        """relu(x + y)."""
        return self.activation_post_process((x + y).relu())

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        """x @ y."""
        return self.activation_post_process(x @ y)


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """The quantized modules, which models of floats do without."""
        for module in ("static", "arithmetic"):
            found = import_module(f"engine.nn.quantized.{module}")
            if name in found.__all__ and not name.startswith(("ConvReLU", "LinearReLU", "BNReLU")):
                return getattr(found, name)
        raise AttributeError(f"module 'torch.nn.quantized' has no attribute {name!r}")
