"""Windows of a signal, torch.signal.windows' names: each gives (M,).

https://docs.pytorch.org/docs/2.13/signal.html
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from engine.core import dtypes
from engine.ops import functions as torch
from engine.tensor import Tensor

__all__ = [
    "bartlett",
    "blackman",
    "cosine",
    "exponential",
    "gaussian",
    "general_cosine",
    "general_hamming",
    "hamming",
    "hann",
    "kaiser",
    "nuttall",
]


def _window(
    name: str,
    M: int,
    shape: Callable[[Tensor, int], Tensor],
    dtype: Any,
    layout: Any,
    device: Any,
    requires_grad: bool,
) -> Tensor:
    """`shape(n, size)` at n = 0 ... M - 1 of a window of `size` points."""
    dtype = dtypes.get_default_dtype() if dtype is None else dtype
    if M < 0:
        raise ValueError(f"{name} requires non-negative window length, got M={M}")
    if layout is not None and layout is not torch.strided:
        raise ValueError(f"{name} is implemented for strided tensors only, got: {layout}")
    if dtype not in (dtypes.float32, dtypes.float64):
        raise ValueError(f"{name} expects float32 or float64 dtypes, got: {dtype}")
    n = torch.arange(M, dtype=dtypes.float64)
    made = shape(n, M) if M > 1 else torch.ones(M, dtype=dtypes.float64)
    return made.to(device=device, dtype=dtype).requires_grad_(requires_grad)


def _cosines(n: Tensor, steps: int, weights: Iterable[float]) -> Tensor:
    """sum over i of (-1)^i weights[i] cos(2 pi i n / steps)."""
    total = torch.zeros_like(n)
    for i, weight in enumerate(weights):
        total = total + (-1) ** i * weight * torch.cos(n * (2 * math.pi * i / steps))
    return total


def general_cosine(
    M: int,
    *,
    a: Iterable[float],
    sym: bool = True,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """sum over i of (-1)^i a[i] cos(2 pi i n / (M - 1)), or / M where sym is False (for spectra).  -> (M,).

    Like all windows here: float32 or float64 (default: the default dtype); ValueError for a negative M, another dtype
    or layout.
    """
    a = list(a)
    if not a:
        raise ValueError("Coefficients cannot be empty")
    return _window(
        "general_cosine", M, lambda n, m: _cosines(n, m - 1 if sym else m, a), dtype, layout, device, requires_grad
    )


def general_hamming(
    M: int,
    *,
    alpha: float = 0.54,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """alpha - (1 - alpha) cos(2 pi n / (M - 1)).  -> (M,)."""
    return general_cosine(
        M, a=[alpha, 1.0 - alpha], sym=sym, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad
    )


def hamming(
    M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """0.54 - 0.46 cos(2 pi n / (M - 1)).  -> (M,)."""
    return general_hamming(M, sym=sym, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad)


def hann(
    M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """(1 - cos(2 pi n / (M - 1))) / 2.  -> (M,)."""
    return general_hamming(
        M, alpha=0.5, sym=sym, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad
    )


def blackman(
    M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """`general_cosine` with a = 0.42, 0.5, 0.08.  -> (M,)."""
    return general_cosine(
        M, a=[0.42, 0.5, 0.08], sym=sym, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad
    )


def nuttall(
    M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """`general_cosine` with Nuttall's minimum four terms, 0.3635819, 0.4891775, 0.1365995, 0.0106411.  -> (M,)."""
    return general_cosine(
        M,
        a=[0.3635819, 0.4891775, 0.1365995, 0.0106411],
        sym=sym,
        dtype=dtype,
        layout=layout,
        device=device,
        requires_grad=requires_grad,
    )


def bartlett(
    M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """1 - |2 n / (M - 1) - 1|, a triangle.  -> (M,)."""
    return _window(
        "bartlett",
        M,
        lambda n, m: 1 - torch.abs(n * (2 / (m - 1 if sym else m)) - 1),
        dtype,
        layout,
        device,
        requires_grad,
    )


def cosine(
    M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """sin(pi (n + 1/2) / M), half a period; M + 1 where sym is False.  -> (M,)."""
    return _window(
        "cosine",
        M,
        lambda n, m: torch.sin((n + 0.5) * (math.pi / (m if sym else m + 1))),
        dtype,
        layout,
        device,
        requires_grad,
    )


def exponential(
    M: int,
    *,
    center: float | None = None,
    tau: float = 1.0,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """exp(-|n - center| / tau), center (M - 1) / 2, or M / 2 where sym is False.  -> (M,).

    Raises ValueError unless tau > 0, and for a center given with sym=True.
    """
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")

    def shape(n: Tensor, m: int) -> Tensor:
        middle = (m if not sym else m - 1) / 2 if center is None else center
        return torch.exp(-torch.abs(n - middle) / tau)

    return _window("exponential", M, shape, dtype, layout, device, requires_grad)


def gaussian(
    M: int,
    *,
    std: float = 1.0,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """exp(-((n - (M - 1) / 2) / std)^2 / 2); M / 2 where sym is False.  -> (M,).  Raises ValueError unless std > 0."""
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")
    return _window(
        "gaussian",
        M,
        lambda n, m: torch.exp(-(((n - (m if not sym else m - 1) / 2) / std) ** 2) / 2),
        dtype,
        layout,
        device,
        requires_grad,
    )


def kaiser(
    M: int,
    *,
    beta: float = 12.0,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """I0(beta sqrt(1 - (2 n / (M - 1) - 1)^2)) / I0(beta).  -> (M,).  Raises ValueError for a negative beta."""
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")

    def shape(n: Tensor, m: int) -> Tensor:
        at = n * (2 / (m - 1 if sym else m)) - 1
        root = torch.sqrt(torch.clamp(1 - at * at, min=0))
        return torch.i0(beta * root) / torch.i0(torch.tensor(float(beta), dtype=dtypes.float64))

    return _window("kaiser", M, shape, dtype, layout, device, requires_grad)
