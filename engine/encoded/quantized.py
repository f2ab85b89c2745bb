"""Quantized tensors: integers of 8 or 32 bits that stand for (q - zero_point) * scale, and products of them.

A `QuantizedTensor` is a Tensor without a strided array of floats: `int_repr()` has the integers, `dequantize()` the
values.  What it cannot do raises NotImplementedError; nothing here has gradients.  `linear_dynamic` quantizes its input
call by call, as torch's x86 kernels do (7 bits, so that sums of two products fit 16).
https://docs.pytorch.org/docs/2.13/quantization.html
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine import backends
from engine.backends.onednn import arrays, is_available
from engine.core import dtypes
from engine.core.checks import wrap_dim
from engine.core.printing import _with_suffixes, contents
from engine.dispatch.overriding import always, made
from engine.encoded import EncodedTensor, quantized_calls
from engine.tensor import Tensor, wrap

__all__ = [
    "QuantizedTensor",
    "choose_qparams",
    "dequantize",
    "from_integers",
    "linear_dynamic",
    "per_channel_affine",
    "per_channel_affine_float_qparams",
    "per_channel_symmetric",
    "per_tensor_affine",
    "per_tensor_symmetric",
    "qscheme",
    "quantize_per_channel",
    "quantize_per_tensor",
    "quantize_per_tensor_dynamic",
]

STORED = {dtypes.qint8: np.dtype(np.int8), dtypes.quint8: np.dtype(np.uint8), dtypes.qint32: np.dtype(np.int32)}
_OF = {stored: kind for kind, stored in STORED.items()}


class qscheme:
    """The layout of scales: `torch.per_tensor_affine` and its like."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> str:
        return self.name


per_tensor_affine, per_channel_affine = qscheme("per_tensor_affine"), qscheme("per_channel_affine")
per_tensor_symmetric, per_channel_symmetric = qscheme("per_tensor_symmetric"), qscheme("per_channel_symmetric")
per_channel_affine_float_qparams = qscheme("per_channel_affine_float_qparams")


