"""Modules whose inputs and results are quantized tensors: what `torch.ao.quantization.convert` puts in place.

Products are of the integers, in float32 (exact up to sums of 2**24), and rounded once to the scale of the result, as
FBGEMM does: results equal torch's to one unit.  They only infer.
https://docs.pytorch.org/docs/2.13/generated/torch.ao.nn.quantized.Conv2d.html
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from engine.core import dtypes
from engine.encoded.quantized import QuantizedTensor, from_integers, integer_products, quantize_per_tensor
from engine.nn import functional as F
from engine.nn.modules.module import Module
from engine.nn.quantized.dynamic import LinearPackedParams, PackedLinear, quantized_weight
from engine.nn.quantized.observers import default_weight_observer
from engine.tensor import Tensor, wrap

__all__ = [
    "BNReLU2d",
    "BNReLU3d",
    "BatchNorm2d",
    "BatchNorm3d",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvReLU1d",
    "ConvReLU2d",
    "ConvReLU3d",
    "DeQuantize",
    "Linear",
    "LinearReLU",
    "Quantize",
]


def observed_parameters(mod: Any) -> tuple[float, int]:
    """Return scale and zero point of a module's results, as its observer has seen them."""
    scale, zero = mod.activation_post_process.calculate_qparams()
    return float(scale), int(zero)


def require_quantized(x: Any, name: str) -> QuantizedTensor:
    if not isinstance(x, QuantizedTensor):
        raise NotImplementedError(
            f"quantized {name} takes quantized tensors, not tensors of {x.dtype}: put a QuantStub before it, or "
            "quantize_per_tensor"
        )
    return x


def _rounded(values: np.ndarray, scale: float, zero: int, relu: bool = False) -> QuantizedTensor:
    """Values in units of `scale` as quint8 with this scale and zero point."""
    q = np.clip(np.rint(values) + np.float32(zero), zero if relu else 0, 255)
    return from_integers(q.astype(np.uint8), scale, zero)


def quantized(values: Tensor, scale: float, zero: int, dtype: Any = dtypes.quint8) -> QuantizedTensor:
    found: QuantizedTensor = quantize_per_tensor(values, scale, zero, dtype)
    return found


class QuantizedModule(Module):
    """A module with the scale and the zero point of its results."""

    def __init__(self, scale: float = 1.0, zero_point: int = 0) -> None:
        super().__init__()
        self.scale, self.zero_point = scale, zero_point

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "scale"] = wrap(np.asarray(self.scale, np.float32))
        destination[prefix + "zero_point"] = wrap(np.asarray(self.zero_point))

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, missing_keys: list[str], *rest: Any
    ) -> None:
        for name, kind in (("scale", float), ("zero_point", int)):
            if prefix + name in state_dict:
                setattr(self, name, kind(state_dict.pop(prefix + name)))
            elif strict:
                missing_keys.append(prefix + name)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, False, missing_keys, *rest)

    def _get_name(self) -> str:
        return "Quantized" + type(self).__name__


class Quantize(Module):
    """Quantizes what comes: (*) float32 -> (*) of `dtype`."""

    scale: Tensor
    zero_point: Tensor

    def __init__(self, scale: float, zero_point: int, dtype: Any, factory_kwargs: Any = None) -> None:
        super().__init__()
        self.register_buffer("scale", wrap(np.asarray([scale], np.float32)))
        self.register_buffer("zero_point", wrap(np.asarray([zero_point])))
        self.dtype = dtype

    def forward(self, X: Tensor) -> Tensor:
        """The quantized tensor."""
        return quantized(X, float(self.scale), int(self.zero_point), self.dtype)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Quantize:
        """That of a QuantStub, by its observer."""
        return cls(*observed_parameters(mod), mod.activation_post_process.dtype)

    def extra_repr(self) -> str:
        """Scale, zero point and dtype."""
        return f"scale={self.scale}, zero_point={self.zero_point}, dtype={self.dtype}"


class DeQuantize(Module):
    """Gives the values of a quantized tensor: (*) -> (*) float32."""

    def forward(self, Xq: Tensor) -> Tensor:
        """`Xq.dequantize()`; a tensor of floats as it is."""
        return Xq.dequantize() if isinstance(Xq, QuantizedTensor) else Xq

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> DeQuantize:
        """That of a DeQuantStub."""
        return cls()


