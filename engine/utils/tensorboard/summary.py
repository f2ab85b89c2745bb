"""The records that `SummaryWriter` writes, as the protobuf `Summary` of the package tensorboard: one function for each
kind."""

from __future__ import annotations

import io
import json
import wave
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.mesh import metadata as mesh_metadata
from tensorboard.plugins.mesh.plugin_data_pb2 import MeshPluginData
from tensorboard.plugins.pr_curve.plugin_data_pb2 import PrCurvePluginData
from tensorboard.util import tensor_util

from engine.utils.tensorboard._convert_np import make_np
from engine.utils.tensorboard._hparams import hparams
from engine.utils.tensorboard._utils import _prepare_video, convert_to_HWC, png

__all__ = [
    "audio",
    "compute_curve",
    "custom_scalars",
    "draw_boxes",
    "histogram",
    "histogram_raw",
    "hparams",
    "image",
    "image_boxes",
    "make_histogram",
    "make_image",
    "mesh",
    "pr_curve",
    "pr_curve_raw",
    "scalar",
    "tensor_proto",
    "text",
    "video",
]

_MOST_THRESHOLDS = 127


def _one(tag: str, **value: Any) -> Any:
    return Summary(value=[Summary.Value(tag=tag, **value)])


def _metadata(plugin: str, content: bytes = b"") -> Any:
    return SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name=plugin, content=content))


def _tensor(array: np.ndarray, kind: str, **values: Any) -> Any:
    shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=n) for n in array.shape])
    return TensorProto(dtype=kind, tensor_shape=shape, **values)


def scalar(
    name: str, tensor: Any, collections: Any = None, new_style: bool = False, double_precision: bool = False
) -> Any:
    """A number; for `new_style` as a tensor, of float64 if `double_precision`.  AssertionError for several elements."""
    array = make_np(tensor).squeeze()
    if array.ndim:
        raise AssertionError(
            f"Tensor should contain one element (0 dimensions). Was given size: {array.size} and "
            f"{array.ndim} dimensions."
        )
    number = float(array)
    if new_style:
        kind, values = ("DT_DOUBLE", "double_val") if double_precision else ("DT_FLOAT", "float_val")
        return _one(name, tensor=TensorProto(dtype=kind, **{values: [number]}), metadata=_metadata("scalars"))
    return _one(name, simple_value=number)


def tensor_proto(tag: str, tensor: Any) -> Any:
    """A tensor with all its elements."""
    array = make_np(tensor)
    return _one(tag, tensor=tensor_util.make_tensor_proto(array), metadata=_metadata("tensor"))


def histogram_raw(
    name: str, min: Any, max: Any, num: Any, sum: Any, sum_squares: Any, bucket_limits: Any, bucket_counts: Any
) -> Any:
    """A histogram whose buckets are there already: limits are their right edges."""
    found = HistogramProto(
        min=min,
        max=max,
        num=num,
        sum=sum,
        sum_squares=sum_squares,
        bucket_limit=_numbers(bucket_limits),
        bucket=_numbers(bucket_counts),
    )
    return _one(name, histo=found)


def _numbers(values: Any) -> list[float]:
    return [float(v) for v in values]


def histogram(name: str, values: Any, bins: Any, max_bins: int | None = None) -> Any:
    """Build the summary of a histogram of values.  ValueError where there are none."""
    return _one(name, histo=make_histogram(make_np(values).astype(float), bins, max_bins))


def make_histogram(values: np.ndarray, bins: Any, max_bins: int | None = None) -> Any:
    """The histogram of values (*) by numpy's `bins`, of at most about `max_bins` buckets."""
    if not values.size:
        raise ValueError("The input has no element.")
    values = values.reshape(-1)
    counts, limits = np.histogram(values, bins=bins)
    if max_bins is not None and counts.size > max_bins:
        step = counts.size // max_bins
        counts = np.add.reduceat(counts, np.arange(0, counts.size, step))
        limits = np.append(limits[:-1:step], limits[-1])
    used = np.flatnonzero(counts)
    if not used.size or limits.size == 0:
        raise ValueError("The histogram is empty, please file a bug report.")
    first, last = int(used[0]), int(used[-1])
    return HistogramProto(
        min=values.min(),
        max=values.max(),
        num=values.size,
        sum=values.sum(),
        sum_squares=values.dot(values),
        bucket_limit=limits[first : last + 2].tolist(),
        bucket=[0, *counts[first : last + 1].tolist()],
    )


def _calc_scale_factor(tensor: Any) -> int:
    """Return the factor that makes bytes of the elements: 1 for bytes, 255 for numbers of 0 to 1."""
    return 1 if make_np(tensor).dtype == np.uint8 else 255


