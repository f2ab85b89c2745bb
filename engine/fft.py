"""Discrete Fourier transforms (torch.fft): `fft`, `rfft`, `irfft2`, `hfftn`, `fftfreq`, `fftshift`, with gradients.

norm: "backward" (the default) scales the inverse by 1/n, "ortho" both by 1/sqrt(n), "forward" the forward one by 1/n.
https://docs.pytorch.org/docs/2.13/fft.html
"""

from __future__ import annotations

import operator
import sys
import types
from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.autograd.graph import name_node
from engine.autograd.versions import guard
from engine.core import dtypes
from engine.core.checks import wrap_dim
from engine.dispatch import PUBLIC
from engine.dispatch.arguments import checked
from engine.dispatch.out import store, store_result
from engine.ops.creation import placed
from engine.ops.products import scalar_name
from engine.ops.spectral import check_type, fft_c2c, fft_c2r, fft_r2c, padded
from engine.ops.spectral_old import old_fft
from engine.tensor import Tensor, wrap

__all__ = [
    "fft",
    "fft2",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "hfft2",
    "hfftn",
    "ifft",
    "ifft2",
    "ifftn",
    "ifftshift",
    "ihfft",
    "ihfft2",
    "ihfftn",
    "irfft",
    "irfft2",
    "irfftn",
    "rfft",
    "rfft2",
    "rfftfreq",
    "rfftn",
]

_Dims = Sequence[int] | int | None


def _norm(mode: str | None, forward: bool) -> int:
    """Return the code of the divisor of the result: 0 nothing, 1 sqrt(n), 2 n."""
    if mode is None or mode == "backward":
        return 0 if forward else 2
    if mode == "forward":
        return 2 if forward else 0
    if mode == "ortho":
        return 1
    raise RuntimeError(f'Invalid normalization mode: "{mode}"')


def _as_float(x: Tensor) -> Tensor:
    check_type(x._array)
    return x.to(dtypes.get_default_dtype()) if x.dtype.category < dtypes.FLOATING else x


def _as_complex(x: Tensor) -> Tensor:
    x = _as_float(x)
    return x if x.dtype.is_complex else x.to(x.dtype.to_complex())


def _one_dim(x: Tensor, dim: int) -> int:
    if not x._array.ndim:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    return wrap_dim(dim, x._array.ndim)


def _points(n: int) -> int:
    if n < 1:
        raise RuntimeError(f"Invalid number of data points ({n}) specified")
    return n


