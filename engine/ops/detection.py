"""Operators of object detection: non-maximum suppression and the poolings of regions of interest.

They are those of torchvision's compiled extension, reached as `torch.ops.torchvision.*` (engine/_extensions).  A region
is a row (image, x1, y1, x2, y2) of `rois`, in coordinates of the image; `spatial_scale` takes it to those of the input.

Note [Pooling by two small matrices]
Bilinear sampling on a grid, and the mean over a rectangle, separate: each region has a matrix of weights for rows
and one for columns, and its pooled values are rows @ input @ columns^T, over the part of the input on which the
weights are not zero.  The gradient is the same with both transposed, so each is the other's derivative.
"""

from __future__ import annotations

import builtins
from math import prod

import numpy as np

from engine.dispatch import derivative, op, samples

_BLOCK = 1 << 21  # elements of what is made at a time


def _check_rois(name, input, rois, kind="input"):
    if rois.ndim != 2 or rois.shape[1] != 5:
        raise RuntimeError("rois must have shape as Tensor[K, 5]")
    if input.ndim != 4:
        raise RuntimeError(f"{name}: {kind} must be a 4-D Tensor (N, C, H, W), got {input.ndim} dims")
    if input.dtype != rois.dtype:
        raise RuntimeError(f"{name}: expected {kind} and rois of one type, got {input.dtype} and {rois.dtype}")


def _images(rois, count):
    """The image of each region; IndexError for one that is not there."""
    found = rois[:, 0].astype("int64")
    if found.size and (int(found.min()) < 0 or int(found.max()) >= count):
        raise IndexError(f"a region names image {int(found.max())}, but the batch has {count}")
    return found


# --- non-maximum suppression


def _below(threshold, dtype):
    """The largest number of a float type that is not above the threshold: comparing with it decides as in double."""
    found = np.dtype(dtype).type(threshold)
    return np.nextafter(found, np.dtype(dtype).type(-np.inf)) if float(found) > threshold else found


def _overlapping(xp, first, second, threshold):
    """Return whether boxes overlap by more than the threshold.  first (5, A, 1), second (5, 1, B): x1, y1, x2, y2,
    area.
    """
    width = xp.minimum(first[2], second[2])
    width -= xp.maximum(first[0], second[0])
    height = xp.minimum(first[3], second[3])
    height -= xp.maximum(first[1], second[1])
    common = xp.maximum(width, 0, out=width)
    common *= xp.maximum(height, 0, out=height)
    union = first[4] + second[4]
    union -= common
    with np.errstate(all="ignore"):
        common /= union
    return common > threshold


