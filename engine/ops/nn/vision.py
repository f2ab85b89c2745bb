"""Sampling on grids, sliding blocks as columns, pixel and channel shuffles."""

from __future__ import annotations

import builtins
import functools
import warnings
from collections.abc import Iterable
from math import prod

import numpy as np

from engine.autograd.graph import name_node
from engine.autograd.versions import guard_again
from engine.core import dtypes, layouts
from engine.core.geometry import ConvGeometry
from engine.core.tensor_messages import outside
from engine.dispatch import composite, derivative, op, samples
from engine.ops.convolution import numpy as by_numpy
from engine.ops.nn import grids
from engine.ops.pointwise.arithmetic import refuse
from engine.tensor import Tensor, raw_array

# --- unfold and fold


def _geometry(kernel_size, dilation, padding, stride):
    return tuple(
        [
            (v, v)
            if v.__class__ is int
            else (int(v),) * 2
            if not isinstance(v, Iterable)
            else tuple([int(x) for x in v]) * (2 // len(tuple(v)))
            for v in (kernel_size, dilation, padding, stride)
        ]
    )


@functools.lru_cache(256)
def _meetings(kernel, stride, dilation, out):
    """For each element of the kernel: where its columns go in the padded image, and its index among the columns."""
    every = (slice(None), slice(None))
    return [((*every, *where), (*every, *at)) for at, where in by_numpy.taps(kernel, stride, dilation, out)]


def _blocks(size, kernel_size, dilation, padding, stride):
    return ConvGeometry(stride, padding, dilation).output_size(size, kernel_size)


@op(public=False, out=False, method=False, node="Im2ColBackward0")
@derivative(
    input=lambda grad, input_shape, kernel_size, dilation, padding, stride: col2im(
        grad, tuple(input_shape[2:]), kernel_size, dilation, padding, stride
    )
)
@samples(
    lambda t: [
        (t(2, 3, 4, 5), (2, 3), (1, 1), (0, 1), (1, 2)),
        (t(1, 1, 5, 5), (2, 2), (2, 1), (1, 1), (1, 1)),
    ]
)
def im2col(
    xp,
    input,
    kernel_size: int | tuple[int, ...],
    dilation: int | tuple[int, ...],
    padding: int | tuple[int, ...],
    stride: int | tuple[int, ...],
):
    """Sliding blocks as columns.  input (N, C, H, W) -> (N, C kH kW, L)."""
    x = by_numpy.padded(xp, input, padding)
    out = _blocks(input.shape[2:], kernel_size, dilation, padding, stride)
    view = by_numpy.windows(xp, x, kernel_size, stride, dilation, out)
    result = xp.empty(view.shape, input.dtype)
    result[...] = view
    return result.reshape(input.shape[0], input.shape[1] * prod(kernel_size), prod(out))


_FEW_COLUMNS = 1 << 12  # elements up to which the number of calls decides
_LONG_STEPS = 8  # a stride from which whole steps are added at once
_LONG_ROWS = 6  # width of a kernel from which sums of rows first pay for their memory


@functools.lru_cache(256)
def _folding(size, kernel, dilation, padding, stride):
    """Elements of the kernel, blocks by dim, the padded size, and whether blocks neither meet nor leave gaps."""
    out = _blocks(size, kernel, dilation, padding, stride)
    disjoint = kernel == stride and size == tuple([n * s for n, s in zip(out, stride)])
    disjoint = disjoint and not any(padding) and builtins.max(dilation) == 1
    return prod(kernel), out, tuple([n + 2 * p for n, p in zip(size, padding)]), disjoint


def _side_by_side(xp, cols):
    """Blocks that neither meet nor leave gaps.  (N, C, kH, kW, H, W) -> (N, C, H kH, W kW)."""
    count, channels, high, wide, h, w = cols.shape
    image = xp.empty((count, channels, h, high, w, wide), cols.dtype)
    if w < wide:
        image[...] = cols.transpose(0, 1, 4, 2, 5, 3)
    else:
        for k in range(wide):  # the longer of the two is the inner loop
            image[..., k] = cols[:, :, :, k].swapaxes(2, 3)
    return image.reshape(count, channels, h * high, w * wide)


def _frames(xp, cols, step):
    """The blocks (N, C, kH, kW, H, W) of each row, `step` columns apart, added up where they overlap."""
    count, channels, high, wide, h, w = cols.shape
    parts = -(-wide // step)
    rows = xp.zeros((count, channels, high, h, w - 1 + parts, step), cols.dtype)
    for n in range(parts):
        part = cols[:, :, :, n * step : (n + 1) * step]
        target = rows[..., n : n + w, : part.shape[3]]
        target += part.transpose(0, 1, 2, 4, 5, 3)
    return rows.reshape(count, channels, high, h, -1)


def _rows_first(xp, cols, image, stride, dilation):
    """Add columns (N, C, kH, kW, H, W) to an image: into rows, then these, kW + kH steps where each tap makes kW kH."""
    count, channels, high, wide, h, w = cols.shape
    if stride[1] >= _LONG_STEPS and dilation[1] == 1:
        rows = _frames(xp, cols, stride[1])[..., : image.shape[3]]
    else:
        rows = xp.zeros((count, channels, high, h, image.shape[3]), cols.dtype)
        last = (w - 1) * stride[1] + 1
        for k in range(wide):
            target = rows[..., k * dilation[1] : k * dilation[1] + last : stride[1]]
            target += cols[:, :, :, k]
    image = image[..., : rows.shape[-1]]
    last = (h - 1) * stride[0] + 1
    for k in range(high):
        target = image[:, :, k * dilation[0] : k * dilation[0] + last : stride[0]]
        target += rows[:, :, k]


@op(public=False, out=False, method=False, node="Col2ImBackward0", generated="many")
@derivative(
    input=lambda grad, kernel_size, dilation, padding, stride: im2col(grad, kernel_size, dilation, padding, stride)
)
@samples(
    lambda t: [
        (t(2, 12, 6), (4, 5), (2, 2), (1, 1), (0, 1), (2, 2)),
        (t(1, 8, 8), (3, 9), (2, 4), (1, 1), (0, 1), (1, 2)),
        (t(2, 6, 2), (2, 6), (1, 3), (1, 2), (0, 0), (1, 3)),
        (t(2, 12, 4), (6, 4), (3, 2), (1, 1), (0, 0), (3, 2)),
        (t(1, 6, 2), (2, 6), (2, 3), (1, 1), (0, 0), (2, 3)),
        (t(1, 18, 4), (3, 15), (2, 9), (1, 1), (0, 1), (1, 8)),
        (t(2, 17, 3), (1, 35), (1, 17), (1, 1), (0, 0), (1, 8)),
    ]
)
def col2im(
    xp,
    input,
    output_size: int | tuple[int, ...],
    kernel_size: int | tuple[int, ...],
    dilation: int | tuple[int, ...],
    padding: int | tuple[int, ...],
    stride: int | tuple[int, ...],
):
    """Columns summed into an image.  input (N, C kH kW, L) -> (N, C, *output_size)."""
    given = tuple(map(tuple, (output_size, kernel_size, dilation, padding, stride)))
    taps, out, padded, side_by_side = _folding(*given)
    channels = input.shape[1] // taps
    cols = input.reshape(input.shape[0], channels, *kernel_size, *out)
    if side_by_side:
        return _side_by_side(xp, cols)
    wide = xp.zeros((*cols.shape[:2], *padded), input.dtype)
    if input.size <= _FEW_COLUMNS or kernel_size[1] >= _LONG_ROWS:
        _rows_first(xp, cols, wide, stride, dilation)
    else:
        for where, at in _meetings(given[1], given[4], given[2], out):
            target = wide[where]
            target += cols[at]
    if not any(padding):
        return wide
    return xp.ascontiguousarray(wide[by_numpy.unpadded(output_size, padding)])


def _check_blocks(geometry):
    for label, values in zip(("kernel_size", "dilation", "padding", "stride"), geometry):
        if len(values) != 2:
            raise RuntimeError(f"It is expected {label} equals to 2, but got size {len(values)}")
    for label, values in zip(("kernel", "dilation", "padding", "stride"), geometry):
        if label == "padding":
            if any(v < 0 for v in values):
                raise RuntimeError(
                    f"padding should be non-negative, but got pad_height: {values[0]} pad_width: {values[1]}"
                )
        elif any(v <= 0 for v in values):
            raise RuntimeError(
                f"{label} {'size ' if label == 'kernel' else ''}should be greater than zero, but got {label}_height: "
                f"{values[0]} {label}_width: {values[1]}"
            )


def _listed(values):
    return "(" + ", ".join(map(str, values)) + ")"


@composite(public=False, method=False, form="im2col")
@samples(lambda t: [(t(2, 3, 4, 5), 2), (t(3, 5, 5), (2, 3), 1, 1, 2)])
def unfold_blocks(
    input: Tensor,
    kernel_size: int | tuple[int, ...],
    dilation: int | tuple[int, ...] = 1,
    padding: int | tuple[int, ...] = 0,
    stride: int | tuple[int, ...] = 1,
):
    """torch.nn.functional.unfold.  input (N, C, H, W) or (C, H, W) -> (N, C prod(kernel_size), L)."""
    geometry = _geometry(kernel_size, dilation, padding, stride)
    _check_blocks(geometry)
    ndim = input.dim()
    if ndim not in (3, 4) or 0 in tuple(input.shape[-3:]):
        raise RuntimeError(
            "Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for input, "
            f"but got: {list(input.shape)}"
        )
    size = input.shape[-2:]
    out = _blocks(size, *geometry)
    if builtins.min(out) < 1:
        k, d, p, _ = (_listed(v) for v in geometry)
        raise RuntimeError(
            f"Given input with spatial size {_listed(size)}, kernel_size={k}, dilation={d}, padding={p}, calculated "
            f"shape of the array of sliding blocks as {_listed(out)}, but its components must be at least one."
        )
    x = input if ndim == 4 else input.unsqueeze(0)
    result = im2col(x, *geometry)
    return result if ndim == 4 else result.squeeze(0)


@functools.lru_cache(256)
def _fold_geometry(shape, output_size, kernel_size, dilation, padding, stride):
    """(output_size, (kernel_size, dilation, padding, stride)) as pairs, where torch takes them for this input."""
    geometry = _geometry(kernel_size, dilation, padding, stride)
    _check_blocks(geometry)
    size = (int(output_size),) * 2 if not isinstance(output_size, Iterable) else tuple(map(int, output_size))
    ndim, kernel = len(shape), geometry[0]
    if ndim not in (2, 3) or 0 in tuple(shape[-2:]):
        raise RuntimeError(
            "Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size and non-zero dimensions for "
            f"input, but got: {list(shape)}"
        )
    if shape[-2] % prod(kernel):
        raise RuntimeError(
            "Expected size of input's dimension 1 to be divisible by the product of kernel_size, but got "
            f"input.size(1)={shape[-2]} and kernel_size={_listed(kernel)}."
        )
    out = _blocks(size, *geometry)
    if shape[-1] != prod(out):
        k, d, p, s = (_listed(v) for v in geometry)
        raise RuntimeError(
            f"Given output_size={_listed(size)}, kernel_size={k}, dilation={d}, padding={p}, stride={s}, expected size "
            "of input's dimension 2 to match the calculated number of sliding blocks "
            f"{out[0]} * {out[1]} = {prod(out)}, but got input.size(2)={shape[-1]}."
        )
    return size, geometry


@composite(public=False, method=False, form="col2im")
@samples(lambda t: [(t(2, 12, 12), (4, 5), 2), (t(4, 20), (5, 6), 2)])
def fold_blocks(
    input: Tensor,
    output_size: int | tuple[int, ...],
    kernel_size: int | tuple[int, ...],
    dilation: int | tuple[int, ...] = 1,
    padding: int | tuple[int, ...] = 0,
    stride: int | tuple[int, ...] = 1,
):
    """torch.nn.functional.fold.  input (N, C prod(kernel_size), L) or (., L) -> (N, C, *output_size)."""
    shape = raw_array(input).shape
    given = [tuple(n) if n.__class__ is list else n for n in (output_size, kernel_size, dilation, padding, stride)]
    try:
        size, geometry = _fold_geometry(shape, *given)
    except TypeError:  # what cannot be a key
        size, geometry = _fold_geometry.__wrapped__(shape, *given)
    ndim = len(shape)
    x = input if ndim == 3 else input.unsqueeze(0)
    result = col2im(x, size, *geometry)
    return result if ndim == 3 else result.squeeze(0)


# --- shuffles


@composite(method=False)
@samples(lambda t: [(t(2, 8, 3, 2), 2)])
def pixel_shuffle(input: Tensor, upscale_factor: int):
    """Channels spread over pixels (arXiv:1609.05158).  input (*, C r^2, H, W) -> (*, C, H r, W r)."""
    r = upscale_factor
    if input.dim() < 3:
        raise RuntimeError(
            f"pixel_shuffle expects input to have at least 3 dimensions, but got input with {input.dim()} dimension(s)"
        )
    if r <= 0:
        raise RuntimeError(f"pixel_shuffle expects a positive upscale_factor, but got {r}")
    *lead, c, h, w = input.shape
    if c % (r * r):
        raise RuntimeError(
            "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of upscale_factor, "
            f"but input.size(-3)={c} is not divisible by {r * r}"
        )
    if r == 1:
        return name_node(input.clone(memory_format=layouts.contiguous_format), "PixelShuffleBackward0")
    n = len(lead)
    x = input.reshape(*lead, c // (r * r), r, r, h, w)
    x = x.permute(*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return name_node(x.reshape(*lead, c // (r * r), h * r, w * r), "PixelShuffleBackward0")


@composite(method=False)
@samples(lambda t: [(t(2, 2, 4, 6), 2)])
def pixel_unshuffle(input: Tensor, downscale_factor: int):
    """Pixels gathered into channels.  input (*, C, H r, W r) -> (*, C r^2, H, W)."""
    r = downscale_factor
    if input.dim() < 3:
        raise RuntimeError(
            f"pixel_unshuffle expects input to have at least 3 dimensions, but got input with {input.dim()} "
            "dimension(s)"
        )
    if r <= 0:
        raise RuntimeError(f"pixel_unshuffle expects a positive downscale_factor, but got {r}")
    *lead, c, h, w = input.shape
    for label, size, dim in (("height", h, -2), ("width", w, -1)):
        if size % r:
            raise RuntimeError(
                f"pixel_unshuffle expects {label} to be divisible by downscale_factor, but input.size({dim})={size} "
                f"is not divisible by {r}"
            )
    if r == 1:
        return name_node(input.clone(memory_format=layouts.contiguous_format), "PixelUnshuffleBackward0")
    n = len(lead)
    x = input.reshape(*lead, c, h // r, r, w // r, r)
    x = x.permute(*range(n), n, n + 2, n + 4, n + 1, n + 3)
    return name_node(x.reshape(*lead, c * r * r, h // r, w // r), "PixelUnshuffleBackward0")


@composite(method=False, names=("native_channel_shuffle",))
@samples(lambda t: [(t(2, 6, 3), 2)])
def channel_shuffle(input: Tensor, groups: int):
    """Channels (g, n) transposed to (n, g) (arXiv:1707.01083).  input (N, C, *) -> same."""
    if input.dim() < 3:
        raise RuntimeError(f"channel_shuffle expects input with > 2 dims, but got input with sizes {list(input.shape)}")
    if groups <= 0:
        raise RuntimeError(f"Number of groups to divide channels in must be positive. Value of groups:{groups}")
    n, c, *rest = input.shape
    if c % groups:
        raise RuntimeError(f"Number of channels must be divisible by groups. Got {c} channels and {groups} groups.")
    x = input.reshape(n, groups, c // groups, -1).transpose(1, 2)
    return name_node(x.reshape(n, c, *rest), "ChannelShuffleBackward0")


# --- grids


def _check_grid(input, grid, how):
    shape, grid_shape = list(input.shape), list(grid.shape)
    if input.dtype is not grid.dtype:
        raise RuntimeError(
            f"expected scalar type {dtypes.scalar_name(input.dtype)} but found {dtypes.scalar_name(grid.dtype)}"
        )
    if input.size(0) != grid.size(0):
        raise RuntimeError(
            f"grid_sampler(): expected grid and input to have same batch size, but got input with sizes {shape} and "
            f"grid with sizes {grid_shape}"
        )
    if input.dim() not in (4, 5) or input.dim() != grid.dim():
        raise RuntimeError(
            "grid_sampler(): expected 4D or 5D input and grid with same number of dimensions, but got input with sizes "
            f"{shape} and grid with sizes {grid_shape}"
        )
    if grid.size(-1) != input.dim() - 2:
        raise RuntimeError(
            f"grid_sampler(): expected grid to have size {input.dim() - 2} in last dimension, but got grid with sizes "
            f"{grid_shape}"
        )
    for i, n in enumerate(shape[2:], 2):
        if n == 0:
            raise RuntimeError(
                f"grid_sampler(): expected input to have non-empty spatial dimensions, but input has sizes {shape} "
                f"with dimension {i} being empty"
            )
    if how == "bicubic" and input.dim() == 5:
        raise RuntimeError("grid_sampler(): bicubic interpolation only supports 4D input")


@composite(public=False, method=False, form="grid_sampler")
@samples(
    lambda t: [
        (t(1, 2, 3, 4), t.uniform(-0.9, 0.9, 1, 2, 3, 2), "bilinear", "zeros", False),
        (t(1, 2, 3, 4), t.uniform(-1.3, 1.3, 1, 2, 3, 2), "bilinear", "reflection", True),
        (t(1, 1, 4, 4), t.uniform(-0.9, 0.9, 1, 2, 2, 2), "bicubic", "border", False),
        (t(1, 1, 2, 3, 3), t.uniform(-0.9, 0.9, 1, 2, 1, 2, 3), "bilinear", "zeros", True),
    ]
)
def grid_sample(input: Tensor, grid: Tensor, mode="bilinear", padding_mode="zeros", align_corners: bool | None = None):
    """input at the places of `grid`: last dim (x, y) or (x, y, z), -1..1 from edge to edge.

    mode bilinear, nearest, bicubic; padding_mode zeros, border, reflection.  input (N, C, H, W), grid (N, H', W', 2)
    -> (N, C, H', W'), and the same with a depth.
    """
    if mode not in ("bilinear", "nearest", "bicubic"):
        raise ValueError(
            f"nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: '{mode}'"
        )
    refuse("grid_sampler_2d_cpu_kernel_impl", input._array, "iubc")
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(
            "nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or 'reflection', but got: "
            f"'{padding_mode}'"
        )
    if align_corners is None:
        warnings.warn(_CORNERS, stacklevel=outside())
        align_corners = False
    _check_grid(input, grid, mode)
    result = grids.sampled(input, grid, mode, padding_mode, align_corners)
    return guard_again(name_node(result, f"GridSampler{input.dim() - 2}DBackward0"), input, grid, grad=True)


_CORNERS = (
    "Default grid_sample and affine_grid behavior has changed to align_corners=False since 1.3.0. Please specify "
    "align_corners=True if the old behavior is desired. See the documentation of grid_sample for details."
)


_CACHED = 1 << 12  # points of a grid up to which it is cached


@functools.lru_cache(32)
def _points(spatial: tuple[int, ...], align_corners: bool) -> np.ndarray:
    """The points of a regular grid from -1 to 1, the last dim first, and 1 behind.  (prod(spatial), n + 1), float64."""
    n = len(spatial)
    found = np.ones((*spatial, n + 1))
    for d, m in enumerate(spatial):
        steps = np.arange(m)
        if not align_corners:
            steps = (2 * steps + 1) / m - 1
        else:
            steps = 2 * steps / (m - 1) - 1 if m > 1 else np.zeros(m)
        found[..., n - 1 - d] = steps.reshape(m, *(1,) * (n - 1 - d))
    return found.reshape(-1, n + 1)


@composite(public=False, method=False, form="affine_grid_generator")
@samples(lambda t: [(t(2, 2, 3), (2, 1, 3, 4), False), (t(1, 3, 4), (1, 1, 2, 3, 2), True)])
def affine_grid(theta, size, align_corners: bool | None = None):
    """The grid for `grid_sample` of affine maps.  theta (N, 2, 3), size (N, C, H, W) -> (N, H, W, 2); 3-d alike."""
    if align_corners is None:
        warnings.warn(_CORNERS, stacklevel=outside())
        align_corners = False
    if not theta.is_floating_point():
        raise ValueError(f"Expected theta to have floating point type, but got {theta.dtype}")
    n = len(size) - 2
    if n not in (2, 3):
        raise NotImplementedError(
            "affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, respectively. Got size "
            f"{size}."
        )
    if theta.dim() != 3 or theta.shape[-2] != n or theta.shape[-1] != n + 1:
        raise ValueError(
            f"Expected a batch of {n}D affine matrices of shape Nx{n}x{n + 1} for size {size}. Got {theta.shape}."
        )
    if theta.shape[0] != size[0]:
        raise RuntimeError(
            f"Expected size for first two dimensions of batch2 tensor to be: [{size[0]}, {n + 1}] but got: "
            f"[{theta.shape[0]}, {n + 1}]."
        )
    spatial = tuple(size[2:])
    if align_corners and builtins.min(spatial) == 1:
        warnings.warn(
            "Since version 1.3.0, affine_grid behavior has changed for unit-size grids when align_corners=True. This "
            "is not an intended use case of affine_grid. See the documentation of affine_grid for details.",
            stacklevel=2,
        )
    elif builtins.min(size) <= 0:
        raise ValueError(f"Expected non-zero, positive output size. Got {size}")
    points = _points if prod(spatial) <= _CACHED else _points.__wrapped__
    base = theta.detach().new_tensor(points(spatial, bool(align_corners))).unsqueeze(0)
    grid = base.expand(theta.shape[0], -1, -1) @ theta.transpose(1, 2)
    return name_node(grid.reshape(theta.shape[0], *spatial, n), "AffineGridGeneratorBackward0")


@composite(method=False)
@samples(lambda t: [(t(2, 2, 3), (2, 1, 3, 4), False)])
def affine_grid_generator(theta: Tensor, size: tuple[int, ...], align_corners: bool):
    """`nn.functional.affine_grid`.  theta (N, 2, 3), size (N, C, H, W) -> (N, H, W, 2); 3-d alike."""
    return affine_grid(theta, size, align_corners)


_MODES = ("bilinear", "nearest", "bicubic")
_PADDING = ("zeros", "border", "reflection")


@composite(method=False, names=("grid_sampler_2d", "grid_sampler_3d"))
@samples(lambda t: [(t(1, 2, 3, 4), t.uniform(-0.9, 0.9, 1, 2, 3, 2), 0, 1, True)])
def grid_sampler(input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool):
    """`nn.functional.grid_sample` with the places of the modes in (bilinear, nearest, bicubic), (zeros, border,
    reflection).  input (N, C, H, W), grid (N, H', W', 2) -> (N, C, H', W'); 3-d alike.
    """
    return grid_sample(input, grid, _MODES[interpolation_mode], _PADDING[padding_mode], align_corners)
