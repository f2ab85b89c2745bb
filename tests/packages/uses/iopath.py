"""Paths of iopath, and a checkpoint through them."""

import io
import tempfile

import torch
from iopath.common.file_io import PathManager

paths = PathManager()
with tempfile.TemporaryDirectory() as folder:
    value = {"a": torch.arange(5.0)}
    with paths.open(f"{folder}/x.pth", "wb") as file:
        torch.save(value, file)
    assert paths.exists(f"{folder}/x.pth") and paths.ls(folder) == ["x.pth"]
    with paths.open(f"{folder}/x.pth", "rb") as file:
        assert torch.equal(torch.load(io.BytesIO(file.read()))["a"], value["a"])
    paths.copy(f"{folder}/x.pth", f"{folder}/y.pth")
    assert paths.isfile(f"{folder}/y.pth")
