"""The arithmetic of convolution on arrays, for any number of spatial dims; no Tensors, no ops.

Windows of the input are a strided view (no copy); a chunk of them is laid out as the columns of a matrix small enough
for the cache, and one matmul a chunk does the work.  1x1 kernels skip the columns, depthwise ones are shifted
multiply-adds, large 3x3 ones go by way of
`numpy_winograd`.  Names: G groups, K = C/G * prod(kernel), L = prod(output size).
"""

from __future__ import annotations

import builtins
import itertools
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any

from engine.backends.cpu.relayout import in_torch_order
from engine.core.arrays import Array, ArrayModule
from engine.core.geometry import ConvGeometry, Sizes
from engine.core.layouts import ChannelsLast
from engine.dispatch.choosing import worth_loading
from engine.ops.convolution import numpy_winograd

_COLUMNS = 1 << 20  # elements of columns at a time
_COPIES = 4  # a piece of them copied by one thread may be so much larger than one that is computed with


def padded(xp: ArrayModule, x: Array, padding: Sequence[int], fill: float = 0) -> Array:
    """x (N, C, *size) with `padding` on both sides of each spatial dim; x itself if there is none."""
    if not any(padding):
        return x
    size = [n + 2 * p for n, p in zip(x.shape[2:], padding)]
    result = xp.full((*x.shape[:2], *size), fill, x.dtype) if fill else xp.zeros((*x.shape[:2], *size), x.dtype)
    result[unpadded(x.shape[2:], padding)] = x
    return result


def unpadded(size: Sequence[int], padding: Sequence[int]) -> tuple[slice, ...]:
    """The index of the unpadded part of a padded array."""
    return (slice(None), slice(None), *(slice(p, p + n) for n, p in zip(size, padding)))


def windows(
    xp: ArrayModule, x: Array, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int], out: Sequence[int]
) -> Array:
    """A view (N, C, *kernel, *out) of x (N, C, *size)."""
    steps = x.strides[2:]
    return xp.lib.stride_tricks.as_strided(
        x,
        (*x.shape[:2], *kernel, *out),
        (*x.strides[:2], *(d * t for d, t in zip(dilation, steps)), *(s * t for s, t in zip(stride, steps))),
    )


def taps(
    kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int], out: Sequence[int]
) -> Iterator[tuple[Any, tuple[slice, ...]]]:
    """(index in the kernel, slices of the padded input that this element of the kernel overlaps)."""
    for at in itertools.product(*map(range, kernel)):
        yield (
            at,
            tuple(slice(i * d, i * d + (n - 1) * s + 1, s) for i, d, s, n in zip(at, dilation, stride, out)),
        )


_STEP = 16  # elements; of fewer at once each costs more


