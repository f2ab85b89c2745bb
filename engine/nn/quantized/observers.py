"""Observers: modules that note the range of what passes through them, and say with which scale to quantize it.

https://docs.pytorch.org/docs/2.13/quantization-support.html
"""

from __future__ import annotations

import functools
from collections import namedtuple
from typing import Any

import numpy as np

from engine.core import dtypes
from engine.encoded.quantized import (
    STORED,
    per_channel_affine,
    per_channel_symmetric,
    per_tensor_affine,
    per_tensor_symmetric,
)
from engine.nn.modules.module import Module
from engine.tensor import Tensor, wrap

__all__ = [
    "FixedQParamsObserver",
    "HistogramObserver",
    "MinMaxObserver",
    "MovingAverageMinMaxObserver",
    "MovingAveragePerChannelMinMaxObserver",
    "NoopObserver",
    "ObserverBase",
    "PerChannelMinMaxObserver",
    "PlaceholderObserver",
    "QConfig",
    "get_default_qconfig",
]

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
        self,
        dtype: Any = dtypes.quint8,
        qscheme: Any = per_tensor_affine,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        eps: float = float(np.finfo(np.float32).eps),
        is_dynamic: bool = False,
        **more: Any,
    ) -> None:
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
        self.register_buffer("min_val", wrap(np.asarray(np.inf, np.float32)))
        self.register_buffer("max_val", wrap(np.asarray(-np.inf, np.float32)))

    def _seen(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x.amin(), x.amax()

    def forward(self, x_orig: Tensor) -> Tensor:
        """Note the range of `x_orig` and return it."""
        if x_orig.numel():
            low, high = self._seen(x_orig.detach().float())
            known = self.min_val.numel() and self.min_val.shape == low.shape
            self.min_val = low.minimum(self.min_val) if known else low
            self.max_val = high.maximum(self.max_val) if known else high
        return x_orig

    def reset_min_max_vals(self) -> None:
        """Forget what was seen."""
        self.min_val, self.max_val = wrap(np.asarray(np.inf, np.float32)), wrap(np.asarray(-np.inf, np.float32))

    def calculate_qparams(self, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """(scale float32, zero point int) for what was seen, computed in float32."""
        return self._of_range(*(np.asarray(v.numpy(), np.float32) for v in (self.min_val, self.max_val)))

    def _of_range(self, low: np.ndarray, high: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return (scale, zero point) that map low..high, float32 of one shape, to quant_min..quant_max."""
        if not np.isfinite(low).all():
            return wrap(np.ones(1, np.float32)), wrap(np.zeros(1, np.int64))
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
        return wrap(np.atleast_1d(scale)), wrap(np.atleast_1d(zero))

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


class MovingAverageMinMaxObserver(MinMaxObserver):
    """Notes averages of the least and the largest value of each call: old + averaging_constant * (new - old)."""

    def __init__(self, averaging_constant: float = 0.01, dtype: Any = dtypes.quint8, **more: Any) -> None:
        super().__init__(dtype, **more)
        self.averaging_constant = averaging_constant

    def forward(self, x_orig: Tensor) -> Tensor:
        """Note the range of `x_orig` and return it."""
        if x_orig.numel():
            low, high = self._seen(x_orig.detach().float())
            if self.min_val.shape != low.shape or not bool(self.min_val.isfinite().all()):
                self.min_val, self.max_val = low, high
            else:
                self.min_val = self.min_val + self.averaging_constant * (low - self.min_val)
                self.max_val = self.max_val + self.averaging_constant * (high - self.max_val)
        return x_orig


class MovingAveragePerChannelMinMaxObserver(MovingAverageMinMaxObserver, PerChannelMinMaxObserver):
    """Notes averages of the range that forget, for each index of the dim `ch_axis`."""

    def __init__(
        self,
        averaging_constant: float = 0.01,
        ch_axis: int = 0,
        dtype: Any = dtypes.quint8,
        qscheme: Any = per_channel_affine,
        **more: Any,
    ) -> None:
        PerChannelMinMaxObserver.__init__(self, ch_axis, dtype, qscheme, **more)
        self.averaging_constant = averaging_constant


class HistogramObserver(MinMaxObserver):
    """Notes how often values fall into `bins` parts of the range that was seen.

    The range to quantize gives up the ends of that range while the squared error of quantization does not grow.

    https://docs.pytorch.org/docs/2.13/generated/torch.ao.quantization.observer.HistogramObserver.html
    """

    histogram: Tensor

    def __init__(self, bins: int = 2048, dtype: Any = dtypes.quint8, **more: Any) -> None:
        super().__init__(dtype, **more)
        if bins < 1:
            raise ValueError(f"a histogram has at least one bin, not {bins}")
        self.bins = bins
        self.register_buffer("histogram", wrap(np.zeros(bins, np.float32)))

    def forward(self, x_orig: Tensor) -> Tensor:
        """Count the values of `x_orig` and return it."""
        values = x_orig.detach().float().numpy().ravel()
        if not values.size:
            return x_orig
        low, high, known = values.min(), values.max(), self.histogram.numpy()
        if not (np.isfinite(low) and np.isfinite(high)):
            raise ValueError(f"the range of an observed tensor is {low} to {high}: quantization needs finite values")
        old_low, old_high = self.min_val.numpy()[()], self.max_val.numpy()[()]
        if np.isfinite(old_low):
            low, high = min(low, old_low), max(high, old_high)
            known = _spread(known, (old_low, old_high), (low, high))
        counts = _counts(values, self.bins, low, high)
        self.histogram = wrap((known + counts).astype(np.float32))
        self.min_val, self.max_val = wrap(np.asarray(low, np.float32)), wrap(np.asarray(high, np.float32))
        return x_orig

    def calculate_qparams(self, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """(scale float32 (1), zero point int (1)) for the part of the range that gives the least error."""
        low, high = self.min_val.numpy()[()], self.max_val.numpy()[()]
        if not np.isfinite(low):
            return self._of_range(low, high)
        width = (high - low) / np.float32(self.bins)
        levels = 2 ** (8 * STORED[self.dtype].itemsize)
        first, last = _cropped(self.histogram.numpy(), float(width), levels)
        return self._of_range(np.float32(low + width * first), np.float32(low + width * (last + 1)))

    def reset_min_max_vals(self) -> None:
        """Forget what was seen."""
        super().reset_min_max_vals()
        self.histogram = wrap(np.zeros(self.bins, np.float32))


def _counts(values: np.ndarray, bins: int, low: Any, high: Any) -> np.ndarray:
    """Return how many values are in each of `bins` equal parts of low..high; one value alone is in the middle."""
    if low == high:
        low, high = low - 1, high + 1
    return np.histogram(values, bins, (low, high))[0]


_FINER = 16  # parts of a bin when a histogram is laid over a wider range


def _spread(counts: np.ndarray, old: tuple[Any, Any], new: tuple[Any, Any]) -> np.ndarray:
    """Return a histogram of the range `old` as one of the range `new`, which contains it."""
    bins = counts.size
    if old == new:
        return counts
    if old[0] == old[1]:
        return _counts(np.asarray([old[0]]), bins, *new) * counts.sum()
    fine = bins * _FINER
    width = (old[1] - old[0]) / np.float32(fine)
    middles = np.linspace(*old, fine + 1, dtype=np.float32)[:-1] + np.float32(0.5) * width
    edges = np.linspace(*new, bins + 1, dtype=np.float32)
    places = np.clip(np.searchsorted(edges, middles, side="right") - 1, 0, bins - 1)
    return np.bincount(places, np.repeat(counts / np.float32(_FINER), _FINER), bins)


def _cropped(counts: np.ndarray, width: float, levels: int) -> tuple[int, int]:
    """Return the first and the last bin of the range to quantize: from both ends bins go, first where more of them hold
    as few values, until the error grows."""
    bins, total, sums = counts.size, float(counts.sum()), np.cumsum(counts, dtype=np.float64)
    step, alpha, beta = 1e-5, 0.0, 1.0
    first, last, least = 0, bins - 1, np.inf
    while alpha < beta:
        below, above = alpha + step, beta - step
        left = min(max(first, int(np.searchsorted(sums, below * total, side="left"))), last)
        right = max(min(last, int(np.searchsorted(sums, above * total, side="right")) - 1), first)
        trial = first, last
        if left - first > last - right:
            trial, alpha = (left, last), below
        else:
            trial, beta = (first, right), above
        if trial == (first, last):
            continue
        error = _error(counts, width, *trial, levels)
        if error > least:
            break
        least, (first, last) = error, trial
    return first, last


def _error(counts: np.ndarray, width: float, first: int, last: int, levels: int) -> float:
    """Return the summed squared error of values that are spread evenly over their bins, when they are quantized to
    `levels` levels that cover the bins first..last."""
    level = width * (last - first + 1) / levels
    if level == 0.0:
        return 0.0
    begin = (np.arange(counts.size) - first) * width
    end = begin + width
    low, high = (np.clip(np.floor(edge / level), 0, levels - 1) for edge in (begin, end))
    density = counts / width
    half = level / 2

    def squared(start: Any, stop: Any) -> Any:
        return density * (stop**3 - start**3) / 3

    error = squared(begin - (low + 0.5) * level, half)
    error = error + (high - low - 1) * squared(-half, half)
    error = error + squared(-half, end - (high * level + half))
    return float(error.sum())


class NoopObserver(ObserverBase):
    """Notes nothing, for dtypes that need no range."""

    def __init__(self, dtype: Any = dtypes.float16, custom_op_name: str = "") -> None:
        super().__init__(dtype)
        self.custom_op = custom_op_name

    def forward(self, x: Tensor) -> Tensor:
        """`x`."""
        return x

    def calculate_qparams(self, **kwargs: Any) -> Any:
        """Exception: it has none."""
        raise Exception("calculate_qparams should not be called for NoopObserver")


class FixedQParamsObserver(ObserverBase):
    """Says a scale and a zero point that are known beforehand: those of sigmoid, tanh and softmax."""

    def __init__(self, scale: float, zero_point: int, dtype: Any = dtypes.quint8, **more: Any) -> None:
        super().__init__(dtype)
        self.scale, self.zero_point = wrap(np.asarray([scale], np.float32)), wrap(np.asarray([zero_point]))
        self.quant_min, self.quant_max = more.get("quant_min", 0), more.get("quant_max", 255)

    def forward(self, x: Tensor) -> Tensor:
        """`x`."""
        return x

    def calculate_qparams(self, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """(scale (1), zero point (1))."""
        return self.scale, self.zero_point


default_observer = MinMaxObserver.with_args(quant_min=0, quant_max=127)
default_weight_observer = MinMaxObserver.with_args(dtype=dtypes.qint8, qscheme=per_tensor_symmetric)
default_per_channel_weight_observer = PerChannelMinMaxObserver.with_args(
    dtype=dtypes.qint8, qscheme=per_channel_symmetric
)
default_histogram_observer = HistogramObserver.with_args(quant_min=0, quant_max=127)
default_debug_observer = NoopObserver
default_fixed_qparams_range_0to1_observer = FixedQParamsObserver.with_args(scale=1.0 / 256.0, zero_point=0)
default_fixed_qparams_range_neg1to1_observer = FixedQParamsObserver.with_args(scale=2.0 / 256.0, zero_point=128)
default_qconfig = QConfig(default_observer, default_weight_observer)
default_per_channel_qconfig = QConfig(default_observer, default_per_channel_weight_observer)
default_dynamic_quant_observer = PlaceholderObserver.with_args(
    dtype=dtypes.quint8, quant_min=0, quant_max=255, is_dynamic=True
)
default_dynamic_qconfig = QConfig(default_dynamic_quant_observer, default_weight_observer)
per_channel_dynamic_qconfig = QConfig(default_dynamic_quant_observer, default_per_channel_weight_observer)
float16_dynamic_qconfig = QConfig(
    PlaceholderObserver.with_args(dtype=dtypes.float16, is_dynamic=True),
    PlaceholderObserver.with_args(dtype=dtypes.float16),
)


def get_default_qconfig(backend: str = "x86", version: int = 0) -> QConfig:
    """The observers for a backend's modules: "x86", "fbgemm" (results of 7 bits, so that sums of two products fit 16),
    "onednn" or "qnnpack" (8 bits).  AssertionError for other names."""
    if version != 0:
        raise AssertionError(
            f"Version number: {version} in get_default_qconfig is not supported. Version number must be 0"
        )
    if backend not in ("x86", "fbgemm", "onednn", "qnnpack"):
        raise AssertionError(
            f"backend: {backend} not supported. backend must be one of ['fbgemm', 'x86', 'qnnpack', 'onednn']"
        )
    activation = HistogramObserver.with_args(reduce_range=backend in ("x86", "fbgemm"))
    return QConfig(activation, default_weight_observer if backend == "qnnpack" else default_per_channel_weight_observer)
