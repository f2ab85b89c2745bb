"""Operators of object detection against plain loops that follow their papers."""

from __future__ import annotations

import math

import numpy as np
import pytest

import engine
from engine.ops import detection

RNG = np.random.default_rng(3)


def boxes_of(count: int, size: float = 60.0) -> np.ndarray:
    corner = RNG.uniform(-5, size, (count, 2))
    return np.concatenate([corner, corner + RNG.uniform(0.5, size / 2, (count, 2))], 1)


def greedy(boxes: np.ndarray, scores: np.ndarray, threshold: float) -> list[int]:
    kept: list[int] = []
    for i in np.argsort(-scores, kind="stable"):
        others = boxes[kept]
        low, high = np.maximum(boxes[i, :2], others[:, :2]), np.minimum(boxes[i, 2:], others[:, 2:])
        common = np.prod(np.maximum(high - low, 0), 1)
        areas = np.prod(others[:, 2:] - others[:, :2], 1) + np.prod(boxes[i, 2:] - boxes[i, :2])
        if not np.any(common / (areas - common) > threshold):
            kept.append(int(i))
    return kept


@pytest.mark.parametrize("threshold", [0.0, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("count", [1, 40, 700])
def test_nms_keeps_what_the_greedy_loop_keeps(count: int, threshold: float) -> None:
    boxes, scores = boxes_of(count), RNG.random(count).round(2)  # with ties
    found = engine.ops.torchvision.nms(engine.tensor(boxes), engine.tensor(scores), threshold)
    assert found.dtype is engine.int64 and found.tolist() == greedy(boxes, scores, threshold)


def test_nms_of_many_boxes_far_apart_and_of_equal_ones() -> None:
    far = np.arange(3000)[:, None] * 10.0 + np.array([0, 0, 5, 5])
    scores = engine.tensor(RNG.random(3000))
    assert len(detection.nms(engine.tensor(far), scores, 0.5)) == 3000
    same = engine.tensor(np.tile([[0.0, 0, 4, 4]], (3000, 1)))
    assert detection.nms(same, scores, 0.5).tolist() == [int(scores.argmax())]


@pytest.mark.parametrize(
    ("shapes", "text"),
    [
        (((3,), (3,)), "boxes should be a 2d tensor, got 1D"),
        (((3, 5), (3,)), "boxes should have 4 elements in dimension 1, got 5"),
        (((3, 4), (3, 1)), "scores should be a 1d tensor, got 2D"),
        (((3, 4), (2,)), "boxes and scores should have same number of elements in dimension 0, got 3 and 2"),
    ],
)
def test_what_nms_refuses(shapes, text: str) -> None:
    with pytest.raises(RuntimeError, match=text):
        engine.ops.torchvision.nms(engine.zeros(shapes[0]), engine.zeros(shapes[1]), 0.5)


def bilinear(plane: np.ndarray, y: float, x: float) -> float:
    height, width = plane.shape
    if y < -1 or y > height or x < -1 or x > width:
        return 0.0
    y, x = min(max(y, 0.0), height - 1.0), min(max(x, 0.0), width - 1.0)
    top, left = int(y), int(x)
    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
    v, u = y - top, x - left
    above = plane[top, left] * (1 - u) + plane[top, right] * u
    return above * (1 - v) + (plane[bottom, left] * (1 - u) + plane[bottom, right] * u) * v


def aligned(plane: np.ndarray, roi: np.ndarray, scale: float, bins: int, ratio: int, shift: bool) -> np.ndarray:
    x1, y1, x2, y2 = roi * scale - (0.5 if shift else 0.0)
    tall, wide = (y2 - y1, x2 - x1) if shift else (max(y2 - y1, 1.0), max(x2 - x1, 1.0))
    rows, columns = (ratio, ratio) if ratio > 0 else (math.ceil(tall / bins), math.ceil(wide / bins))
    found = np.zeros((bins, bins))
    for i in range(bins):
        for j in range(bins):
            some = [
                bilinear(plane, y1 + (i + (a + 0.5) / rows) * tall / bins, x1 + (j + (b + 0.5) / columns) * wide / bins)
                for a in range(rows)
                for b in range(columns)
            ]
            found[i, j] = np.mean(some)
    return found


@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("shift", [False, True])
def test_roi_align_is_the_mean_of_bilinear_samples(ratio: int, shift: bool) -> None:
    planes, boxes = RNG.standard_normal((2, 3, 11, 14)), boxes_of(6)
    images = np.array([0, 1, 1, 0, 1, 0])
    rois = np.concatenate([images[:, None], boxes], 1)
    found = engine.ops.torchvision.roi_align(engine.tensor(planes), engine.tensor(rois), 0.25, 3, 3, ratio, shift)
    for k, image in enumerate(images):
        for c in range(3):
            wanted = aligned(planes[image, c], boxes[k], 0.25, 3, ratio, shift)
            np.testing.assert_allclose(found[k, c].numpy(), wanted, atol=1e-12)


def test_roi_pool_is_the_largest_of_each_bin() -> None:
    planes = RNG.standard_normal((1, 2, 12, 15))
    rois = engine.tensor([[0.0, 2, 3, 9, 10], [0, 0, 0, 14, 11], [0, 13, 10, 40, 40], [0, 50, 50, 60, 60]]).double()
    found, place = engine.ops.torchvision.roi_pool(engine.tensor(planes), rois, 1.0, 2, 2)
    assert found[0, 0, 0, 0] == planes[0, 0, 3:7, 2:6].max() and found[1, 1, 1, 1] == planes[0, 1, 6:, 7:].max()
    assert found[3].abs().sum() == 0 and bool((place[3] == -1).all()) and place.dtype is engine.int32
    assert planes[0, 1].ravel()[int(place[1, 1, 1, 1])] == found[1, 1, 1, 1]


def test_position_sensitive_pooling_reads_a_channel_for_each_bin() -> None:
    values = engine.arange(8.0, dtype=engine.float64).reshape(1, 8, 1, 1).expand(1, 8, 9, 9).contiguous()
    rois = engine.tensor([[0.0, 1, 1, 7, 7]], dtype=engine.float64)
    for name, more in (("ps_roi_align", (2,)), ("ps_roi_pool", ())):
        found, channels = getattr(engine.ops.torchvision, name)(values, rois, 1.0, 2, 2, *more)
        assert found.flatten().tolist() == pytest.approx(list(range(8)))
        assert channels.flatten().tolist() == list(range(8))
    with pytest.raises(RuntimeError, match="input channels must be a multiple of pooling height"):
        engine.ops.torchvision.ps_roi_pool(values[:, :7], rois, 1.0, 2, 2)


def test_regions_are_checked() -> None:
    planes = engine.zeros(1, 1, 4, 4)
    with pytest.raises(RuntimeError, match=r"rois must have shape as Tensor\[K, 5\]"):
        engine.ops.torchvision.roi_align(planes, engine.zeros(2, 4), 1.0, 2, 2, 2, True)
    with pytest.raises(IndexError, match="names image 3, but the batch has 1"):
        engine.ops.torchvision.roi_align(planes, engine.tensor([[3.0, 0, 0, 1, 1]]), 1.0, 2, 2, 2, True)


def test_a_deformable_convolution_without_offsets_is_a_convolution() -> None:
    x, w, b = (engine.tensor(RNG.standard_normal(s)) for s in ((2, 4, 7, 8), (6, 2, 3, 3), (6,)))
    offset, mask = engine.zeros(2, 18, 4, 4, dtype=x.dtype), engine.ones(2, 9, 4, 4, dtype=x.dtype)
    found = engine.ops.torchvision.deform_conv2d(x, w, offset, mask, b, 2, 2, 1, 1, 1, 1, 2, 1, True)
    assert engine.allclose(found, engine.nn.functional.conv2d(x, w, b, 2, 1, 1, 2))
    whole = offset.clone()
    whole[:, 1::2] = 1  # every sample one column to the right
    found = engine.ops.torchvision.deform_conv2d(x, w, whole, mask, b, 2, 2, 1, 1, 1, 1, 2, 1, True)
    moved = engine.nn.functional.pad(x[..., 1:], (0, 1))
    inner = engine.nn.functional.conv2d(moved, w, b, 2, 1, 1, 2)
    assert engine.allclose(found[..., 1:], inner[..., 1:])
    with pytest.raises(RuntimeError, match=r"offset.shape\[1\] is not valid"):
        engine.ops.torchvision.deform_conv2d(x, w, offset[:, :4], mask, b, 2, 2, 1, 1, 1, 1, 2, 1, True)


def test_quantized_operators_refuse() -> None:
    with pytest.raises(NotImplementedError, match="qnms is not supported"):
        engine.ops.torchvision.qnms(engine.zeros(1, 4), engine.zeros(1), 0.5)


def corners(box: np.ndarray) -> list[tuple[float, float]]:
    x, y, w, h, angle = box
    cos, sin = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    return [
        (x + sx * w / 2 * cos + sy * h / 2 * sin, y + sy * h / 2 * cos - sx * w / 2 * sin)
        for sx, sy in ((-1, -1), (1, -1), (1, 1), (-1, 1))
    ]


def area(points: list[tuple[float, float]]) -> float:
    return sum(a[0] * b[1] - a[1] * b[0] for a, b in zip(points, points[1:] + points[:1])) / 2


def common_area(first: np.ndarray, second: np.ndarray) -> float:
    """Sutherland and Hodgman, Reentrant polygon clipping (1974): the first cut by each side of the second."""
    left = corners(first)
    around = corners(second)
    for a, b in zip(around, around[1:] + around[:1]):
        side = [(b[0] - a[0]) * (p[1] - a[1]) - (b[1] - a[1]) * (p[0] - a[0]) for p in left]
        cut = []
        for i in range(len(left)):
            p, q, s, t = left[i - 1], left[i], side[i - 1], side[i]
            if (s >= 0) != (t >= 0):
                cut.append(tuple(u + (v - u) * s / (s - t) for u, v in zip(p, q)))
            if t >= 0:
                cut.append(q)
        left = cut
    return area(left) if len(left) > 2 else 0.0


def rotated_boxes(count: int) -> np.ndarray:
    middle, size = RNG.uniform(-3, 3, (count, 2)), RNG.uniform(0.2, 5, (count, 2))
    return np.concatenate([middle, size, RNG.uniform(-400, 400, (count, 1))], 1)


@pytest.mark.parametrize(("scale", "shift"), [(1.0, 0.0), (1e-4, 0.0), (50.0, 4000.0)])
def test_rotated_boxes_overlap_as_clipped_polygons_do(scale: float, shift: float) -> None:
    some = rotated_boxes(40), rotated_boxes(30)
    for one in some:
        one[:, :4] *= scale
        one[:, :2] += shift
    want = np.array([[common_area(a, b) for b in some[1]] for a in some[0]])
    areas = [one[:, 2] * one[:, 3] for one in some]
    want /= areas[0][:, None] + areas[1] - want
    found = engine.ops.torchvision.box_iou_rotated(*map(engine.tensor, some))
    assert found.dtype is engine.float32 and np.abs(found.numpy() - want).max() < 1e-6
    assert (want > 0.1).sum() > 100


def test_rotated_boxes_that_share_sides() -> None:
    """Equal boxes, also turned by half a turn or told with width and height exchanged; halves; neighbours."""
    for box in (*rotated_boxes(20), np.array([3.0, 4, 2, 5, 0]), np.array([3.0, 4, 2, 5, 45])):
        x, y, w, h, r = box
        cos, sin = math.cos(math.radians(r)), math.sin(math.radians(r))
        others = [
            [x, y, w, h, r],
            [x, y, w, h, r + 180],
            [x, y, h, w, r + 90],
            [x, y, w / 2, h, r],
            [x + w / 4 * cos, y - w / 4 * sin, w / 2, h, r],
            [x + w * cos, y - w * sin, w, h, r],
            [x, y, 0, h, r],
        ]
        found = detection.box_iou_rotated(engine.tensor(box[None]), engine.tensor(others))[0]
        assert np.abs(found.numpy() - [1, 1, 1, 0.5, 0.5, 0, 0]).max() < 2e-6


def test_upright_boxes_overlap_as_boxes_do() -> None:
    boxes = boxes_of(50)
    upright = np.concatenate([(boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2], np.zeros((50, 1))], 1)
    low, high = np.maximum(boxes[:, None, :2], boxes[:, :2]), np.minimum(boxes[:, None, 2:], boxes[:, 2:])
    common = np.prod(np.maximum(high - low, 0), -1)
    areas = np.prod(boxes[:, 2:] - boxes[:, :2], 1)
    found = detection.box_iou_rotated(engine.tensor(upright), engine.tensor(upright)).numpy()
    assert np.abs(found - common / (areas[:, None] + areas - common)).max() < 1e-6


@pytest.mark.parametrize("shapes", [((3, 4), (3, 5)), ((5,), (3, 5)), ((3, 5), (1, 3, 5))])
def test_what_box_iou_rotated_refuses(shapes) -> None:
    with pytest.raises(RuntimeError, match=r"boxes must have shape as Tensor\[N, 5\], got"):
        detection.box_iou_rotated(*(engine.zeros(shape) for shape in shapes))