def _bytes_of(tensor: np.ndarray) -> np.ndarray:
    scaled = tensor.astype(np.float32) * _calc_scale_factor(tensor)
    return scaled.clip(0, 255).astype(np.uint8)


def image(tag: str, tensor: Any, rescale: float = 1, dataformats: str = "NCHW") -> Any:
    """An image, or a batch as a grid: bytes, or floats 0 to 1; needs Pillow."""
    array = convert_to_HWC(make_np(tensor), dataformats)
    return _one(tag, image=make_image(_bytes_of(array), rescale=rescale))


def image_boxes(
    tag: str, tensor_image: Any, tensor_boxes: Any, rescale: float = 1, dataformats: str = "CHW", labels: Any = None
) -> Any:
    """An image with boxes (n, 4) of x and y at the top left and the bottom right, and their labels."""
    array = convert_to_HWC(make_np(tensor_image), dataformats)
    boxes = make_np(tensor_boxes)
    return _one(tag, image=make_image(_bytes_of(array), rescale=rescale, rois=boxes, labels=labels))


def draw_boxes(disp_image: Any, boxes: np.ndarray, labels: Sequence[str] | None = None) -> Any:
    """Boxes (n, 4), and labels over them, drawn into an image of Pillow."""
    from PIL import ImageDraw

    draw = ImageDraw.Draw(disp_image)
    for k, (left, top, right, bottom) in enumerate(boxes.tolist()):
        draw.rectangle((min(left, right), min(top, bottom), max(left, right), max(top, bottom)), outline="red", width=2)
        if labels is not None:
            place = draw.textbbox((left, max(top - 12, 0)), str(labels[k]))
            draw.rectangle(place, fill="red")
            draw.text((left, max(top - 12, 0)), str(labels[k]), fill="black")
    return disp_image


def make_image(tensor: np.ndarray, rescale: float = 1, rois: Any = None, labels: Any = None) -> Any:
    """The PNG of bytes (H, W, C), `rescale` times as large, with boxes `rois`."""
    from PIL import Image

    height, width, channels = tensor.shape
    canvas = Image.fromarray(tensor if channels > 1 else tensor[:, :, 0])
    if rois is not None:
        canvas = draw_boxes(canvas, rois, labels)
    size = int(width * rescale), int(height * rescale)
    if size != (width, height):
        canvas = canvas.resize(size)
    return Summary.Image(height=size[1], width=size[0], colorspace=channels, encoded_image_string=png(canvas))


def video(tag: str, tensor: Any, fps: float = 4) -> Any:
    """A batch of videos (n, t, C, H, W) side by side, bytes or floats 0 to 1, as a moving GIF; needs Pillow."""
    frames = _prepare_video(make_np(tensor))
    return _one(tag, image=make_video((frames * 255).clip(0, 255).astype(np.uint8), fps))


def make_video(tensor: np.ndarray, fps: float) -> Any:
    """The moving GIF of bytes (t, H, W, C)."""
    from PIL import Image

    _, height, width, channels = tensor.shape
    frames = [Image.fromarray(frame[:, :, 0] if channels == 1 else frame) for frame in tensor]
    file = io.BytesIO()
    frames[0].save(file, format="GIF", save_all=True, append_images=frames[1:], duration=round(1000 / fps), loop=0)
    return Summary.Image(height=height, width=width, colorspace=channels, encoded_image_string=file.getvalue())


def audio(tag: str, tensor: Any, sample_rate: int = 44100) -> Any:
    """A sound (1, L) or (L) of -1 to 1 as a WAV file of 16 bits.  AssertionError for more channels."""
    array = make_np(tensor)
    samples = array.squeeze()
    if samples.ndim != 1:
        raise AssertionError(f"input tensor should be 1 dimensional, got {array.shape}")
    whole = (samples.clip(-1, 1) * np.iinfo(np.int16).max).astype("<i2")
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(sample_rate)
        writer.writeframes(whole.tobytes())
    found = Summary.Audio(
        sample_rate=sample_rate,
        num_channels=1,
        length_frames=samples.size,
        encoded_audio_string=file.getvalue(),
        content_type="audio/wav",
    )
    return _one(tag, audio=found)


def text(tag: str, text: str) -> Any:
    """A text, in Markdown."""
    found = _tensor(np.empty(1), "DT_STRING", string_val=[text.encode("utf-8")])
    return _one(tag + "/text_summary", metadata=_metadata("text"), tensor=found)


