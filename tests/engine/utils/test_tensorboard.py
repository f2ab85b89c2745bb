"""`SummaryWriter`: event files that the package tensorboard reads back; sums and counts are PyTorch's."""

from __future__ import annotations

import io
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine

pytest.importorskip("tensorboard", reason="the extra tensorboard is not installed")

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from engine.utils.tensorboard import SummaryWriter, summary
from engine.utils.tensorboard._convert_np import make_np
from engine.utils.tensorboard._utils import _prepare_video, convert_to_HWC, make_grid


def read(folder: Path) -> Any:
    return EventAccumulator(str(folder), size_guidance={n: 0 for n in ("scalars", "images", "tensors")}).Reload()


def test_scalars(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path, filename_suffix=".mine") as writer:
        for step in range(3):
            writer.add_scalar("loss", engine.tensor(1.0 / (step + 1)), step, walltime=5.0)
        writer.add_scalar("new", 2.5, 7, new_style=True, double_precision=True)
        writer.add_scalars("both", {"a": 1, "b": np.float32(2)}, 1)
    assert writer.file_writer is None and next(tmp_path.glob("events*")).name.endswith(".mine")
    found = read(tmp_path)
    assert [(e.step, e.value, e.wall_time) for e in found.Scalars("loss")] == [
        (0, 1.0, 5.0),
        (1, 0.5, 5.0),
        (2, pytest.approx(1 / 3), 5.0),
    ]
    assert found.Tensors("new")[0].tensor_proto.double_val == [2.5]
    assert read(tmp_path / "both_b").Scalars("both")[0].value == 2


def test_a_closed_writer_begins_a_new_file(tmp_path: Path) -> None:
    writer = SummaryWriter(tmp_path)
    writer.close()
    writer.add_text("note", "hello")
    writer.close()
    assert read(tmp_path).Tensors("note/text_summary")[0].tensor_proto.string_val == [b"hello"]


def test_purged_steps_are_declared(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path, purge_step=4) as writer:
        writer.add_scalar("x", 1.0, 4)
    assert read(tmp_path).Scalars("x")[0].step == 4


def test_histograms() -> None:
    values = np.array([0.0, 0.5, 0.5, 2.0])
    found = summary.make_histogram(values, np.array([-1.0, 0.0, 1.0, 2.0, 3.0]))
    assert (found.min, found.max, found.num, found.sum, found.sum_squares) == (0, 2, 4, 3, 4.5)
    assert list(found.bucket) == [0, 3, 0, 1] and list(found.bucket_limit) == [0, 1, 2, 3]
    fewer = summary.make_histogram(np.arange(10.0), 10, max_bins=5)
    assert list(fewer.bucket) == [0, 2, 2, 2, 2, 2]
    assert list(fewer.bucket_limit) == pytest.approx([0, 1.8, 3.6, 5.4, 7.2, 9])
    with pytest.raises(ValueError, match="no element"):
        summary.histogram("x", np.empty(0), "auto")
    with pytest.raises(NotImplementedError, match="list"):
        summary.histogram("x", [1.0, 2.0], "auto")