def _one(name: str, kind: str, forward: bool, x: Tensor, n: int | None, dim: int, norm: str | None) -> Tensor:
    """A transform over one dim.  kind: "c2c", "r2c" or "c2r"."""
    if kind == "r2c" and x.dtype.is_complex:
        raise RuntimeError(f"{name} expects a real input tensor, but got {scalar_name(x._array)}")
    real = not x.is_complex()
    x = _as_complex(x) if kind == "c2r" else _as_float(x)
    d = _one_dim(x, dim)
    have = x._array.shape[d]
    if kind == "c2r":
        points = _points(2 * (have - 1) if n is None else n)
        x = padded(x, d, points // 2 + 1)
        if forward:  # hfft: of the conjugate, unscaled
            x = x.conj()
        return fft_c2r(x, (d,), _norm(norm, forward), points)
    x = padded(x, d, _points(have if n is None else n))
    if kind == "c2c":
        if real and forward:
            return fft_r2c(x, (d,), _norm(norm, True), False)
        return _of_real(real, fft_c2c(_as_complex(x), (d,), _norm(norm, forward), forward), forward, x)
    result = fft_r2c(x, (d,), _norm(norm, forward), True)
    return result if forward else result.conj()


def _of_real(real: bool, result: Tensor, forward: bool, x: Tensor) -> Tensor:
    """A transform of x, which may have been real: torch then has a kernel for half of the spectrum, which saves x."""
    return guard(name_node(result, "FftR2CBackward0" if forward else "ConjBackward0"), x) if real else result


def _sizes(x: Tensor, s: _Dims, dim: _Dims) -> tuple[list[int], list[int | None]]:
    """Wrapped dims and the size asked for each (None: as it is)."""
    array = x._array
    if isinstance(s, int):
        s = (s,)
    if isinstance(dim, int):
        dim = (dim,)
    if dim is not None:
        dims = [_one_dim(x, d) for d in dim]
        if len(set(dims)) != len(dims):
            raise RuntimeError("FFT dims must be unique")
    if s is not None:
        if dim is not None and len(dim) != len(s):
            raise RuntimeError("When given, dim and shape arguments must have the same length")
        if len(s) > array.ndim:
            raise RuntimeError(f"Got shape with {len(s)} values but input tensor only has {array.ndim} dimensions.")
        if dim is None:
            dims = list(range(array.ndim - len(s), array.ndim))
        sizes: list[int | None] = [None if n == -1 else n for n in s]
    else:
        if dim is None:
            dims = list(range(array.ndim))
        sizes = [None] * len(dims)
    return dims, sizes


def _checked(x: Tensor, dims: list[int], sizes: list[int | None]) -> list[int]:
    return [_points(x._array.shape[d] if n is None else n) for d, n in zip(dims, sizes)]


def _resized(x: Tensor, dims: Sequence[int], sizes: Sequence[int]) -> Tensor:
    for d, n in zip(dims, sizes):
        x = padded(x, d, n)
    return x


def _many_c2c(x: Tensor, s: _Dims, dim: _Dims, norm: str | None, forward: bool) -> Tensor:
    x = _as_float(x) if forward else _as_complex(x)
    dims, sizes = _sizes(x, s, dim)
    x = _resized(x, dims, _checked(x, dims, sizes))
    mode = _norm(norm, forward)
    if dims and not x.dtype.is_complex:
        return name_node(fft_r2c(x, tuple(dims), mode, False), "FftC2CBackward0")
    return fft_c2c(x, tuple(dims), mode, forward) if dims else _as_complex(x).clone()


def _many_r2c(name: str, x: Tensor, s: _Dims, dim: _Dims, norm: str | None) -> Tensor:
    if x.dtype.is_complex:
        raise RuntimeError(f"{name} expects a real-valued input tensor, but got {scalar_name(x._array)}")
    x = _as_float(x)
    dims, sizes = _sizes(x, s, dim)
    if not dims:
        raise RuntimeError(f"{name} must transform at least one axis")
    x = _resized(x, dims, _checked(x, dims, sizes))
    return fft_r2c(x, tuple(dims), _norm(norm, True), True)


def _half(name: str, x: Tensor, s: _Dims, dim: _Dims) -> tuple[Tensor, list[int], list[int], int]:
    """A half spectrum resized: the tensor, dims, sizes of the result, and its last size."""
    x = _as_complex(x)
    dims, sizes = _sizes(x, s, dim)
    if not dims:
        raise RuntimeError(f"{name} must transform at least one axis")
    _checked(x, dims, sizes)
    last = 2 * (x._array.shape[dims[-1]] - 1) if sizes[-1] is None else sizes[-1]
    counts = [x._array.shape[d] if n is None else n for d, n in zip(dims, sizes)]
    counts[-1] = last
    for n in counts:
        _points(n)
    x = _resized(x, dims, [*counts[:-1], last // 2 + 1])
    return x, dims, counts, last


def _many_c2r(name: str, x: Tensor, s: _Dims, dim: _Dims, norm: str | None) -> Tensor:
    x, dims, _, last = _half(name, x, s, dim)
    return fft_c2r(x, tuple(dims), _norm(norm, False), last)


def _many_hermitian(name: str, x: Tensor, s: _Dims, dim: _Dims, norm: str | None) -> Tensor:
    """Forward transform of a Hermitian half spectrum to real values."""
    x, dims, _, last = _half(name, x, s, dim)
    mode = _norm(norm, True)
    if len(dims) > 1:
        x = fft_c2c(x, tuple(dims[:-1]), mode, True)
    return fft_c2r(x.conj(), (dims[-1],), mode, last)


def _many_inverse_hermitian(name: str, x: Tensor, s: _Dims, dim: _Dims, norm: str | None) -> Tensor:
    """Inverse of `_many_hermitian`: real values to a half spectrum."""
    if x.dtype.is_complex:
        raise RuntimeError(f"Only supports floating-point dtypes, but found: {scalar_name(x._array)}")
    x = _as_float(x)
    dims, sizes = _sizes(x, s, dim)
    if not dims:
        raise RuntimeError(f"{name} must transform at least one axis")
    x = _resized(x, dims, _checked(x, dims, sizes))
    mode = _norm(norm, False)
    result = fft_r2c(x, (dims[-1],), mode, True).conj()
    return fft_c2c(result, tuple(dims[:-1]), mode, False) if len(dims) > 1 else result


def _with_out(name: str, out: Any, make: Any, *given: Tensor) -> Any:
    """make(), into `out` if there is one: what then refuses a tensor of `given` that requires grad.

    An inverse transform of real numbers is the conjugate of another one, copied into `out`, which takes its history.
    """
    if out is None:
        return make()
    conjugated = name in ("ifft", "ihfft") and not given[0].is_complex()
    return (store_result if conjugated else store)(out, name, lambda *_: make(), *given)


def fft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None, *, out: Any = None) -> Tensor:
    """The transform over `dim`, cut or filled with zeros to n points.  input (*) -> (*) complex."""
    return _with_out("fft", out, lambda: _one("fft", "c2c", True, input, n, dim, norm), input)


def ifft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None, *, out: Any = None) -> Tensor:
    """The inverse of `fft`.  input (*) -> (*) complex."""
    return _with_out("ifft", out, lambda: _one("ifft", "c2c", False, input, n, dim, norm), input)


def rfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None, *, out: Any = None) -> Tensor:
    """The n // 2 + 1 first points of the transform of real values.  input (*) real -> (*) complex."""
    return _with_out("rfft", out, lambda: _one("rfft", "r2c", True, input, n, dim, norm), input)


def irfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None, *, out: Any = None) -> Tensor:
    """The inverse of `rfft`; n defaults to 2 (m - 1).  input (*) -> (*) real."""
    return _with_out("irfft", out, lambda: _one("irfft", "c2r", False, input, n, dim, norm), input)


def hfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None, *, out: Any = None) -> Tensor:
    """The transform of a Hermitian signal given by its first half.  input (*) -> (*) real."""
    return _with_out("hfft", out, lambda: _one("hfft", "c2r", True, input, n, dim, norm), input)


def ihfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None, *, out: Any = None) -> Tensor:
    """The inverse of `hfft`.  input (*) real -> (*) complex."""
    return _with_out("ihfft", out, lambda: _one("ihfft", "r2c", False, input, n, dim, norm), input)


def fftn(input: Tensor, s: _Dims = None, dim: _Dims = None, norm: str | None = None, *, out: Any = None) -> Tensor:
    """The transform over several dims (all by default).  input (*) -> (*) complex."""
    return _with_out("fftn", out, lambda: _many_c2c(input, s, dim, norm, True), input)


def ifftn(input: Tensor, s: _Dims = None, dim: _Dims = None, norm: str | None = None, *, out: Any = None) -> Tensor:
    """The inverse of `fftn`.  input (*) -> (*) complex."""
    return _with_out("ifftn", out, lambda: _many_c2c(input, s, dim, norm, False), input)


def rfftn(input: Tensor, s: _Dims = None, dim: _Dims = None, norm: str | None = None, *, out: Any = None) -> Tensor:
    """The transform of real values over several dims; the last keeps n // 2 + 1.  input (*) real -> (*) complex."""
    return _with_out("rfftn", out, lambda: _many_r2c("rfftn", input, s, dim, norm), input)


def irfftn(input: Tensor, s: _Dims = None, dim: _Dims = None, norm: str | None = None, *, out: Any = None) -> Tensor:
    """The inverse of `rfftn`.  input (*) -> (*) real."""
    return _with_out("irfftn", out, lambda: _many_c2r("irfftn", input, s, dim, norm), input)


def hfftn(input: Tensor, s: _Dims = None, dim: _Dims = None, norm: str | None = None, *, out: Any = None) -> Tensor:
    """The transform of a Hermitian signal, given by half, over several dims.  input (*) -> (*) real."""
    return _with_out("hfftn", out, lambda: _many_hermitian("hfftn", input, s, dim, norm), input)


def ihfftn(input: Tensor, s: _Dims = None, dim: _Dims = None, norm: str | None = None, *, out: Any = None) -> Tensor:
    """The inverse of `hfftn`.  input (*) real -> (*) complex."""
    return _with_out("ihfftn", out, lambda: _many_inverse_hermitian("ihfftn", input, s, dim, norm), input)


def fft2(
    input: Tensor,
    s: _Dims = None,
    dim: _Dims = (-2, -1),
    norm: str | None = None,
    *,
    out: Any = None,
) -> Tensor:
    """`fftn` over the last two dims.  input (*, n, m) -> (*, n, m) complex."""
    return fftn(input, s, dim, norm, out=out)


def ifft2(
    input: Tensor,
    s: _Dims = None,
    dim: _Dims = (-2, -1),
    norm: str | None = None,
    *,
    out: Any = None,
) -> Tensor:
    """`ifftn` over the last two dims.  input (*, n, m) -> (*, n, m) complex."""
    return ifftn(input, s, dim, norm, out=out)


