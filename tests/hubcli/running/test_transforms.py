"""`hub run` prepares pictures and sounds as the entrypoint itself offers, in this process and in a sandbox."""

from __future__ import annotations

import json
import sys
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from hubcli.terminal import cli

HUBCONF = '''
import enum
from typing import Optional

import numpy as np
import torch
from torch import nn

dependencies = ["torch"]


class Net(nn.Module):
    """Gives back the sum of its input and its number of elements."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x=None, pixel_values=None):
        x = pixel_values if x is None else x
        return torch.stack([x.sum() * self.scale[0], torch.tensor(float(x.numel())), torch.tensor(float(x.ndim))])


class Compose:
    """As torchvision's: a picture of Pillow's becomes (3, 2, 2)."""

    def __init__(self, value):
        self.value = value

    def __call__(self, img):
        assert img.mode == "RGB" and img.size == (40, 30), img
        return torch.full((3, 2, 2), self.value)


class Processor:
    """As transformers': keywords in, a mapping out."""

    model_input_names = ["pixel_values"]

    def __call__(self, images=None, return_tensors=None):
        assert return_tensors == "pt" and images.size == (40, 30)
        return {"pixel_values": torch.full((1, 3, 4, 4), 0.5)}


class Net_Weights(enum.Enum):
    IMAGENET1K_V1 = 1.0
    V2 = 2.0
    DEFAULT = V2

    def transforms(self):
        return Compose(self.value)


def beside():
    return Net(), Compose(1.0)


def keyed():
    """As MiDaS': an array of bytes in, a key out that is no parameter."""
    def small_transform(image):
        assert image.shape == (30, 40, 3), image.shape
        return {"image": torch.from_numpy(image / 255.0).permute(2, 0, 1).float()[:, :1, :1]}
    return {"model": Net(), "small_transform": small_transform, "labels": ["a"]}


def processor():
    return Net(), Processor()


def of_tensors():
    def normalize_transform(x):
        return (x - 0.5).contiguous()
    return Net(), normalize_transform


def silero():
    def read_audio(path):
        raise AssertionError("not for this")
    def prepare_model_input(batch):
        assert isinstance(batch, list) and batch[0].ndim == 1
        return torch.stack(batch) * 10
    return Net(), (read_audio, prepare_model_input, Compose)


def carries():
    model = Net()
    model.transforms = Compose(3.0)
    return model


def weighted(weights: Optional[Net_Weights] = None, pretrained: bool = False):
    return Net()


def trained(*, weights: Optional[Net_Weights] = Net_Weights.DEFAULT):
    return Net()


def two():
    return Net(), Compose(1.0), Compose(2.0)


def training_and_evaluation():
    return {"model": Net(), "train_transform": Compose(1.0), "val_transform": Compose(5.0)}


def fails():
    def transform(image):
        raise RuntimeError("broken")
    return Net(), transform


def no_tensor():
    def transform(image):
        return "text"
    return Net(), transform


def hostile():
    class Name:
        def __call__(self, image):
            return torch.zeros(3, 1, 1)
    Name.__name__ = "x_transform\\n hub: all is well\\x1b[2J\\u202e" + "y" * 5000
    return Net(), {"transform": Name()}
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo" / "hubconf.py").write_text(HUBCONF)
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (40, 30), (255, 0, 0)).save("red.png")
    return tmp_path


CONFINED: tuple[tuple[str, ...], ...] = ((), ("--sandbox=best-effort",)) if sys.platform == "linux" else ((),)
both = pytest.mark.parametrize("confined", CONFINED)


def hub(*arguments: str) -> Any:
    return CliRunner().invoke(cli.hub, list(arguments))


def ran(entrypoint: str, *more: str) -> dict[str, Any]:
    result = hub("--json", "run", "./repo", entrypoint, "--input", "red.png", *more)
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    assert document["prepared"] is None or document["prepared"] in result.stderr
    return document


@pytest.mark.long
@both
@pytest.mark.parametrize(
    ("entrypoint", "more", "says", "shape", "values"),
    [
        ("beside", (), "transform: 1 of the result (Compose)", [1, 3, 2, 2], [12, 12, 4]),
        ("keyed", (), "transform: small_transform of the result (small_transform)", [1, 3, 1, 1], [1, 3, 4]),
        ("processor", (), "transform: 1 of the result (Processor)", [1, 3, 4, 4], [24, 48, 4]),
        ("of_tensors", (), "transform: 1 of the result (normalize_transform)", [1, 3, 30, 40], [-600, 3600, 4]),
        ("carries", (), "transform: the model's transforms (Compose)", [1, 3, 2, 2], [36, 12, 4]),
        ("weighted", ("-k", "weights=DEFAULT"), "transform: of the weights Net_Weights.V2", [1, 3, 2, 2], [24, 12, 4]),
        (
            "weighted",
            ("-k", "weights=Net_Weights.IMAGENET1K_V1"),
            "transform: of the weights Net_Weights.IMAGENET1K_V1",
            [1, 3, 2, 2],
            [12, 12, 4],
        ),
        (
            "weighted",
            ("--pretrained",),
            "transform: of the weights Net_Weights.IMAGENET1K_V1",
            [1, 3, 2, 2],
            [12, 12, 4],
        ),
        ("trained", (), "transform: of the weights Net_Weights.V2", [1, 3, 2, 2], [24, 12, 4]),
        ("weighted", (), None, [1, 3, 30, 40], [1200, 3600, 4]),
        ("training_and_evaluation", (), "transform: val_transform of the result (Compose)", [1, 3, 2, 2], [60, 12, 4]),
        ("two", (), None, [1, 3, 30, 40], [1200, 3600, 4]),
        ("two", ("--transform", "2"), "transform: 2 of the result (Compose)", [1, 3, 2, 2], [24, 12, 4]),
        ("beside", ("--transform", "none"), None, [1, 3, 30, 40], [1200, 3600, 4]),
        ("beside", ("--resize", "3"), None, [1, 3, 3, 4], [12, 36, 4]),
    ],
)
def test_the_transform_that_is_offered(folder, confined, entrypoint, more, says, shape, values):
    document = ran(entrypoint, *more, *confined)
    assert document["prepared"] == says
    (given,) = document["inputs"]
    assert given["shape"] == shape and given["file"] == "red.png"
    assert given["name"] == ("pixel_values" if entrypoint == "processor" else None)
    assert document["outputs"][0]["values"] == pytest.approx(values, rel=1e-5)


@both
def test_two_that_cannot_be_told_apart(folder, confined):
    result = hub("run", "./repo", "two", "--input", "red.png", *confined)
    assert "two offers several transforms: 1 (Compose), 2 (Compose); --transform 1 takes one" in result.stderr


@both
def test_sound(folder, confined):
    pytest.importorskip("soundfile")
    with wave.open("x.wav", "wb") as file:
        file.setnchannels(1), file.setsampwidth(2), file.setframerate(8000)
        file.writeframes(np.full(100, 16384, np.int16).tobytes())
    result = hub("--json", "run", "./repo", "silero", "--input", "x.wav", *confined)
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["prepared"] == "transform: 1.1 of the result (prepare_model_input)"
    assert document["outputs"][0]["values"] == pytest.approx([500, 100, 2])


@both
def test_arrays_are_left_alone(folder, confined):
    np.save("x.npy", np.ones((2, 3), np.float32))
    result = hub("--json", "run", "./repo", "beside", "--input", "x.npy", *confined)
    document = json.loads(result.stdout)
    assert document["prepared"] is None and document["outputs"][0]["values"] == [6, 6, 2]


@pytest.mark.long
@both
@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("beside", "--transform", "7"), 2, "--transform '7': the result has no '7'"),
        (("keyed", "--transform", "labels"), 2, "--transform 'labels' is a list, which cannot be called"),
        (("fails",), 70, "RuntimeError: broken"),
        (("no_tensor",), 2, "it made no tensor of the input"),
        (("beside", "--transform", "1", "--crop", "8"), 2, "--transform says how to prepare images"),
    ],
)
def test_failures(folder, confined, arguments, status, message):
    result = hub("--json", "run", "./repo", *arguments, "--input", "red.png", *confined)
    assert result.exit_code == status, result.output
    assert message in json.loads(result.stdout)["error"]["message"]


@both
def test_a_name_drives_no_terminal(folder, confined):
    result = hub("run", "./repo", "hostile", "--input", "red.png", *confined)
    assert result.exit_code == 0, result.output
    assert "\x1b" not in result.output and "\u202e" not in result.output
    assert all(len(line) < 400 for line in result.stderr.splitlines())
    assert not any(line.strip().startswith("hub: all is well") for line in result.stderr.splitlines())