def test_histograms_are_written(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        assert len(writer.default_bins) == 1549 and writer.default_bins[774] == 0
        writer.add_histogram("h", engine.arange(5), 3)
        writer.add_histogram_raw("raw", 0, 1, 2, 1, 1, [0.5, 1.0], engine.ones(2), 3)
        with pytest.raises(ValueError, match="bucket_limits"):
            writer.add_histogram_raw("raw", 0, 1, 2, 1, 1, [0.5], [1, 1])
    found = EventAccumulator(str(tmp_path)).Reload().Histograms("h")[0]
    assert found.step == 3 and found.histogram_value.num == 5 and sum(found.histogram_value.bucket) == 5


def test_layouts_of_images() -> None:
    assert convert_to_HWC(np.ones((3, 32, 16)), "chw").shape == (32, 16, 3)
    assert convert_to_HWC(np.ones((16, 3, 32, 32)), "nchw").shape == (64, 256, 3)
    assert convert_to_HWC(np.ones((32, 32)), "hw").shape == (32, 32, 3)
    batch = np.arange(5.0).reshape(5, 1, 1, 1)
    assert make_grid(batch, 3)[0].tolist() == [[0, 1, 2], [3, 4, 0]]
    for tensor, layout in ((np.ones((2, 2)), "CHW"), (np.ones((2, 2)), "HH")):
        with pytest.raises(AssertionError):
            convert_to_HWC(tensor, layout)
    videos = np.random.default_rng(0).random((5, 3, 1, 4, 6))
    side = _prepare_video(videos)
    assert side.shape == (3, 8, 24, 1) and side.sum() == pytest.approx(videos.sum())


def test_images_sounds_and_videos(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="the extra image is not installed")
    pixels = np.zeros((3, 8, 6), np.uint8)
    pixels[0, 2, 3] = 200
    with SummaryWriter(tmp_path) as writer:
        writer.add_image("one", pixels, 1)
        writer.add_image("floats", engine.full((1, 4, 4), 0.5), 1)
        writer.add_images("many", np.zeros((9, 3, 4, 4)), 1)
        writer.add_image_with_boxes("boxes", np.zeros((3, 64, 64)), np.array([[10, 10, 40, 40]]), 1, labels=["cat"])
        writer.add_video("film", np.random.default_rng(0).random((2, 3, 1, 8, 8)), 1)
        writer.add_audio("tone", np.array([0.0, 0.5, 2.0]), 1, sample_rate=8000)
    found = EventAccumulator(str(tmp_path)).Reload()

    def shown(tag: str) -> Any:
        return image.open(io.BytesIO(found.Images(tag)[0].encoded_image_string))

    assert shown("one").getpixel((3, 2)) == (200, 0, 0) and shown("one").size == (6, 8)
    assert shown("floats").getpixel((0, 0)) == (127, 127, 127)
    assert shown("many").size == (32, 8)
    assert shown("boxes").getpixel((10, 30)) == (255, 0, 0)
    assert shown("film").n_frames == 3
    sound = found.Audio("tone")[0]
    with wave.open(io.BytesIO(sound.encoded_audio_string)) as file:
        assert (file.getframerate(), file.getnframes()) == (8000, 3)
        assert np.frombuffer(file.readframes(3), "<i2").tolist() == [0, 16383, 32767]


def test_curves() -> None:
    labels, predictions = np.array([1, 0, 1, 1]), np.array([0.9, 0.6, 0.4, 1.0])
    found = summary.compute_curve(labels, predictions, 3)
    assert found[:4].tolist() == [[3, 2, 1], [1, 1, 0], [0, 0, 1], [0, 1, 2]]
    assert found[4].tolist() == pytest.approx([0.75, 2 / 3, 1.0]) and found[5].tolist() == pytest.approx(
        [1, 2 / 3, 1 / 3]
    )
    proto = summary.pr_curve("c", labels, predictions, 500)
    assert proto.value[0].metadata.plugin_data.plugin_name == "pr_curves"
    assert proto.value[0].tensor.tensor_shape.dim[1].size == 127


def test_hyperparameters(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        writer.add_hparams({"lr": 0.1, "bn": True, "name": "sgd"}, {"accuracy": 0.5}, run_name="first")
        with pytest.raises(TypeError, match="hparam_dict"):
            writer.add_hparams([1], {})  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="int, float, str, bool"):
            writer.add_hparams({"layers": [1, 2]}, {})
    found = read(tmp_path / "first")
    assert found.Scalars("accuracy")[0].value == 0.5
    assert "lr" in str(found.SummaryMetadata("_hparams_/experiment").plugin_data.content)


def test_embeddings(tmp_path: Path) -> None:
    pytest.importorskip("PIL", reason="the extra image is not installed")
    vectors = engine.tensor([[1.0, 2, 3], [5, 4, 1], [3, 7, 7]])
    with SummaryWriter(tmp_path) as writer:
        writer.add_embedding(vectors, ["a", "b\nc", "d"], engine.zeros(3, 3, 5, 5), 2, "my/tag")
        writer.add_embedding(vectors, [(1, "x"), (2, "y"), (3, "z")], metadata_header=["digit", "set"])
        with pytest.raises(AssertionError, match="labels"):
            writer.add_embedding(vectors, ["a"])
    folder = tmp_path / "00002" / "my%2ftag"
    assert (folder / "tensors.tsv").read_text() == "1.0\t2.0\t3.0\n5.0\t4.0\t1.0\n3.0\t7.0\t7.0\n"
    assert (folder / "metadata.tsv").read_text() == "a\nb c\nd\n" and (folder / "sprite.png").stat().st_size
    assert (tmp_path / "00000" / "default" / "metadata.tsv").read_text() == "digit\tset\n1\tx\n2\ty\n3\tz\n"
    config = (tmp_path / "projector_config.pbtxt").read_text()
    assert config.count("embeddings {") == 2 and 'tensor_path: "00002/my%2ftag/tensors.tsv"' in config


def test_charts_and_meshes(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        writer.add_custom_scalars_multilinechart(["x", "y"], "c", "t")
        writer.add_mesh("m", engine.ones(1, 3, 3), faces=engine.zeros(1, 2, 3))
        writer.add_tensor("t", engine.arange(3))
        with pytest.raises(AssertionError, match="three tags"):
            writer.add_custom_scalars_marginchart(["x"])
        with pytest.raises(NotImplementedError, match="add_graph"):
            writer.add_onnx_graph("x.onnx")
        with pytest.raises(AttributeError, match="add_nothing"):
            writer.add_nothing()
    assert {"m_VERTEX", "m_FACE", "t", "custom_scalars__config__"} <= set(read(tmp_path).Tags()["tensors"])


def test_graphs(tmp_path: Path) -> None:
    class Net(engine.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.l = engine.nn.Linear(3, 5)

        def forward(self, x: Any) -> Any:
            return self.l(x).relu()

    net = Net()
    with SummaryWriter(tmp_path) as writer:
        writer.add_graph(net, (engine.zeros(1, 3),))
        with pytest.raises(RuntimeError):
            writer.add_graph(net, engine.zeros(1, 9))
    nodes = {n.name: n for n in EventAccumulator(str(tmp_path)).Reload().Graph().node}
    assert net.training
    assert {"input/x", "Net/l/weight", "Net/l/bias", "output/0"} <= nodes.keys()
    linear = next(n for n in nodes.values() if n.op == "aten::linear")
    assert list(linear.input) == ["input/x", "Net/l/weight", "Net/l/bias"]


def test_arrays_of_values() -> None:
    for value in (1, 0.5, np.float16(1), np.int64(5), engine.ones(2), engine.ones(2, dtype=engine.bfloat16)):
        assert isinstance(make_np(value), np.ndarray)
