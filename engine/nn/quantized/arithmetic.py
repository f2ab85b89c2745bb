"""Functions and arithmetic of quantized tensors as modules: what `convert` makes of activations and FloatFunctional.

https://docs.pytorch.org/docs/2.13/generated/torch.ao.nn.quantized.QFunctional.html
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.dispatch import PUBLIC
from engine.encoded.quantized import QuantizedTensor, from_integers
from engine.nn import functional as F
from engine.nn.modules.linear import Identity
from engine.nn.modules.module import Module
from engine.nn.quantized.static import QuantizedModule, observed_parameters, quantized, require_quantized
from engine.tensor import Tensor

__all__ = ["Hardswish", "LeakyReLU", "QFunctional", "ReLU6", "Sigmoid"]


class ReLU6(Module):
    """min(max(x, 0), 6): (*) -> (*), the same scale."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """(*) -> (*)."""
        return F.relu6(require_quantized(input, "ReLU6"))

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> ReLU6:
        """That of a float ReLU6."""
        return cls(mod.inplace)

    def _get_name(self) -> str:
        return "QuantizedReLU6"


class _Pointwise(QuantizedModule):
    """A function of the values, quantized anew."""

    def _of(self, values: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, input: Tensor) -> Tensor:
        """(*) -> (*)."""
        return quantized(
            self._of(require_quantized(input, type(self).__name__).dequantize()), self.scale, self.zero_point
        )

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """That of the float module, by its observer."""
        return cls(*observed_parameters(mod))


class Hardswish(_Pointwise):
    """x * relu6(x + 3) / 6: (*) -> (*)."""

    def _of(self, values: Tensor) -> Tensor:
        return F.hardswish(values)


class Sigmoid(Module):
    """1 / (1 + exp(-x)): (*) -> (*), with a scale that covers 0 to 1 and is no part of a state_dict."""

    def __init__(self, output_scale: float = 1.0 / 256.0, output_zero_point: int = 0) -> None:
        super().__init__()
        self.output_scale, self.output_zero_point = output_scale, output_zero_point

    def forward(self, input: Tensor) -> Tensor:
        """(*) -> (*)."""
        values = require_quantized(input, "Sigmoid").dequantize().sigmoid()
        return quantized(values, self.output_scale, self.output_zero_point)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Sigmoid:
        """That of a float Sigmoid, by its observer."""
        return cls(*observed_parameters(mod))


class LeakyReLU(_Pointwise):
    """x where x > 0, else negative_slope * x: (*) -> (*)."""

    def __init__(self, scale: float, zero_point: int, negative_slope: float = 1e-2, inplace: bool = False) -> None:
        super().__init__(scale, zero_point)
        self.negative_slope = negative_slope

    def _of(self, values: Tensor) -> Tensor:
        return F.leaky_relu(values, self.negative_slope)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> LeakyReLU:
        """That of the float module, by its observer."""
        return cls(*observed_parameters(mod), mod.negative_slope)

    def extra_repr(self) -> str:
        """The slope."""
        return f"negative_slope={self.negative_slope}"


class QFunctional(QuantizedModule):
    """Arithmetic of quantized tensors as methods; each instance is for one call, whose scale it has."""

    def __init__(self) -> None:
        super().__init__()
        self.activation_post_process = Identity()

    def forward(self, x: Tensor) -> Tensor:
        """RuntimeError: the methods are used, not the module."""
        raise RuntimeError("Functional is not intended to use the forward. Please use the underlying operation")

    def _made(self, values: Tensor) -> Tensor:
        return self.activation_post_process(quantized(values, self.scale, self.zero_point))

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """x + y."""
        return self._made(x.dequantize() + y.dequantize())

    def add_relu(self, x: Tensor, y: Tensor) -> Tensor:
        """relu(x + y)."""
        return self._made((x.dequantize() + y.dequantize()).relu())

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        """x * y."""
        return self._made(x.dequantize() * y.dequantize())

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        """x @ y."""
        return self._made(x.dequantize() @ y.dequantize())

    def cat(self, x: list[Tensor], dim: int = 0) -> Tensor:
        """The tensors joined along `dim`."""
        return self._made(PUBLIC["cat"]([each.dequantize() for each in x], dim))

    def add_scalar(self, x: Any, y: float) -> Tensor:
        """x + y for a number y: another zero point, or another scale where that does not reach."""
        return self.activation_post_process(_shifted(require_quantized(x, "add_scalar"), y))

    def mul_scalar(self, x: Any, y: float) -> Tensor:
        """x * y for a number y: another scale."""
        q = require_quantized(x, "mul_scalar")
        if y > 0:
            return self.activation_post_process(from_integers(q._q, q._scale * y, q._zero))
        limits = np.iinfo(q._q.dtype)
        if y == 0:
            return self.activation_post_process(from_integers(np.full_like(q._q, 0), 1.0, 0))
        mirrored = (limits.max + limits.min - q._q.astype(np.int32)).astype(q._q.dtype)
        return self.activation_post_process(from_integers(mirrored, q._scale * -y, limits.max + limits.min - q._zero))

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> QFunctional:
        """That of a FloatFunctional, by its observer."""
        made = cls()
        made.scale, made.zero_point = observed_parameters(mod)
        return made

    def _get_name(self) -> str:
        return "QFunctional"

    def extra_repr(self) -> str:
        """Scale and zero point."""
        return f"scale={self.scale}, zero_point={self.zero_point}"


def _shifted(q: QuantizedTensor, number: float) -> QuantizedTensor:
    """q + number with the same integers where a zero point of the type allows it."""
    limits = np.iinfo(q._q.dtype)
    steps = int(np.rint(number / q._scale))
    zero = int(q._zero) - steps
    if limits.min <= zero <= limits.max:
        return from_integers(q._q, q._scale, zero)
    low, high = (limits.min - zero) * q._scale, (limits.max - zero) * q._scale
    if zero < limits.min:
        scale, zero = high / (limits.max - limits.min), int(limits.min)
    else:
        scale, zero = -low / (limits.max - limits.min), int(limits.max)
    return quantized(q.dequantize() + number, float(scale), zero, q.dtype)
