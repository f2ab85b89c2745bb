"""Pooling as torch.nn.functional has it: `return_indices`, unpooling, power-average and fractional pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from engine.autograd.graph import name_node
from engine.autograd.versions import guard, guard_again
from engine.core import dtypes
from engine.dispatch.arguments import argument_error
from engine.ops import functions as torch
from engine.ops import pooling as P
from engine.ops.pooling import adaptive as A
from engine.ops.pooling import avg_pool1d, avg_pool2d, avg_pool3d
from engine.ops.pooling.adaptive import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d, adaptive_maxima  # noqa: F401
from engine.tensor import Tensor


def _max_pool(n: int) -> tuple[Any, Any]:
    def with_indices(
        input: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> tuple[Tensor, Tensor]:
        return getattr(P, f"max_pool{n}d_with_indices")(input, kernel_size, stride, padding, dilation, ceil_mode)

    def max_pool(
        input: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        name = f"max_pool{n}d" + "_with_indices" * bool(return_indices)
        return getattr(P, name)(input, kernel_size, stride, padding, dilation, ceil_mode)

    shape = "(N, C, " + ", ".join("LHWD"[:1] if n == 1 else "HW" if n == 2 else "DHW") + ")"
    max_pool.__name__ = max_pool.__qualname__ = f"max_pool{n}d"
    max_pool.__doc__ = f"Window maxima, and flat indices with return_indices.  input {shape} -> (N, C, *)."
    with_indices.__name__ = with_indices.__qualname__ = f"max_pool{n}d_with_indices"
    with_indices.__doc__ = f"Maxima and their flat indices.  input {shape} -> (N, C, *), same."
    return max_pool, with_indices


max_pool1d, max_pool1d_with_indices = _max_pool(1)
max_pool2d, max_pool2d_with_indices = _max_pool(2)
max_pool3d, max_pool3d_with_indices = _max_pool(3)


def _adaptive_max(n: int) -> tuple[Any, Any]:
    def with_indices(input: Tensor, output_size: Any, return_indices: bool = False) -> tuple[Tensor, Tensor]:
        return getattr(A, f"adaptive_max_pool{n}d")(input, output_size)

    def adaptive_max_pool(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
        return (
            getattr(A, f"adaptive_max_pool{n}d")(input, output_size)
            if return_indices
            else adaptive_maxima(n, input, output_size)
        )

    adaptive_max_pool.__name__ = adaptive_max_pool.__qualname__ = f"adaptive_max_pool{n}d"
    adaptive_max_pool.__doc__ = "Maxima of windows that cover the input.  input (N, C, *) -> (N, C, *output_size)."
    with_indices.__name__ = with_indices.__qualname__ = f"adaptive_max_pool{n}d_with_indices"
    with_indices.__doc__ = "Maxima and flat indices.  input (N, C, *) -> (N, C, *output_size), same."
    return adaptive_max_pool, with_indices


adaptive_max_pool1d, adaptive_max_pool1d_with_indices = _adaptive_max(1)
adaptive_max_pool2d, adaptive_max_pool2d_with_indices = _adaptive_max(2)
adaptive_max_pool3d, adaptive_max_pool3d_with_indices = _adaptive_max(3)


# --- unpooling


def _each(value: Any, n: int) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, list | tuple) else (value,) * n


def _unpool_output_size(
    input: Tensor, kernel_size: Any, stride: Any, padding: Any, output_size: Any
) -> tuple[int, ...]:
    n = len(kernel_size)
    default = [(s - 1) * st + k - 2 * p for s, k, st, p in zip(input.shape[-n:], kernel_size, stride, padding)]
    if output_size is None:
        return tuple(default)
    if len(output_size) == n + 2:
        output_size = output_size[2:]
    if len(output_size) != n:
        raise ValueError(
            f"output_size should be a sequence containing {n} or {n + 2} elements, but it has a length of "
            f"'{len(output_size)}'"
        )
    for d in range(n):
        low, high = default[d] - stride[d], default[d] + stride[d]
        if not low < output_size[d] < high:
            raise ValueError(f'invalid output_size "{output_size}" (dim {d} must be between {low} and {high})')
    return tuple(output_size)


def _unpooled(n: int, input: Tensor, indices: Tensor, kernel_size: Any, stride: Any, padding: Any, size: Any) -> Tensor:
    if not isinstance(indices, Tensor):
        raise argument_error(f"max_unpool{n}d", 2, "indices", "Tensor", indices)
    kernel = _each(kernel_size, n)
    step = kernel if stride is None else _each(stride, n)
    return unpooled(n, input, indices, _unpool_output_size(input, kernel, step, _each(padding, n), size))


def unpooled(n: int, input: Tensor, indices: Tensor, size: Sequence[int]) -> Tensor:
    """Maxima put back where pooling found them, of planes of `size`.  input, indices (N, C, *) -> (N, C, *size)."""
    if indices.dtype is not torch.int64:
        raise RuntimeError("elements in indices should be type int64 but got: " + dtypes.scalar_name(indices.dtype))
    if indices.shape != input.shape:
        raise RuntimeError(
            f"Expected shape of indices to be same as that of the input tensor ({list(input.shape)}) but got indices "
            f"tensor with shape: {list(indices.shape)}"
        )
    total = math.prod(size)
    if indices.numel() and not 0 <= int(indices.min()) <= int(indices.max()) < total:
        found = int(indices.max()) if int(indices.max()) >= total else int(indices.min())
        raise RuntimeError(
            f"Found an invalid max index: {found} (output volumes are of size {'x'.join(map(str, size))}"
        )
    batched = input.dim() == n + 2
    x = input if batched else input.unsqueeze(0)
    where = indices if batched else indices.unsqueeze(0)
    flat = x.new_zeros((*x.shape[:2], total))
    rows = flat.scatter(2, where.flatten(2), x.flatten(2))
    result = rows.reshape(*x.shape[:2], *size)
    result = result if batched else result.squeeze(0)
    return name_node(result, "SqueezeBackward1" if n == 1 else f"MaxUnpool{n}DBackward0")


def max_unpool1d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    output_size: Any = None,
) -> Tensor:
    """Maxima put back where max_pool1d found them.  input, indices (N, C, L') -> (N, C, L)."""
    return _unpooled(1, input, indices, kernel_size, stride, padding, output_size)


def max_unpool2d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    output_size: Any = None,
) -> Tensor:
    """Maxima put back where max_pool2d found them.  input, indices (N, C, H', W') -> (N, C, H, W)."""
    return _unpooled(2, input, indices, kernel_size, stride, padding, output_size)