class Linear(PackedLinear, QuantizedModule):
    """x @ weight.T + bias: (*, in_features) quint8 -> (*, out_features) quint8."""

    _relu = False

    def __init__(self, in_features: int, out_features: int, bias_: bool = True, dtype: Any = dtypes.qint8) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self._packed_params = LinearPackedParams(dtype)
        bias = wrap(np.zeros(out_features, np.float32)) if bias_ else None
        zeros = quantize_per_tensor(wrap(np.zeros((out_features, in_features), np.float32)), 1.0, 0, dtypes.qint8)
        self._packed_params.set_weight_bias(zeros, bias)

    def forward(self, x: Tensor) -> Tensor:
        """(*, in_features) -> (*, out_features)."""
        q = require_quantized(x, "Linear")
        weight, bias = self._packed_params._weight_bias()
        assert isinstance(weight, QuantizedTensor)
        rows = np.ascontiguousarray(q._q.reshape(-1, self.in_features))
        sums = integer_products(rows, int(q._zero), weight, rows.size > 0 and int(rows.max()) <= 127)
        found = _scaled(sums.astype(np.float32), q, weight, bias, self.scale, self.zero_point, self._relu, -1)
        return found.reshape(*q.shape[:-1], self.out_features)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """That of a float Linear (or LinearReLU), by its `qconfig` and its observer."""
        inner = mod[0] if cls._relu else mod
        made = cls(inner.in_features, inner.out_features, inner.bias is not None)
        made.set_weight_bias(_weight(mod.qconfig, inner.weight), inner.bias)
        made.scale, made.zero_point = observed_parameters(mod)
        return made

    def extra_repr(self) -> str:
        """Sizes, scale, zero point and scheme."""
        weight: Any = self.weight()
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, scale={self.scale}, "
            f"zero_point={self.zero_point}, qscheme={weight.qscheme()}"
        )

    def __repr__(self) -> str:
        return f"{self._get_name()}({self.extra_repr()})"


class LinearReLU(Linear):
    """relu of a Linear."""

    _relu = True


def _weight(qconfig: Any, weight: Tensor) -> QuantizedTensor:
    observer = (default_weight_observer if qconfig is None else qconfig.weight)()
    if observer.dtype is not dtypes.qint8:
        raise AssertionError(f"Weight observer must have a dtype of torch.qint8, got {observer.dtype}")
    found = quantized_weight(weight, observer, dtypes.qint8)
    assert isinstance(found, QuantizedTensor)
    return found


def _scaled(
    sums: np.ndarray,
    q: QuantizedTensor,
    weight: QuantizedTensor,
    bias: Tensor | None,
    scale: float,
    zero: int,
    relu: bool,
    axis: int,
) -> QuantizedTensor:
    """Sums of products of integers, channels along `axis`, plus the bias, in units of the result's scale."""
    around = [1] * sums.ndim
    around[axis] = -1
    units = np.float32(q._scale) * np.asarray(weight._scale, np.float32)  # what one of the sums stands for
    if units.ndim:
        units = units.reshape(around)
    if bias is not None:
        sums = sums + bias.detach().numpy().reshape(around) / units
    return _rounded(sums * (units / np.float32(scale)), scale, zero, relu)


