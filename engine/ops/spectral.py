"""Fourier transforms of three kinds (the ops behind `engine.fft`), `stft`, `istft` and the windows.

`norm` is what divides the result: 0 nothing, 1 the root of the number of points, 2 that number.
"""

from __future__ import annotations

import builtins
import functools
from types import ModuleType
from typing import Any

import numpy as np

from engine.autograd.graph import name_node
from engine.autograd.versions import guard, guard_again
from engine.backends.cpu.transforms import transform
from engine.core import dtypes
from engine.core.layouts import strided
from engine.core.tensor_messages import warn_once
from engine.dispatch import PUBLIC, composite, derivative, op, samples
from engine.ops.creation import placed
from engine.ops.products import cpp_name, scalar_name
from engine.ops.strides import unfold_backward
from engine.tensor import Tensor, wrap

_FORWARD = ("backward", "ortho", "forward")
_INVERSE = ("forward", "ortho", "backward")


def check_type(array: Any) -> None:
    """RuntimeError for 16-bit floats, which have no transform."""
    if array.dtype.itemsize == 2 and array.dtype.kind in "fV":
        raise RuntimeError(f"Unsupported dtype {scalar_name(array)}")


@functools.cache
def _generated() -> ModuleType:
    from engine.ops.generated import spectra  # for the weight: with the first transform

    return spectra


# --- the three kinds


@op(node="FftC2CBackward0", public=False, method=False)
@derivative(input=lambda grad, dim, norm, forward: fft_c2c(grad, dim, norm, not forward))
@samples(
    lambda t: [
        (t.complex(4), (0,), 0, True),
        (t.complex(2, 3), (0, 1), 1, False),
        (t.complex(2, 5), (1,), 2, True),
    ]
)
def fft_c2c(xp, input, dim, norm, forward):
    """The transform of complex values over several dims.  input (*) complex -> (*) complex."""
    check_type(input)
    if not dim:
        return input.copy()
    name, scaled = ("fftn", _FORWARD[norm]) if forward else ("ifftn", _INVERSE[norm])
    plain = lambda: transform(xp, name, input, axes=dim, norm=scaled)
    return plain() if xp.fft is not np.fft else _generated().complex_lines(input, dim, norm, not forward, plain)