def _chunks(count: int, rows: int, per_row: int) -> Iterator[tuple[slice, slice]]:
    """(samples, rows) slices so that each has about _COLUMNS elements."""
    each = builtins.max(1, rows * per_row)
    if each <= 2 * _COLUMNS:
        step = builtins.max(1, _COLUMNS // each)
        for n in range(0, count, step):
            yield slice(n, builtins.min(n + step, count)), slice(0, rows)
        return
    step = builtins.max(1, _COLUMNS // builtins.max(1, per_row))
    for n in range(count):
        for r in range(0, rows, step):
            yield slice(n, n + 1), slice(r, builtins.min(r + step, rows))


def _strided(x: Array, stride: Sequence[int], out: Sequence[int]) -> Array:
    if all(s == 1 for s in stride) and tuple(x.shape[2:]) == tuple(out):
        return x
    return x[(slice(None), slice(None), *(slice(0, (n - 1) * s + 1, s) for s, n in zip(stride, out)))]


def forward(xp: ArrayModule, x: Array, w: Array, bias: Array | None, geometry: ConvGeometry) -> Array:
    """x (N, C, *size), w (O, C/G, *kernel), bias (O) or None -> (N, O, *out)."""
    out = geometry.output_size(x.shape[2:], w.shape[2:])
    if hasattr(xp, "share") and x.dtype.char in "fd" and w.size and prod(out) and x.size and _generated(x.size):
        from engine.ops.convolution import generated, generated_depthwise

        if generated_depthwise.serves(x.shape, w.shape, geometry, x, w):
            other: Callable[..., Array] = lambda x, w, bias: plain(xp, x, w, bias, geometry)
            return generated_depthwise.Forward(x.shape, w.shape, geometry, other)(x, w, bias)
        made = generated.forward(x, w, bias, out, geometry, lambda x, w, bias: plain(xp, x, w, bias, geometry))
        if made is not None:
            return made
    return plain(xp, x, w, bias, geometry, out)


def of_one_place(
    x: Array,
    w: Array,
    bias: Array | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> bool:
    """Return whether images are one float of each channel, whose convolution is a product, and all fits."""
    shape, dtype, n = x.shape, x.dtype, len(stride)
    return (
        groups == 1
        and len(shape) == n + 2
        and w.shape[1:] == shape[1:]
        and shape[2:] == (1,) * n
        and w.size > 0
        and dtype.char in "fd"
        and w.dtype == dtype
        and (bias is None or (bias.shape == w.shape[:1] and bias.dtype == dtype))
        and len(padding) == len(dilation) == n
        and not any(padding)
        and builtins.min(*stride, *dilation) > 0
    )


def product_of_one_place(xp: ArrayModule, x: Array, w: Array, bias: Array | None) -> Array:
    """`forward` where `of_one_place`."""
    result = xp.matmul(x.reshape(x.shape[:2]), w.reshape(w.shape[:2]).T)
    if bias is not None:
        result += bias
    return result.reshape(*result.shape, *(1,) * (x.ndim - 2))


def gradients_of_one_place(g: Array, other: Array, size: Sequence[int], padding: Sequence[int], groups: int) -> bool:
    """Return whether gradients of results and either the input or the weight are floats of one element of each channel,
    as is `size`, the shape of the gradient that is wanted: a product."""
    one = (1,) * (g.ndim - 2)
    return (
        groups == 1
        and g.shape[2:] == other.shape[2:] == tuple(size[2:]) == one
        and g.dtype.char in "fd"
        and g.dtype == other.dtype
        and not any(padding)
        and g.size > 0
        and other.size > 0
    )


def input_of_one_place(xp: ArrayModule, g: Array, w: Array) -> Array:
    """`backward_input` where `gradients_of_one_place`."""
    return xp.matmul(g.reshape(g.shape[:2]), w.reshape(w.shape[:2])).reshape(g.shape[0], w.shape[1], *g.shape[2:])


def weight_of_one_place(xp: ArrayModule, g: Array, x: Array) -> Array:
    """`backward_weight` where `gradients_of_one_place`; of one image `matmul` has no fast code."""
    left, right = g.reshape(g.shape[:2]).T, x.reshape(x.shape[:2])
    made = left.dot(right) if x.shape[0] == 1 else xp.matmul(left, right)
    return made.reshape(*made.shape, *g.shape[2:])


def _generated(size: int) -> bool:
    from engine.kernels import processor

    return processor.available() and worth_loading(size)


def _each_channel(
    xp: ArrayModule, size: Sequence[int], w: Sequence[int], geometry: ConvGeometry, *arrays: Array
) -> Any:
    """The module of generated convolutions of each channel by itself, where it serves gradients; else None."""
    if not hasattr(xp, "share") or not _generated(arrays[0].size):
        return None
    from engine.ops.convolution import generated_depthwise

    return generated_depthwise if generated_depthwise.serves(size, w, geometry, *arrays) else None


def plain(
    xp: ArrayModule, x: Array, w: Array, bias: Array | None, geometry: ConvGeometry, out: Sizes | None = None
) -> Array:
    """`forward` by array functions alone; out: the size of the result, where it is known."""
    count, channels, kernel = x.shape[0], x.shape[1], w.shape[2:]
    stride, padding, dilation, groups = geometry
    if out is None:
        out = geometry.output_size(x.shape[2:], kernel)
    result = xp.empty((count, w.shape[0], *out), x.dtype)
    if not result.size:
        return result
    total = prod(out)
    if (
        groups == 1
        and tuple(kernel) == (3, 3)
        and all(s == 1 for s in (*stride, *dilation))
        and numpy_winograd.serves(xp, x, w, result, type(w) is ChannelsLast)
        and numpy_winograd.forward(xp, x, w, padding, result)
    ):
        return _with_bias(result, bias)
    w = in_torch_order(w)
    if not w.size:
        result[...] = 0
    elif geometry.pointwise(kernel):
        inputs = xp.ascontiguousarray(_strided(x, stride, out)).reshape(count, groups, channels // groups, total)
        matrix = w.reshape(groups, -1, channels // groups)
        if groups == 1:
            xp.matmul(matrix[0], inputs[:, 0], out=result.reshape(count, -1, total))
        else:
            xp.matmul(matrix, inputs, out=result.reshape(count, groups, -1, total))
    elif groups > 1 and groups == channels:
        _depthwise(xp, padded(xp, x, padding), w, result, stride, dilation)
    elif total < 128 and count > 1:
        _merged(
            xp,
            windows(xp, padded(xp, x, padding), kernel, stride, dilation, out),
            w,
            result,
            groups,
        )
    else:
        fill = _filler(xp, padded(xp, x, padding), kernel, stride, dilation, out)
        matrix = w.reshape(groups, w.shape[0] // groups, -1)
        if groups == 1:
            matrix = matrix[0]
        inner_total = total // out[0]
        depth = channels * prod(kernel)
        buffer = None
        for samples, rows in _chunks(count, out[0], depth * inner_total):
            n, height = samples.stop - samples.start, rows.stop - rows.start
            shape = (n, channels, *kernel, height, *out[1:])
            if buffer is None or buffer.shape != shape:
                buffer = xp.empty(shape, x.dtype)
            fill(buffer, samples, rows)
            length = height * inner_total
            start = rows.start * inner_total
            if groups == 1:
                target = result.reshape(count, -1, total)[samples, :, start : start + length]
                xp.matmul(matrix, buffer.reshape(n, depth, length), out=target)
            else:
                target = result.reshape(count, groups, -1, total)[samples, :, :, start : start + length]
                xp.matmul(matrix, buffer.reshape(n, groups, depth // groups, length), out=target)
    return _with_bias(result, bias)


def _with_bias(result: Array, bias: Array | None) -> Array:
    if bias is not None:
        result += bias.reshape(-1, *(1,) * (result.ndim - 2))
    return result


def _filler(
    xp: ArrayModule, x: Array, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int], out: Sequence[int]
) -> Callable[[Array, slice, slice], None]:
    """`fill(buffer, samples, rows)`: the windows (n, C, *kernel, rows, *out) of the padded x.

    Where the last dim is taken in steps, its elements are sorted by their place in a step first: what is copied is
    together then.
    """
    lead, s, k = (slice(None),) * (1 + len(kernel)), stride[-1], kernel[-1]
    if s == 1 or dilation[-1] != 1 or k == 1 or not hasattr(xp, "share"):
        views = [(slice(None), windows(xp, x, kernel, stride, dilation, out))]
    else:
        width = -(-x.shape[-1] // s)
        apart = xp.empty((s, *x.shape[:-1], width), x.dtype)
        views = []
        for r in range(builtins.min(s, k)):
            part = x[..., r::s]
            apart[r, ..., : part.shape[-1]] = part
            few = (*kernel[:-1], -(-(k - r) // s))
            shown = windows(xp, apart[r], few, (*stride[:-1], 1), dilation, out)
            views.append((slice(r, None, s), shown))

    def fill(buffer: Array, samples: slice, rows: slice) -> None:
        def work(channels: slice) -> None:
            for steps, view in views:
                buffer[(slice(None), channels, *lead[2:], steps)] = view[(samples, channels, *lead[1:], rows)]

        if hasattr(xp, "share"):
            xp.share(work, buffer.shape[1], buffer.size // _COPIES)
        else:
            work(slice(None))

    return fill


def _merged(xp: ArrayModule, view: Array, w: Array, result: Array, groups: int) -> None:
    """Samples with few windows side by side in one matmul, so that the weights are read once for many of them."""
    count, outputs, *out = result.shape
    total, depth = prod(out), view.shape[1] * prod(w.shape[2:])
    matrix = w.reshape(groups, outputs // groups, -1)
    axes = (*range(1, 2 + len(out)), 0, *range(2 + len(out), 2 + 2 * len(out)))
    flat = result.reshape(count, outputs, total)
    for samples, _ in _chunks(count, 1, depth * total):
        piece = view[samples].transpose(axes)  # (C, *kernel, n, *out)
        n = samples.stop - samples.start
        cols = xp.ascontiguousarray(piece).reshape(groups, depth // groups, n * total)
        product = xp.matmul(matrix, cols).reshape(outputs, n, total)
        flat[samples] = product.transpose(1, 0, 2)


def _depthwise(
    xp: ArrayModule, x: Array, w: Array, result: Array, stride: Sequence[int], dilation: Sequence[int]
) -> None:
    """Shifted multiply-adds, a few samples at a time so that they stay in the cache."""
    out, kernel = result.shape[2:], w.shape[2:]
    channels = x.shape[1]
    many = w.shape[0] // channels
    weights = w.reshape(channels, many, *kernel)
    whole = result.reshape(x.shape[0], channels, many, *out)
    ones = (1,) * len(out)
    for samples, _ in _chunks(x.shape[0], 1, channels * many * prod(out)):
        part, target = x[samples], whole[samples]
        product = None
        for at, where in taps(kernel, stride, dilation, out):
            overlapped = part[(slice(None), slice(None), *where)][:, :, None]
            factor = weights[(slice(None), slice(None), *at)].reshape(channels, many, *ones)
            if product is None:
                product = xp.empty_like(target)
                xp.multiply(overlapped, factor, out=target)
            else:
                xp.multiply(overlapped, factor, out=product)
                target += product


def backward_input(xp: ArrayModule, g: Array, w: Array, size: Sequence[int], geometry: ConvGeometry) -> Array:
    """The input's gradient.  g (N, O, *out), w (O, C/G, *kernel) -> size (N, C, *size)."""
    groups = geometry.groups
    if not g.size or not w.size or not prod(size):
        return xp.zeros(size, g.dtype)
    if groups > 1 and (code := _each_channel(xp, size, w.shape, geometry, g, w)):
        plain = lambda: _input_by_arrays(xp, g, w, size, geometry)
        made: Array = code.backward_input(g, w, tuple(size), geometry, plain)
        return made
    return _input_by_arrays(xp, g, w, size, geometry)


def _input_by_arrays(xp: ArrayModule, g: Array, w: Array, size: Sequence[int], geometry: ConvGeometry) -> Array:
    """`backward_input` by array functions alone."""
    stride, padding, dilation, groups = geometry
    count, channels, *space = size
    kernel, out = w.shape[2:], g.shape[2:]
    total = prod(out)
    per_out, per_in = w.shape[0] // groups, channels // groups
    if geometry.pointwise(kernel):
        matrix = w.reshape(groups, per_out, per_in).swapaxes(1, 2)
        grads = g.reshape(count, groups, per_out, total)
        if all(s == 1 for s in stride) and tuple(space) == tuple(out):
            result = xp.empty(size, g.dtype)
            xp.matmul(matrix, grads, out=result.reshape(count, groups, per_in, total))
            return result
        result = xp.zeros(size, g.dtype)
        _strided(result, stride, out)[...] = xp.matmul(matrix, grads).reshape(count, channels, *out)
        return result
    flipped = [d * (k - 1) - p for d, k, p in zip(dilation, kernel, padding)]
    fits = all(n == m + 2 * p - d * (k - 1) for m, n, p, d, k in zip(space, out, padding, dilation, kernel))
    depthwise = groups > 1 and groups == channels
    if fits and all(s == 1 for s in stride) and not depthwise and builtins.min(flipped) >= 0 and per_out <= 2 * per_in:
        swapped = w.reshape(groups, per_out, per_in, *kernel).swapaxes(1, 2)
        swapped = swapped[(slice(None),) * 3 + (slice(None, None, -1),) * len(kernel)]
        swapped = swapped.reshape(channels, per_out, *kernel)
        return forward(xp, g, swapped, None, ConvGeometry((1,) * len(kernel), tuple(flipped), dilation, groups))
    reach = [  # what the windows cover, at least the padded input
        builtins.max(m + 2 * p, (n - 1) * s + d * (k - 1) + 1)
        for m, p, n, s, d, k in zip(space, padding, out, stride, dilation, kernel)
    ]
    wide = xp.zeros((count, channels, *reach), g.dtype)
    if depthwise:
        ones = (1,) * len(out)
        weights = w.reshape(channels, per_out, *kernel)
        grads = g.reshape(count, channels, per_out, *out)
        for samples, _ in _chunks(count, 1, channels * per_out * total):
            part, target = grads[samples], wide[samples]
            for at, where in taps(kernel, stride, dilation, out):
                factor = weights[(slice(None), slice(None), *at)].reshape(channels, per_out, *ones)
                piece = part * factor
                piece = piece[:, :, 0] if per_out == 1 else piece.sum(axis=2)
                target[(slice(None), slice(None), *where)] += piece
    else:
        matrix = w.reshape(groups, per_out, -1).swapaxes(1, 2)
        grads = g.reshape(count, groups, per_out, total)
        inner_total = total // out[0]
        for samples, rows in _chunks(count, out[0], channels * prod(kernel) * inner_total):
            n, height = samples.stop - samples.start, rows.stop - rows.start
            start = rows.start * inner_total
            piece = grads[samples, :, :, start : start + height * inner_total]
            cols = xp.matmul(matrix, piece).reshape(n, groups * per_in, *kernel, height, *out[1:])
            base = rows.start * stride[0]
            _add_windows(xp, wide[samples, :, base:], cols, kernel, stride, dilation)
    if list(reach) == list(space):
        return wide
    return xp.ascontiguousarray(wide[unpadded(space, padding)])


def _add_windows(
    xp: ArrayModule, target: Array, cols: Array, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> None:
    """Adds windows (n, C, *kernel, *out) to what they cover of target (n, C, *size).

    Of the last dim as many elements at once as lie in a long step: a spectrogram's inverse has 1024, in steps of 256.
    """
    both, out, k, s = (slice(None),) * 2, cols.shape[2 + len(kernel) :], kernel[-1], stride[-1]
    if s < _STEP or k == 1 or dilation[-1] != 1:
        for at, where in taps(kernel, stride, dilation, out):
            target[(*both, *where)] += cols[(*both, *at)]
        return
    for at, where in taps(kernel[:-1], stride[:-1], dilation[:-1], out[:-1]):
        for first in range(0, k, s):
            few = builtins.min(s, k - first)
            covered = target[(*both, *where, slice(first, None))]
            covered = xp.lib.stride_tricks.as_strided(
                covered,
                (*covered.shape[:-1], out[-1], few),
                (*covered.strides[:-1], s * covered.strides[-1], covered.strides[-1]),
            )
            covered += xp.moveaxis(cols[(*both, *at, slice(first, first + few))], 2, -1)


def backward_weight(xp: ArrayModule, g: Array, x: Array, size: Sequence[int], geometry: ConvGeometry) -> Array:
    """The weight's gradient.  g (N, O, *out), x (N, C, *size) -> size (O, C/G, *kernel)."""
    if geometry.groups > 1 and (code := _each_channel(xp, x.shape, size, geometry, g, x)):
        plain = lambda: _weight_by_arrays(xp, g, x, size, geometry)
        made: Array = code.backward_weight(g, x, tuple(size), geometry, plain)
        return made
    if hasattr(xp, "share") and g.dtype.char == "f" and g.size and _generated(x.size):
        from engine.ops.convolution import generated_weights

        if generated_weights.serves(g, x, size, geometry):
            plain = lambda: _weight_by_arrays(xp, g, x, size, geometry)
            return generated_weights.backward_weight(g, x, tuple(size), geometry, plain)
    return _weight_by_arrays(xp, g, x, size, geometry)


def _weight_by_arrays(xp: ArrayModule, g: Array, x: Array, size: Sequence[int], geometry: ConvGeometry) -> Array:
    """`backward_weight` by array functions alone."""
    stride, padding, dilation, groups = geometry
    kernel, out = tuple(size[2:]), g.shape[2:]
    count, channels = x.shape[:2]
    result = xp.zeros(size, g.dtype)
    if not g.size or not result.size:
        return result
    per_out = size[0] // groups
    total = prod(out)
    if groups > 1 and groups == channels and not geometry.pointwise(kernel):
        x = padded(xp, x, padding)
        grads = g.reshape(count, channels, per_out, *out)
        weights = result.reshape(channels, per_out, *kernel)
        letters = "xyz"[: len(out)]
        for samples, _ in _chunks(count, 1, channels * per_out * total):
            for at, where in taps(kernel, stride, dilation, out):
                overlapped = x[samples][(slice(None), slice(None), *where)]
                weights[(slice(None), slice(None), *at)] += xp.einsum(
                    f"ncm{letters},nc{letters}->cm", grads[samples], overlapped
                )
        return result
    if count == 1 and geometry.pointwise(kernel):
        places = xp.ascontiguousarray(_strided(x, stride, out)).reshape(groups, channels // groups, total)
        grads, sums = g.reshape(groups, per_out, total), result.reshape(groups, per_out, channels // groups)
        for left, right, made in zip(grads, places, sums):
            if total == 1:  # for which numpy's product has no fast code
                xp.multiply(left, right.T, out=made)
            else:
                xp.matmul(left, right.T, out=made)
        return result
    view = windows(xp, padded(xp, x, padding), kernel, stride, dilation, out)
    axes = (1, *range(2, 2 + len(kernel)), 0, *range(2 + len(kernel), 2 + 2 * len(kernel)))
    view = view.transpose(axes)  # (C, *kernel, N, *out)
    lead = (slice(None),) * (1 + len(kernel))
    inner_total = total // out[0]
    grads = g.reshape(count, groups, per_out, *out)
    sums = result.reshape(groups, per_out, -1)
    buffer = None
    for samples, rows in _chunks(count, out[0], channels * prod(kernel) * inner_total):
        piece = view[(*lead, samples, rows)]
        if buffer is None or buffer.shape != piece.shape:
            buffer = xp.empty(piece.shape, x.dtype)
        buffer[...] = piece
        length = (samples.stop - samples.start) * (rows.stop - rows.start) * inner_total
        cols = buffer.reshape(groups, -1, length)
        left = grads[samples, :, :, rows].swapaxes(0, 1).swapaxes(1, 2).reshape(groups, per_out, length)
        if groups == 1:
            sums[0] += xp.matmul(left[0], cols[0].T)
        else:
            sums += xp.matmul(left, cols.swapaxes(1, 2))
    return result
