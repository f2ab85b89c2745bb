"""`SummaryWriter`: values of a training as event files, by the writer of the package tensorboard."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.plugins.projector.projector_config_pb2 import ProjectorConfig
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from engine.utils.tensorboard import summary
from engine.utils.tensorboard._convert_np import make_np
from engine.utils.tensorboard._embedding import (
    get_embedding_info,
    make_mat,
    make_sprite,
    make_tsv,
    text_of,
    write_pbtxt,
)
from engine.utils.tensorboard._utils import figure_to_image

__all__ = ["FileWriter", "SummaryWriter"]


class FileWriter:
    """The event file in a folder."""

    def __init__(self, log_dir: Any, max_queue: int = 10, flush_secs: int = 120, filename_suffix: str = "") -> None:
        self.event_writer = EventFileWriter(str(log_dir), max_queue, flush_secs, filename_suffix)

    def get_logdir(self) -> str:
        """The folder."""
        return str(self.event_writer.get_logdir())

    def add_event(self, event: Any, step: Any = None, walltime: float | None = None) -> None:
        """An Event at a step and a time, by default now."""
        event.wall_time = time.time() if walltime is None else walltime
        if step is not None:
            event.step = int(step)
        self.event_writer.add_event(event)

    def add_summary(self, summary: Any, global_step: Any = None, walltime: float | None = None) -> None:
        """A Summary at a step."""
        self.add_event(Event(summary=summary), global_step, walltime)

    def add_graph(self, graph_profile: Any, walltime: float | None = None) -> None:
        """A GraphDef, or a pair of it and a StepStats that is not written."""
        graph = graph_profile[0] if isinstance(graph_profile, tuple) else graph_profile
        self.add_event(Event(graph_def=graph.SerializeToString()), None, walltime)

    def flush(self) -> None:
        """Write what is waiting."""
        self.event_writer.flush()

    def close(self) -> None:
        """Write what is waiting and end."""
        self.event_writer.close()


def _bins() -> list[float]:
    """Edges of buckets that grow by a tenth from 1e-12 to 1e20 on both sides of 0, tensorboard's own."""
    found, edge = [], 1e-12
    while edge < 1e20:
        found.append(edge)
        edge *= 1.1
    return [-v for v in reversed(found)] + [0.0] + found


