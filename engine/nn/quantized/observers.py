"""Observers: modules that note the range of what passes through them, and say with which scale to quantize it.

https://docs.pytorch.org/docs/2.13/quantization-support.html
"""

from __future__ import annotations

import functools
from collections import namedtuple
from typing import Any

import numpy as np

import engine
from engine import dtypes
from engine.nn.modules.module import Module
from engine.quantized import STORED, per_channel_affine, per_channel_symmetric, per_tensor_affine, per_tensor_symmetric
from engine.tensor import Tensor

__all__ = ["MinMaxObserver", "ObserverBase", "PerChannelMinMaxObserver", "PlaceholderObserver", "QConfig"]

QConfig = namedtuple("QConfig", ["activation", "weight"])
QConfig.__doc__ = "How a module is quantized: what makes the observers of its results and of its weight."


class ObserverBase(Module):
    """A module that watches values and passes them on."""

    def __init__(self, dtype: Any, is_dynamic: bool = False) -> None:
        super().__init__()
        self.dtype, self.is_dynamic = dtype, is_dynamic

    @classmethod
    def with_args(cls, **kwargs: Any) -> Any:
        """A function that makes one with these arguments."""
        return functools.partial(cls, **kwargs)

    def calculate_qparams(self, **kwargs: Any) -> Any:
        """(scale, zero point)."""
        raise NotImplementedError


class PlaceholderObserver(ObserverBase):
    """Notes nothing: says that inputs are quantized call by call."""

    def __init__(self, dtype: Any = dtypes.float32, **more: Any) -> None:
        super().__init__(dtype, more.get("is_dynamic", False))
        self.quant_min, self.quant_max = more.get("quant_min"), more.get("quant_max")

    def forward(self, x: Tensor) -> Tensor:
        """`x`."""
        return x


class MinMaxObserver(ObserverBase):
    """Notes the least and the largest value of all it sees.  (*) -> (*)."""

    min_val: Tensor
    max_val: Tensor

    def __init__(
        self, dtype: Any = dtypes.quint8, qscheme: Any = per_tensor_affine, reduce_range: bool = False,
        quant_min: int | None = None, quant_max: int | None = None, eps: float = float(np.finfo(np.float32).eps),
        is_dynamic: bool = False, **more: Any,
    ) -> None:  # fmt: skip
        super().__init__(dtype, is_dynamic)
        if dtype not in STORED:
            raise RuntimeError(f"Default Observer only works for quantized dtypes, got {dtype}")
        limits = np.iinfo(STORED[dtype])
        low, high = int(limits.min), int(limits.max)
        if reduce_range:
            low, high = int(low / 2), high // 2
        self.qscheme, self.reduce_range, self.eps = qscheme, reduce_range, eps
        self.quant_min = low if quant_min is None else quant_min
        self.quant_max = high if quant_max is None else quant_max
        self.register_buffer("min_val", engine.tensor(float("inf")))
        self.register_buffer("max_val", engine.tensor(float("-inf")))

    def _seen(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x.amin(), x.amax()

    def forward(self, x_orig: Tensor) -> Tensor:
        """Note the range of `x_orig` and return it."""
        if x_orig.numel():
            low, high = self._seen(x_orig.detach().float())
            known = self.min_val.numel() and self.min_val.shape == low.shape
            self.min_val = engine.minimum(low, self.min_val) if known else low
            self.max_val = engine.maximum(high, self.max_val) if known else high
        return x_orig

    def reset_min_max_vals(self) -> None:
        """Forget what was seen."""
        self.min_val, self.max_val = engine.tensor(float("inf")), engine.tensor(float("-inf"))

    def calculate_qparams(self, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """(scale float32, zero point int) for what was seen, computed in float32."""
        low, high = (np.asarray(v.numpy(), np.float32) for v in (self.min_val, self.max_val))
        if not np.isfinite(low).all():
            return engine.tensor([1.0]), engine.tensor([0])
        low, high = np.minimum(low, 0), np.maximum(high, 0)
        zero = np.zeros(low.shape, np.int64)
        steps = self.quant_max - self.quant_min
        if self.qscheme in (per_tensor_symmetric, per_channel_symmetric):
            scale = np.maximum(-low, high) / np.float32(steps / 2)
            scale = np.maximum(scale, np.float32(self.eps))
            if self.dtype is dtypes.quint8:
                zero = zero + 128
        else:
            scale = np.maximum((high - low) / np.float32(steps), np.float32(self.eps))
            zero = self.quant_min - np.rint(low / scale).astype(np.int64)
            zero = np.clip(zero, self.quant_min, self.quant_max)
        return engine.from_numpy(np.atleast_1d(scale)), engine.from_numpy(np.atleast_1d(zero))

    def extra_repr(self) -> str:
        """The range that was seen."""
        return f"min_val={self.min_val}, max_val={self.max_val}"


class PerChannelMinMaxObserver(MinMaxObserver):
    """Notes the range for each index of the dim `ch_axis`."""

    def __init__(self, ch_axis: int = 0, dtype: Any = dtypes.quint8, qscheme: Any = per_channel_affine, **more: Any):
        super().__init__(dtype, qscheme, **more)
        self.ch_axis = ch_axis

    def _seen(self, x: Tensor) -> tuple[Tensor, Tensor]:
        rows = x.transpose(0, self.ch_axis).flatten(1) if x.dim() > 1 else x.reshape(-1, 1)
        return rows.amin(1), rows.amax(1)


default_observer = MinMaxObserver.with_args(quant_min=0, quant_max=127)
default_weight_observer = MinMaxObserver.with_args(dtype=dtypes.qint8, qscheme=per_tensor_symmetric)
default_per_channel_weight_observer = PerChannelMinMaxObserver.with_args(
    dtype=dtypes.qint8, qscheme=per_channel_symmetric
)
default_dynamic_quant_observer = PlaceholderObserver.with_args(
    dtype=dtypes.quint8, quant_min=0, quant_max=255, is_dynamic=True
)
default_dynamic_qconfig = QConfig(default_dynamic_quant_observer, default_weight_observer)
per_channel_dynamic_qconfig = QConfig(default_dynamic_quant_observer, default_per_channel_weight_observer)
float16_dynamic_qconfig = QConfig(
    PlaceholderObserver.with_args(dtype=dtypes.float16, is_dynamic=True),
    PlaceholderObserver.with_args(dtype=dtypes.float16),
)
