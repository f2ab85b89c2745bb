"""Ops along one dim as generated kernels (the extra `jit`): resampling, pooling of signals, flips, triangles, elements
and rows by index.

They are the kernels "cpu" of their ops; what they do not serve is left to the other route.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from engine.core.checks import wrap_dim
from engine.core.lru import LRU
from engine.dispatch import kernel
from engine.kernels import averages, lines, places, scans
from engine.kernels.pooling import max_of_pairs, max_of_pairs_gradient
from engine.ops import along, extremes, gathering, pooling, rearranging
from engine.ops.gathering import all_below
from engine.ops.generated import copies, launch
from engine.ops.generated.layers import parts, plain, run
from engine.ops.generated.route import lanes
from engine.ops.nn import _resample, resample
from engine.ops.norm import rms

_TAPS = 8  # of a window or of a result: each is written out in the kernel
_PARTS = 16  # rows at least, where lines may be cut
_WRITTEN, _LINES = 128, 64  # bytes of a line that is written out backwards, and such lines of a row at most
_ADDED = 128  # lines of a part of an image that are added up in its own type
_tables: LRU[Any, Any] = LRU(512)
_repeats: LRU[Any, int] = LRU(512)


# --- resampling


def _table(entry: tuple[Any, ...], transposed: bool, dtype: Any) -> tuple[int, int, int, Any, Any]:
    """(length in, length out, taps, places, weights or None where all are 1) of one dim; taps 0: not served."""

    def make() -> tuple[int, int, int, Any, Any]:
        n, m, places, weights = _resample.taps(entry, transposed)
        taps = len(places[0]) if places else 1
        if taps > _TAPS or not n or not m:
            return n, m, 0, None, None
        weighted = any(w != 1.0 for row in weights for w in row)
        return n, m, taps, np.array(places, "int32"), np.array(weights, dtype) if weighted else None

    return _tables.made((entry, transposed, dtype), make)


def _times(entry: tuple[Any, ...]) -> int:
    """How many times an entry of nearest resampling repeats each element beside itself; 0 where not all alike."""

    def make() -> int:
        n, m, places, _ = _resample.taps(entry, False)
        several = m // n if n and m % n == 0 else 0
        return several if several and [row[0] for row in places] == [i // several for i in range(m)] else 0

    return _repeats.made(entry, make)


def _resampled(xp: Any, input: Any, spec: Any, transposed: bool) -> Any:
    if not plain(input):
        return NotImplemented
    if spec[0][0].startswith("nearest"):
        times = [_times(entry) for entry in spec]
        if all(times) and max(times) > 1:
            found = _sums_of_repeats(xp, input, times) if transposed else copies.repeated(xp, input, 2, times)
            if found is not NotImplemented:
                return found
    entries = [
        (axis + 2, _table(entry, transposed, input.dtype)) for axis, entry in enumerate(spec) if entry[1] != entry[2]
    ]
    if not entries or any(not table[2] for _, table in entries):
        return _parts_of_images(xp, input, spec, transposed)
    result = input
    for axis, (n, m, taps, index, weights) in sorted(entries, key=lambda one: one[1][1] / one[1][0]):
        before, _, after = parts(result.shape, axis)
        made = xp.empty((*result.shape[:axis], m, *result.shape[axis + 1 :]), result.dtype)
        tables = [launch.constant(table) for table in (index, weights) if table is not None]
        arrays = [result, *tables, made]
        if after == 1:
            run(lines.resampled(taps, weights is not None), arrays, [n, m], before, m * taps)
        else:
            run(lines.resampled_rows(taps, weights is not None), arrays, [n, m, after], before * m, after * taps)
        result = made
    return result


def _sums_of_repeats(xp: Any, grad: Any, times: list[int]) -> Any:
    """The sums of elements that are so many times beside each other, of few dims and terms; else NotImplemented."""
    height, width = [1, *times][-2:]
    if prod(times) != height * width or height * width > _TAPS:
        return NotImplemented
    made = xp.empty((*grad.shape[:2], *[n // k for n, k in zip(grad.shape[2:], times)]), grad.dtype)
    rows, m = made.size // made.shape[-1], made.shape[-1]
    if height == 1:  # a row may begin anywhere
        several = next((n for n in range(_PARTS, 1, -1) if m % n == 0), 1) if rows < _PARTS else 1
        rows, m = rows * several, m // several
    run(lines.sums_of_tiles((height, width)), [grad, made], [m], rows, m * height * width)
    return made


def _parts_of_images(xp: Any, input: Any, spec: Any, transposed: bool) -> Any:
    """The means of parts of images, or their gradient; NotImplemented for all else."""
    if len(spec) != 2 or any(entry[0] != "adaptive" or not entry[1] or not entry[2] for entry in spec):
        return NotImplemented
    (_, h, rows, *_), (_, w, m, *_) = spec
    if not transposed:
        return _means_of_parts(xp, input, (h, w), (rows, m))
    made = xp.empty((*input.shape[:2], h, w), input.dtype)
    run(lines.mean_of_parts_gradient, [input, made], [h, w, rows, m], made.size // w, w)
    return made


def _means_of_parts(xp: Any, input: Any, covered: tuple[int, int], out: tuple[int, int]) -> Any:
    """The means of out[0] x out[1] parts that cover the first places of images."""
    if covered[0] > _ADDED * out[0]:
        return NotImplemented
    made, (h, w) = xp.empty((*input.shape[:2], *out), input.dtype), input.shape[2:]
    sums = xp.empty((made.size // out[1], w), input.dtype)
    each = max(1, covered[0] // out[0]) * w
    run(lines.mean_of_parts, [input, sums, made], [h, w, *covered, *out], len(sums), each)
    return made


def _register(op: Any) -> None:
    @kernel(op, "cpu", only_launches=True)
    def forward(xp, input, spec):
        return _resampled(xp, input, spec, False)


for _op in resample.OPS.values():
    _register(_op)


@kernel(resample.resampled_backward, "cpu", only_launches=True)
def _resampled_backward(xp, grad_output, spec):
    return _resampled(xp, grad_output, spec, True)


# --- pooling


def _maxima(input: Any, out: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any) -> list[int] | None:
    """What the kernels of maxima of windows are passed; None for what they do not serve."""
    if len(out) != 2 or not plain(input):
        return None
    if any(d != 1 and taps != 1 for d, taps in zip(dilation, kernel_size)):
        return None
    (h, w), (rows, m), (above, left) = input.shape[2:], out, padding
    inside = min(m, -(-left // stride[1]))  # windows before it begin before the row
    behind = max(inside, min(m, (w + left - kernel_size[1]) // stride[1] + 1))  # those from it on end after it
    return [h, w, rows, m, above, left, inside, behind]


def _pairs(input: Any, out: Any, kernel_size: Any, stride: Any, padding: Any) -> int:
    """Elements of a vector of windows that are two wide, lie side by side and cover images; 0 for others."""
    if len(out) != 2 or kernel_size[1] != 2 or tuple(stride) != tuple(kernel_size) or any(padding):
        return 0
    if input.dtype != np.float32 or input.shape[2:] != (out[0] * kernel_size[0], out[1] * 2):
        return 0
    return next((n for n in (16, 8, 4) if n <= min(lanes(), out[1])), 0)


@kernel(pooling.max_pool2d_values, "cpu", only_launches=True)
def _max_pool(xp, input, kernel_size, stride, padding, dilation, ceil_mode):
    out = pooling.PoolGeometry.of(kernel_size, stride, padding, dilation).output_size(input.shape[2:], ceil_mode)
    sizes = _maxima(input, out, kernel_size, stride, padding, dilation)
    if sizes is None or prod(kernel_size) > lines.WRITTEN:
        return NotImplemented
    made = xp.empty((*input.shape[:2], *out), input.dtype)
    width = _pairs(input, out, kernel_size, stride, padding)
    if width:
        write = max_of_pairs(kernel_size[0], width)
        run(write, [input, made], [out[1]], made.size // out[1], out[1] * prod(kernel_size))
        return made
    write = lines.max_of_windows(tuple(kernel_size), tuple(stride))
    run(write, [input, made], sizes, made.size // out[1], out[1])
    return made


@kernel(pooling.max_pool3d_values, "cpu", only_launches=True)
def _max_pool3d(xp, input, kernel_size, stride, padding, dilation, ceil_mode):
    size = input.shape[2:]
    out = pooling.PoolGeometry.of(kernel_size, stride, padding, dilation).output_size(size, ceil_mode)
    if not plain(input) or set(dilation) != {1} or _inside(size, kernel_size, stride, padding, out, None) is None:
        return NotImplemented
    if prod(kernel_size) > lines.WRITTEN:
        return NotImplemented
    made = xp.empty((*input.shape[:2], *out), input.dtype)
    write = places.of_volumes(tuple(kernel_size), tuple(stride), False)
    run(write, [input, made], [*size, *out], made.size // out[2], out[2] * prod(kernel_size))
    return made


@kernel(pooling.max_pool_gradient, "cpu", only_launches=True)
def _max_pool_gradient(xp, grad_output, input, output, kernel_size, stride, padding, dilation):
    out = grad_output.shape[2:]
    tiles = tuple(kernel_size) == tuple(stride) and not any(padding) and set(dilation) == {1}
    tiles = tiles and input.shape[2:] == tuple([n * taps for n, taps in zip(out, kernel_size)])
    if tiles and prod(kernel_size) <= lines.WRITTEN and plain(grad_output, input):
        made, taps = xp.empty(input.shape, input.dtype), ((1,) * (3 - len(out)) + tuple(kernel_size))
        rows = grad_output.size // out[-1]
        width = _pairs(input, out, kernel_size, stride, padding)
        if width:
            write = max_of_pairs_gradient(kernel_size[0], width)
            run(write, [input, grad_output, made], [out[1]], rows, out[1] * prod(kernel_size))
            return made
        numbers = [(1, *out)[-2], out[-1]]
        run(places.max_of_tiles_gradient(taps), [grad_output, input, made], numbers, rows, out[-1] * prod(taps))
        return made
    sizes = _maxima(input, out, kernel_size, stride, padding, dilation)
    if sizes is None or not plain(grad_output, input):
        return NotImplemented
    made = xp.empty(input.shape, input.dtype)
    write = lines.max_of_windows_gradient(tuple(kernel_size), tuple(stride))
    run(write, [grad_output, input, made], sizes[:6], prod(input.shape[:2]), prod(out) * prod(kernel_size))
    return made


def _inside(size: Any, kernel_size: Any, stride: Any, padding: Any, out: Any, divisor: Any) -> float | None:
    """The divisor of means of windows in images that none overhangs; None for others."""
    if any(padding) or divisor == 0:
        return None
    if any((m - 1) * step + taps > n for n, m, taps, step in zip(size, out, kernel_size, stride)):
        return None
    return float(divisor or prod(kernel_size))


def _overhanging(size: Any, kernel_size: Any, stride: Any, padding: Any, out: Any, counted: bool, divisor: Any) -> Any:
    """What the kernels of means of windows in padded images are passed; None for what they do not serve."""
    if len(size) != 2 or prod(kernel_size) > lines.WRITTEN or divisor == 0 or not all(out) or not all(size):
        return None
    (h, w), (rows, m), (above, left) = size, out, padding
    if (counted or divisor) and any(
        (n - 1) * step + taps > whole + 2 * pad
        for n, step, taps, whole, pad in zip(out, stride, kernel_size, size, padding)
    ):
        return None  # a window ends behind the padding, which does not count
    inside = min(m, -(-left // stride[1]))
    behind = max(inside, min(m, (w + left - kernel_size[1]) // stride[1] + 1))
    return [h, w, rows, m, above, left, inside, behind, float(divisor or prod(kernel_size))]


@kernel(pooling.avg_pool2d_values, "cpu", only_launches=True)
def _avg_pool(xp, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override):
    if input.ndim != 4 or not plain(input):
        return NotImplemented
    size = input.shape[2:]
    out = pooling.PoolGeometry.of(kernel_size, stride, padding).output_size(size, ceil_mode)
    divisor = _inside(size, kernel_size, stride, padding, out, divisor_override)
    if divisor is None:
        counted = bool(count_include_pad or divisor_override)
        sizes = _overhanging(size, kernel_size, stride, padding, out, counted, divisor_override)
        if sizes is None:
            return NotImplemented
        made = xp.empty((*input.shape[:2], *out), input.dtype)
        write = averages.mean_of_overhanging(tuple(kernel_size), tuple(stride), counted)
        run(write, [input, made], sizes, made.size // out[1], out[1] * prod(kernel_size))
        return made
    made = xp.empty((*input.shape[:2], *out), input.dtype)
    across, several = kernel_size[1], divisor_override is None
    if several and kernel_size[0] == stride[0] == 1 and across == stride[1] and across * out[1] == size[1]:
        run(scans.reduced("sum", True), [input, made], [across], made.size, across)  # all of each line
        return made
    if prod(kernel_size) > _TAPS:
        if tuple(kernel_size) != tuple(stride) or divisor != prod(kernel_size) or not all(out):
            return NotImplemented
        covered = [n * taps for n, taps in zip(out, kernel_size)]
        return _means_of_parts(xp, input, (covered[0], covered[1]), (out[0], out[1]))
    sizes, rows = [*size, *out, divisor], made.size // out[1]
    run(lines.mean_of_windows(tuple(kernel_size), tuple(stride)), [input, made], sizes, rows, out[1])
    return made


def _of_lines(size: Any, kernel_size: Any, stride: Any, padding: Any, out: Any, divisor: Any) -> float | None:
    """The divisor of means of neighbouring lines, as of channels that are a dim of a volume; None for others."""
    if kernel_size[0] > _TAPS or set(kernel_size[1:]) != {1} or set(stride) != {1}:
        return None
    return _inside(size, kernel_size, stride, padding, out, divisor)


@kernel(pooling.avg_pool3d_values, "cpu", only_launches=True)
def _avg_pool3d(xp, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override):
    if input.ndim != 5 or not plain(input):
        return NotImplemented
    size = input.shape[2:]
    out = pooling.PoolGeometry.of(kernel_size, stride, padding).output_size(size, ceil_mode)
    divisor = _of_lines(size, kernel_size, stride, padding, out, divisor_override)
    if divisor is None:
        divisor = _inside(size, kernel_size, stride, padding, out, divisor_override)
        if divisor is None or prod(kernel_size) > lines.WRITTEN:
            return NotImplemented
        made, write = xp.empty((*input.shape[:2], *out), input.dtype), (tuple(kernel_size), tuple(stride), True)
        numbers = [*size, *out, divisor]
        run(places.of_volumes(*write), [input, made], numbers, made.size // out[2], out[2] * prod(kernel_size))
        return made
    made, after = xp.empty((*input.shape[:2], *out), input.dtype), prod(size[1:])
    numbers = [size[0], out[0], after, divisor]
    run(lines.mean_of_lines(kernel_size[0]), [input, made], numbers, made.size // after, after)
    return made


@kernel(pooling.avg_pool_backward, "cpu", only_launches=True)
def _avg_pool_backward(xp, grad_output, size, kernel_size, stride, padding, count_include_pad, divisor_override):
    if grad_output.ndim not in (4, 5) or not plain(grad_output):
        return NotImplemented
    out = grad_output.shape[2:]
    divisor = _of_lines(size, kernel_size, stride, padding, out, divisor_override)
    if divisor is not None:
        made, after = xp.empty((*grad_output.shape[:2], *size), grad_output.dtype), prod(size[1:])
        numbers = [size[0], out[0], after, divisor]
        run(lines.mean_of_lines_gradient(kernel_size[0]), [grad_output, made], numbers, made.size // after, after)
        return made
    divisor = _inside(size, kernel_size, stride, padding, out, divisor_override)
    if divisor is None or tuple(stride) != tuple(kernel_size):
        counted = bool(count_include_pad or divisor_override)
        found = _overhanging(size, kernel_size, stride, padding, out, counted, divisor_override)
        if found is None:
            return NotImplemented
        made, sizes = xp.empty((*grad_output.shape[:2], *size), grad_output.dtype), [*found[:6], found[-1]]
        share = xp.empty((prod(made.shape[:2]), out[1]), made.dtype)
        write = averages.mean_of_overhanging_gradient(tuple(kernel_size), tuple(stride), counted)
        run(write, [grad_output, share, made], sizes, len(share), prod(out) * prod(kernel_size))
        return made
    made = xp.empty((*grad_output.shape[:2], *size), grad_output.dtype)
    flat = (1,) * (5 - grad_output.ndim)
    sizes = [*flat, *size, *flat, *out, *flat, *kernel_size, divisor]
    taps = kernel_size[-1] if kernel_size[-1] <= _TAPS else 0
    run(lines.mean_of_windows_gradient(taps), [grad_output, made], sizes, made.size // size[-1], size[-1])
    return made


# --- flips


@kernel(rearranging.flip, "cpu", only_launches=True)
def _flip(xp, input, dims):
    if not input.size or not input.ndim or not input.flags.c_contiguous or input.itemsize not in (1, 2, 4, 8):
        return NotImplemented
    axes = sorted(rearranging.flip_dims(dims, input.ndim))
    if not axes or axes[-1] - axes[0] != len(axes) - 1:  # not neighbours, which are one dim
        return NotImplemented
    before, n, after = (
        prod(input.shape[: axes[0]]),
        prod(input.shape[axes[0] : axes[-1] + 1]),
        prod(input.shape[axes[-1] + 1 :]),
    )
    made, bits = xp.empty(input.shape, input.dtype), f"uint{8 * input.itemsize}"
    if after == 1 and n * input.itemsize <= _WRITTEN:
        several = next(count for count in range(min(_LINES, before), 0, -1) if before % count == 0)
        run(lines.reversed_short_lines(n), [input, made], [several], before // several, several * n, bits)
    elif after == 1:
        run(lines.reversed_lines, [input, made], [n], before, n, bits)
    else:
        run(lines.reversed_rows, [input, made], [n, after], before * n, after, bits)
    return made


# --- triangles


def _triangle(xp: Any, input: Any, diagonal: int, lower: bool) -> Any:
    if not input.size or input.ndim < 2 or not input.flags.c_contiguous or input.itemsize not in (1, 2, 4, 8):
        return NotImplemented
    n, m = input.shape[-2:]
    diagonal = max(-n, min(diagonal, m))
    made = xp.empty(input.shape, input.dtype)
    bits = f"uint{8 * input.itemsize}"
    run(lines.triangle(lower), [input, made], [n, m, diagonal], input.size // m, m, bits)
    return made


@kernel(rearranging.tril, "cpu", only_launches=True)
def _tril(xp, input, diagonal=0):
    return _triangle(xp, input, diagonal, True)


@kernel(rearranging.triu, "cpu", only_launches=True)
def _triu(xp, input, diagonal=0):
    return _triangle(xp, input, diagonal, False)


# --- rows normalized by the root of the mean of their squares


@kernel(rms.rms_norm_inference, "cpu", only_launches=True)
def _rms_norm(xp, input, normalized_shape, weight=None, eps=1e-5):
    if not plain(input, weight):
        return NotImplemented
    width = prod(normalized_shape)
    made, given = xp.empty(input.shape, input.dtype), [] if weight is None else [weight]
    write = lines.normalized_by_rms(weight is not None)
    run(write, [input, *given, made], [width, float(eps)], input.size // width, width)
    return made


# --- rows added by index


def _index(index: Any) -> bool:
    """Return whether a kernel reads the index; no direct launch may, which would not look at its values."""
    return launch.trials.seen is None and index.dtype == np.int64 and index.flags.c_contiguous


@kernel(along.index_add, "cpu")
def _index_add(xp, input, dim, index, source, *, alpha=1, out=None):
    if alpha != 1 or out is not None or not plain(input, source) or source.ndim != input.ndim or not input.ndim:
        return NotImplemented
    if index.ndim != 1 or not _index(index):
        return NotImplemented
    along.check_along(input, dim, index, source, "index_add_")
    axis = wrap_dim(dim, input.ndim)
    along.check_bounds(index, input.shape[axis], axis)
    before, n, after = parts(input.shape, axis)
    made = xp.empty(input.shape, input.dtype)
    sizes = [n, len(index), after]
    run(lines.added_rows(True), [source, index, input, made], sizes, before, (n + len(index)) * after)
    return made


# --- elements by index


def _along(shape: tuple[int, ...], index: Any, dim: int) -> tuple[int, int, int] | None:
    """(before, elements of the dim, after) where a kernel reads the index and finds all it gives; None elsewhere."""
    if not shape or index.ndim != len(shape) or not index.size or not _index(index):
        return None
    axis = wrap_dim(dim, len(shape))
    if any(n != m for d, (n, m) in enumerate(zip(shape, index.shape)) if d != axis) or not all_below(
        index, shape[axis]
    ):
        return None
    return parts(shape, axis)


def _of_rows(shape: tuple[int, ...], index: Any, dim: int) -> Any:
    """The index (count) where each of its entries is expanded to a whole row of all before the dim; None elsewhere."""
    if not shape or index.ndim != len(shape) or not index.size:
        return None
    axis = wrap_dim(dim, len(shape))
    strides, whole = (*index.strides[:axis], *index.strides[axis + 1 :]), index.shape[axis + 1 :]
    if axis == len(shape) - 1 or any(strides) or index.shape[:axis] != shape[:axis] or whole != shape[axis + 1 :]:
        return None
    found = np.ascontiguousarray(index[(0,) * axis + (slice(None),) + (0,) * len(whole)])
    return found if _index(found) and all_below(found, shape[axis]) else None


@kernel(gathering.gather, "cpu")
def _gather(xp, input, dim, index, *, sparse_grad=False):
    rows = _of_rows(input.shape, index, dim)
    if rows is not None:
        return xp.take(input, rows, axis=wrap_dim(dim, input.ndim))
    found = _along(input.shape, index, dim) if input.flags.c_contiguous and input.itemsize in (4, 8) else None
    if found is None:
        return NotImplemented
    before, n, after = found
    made, bits = xp.empty(index.shape, input.dtype), f"uint{8 * input.itemsize}"
    count = index.size // (before * after)
    if after == 1:
        run(lines.taken_along(True), [input, index, made], [n, count], before, count, bits)
    else:
        run(lines.taken_along(False), [input, index, made], [n, count, after], before * count, after, bits)
    return made


def added_along(xp: Any, shape: tuple[int, ...], dim: int, index: Any, source: Any, given: list[Any]) -> Any:
    """The source added at the index along a dim, to zeros or to the one array given."""
    if not plain(source, *given) or source.shape != index.shape:
        return NotImplemented
    rows = _of_rows(shape, index, dim)
    if rows is not None:
        before, n, after = parts(shape, wrap_dim(dim, len(shape)))
        made = xp.empty(shape, source.dtype) if given else xp.zeros(shape, source.dtype)
        numbers, each = [n, rows.size, after], (n + rows.size) * after
        run(lines.added_rows(bool(given)), [source, rows, *given, made], numbers, before, each)
        return made
    found = _along(shape, index, dim)
    if found is None:
        return NotImplemented
    before, n, after = found
    made, count = xp.empty(shape, source.dtype), index.size // (before * after)
    sizes, each = [n, count, after], (n + count) * after
    run(lines.added_along(bool(given)), [source, index, *given, made], sizes, before, each)
    return made


@kernel(gathering.scatter_add, "cpu")
def _scatter_add(xp, input, dim, index, src, *, out=None):
    return NotImplemented if out is not None else added_along(xp, input.shape, dim, index, src, [input])


@kernel(extremes.add_along, "cpu")
def _add_along_zeros(xp, grad_output, index, shape, dim):
    return added_along(xp, tuple(shape), dim, index, grad_output, [])
