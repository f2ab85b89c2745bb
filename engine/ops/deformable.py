"""Deformable convolution (arXiv:1703.06211, with a mask arXiv:1811.11168), torchvision's operator.

Each sample of the kernel is read where an offset says, bilinearly, zero outside.  A piece of the output at a time: the
samples are gathered as rows of channels, so that one product with the weight gives the piece, one more its gradient.
"""

from __future__ import annotations

import builtins
from math import prod

from engine.dispatch import joint_derivative, op, samples

_ROWS = 1 << 21  # elements of samples at a time


def _corners(xp, offset, mask, at, geometry, size):
    """Of the samples of some places: row (in a plane with a border of zeros), two weights and the mask.

    offset (G, k, 2, L') -> index (G, L', k), parts (G, L', k) below and right of it, inside (G, L', k).
    """
    (kernel, stride, padding, dilation), (height, width), out_width = geometry, size[:2], size[2]
    rows, columns = at // out_width, at % out_width
    tap = xp.arange(prod(kernel))
    y = (rows * stride[0] - padding[0])[:, None] + (tap // kernel[1]) * dilation[0]
    x = (columns * stride[1] - padding[1])[:, None] + (tap % kernel[1]) * dilation[1]
    y = y + offset[:, :, 0].transpose(0, 2, 1)
    x = x + offset[:, :, 1].transpose(0, 2, 1)
    inside = (y > -1) & (y < height) & (x > -1) & (x < width)
    y, x = xp.where(inside, y, 0), xp.where(inside, x, 0)
    top, left = xp.floor(y), xp.floor(x)
    index = (top.astype("int64") + 1) * (width + 2) + left.astype("int64") + 1
    return index, (y - top).astype(offset.dtype), (x - left).astype(offset.dtype), inside


def _bordered(xp, image, groups):
    """An image (C, H, W) as rows of channels, (G, (H + 2)(W + 2), C/G), zero on the border."""
    channels, height, width = image.shape
    wide = xp.zeros((groups, height + 2, width + 2, channels // groups), image.dtype)
    wide[:, 1:-1, 1:-1] = image.reshape(groups, channels // groups, height, width).transpose(0, 2, 3, 1)
    return wide.reshape(groups, -1, channels // groups)


class _Plan:
    """The sizes of one call, checked."""

    def __init__(self, input, weight, offset, mask, bias, stride, padding, dilation, groups, offset_groups, use_mask):
        if input.ndim != 4 or weight.ndim != 4 or offset.ndim != 4:
            raise RuntimeError(
                f"deform_conv2d: input, weight and offset must be 4-D, got {input.ndim}, {weight.ndim} and "
                f"{offset.ndim}"
            )
        self.batch, self.channels, height, width = input.shape
        self.kernel = weight.shape[2:]
        self.groups, self.offset_groups = groups, offset_groups
        if builtins.min(*stride, *dilation, groups, offset_groups) <= 0 or builtins.min(padding) < 0:
            raise RuntimeError(
                f"deform_conv2d: stride {stride}, dilation {dilation}, groups {groups} and offset groups "
                f"{offset_groups} must be positive, padding {padding} not negative"
            )
        if weight.shape[1] * groups != self.channels or weight.shape[0] % groups or self.channels % offset_groups:
            raise RuntimeError(
                f"deform_conv2d: a weight of {list(weight.shape)} and {groups} groups, {offset_groups} of offsets, do "
                f"not fit {self.channels} input channels"
            )
        self.out = tuple(
            (n + 2 * p - d * (k - 1) - 1) // s + 1
            for n, p, d, k, s in zip((height, width), padding, dilation, self.kernel, stride)
        )
        self.taps = prod(self.kernel)
        if builtins.min(self.out) <= 0:
            raise RuntimeError(f"Calculated output size too small - out_h: {self.out[0]} out_w: {self.out[1]}")
        wanted = (self.batch, 2 * offset_groups * self.taps, *self.out)
        if tuple(offset.shape) != wanted:
            raise RuntimeError(f"offset.shape[1] is not valid: got {list(offset.shape)}, expected {list(wanted)}")
        wanted = (self.batch, offset_groups * self.taps, *self.out)
        if use_mask and tuple(mask.shape) != wanted:
            raise RuntimeError(f"mask.shape[1] is not valid: got {list(mask.shape)}, expected {list(wanted)}")
        self.geometry = (self.kernel, stride, padding, dilation)
        self.size = (height, width, self.out[1])
        self.length = prod(self.out)
        self.step = builtins.max(1, _ROWS // (self.taps * self.channels))

    def pieces(self, xp):
        """Places of the output, some at a time."""
        for start in range(0, self.length, self.step):
            yield xp.arange(start, builtins.min(start + self.step, self.length))

    def weights(self, xp, weight):
        """(O, C/g, kH, kW) as (g, k C/g, O/g)."""
        out, inner = weight.shape[:2]
        w = weight.reshape(self.groups, out // self.groups, inner, self.taps).transpose(0, 3, 2, 1)
        return xp.ascontiguousarray(w).reshape(self.groups, self.taps * inner, out // self.groups)

    def columns(self, xp, sampled):
        """Samples (G, L', k, C/G) as (g, L', k C/g)."""
        wide = xp.moveaxis(sampled, 0, 2).reshape(*sampled.shape[1:3], self.groups, self.channels // self.groups)
        return xp.ascontiguousarray(xp.moveaxis(wide, 2, 0)).reshape(self.groups, sampled.shape[1], -1)

    def samples(self, xp, columns):
        """The inverse of `columns`."""
        wide = columns.reshape(self.groups, columns.shape[1], self.taps, self.channels // self.groups)
        wide = xp.moveaxis(wide, 0, 2).reshape(columns.shape[1], self.taps, self.offset_groups, -1)
        return xp.ascontiguousarray(xp.moveaxis(wide, 2, 0))


def _four(xp, plane, index, width):
    """The rows at an index and right of, below, and below right of it.  plane (G, P, C) -> four of (G, L', k, C)."""
    group = xp.arange(len(plane))[:, None, None]
    return [plane[group, index + step] for step in (0, 1, width + 2, width + 3)]


def _interpolated(four, down, right):
    a, b, c, d = four
    y, x = down[..., None], right[..., None]
    return (1 - y) * ((1 - x) * a + x * b) + y * ((1 - x) * c + x * d)


def _geometry(stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w):
    return (stride_h, stride_w), (pad_h, pad_w), (dilation_h, dilation_w)


def _masked(plan, mask, image, at, use_mask):
    """The mask of some places, (G, L', k), or 1."""
    if not use_mask:
        return 1
    return mask[image].reshape(plan.offset_groups, plan.taps, plan.length)[:, :, at].transpose(0, 2, 1)


@op(public=False, out=False, method=False, tensors=("offset",), node="DeformConv2DBackward0")
@joint_derivative(
    "input", "weight", "offset", "mask", "bias",
    by=lambda grad, input, weight, offset, mask, bias, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, groups,
    offset_groups, use_mask: deform_conv2d_backward(
        grad, input, weight, offset, mask, bias, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, groups,
        offset_groups, use_mask,
    ),
)  # fmt: skip
@samples(
    lambda t: [
        (t(2, 4, 5, 6), t(6, 2, 3, 2), t(2, 24, 3, 3), t(2, 12, 3, 3), t(6), 1, 2, 0, 1, 1, 2, 2, 2, True),
        (t(1, 2, 4, 5), t(3, 2, 2, 2), t(1, 8, 5, 6), t(1, 1), t(3), 1, 1, 1, 1, 1, 1, 1, 1, False),
    ]
)
def deform_conv2d(
    xp,
    input,
    weight,
    offset,
    mask,
    bias,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    groups: int,
    offset_groups: int,
    use_mask: bool,
):
    """Convolution whose samples are moved by offsets and weighted by a mask.

    input (N, C, H, W), weight (O, C/groups, kH, kW), offset (N, 2 G kH kW, H', W'), mask (N, G kH kW, H', W'), bias (O)
    -> (N, O, H', W').
    """
    geometry = _geometry(stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w)
    plan = _Plan(input, weight, offset, mask, bias, *geometry, groups, offset_groups, use_mask)
    matrix = plan.weights(xp, weight)
    out = weight.shape[0]
    result = xp.empty((plan.batch, out, plan.length), input.dtype)
    moves = offset.reshape(plan.batch, offset_groups, plan.taps, 2, plan.length)
    for n in range(plan.batch):
        plane = _bordered(xp, input[n], offset_groups)
        for at in plan.pieces(xp):
            index, down, right, inside = _corners(xp, moves[n][..., at], mask, at, plan.geometry, plan.size)
            sampled = _interpolated(_four(xp, plane, index, plan.size[1]), down, right)
            sampled *= (inside * _masked(plan, mask, n, at, use_mask))[..., None]
            made = xp.matmul(plan.columns(xp, sampled), matrix)  # (g, L', O/g)
            result[n, :, at[0] : at[-1] + 1] = made.transpose(0, 2, 1).reshape(out, len(at))
    result += bias[:, None]
    return result.reshape(plan.batch, out, *plan.out)


@op(
    public=False,
    out=False,
    method=False,
    tensors=("offset",),
    gradgrad=False,
    why="torchvision has no second derivative of it either",
    returns=("grad_input", "grad_weight", "grad_offset", "grad_mask", "grad_bias"),
)
def deform_conv2d_backward(
    xp,
    grad_output,
    input,
    weight,
    offset,
    mask,
    bias,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    groups: int,
    offset_groups: int,
    use_mask: bool,
):
    """The gradients of deform_conv2d.  grad_output (N, O, H', W'), operands as there -> each of its operand's shape."""
    geometry = _geometry(stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w)
    plan = _Plan(input, weight, offset, mask, bias, *geometry, groups, offset_groups, use_mask)
    matrix = plan.weights(xp, weight)
    height, width = input.shape[2:]
    each = plan.channels // offset_groups
    of_input = xp.empty_like(input)
    of_matrix = xp.zeros_like(matrix)
    of_offset = xp.empty((plan.batch, offset_groups, plan.taps, 2, plan.length), offset.dtype)
    of_mask = xp.zeros((plan.batch, offset_groups, plan.taps, plan.length), input.dtype)
    moves = offset.reshape(of_offset.shape)
    for n in range(plan.batch):
        plane = _bordered(xp, input[n], offset_groups)
        wide = xp.zeros_like(plane).reshape(-1, each)
        got = grad_output[n].reshape(groups, -1, plan.length)
        for at in plan.pieces(xp):
            index, down, right, inside = _corners(xp, moves[n][..., at], mask, at, plan.geometry, plan.size)
            four = _four(xp, plane, index, width)
            share = inside * _masked(plan, mask, n, at, use_mask)
            sampled = _interpolated(four, down, right)
            piece = xp.ascontiguousarray(got[:, :, at].transpose(0, 2, 1))  # (g, L', O/g)
            back = plan.samples(xp, xp.matmul(piece, matrix.transpose(0, 2, 1)))  # (G, L', k, C/G)
            of_matrix += xp.matmul(plan.columns(xp, sampled * share[..., None]).transpose(0, 2, 1), piece)
            if use_mask:
                of_mask[n][..., at] = ((back * sampled).sum(-1) * inside).transpose(0, 2, 1)
            back *= share[..., None]
            a, b, c, d = four
            y, x = down[..., None], right[..., None]
            of_y = (back * ((1 - x) * (c - a) + x * (d - b))).sum(-1)
            of_x = (back * ((1 - y) * (b - a) + y * (d - c))).sum(-1)
            of_offset[n][:, :, 0, at], of_offset[n][:, :, 1, at] = of_y.transpose(0, 2, 1), of_x.transpose(0, 2, 1)
            first = index + xp.arange(offset_groups)[:, None, None] * plane.shape[1]
            for step, part in zip((0, 1, width + 2, width + 3), ((1 - y) * (1 - x), (1 - y) * x, y * (1 - x), y * x)):
                _add_rows(xp, wide, (first + step).ravel(), (back * part).reshape(-1, each))
        wide = wide.reshape(offset_groups, height + 2, width + 2, each)[:, 1:-1, 1:-1]
        of_input[n] = wide.transpose(0, 3, 1, 2).reshape(input.shape[1:])
    out, inner = weight.shape[:2]
    of_weight = of_matrix.reshape(groups, plan.taps, inner, out // groups).transpose(0, 3, 2, 1)
    return (
        of_input,
        xp.ascontiguousarray(of_weight).reshape(weight.shape),
        of_offset.reshape(offset.shape),
        of_mask.reshape(mask.shape) if use_mask else xp.zeros_like(mask),
        grad_output.sum((0, 2, 3)),
    )


def _add_rows(xp, target, index, rows):
    """target[index] += rows, where an index may come several times.  target (P, C), index (M), rows (M, C)."""
    if not index.size:
        return
    order = xp.argsort(index, kind="stable")
    found = index[order]
    starts = xp.flatnonzero(xp.concatenate([xp.ones(1, bool), found[1:] != found[:-1]]))
    target[found[starts]] += xp.add.reduceat(rows[order], starts, axis=0)