@op(public=False, out=False, method=False, tensors=("dets", "scores"), size_by_values=True)
@samples(
    lambda t: [
        (t.of([[0, 0, 10, 10], [1, 1, 10, 10], [20, 20, 30, 30], [0, 0, 9, 10.0]]), t.of([0.5, 0.9, 0.3, 0.7]), 0.5),
        (t.of(np.zeros((0, 4))), t.of(np.zeros(0)), 0.5),
    ]
)
def nms(xp, dets, scores, iou_threshold: float):
    """The boxes that no better one kept overlaps by more than the threshold, best first.

    dets (N, 4) as (x1, y1, x2, y2), scores (N) -> (K) int64.
    """
    if dets.ndim != 2:
        raise RuntimeError(f"boxes should be a 2d tensor, got {dets.ndim}D")
    if dets.shape[1] != 4:
        raise RuntimeError(f"boxes should have 4 elements in dimension 1, got {dets.shape[1]}")
    if scores.ndim != 1:
        raise RuntimeError(f"scores should be a 1d tensor, got {scores.ndim}D")
    if dets.shape[0] != scores.shape[0]:
        raise RuntimeError(
            f"boxes and scores should have same number of elements in dimension 0, got {dets.shape[0]} and "
            f"{scores.shape[0]}"
        )
    if dets.dtype != scores.dtype:
        raise RuntimeError(f"dets should have the same type as scores, got {dets.dtype} and {scores.dtype}")
    if dets.dtype.itemsize == 2:
        dets, scores = dets.astype("float32"), scores.astype("float32")
    threshold = _below(iou_threshold, dets.dtype)
    order = xp.argsort(-scores, kind="stable").astype("int64")
    x1, y1, x2, y2 = dets[order].T
    boxes = xp.stack([x1, y1, x2, y2, (x2 - x1) * (y2 - y1)])
    kept = []
    while order.size:  # the best that are left, among themselves; then those after them
        head, block = boxes[:, :256], order[:256]
        upper = xp.arange(block.size)
        beats = _overlapping(xp, head[:, :, None], head[:, None, :], threshold)
        beats &= upper[:, None] < upper
        keep = xp.ones(block.size, bool)
        while True:  # a box is settled once those that beat it are, so this ends at the greedy choice
            better = ~beats[keep].any(0)
            if bool((better == keep).all()):
                break
            keep = better
        kept.append(block[keep])
        head, boxes, order = head[:, keep, None], boxes[:, 256:], order[256:]
        if order.size == 0:
            break
        alive = xp.empty(order.size, bool)
        step = builtins.max(1, (_BLOCK >> 4) // builtins.max(1, head.shape[1]))
        for at in range(0, order.size, step):
            some = slice(at, at + step)
            alive[some] = ~_overlapping(xp, head, boxes[:, None, some], threshold).any(0)
        boxes, order = boxes[:, alive], order[alive]
    return xp.concatenate(kept) if kept else xp.empty(0, "int64")


# --- rotated boxes

# Signs of a rectangle's corners, one after the other around it
_CORNERS = ((-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5))


def _sides(xp, boxes, other):
    """The corners of `boxes`, x and y, seen from the centre of `other`.  (..., 5) -> 2 x (..., 4)."""
    angle = boxes[..., 4:] * (np.pi / 180)
    cos, sin = xp.cos(angle), xp.sin(angle)
    along = boxes[..., 2:3] * xp.asarray([x for x, _ in _CORNERS])
    across = boxes[..., 3:4] * xp.asarray([y for _, y in _CORNERS])
    x = boxes[..., :1] - other[..., :1] + along * cos + across * sin
    y = boxes[..., 1:2] - other[..., 1:2] + across * cos - along * sin
    return x, y


def _swept(xp, first, second, origin, margin):
    """Twice the area that the sides of `first` sweep around the origin where they run inside of `second`."""
    x, y = _sides(xp, first, origin)
    dx, dy = xp.roll(x, -1, -1) - x, xp.roll(y, -1, -1) - y
    angle = second[..., 4:] * (np.pi / 180)
    cos, sin = xp.cos(angle), xp.sin(angle)
    left, top = x - second[..., :1] + origin[..., :1], y - second[..., 1:2] + origin[..., 1:2]
    begin, end = xp.zeros(x.shape), xp.ones(x.shape)
    for place, step, size in (
        (left * cos - top * sin, dx * cos - dy * sin, second[..., 2:3]),
        (left * sin + top * cos, dx * sin + dy * cos, second[..., 3:4]),
    ):
        half = xp.maximum(size / 2 + margin, 0)
        flat = step == 0  # runs along the side: inside for its whole length or not at all
        with np.errstate(all="ignore"):
            one, two = (-half - place) / step, (half - place) / step
        outside = flat & (xp.abs(place) > half)
        begin = xp.where(flat, begin, xp.maximum(begin, xp.minimum(one, two)))
        end = xp.where(flat, xp.where(outside, begin, end), xp.minimum(end, xp.maximum(one, two)))
    length = xp.maximum(end - begin, 0)
    return ((x + begin * dx) * dy * length - (y + begin * dy) * dx * length).sum(-1)


@op(public=False, out=False, method=False, tensors=("boxes1", "boxes2"))
@samples(
    lambda t: [
        (
            t.of([[0, 0, 4, 2, 30.0], [1, 1, 3, 3, -20.0]]),
            t.of([[0.5, 0, 4, 2, 0], [9, 9, 1, 1, 0], [0, 0, 4, 2, 30.0]]),
        ),
        (t.of(np.zeros((0, 5))), t.of(np.ones((2, 5)))),
    ]
)
def box_iou_rotated(xp, boxes1, boxes2):
    """Intersection over union of each pair of rotated boxes.

    boxes1 (N, 5), boxes2 (M, 5) as (centre x, centre y, width, height, angle in degrees, counter-clockwise where y
    points down) -> (N, M) float32.  The area common to two comes from the parts of either's sides that run inside of
    the other (Green's theorem); of sides that coincide the first one's counts.
    """
    for boxes in (boxes1, boxes2):
        if boxes.ndim != 2 or boxes.shape[1] != 5:
            raise RuntimeError(f"boxes must have shape as Tensor[N, 5], got {tuple(boxes.shape)}")
    if boxes1.dtype != boxes2.dtype:
        raise RuntimeError(f"boxes1 should have the same type as boxes2, got {boxes1.dtype} and {boxes2.dtype}")
    one, two = boxes1.astype("float64"), boxes2.astype("float64")[None]
    found = xp.zeros((len(one), boxes2.shape[0]), "float32")
    step = builtins.max(1, (_BLOCK >> 7) // builtins.max(1, boxes2.shape[0]))
    for at in range(0, len(one), step):
        some = one[at : at + step, None]
        size = xp.maximum(xp.abs(some[..., 2:4]).max(-1, keepdims=True), xp.abs(two[..., 2:4]).max(-1, keepdims=True))
        origin = xp.broadcast_to(two[..., :2], (*size.shape[:2], 2))
        common = _swept(xp, some, two, origin, 1e-10 * size) + _swept(xp, two, some, origin, -1e-10 * size)
        areas = some[..., 2] * some[..., 3], two[..., 2] * two[..., 3]
        common = xp.clip(common / 2, 0, xp.minimum(*areas))
        with np.errstate(all="ignore"):
            ratio = common / (areas[0] + areas[1] - common)
        flat = (areas[0] < 1e-14) | (areas[1] < 1e-14)
        found[at : at + step] = xp.where(flat, 0, ratio)
    return found


# --- poolings that separate: Note [Pooling by two small matrices]


def _sampled(xp, start, length, bins, size, ratio):
    """Weights of bilinear samples along one dim.  start, length (K) -> (K, bins, size), each bin's a mean."""
    count = len(start)
    step = length / bins
    grid = xp.full(count, ratio) if ratio > 0 else xp.ceil(step).astype("int64")
    grid = xp.maximum(grid, 0)
    most = int(grid.max()) if count else 0
    weights = xp.zeros((count, bins, size), start.dtype)
    if not most:
        return weights
    index = xp.arange(most)
    inside = index < grid[:, None]
    place = (index.astype(start.dtype) + start.dtype.type(0.5)) * (step / xp.maximum(grid, 1))[:, None]
    at = start[:, None] + xp.arange(bins).astype(start.dtype) * step[:, None]
    at = at[:, :, None] + place[:, None, :]  # (K, bins, most)
    valid = (at >= -1) & (at <= size) & inside[:, None, :]
    at = xp.maximum(at, 0)
    low = xp.minimum(at.astype("int64"), size - 1)
    part = xp.where(low >= size - 1, 0, at - low)
    row = xp.arange(count * bins).reshape(count, bins, 1) * size
    share = valid / xp.maximum(grid, 1)[:, None, None]
    flat = xp.bincount((row + low).ravel(), ((1 - part) * share).ravel(), count * bins * size)
    high = xp.minimum(low + 1, size - 1)
    flat = flat + xp.bincount((row + high).ravel(), (part * share).ravel(), count * bins * size)
    return flat.reshape(count, bins, size).astype(start.dtype)


def _averaged(xp, start, end, bins, size):
    """Weights of the mean over each bin of whole cells.  start, end (K) -> (K, bins, size)."""
    step = xp.maximum(end - start, 1) / bins
    edge = xp.arange(bins).astype(start.dtype)
    first = xp.clip(xp.floor(edge * step[:, None]) + start[:, None], 0, size - 1)
    last = xp.clip(xp.ceil((edge + 1) * step[:, None]) + start[:, None], 0, size - 1)
    cell = xp.arange(size)
    inside = (cell >= first[:, :, None]) & (cell < last[:, :, None])
    return (inside / xp.maximum(last - first, 1)[:, :, None]).astype(start.dtype)


def _rounded(xp, x):
    """Halves away from zero, as C's round."""
    return xp.copysign(xp.floor(xp.abs(x) + 0.5), x)


def _weights(xp, rois, kind, spatial_scale, bins, sizes, ratio):
    """The matrices of rows (K, pH, H) and of columns (K, pW, W) of each region."""
    found = []
    scale = rois.dtype.type(spatial_scale)
    for n, size, first, last in zip(bins, sizes, (rois[:, 2], rois[:, 1]), (rois[:, 4], rois[:, 3])):
        if kind == "mean":
            found.append(_averaged(xp, _rounded(xp, first * scale), _rounded(xp, last * scale), n, size))
            continue
        shift = rois.dtype.type(0.0 if kind == "old" else 0.5)
        start = first * scale - shift
        length = last * scale - shift - start
        if kind == "old":  # not aligned: regions are at least one cell
            length = xp.maximum(length, 1)
        found.append(_sampled(xp, start, length, n, size, ratio))
    return found


def _support(xp, weights):
    """The first and one past the last cell with a weight, of each region.  (K, bins, size) -> two lists."""
    used = (weights != 0).any(1)
    size = used.shape[1]
    last = size - used[:, ::-1].argmax(1)
    return used.argmax(1).tolist(), xp.where(used.any(1), last, 0).tolist()


def _regions(xp, rois, kind, spatial_scale, bins, sizes, ratio):
    """(number, rows (pH, h), columns (pW, w), slices of the input) of each region that has weights."""
    step = builtins.max(1, _BLOCK // (bins[0] * sizes[0] + bins[1] * sizes[1] + 1))
    for at in range(0, len(rois), step):
        rows, columns = _weights(xp, rois[at : at + step], kind, spatial_scale, bins, sizes, ratio)
        ends = [_support(xp, rows), _support(xp, columns)]
        for k, (top, bottom, left, right) in enumerate(zip(*ends[0], *ends[1])):
            if bottom > top and right > left:
                where = (slice(top, bottom), slice(left, right))
                yield at + k, rows[k, :, where[0]], columns[k, :, where[1]], where


def _single(*arrays):
    """16-bit floats as float32, and the dtype to give back."""
    dtype = arrays[0].dtype
    return (*(a.astype("float32") if a.dtype.itemsize == 2 else a for a in arrays), dtype)


def _pool(xp, input, rois, kind, spatial_scale, bins, ratio, by_position):
    """rows @ input @ columns^T of each region; by_position: each bin has channels of its own."""
    input, rois, dtype = _single(input, rois)
    images = _images(rois, input.shape[0]).tolist()
    channels, sizes = input.shape[1], input.shape[2:]
    last = xp.ascontiguousarray(input.transpose(0, 2, 3, 1))
    made = (channels // prod(bins), *bins) if by_position else (*bins, channels)
    result = xp.zeros((len(rois), *made), input.dtype)
    for k, rows, columns, where in _regions(xp, rois, kind, spatial_scale, bins, sizes, ratio):
        part = last[(images[k], *where)]  # (h, w, C)
        if by_position:
            part = part.reshape(*part.shape[:2], *made)
            result[k] = xp.einsum("ph,hcpq->cpq", rows, xp.einsum("qw,hwcpq->hcpq", columns, part))
        else:
            across = xp.matmul(columns, part).reshape(part.shape[0], -1)  # (h, pW C)
            result[k] = (rows @ across).reshape(made)
    if not by_position:
        result = xp.ascontiguousarray(result.transpose(0, 3, 1, 2))
    return result.astype(dtype, copy=False)


def _unpool(xp, grad, rois, kind, spatial_scale, shape, ratio, by_position):
    """The transposed of `_pool`: gradients of regions summed into an input of a shape."""
    grad, rois, dtype = _single(grad, rois)
    images = _images(rois, shape[0]).tolist()
    channels, sizes, bins = shape[1], shape[2:], grad.shape[2:]
    result = xp.zeros((shape[0], *sizes, channels), grad.dtype)
    if not by_position:
        grad = xp.ascontiguousarray(grad.transpose(0, 2, 3, 1))
    for k, rows, columns, where in _regions(xp, rois, kind, spatial_scale, bins, sizes, ratio):
        target = result[(images[k], *where)]
        if by_position:
            down = xp.einsum("ph,cpq->hcpq", rows, grad[k])
            target += xp.einsum("qw,hcpq->hwcpq", columns, down).reshape(target.shape)
        else:
            down = (rows.T @ grad[k].reshape(bins[0], -1)).reshape(-1, bins[1], channels)
            target += xp.matmul(columns.T, down)
    return xp.ascontiguousarray(result.transpose(0, 3, 1, 2)).astype(dtype, copy=False)


_ROIS = [[0, 0.5, 1, 3.2, 4.1], [1, 1, 0, 5, 3], [0, -2, -1, 1.5, 2.5], [1, 3, 3, 3.2, 3.1]]


@op(public=False, out=False, method=False, tensors=("rois",), node="RoiAlignBackward0")
@derivative(
    input=lambda grad, rois, input_shape, spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned: (
        roi_align_backward(
            grad, rois, spatial_scale, pooled_height, pooled_width, *input_shape, sampling_ratio, aligned
        )
    )
)
@samples(
    lambda t: [
        (t(2, 3, 5, 6), t.of(_ROIS), 1.0, 2, 3, 2, True),
        (t(2, 2, 4, 5), t.of(_ROIS), 0.7, 2, 2, 0, False),
        (t(2, 2, 4, 5), t.of(_ROIS), 0.7, 3, 2, -1, True),
        (t(1, 2, 4, 5), t.of(np.zeros((0, 5))), 1.0, 2, 2, 2, True),
    ]
)
def roi_align(
    xp,
    input,
    rois,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int = -1,
    aligned: bool = False,
):
    """Means of bilinear samples in the bins of each region (arXiv:1703.06870).

    input (N, C, H, W), rois (K, 5) -> (K, C, pooled_height, pooled_width).
    """
    _check_rois("roi_align", input, rois)
    kind, bins = ("new" if aligned else "old"), (pooled_height, pooled_width)
    return _pool(xp, input, rois, kind, spatial_scale, bins, sampling_ratio, False)


@op(public=False, out=False, method=False, tensors=("rois",))
@derivative(
    grad_output=lambda grad, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned: roi_align(
        grad, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned
    )
)
@samples(
    lambda t: [
        (t(4, 3, 2, 3), t.of(_ROIS), 1.0, 2, 3, 2, 3, 5, 6, 2, True),
        (t(4, 2, 2, 2), t.of(_ROIS), 0.7, 2, 2, 2, 2, 4, 5, 0, False),
    ]
)
def roi_align_backward(
    xp,
    grad_output,
    rois,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    batch_size: int,
    channels: int,
    height: int,
    width: int,
    sampling_ratio: int,
    aligned: bool,
):
    """The gradient of roi_align.  grad_output (K, C, pH, pW), rois (K, 5) -> (N, C, H, W)."""
    _check_rois("_roi_align_backward", grad_output, rois, "grad")
    shape = (batch_size, channels, height, width)
    return _unpool(xp, grad_output, rois, "new" if aligned else "old", spatial_scale, shape, sampling_ratio, False)


def _check_positions(channels, bins):
    if channels % prod(bins):
        raise RuntimeError("input channels must be a multiple of pooling height * pooling width")


def _mapping(xp, count, channels, bins):
    """The channel of the input that each pooled value comes from, int32 (K, C, pH, pW)."""
    each = xp.arange(channels * prod(bins), dtype="int32").reshape(channels, *bins)
    return xp.ascontiguousarray(xp.broadcast_to(each, (count, *each.shape)))


@op(
    public=False,
    out=False,
    method=False,
    tensors=("rois",),
    returns=("output", "channel_mapping"),
    nondifferentiable=("channel_mapping",),
    node="PsRoiAlignBackward0",
)
@derivative(
    input=lambda grad0, rois, input_shape, spatial_scale, pooled_height, pooled_width, sampling_ratio: (
        ps_roi_align_backward(
            grad0, rois, None, spatial_scale, pooled_height, pooled_width, sampling_ratio, *input_shape
        )
    )
)
@samples(
    lambda t: [
        (t(2, 12, 5, 6), t.of(_ROIS), 1.0, 2, 3, 2),
        (t(2, 8, 4, 5), t.of(_ROIS[:3]), 0.7, 2, 2, -1),
    ]
)
def ps_roi_align(
    xp, input, rois, spatial_scale: float, pooled_height: int, pooled_width: int, sampling_ratio: int = -1
):
    """roi_align with channels of its own for each bin.

    input (N, C pH pW, H, W), rois (K, 5) -> (K, C, pH, pW), int32 of the same shape.
    """
    _check_rois("ps_roi_align", input, rois)
    bins = (pooled_height, pooled_width)
    _check_positions(input.shape[1], bins)
    pooled = _pool(xp, input, rois, "new", spatial_scale, bins, sampling_ratio, True)
    return pooled, _mapping(xp, len(rois), pooled.shape[1], bins)


@op(public=False, out=False, method=False, tensors=("rois", "channel_mapping"))
@derivative(
    grad_output=lambda grad, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio: ps_roi_align(
        grad, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio
    )[0]
)
@samples(lambda t: [(t(4, 2, 2, 3), t.of(_ROIS), None, 1.0, 2, 3, 2, 2, 12, 5, 6)])
def ps_roi_align_backward(
    xp,
    grad_output,
    rois,
    channel_mapping=None,
    spatial_scale: float = 1.0,
    pooled_height: int = 1,
    pooled_width: int = 1,
    sampling_ratio: int = -1,
    batch_size: int = 1,
    channels: int = 1,
    height: int = 1,
    width: int = 1,
):
    """The gradient of ps_roi_align; the mapping follows from the sizes.  (K, C, pH, pW) -> (N, C pH pW, H, W)."""
    _check_rois("_ps_roi_align_backward", grad_output, rois, "grad")
    shape = (batch_size, channels, height, width)
    return _unpool(xp, grad_output, rois, "new", spatial_scale, shape, sampling_ratio, True)


@op(
    public=False,
    out=False,
    method=False,
    tensors=("rois",),
    returns=("output", "channel_mapping"),
    nondifferentiable=("channel_mapping",),
    node="PsRoiPoolBackward0",
)
@derivative(
    input=lambda grad0, rois, input_shape, spatial_scale, pooled_height, pooled_width: ps_roi_pool_backward(
        grad0, rois, None, spatial_scale, pooled_height, pooled_width, *input_shape
    )
)
@samples(
    lambda t: [
        (t(2, 12, 5, 6), t.of(_ROIS), 1.0, 2, 3),
        (t(2, 8, 4, 5), t.of(_ROIS), 0.7, 2, 2),
    ]
)
def ps_roi_pool(xp, input, rois, spatial_scale: float, pooled_height: int, pooled_width: int):
    """Means over the bins of each region, each with channels of its own (arXiv:1605.06409).

    input (N, C pH pW, H, W), rois (K, 5) -> (K, C, pH, pW), int32 of the same shape.
    """
    _check_rois("ps_roi_pool", input, rois)
    bins = (pooled_height, pooled_width)
    _check_positions(input.shape[1], bins)
    pooled = _pool(xp, input, rois, "mean", spatial_scale, bins, 0, True)
    return pooled, _mapping(xp, len(rois), pooled.shape[1], bins)


@op(public=False, out=False, method=False, tensors=("rois", "channel_mapping"))
@derivative(
    grad_output=lambda grad, rois, spatial_scale, pooled_height, pooled_width: ps_roi_pool(
        grad, rois, spatial_scale, pooled_height, pooled_width
    )[0]
)
@samples(lambda t: [(t(4, 2, 2, 3), t.of(_ROIS), None, 1.0, 2, 3, 2, 12, 5, 6)])
def ps_roi_pool_backward(
    xp,
    grad_output,
    rois,
    channel_mapping=None,
    spatial_scale: float = 1.0,
    pooled_height: int = 1,
    pooled_width: int = 1,
    batch_size: int = 1,
    channels: int = 1,
    height: int = 1,
    width: int = 1,
):
    """The gradient of ps_roi_pool; the mapping follows from the sizes.  (K, C, pH, pW) -> (N, C pH pW, H, W)."""
    _check_rois("_ps_roi_pool_backward", grad_output, rois, "grad")
    return _unpool(xp, grad_output, rois, "mean", spatial_scale, (batch_size, channels, height, width), 0, True)


# --- the largest of each bin


def _bins(xp, start, end, count, size):
    """The cells of each bin.  start, end (K) -> first and one past the last, (K, count) int64."""
    step = xp.maximum(end - start + 1, 1) / count
    edge = xp.arange(count).astype(start.dtype)
    first = xp.clip(xp.floor(edge * step[:, None]) + start[:, None], 0, size)
    last = xp.clip(xp.ceil((edge + 1) * step[:, None]) + start[:, None], 0, size)
    return first.astype("int64"), last.astype("int64")


@op(
    public=False,
    out=False,
    method=False,
    tensors=("rois",),
    returns=("output", "argmax"),
    nondifferentiable=("argmax",),
    node="RoiPoolBackward0",
)
@derivative(
    input=lambda grad0, rois, result1, input_shape, spatial_scale, pooled_height, pooled_width: roi_pool_backward(
        grad0, rois, result1, spatial_scale, pooled_height, pooled_width, *input_shape
    )
)
@samples(
    lambda t: [
        (t.distinct(2, 3, 5, 6), t.of(_ROIS), 1.0, 2, 3),
        (t.distinct(2, 2, 4, 5), t.of(_ROIS), 0.7, 2, 2),
        (t(1, 2, 4, 5), t.of(np.zeros((0, 5))), 1.0, 2, 2),
    ]
)
def roi_pool(xp, input, rois, spatial_scale: float, pooled_height: int, pooled_width: int):
    """The largest value in each bin of each region (arXiv:1504.08083), 0 in an empty bin.

    input (N, C, H, W), rois (K, 5) -> (K, C, pH, pW), and where in its plane it stands, int32 (-1 in an empty bin).
    """
    _check_rois("roi_pool", input, rois)
    values, regions, dtype = _single(input, rois)
    count, channels, (height, width) = len(rois), input.shape[1], input.shape[2:]
    images = _images(regions, input.shape[0])
    corner = _rounded(xp, regions[:, 1:] * regions.dtype.type(spatial_scale))
    top, bottom = _bins(xp, corner[:, 1], corner[:, 3], pooled_height, height)
    left, right = _bins(xp, corner[:, 0], corner[:, 2], pooled_width, width)
    output = xp.zeros((count, channels, pooled_height, pooled_width), values.dtype)
    argmax = xp.full(output.shape, -1, "int32")
    if not output.size:
        return output.astype(dtype, copy=False), argmax
    tall, wide = (bottom - top).max(1), (right - left).max(1)
    cells = tall * wide
    order = xp.argsort(cells, kind="stable")
    flat = values.reshape(input.shape[0], channels, height * width)
    at = 0
    while at < count:  # regions of like size together, their bins filled up with the last cell
        n = 1
        per = channels * pooled_height * pooled_width
        while at + n < count and (n + 1) * per * int(cells[order[at + n]]) <= _BLOCK:
            n += 1
        some = order[at : at + n]
        at += n
        h, w = builtins.max(1, int(tall[some].max())), builtins.max(1, int(wide[some].max()))
        rows = xp.minimum(top[some][:, :, None] + xp.arange(h), bottom[some][:, :, None] - 1)  # (n, pH, h)
        columns = xp.minimum(left[some][:, :, None] + xp.arange(w), right[some][:, :, None] - 1)
        place = xp.maximum(rows, 0)[:, :, None, :, None] * width + xp.maximum(columns, 0)[:, None, :, None, :]
        place = place.reshape(n, pooled_height, pooled_width, h * w)
        found = xp.moveaxis(flat[images[some]][xp.arange(n)[:, None, None, None], :, place], -1, 1)
        best = found.argmax(-1)
        empty = (bottom <= top)[some][:, :, None] | (right <= left)[some][:, None, :]
        largest = xp.take_along_axis(found, best[..., None], -1)[..., 0]
        where = xp.take_along_axis(xp.broadcast_to(place[:, None], found.shape), best[..., None], -1)[..., 0]
        output[some] = xp.where(empty[:, None], 0, largest)
        argmax[some] = xp.where(empty[:, None], -1, where)
    return output.astype(dtype, copy=False), argmax


def _cells(xp, rois, argmax, shape):
    """The cell of the input, counted over all of it, that each pooled value is."""
    images = _images(rois, shape[0])
    plane = images[:, None] * shape[1] + xp.arange(shape[1])
    return plane[:, :, None, None] * (shape[2] * shape[3]) + argmax


@op(public=False, out=False, method=False, tensors=("rois", "argmax"))
@derivative(grad_output=lambda grad, rois, argmax: roi_pool_gather(grad, rois, argmax))
@samples(lambda t: [(t(4, 2, 2, 2), t.of(_ROIS), t.integers(-1, 20, 4, 2, 2, 2), 1.0, 2, 2, 2, 2, 4, 5)])
def roi_pool_backward(
    xp,
    grad_output,
    rois,
    argmax,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    batch_size: int,
    channels: int,
    height: int,
    width: int,
):
    """The gradient of roi_pool: to the largest value of each bin.  (K, C, pH, pW) -> (N, C, H, W)."""
    _check_rois("_roi_pool_backward", grad_output, rois, "grad")
    shape = (batch_size, channels, height, width)
    flat = _cells(xp, rois, argmax, shape)[argmax >= 0]
    found = xp.bincount(flat, grad_output[argmax >= 0].astype("float64"), prod(shape))
    return found.reshape(shape).astype(grad_output.dtype)


@op(public=False, out=False, method=False, tensors=("rois", "argmax"))
@derivative(
    input=lambda grad, rois, argmax, input_shape: roi_pool_backward(grad, rois, argmax, 1.0, 1, 1, *input_shape)
)
@samples(lambda t: [(t(2, 2, 4, 5), t.of(_ROIS), t.integers(-1, 20, 4, 2, 2, 2))])
def roi_pool_gather(xp, input, rois, argmax):
    """The values that roi_pool found largest.  input (N, C, H, W), argmax (K, C, pH, pW) -> (K, C, pH, pW)."""
    cells = _cells(xp, rois, argmax, input.shape)
    return xp.where(argmax < 0, 0, input.reshape(-1)[xp.where(argmax < 0, 0, cells)]).astype(input.dtype)