def max_unpool3d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    output_size: Any = None,
) -> Tensor:
    """Maxima put back where max_pool3d found them.  input, indices (N, C, D', H', W') -> (N, C, D, H, W)."""
    return _unpooled(3, input, indices, kernel_size, stride, padding, output_size)


# --- power-average


def _lp_pool(n: int, input: Tensor, norm_type: Any, kernel_size: Any, stride: Any, ceil_mode: bool) -> Tensor:
    if norm_type in (math.inf, -math.inf):
        function = (max_pool1d, max_pool2d, max_pool3d)[n - 1]
        if norm_type > 0:
            return function(input.abs(), kernel_size, stride, 0, 1, ceil_mode)
        return -function(-input.abs(), kernel_size, stride, 0, 1, ceil_mode)
    function = (avg_pool1d, avg_pool2d, avg_pool3d)[n - 1]
    mean = function(input.pow(norm_type), kernel_size, stride, 0, ceil_mode)
    total = torch.sign(mean) * torch.relu(torch.abs(mean)) * math.prod(_each(kernel_size, n))
    return total.pow(1.0 / norm_type)


def lp_pool1d(input: Tensor, norm_type: Any, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Tensor:
    """(sum of x ** p over each window) ** (1 / p).  input (N, C, L) -> (N, C, L')."""
    return _lp_pool(1, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(input: Tensor, norm_type: Any, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Tensor:
    """(sum of x ** p over each window) ** (1 / p).  input (N, C, H, W) -> (N, C, H', W')."""
    return _lp_pool(2, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(input: Tensor, norm_type: Any, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Tensor:
    """(sum of x ** p over each window) ** (1 / p).  input (N, C, D, H, W) -> (N, C, D', H', W')."""
    return _lp_pool(3, input, norm_type, kernel_size, stride, ceil_mode)


# --- fractional


def _starts(sample: float, n: int, out: int, kernel: int) -> list[int]:
    """Window starts of fractional pooling (arXiv:1412.6071, section 2), drawn from one number."""
    if out == 1:
        return [n - kernel]
    alpha = (n - kernel) / (out - 1)
    starts = [int((i + sample) * alpha) - int(sample * alpha) for i in range(out - 1)]
    return [*starts, n - kernel]


def _fractional(n: int, input: Tensor, kernel_size: Any, output_size: Any, output_ratio: Any, samples: Any) -> Any:
    name = f"fractional_max_pool{n}d"
    if output_size is None and output_ratio is None:
        raise ValueError(f"{name} requires specifying either an output_size or an output_ratio")
    spatial = tuple(input.shape[-n:])
    if output_size is None:
        output_size = [int(s * r) for s, r in zip(spatial, _each(output_ratio, n))]
    kernel, size = _each(kernel_size, n), _each(output_size, n)
    batched = input.dim() == n + 2
    x = input if batched else input.unsqueeze(0)
    names = ("time", "height", "width")[-n:]
    for label, s, o, k in zip(names, spatial, size, kernel):
        if o + k - 1 > s:
            raise RuntimeError(f"{name}(): pool {label} {k} too large relative to input {label} {s}")
    if samples is None:
        samples = torch.rand(*x.shape[:2], n, dtype=x.dtype, device=x.device)
    drawn = samples.tolist()
    count, channels = x.shape[:2]
    places = []
    for i in range(count):
        for c in range(channels):
            # the last number drawn belongs to the last dim but one in torch's 2-d form: (W, H)
            order = [drawn[i][c][j] for j in range(n)]
            order = order[::-1] if n == 2 else order
            axes = [
                [s + j for s in _starts(u, m, o, k) for j in range(k)]
                for u, m, o, k in zip(order, spatial, size, kernel)
            ]
            flat = [0]
            for axis, m in zip(axes, spatial):
                flat = [f * m + a for f in flat for a in axis]
            places.append(flat)
    wide = [o * k for o, k in zip(size, kernel)]
    index = x.new_tensor(places, dtype=torch.int64).reshape(count, channels, *wide)
    pieces = x.flatten(2).gather(2, index.flatten(2)).reshape(count, channels, *wide)
    max_pool = max_pool2d if n == 2 else max_pool3d
    values, where = max_pool(pieces, kernel, kernel, return_indices=True)
    origin = index.flatten(2).gather(2, where.flatten(2)).reshape(where.shape)
    if not batched:
        values, origin = values.squeeze(0), origin.squeeze(0)
    guard_again(guard(name_node(values, f"FractionalMaxPool{n}DBackward0"), input), origin)
    return values, origin


def fractional_max_pool2d_with_indices(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Any = None,
) -> tuple[Tensor, Tensor]:
    """Maxima of pseudo-random windows and their flat indices.  input (N, C, H, W) -> (N, C, *output_size), same."""
    return _fractional(2, input, kernel_size, output_size, output_ratio, _random_samples)


def fractional_max_pool2d(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Any = None,
) -> Any:
    """Maxima of pseudo-random windows (arXiv:1412.6071).  input (N, C, H, W) -> (N, C, *output_size)."""
    result = _fractional(2, input, kernel_size, output_size, output_ratio, _random_samples)
    return result if return_indices else result[0]


def fractional_max_pool3d_with_indices(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Any = None,
) -> tuple[Tensor, Tensor]:
    """Maxima of pseudo-random windows and their flat indices.  input (N, C, D, H, W) -> (N, C, *output_size), same."""
    return _fractional(3, input, kernel_size, output_size, output_ratio, _random_samples)


def fractional_max_pool3d(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Any = None,
) -> Any:
    """Maxima of pseudo-random windows (arXiv:1412.6071).  input (N, C, D, H, W) -> (N, C, *output_size)."""
    result = _fractional(3, input, kernel_size, output_size, output_ratio, _random_samples)
    return result if return_indices else result[0]
