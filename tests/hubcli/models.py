"""A repository with a real model, for the tests of `hub load`, `hub run` and the JSON documents."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from tests.servers import Repository

WEIGHT = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], np.float32)

HUBCONF = '''import torch
from torch import nn

dependencies = ["torch"]


class Net(nn.Module):
    """y = x W^T."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(3, 2))

    def forward(self, x, scale=None):
        y = x @ self.weight.t()
        return y if scale is None else y * scale


class Several(Net):
    def forward(self, x):
        y = super().forward(x)
        return {"out": y, "aux": [y + 1, (y * 2).sum()]}


def net(url=None, *args, **kwargs):
    """A small network."""
    model = Net()
    if url is not None:
        model.load_state_dict(torch.hub.load_state_dict_from_url(url, progress=False))
    return model


def several():
    model = Several()
    model.load_state_dict({"weight": torch.ones(3, 2)})
    return model


def counted():
    """Has a buffer, and says whether it is trained and whether gradients are on."""
    model = net()
    model.register_buffer("steps", torch.zeros(4))
    model.forward = lambda x: (
        torch.tensor([float(model.training), float(torch.is_grad_enabled())]) + 0 * x.sum()
    )
    return model


def function():
    return lambda x: x + 1


def nothing():
    return {"a": 1}


def fails():
    model = net()
    model.forward = lambda x: {}[x]
    return model


def pair():
    return net(), {"add": function()}


def models():
    return {"a": net(), "b": several()}


def words():
    return lambda text: torch.tensor([float(len(word)) for word in text.split()])


def own_preset():
    model = net()
    model.pretrained_cfg = {"input_size": (3, 16, 16), "mean": [1, 1, 1], "std": [0.5, 0.5, 0.5], "crop_pct": 0.8}
    model.forward = lambda x: x.mean()
    return model
'''


@dataclass(frozen=True)
class Model:
    """The repository `o/m` at `v1`, and its weight file by name."""

    repository: Repository
    folder: Path
    weights: str
    url: str

    @classmethod
    def create(cls, root: Path, url: str, hubconf: str = HUBCONF) -> Model:
        """Below `root`: `served/o/m.git` and `files/net-<hash>.safetensors`, served at `url`."""
        files = root / "files"
        files.mkdir(exist_ok=True)
        save_file({"weight": WEIGHT}, files / "net.safetensors")
        digest = hashlib.sha256((files / "net.safetensors").read_bytes()).hexdigest()
        name = f"net-{digest[:8]}.safetensors"
        (files / "net.safetensors").rename(files / name)
        repository = Repository.create(root / "served", "o/m")
        repository.commit({"hubconf.py": hubconf}, tag="v1")
        return cls(repository, repository.work, name, f"{url}/{name}")
