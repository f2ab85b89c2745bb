"""Tensors of 8-bit floats: read and written bit for bit, converted exactly, a clear error for everything else."""

from __future__ import annotations

import copy
import io
import json
import pickle
import struct

import ml_dtypes
import numpy as np
import pytest

import engine
from engine.encoded import float8
from engine.serialization import UnpicklingError, convert, load, read_arrays, save, save_safetensors
from engine.serialization.pickler import Global, Reduce

from ..serialization import forge

NAMES = sorted(float8.NAMES)
CODES = {
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e8m0fnu": "F8_E8M0",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
}
BYTES = bytes(range(256))  # every value there is


def all_of(name: str) -> float8.Float8Tensor:
    return float8.from_array(np.frombuffer(BYTES, float8.numpy_dtype(name)).reshape(16, 16))


def raw(tensor: object) -> bytes:
    return tensor.view(engine.uint8).numpy().tobytes()


def st(code: str) -> bytes:
    header = json.dumps({"w": {"dtype": code, "shape": [16, 16], "data_offsets": [0, 256]}}).encode()
    return forge.safetensors(header, BYTES)


def as_torch_saves(name: str) -> bytes:
    """`_rebuild_tensor_v3` on an UntypedStorage, whose count is of bytes."""
    on = forge.storage("0", 256, "UntypedStorage")
    v3 = Global("torch._utils", "_rebuild_tensor_v3")
    made = Reduce(v3, on, 0, (16, 16), (16, 1), False, forge.ORDERED, Global("torch", name))
    return forge.zipped(forge.pickled({"w": made}), {"0": BYTES})


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("content", [lambda n: st(CODES[n]), as_torch_saves], ids=["safetensors", "zip"])
def test_read_bit_for_bit(name, content):
    found = load(io.BytesIO(content(name)))["w"]
    assert type(found) is float8.Float8Tensor and found.dtype is getattr(engine, name)
    assert (tuple(found.shape), found.numel(), found.element_size(), found.stride()) == ((16, 16), 256, 1, (16, 1))
    assert raw(found) == BYTES and str(found.device) == "cpu" and not found.requires_grad
    array = read_arrays(io.BytesIO(content(name)))["w"]
    assert array.dtype == np.dtype(getattr(ml_dtypes, name)) and array.tobytes() == BYTES


@pytest.mark.parametrize("name", NAMES)
def test_converted_bit_for_bit_where_the_format_can(name):
    content = as_torch_saves(name)
    for _ in range(2):
        out, back = io.BytesIO(), io.BytesIO()
        assert convert(io.BytesIO(content), out, format="safetensors").tensors == 1
        length = struct.unpack("<Q", out.getvalue()[:8])[0]
        assert json.loads(out.getvalue()[8 : 8 + length])["w"]["dtype"] == CODES[name]
        assert out.getvalue().endswith(BYTES)
        out.seek(0)
        assert convert(out, back, format="zip").tensors == 1
        content = back.getvalue()
        assert raw(load(io.BytesIO(content))["w"]) == BYTES
    with pytest.raises(pickle.PicklingError, match=f"no form for elements of type {name}"):
        convert(io.BytesIO(content), io.BytesIO(), format="legacy")


@pytest.mark.parametrize("name", NAMES)
def test_saved(name):
    for write in (save, save_safetensors):
        out = io.BytesIO()
        write({"w": all_of(name), "t": engine.ones(2)}, out)
        out.seek(0)
        found = load(out)
        assert raw(found["w"]) == BYTES and found["w"].dtype is getattr(engine, name)


@pytest.mark.parametrize("name", NAMES)
def test_values(name):
    tensor, expected = all_of(name), np.frombuffer(BYTES, float8.numpy_dtype(name)).reshape(16, 16)
    for dtype in (engine.float32, engine.float64):
        assert np.array_equal(tensor.to(dtype).numpy(), expected.astype(np.float64), equal_nan=True)
    assert tensor.float().dtype is engine.float32 and tensor.half().dtype is engine.float16
    assert tensor.double().dtype is engine.float64 and tensor.bfloat16().dtype is engine.bfloat16
    assert tensor.to("cpu", dtype=engine.float16).dtype is engine.float16 and tensor.to("cpu") is tensor
    assert tensor.type(engine.float32).dtype is engine.float32 and tensor.type().startswith("torch.Float8_")
    assert tensor.to(engine.float8_e5m2).dtype is engine.float8_e5m2
    assert tensor[3, 4].float().numpy().tobytes() == expected[3, 4].astype(np.float32).tobytes()


def test_views_and_copies_keep_the_bytes():
    tensor = all_of("float8_e4m3fn")
    assert raw(tensor.t().contiguous()) == raw(tensor.permute(1, 0).contiguous()) != BYTES
    for made in (
        tensor.clone(),
        tensor.detach(),
        tensor.data,
        tensor.cpu(),
        copy.copy(tensor),
        copy.deepcopy(tensor),
        pickle.loads(pickle.dumps(tensor)),
        tensor.reshape(-1).view(16, 16),
    ):
        assert raw(made) == BYTES and tuple(made.shape) == (16, 16)
    assert raw(tensor[2]) == BYTES[32:48] and len(tensor) == 16
    small = float8.from_array(np.array([1, 2.5], ml_dtypes.float8_e5m2))
    assert repr(small) == "tensor([1.0000, 2.5000], dtype=torch.float8_e5m2)" and small.tolist() == [1, 2.5]


@pytest.mark.parametrize(
    "use",
    [
        lambda x: x + x,
        lambda x: x @ x,
        lambda x: x == x,
        lambda x: x.sum(),
        lambda x: engine.cat([x, x]),
        lambda x: engine.zeros(16, 16).copy_(x),
        lambda x: x.mul_(2),
        lambda x: engine.nn.functional.linear(x, x),
        lambda x: engine.nn.Linear(16, 16).load_state_dict({"weight": x, "bias": engine.zeros(16)}),
    ],
)
def test_use_names_the_dtype(use):
    with pytest.raises((NotImplementedError, RuntimeError), match=r"torch\.float8_e4m3fn: convert the tensor first"):
        use(all_of("float8_e4m3fn"))


def test_other_errors():
    tensor = all_of("float8_e4m3fn")
    with pytest.raises(TypeError, match="unsupported ScalarType Float8_e4m3fn"):
        tensor.numpy()
    with pytest.raises(NotImplementedError, match="on the CPU only"):
        tensor.to("meta")
    with pytest.raises(RuntimeError, match="no gradients"):
        tensor.requires_grad_()
    with pytest.raises(TypeError, match="is none of"):
        float8.from_array(np.zeros(2))
    with pytest.raises(UnpicklingError, match="unsupported dtype F4"):
        load(io.BytesIO(st("F4")))
    with pytest.raises(UnpicklingError, match=r"torch\.float4_e2m1fn_x2 is not supported"):
        load(io.BytesIO(as_torch_saves("float4_e2m1fn_x2")))
