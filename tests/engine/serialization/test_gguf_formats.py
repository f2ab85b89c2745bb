"""GGUF files through `load`, `describe` and `convert`, as one of the formats of checkpoints."""

from __future__ import annotations

import io
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

import engine
from engine import serialization
from engine.serialization import UnpicklingError, convert, describe, load, read_arrays, sniff
from engine.serialization.gguf import GgufTensor, open_gguf, write_gguf

METADATA = {"general.architecture": "gpt2", "gpt2.epsilon": 0.5, "tokens": ["a", "b"], "general.name": "m", "ids": [1]}
DTYPES = {"q8": "float32", "f16": "float16", "bf16": "bfloat16", "f32": "float32", "i32": "int32"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "net.gguf"
    x = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
    tensors: dict[str, Any] = {"q8": (x, "Q8_0"), "f16": x.astype(np.float16), "bf16": (x, "BF16"), "f32": x[0]}
    write_gguf(path, METADATA, tensors | {"i32": np.arange(3, dtype=np.int32)})
    return path


def unread(path: Path) -> None:
    write_gguf(
        path, {}, {"b": np.ones(3, np.float32), "w": GgufTensor("w", (1, 256), "IQ2_XS", np.zeros(74, np.uint8))}
    )


@pytest.mark.parametrize("mmap", [None, True, False])
def test_load(file: Path, mmap: bool | None) -> None:
    found = load(file, mmap=mmap)
    assert {name: str(one.dtype) for name, one in found.items()} == {n: f"torch.{d}" for n, d in DTYPES.items()}
    for name, one in open_gguf(file).tensors.items():
        np.testing.assert_array_equal(found[name].float().numpy(), one.array())
    arrays = read_arrays(file)
    assert {name: one.dtype.name for name, one in arrays.items()} == DTYPES


def test_load_from_memory_and_to_a_device(file: Path) -> None:
    asked = []

    def where(storage: Any, tag: str) -> Any:
        asked.append(storage.nbytes())
        return storage

    stream = io.BytesIO(b"front" + file.read_bytes())
    stream.seek(5)
    found = load(stream, map_location=where)
    assert engine.equal(found["q8"], load(file)["q8"])
    assert sorted(asked) == sorted(one.numel() * one.element_size() for one in found.values())
    assert load(file, map_location="meta")["q8"].is_meta
    assert stream.read() == b""


def test_a_file_is_not_changed_by_its_tensors(file: Path) -> None:
    before = file.read_bytes()
    for one in load(file).values():
        one.fill_(3)
    assert file.read_bytes() == before


def test_the_name_does_not_matter(file: Path, tmp_path: Path) -> None:
    assert sniff(file) == "gguf"
    renamed = file.rename(tmp_path / "net.bin")
    assert sniff(renamed) == "gguf"
    assert list(load(renamed)) == list(DTYPES)
    assert serialization.get_unsafe_globals_in_checkpoint(renamed) == []
    with pytest.raises(UnpicklingError, match="the file has the format gguf, not safetensors"):
        serialization.load_safetensors(renamed)


def test_description(file: Path) -> None:
    found = describe(file)
    rows = (("q8", (4, 64), "Q8_0"), ("f16", (4, 64), "F16"), ("bf16", (4, 64), "BF16"), ("f32", (64,), "F32"))
    assert found.tensors == (*rows, ("i32", (3,), "I32"))
    assert found.format == "gguf"
    assert found.bytes == 4 * 2 * 34 + 4 * 64 * (2 + 2) + 64 * 4 + 12
    assert found.metadata == METADATA
    assert found.others == found.files == ()


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_conversion(file: Path, tmp_path: Path, suffix: str) -> None:
    target = tmp_path / f"out{suffix}"
    done = convert(file, target)
    assert (done.tensors, done.bytes) == (5, target.stat().st_size)
    assert done.skipped == (("tokens", "ids") if suffix == ".safetensors" else ("__metadata__",))
    found, expected = load(target), load(file)
    assert list(found) == list(expected)
    for name, one in expected.items():
        assert found[name].dtype is one.dtype
        assert engine.equal(found[name], one)


def test_conversion_retains_numbers_and_texts(file: Path, tmp_path: Path) -> None:
    convert(file, tmp_path / "out.safetensors")
    with safe_open(tmp_path / "out.safetensors", "numpy") as opened:
        expected = {"format": "pt", "general.architecture": "gpt2", "gpt2.epsilon": "0.5", "general.name": "m"}
        assert opened.metadata() == expected


def test_conversion_of_a_stream_and_of_one_tensor(file: Path) -> None:
    stream, out = io.BytesIO(file.read_bytes()), io.BytesIO()
    assert convert(stream, out, format="safetensors", key="f16").tensors == 1
    out.seek(0)
    assert engine.equal(load(out)["tensor"], load(file)["f16"])
    stream.seek(0)
    with pytest.raises(ValueError, match="the checkpoint has no entry 'f17'"):
        convert(stream, out, format="safetensors", key="f17")


def test_conversion_computes_one_tensor_at_a_time(tmp_path: Path) -> None:
    zeros = GgufTensor("w", (1 << 10, 1 << 10), "Q8_0", np.zeros(34 << 15, np.uint8))
    write_gguf(tmp_path / "in.gguf", {}, dict.fromkeys("abcdefgh", zeros))
    tracemalloc.start()
    try:
        convert(tmp_path / "in.gguf", tmp_path / "out.safetensors")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * (4 << 20) < (tmp_path / "out.safetensors").stat().st_size


def test_types_that_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "net.gguf"
    unread(path)
    message = r"net\.gguf: the tensor w has the type IQ2_XS, which is not supported"
    for use in (load, read_arrays, lambda path: convert(path, tmp_path / "out.safetensors")):
        with pytest.raises(UnpicklingError, match=message):
            use(path)
    assert not list(tmp_path.glob("*out*"))
    assert describe(path).tensors == (("b", (3,), "F32"), ("w", (1, 256), "IQ2_XS"))


def test_damaged(file: Path, tmp_path: Path) -> None:
    file.write_bytes(file.read_bytes()[:-21])
    message = r"net\.gguf: the tensor i32 of shape \(3,\), type I32 is truncated"
    for use in (load, describe, lambda path: convert(path, tmp_path / "out.safetensors")):
        with pytest.raises(UnpicklingError, match=message):
            use(file)