def _scaled_middle(xp: Any, spectra: Any, axis: int, points: int, factor: float) -> Any:
    """Half spectra of `points` real numbers with each frequency that stands for two times a factor."""
    factors = xp.ones(spectra.shape[axis], spectra.real.dtype)
    factors[1 : (points + 1) // 2] = factor
    return spectra * factors.reshape([-1 if d == axis % spectra.ndim else 1 for d in range(spectra.ndim)])


def _r2c_slope(
    grad: Tensor, dim: tuple[int, ...], norm: int, onesided: bool, middle: float, shape: tuple[int, ...]
) -> Tensor:
    if onesided:
        return fft_c2r(grad, dim, norm, shape[dim[-1]], 0.5 * middle)
    return fft_c2c(grad, dim, norm, False).real


@op(node="FftR2CBackward0", public=False, method=False, keeps=("input",))
@derivative(
    input=lambda grad, dim, norm, onesided, middle, input_shape: _r2c_slope(
        grad, dim, norm, onesided, middle, input_shape
    )
)
@samples(
    lambda t: [
        (t(4), (0,), 0, True),
        (t(2, 5), (0, 1), 1, True),
        (t(2, 3), (1,), 2, False),
        (t(4, 3), (1, 0), 0, True),
        (t(3, 6), (0, 1), 0, True, 2.0),
    ]
)
def fft_r2c(xp, input, dim, norm, onesided, middle: float = 1.0):
    """The transform of real values; onesided: the last dim of `dim` keeps n // 2 + 1, those that stand for two
    frequencies times `middle`.

    input (*) real -> (*) complex.
    """
    check_type(input)

    def plain() -> Any:
        made = transform(xp, "rfftn" if onesided else "fftn", input, axes=dim, norm=_FORWARD[norm])
        return made if middle == 1 else _scaled_middle(xp, made, dim[-1], input.shape[dim[-1]], middle)

    return plain() if xp.fft is not np.fft else _generated().real_lines(input, dim, norm, onesided, middle, plain)


@op(node="FftC2RBackward0", public=False, method=False)
@derivative(input=lambda grad, dim, norm, middle: fft_r2c(grad, dim, norm, True, 2.0 * middle))
@samples(
    lambda t: [
        (t.complex(3), (0,), 2, 4),
        (t.complex(2, 3), (0, 1), 1, 5),
        (t.complex(3, 2), (1, 0), 0, 4),
        (t.complex(3, 4), (0, 1), 0, 6, 0.5),
    ]
)
def fft_c2r(xp, input, dim, norm, last_dim_size, middle: float = 1.0):
    """The inverse transform of a half spectrum to real values; middle: a factor of what stands for two frequencies.

    input (*) complex -> (*) real, the last of `dim` of that size.
    """
    check_type(input)

    def plain() -> Any:
        given = input if middle == 1 else _scaled_middle(xp, input, dim[-1], last_dim_size, middle)
        sizes = [input.shape[d] for d in dim[:-1]] + [last_dim_size]
        return transform(xp, "irfftn", given, s=sizes, axes=dim, norm=_INVERSE[norm])

    if xp.fft is not np.fft:
        return plain()
    return _generated().half_spectra(input, dim, norm, last_dim_size, middle, plain)


def like(tensor: Tensor, values: np.ndarray, dtype: Any = None) -> Tensor:
    """Host values as a tensor beside `tensor`."""
    from engine import backends

    array = tensor._array
    backend = backends.of_array(array)
    return wrap(backend.from_host(values.astype(dtype or array.dtype), backend.device_of(array)))


def padded(x: Tensor, dim: int, size: int) -> Tensor:
    """x cut, or filled with zeros at the end, to `size` along `dim`."""
    shape = x._array.shape
    have = shape[dim]
    if have == size:
        return x
    if have > size:
        return x.narrow(dim, 0, size)
    more = (*shape[:dim], size - have, *shape[dim + 1 :])
    return PUBLIC["cat"]([x, x.new_zeros(more)], dim)


# --- short-time transforms


def _reflected(x: Tensor, pad: int, mode: str) -> Tensor:
    """x (*, n) with `pad` more on both ends."""
    n = x._array.shape[-1]
    if mode == "constant":
        zeros = x.new_zeros((*x._array.shape[:-1], pad))
        return PUBLIC["cat"]([zeros, x, zeros], -1)
    if mode == "reflect":
        if n == 0:
            raise RuntimeError(
                "Expected 2D or 3D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for "
                f"input, but got: [1, 1, {n}]"
            )
        if pad >= n:
            shape = [1] * (3 - x._array.ndim) + list(x._array.shape)
            raise RuntimeError(
                "Argument #4: Padding size should be less than the corresponding input dimension, but got: padding "
                f"({pad}, {pad}) at dimension 2 of input {shape}"
            )
        order = np.abs(np.arange(-pad, n + pad))
        order = np.where(order >= n, 2 * (n - 1) - order, order)
    elif mode == "replicate":
        order = np.clip(np.arange(-pad, n + pad), 0, n - 1)
    elif mode == "circular":
        order = np.arange(-pad, n + pad) % n
    else:
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    return x.index_select(-1, like(x, order, np.int64))


def _window_text(window: Tensor | None) -> str:
    if window is None:
        return "None"
    return f"{_type_text(window._array)}{{{list(window._array.shape)}}}"


def _type_text(array: Any) -> str:
    name = scalar_name(array)
    return f"CPU{name}Type" if array.dtype.kind == "c" else f"torch.{name}Tensor"


def _flag(value: bool | None) -> str:
    return "None" if value is None else str(int(value))


@composite()
@samples(
    lambda t: [
        (t(12), 4, {"return_complex": True}),
        (t(2, 9), 4, 2, 3, t.positive(3), {"return_complex": True}),
        (t(12), 4, {"center": False, "onesided": False, "normalized": True, "return_complex": True}),
    ]
)
def stft(
    input,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center=True,
    pad_mode="reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
):
    """Transforms of windowed frames, `hop_length` apart.

    input (*, n), window (win_length) -> (*, frequencies, frames) complex.
    center: frames are centred, the ends padded by `pad_mode`; return_complex=False: real and imaginary part in a
    last dim of 2.  RuntimeError for arguments that do not fit.  https://docs.pytorch.org/docs/2.13/generated/torch.stft.html
    """
    if not input.dim():  # as in torch, whose stft is Python so far, what is no Tensor fails here: AttributeError
        input = input.reshape(1)
    hop = n_fft // 4 if hop_length is None else hop_length
    length = n_fft if win_length is None else win_length
    complex_input = input._array.dtype.kind == "c"
    complex_all = complex_input or (window is not None and window._array.dtype.kind == "c")
    if return_complex is None:
        if not complex_all:
            raise RuntimeError(
                "stft requires the return_complex parameter be given for real inputs, and will further require that "
                "return_complex=True in a future PyTorch release."
            )
        return_complex = True
    if window is None:
        warn_once(
            "stft",
            "A window was not provided. A rectangular window will be applied,which is known to cause spectral leakage. "
            "Other windows such as torch.hann_window or torch.hamming_window are recommended to reduce spectral "
            "leakage.To suppress this warning and use a rectangular window, explicitly set "
            "`window=torch.ones(n_fft, device=<device>)`.",
        )
    if center and align_to_window is not None:
        raise RuntimeError("stft align_to_window should only be set when center = false.")
    x = input
    if center:
        x = _reflected(input, n_fft // 2, pad_mode)
    array = x._array

    def refuse(reason: str) -> None:
        raise RuntimeError(
            f"stft({_type_text(array)}{list(array.shape)}, n_fft={n_fft}, hop_length={hop}, win_length={length}, "
            f"window={_window_text(window)}, normalized={int(normalized)}, onesided={_flag(onesided)}, "
            f"return_complex={int(return_complex)}, align_to_window={_flag(align_to_window)}) : {reason}"
        )

    if dtypes.from_numpy(array.dtype).category < dtypes.FLOATING:
        refuse("expected a tensor of floating point or complex values")
    if array.ndim not in (1, 2):
        refuse("expected a 1D or 2D tensor")
    single = array.ndim == 1
    if single:
        x = x.unsqueeze(0)
    size = x._array.shape[1]
    if not 0 < n_fft <= size:
        refuse(f"expected 0 < n_fft < {size}, but got n_fft={n_fft}")
    if hop <= 0:
        refuse(f"expected hop_length > 0, but got hop_length={hop}")
    if not 0 < length <= n_fft:
        refuse(f"expected 0 < win_length <= n_fft, but got win_length={length}")
    if window is not None and window._array.shape != (length,):
        refuse(
            f"expected a 1D window tensor of size equal to win_length={length}, but got window with size "
            f"{list(window._array.shape)}"
        )
    frame_size = length if align_to_window else n_fft
    frames = x.unfold(-1, frame_size, hop)
    if frame_size < n_fft:
        left = (n_fft - length) // 2
        frames = _centred(frames, left, n_fft)
    weights = window
    if length < n_fft:
        left = (n_fft - length) // 2
        weights = _centred(x.new_ones((length,)) if window is None else window, left, n_fft)
    if weights is not None:
        frames = frames * weights
    complex_frames = frames._array.dtype.kind == "c"
    if onesided is None:
        onesided = not complex_frames
    if complex_frames and onesided:
        raise RuntimeError("Cannot have onesided output if window or input is complex")
    norm = 1 if normalized else 0
    if complex_frames:
        result = fft_c2c(frames, (frames._array.ndim - 1,), norm, True)
    else:
        result = fft_r2c(frames, (frames._array.ndim - 1,), norm, onesided)
    result = name_node(result.transpose(1, 2), "TransposeBackward1")  # in place in torch
    if single:
        result = name_node(result.squeeze(0), "SqueezeBackward4")
    (guard if window is None else guard_again)(result, input)
    return result if return_complex else PUBLIC["view_as_real"](result)


def _centred(x: Tensor, left: int, size: int) -> Tensor:
    """x (*, n) in the middle of zeros."""
    *lead, n = x._array.shape
    return PUBLIC["cat"]([x.new_zeros((*lead, left)), x, x.new_zeros((*lead, size - left - n))], -1)


@composite(arrays=True)
@samples(lambda t: [(t.complex(3, 5), 4), (t.complex(2, 3, 5), 4, 1, 3, t.positive(3), {"length": 4})])
def istft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
):
    """The signal whose frames' transforms come nearest to `input` (inverse of `stft`).

    input (*, frequencies, frames) complex, window (win_length) -> (*, n).  RuntimeError for arguments that do not
    fit, or
    where the windows leave a gap.  Griffin and Lim 1984; https://docs.pytorch.org/docs/2.13/generated/torch.istft.html
    """
    hop = n_fft // 4 if hop_length is None else hop_length
    size = n_fft if win_length is None else win_length
    array = input._array

    def text() -> str:
        return (
            f"istft(CPU{scalar_name(array)}Type{list(array.shape)}, n_fft={n_fft}, hop_length={hop}, "
            f"win_length={size}, window={_window_text(window)}, center={int(center)}, normalized={int(normalized)}, "
            f"onesided={_flag(onesided)}, length={length}, return_complex={int(return_complex)})"
        )

    def refuse(reason: str) -> None:
        raise RuntimeError(f"{text()} : {reason}")

    if array.dtype.kind != "c":
        raise RuntimeError(
            "istft requires a complex-valued input tensor matching the output from stft with return_complex=True."
        )
    if array.ndim < 2:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [-{array.ndim + 1}, {array.ndim}], but got -3)"
        )
    if not array.size:
        refuse("input tensor cannot be empty.")
    if array.ndim not in (2, 3):
        refuse(f"expected a tensor with 3 or 4 dimensions, but got {array.ndim + 1}")
    one = onesided
    if one is None:
        one = array.shape[-2] != n_fft
    if one:
        if n_fft // 2 + 1 != array.shape[-2]:
            refuse(
                "expected the frequency dimension (3rd to the last) of the input tensor to match n_fft / 2 + 1 when "
                f"onesided=True, but got {array.shape[-2]}"
            )
    elif n_fft != array.shape[-2]:
        refuse(
            "expected the frequency dimension (3rd to the last) of the input tensor to match n_fft when "
            f"onesided=False, but got {array.shape[-2]}"
        )
    if not 0 < hop <= size:
        refuse("expected 0 < hop_length <= win_length")
    if not 0 < size <= n_fft:
        refuse("expected 0 < win_length <= n_fft")
    if window is not None and window._array.shape != (size,):
        refuse("Invalid window shape. window has to be 1D and length of `win_length`")
    if window is not None and window._array.dtype.kind == "c" and not return_complex:
        raise RuntimeError("Complex windows are incompatible with return_complex=False")
    if return_complex and one:
        raise RuntimeError("Cannot have onesided output if window or input is complex")
    real = dtypes.from_numpy(array.dtype).to_real()
    weights = like(input, np.ones(size), dtypes.to_numpy(real)) if window is None else window
    if weights.dtype.category < dtypes.FLOATING:
        weights = weights.to(real)
    if size != n_fft:
        weights = _centred(weights, (n_fft - size) // 2, n_fft)
    single = array.ndim == 2
    x = (input.unsqueeze(0) if single else input).transpose(1, 2)
    norm = 1 if normalized else 2
    if return_complex:
        frames = fft_c2c(x, (2,), norm, False)
    elif one:
        frames = fft_c2r(x, (2,), norm, n_fft)
    else:
        frames = fft_c2r(x[..., : n_fft // 2 + 1], (2,), norm, n_fft)
    count = frames._array.shape[1]
    expected = n_fft + hop * (count - 1)
    added = lambda frames: unfold_backward(frames, (*frames.shape[:-2], expected), -1, n_fft, hop)
    signal = added(frames * weights)
    envelope = added((weights * weights).expand(1, count, n_fft))
    start = n_fft // 2 if center else 0
    if length is not None:
        end = start + length
    else:
        end = expected - n_fft // 2 if center else expected
    stop = builtins.min(end, expected)
    signal, envelope = signal[:, start:stop], envelope[:, start:stop]
    if envelope._array.size and input.device.type != "meta" and not abs(envelope._array).min() > 1e-11:
        raise RuntimeError(f"{text()} window overlap add min: 1")
    signal = signal / envelope
    if single:
        signal = signal.squeeze(0)
    if end > expected:
        import warnings

        warnings.warn(
            "The length of signal is shorter than the length parameter. Result is being padded with zeros in the tail. "
            "Please check your center and hop_length settings.",
            stacklevel=2,
        )
        signal = padded(signal, signal._array.ndim - 1, end - start)
    return signal


# --- windows


def _window(
    name: str,
    length: Any,
    periodic: bool,
    make: Any,
    dtype: Any,
    device: Any,
    requires_grad: bool,
    layout: Any = None,
) -> Tensor:
    """The window `make(n, N)` of sample numbers n out of N, computed in float64."""
    length = length.__index__()
    if layout is not None and layout is not strided:
        raise RuntimeError(f"{name} is not implemented for sparse types, got: layout={layout!r}")
    target = dtypes.get_default_dtype() if dtype is None else dtype
    if target.category < dtypes.FLOATING:
        label = cpp_name(np.empty(0, dtypes.to_numpy(target)))
        raise RuntimeError(
            f"{name} expects floating point dtypes, got: TensorOptions(dtype={label}, device={device or 'cpu'}, "
            f"layout=Strided (default), requires_grad={str(requires_grad).lower()} (default), pinned_memory=false, "
            "memory_format=(nullopt))"
        )
    if length < 0:
        raise RuntimeError(f"{name} requires non-negative window_length, got window_length={length}")
    if target.category == dtypes.COMPLEX:
        raise NotImplementedError(f"\"arange_cpu\" not implemented for '{dtypes.scalar_name(target)}'")
    if length <= 1:
        values = np.ones(length)
    else:
        points = length + 1 if periodic else length
        values = make(np.arange(points, dtype=np.float64), points)[:length]
    result = placed(wrap(values.astype(dtypes.to_numpy(target))), device)
    return result.requires_grad_() if requires_grad else result


def _cosines(a: float, b: float, c: float = 0.0) -> Any:
    def make(n: np.ndarray, count: int) -> np.ndarray:
        angle = 2 * np.pi * n / (count - 1)
        return a - b * np.cos(angle) + c * np.cos(2 * angle)

    return make


@composite(method=False)
def hann_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype=None,
    layout=None,
    device=None,
    pin_memory=False,
    requires_grad=False,
):
    """sin^2(pi n / (N - 1)), N = window_length + 1 if periodic.  () -> (window_length)."""
    return _window("hann_window", window_length, periodic, _cosines(0.5, 0.5), dtype, device, requires_grad, layout)


@composite(method=False)
def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype=None,
    layout=None,
    device=None,
    pin_memory=False,
    requires_grad=False,
):
    """alpha - beta cos(2 pi n / (N - 1)), N = window_length + 1 if periodic.  () -> (window_length)."""
    return _window(
        "hamming_window",
        window_length,
        periodic,
        _cosines(alpha, beta),
        dtype,
        device,
        requires_grad,
        layout,
    )


@composite(method=False)
def blackman_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype=None,
    layout=None,
    device=None,
    pin_memory=False,
    requires_grad=False,
):
    """0.42 - 0.5 cos(2 pi n / (N - 1)) + 0.08 cos(4 pi n / (N - 1)), N as for hann_window.  () -> (window_length)."""

    def make(n: np.ndarray, count: int) -> np.ndarray:
        return np.maximum(_cosines(0.42, 0.5, 0.08)(n, count), 0)

    return _window("blackman_window", window_length, periodic, make, dtype, device, requires_grad, layout)


@composite(method=False)
def bartlett_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype=None,
    layout=None,
    device=None,
    pin_memory=False,
    requires_grad=False,
):
    """The triangle 1 - |2 n / (N - 1) - 1|, N as for hann_window.  () -> (window_length)."""

    def make(n: np.ndarray, count: int) -> np.ndarray:
        return 1 - np.abs(2 * n / (count - 1) - 1)

    return _window("bartlett_window", window_length, periodic, make, dtype, device, requires_grad, layout)


@composite(method=False)
def kaiser_window(
    window_length: int,
    periodic: bool = True,
    beta: float = 12.0,
    *,
    dtype=None,
    layout=None,
    device=None,
    pin_memory=False,
    requires_grad=False,
):
    """I0(beta sqrt(1 - (2 n / (N - 1) - 1)^2)) / I0(beta), N as for hann_window.  () -> (window_length)."""

    def make(n: np.ndarray, count: int) -> np.ndarray:
        return np.i0(beta * np.sqrt(1 - (2 * n / (count - 1) - 1) ** 2)) / np.i0(beta)

    return _window("kaiser_window", window_length, periodic, make, dtype, device, requires_grad, layout)
