"""Max, average, power-average, adaptive and fractional pooling, and unpooling."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from engine.autograd.graph import name_node, requires_grad_of
from engine.autograd.versions import guard_again
from engine.backends.cpu.relayout import follow
from engine.core import dtypes
from engine.core.geometry import PoolGeometry
from engine.core.grad_mode import mode, no_grad
from engine.dispatch import composite, derivative, op, samples
from engine.dispatch.out import store
from engine.ops.pointwise.arithmetic import not_implemented, refuse
from engine.ops.pooling import numpy as by_numpy
from engine.tensor import Tensor, raw_array


def _wide(array):
    return array.astype("float32") if array.dtype.itemsize == 2 and array.dtype.kind in "fV" else array


# --- the ops: geometry as tuples, one entry a spatial dim


def _max_samples(t, n):
    more = [] if n == 3 else [(t.distinct(2, 3, 7, 6), (3, 2), (2, 2), (1, 1), (1, 2), False)]
    return [
        (t.distinct(1, 2, *(5,) * n), (2,) * n, (2,) * n, (0,) * n, (1,) * n, False),
        (t.distinct(1, 2, *(5,) * n), (3,) * n, (2,) * n, (1,) * n, (1,) * n, True),
        *more,
    ]


def _max_kernel(xp, input, kernel_size, stride, padding, dilation, ceil_mode):
    geometry = PoolGeometry.of(kernel_size, stride, padding, dilation)
    out = geometry.output_size(input.shape[2:], ceil_mode)
    return follow(xp, by_numpy.reduce(xp, input, geometry, out, True), input)


def _max_slope(grad, input, output, kernel_size, stride, padding, dilation, ceil_mode):
    """Torch keeps the indices: maxima that were written to are found again, and where the gradient is differentiated
    the indices are found at once."""
    if output is None:
        with no_grad():
            function = max_pool2d_values if len(kernel_size) == 2 else max_pool3d_values
            output = function(input.detach(), kernel_size, stride, padding, dilation, ceil_mode)
    if mode.enabled and requires_grad_of(grad):
        indices = max_pool_indices(input.detach(), output.detach(), kernel_size, stride, padding, dilation)
        return max_pool_backward(grad, indices, tuple(input.shape[2:]), kernel_size, stride, padding, dilation)
    return max_pool_gradient(grad, input, output, kernel_size, stride, padding, dilation)


@op(
    public=False,
    out=False,
    method=False,
    node="MaxPool2DWithIndicesBackward0",
    channels_last=True,
    large=256,
    image_kernel=True,
    generated="many",
)
@derivative(
    input=lambda grad, input, kept_result, kernel_size, stride, padding, dilation, ceil_mode: _max_slope(
        grad, input, kept_result, kernel_size, stride, padding, dilation, ceil_mode
    )
)
@samples(lambda t: _max_samples(t, 2))
def max_pool2d_values(xp, input, kernel_size, stride, padding, dilation, ceil_mode):
    """The maximum of each window.  input (N, C, H, W) -> (N, C, H', W')."""
    return _max_kernel(xp, input, kernel_size, stride, padding, dilation, ceil_mode)


@op(
    public=False,
    out=False,
    method=False,
    node="MaxPool3DWithIndicesBackward0",
    channels_last=True,
    large=256,
    generated="many",
)
@derivative(
    input=lambda grad, input, kept_result, kernel_size, stride, padding, dilation, ceil_mode: _max_slope(
        grad, input, kept_result, kernel_size, stride, padding, dilation, ceil_mode
    )
)
@samples(lambda t: _max_samples(t, 3))
def max_pool3d_values(xp, input, kernel_size, stride, padding, dilation, ceil_mode):
    """The maximum of each window.  input (N, C, D, H, W) -> (N, C, D', H', W')."""
    return _max_kernel(xp, input, kernel_size, stride, padding, dilation, ceil_mode)


@op(public=False, out=False, method=False, channels_last=True, large=256, image_kernel=True, generated="many")
@derivative(
    grad_output=lambda grad, input, output, kernel_size, stride, padding, dilation: pool_gather(
        grad, max_pool_indices(input.detach(), output.detach(), kernel_size, stride, padding, dilation)
    )
)
@samples(
    lambda t: [
        (
            t(1, 2, 2, 2),
            t.constant(t.of(range(32)).reshape(1, 2, 4, 4) * 1.0),
            t.of([[[[5.0, 7.0], [13.0, 15.0]], [[21.0, 23.0], [29.0, 31.0]]]]),
            (2, 2),
            (2, 2),
            (0, 0),
            (1, 1),
        ),
    ]
)
def max_pool_gradient(xp, grad_output, input, output, kernel_size, stride, padding, dilation):
    """The gradient of the maximum of each window.  grad_output, output (N, C, *out), input (N, C, *) -> as input."""
    geometry = PoolGeometry.of(kernel_size, stride, padding, dilation)
    indices = by_numpy.window_argmax(xp, input, output, geometry)
    found = by_numpy.put_back(xp, grad_output, indices, input.shape[2:], geometry)
    return follow(xp, found, input)


@op(public=False, out=False, method=False)
@samples(lambda t: [(t.of(range(8)).reshape(1, 1, 2, 4), t.of([[[[5, 7]]]]), (2, 2), (2, 2), (0, 0), (1, 1))])
def max_pool_indices(xp, input, output, kernel_size, stride, padding, dilation):
    """Return the position in the flat input of each maximum, the first if several. input (N, C, *), output (N, C, *out)
    -> same."""
    return by_numpy.window_argmax(xp, input, output, PoolGeometry.of(kernel_size, stride, padding, dilation))


@op(public=False, out=False, method=False)
@derivative(grad_output=lambda grad, indices: pool_gather(grad, indices))
@samples(
    lambda t: [
        (t(1, 2, 2, 2), t.of([[[[0, 2], [8, 10]], [[5, 7], [9, 15]]]]), (4, 4), (2, 2), (2, 2), (0, 0), (1, 1)),
        (t(1, 1, 2, 2), t.of([[[[5, 5], [9, 10]]]]), (4, 4), (3, 3), (1, 1), (0, 0), (1, 1)),
    ]
)
def max_pool_backward(xp, grad_output, indices, size, kernel_size, stride, padding, dilation):
    """Each gradient at the place of its maximum, summed.  grad_output, indices (N, C, *out) -> (N, C, *size)."""
    geometry = PoolGeometry.of(kernel_size, stride, padding, dilation)
    return by_numpy.put_back(xp, grad_output, indices, size, geometry)


@op(public=False, out=False, method=False, large=512, generated="many")
@derivative(input=lambda grad, indices, input_shape: pool_scatter(grad, indices, tuple(input_shape[2:])))
@samples(lambda t: [(t(1, 2, 2, 3), t.of([[[0, 5], [1, 1]]]))])
def pool_gather(xp, input, indices):
    """The elements at flat indices of each channel.  input (N, C, *), indices (N, C, *out) -> (N, C, *out)."""
    return by_numpy.take_flat(xp, input, indices)


@op(public=False, out=False, method=False, large=512, generated="many")
@derivative(input=lambda grad, indices: pool_gather(grad, indices))
@samples(lambda t: [(t(1, 2, 2), t.of([[[0, 5], [1, 1]]]), (2, 3))])
def pool_scatter(xp, input, indices, size):
    """Elements summed at flat indices of each channel.  input, indices (N, C, *out) -> (N, C, *size)."""
    return by_numpy.put_flat(xp, input, indices, size)


def _divided(xp, array, size, out, geometry, include, divisor):
    if divisor is None:
        divisor = by_numpy.counts(xp, size, out, geometry, include, array.dtype)
    if array.dtype.kind in "iu":  # C's division, towards zero
        return xp.sign(array) * xp.sign(divisor) * (xp.abs(array) // xp.abs(divisor))
    return array / divisor


def _avg_kernel(xp, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override):
    geometry, size = PoolGeometry.of(kernel_size, stride, padding), input.shape[2:]
    out = geometry.output_size(size, ceil_mode)
    sums = by_numpy.reduce(xp, _wide(input), geometry, out, False)
    found = _divided(xp, sums, size, out, geometry, count_include_pad, divisor_override)
    return follow(xp, found.astype(input.dtype, copy=False), input)


def _avg_samples(t, n):
    one = (1,) * n
    return [
        (t(1, 2, *(5,) * n), (2,) * n, (2,) * n, (0,) * n, False, True, None),
        (t(1, 2, *(6,) * n), (3,) * n, (2,) * n, one, True, True, None),
        (t(1, 1, *(6,) * n), (3,) * n, (2,) * n, one, True, False, None),
        (t(1, 1, *(4,) * n), (2,) * n, one, (0,) * n, False, True, 3),
    ]


@op(
    public=False,
    out=False,
    method=False,
    node="AvgPool2DBackward0",
    channels_last=True,
    keeps=("input",),
    large=256,
    generated="some",
)
@derivative(
    input=lambda grad, input_shape, kernel_size, stride, padding, count_include_pad, divisor_override: (
        avg_pool_backward(
            grad, tuple(input_shape[2:]), kernel_size, stride, padding, count_include_pad, divisor_override
        )
    )
)
@samples(lambda t: _avg_samples(t, 2))
def avg_pool2d_values(xp, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override):
    """The mean of each window.  input (N, C, H, W) -> (N, C, H', W')."""
    return _avg_kernel(xp, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@op(
    public=False,
    out=False,
    method=False,
    node="AvgPool3DBackward0",
    channels_last=True,
    keeps=("input",),
    large=256,
    generated="some",
)
@derivative(
    input=lambda grad, input_shape, kernel_size, stride, padding, count_include_pad, divisor_override: (
        avg_pool_backward(
            grad, tuple(input_shape[2:]), kernel_size, stride, padding, count_include_pad, divisor_override
        )
    )
)
@samples(lambda t: _avg_samples(t, 3))
def avg_pool3d_values(xp, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override):
    """The mean of each window.  input (N, C, D, H, W) -> (N, C, D', H', W')."""
    return _avg_kernel(xp, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def _again(grad, out, kernel_size, stride, padding, count_include_pad, divisor_override):
    """The average pooling that gave windows `out`, again."""
    floor = PoolGeometry.of(kernel_size, stride, padding).output_size(grad.shape[2:])
    function = avg_pool2d_values if len(kernel_size) == 2 else avg_pool3d_values
    ceil_mode = floor != tuple(out)
    return function(grad, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@op(public=False, out=False, method=False, channels_last=True, large=256, generated="some")
@derivative(
    grad_output=lambda grad, grad_output_shape, kernel_size, stride, padding, count_include_pad, divisor_override: (
        _again(grad, grad_output_shape[2:], kernel_size, stride, padding, count_include_pad, divisor_override)
    )
)
@samples(
    lambda t: [
        (t(1, 2, 2, 2), (5, 5), (2, 2), (2, 2), (0, 0), True, None),
        (t(1, 2, 4, 4), (6, 6), (3, 3), (2, 2), (1, 1), False, None),
    ]
)
def avg_pool_backward(xp, grad_output, size, kernel_size, stride, padding, count_include_pad, divisor_override):
    """The gradient of average pooling.  grad_output (N, C, *out) -> (N, C, *size)."""
    geometry, out = PoolGeometry.of(kernel_size, stride, padding), grad_output.shape[2:]
    g = _divided(xp, _wide(grad_output), size, out, geometry, count_include_pad, divisor_override)
    result = by_numpy.spread(xp, g, size, geometry)
    return follow(xp, result.astype(grad_output.dtype, copy=False), grad_output)


# --- arguments and errors


def _tuple(value, n, name, label):
    if value.__class__ is int:
        return (value,) * n
    words = {1: "one", 2: "two", 3: "three"}
    if not isinstance(value, Iterable):
        return (int(value),) * n
    value = tuple(int(v) for v in value)
    if len(value) == 1:
        return value * n
    if len(value) != n and n == 1:
        raise RuntimeError(f"{name}() argument '{label}' should contain one int (got {len(value)})")
    if len(value) != n:
        kind = f"a tuple of {words[n]} ints"
        if label == "stride":
            raise RuntimeError(f"{name}: stride must either be omitted, a single int, or {kind}")
        raise RuntimeError(f"{name}: {label} must either be a single int, or {kind}")
    return value


def _none(value):
    return value is None or (isinstance(value, list | tuple) and len(value) == 0)


def _geometry(name, n, kernel_size, stride, padding, dilation=1):
    kernel = _tuple(kernel_size, n, name, "kernel_size")
    step = kernel if _none(stride) else _tuple(stride, n, name, "stride")
    return kernel, step, _tuple(padding, n, name, "padding"), _tuple(dilation, n, name, "dilation")


def _batch_of(name, n, input, kernel, stride, padding, dilation, ceil_mode, strict=True):
    """Return whether input has a batch dim; torch's refusals otherwise."""
    return _checked(n, raw_array(input).shape, kernel, stride, padding, dilation, ceil_mode, strict)


@functools.lru_cache(1024)
def _checked(n, shape, kernel, stride, padding, dilation, ceil_mode, strict):
    ndim, shape = len(shape), list(shape)
    if ndim not in (n + 1, n + 2):
        if strict:
            raise RuntimeError(f"non-empty {n + 1}D or {n + 2}D (batch mode) tensor expected for input")
        raise IndexError(f"Dimension out of range (expected to be in range of [{-ndim}, {ndim - 1}], but got {-n - 1})")
    if any(s == 0 for s in stride):
        raise RuntimeError("stride should not be zero")
    if any(k <= 0 for k in kernel):
        raise RuntimeError(f"kernel size should be greater than zero, but got {_named('k', kernel)}")
    if any(s < 0 for s in stride):
        raise RuntimeError(f"stride should be greater than zero, but got {_named('d', stride)}")
    if any(d <= 0 for d in dilation):
        raise RuntimeError(f"dilation should be greater than zero, but got {_named('dilation', dilation)}")
    if any(s == 0 for s in shape[-n - 1 :]):
        kind = f"{n + 1}D or {n + 2}D (batch mode) tensor with optional 0 dim batch size"
        raise RuntimeError(f"Expected {kind} for input, but got:{' ' * (n != 2)}{shape}")
    for k, p, d in zip(kernel, padding, dilation):
        if p < 0:
            raise RuntimeError(f"pad must be non-negative, but got pad: {p}")
        if p > ((k - 1) * d + 1) // 2:
            raise RuntimeError(
                f"pad should be at most half of effective kernel size, but got pad={p}, kernel_size={k} and "
                f"dilation={d}"
            )
    sizes = shape[-n:]
    out = PoolGeometry(kernel, stride, padding, dilation).output_size(sizes, ceil_mode)
    if any(o < 1 for o in out):
        channels = shape[-n - 1]
        raise RuntimeError(
            f"Given input size: ({'x'.join(map(str, (channels, *sizes)))}). Calculated output size: "
            f"({'x'.join(map(str, (channels, *out)))}). Output size is too small"
        )
    return ndim == n + 2


def _named(label, values):
    return " ".join(f"{label}{x}: {v}" for x, v in zip("HW" if len(values) == 2 else "THW", values))


def _no_kernel(name, input, *more):
    """torch's refusal of bool, complex and of dtypes named `more`."""
    if input.dtype.category in (dtypes.BOOL, dtypes.COMPLEX) or input.dtype.name in more:
        raise not_implemented(name, input._array)


# --- max pooling


def _max_pool(name, n, input, kernel_size, stride, padding, dilation, ceil_mode, indices):
    return _max_pool_of(name, n, input, _geometry(name, n, kernel_size, stride, padding, dilation), ceil_mode, indices)


def _max_pool_of(name, n, input, geometry, ceil_mode, indices):
    batched = _batch_of(name, n, input, *geometry, ceil_mode)
    _no_kernel(name, input)
    x = input if batched else input.unsqueeze(0)
    y = (max_pool2d_values if n == 2 else max_pool3d_values)(x, *geometry, ceil_mode)
    if not indices:
        return y if batched else _alone(y)
    where = max_pool_indices(x.detach(), y.detach(), *geometry)
    guard_again(y, where)
    return (y, where) if batched else (_alone(y), where.squeeze(0))


def _alone(y):
    """The one result of a batch of one, its node under the name of the pooling.  (1, *) -> (*)."""
    return y.squeeze(0) if y.grad_fn is None else name_node(y.squeeze(0), y.grad_fn.name())


@composite(method=False)
@samples(lambda t: [(t.distinct(2, 3, 5, 4), 2), (t.distinct(3, 5, 5), 3, 2, 1, 1, True)])
def max_pool2d(
    input: Tensor,
    kernel_size: int | tuple[int, ...],
    stride: int | tuple[int, ...] | None = None,
    padding: int | tuple[int, ...] = 0,
    dilation: int | tuple[int, ...] = 1,
    ceil_mode: bool = False,
):
    """The maximum of each window.  input (N, C, H, W) or (C, H, W) -> (N, C, H', W')."""
    return _max_pool("max_pool2d", 2, input, kernel_size, stride, padding, dilation, ceil_mode, False)


@composite(method=False)
@samples(lambda t: [(t.distinct(1, 2, 3, 4, 4), 2)])
def max_pool3d(
    input: Tensor,
    kernel_size: int | tuple[int, ...],
    stride: int | tuple[int, ...] | None = None,
    padding: int | tuple[int, ...] = 0,
    dilation: int | tuple[int, ...] = 1,
    ceil_mode: bool = False,
):
    """The maximum of each window.  input (N, C, D, H, W) or (C, D, H, W) -> (N, C, D', H', W')."""
    return _max_pool("max_pool3d", 3, input, kernel_size, stride, padding, dilation, ceil_mode, False)


@composite(public=False, method=False)
@samples(lambda t: [(t.distinct(2, 3, 5, 4), 2)])
def max_pool2d_with_indices(
    input: Tensor,
    kernel_size: int | tuple[int, ...],
    stride: int | tuple[int, ...] | None = None,
    padding: int | tuple[int, ...] = 0,
    dilation: int | tuple[int, ...] = 1,
    ceil_mode: bool = False,
) -> tuple[Tensor, Tensor]:
    """Maxima and their flat indices.  input (N, C, H, W) -> (N, C, H', W'), same int64."""
    return _max_pool("max_pool2d", 2, input, kernel_size, stride, padding, dilation, ceil_mode, True)


@composite(public=False, method=False)
@samples(lambda t: [(t.distinct(1, 2, 3, 4, 4), 2)])
def max_pool3d_with_indices(
    input: Tensor,
    kernel_size: int | tuple[int, ...],
    stride: int | tuple[int, ...] | None = None,
    padding: int | tuple[int, ...] = 0,
    dilation: int | tuple[int, ...] = 1,
    ceil_mode: bool = False,
) -> tuple[Tensor, Tensor]:
    """Maxima and their flat indices.  input (N, C, D, H, W) -> (N, C, D', H', W'), same int64."""
    return _max_pool("max_pool3d", 3, input, kernel_size, stride, padding, dilation, ceil_mode, True)


def _put_at(xp, n, grad_output, input, indices):
    """Each gradient added at its index.  grad_output, indices (N, C, *out) or (C, *out) -> as `input`."""
    name, dims = f"max_pool{n}d_with_indices_backward", input.ndim
    if dims not in (n + 1, n + 2):
        raise RuntimeError(f"{name}(): expected an input of {n + 1} or {n + 2} dims, but got {list(input.shape)}")
    if grad_output.shape != indices.shape or grad_output.ndim != dims:
        raise RuntimeError(
            f"{name}(): expected a gradient of the shape of the indices, {list(indices.shape)}, but got "
            f"{list(grad_output.shape)}"
        )
    lead = (1,) * (n + 2 - dims)
    where = indices.reshape(*lead, *indices.shape)
    found = pool_scatter.op.kernel(xp, grad_output.reshape(where.shape), where, input.shape[dims - n :])
    return found.reshape(input.shape)


def _taken_at(grad, indices, n):
    if grad.dim() == n + 2:
        return pool_gather(grad, indices)
    return pool_gather(grad.unsqueeze(0), indices.unsqueeze(0)).squeeze(0)


def _put_op(n):
    """The decorator of the gradient of pooling from its indices, over n dims."""
    window = ((2,) * n, (2,) * n, (0,) * n, (1,) * n, False)

    def register(kernel):
        kernel = derivative(
            grad_output=lambda grad, indices: _taken_at(grad, indices, n),
            input=lambda grad, input_shape: grad.new_zeros(input_shape),
        )(kernel)
        kernel = samples(
            lambda t: [
                (t(1, 1, *(2,) * n), t(1, 1, *(4,) * n), *window, t.integers(0, 4**n, 1, 1, *(2,) * n)),
                (t(2, *(1,) * n), t(2, *(3,) * n), *window, t.integers(0, 3**n, 2, *(1,) * n)),
            ]
        )(kernel)
        return op(public=False, out=False, method=False, keeps=("indices",))(kernel)

    return register


@_put_op(2)
def max_pool2d_with_indices_backward(
    xp,
    grad_output,
    input,
    kernel_size: int | tuple[int, ...],
    stride: int | tuple[int, ...],
    padding: int | tuple[int, ...],
    dilation: int | tuple[int, ...],
    ceil_mode: bool,
    indices,
):
    """Each gradient added at the index of its maximum.  grad_output, indices (N, C, H', W') -> (N, C, H, W)."""
    return _put_at(xp, 2, grad_output, input, indices)


@_put_op(3)
def max_pool3d_with_indices_backward(
    xp,
    grad_output,
    input,
    kernel_size: int | tuple[int, ...],
    stride: int | tuple[int, ...],
    padding: int | tuple[int, ...],
    dilation: int | tuple[int, ...],
    ceil_mode: bool,
    indices,
):
    """Each gradient added at the index of its maximum.  grad_output, indices (N, C, *out) -> (N, C, D, H, W)."""
    return _put_at(xp, 3, grad_output, input, indices)


def _one(value, label):
    if isinstance(value, list | tuple):
        if len(value) != 1:
            raise RuntimeError(
                f"max_pool1d() {label} must be an int, list of ints or tuple of ints of size 1 but got size "
                f"{len(value)}"
            )
        return int(value[0])
    return int(value)


@functools.lru_cache(1024)
def _window1d(length, kernel_size, stride, padding, dilation, ceil_mode):
    """The geometry (1, *) of max_pool1d; torch's refusals of others."""
    k = _one(kernel_size, "kernel_size")
    s = k if _none(stride) else _one(stride, "stride")
    p, d = _one(padding, "padding"), _one(dilation, "dilation")
    if k <= 0:
        raise RuntimeError(f"max_pool1d() kernel_size must be greater than zero, but got {k}")
    if s <= 0:
        raise RuntimeError(f"max_pool1d() stride must be greater than zero, but got {s}")
    if p < 0:
        raise RuntimeError(f"max_pool1d() padding must be non-negative, but got {p}")
    if d <= 0:
        raise RuntimeError(f"max_pool1d() dilation must be greater than zero, but got {d}")
    if p > k // 2:
        raise RuntimeError(
            f"max_pool1d() padding should be at most half of kernel size, but got padding={p} and kernel_size={k}"
        )
    (out,) = PoolGeometry((k,), (s,), (p,), (d,)).output_size((length,), ceil_mode)
    if out <= 0:
        raise RuntimeError(f"max_pool1d() Invalid computed output size: {out}")
    return (1, k), (1, s), (0, p), (1, d)


def _max_pool1d(input, kernel_size, stride, padding, dilation, ceil_mode, indices):
    if input.dim() not in (2, 3):
        raise RuntimeError(
            "max_pool1d: Expected 2D or 3D (batch mode) tensor with optional 0 dim batch size for input, but "
            f"got:{list(input.shape)}"
        )
    lists = (kernel_size, stride, padding, dilation)
    window = _window1d(input.shape[-1], *[tuple(v) if v.__class__ is list else v for v in lists], ceil_mode)
    if not indices and not input.requires_grad:  # torch has a kernel of its own for that
        refuse("max_pool1d_impl", input._array, "iubc")
    result = _max_pool_of("max_pool2d", 2, input.unsqueeze(-2), window, ceil_mode, indices)
    return tuple(r.squeeze(-2) for r in result) if indices else result.squeeze(-2)


@composite(method=False)
@samples(lambda t: [(t.distinct(2, 3, 6), 2), (t.distinct(3, 7), 3, 2, 1)])
def max_pool1d(
    input: Tensor,
    kernel_size: int | tuple[int, ...],
    stride: int | tuple[int, ...] | None = None,
    padding: int | tuple[int, ...] = 0,
    dilation: int | tuple[int, ...] = 1,
    ceil_mode: bool = False,
):
    """The maximum of each window.  input (N, C, L) or (C, L) -> (N, C, L')."""
    return _max_pool1d(input, kernel_size, stride, padding, dilation, ceil_mode, False)


@composite(method=False)
@samples(lambda t: [(t.distinct(2, 3, 6), 2)])
def max_pool1d_with_indices(
    input: Tensor,
    kernel_size: int | tuple[int, ...],
    stride: int | tuple[int, ...] | None = None,
    padding: int | tuple[int, ...] = 0,
    dilation: int | tuple[int, ...] = 1,
    ceil_mode: bool = False,
) -> tuple[Tensor, Tensor]:
    """Maxima and their indices.  input (N, C, L) -> (N, C, L'), same int64."""
    return _max_pool1d(input, kernel_size, stride, padding, dilation, ceil_mode, True)


# --- average pooling


def _avg_pool(name, n, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override):
    kernel, step, pads, ones = _geometry(name, n, kernel_size, stride, padding)
    if divisor_override == 0:
        raise RuntimeError("divisor must be not zero")
    batched = _batch_of(name, n, input, kernel, step, pads, ones, ceil_mode, strict=n == 3)
    label, small = "avg_pool2d" if n == 2 else "avg_pool3d_out_frame", ("uint8", "int8", "int16", "int32")
    _no_kernel(label, input, *small)
    x = input if batched else input.unsqueeze(0)
    function = avg_pool2d_values if n == 2 else avg_pool3d_values
    y = function(x, kernel, step, pads, bool(ceil_mode), bool(count_include_pad), divisor_override)
    return y if batched else _alone(y)


@composite(public=False, method=False)
@samples(lambda t: [(t(2, 3, 5, 4), 2), (t(3, 5, 5), 3, 2, 1, True, False)])
def avg_pool2d(
    input: Tensor,
    kernel_size: int | tuple[int, ...],
    stride: int | tuple[int, ...] | None = None,
    padding: int | tuple[int, ...] = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    out: Tensor | None = None,
):
    """The mean of each window.  input (N, C, H, W) or (C, H, W) -> (N, C, H', W')."""
    if out is not None:
        given = (input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
        return store(out, "avg_pool2d", avg_pool2d, *given)
    return _avg_pool(
        "avg_pool2d",
        2,
        input,
        kernel_size,
        stride,
        padding,
        ceil_mode,
        count_include_pad,
        divisor_override,
    )


@composite(public=False, method=False, autocast={"cpu": "float32"})
@samples(lambda t: [(t(1, 2, 3, 4, 4), 2)])
def avg_pool3d(
    input: Tensor,
    kernel_size: int | tuple[int, ...],
    stride: int | tuple[int, ...] | None = None,
    padding: int | tuple[int, ...] = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    out: Tensor | None = None,
):
    """The mean of each window.  input (N, C, D, H, W) or (C, D, H, W) -> (N, C, D', H', W')."""
    if out is not None:
        given = (input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
        return store(out, "avg_pool3d", avg_pool3d, *given)
    return _avg_pool(
        "avg_pool3d",
        3,
        input,
        kernel_size,
        stride,
        padding,
        ceil_mode,
        count_include_pad,
        divisor_override,
    )


def _two_or_three(name, input):
    if input.dim() not in (2, 3):
        raise RuntimeError(
            f"Expected 2 to 3 dimensions, but got {input.dim()}-dimensional tensor for argument #1 'self' (while "
            f"checking arguments for {name})"
        )


@composite(method=False)
@samples(lambda t: [(t(2, 3, 6), 2), (t(3, 7), 3, 2, 1)])
def avg_pool1d(
    input: Tensor,
    kernel_size: int | tuple[int, ...],
    stride: int | tuple[int, ...] | None = None,
    padding: int | tuple[int, ...] = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
):
    """The mean of each window.  input (N, C, L) or (C, L) -> (N, C, L')."""
    _two_or_three("avg_pool1d", input)
    (k,) = _tuple(kernel_size, 1, "avg_pool1d", "kernel_size")
    (s,) = (k,) if _none(stride) else _tuple(stride, 1, "avg_pool1d", "stride")
    (p,) = _tuple(padding, 1, "avg_pool1d", "padding")
    y = avg_pool2d(input.unsqueeze(-2), (1, k), (1, s), (0, p), ceil_mode, count_include_pad)
    return y.squeeze(-2)
