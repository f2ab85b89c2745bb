"""Files of tensors of every dtype, in parts, and of whole models."""

import tempfile

import torch
from safetensors.torch import load, load_file, load_model, safe_open, save, save_file, save_model

tensors = {
    "float": torch.arange(12.0).reshape(3, 4),
    "half": torch.ones(3).half(),
    "bfloat": torch.ones(4).bfloat16(),
    "long": torch.arange(5),
    "bool": torch.tensor([True, False]),
    "none": torch.zeros(0, 3),
    "one": torch.tensor(2.5),
    "byte": torch.tensor([1, 255], dtype=torch.uint8),
    "double": torch.rand(2, 2, dtype=torch.float64),
}
with tempfile.TemporaryDirectory() as folder:
    path = f"{folder}/x.safetensors"
    save_file(tensors, path, metadata={"from": "here"})
    for found in (load_file(path), load(save(tensors))):
        assert found.keys() == tensors.keys()
        assert all(found[k].dtype == t.dtype and torch.equal(found[k], t) for k, t in tensors.items())
    with safe_open(path, framework="pt") as file:
        assert file.metadata() == {"from": "here"} and "float" in file.keys()  # noqa: SIM118
        assert torch.equal(file.get_slice("float")[1:, :2], tensors["float"][1:, :2])
    model, other = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    save_model(model, f"{folder}/model.safetensors")
    load_model(other, f"{folder}/model.safetensors")
    assert torch.equal(model.weight, other.weight)