def custom_scalars(layout: Mapping[str, Mapping[str, tuple[str, Sequence[str]]]]) -> Any:
    """Build the layout of charts with several scalars: category -> title -> ("Multiline" or "Margin", tags)."""
    categories = []
    for name, charts in layout.items():
        found = []
        for title, (kind, tags) in charts.items():
            if kind == "Margin":
                series = layout_pb2.MarginChartContent.Series(value=tags[0], lower=tags[1], upper=tags[2])
                found.append(layout_pb2.Chart(title=title, margin=layout_pb2.MarginChartContent(series=[series])))
            else:
                found.append(layout_pb2.Chart(title=title, multiline=layout_pb2.MultilineChartContent(tag=tags)))
        categories.append(layout_pb2.Category(title=name, chart=found))
    whole = layout_pb2.Layout(category=categories)
    content = _tensor(np.empty(()), "DT_STRING", string_val=[whole.SerializeToString()])
    return _one("custom_scalars__config__", metadata=_metadata("custom_scalars"), tensor=content)


def pr_curve_raw(
    tag: str,
    tp: Any,
    fp: Any,
    tn: Any,
    fn: Any,
    precision: Any,
    recall: Any,
    num_thresholds: int = 127,
    weights: Any = None,
) -> Any:
    """Precision and recall whose counts are there already, one for each threshold."""
    return _curve(tag, np.stack([make_np(np.asarray(x)) for x in (tp, fp, tn, fn, precision, recall)]), num_thresholds)


def pr_curve(tag: str, labels: Any, predictions: Any, num_thresholds: int = 127, weights: Any = None) -> Any:
    """Precision and recall of labels (n) of 0 and 1 and predictions (n) of 0 to 1 over thresholds."""
    count = min(num_thresholds, _MOST_THRESHOLDS)
    return _curve(tag, compute_curve(make_np(labels), make_np(predictions), count, weights), count)


def _curve(tag: str, data: np.ndarray, num_thresholds: int) -> Any:
    content = PrCurvePluginData(version=0, num_thresholds=min(num_thresholds, _MOST_THRESHOLDS)).SerializeToString()
    tensor = _tensor(data, "DT_FLOAT", float_val=data.reshape(-1).tolist())
    return _one(tag, metadata=_metadata("pr_curves", content), tensor=tensor)


def compute_curve(
    labels: np.ndarray, predictions: np.ndarray, num_thresholds: int | None = None, weights: Any = None
) -> np.ndarray:
    """Counts and ratios of what is over each threshold.

    labels (n), predictions (n), weights (n) or a number -> (6, num_thresholds): true and false positives, true and
    false negatives, precision, recall.
    """
    count = num_thresholds or _MOST_THRESHOLDS
    labels, predictions = labels.reshape(-1).astype(np.float64), predictions.reshape(-1).astype(np.float64)
    weights = np.broadcast_to(1.0 if weights is None else np.asarray(weights, np.float64).reshape(-1), labels.shape)
    place = np.floor(predictions * (count - 1)).astype(np.int64).clip(0, count - 1)
    right = np.bincount(place, labels * weights, count)
    wrong = np.bincount(place, (1.0 - labels) * weights, count)
    tp, fp = right[::-1].cumsum()[::-1], wrong[::-1].cumsum()[::-1]
    tn, fn = fp[0] - fp, tp[0] - tp
    least = 1e-7
    return np.stack([tp, fp, tn, fn, tp / np.maximum(least, tp + fp), tp / np.maximum(least, tp + fn)])


def mesh(
    tag: str,
    vertices: Any,
    colors: Any,
    faces: Any,
    config_dict: Any,
    display_name: str | None = None,
    description: str | None = None,
) -> Any:
    """Points (B, n, 3), their colors (B, n, 3) and triangles (B, m, 3) of a scene."""
    kinds = MeshPluginData.ContentType
    given = [(vertices, kinds.Value("VERTEX")), (faces, kinds.Value("FACE")), (colors, kinds.Value("COLOR"))]
    there = [(make_np(value), kind) for value, kind in given if value is not None]
    components = mesh_metadata.get_components_bitmask([kind for _, kind in there])
    config = json.dumps(config_dict, sort_keys=True) if config_dict is not None else "{}"
    values = []
    for array, kind in there:
        about = mesh_metadata.create_summary_metadata(
            tag, display_name, kind, components, list(array.shape), description, json_config=config
        )
        name = mesh_metadata.get_instance_name(tag, kind)
        found = tensor_util.make_tensor_proto(array.astype(np.int32 if kind == kinds.Value("FACE") else np.float32))
        values.append(Summary.Value(tag=name, tensor=found, metadata=about))
    return Summary(value=values)