def rfft2(
    input: Tensor,
    s: _Dims = None,
    dim: _Dims = (-2, -1),
    norm: str | None = None,
    *,
    out: Any = None,
) -> Tensor:
    """`rfftn` over the last two dims.  input (*, n, m) real -> (*, n, m // 2 + 1) complex."""
    return rfftn(input, s, dim, norm, out=out)


def irfft2(
    input: Tensor,
    s: _Dims = None,
    dim: _Dims = (-2, -1),
    norm: str | None = None,
    *,
    out: Any = None,
) -> Tensor:
    """`irfftn` over the last two dims.  input (*, n, m) -> (*, n, 2 (m - 1)) real."""
    return irfftn(input, s, dim, norm, out=out)


def hfft2(
    input: Tensor,
    s: _Dims = None,
    dim: _Dims = (-2, -1),
    norm: str | None = None,
    *,
    out: Any = None,
) -> Tensor:
    """`hfftn` over the last two dims.  input (*, n, m) -> (*, n, 2 (m - 1)) real."""
    return hfftn(input, s, dim, norm, out=out)


def ihfft2(
    input: Tensor,
    s: _Dims = None,
    dim: _Dims = (-2, -1),
    norm: str | None = None,
    *,
    out: Any = None,
) -> Tensor:
    """`ihfftn` over the last two dims.  input (*, n, m) real -> (*, n, m // 2 + 1) complex."""
    return ihfftn(input, s, dim, norm, out=out)


def _frequencies(name: str, n: Any, d: float, half: bool, dtype: Any, device: Any, requires_grad: bool) -> Tensor:
    n = operator.index(n)
    target = dtypes.get_default_dtype() if dtype is None else dtype
    if target.category < dtypes.FLOATING:
        raise RuntimeError(f"{name} requires a floating point or complex dtype")
    if n < 0:
        raise RuntimeError(f"Trying to create tensor with negative dimension {n}: [{n}]")
    order = (
        np.arange(n // 2 + 1, dtype=np.float64) if half else np.fft.ifftshift(np.arange(-(n // 2), n - n // 2) * 1.0)
    )
    with np.errstate(all="ignore"):
        values = order * np.float64(1.0) / (np.float64(n) * np.float64(d))
    result = placed(wrap(values.astype(dtypes.to_numpy(target))), device)
    return result.requires_grad_() if requires_grad else result


def fftfreq(
    n: int,
    d: float = 1.0,
    *,
    out: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """The frequencies of `fft`'s points, 1 / (n d) apart, negative ones last.  () -> (n)."""
    return _with_out("fftfreq", out, lambda: _frequencies("fftfreq", n, d, False, dtype, device, requires_grad))


def rfftfreq(
    n: int,
    d: float = 1.0,
    *,
    out: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """The frequencies of `rfft`'s points, 1 / (n d) apart.  () -> (n // 2 + 1)."""
    return _with_out("rfftfreq", out, lambda: _frequencies("rfftfreq", n, d, True, dtype, device, requires_grad))


def _shifted(x: Tensor, dim: _Dims, back: bool) -> Tensor:
    ndim = x._array.ndim
    dims = list(range(ndim)) if dim is None else [wrap_dim(d, ndim) for d in ([dim] if isinstance(dim, int) else dim)]
    sizes = [x._array.shape[d] for d in dims]
    return PUBLIC["roll"](x, [(n + 1) // 2 if back else n // 2 for n in sizes], dims)


def fftshift(input: Tensor, dim: _Dims = None) -> Tensor:
    """Frequency 0 moved to the middle of `dim` (all dims by default).  input (*) -> (*)."""
    return _shifted(input, dim, False)


def ifftshift(input: Tensor, dim: _Dims = None) -> Tensor:
    """The inverse of `fftshift`.  input (*) -> (*)."""
    return _shifted(input, dim, True)


class _Module(types.ModuleType):
    """This module, which is also the function `torch.fft(input, signal_ndim)` of torch before 1.8."""

    def __call__(self, input: Tensor, signal_ndim: int, normalized: bool = False) -> Tensor:
        return old_fft(input, signal_ndim, normalized)


sys.modules[__name__].__class__ = _Module


for _name in __all__:  # arguments are checked against the annotations, under torch's inner names
    globals()[_name] = checked(globals()[_name], name="fft_" + _name)