class QuantizedTensor(EncodedTensor):
    """Integers with a scale and a zero point, or one of each for every index of a dim (`axis`)."""

    is_quantized = True
    _scale: Any
    _zero: Any
    _axis: int | None

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return quantized_calls.call(QuantizedTensor, func, types, args, kwargs or {})

    @property
    def _array(self) -> Any:  # type: ignore[override]
        raise NotImplementedError(
            "this operation is not implemented for quantized tensors; use dequantize() first, or the modules of "
            "torch.ao.nn.quantized.dynamic"
        )

    dtype = property(lambda self: _OF[self._q.dtype], doc="`torch.qint8`, `torch.quint8` or `torch.qint32`.")

    # --- what the integers stand for

    def qscheme(self) -> Any:
        """`torch.per_tensor_affine` or `torch.per_channel_affine`."""
        return per_tensor_affine if self._axis is None else per_channel_affine

    def int_repr(self) -> Tensor:
        """The integers: uint8, int8 or int32 (*)."""
        return wrap(self._q.copy())

    def dequantize(self) -> Tensor:
        """(q - zero_point) * scale in float32 (*)."""
        scale, zero = self._around(self._scale), self._around(self._zero)
        values = self._q.astype(np.float32) - np.asarray(zero, np.float32)
        return wrap(np.asarray(values * np.asarray(scale, np.float32)))

    def _around(self, parameter: Any) -> Any:
        if self._axis is None:
            return parameter
        sizes = [1] * self._q.ndim
        sizes[self._axis] = -1
        return parameter.reshape(sizes)

    def _one(self, name: str) -> None:
        if self._axis is not None:
            raise RuntimeError(f"Expected quantizer->qscheme() == kPerTensorAffine to be true, but got false: {name}")

    def _many(self, name: str) -> None:
        if self._axis is None:
            raise RuntimeError(f"{name} is only for tensors that are quantized by channel")

    def q_scale(self) -> float:
        """The scale of a tensor quantized as a whole."""
        self._one("q_scale")
        return float(self._scale)

    def q_zero_point(self) -> int:
        """The integer that stands for 0, of a tensor quantized as a whole."""
        self._one("q_zero_point")
        return int(self._zero)

    def q_per_channel_scales(self) -> Tensor:
        """The scales (n), float64."""
        self._many("q_per_channel_scales")
        return wrap(self._scale.copy())

    def q_per_channel_zero_points(self) -> Tensor:
        """The zero points (n), int64."""
        self._many("q_per_channel_zero_points")
        return wrap(self._zero.copy())

    def q_per_channel_axis(self) -> int:
        """The dim that has the channels."""
        self._many("q_per_channel_axis")
        return self._axis  # type: ignore[return-value]

    # --- views and copies

    def _like(self, integers: np.ndarray) -> QuantizedTensor:
        return from_integers(integers, self._scale, self._zero, self._axis)

    def _with_scale(self, scale: float, zero_point: int) -> QuantizedTensor:
        """Return the same integers, standing for values of another scale."""
        return from_integers(self._q, scale, zero_point)

    def _rearranged(self, name: str) -> None:
        if self._axis is not None:
            raise NotImplementedError(f"{name} of a tensor that is quantized by channel; use dequantize() first")

    def __getitem__(self, index: Any) -> QuantizedTensor:
        self._rearranged("indexing")
        return self._like(np.asarray(self._q[index]))

    def reshape(self, *shape: Any) -> QuantizedTensor:
        """The same elements in another shape."""
        self._rearranged("reshape")
        return self._like(self._q.reshape(*shape))

    view = reshape

    def permute(self, *dims: Any) -> QuantizedTensor:
        """The dims in another order."""
        self._rearranged("permute")
        return self._like(self._q.transpose(*dims))

    def clone(self, *, memory_format: Any = None) -> QuantizedTensor:
        """A copy."""
        return self._like(self._q.copy())

    def detach(self) -> QuantizedTensor:
        """The same memory."""
        return self._like(self._q)

    def contiguous(self, memory_format: Any = None) -> QuantizedTensor:
        """With elements in order."""
        return self if self._q.flags.c_contiguous else self._like(np.ascontiguousarray(self._q))

    def cpu(self) -> QuantizedTensor:
        """The tensor itself."""
        return self

    def to(self, *args: Any, **kwargs: Any) -> QuantizedTensor:
        """The tensor itself, for the CPU.  NotImplementedError for another device or dtype."""
        if all(str(a) == "cpu" or isinstance(a, bool) for a in (*args, *kwargs.values())):
            return self
        return self._array  # type: ignore[no-any-return]

    def equal(self, other: Any) -> bool:
        """Return whether both have the same integers, scale and zero point."""
        return (
            isinstance(other, QuantizedTensor)
            and self._axis == other._axis
            and np.array_equal(self._q, other._q)
            and np.array_equal(self._scale, other._scale)
            and np.array_equal(self._zero, other._zero)
        )

    def requires_grad_(self, requires_grad: bool = True) -> QuantizedTensor:
        """RuntimeError: integers have no gradient."""
        if requires_grad:
            raise RuntimeError("only Tensors of floating point dtype can require gradients")
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> QuantizedTensor:
        if id(self) not in memo:
            memo[id(self)] = self.clone()
        return memo[id(self)]  # type: ignore[no-any-return]

    def __copy__(self) -> QuantizedTensor:
        return self.detach()

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return from_integers, (self._q, self._scale, self._zero, self._axis)

    def __repr__(self, *, tensor_contents: str | None = None) -> str:
        values = self.dequantize()
        text = contents(values._array, len("tensor("))
        suffixes = [
            f"size={tuple(self.shape)}",
            f"dtype={self.dtype}",
            f"quantization_scheme={self.qscheme()}",
        ]
        if self._axis is None:
            suffixes += [f"scale={self._scale}", f"zero_point={self._zero}"]
        else:
            suffixes += [
                f"scale={wrap(self._scale)!r}",
                f"zero_point={wrap(self._zero)!r}",
                f"axis={self._axis}",
            ]
        return _with_suffixes("tensor(" + text, suffixes, len("tensor("))


