"""Fourier transforms of torch 0.4 to 1.7: complex values as pairs in a last dim of size 2.

`torch.fft` is a module since 1.8; it can still be called as the function it was.
"""

from __future__ import annotations

from typing import Any

from engine.dispatch import PUBLIC, composite, samples
from engine.ops.spectral import fft_c2c, fft_c2r, fft_r2c, padded
from engine.tensor import Tensor


def _dims(name: str, input: Tensor, signal_ndim: int, pairs: bool) -> tuple[int, ...]:
    """The transformed dims of the complex (or real) tensor."""
    ndim = input._array.ndim - pairs
    if signal_ndim not in (1, 2, 3):
        raise RuntimeError(f"{name}: expected signal_ndim to be 1, 2, or 3, but got signal_ndim={signal_ndim}")
    if ndim < signal_ndim:
        least = signal_ndim + pairs
        raise RuntimeError(
            f"Given signal_ndim={signal_ndim}, expected an input tensor of at least "
            f"{least}D{' (complex input adds an extra dimension)' if pairs else ''}, but got input={list(input.shape)}"
        )
    if pairs and input._array.shape[-1] != 2:
        raise RuntimeError(
            "Expected an input tensor with a last dimension of size 2 representing real + imaginary components, but "
            f"got input {list(input.shape)}"
        )
    return tuple(range(ndim - signal_ndim, ndim))


def _complex(input: Tensor) -> Tensor:
    return PUBLIC["view_as_complex"](input.contiguous())


def old_fft(input: Tensor, signal_ndim: int, normalized: bool = False) -> Tensor:
    """The transform over the last dims of complex pairs.  input (*, 2) -> (*, 2)."""
    dims = _dims("fft", input, signal_ndim, True)
    return PUBLIC["view_as_real"](fft_c2c(_complex(input), dims, int(normalized), True))


@composite()
@samples(lambda t: [(t(3, 2), 1), (t(2, 3, 2), 2, True)])
def ifft(input: Tensor, signal_ndim: int, normalized: bool = False):
    """The inverse transform over the last dims of complex pairs.  input (*, 2) -> (*, 2)."""
    dims = _dims("ifft", input, signal_ndim, True)
    return PUBLIC["view_as_real"](fft_c2c(_complex(input), dims, 1 if normalized else 2, False))


@composite()
@samples(lambda t: [(t(4), 1), (t(2, 3), 2, True), (t(2, 3), 1, False, False)])
def rfft(input: Tensor, signal_ndim: int, normalized: bool = False, onesided: bool = True):
    """The transform over the last dims of real values; onesided: n // 2 + 1 of the last.  input (*) -> (*, 2)."""
    dims = _dims("rfft", input, signal_ndim, False)
    return PUBLIC["view_as_real"](fft_r2c(input, dims, int(normalized), onesided))


@composite()
@samples(lambda t: [(t(3, 2), 1), (t(2, 3, 2), 2, True), (t(3, 2), 1, False, True, (5,))])
def irfft(
    input: Tensor,
    signal_ndim: int,
    normalized: bool = False,
    onesided: bool = True,
    signal_sizes: tuple[int, ...] | None = None,
):
    """The inverse of `rfft`; signal_sizes: the sizes of the result's last dims.  input (*, 2) -> (*)."""
    dims = _dims("irfft", input, signal_ndim, True)
    x: Any = _complex(input)
    have = x._array.shape[dims[-1]]
    size = signal_sizes[-1] if signal_sizes else 2 * (have - 1) if onesided else have
    return fft_c2r(padded(x, dims[-1], size // 2 + 1), dims, 1 if normalized else 2, size)


Tensor.fft = old_fft
