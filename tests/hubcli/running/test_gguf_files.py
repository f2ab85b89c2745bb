"""`hub show` and `hub convert` of GGUF files, and repository code that loads one."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from engine import serialization
from engine.serialization.gguf import GgufTensor, write_gguf
from hubcli.cache import weights
from hubcli.cache.records import Weight
from hubcli.errors import IntegrityError
from hubcli.running import checkpoints, gguf_files
from hubcli.terminal import cli

METADATA = {
    "general.architecture": "llama",
    "llama.context_length": 4096,
    "tokenizer.ggml.tokens": ["a"] * 1500,
    "tokenizer.ggml.scores": [0.5, 1.0],
    "tokenizer.chat_template": "{{ bos }}\n" * 20 + "\x1b[31m",
    "flag": True,
}


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    x = np.arange(128, dtype=np.float32).reshape(2, 64)
    write_gguf("net.gguf", METADATA, {"blk.0.w": (x, "Q8_0"), "blk.1.w": (x, "Q8_0"), "norm": x[0]})
    return tmp_path / "net.gguf"


def hub(*arguments: str) -> Result:
    return CliRunner().invoke(cli.hub, list(arguments))


def test_document(file: Path) -> None:
    assert json.loads(hub("--json", "show", "net.gguf").stdout) == {
        "schema_version": 1,
        "file": "net.gguf",
        "format": "gguf",
        "size": file.stat().st_size,
        "files": ["net.gguf"],
        "tensors": [
            {"name": "blk.0.w", "shape": [2, 64], "dtype": "Q8_0"},
            {"name": "blk.1.w", "shape": [2, 64], "dtype": "Q8_0"},
            {"name": "norm", "shape": [64], "dtype": "F32"},
        ],
        "bytes": 2 * 4 * 34 + 256,
        "metadata": METADATA | {"tokenizer.ggml.tokens": {"length": 1500}},
        "architecture": "llama",
        "parameters": 320,
        "bits": 13.2,
        "context_length": 4096,
        "types": [{"type": "Q8_0", "tensors": 2}, {"type": "F32", "tensors": 1}],
    }


def test_for_people() -> None:
    shown = hub("show", "./net.gguf").stdout
    lines = [line.split(maxsplit=1) for line in shown.splitlines() if line]
    for row in (
        ["architecture", "llama"],
        ["parameters", "320 (13.2 bits each)"],
        ["context", "length  4,096"],
        ["types", "Q8_0 (2), F32 (1)"],
        ["tensors", "3 (528 B)"],
        ["tokenizer.ggml.tokens", "1,500 values"],
        ["tokenizer.ggml.scores", "0.5, 1.0"],
        ["blk.0.w", "Q8_0  2 x 64"],
    ):
        assert row in lines, shown
    assert max(map(len, shown.splitlines())) < 120
    assert "\x1b" not in shown


def test_a_file_that_says_nothing() -> None:
    write_gguf("bare.gguf", {}, {})
    found = json.loads(hub("--json", "show", "bare.gguf").stdout)
    assert [found[key] for key in ("architecture", "context_length", "parameters", "bits")] == [None, None, 0, None]
    assert "architecture    -\nparameters      0\ncontext length  -\n" in hub("show", "bare.gguf").stdout


def test_metadata_that_is_not_what_it_should_be() -> None:
    found = gguf_files.facts({"general.architecture": 3, "None.context_length": "many", "x": math.nan}, [], 0)
    assert (found["architecture"], found["context_length"]) == (None, None)
    assert found["metadata"]["x"] == "nan"
    found = gguf_files.facts({"general.architecture": "a", "a.context_length": [1], "t": [b"\xff"]}, [], 0)
    assert (found["context_length"], found["metadata"]["t"]) == (None, ["\\xff"])


@pytest.mark.parametrize("target", ["out.safetensors", "out.pth"])
def test_convert(target: str) -> None:
    result = hub("convert", "net.gguf", target)
    assert result.exit_code == 0, result.output
    assert "3 tensors" in result.stdout
    found = serialization.load(target)
    assert list(found) == ["blk.0.w", "blk.1.w", "norm"]
    assert found["norm"].tolist() == list(range(64))
    assert abs(found["blk.1.w"].numpy() - np.arange(128).reshape(2, 64)).max() < 0.51
    assert json.loads(hub("--json", "show", target).stdout)["tensors"][0]["dtype"] == "float32"


def test_convert_says_what_is_left_out() -> None:
    result = hub("--json", "convert", "net.gguf", "out.safetensors")
    assert json.loads(result.stdout)["skipped"] == ["tokenizer.ggml.tokens", "tokenizer.ggml.scores"]
    assert "left out, not tensors: tokenizer.ggml.tokens, tokenizer.ggml.scores" in result.stderr


def test_refused() -> None:
    content = Path("net.gguf").read_bytes()
    Path("short.gguf").write_bytes(content[:-1])
    write_gguf("iq.gguf", {}, {"w": GgufTensor("w", (256,), "IQ2_XS", np.zeros(74, np.uint8))})
    Path("absent").mkdir()
    for arguments, message in (
        (("show", "short.gguf"), "short.gguf was refused: the tensor norm of shape (64,), type F32 is truncated"),
        (("convert", "short.gguf", "out.pth"), "short.gguf was refused: the tensor norm"),
        (("convert", "iq.gguf", "out.pth"), "iq.gguf was refused: the tensor w has the type IQ2_XS, which is not"),
    ):
        result = hub(*arguments)
        assert (result.exit_code, message in result.stderr) == (6, True), result.stderr
    assert hub("show", "iq.gguf").exit_code == 0
    assert hub("show", "absent/net.gguf").exit_code == 3
    assert not Path("out.pth").exists()


def test_a_fetched_file_is_checked_without_its_values(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weight = Weight(file.name, file, "https://example.org/net.gguf", "", 0, (), 0.0, 0.0, False)
    monkeypatch.setattr(weights, "is_new", lambda weight: True)
    monkeypatch.setattr(weights, "refused", lambda weight, error: None)
    monkeypatch.setattr(GgufTensor, "array", lambda *args: pytest.fail("a value was computed"))
    checkpoints.require_checkpoint(weight, file)
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(IntegrityError, match="the tensor norm"):
        checkpoints.require_checkpoint(weight, file)


def test_another_name_is_no_archive() -> None:
    Path("net.gguf").rename("net.pt")
    np.save("x.npy", np.ones(3, np.float32))
    result = hub("run", "./net.pt", "--input", "x.npy")
    assert "net.pt is no TorchScript archive, but gguf" in result.stderr
    assert result.exit_code == 2