def from_integers(integers: np.ndarray, scale: Any, zero_point: Any, axis: int | None = None) -> QuantizedTensor:
    """A quantized tensor around integers that are there: (*), with scale and zero point or (n) of each along `axis`."""
    if integers.dtype not in _OF:
        raise TypeError(f"quantized tensors hold int8, uint8 or int32, not {integers.dtype}")
    result = object.__new__(QuantizedTensor)
    if axis is not None:
        scale, zero_point = np.asarray(scale, np.float64), np.asarray(zero_point, np.int64)
    result.__dict__.update(_q=integers, _scale=scale, _zero=zero_point, _axis=axis, _vc=[0])
    made(QuantizedTensor)
    return result


always[QuantizedTensor] = quantized_calls.names


def _quantized(name: str, values: np.ndarray, scale: Any, zero: Any, kind: Any) -> np.ndarray:
    """round_half_to_even(x * (1 / scale)) + zero, clipped to what the type holds; computed in float32 as in torch."""
    if kind not in STORED:
        raise RuntimeError(f"{name} expects the dtype torch.qint8, torch.quint8 or torch.qint32, got {kind}")
    if values.dtype != np.float32:
        raise RuntimeError(f"Quantize only works on Float Tensor, got {dtypes.from_numpy(values.dtype)}")
    limits = np.iinfo(STORED[kind])
    inverse = np.float32(1) / np.asarray(scale, np.float32)
    q = np.rint(values * inverse).astype(np.float64) + zero
    return np.clip(np.nan_to_num(q), limits.min, limits.max).astype(STORED[kind])


def dequantize(input: Any) -> Any:
    """The values of a quantized tensor in float32; another tensor as float32.  Lists give tuples."""
    if isinstance(input, list | tuple):
        return tuple(dequantize(each) for each in input)
    return input.dequantize() if isinstance(input, QuantizedTensor) else input.to(dtypes.float32)


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, Tensor) else value


def quantize_per_tensor(input: Any, scale: Any, zero_point: Any, dtype: Any) -> Any:
    """`input` (*) float32 as integers: round(x / scale) + zero_point.  Lists of each give a tuple.

    dtype: `torch.qint8`, `torch.quint8` or `torch.qint32`; RuntimeError for others and for inputs that are no float32.
    https://docs.pytorch.org/docs/2.13/generated/torch.quantize_per_tensor.html
    """
    if isinstance(input, list | tuple):
        return tuple(quantize_per_tensor(*each, dtype) for each in zip(input, scale, zero_point))
    step, zero = float(_number(scale)), int(_number(zero_point))
    limits = np.iinfo(STORED.get(dtype, np.dtype(np.int32)))
    if not limits.min <= zero <= limits.max:
        side = "below lower" if zero < limits.min else "above upper"
        raise RuntimeError(f"zero_point {zero} is {side} bound.")
    return from_integers(_quantized("quantize_per_tensor", _host(input), step, zero, dtype), step, zero)


def quantize_per_channel(input: Tensor, scales: Tensor, zero_points: Tensor, axis: int, dtype: Any) -> QuantizedTensor:
    """As `quantize_per_tensor` with a scale and a zero point for each index of the dim `axis`.

    input (*, n, *) float32, scales (n), zero_points (n) -> (*, n, *).  RuntimeError where they do not fit.
    """
    values = _host(input)
    axis = wrap_dim(axis, values.ndim)
    steps, zeros = _host(scales).astype(np.float64), _host(zero_points).astype(np.int64)
    if steps.shape != (values.shape[axis],) or zeros.shape != steps.shape:
        raise RuntimeError("length of scales must equal to channel, and so must that of zero_points")
    around = [1] * values.ndim
    around[axis] = -1
    q = _quantized("quantize_per_channel", values, steps.reshape(around), zeros.reshape(around), dtype)
    return from_integers(q, steps, zeros, axis)


