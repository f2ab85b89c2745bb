"""Pooling to a given size: windows that cover the input, their means and maxima."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from engine.autograd.graph import name_node
from engine.autograd.versions import guard, guard_again
from engine.core import dtypes
from engine.dispatch import composite, derivative, op, samples
from engine.ops.nn.resample import adaptive_average, adaptive_spec
from engine.ops.pointwise.arithmetic import refuse
from engine.ops.pooling import (
    _alone,
    _max_pool,
    _two_or_three,
    avg_pool2d_values,
    avg_pool3d_values,
    pool_gather,
)
from engine.ops.pooling import numpy as by_numpy
from engine.tensor import Tensor


def _one_size(name, size):
    if isinstance(size, Iterable) and len(size) != 1:
        raise RuntimeError(f"{name}() argument 'output_size' should contain one int (got {len(size)})")
    return size[0] if isinstance(size, Iterable) else size


def _adaptive_size(name, n, input, output_size, colon=""):
    several = output_size.__class__ is not int and isinstance(output_size, Iterable)
    size, shape = tuple(output_size) if several else (output_size,) * n, input._array.shape
    if several and input.dim() <= len(size):  # said by what looks for sizes that are None, before all else
        raise ValueError(f"Input dimension should be at least {len(size) + 1}")
    if input.dim() <= n or (input.dim() > n + 2 and (colon or size != (1,) * n)):
        raise RuntimeError(f"{name}(): Expected {n + 1}D or {n + 2}D tensor, but got{colon} {list(input.shape)}")
    if len(size) != n:
        if colon:
            raise RuntimeError(f"{name}(): internal error: output_size.size() must be {n}")
        raise RuntimeError(f"{name}: output_size must be {n}")
    size = tuple(int(m) if s is None else int(s) for s, m in zip(size, shape[-n:]))
    if any(s < 0 for s in size):
        listed = ", ".join(map(str, size))
        raise RuntimeError(
            f"{name}: elements of output_size must be greater than or equal to 0 but received {{{listed}}}"
        )
    return size


def _not_empty(name, input):
    if input._array.size:
        return
    for i, s in enumerate(input.shape[1:], 1):
        if s == 0:
            raise RuntimeError(
                f"{name}(): Expected input to have non-zero size for non-batch dimensions, but input has sizes "
                f"{list(input.shape)} with dimension {i} being empty"
            )


def _adaptive_avg(name, n, input, output_size):
    size = _adaptive_size(name, n, input, output_size)
    spatial = tuple(input.shape[-n:])
    if size == (1,) * n:
        return input.mean(tuple(range(-1, -n - 1, -1)), keepdim=True)
    _not_empty(name, input)
    refuse("adaptive_avg_pool3d_cpu" if n == 3 else name, input._array, "iubc")
    batched = input.dim() == n + 2
    x = input if batched else input.unsqueeze(0)
    if all(spatial) and all(size) and n > 1 and all(m % s == 0 for m, s in zip(spatial, size)):
        kernel = tuple(m // s for m, s in zip(spatial, size))
        function = avg_pool2d_values if n == 2 else avg_pool3d_values
        y = function(x, kernel, kernel, (0,) * n, False, True, None)
        name_node(y, f"AdaptiveAvgPool{n}DBackward0")
    else:
        y = adaptive_average(n)(x, adaptive_spec(spatial, size))
    return y if batched else _alone(y)


@composite(method=False)
@samples(lambda t: [(t(2, 3, 7), 3), (t(3, 6), 2)])
def adaptive_avg_pool1d(input: Tensor, output_size: int | tuple[int, ...]):
    """Means of output_size windows that cover the input.  input (N, C, L) or (C, L) -> (N, C, output_size)."""
    _two_or_three("adaptive_avg_pool1d", input)
    size = _one_size("adaptive_avg_pool1d", output_size)
    return _adaptive_avg("adaptive_avg_pool2d", 2, input.unsqueeze(-2), (1, size)).squeeze(-2)


@composite(public=False, method=False)
@samples(lambda t: [(t(2, 3, 7, 5), (3, 2)), (t(2, 6, 4), (2, None)), (t(2, 3, 4, 4), 1)])
def adaptive_avg_pool2d(input: Tensor, output_size):
    """Means of windows that cover the input.  input (N, C, H, W) or (C, H, W) -> (N, C, *output_size)."""
    return _adaptive_avg("adaptive_avg_pool2d", 2, input, output_size)


@composite(public=False, method=False, autocast={"cpu": "float32"})
@samples(lambda t: [(t(1, 2, 3, 5, 4), (2, 2, 3))])
def adaptive_avg_pool3d(input: Tensor, output_size):
    """Means of windows that cover the input.  input (N, C, D, H, W) or (C, D, H, W) -> (N, C, *output_size)."""
    return _adaptive_avg("adaptive_avg_pool3d", 3, input, output_size)


@op(public=False, out=False, method=False, large=512, generated="many")
@samples(lambda t: [(t.distinct(1, 2, 5, 4).detach(), (2, 3))])
def adaptive_max_indices(xp, input, size):
    """The flat index of the maximum of each adaptive window.  input (N, C, *) -> (N, C, *size) int64."""
    return by_numpy.adaptive_argmax(xp, input, size)


@op(public=False, out=False, method=False, large=512, generated="many")
@derivative(
    grad_output=lambda grad, input, grad_output_shape: pool_gather(
        grad, adaptive_max_indices(input.detach(), tuple(grad_output_shape[2:]))
    )
)
@samples(lambda t: [(t(1, 2, 1, 1), t.distinct(1, 2, 5, 4).detach())])
def gradient_at_maxima(xp, grad_output, input):
    """Each gradient at the place of the maximum of its image.

    grad_output (N, C, 1, ...), input (N, C, *) -> as input.
    """
    index = by_numpy.adaptive_argmax(xp, input, grad_output.shape[2:])
    return by_numpy.put_flat(xp, grad_output, index, input.shape[2:])


@op(public=False, out=False, method=False, large=512, generated="many")
@derivative(input=lambda grad, input: gradient_at_maxima(grad, input))
@samples(lambda t: [(t.distinct(1, 2, 5, 4),), (t.distinct(2, 3, 4),)])
def maxima_of_images(xp, input):
    """The maximum of each channel of images, nan where there is one.  input (N, C, *) -> (N, C, 1, ...)."""
    return input.max(axis=tuple(range(2, input.ndim)), keepdims=True)


def _adaptive_max(name, n, input, output_size, indices=True):
    size = _adaptive_size(name, n, input, output_size, ":")
    _not_empty(name, input)
    batched = input.dim() == n + 2
    refuse("adaptive_max_pool3d_cpu" if n == 3 else "adaptive_max_pool2d", input._array, "iubc")
    x = input if batched else input.unsqueeze(0)
    spatial, node = x._array.shape[2:], f"AdaptiveMaxPool{n}DBackward0"
    if prod(size) > 1 and x._array.size and all(m % s == 0 for m, s in zip(spatial, size)):
        kernel = tuple(m // s for m, s in zip(spatial, size))
        found = _max_pool(name, n, x, kernel, kernel, 0, 1, False, indices)
        values, where = found if indices else (found, None)
        name_node(values, node)
    elif not indices and x._array.size and prod(size) == 1:
        values = name_node(maxima_of_images(x), node)
    else:
        empty = not all(size) or not x._array.size
        where = (
            x.new_empty((*x.shape[:2], *size), dtype=dtypes.int64) if empty else adaptive_max_indices(x.detach(), size)
        )
        values = guard_again(guard(name_node(pool_gather(x, where), node), input), where)
    if not indices:
        return _unbatched(values, batched)
    return _unbatched(values, batched), _unbatched(where, batched)


def _unbatched(result, batched):
    return result if batched else _alone(result)


def adaptive_maxima(n, input, output_size):
    """`adaptive_max_pool` over n dims without indices."""
    if n > 1:
        return _adaptive_max(f"adaptive_max_pool{n}d", n, input, output_size, False)
    _two_or_three("adaptive_max_pool1d", input)
    size = _one_size("adaptive_max_pool1d", output_size)
    return _adaptive_max("adaptive_max_pool2d", 2, input.unsqueeze(-2), (1, size), False).squeeze(-2)


@composite(method=False)
@samples(lambda t: [(t.distinct(2, 3, 7), 3)])
def adaptive_max_pool1d(input: Tensor, output_size: int | tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Maxima and indices of output_size windows that cover the input.  input (N, C, L) -> (N, C, output_size), same."""
    _two_or_three("adaptive_max_pool1d", input)
    size = _one_size("adaptive_max_pool1d", output_size)
    values, where = _adaptive_max("adaptive_max_pool2d", 2, input.unsqueeze(-2), (1, size))
    return values.squeeze(-2), where.squeeze(-2)


@composite(public=False, method=False)
@samples(lambda t: [(t.distinct(2, 3, 7, 5), (3, 2)), (t.distinct(2, 4, 4), 3)])
def adaptive_max_pool2d(input: Tensor, output_size) -> tuple[Tensor, Tensor]:
    """Maxima and flat indices of windows that cover the input.  input (N, C, H, W) -> (N, C, *output_size), same."""
    return _adaptive_max("adaptive_max_pool2d", 2, input, output_size)


@composite(public=False, method=False)
@samples(lambda t: [(t.distinct(1, 2, 3, 5, 4), (2, 2, 3))])
def adaptive_max_pool3d(input: Tensor, output_size) -> tuple[Tensor, Tensor]:
    """Maxima and flat indices of windows that cover the input.  input (N, C, D, H, W) -> (N, C, *output_size), same."""
    return _adaptive_max("adaptive_max_pool3d", 3, input, output_size)