class _Conv(QuantizedModule):
    """A convolution of quint8 tensors with a weight of qint8."""

    _relu = False
    _dims: int
    _function: Callable[..., Tensor]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if in_channels % groups or out_channels % groups:
            which = "in_channels" if in_channels % groups else "out_channels"
            raise ValueError(f"{which} must be divisible by groups")
        if isinstance(padding, str) or padding_mode not in ("zeros", "reflect"):
            raise NotImplementedError(f"quantized convolution with padding={padding!r}, padding_mode={padding_mode!r}")
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size, self.stride = self._each(kernel_size), self._each(stride)
        self.padding, self.dilation = self._each(padding), self._each(dilation)
        self.padding_mode = padding_mode
        zeros = np.zeros((out_channels, in_channels // groups, *self.kernel_size), np.int8)
        self.set_weight_bias(from_integers(zeros, 1.0, 0), wrap(np.zeros(out_channels, np.float32)) if bias else None)

    def _each(self, value: Any) -> tuple[int, ...]:
        return tuple(value) if isinstance(value, tuple | list) else (value,) * self._dims

    def set_weight_bias(self, w: Any, b: Tensor | None) -> None:
        """Use this quantized weight (out, in / groups, *kernel) and this bias (out)."""
        self._weight_bias = (w, b)
        around = (-1,) + (1,) * (self._dims + 1)
        zero = np.asarray(w._zero, np.float32)
        self._centred = wrap(w._q.astype(np.float32) - (zero.reshape(around) if zero.ndim else zero))

    def weight(self) -> Tensor:
        """The quantized weight (out, in / groups, *kernel)."""
        return self._weight_bias[0]

    def bias(self) -> Tensor | None:
        """The bias (out), or None."""
        return self._weight_bias[1]

    def forward(self, input: Tensor) -> Tensor:
        """(N, in, *) -> (N, out, *)."""
        q = require_quantized(input, type(self).__name__)
        if q.ndim != self._dims + 2:
            raise ValueError(f"Input shape must be `(N, C, {', '.join('DHW'[-self._dims :])})`!")
        values, padding = wrap(q._q.astype(np.float32) - np.float32(q._zero)), self.padding
        if self.padding_mode != "zeros":
            values = F.pad(values, [n for each in reversed(padding) for n in (each, each)], self.padding_mode)
            padding = (0,) * self._dims
        sums = type(self)._function(values, self._centred, None, self.stride, padding, self.dilation, self.groups)
        weight, bias = self._weight_bias
        return _scaled(sums.numpy(), q, weight, bias, self.scale, self.zero_point, self._relu, 1)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """That of a float convolution (or with a ReLU behind it), by its `qconfig` and its observer."""
        inner = mod[0] if cls._relu else mod
        made = cls(
            inner.in_channels,
            inner.out_channels,
            inner.kernel_size,
            inner.stride,
            inner.padding,
            inner.dilation,
            inner.groups,
            inner.bias is not None,
            inner.padding_mode,
        )
        made.set_weight_bias(_weight(mod.qconfig, inner.weight), inner.bias)
        made.scale, made.zero_point = observed_parameters(mod)
        return made

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        destination[prefix + "weight"], destination[prefix + "bias"] = self._weight_bias
        super()._save_to_state_dict(destination, prefix, keep_vars)

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        weight = state_dict.pop(prefix + "weight", None)
        bias = state_dict.pop(prefix + "bias", None)
        if isinstance(weight, QuantizedTensor) and weight.shape == self.weight().shape:
            self.set_weight_bias(weight, bias)
        elif weight is None:
            missing_keys.append(prefix + "weight")
        else:
            error_msgs.append(
                f"{prefix}weight must be a quantized tensor of shape {tuple(self.weight().shape)}, is "
                f"{'quantized' if isinstance(weight, QuantizedTensor) else 'not quantized'}, {tuple(weight.shape)}"
            )
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )

    def extra_repr(self) -> str:
        """Sizes, scale and zero point, and what is not the default."""
        text = (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"scale={self.scale}, zero_point={self.zero_point}"
        )
        if any(self.padding):
            text += f", padding={self.padding}"
        if any(n != 1 for n in self.dilation):
            text += f", dilation={self.dilation}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        return text if self.bias() is not None else f"{text}, bias=False"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_centred"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.set_weight_bias(*self._weight_bias)


class Conv1d(_Conv):
    """(N, in, L) quint8 -> (N, out, L')."""

    _dims, _function = 1, staticmethod(F.conv1d)


class Conv2d(_Conv):
    """(N, in, H, W) quint8 -> (N, out, H', W')."""

    _dims, _function = 2, staticmethod(F.conv2d)


class Conv3d(_Conv):
    """(N, in, D, H, W) quint8 -> (N, out, D', H', W')."""

    _dims, _function = 3, staticmethod(F.conv3d)


class ConvReLU1d(Conv1d):
    """relu of a Conv1d."""

    _relu = True


class ConvReLU2d(Conv2d):
    """relu of a Conv2d."""

    _relu = True


class ConvReLU3d(Conv3d):
    """relu of a Conv3d."""

    _relu = True


class _BatchNorm(QuantizedModule):
    """Batch normalisation by running statistics: (N, C, *) quint8 -> (N, C, *) quint8."""

    _relu = False
    weight: Any
    bias: Any
    running_mean: Any
    running_var: Any

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, device: Any = None, dtype: Any = None
    ):
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        for name, value in (("weight", 1), ("bias", 0), ("running_mean", 0), ("running_var", 1)):
            self.register_buffer(name, wrap(np.full(num_features, value, np.float32)))
        self.register_buffer("num_batches_tracked", wrap(np.asarray(0)))

    def forward(self, input: Tensor) -> Tensor:
        """(N, C, *) -> (N, C, *)."""
        q = require_quantized(input, type(self).__name__)
        found = F.batch_norm(
            q.dequantize(), self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps
        )
        return _rounded(found.numpy() / np.float32(self.scale), self.scale, self.zero_point, self._relu)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """That of a float module (or with a ReLU behind it), by its observer."""
        inner = mod[0] if cls._relu else mod
        made = cls(inner.num_features, inner.eps, inner.momentum)
        for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
            value = getattr(inner, name)
            if value is not None:
                setattr(made, name, value.detach())
        made.scale, made.zero_point = observed_parameters(mod)
        return made

    def extra_repr(self) -> str:
        """Sizes, and how it normalises."""
        how = f"eps={self.eps}, momentum={self.momentum}"
        return f"{self.num_features}, {how}, affine=True, bias=True, track_running_stats=True"


class BatchNorm2d(_BatchNorm):
    """(N, C, H, W) quint8 -> (N, C, H, W) quint8."""


class BatchNorm3d(_BatchNorm):
    """(N, C, D, H, W) quint8 -> (N, C, D, H, W) quint8."""


class BNReLU2d(BatchNorm2d):
    """relu of a BatchNorm2d."""

    _relu = True


class BNReLU3d(BatchNorm3d):
    """relu of a BatchNorm3d."""

    _relu = True