def quantize_per_tensor_dynamic(input: Tensor, dtype: Any, reduce_range: bool) -> QuantizedTensor:
    """Quantized with the scale and zero point that the values ask for; reduce_range: with one bit less."""
    values = _host(input)
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)
    limits = np.iinfo(STORED[dtype])
    scale, zero = choose_qparams(low, high, int(limits.min), int(limits.max), reduce_range)
    return from_integers(_quantized("quantize_per_tensor_dynamic", values, scale, zero, dtype), scale, zero)


def _host(tensor: Tensor) -> np.ndarray:
    array = tensor.detach()._array
    return np.asarray(backends.of_array(array).to_host(array))


_SMALL = 6.1e-5  # below this a scale is raised to it


def choose_qparams(low: float, high: float, qmin: int, qmax: int, reduce_range: bool = False) -> tuple[float, int]:
    """(scale, zero point) that map low..high, and 0 exactly, to qmin..qmax; as FBGEMM's ChooseQuantizationParams."""
    if reduce_range:
        qmin, qmax = int(qmin / 2), int(qmax / 2)
    low, high = min(low, 0.0), max(high, 0.0)
    scale = (high - low) / (qmax - qmin)
    if np.float32(scale) == 0.0 or np.isinf(np.float32(1) / np.float32(scale)):
        scale = 0.1
    if scale < _SMALL:
        given, scale = scale, _SMALL
        if low == 0.0:
            high = _SMALL * (qmax - qmin)
        elif high == 0.0:
            low = -_SMALL * (qmax - qmin)
        else:
            low, high = low * _SMALL / given, high * _SMALL / given
    from_low, from_high = qmin - low / scale, qmax - high / scale
    errors = abs(qmin) - abs(low / scale), abs(qmax) - abs(high / scale)
    zero = from_low if errors[0] < errors[1] else from_high
    return float(np.float32(scale)), int(min(max(np.rint(zero), qmin), qmax))


def linear_dynamic(input: Tensor, weight: QuantizedTensor, bias: Tensor | None, reduce_range: bool = True) -> Tensor:
    """input @ weight.T + bias with the input quantized by its own range, products and sums of integers.

    input (*, k) float32, weight (m, k) qint8, bias (m) -> (*, m) float32.
    """
    values = _host(input)
    if values.dtype != np.float32:
        raise RuntimeError(f"expected an input of float32, got {input.dtype}")
    if not values.ndim or values.shape[-1] != weight._q.shape[1]:
        raise RuntimeError(
            f"The number of columns of the input {list(values.shape)} is not that of the weight {list(weight._q.shape)}"
        )
    rows = np.ascontiguousarray(values.reshape(-1, values.shape[-1]))
    low, high = (float(rows.min()), float(rows.max())) if rows.size else (0.0, 0.0)
    scale, zero = choose_qparams(low, high, 0, 255, reduce_range)
    inputs = _quantized("linear_dynamic", rows, scale, zero, dtypes.quint8)
    products = integer_products(inputs, zero, weight, reduce_range)
    result = products.astype(np.float32) * (np.float32(scale) * np.asarray(weight._scale, np.float32))
    if bias is not None:
        result += _host(bias)
    return wrap(result.reshape(*values.shape[:-1], result.shape[-1]))


def integer_products(inputs: np.ndarray, zero: int, weight: QuantizedTensor, safe: bool) -> np.ndarray:
    """(inputs - zero) @ (weight - its zero points).T, exactly.  safe: inputs have 7 bits."""
    q, offset = np.ascontiguousarray(weight._q), np.asarray(weight._zero)
    found = arrays.gemm_u8s8(inputs, q, zero) if safe and inputs.size and is_available() else None
    if found is None:  # sums of products of bytes are exact in float64, whose products BLAS has
        found = (inputs.astype(np.float64) - zero) @ q.astype(np.float64).T
    if offset.any():
        found = found - (inputs.astype(np.int64) - zero).sum(1, keepdims=True) * offset
    return found
