"""Note [Meta tensors]: shapes and dtypes without values."""

from __future__ import annotations

import pytest

import engine
from engine import nn


def test_a_tensor_takes_no_memory() -> None:
    x = engine.empty(1_000_000, 1_000_000, device="meta")
    assert x.is_meta and x.device == engine.device("meta") and x.stride() == (1_000_000, 1)
    y = (x + 1).half() * x
    assert y.shape == x.shape and y.dtype == engine.float32 and y.is_meta
    assert repr(x[:2, 0]) == "tensor(..., device='meta', size=(2,))"


def test_shapes_dtypes_and_errors_are_those_of_the_cpu() -> None:
    a, b = engine.ones(2, 3, device="meta"), engine.ones(3, 4, dtype=engine.float32, device="meta")
    assert (a @ b).shape == (2, 4)
    assert a.sum(0).shape == (3,) and (a > 0).dtype == engine.bool
    assert engine.cat([a, a], 1).shape == (2, 6) and a.transpose(0, 1).reshape(6).shape == (6,)
    with pytest.raises(RuntimeError, match="must match"):
        a + engine.ones(2, 4, device="meta")


def test_modules_are_built_in_the_block_and_filled_later() -> None:
    with engine.device("meta"):
        layer = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7))
        assert engine.arange(3).is_meta and engine.tensor([1.0]).is_meta
        with engine.device("cpu"):
            assert not engine.ones(1).is_meta
    assert not engine.ones(1).is_meta
    assert all(p.is_meta for p in layer.parameters()) and layer[1].running_mean.is_meta
    assert layer(engine.ones(2, 5, device="meta")).shape == (2, 7)
    layer[0].load_state_dict({"weight": engine.ones(7, 5), "bias": engine.zeros(7)}, assign=True)
    assert layer[0](engine.ones(1, 5)).tolist() == [[5.0] * 7]
    assert layer.to_empty(device="cpu")[1].weight.device.type == "cpu"


def test_a_device_is_a_context_and_no_decorator() -> None:
    """As in torch; a name bound to a device is no entrypoint of a hub repository."""
    assert not callable(engine.device("meta"))


def test_there_are_no_values() -> None:
    x = engine.zeros(2, device="meta")
    with pytest.raises(RuntimeError, match="cannot be called on meta tensors"):
        x[0].item()
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor"):
        x.cpu()
    x.fill_(3)
    x[0] = 1  # lost
    assert x.is_meta


def test_checkpoints_load_onto_meta(tmp_path) -> None:
    engine.save({"a": engine.ones(2, 3)}, tmp_path / "x.pt")
    found = engine.load(tmp_path / "x.pt", map_location="meta")["a"]
    assert found.is_meta and found.shape == (2, 3)


def test_storages_map_files(tmp_path) -> None:
    path = tmp_path / "bytes"
    path.write_bytes(bytes(range(16)))
    storage = engine.UntypedStorage.from_file(str(path), nbytes=16)
    part = engine.asarray(storage[4:12], dtype=engine.uint8)
    assert part.tolist() == list(range(4, 12)) and part.view(engine.int32).shape == (2,)
    part.fill_(0)
    assert path.read_bytes() == bytes(range(16))
    shared = engine.UntypedStorage.from_file(str(path), shared=True, nbytes=16)
    shared[3] = 77
    assert path.read_bytes()[3] == 77