class SummaryWriter:
    """Writes values of a training to `log_dir`, by default runs/<time>_<host><comment>."""

    def __init__(
        self,
        log_dir: Any = None,
        comment: str = "",
        purge_step: Any = None,
        max_queue: int = 10,
        flush_secs: int = 120,
        filename_suffix: str = "",
    ) -> None:
        if not log_dir:
            log_dir = os.path.join("runs", time.strftime("%b%d_%H-%M-%S") + "_" + platform.node() + comment)
        self.log_dir = str(log_dir)
        self.purge_step = purge_step
        self._options = (max_queue, flush_secs, filename_suffix)
        self.file_writer: FileWriter | None = None
        self.all_writers: dict[str, FileWriter] | None = None
        self._projector_config: Any = None
        self.default_bins = _bins()
        self._get_file_writer()

    def _get_file_writer(self) -> FileWriter:
        """The writer of the folder; after close a new one, as in torch."""
        if self.file_writer is None or self.all_writers is None:
            self.file_writer = FileWriter(self.log_dir, *self._options)
            self.all_writers = {self.file_writer.get_logdir(): self.file_writer}
            if self.purge_step is not None:
                step, self.purge_step = self.purge_step, None
                self.file_writer.add_event(Event(step=step, file_version="brain.Event:2"), step)
                self.file_writer.add_event(Event(step=step, session_log=SessionLog(status=SessionLog.START)), step)
        return self.file_writer

    def _add(self, found: Any, step: Any, walltime: Any) -> None:
        self._get_file_writer().add_summary(found, step, walltime)

    def get_logdir(self) -> str:
        """The folder."""
        return self.log_dir

    def add_hparams(
        self,
        hparam_dict: Mapping[str, Any],
        metric_dict: Mapping[str, Any],
        hparam_domain_discrete: Any = None,
        run_name: str | None = None,
        global_step: Any = None,
    ) -> None:
        """Hyperparameters and what came of them, in a folder of its own below this one."""
        summaries = summary.hparams(hparam_dict, metric_dict, hparam_domain_discrete)
        folder = os.path.join(self._get_file_writer().get_logdir(), run_name or str(time.time()))
        with SummaryWriter(log_dir=folder) as writer:
            for found in summaries:
                writer._add(found, None, None)
            for name, value in metric_dict.items():
                writer.add_scalar(name, value, global_step)

    def add_scalar(
        self,
        tag: str,
        scalar_value: Any,
        global_step: Any = None,
        walltime: float | None = None,
        new_style: bool = False,
        double_precision: bool = False,
    ) -> None:
        """A number at a step."""
        found = summary.scalar(tag, scalar_value, new_style=new_style, double_precision=double_precision)
        self._add(found, global_step, walltime)

    def add_scalars(
        self, main_tag: str, tag_scalar_dict: Mapping[str, Any], global_step: Any = None, walltime: float | None = None
    ) -> None:
        """Several numbers in one chart, each in a file of its own folder."""
        walltime = time.time() if walltime is None else walltime
        base = self._get_file_writer().get_logdir()
        assert self.all_writers is not None
        for tag, number in tag_scalar_dict.items():
            folder = os.path.join(base, main_tag.replace("/", "_") + "_" + tag)
            if folder not in self.all_writers:
                self.all_writers[folder] = FileWriter(folder, *self._options)
            self.all_writers[folder].add_summary(summary.scalar(main_tag, number), global_step, walltime)

    def add_tensor(self, tag: str, tensor: Any, global_step: Any = None, walltime: float | None = None) -> None:
        """A tensor with all its elements."""
        self._add(summary.tensor_proto(tag, tensor), global_step, walltime)

    def add_histogram(
        self,
        tag: str,
        values: Any,
        global_step: Any = None,
        bins: Any = "tensorflow",
        walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:
        """Add a histogram of values.  ValueError where there are none."""
        if isinstance(bins, str) and bins == "tensorflow":
            bins = self.default_bins
        self._add(summary.histogram(tag, values, bins, max_bins), global_step, walltime)

    def add_histogram_raw(
        self,
        tag: str,
        min: Any,
        max: Any,
        num: Any,
        sum: Any,
        sum_squares: Any,
        bucket_limits: Any,
        bucket_counts: Any,
        global_step: Any = None,
        walltime: float | None = None,
    ) -> None:
        """A histogram whose buckets are there already.  ValueError where limits and counts differ in number."""
        if len(bucket_limits) != len(bucket_counts):
            raise ValueError("len(bucket_limits) != len(bucket_counts), see the document.")
        found = summary.histogram_raw(tag, min, max, num, sum, sum_squares, bucket_limits, bucket_counts)
        self._add(found, global_step, walltime)

    def add_image(
        self,
        tag: str,
        img_tensor: Any,
        global_step: Any = None,
        walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:
        """An image: bytes, or floats 0 to 1; needs Pillow."""
        self._add(summary.image(tag, img_tensor, dataformats=dataformats), global_step, walltime)

    def add_images(
        self,
        tag: str,
        img_tensor: Any,
        global_step: Any = None,
        walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:
        """A batch of images as a grid: bytes, or floats 0 to 1; needs Pillow."""
        self._add(summary.image(tag, img_tensor, dataformats=dataformats), global_step, walltime)

    def add_image_with_boxes(
        self,
        tag: str,
        img_tensor: Any,
        box_tensor: Any,
        global_step: Any = None,
        walltime: float | None = None,
        rescale: float = 1,
        dataformats: str = "CHW",
        labels: Any = None,
    ) -> None:
        """An image with boxes (n, 4) of x and y at the top left and the bottom right, with labels (n)."""
        if isinstance(labels, str):
            labels = [labels]
        if labels is not None and len(labels) != make_np(box_tensor).shape[0]:
            labels = None
        found = summary.image_boxes(tag, img_tensor, box_tensor, rescale, dataformats, labels)
        self._add(found, global_step, walltime)

    def add_figure(
        self, tag: str, figure: Any, global_step: Any = None, close: bool = True, walltime: float | None = None
    ) -> None:
        """A figure of matplotlib, or a list of them as a grid."""
        layout = "NCHW" if isinstance(figure, list) else "CHW"
        self.add_image(tag, figure_to_image(figure, close), global_step, walltime, dataformats=layout)

    def add_video(
        self, tag: str, vid_tensor: Any, global_step: Any = None, fps: float = 4, walltime: float | None = None
    ) -> None:
        """Videos (n, t, C, H, W) side by side as a moving GIF; needs Pillow."""
        self._add(summary.video(tag, vid_tensor, fps), global_step, walltime)

    def add_audio(
        self,
        tag: str,
        snd_tensor: Any,
        global_step: Any = None,
        sample_rate: int = 44100,
        walltime: float | None = None,
    ) -> None:
        """A sound (1, L) of -1 to 1."""
        self._add(summary.audio(tag, snd_tensor, sample_rate=sample_rate), global_step, walltime)

    def add_text(self, tag: str, text_string: str, global_step: Any = None, walltime: float | None = None) -> None:
        """A text, in Markdown."""
        self._add(summary.text(tag, text_string), global_step, walltime)

    def add_graph(
        self, model: Any, input_to_model: Any = None, verbose: bool = False, use_strict_trace: bool = True
    ) -> None:
        """The calls that a module makes with an example of its input, as a graph."""
        from engine.utils.tensorboard._pytorch_graph import graph  # jit.trace weighs: only who asks for it pays

        self._get_file_writer().add_graph(graph(model, input_to_model, verbose, use_strict_trace))

    @staticmethod
    def _encode(rawstr: str) -> str:
        """A text as a name of a folder: other characters than letters and digits by their number."""
        return "".join(c if c.isascii() and c.isalnum() else "".join(f"%{b:02x}" for b in c.encode()) for c in rawstr)

    def add_embedding(
        self,
        mat: Any,
        metadata: Any = None,
        label_img: Any = None,
        global_step: Any = None,
        tag: str = "default",
        metadata_header: Any = None,
    ) -> None:
        """Vectors (n, d) with labels (n) and images (n, C, H, H) for the projector; as many of each."""
        vectors = make_np(mat)
        step = 0 if global_step is None else global_step
        subdir = f"{str(step).zfill(5)}/{self._encode(tag)}"
        for name, given in (("labels", metadata), ("images", label_img)):
            if given is not None and len(given) != vectors.shape[0]:
                raise AssertionError(f"#{name} should equal with #data points")
        if vectors.ndim != 2:
            raise AssertionError("mat should be 2D, where mat.size(0) is the number of data points")
        base = Path(self._get_file_writer().get_logdir())
        folder = base / subdir
        folder.mkdir(parents=True, exist_ok=True)
        if metadata is not None:
            make_tsv(metadata, folder, metadata_header)
        if label_img is not None:
            make_sprite(label_img, folder)
        make_mat(vectors.tolist(), folder)
        if self._projector_config is None:
            self._projector_config = ProjectorConfig()
        info = get_embedding_info(metadata, label_img, subdir, step, tag)
        self._projector_config.embeddings.extend([info])
        write_pbtxt(base, text_of(self._projector_config))

    def add_pr_curve(
        self,
        tag: str,
        labels: Any,
        predictions: Any,
        global_step: Any = None,
        num_thresholds: int = 127,
        weights: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Precision and recall of labels (n) of 0 and 1 and predictions (n) of 0 to 1."""
        self._add(summary.pr_curve(tag, labels, predictions, num_thresholds, weights), global_step, walltime)

    def add_pr_curve_raw(
        self,
        tag: str,
        true_positive_counts: Any,
        false_positive_counts: Any,
        true_negative_counts: Any,
        false_negative_counts: Any,
        precision: Any,
        recall: Any,
        global_step: Any = None,
        num_thresholds: int = 127,
        weights: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Precision and recall whose counts are there already, one for each threshold."""
        found = summary.pr_curve_raw(
            tag,
            true_positive_counts,
            false_positive_counts,
            true_negative_counts,
            false_negative_counts,
            precision,
            recall,
            num_thresholds,
            weights,
        )
        self._add(found, global_step, walltime)

    def add_custom_scalars_multilinechart(self, tags: Any, category: str = "default", title: str = "untitled") -> None:
        """Scalars in one chart."""
        self.add_custom_scalars({category: {title: ("Multiline", tags)}})

    def add_custom_scalars_marginchart(self, tags: Any, category: str = "default", title: str = "untitled") -> None:
        """A scalar between two others: tags of the value, the lower and the upper bound."""
        if len(tags) != 3:
            raise AssertionError(f"a margin chart has three tags: value, lower and upper bound, got {len(tags)}")
        self.add_custom_scalars({category: {title: ("Margin", tags)}})

    def add_custom_scalars(self, layout: Mapping[str, Any]) -> None:
        """Add the layout of charts with several scalars: category -> title -> ("Multiline" or "Margin", tags)."""
        self._add(summary.custom_scalars(layout), None, None)

    def add_mesh(
        self,
        tag: str,
        vertices: Any,
        colors: Any = None,
        faces: Any = None,
        config_dict: Any = None,
        global_step: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Points (B, n, 3) with colors (B, n, 3), and triangles (B, m, 3) between them."""
        self._add(summary.mesh(tag, vertices, colors, faces, config_dict), global_step, walltime)

    def flush(self) -> None:
        """Write what is waiting."""
        for writer in (self.all_writers or {}).values():
            writer.flush()

    def close(self) -> None:
        """Write what is waiting and end."""
        for writer in (self.all_writers or {}).values():
            writer.close()
        self.file_writer = self.all_writers = None

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        if name == "add_onnx_graph":
            raise NotImplementedError(f"torch.utils.tensorboard.SummaryWriter.{name} is not supported: use add_graph")
        raise AttributeError(f"'SummaryWriter' object has no attribute '{name}'")
