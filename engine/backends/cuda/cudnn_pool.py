"""Pooling by cuDNN's C functions: cudnn-frontend has none for Python.

Windows must lie on the grid that cuDNN computes itself: no dilation, and no window beyond the padded input (`ceil_mode`
where it adds one).  Maxima take the first of equal ones and hand NaN on, as torch's do.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Any

from engine.backends.cuda.cudnn import Cudnn, ints
from engine.backends.cuda.cudnn_graph import layout
from engine.core.layouts import is_channels_last

__all__ = ["AVERAGE", "AVERAGE_INSIDE", "MAX", "backward", "forward"]

MAX, AVERAGE, AVERAGE_INSIDE = 3, 1, 2  # MAX_DETERMINISTIC, AVERAGE_COUNT_INCLUDE_PADDING, ..._EXCLUDE_PADDING
_PROPAGATE_NAN = 1


@contextlib.contextmanager
def _pool(cudnn: Cudnn, mode: int, kernel: Any, stride: Any, padding: Any) -> Iterator[int]:
    with cudnn.descriptor("Pooling") as made:
        cudnn.call(
            "cudnnSetPoolingNdDescriptor",
            made,
            mode,
            _PROPAGATE_NAN,
            len(kernel),
            ints(kernel),
            ints(padding),
            ints(stride),
        )
        yield made


def _tensor(cudnn: Cudnn, array: Any) -> Any:
    how = layout(array, is_channels_last(array))
    return cudnn.tensor(array.dtype.name, how.dims, how.strides)


def _factors(array: Any) -> tuple[Any, Any]:
    """1 and 0 as cuDNN wants them: for the result, and for what was there."""
    number = ctypes.c_double if array.dtype.name == "float64" else ctypes.c_float
    return ctypes.byref(number(1)), ctypes.byref(number(0))


def forward(cudnn: Cudnn, mode: int, x: Any, y: Any, kernel: Any, stride: Any, padding: Any) -> None:
    """y = the maximum or mean of each window of x.  x (N, C, *size), y (N, C, *out), 4-d or 5-d."""
    one, nothing = _factors(x)
    with _pool(cudnn, mode, kernel, stride, padding) as pool, _tensor(cudnn, x) as of_x, _tensor(cudnn, y) as of_y:
        cudnn.call(
            "cudnnPoolingForward", cudnn.handle(), pool, one, of_x, int(x.data.ptr), nothing, of_y, int(y.data.ptr)
        )


def backward(
    cudnn: Cudnn, mode: int, grad: Any, x: Any, y: Any, made: Any, kernel: Any, stride: Any, padding: Any
) -> None:
    """made = the gradient of x.  grad and y lie alike, made and x too."""
    one, nothing = _factors(x)
    with _pool(cudnn, mode, kernel, stride, padding) as pool, _tensor(cudnn, x) as of_x, _tensor(cudnn, y) as of_y:
        cudnn.call(
            "cudnnPoolingBackward",
            cudnn.handle(),
            pool,
            one,
            of_y,
            int(y.data.ptr),
            of_y,
            int(grad.data.ptr),
            of_x,
            int(x.data.ptr),
            nothing,
            of_x,
            int(made.data.ptr),
        )
