"""Sharded checkpoints are one checkpoint; an index that is not exactly what its files are is refused."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

import engine
from engine.serialization import (
    UnpicklingError,
    convert,
    get_unsafe_globals_in_checkpoint,
    load,
    read_arrays,
    save,
    save_safetensors,
    sniff,
)

FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
MAP = {"b": SECOND, "a": FIRST, "c": SECOND}
STATE = {
    "a": engine.arange(4.0),
    "b": engine.ones(2, dtype=engine.bfloat16),
    "c": engine.zeros(2, 3, dtype=engine.int64),
}


def write(folder: Path, weight_map: object = None, **more: object) -> Path:
    """Two files and their index."""
    save_safetensors({"a": STATE["a"]}, folder / FIRST)
    save_safetensors({"b": STATE["b"], "c": STATE["c"]}, folder / SECOND)
    index = folder / "model.safetensors.index.json"
    weight_map = MAP if weight_map is None else weight_map
    index.write_text(json.dumps({"metadata": {"total_size": 68}, "weight_map": weight_map, **more}))
    return index


def same(found: dict) -> bool:
    return all(found[n].dtype is STATE[n].dtype and engine.equal(found[n], STATE[n]) for n in STATE)


def test_one_checkpoint(tmp_path):
    index = write(tmp_path)
    found = load(index)
    assert list(found) == ["b", "a", "c"] and same(found)
    assert sniff(index) == "sharded" and sniff(str(index)) == "sharded"
    assert read_arrays(index)["a"].tolist() == [0, 1, 2, 3] and load(index, mmap=True)["a"].tolist() == [0, 1, 2, 3]
    assert get_unsafe_globals_in_checkpoint(index) == []


@pytest.mark.parametrize("name", ["one.safetensors", "one.pth"])
def test_convert_writes_one_file(tmp_path, name):
    made = convert(write(tmp_path), tmp_path / name)
    assert made.tensors == 3
    assert list(load(tmp_path / name)) == ["b", "a", "c"] and same(load(tmp_path / name))


def test_files_of_torch(tmp_path):
    save({"a": STATE["a"], "b": STATE["b"]}, tmp_path / "pytorch_model-00001-of-00002.bin")
    save({"c": STATE["c"]}, tmp_path / "pytorch_model-00002-of-00002.bin", _use_new_zipfile_serialization=False)
    files = {"a": 1, "b": 1, "c": 2}
    index = tmp_path / "pytorch_model.bin.index.json"
    names = {name: f"pytorch_model-{n:05}-of-00002.bin" for name, n in files.items()}
    index.write_text(json.dumps({"weight_map": names}))
    assert same(load(index))


def test_files_elsewhere(tmp_path):
    (tmp_path / "a").mkdir()
    index = write(tmp_path / "a")
    shards = {FIRST: tmp_path / "0123", SECOND: tmp_path / "4567"}
    for name, path in shards.items():
        (tmp_path / "a" / name).rename(path)
    index.rename(tmp_path / "89ab")
    assert same(load(tmp_path / "89ab", shards=shards))


HOSTILE = [
    (MAP | {"a": "../secret.safetensors"}, r"the file \.\./secret\.safetensors, which is no plain file"),
    (MAP | {"a": "/etc/passwd"}, "which is no plain file"),
    (MAP | {"a": "x\\..\\y"}, "which is no plain file"),
    (MAP | {"a": "C:x"}, "which is no plain file"),
    (MAP | {"a": ".."}, "which is no plain file"),
    (MAP | {"a": ""}, "which is no plain file"),
    (MAP | {"a": "x\x00y"}, "which is no plain file"),
    (MAP | {"a": "model.safetensors.index.json"}, "which is no plain file"),
    (MAP | {"d": "absent.safetensors"}, r"absent\.safetensors, which the index names, is not beside it"),
    (MAP | {"a": "model-00003-of-00002.safetensors"}, "names 2 of the 2 files|names 3 of the 2 files|not beside it"),
    ({"b": SECOND, "c": SECOND}, "names 1 of the 2 files model-"),
    (MAP | {"d": FIRST}, rf"{FIRST}: it lacks the tensor d"),
    ({"a": FIRST, "b": SECOND}, rf"{SECOND}: it has the tensor c, which is nowhere by the index"),
    (MAP | {"c": FIRST}, rf"{SECOND}: it has the tensor c, which is in {FIRST}"),
    ({}, "no weight_map"),
    ([], "no weight_map"),
    ({"a": 1}, "no weight_map"),
    ("text", "no weight_map"),
]


@pytest.mark.parametrize(("weight_map", "reason"), HOSTILE)
def test_hostile_indexes(tmp_path, weight_map, reason):
    folder = tmp_path / "inside"
    folder.mkdir()
    save_safetensors({"a": STATE["a"]}, tmp_path / "secret.safetensors")
    index = write(folder, weight_map)
    for read in (load, read_arrays, lambda f: convert(f, tmp_path / "out.pth")):
        with pytest.raises(UnpicklingError, match=reason):
            read(index)
    assert not (tmp_path / "out.pth").exists()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the index is no JSON"),
        (b"<html>", "the index is a web page"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer"),
        (b"[" * 100_000, "the index is no JSON"),
        (b'{"weight_map":', "the index is no JSON"),
        (b'{"weight_map":{"a":"x","a":"y"}}', "the index has a twice"),
        (b'{"weight_map":{"a":"x"},"weight_map":{}}', "the index has weight_map twice"),
        (b"\xff\xfe", "the index is no JSON"),
        (b"[]", "no weight_map"),
    ],
)
def test_what_is_no_index(tmp_path, content, reason):
    index = tmp_path / "x.index.json"
    index.write_bytes(content)
    with pytest.raises(UnpicklingError, match=rf"x\.index\.json: .*{reason}"):
        load(index)


def test_a_tensor_that_two_files_have(tmp_path):
    index = write(tmp_path)
    save_safetensors({"a": STATE["a"], "b": STATE["b"]}, tmp_path / FIRST)
    with pytest.raises(UnpicklingError, match=rf"{FIRST}: it has the tensor b, which is in {SECOND} by the index"):
        load(index)


def test_damaged_files_are_named(tmp_path):
    index = write(tmp_path)
    content = (tmp_path / SECOND).read_bytes()
    (tmp_path / SECOND).write_bytes(content[:-1])
    with pytest.raises(UnpicklingError, match=rf"{SECOND}: the tensor \w is truncated"):
        load(index)
    (tmp_path / SECOND).write_bytes(struct.pack("<Q", 2) + b"{}")
    with pytest.raises(UnpicklingError, match=rf"{SECOND}: it lacks the tensor b"):
        load(index)


def test_what_is_no_tensor(tmp_path):
    save({"a": STATE["a"], "n": 5}, tmp_path / "x.bin")
    (tmp_path / "x.bin.index.json").write_text(json.dumps({"weight_map": {"a": "x.bin", "n": "x.bin"}}))
    with pytest.raises(UnpicklingError, match=r"x\.bin: its value n is no tensor"):
        load(tmp_path / "x.bin.index.json")
    save([1], tmp_path / "x.bin")
    with pytest.raises(UnpicklingError, match="something other than tensors by name"):
        load(tmp_path / "x.bin.index.json")
