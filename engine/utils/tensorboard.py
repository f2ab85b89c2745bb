"""torch.utils.tensorboard: `SummaryWriter`, which writes event files by the package `tensorboard`.

Importing this module without that package raises ImportError, as in torch.  Scalars, histograms, texts, images, hyper-
parameters; graphs, embeddings, meshes, audio, video and curves raise NotImplementedError.
https://docs.pytorch.org/docs/2.13/tensorboard.html
"""

from __future__ import annotations

import io
import os
import platform
import time
from typing import Any

import numpy as np
import tensorboard  # noqa: F401  (torch's own error where it is missing)
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from engine.tensor import Tensor

__all__ = ["FileWriter", "SummaryWriter"]


def _array(value: Any) -> np.ndarray:
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)


class FileWriter:
    """The event file in a folder."""

    def __init__(self, log_dir: Any, max_queue: int = 10, flush_secs: int = 120, filename_suffix: str = "") -> None:
        self.event_writer = EventFileWriter(str(log_dir), max_queue, flush_secs, filename_suffix)

    def get_logdir(self) -> str:
        """The folder."""
        return str(self.event_writer.get_logdir())

    def add_summary(self, summary: Any, global_step: Any = None, walltime: float | None = None) -> None:
        """One Summary at a step."""
        event = Event(summary=summary)
        event.wall_time = time.time() if walltime is None else walltime
        if global_step is not None:
            event.step = int(global_step)
        self.event_writer.add_event(event)

    def flush(self) -> None:
        """Write what is waiting."""
        self.event_writer.flush()

    def close(self) -> None:
        """Write what is waiting and end."""
        self.event_writer.close()


class SummaryWriter:
    """Writes values of a training to `log_dir`, by default runs/<time>_<host><comment>."""

    def __init__(
        self, log_dir: Any = None, comment: str = "", purge_step: Any = None, max_queue: int = 10,
        flush_secs: int = 120, filename_suffix: str = "",
    ) -> None:  # fmt: skip
        if not log_dir:
            log_dir = os.path.join("runs", time.strftime("%b%d_%H-%M-%S") + "_" + platform.node() + comment)
        self.log_dir = str(log_dir)
        self._options = (max_queue, flush_secs, filename_suffix)
        self.file_writer: FileWriter | None = FileWriter(self.log_dir, *self._options)
        self._others: dict[str, FileWriter] = {}

    def _add(self, summary: Any, step: Any, walltime: Any, writer: FileWriter | None = None) -> None:
        if self.file_writer is None:  # after close: a new file, as in torch
            self.file_writer = FileWriter(self.log_dir, *self._options)
        (writer or self.file_writer).add_summary(summary, step, walltime)

    def get_logdir(self) -> str:
        """The folder."""
        return self.log_dir

    def add_scalar(
        self, tag: str, scalar_value: Any, global_step: Any = None, walltime: float | None = None,
        new_style: bool = False, double_precision: bool = False,
    ) -> None:  # fmt: skip
        """A number at a step."""
        value = Summary.Value(tag=tag, simple_value=float(_array(scalar_value).reshape(())))
        self._add(Summary(value=[value]), global_step, walltime)

    def add_scalars(
        self, main_tag: str, tag_scalar_dict: dict[str, Any], global_step: Any = None, walltime: float | None = None
    ) -> None:
        """Several numbers in one picture, each in a file of its own folder."""
        for tag, number in tag_scalar_dict.items():
            folder = os.path.join(self.log_dir, main_tag.replace("/", "_") + "_" + tag)
            if folder not in self._others:
                self._others[folder] = FileWriter(folder, *self._options)
            value = Summary.Value(tag=main_tag, simple_value=float(_array(number).reshape(())))
            self._add(Summary(value=[value]), global_step, walltime, self._others[folder])

    def add_histogram(
        self, tag: str, values: Any, global_step: Any = None, bins: Any = "tensorflow", walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:  # fmt: skip
        """How values spread.  ValueError where there are none."""
        array = _array(values).astype(np.float64).reshape(-1)
        if not array.size:
            raise ValueError("The input has no element.")
        if isinstance(bins, str) and bins == "tensorflow":
            ladder = 1e-12 * 1.1 ** np.arange(np.ceil(np.log(1e32) / np.log(1.1)))
            bins = np.concatenate([-ladder[::-1], [0.0], ladder])
        counts, limits = np.histogram(array, bins=bins)
        used = np.flatnonzero(counts)
        first, last = (max(int(used[0]) - 1, 0), int(used[-1]) + 1) if used.size else (0, 1)
        found = HistogramProto(
            min=array.min(), max=array.max(), num=array.size, sum=array.sum(), sum_squares=array.dot(array),
            bucket_limit=limits[first + 1 : last + 1].tolist(), bucket=counts[first:last].tolist(),
        )  # fmt: skip
        self._add(Summary(value=[Summary.Value(tag=tag, histo=found)]), global_step, walltime)

    def add_text(self, tag: str, text_string: str, global_step: Any = None, walltime: float | None = None) -> None:
        """A text, in Markdown."""
        meta = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
        shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])
        tensor = TensorProto(dtype="DT_STRING", string_val=[text_string.encode("utf-8")], tensor_shape=shape)
        value = Summary.Value(tag=tag + "/text_summary", metadata=meta, tensor=tensor)
        self._add(Summary(value=[value]), global_step, walltime)

    def add_image(
        self, tag: str, img_tensor: Any, global_step: Any = None, walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:  # fmt: skip
        """A picture: bytes, or floats 0 to 1; needs Pillow."""
        from PIL import Image

        array = _array(img_tensor)
        places = [dataformats.upper().index(c) for c in "HWC" if c in dataformats.upper()]
        array = array.transpose(places)
        if array.dtype != np.uint8:
            array = (array * 255).clip(0, 255).astype(np.uint8)
        if array.ndim == 2 or array.shape[2] == 1:
            array = np.repeat(array.reshape(*array.shape[:2], 1), 3, axis=2)
        file = io.BytesIO()
        Image.fromarray(array).save(file, format="PNG")
        height, width, depth = array.shape
        image = Summary.Image(height=height, width=width, colorspace=depth, encoded_image_string=file.getvalue())
        self._add(Summary(value=[Summary.Value(tag=tag, image=image)]), global_step, walltime)

    def flush(self) -> None:
        """Write what is waiting."""
        for writer in (self.file_writer, *self._others.values()):
            if writer is not None:
                writer.flush()

    def close(self) -> None:
        """Write what is waiting and end."""
        for writer in (self.file_writer, *self._others.values()):
            if writer is not None:
                writer.close()
        self.file_writer, self._others = None, {}

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("add_"):
            raise NotImplementedError(f"torch.utils.tensorboard.SummaryWriter.{name} is not supported")
        raise AttributeError(f"'SummaryWriter' object has no attribute '{name}'")
