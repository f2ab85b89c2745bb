"""`hub convert`: from every format to every other, and what it refuses."""

from __future__ import annotations

import errno
import json
from collections import OrderedDict
from pathlib import Path

import pytest
from click.testing import CliRunner
from safetensors.numpy import load_file

import engine
from engine import serialization
from hubcli.terminal import cli
from tests.engine.serialization import forge


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "files"
    made.mkdir()
    monkeypatch.chdir(made)
    return made


def hub(*arguments: str):
    return CliRunner().invoke(cli.hub, list(arguments))


def state(**more):
    weight = engine.arange(6.0).reshape(2, 3)
    return OrderedDict(weight=weight, bias=engine.ones(2, dtype=engine.bfloat16), **more)


def same(file: str) -> bool:
    found = serialization.load(file)
    return list(found) == ["weight", "bias"] and all(
        engine.equal(found[name], tensor) and found[name].dtype is tensor.dtype for name, tensor in state().items()
    )


def test_document(folder):
    serialization.save(state(), "in.pth")
    result = hub("--json", "convert", "in.pth", "out.safetensors")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == {
        "schema_version": 1,
        "tensors": 2,
        "bytes": (folder / "out.safetensors").stat().st_size,
        "format": "safetensors",
        "skipped": [],
        "shared": [],
    }
    assert load_file("out.safetensors")["weight"].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_every_way_round():
    serialization.save(state(), "0.pth")
    steps = [
        ("1.safetensors", ()),
        ("2.pth", ("--format", "legacy")),
        ("3.pt", ()),
        ("4.pth", ("--format", "legacy")),
        ("5.safetensors", ()),
        ("6.pth", ()),
    ]
    source, formats = "0.pth", []
    for target, options in steps:
        result = hub("convert", source, target, *options)
        assert result.exit_code == 0, result.output
        assert same(target)
        formats.append(serialization.sniff(target))
        source = target
    assert formats == ["safetensors", "legacy", "zip", "legacy", "safetensors", "zip"]


def test_from_tar(folder):
    (folder / "old.pth").write_bytes(forge.tarred(forge.tar_parts()))
    result = hub("convert", "old.pth", "new.safetensors")
    assert result.exit_code == 0, result.output
    assert serialization.load("new.safetensors")["w"].tolist() == [[1, 2], [3, 4]]
    assert "these shared memory and are written each on its own: w, part, p" in result.stderr
    assert result.stdout.startswith("3 tensors, ")


def test_what_is_left_out_is_named():
    serialization.save({"model": state(), "epoch": 3, "args": {"lr": 0.1}}, "in.pth")
    result = hub("convert", "in.pth", "out.safetensors")
    assert "left out, not tensors: epoch, args.lr" in result.stderr
    assert same("out.safetensors")
    made = json.loads(hub("--json", "-q", "convert", "in.pth", "b.safetensors").stdout)
    assert made["skipped"] == ["epoch", "args.lr"]


def test_key():
    serialization.save({"state_dict": state(), "epoch": 3}, "in.pth")
    assert hub("convert", "in.pth", "out.pth", "--key", "state_dict").exit_code == 0
    assert same("out.pth")
    result = hub("convert", "in.pth", "b.pth", "--key", "model")
    assert result.exit_code == 2
    assert "no entry 'model' (it has: state_dict, epoch)" in result.stderr


def test_an_existing_file_needs_force(folder):
    serialization.save(state(), "in.pth")
    (folder / "out.safetensors").write_bytes(b"mine")
    result = hub("convert", "in.pth", "out.safetensors")
    assert (result.exit_code, (folder / "out.safetensors").read_bytes()) == (2, b"mine")
    assert "hint: --force replaces it" in result.stderr
    assert hub("convert", "in.pth", "out.safetensors", "--force").exit_code == 0
    assert same("out.safetensors")


def test_over_itself():
    serialization.save(state(), "a.pth")
    assert hub("convert", "a.pth", "a.pth", "--force", "--format", "legacy").exit_code == 0
    assert same("a.pth")
    assert serialization.sniff("a.pth") == "legacy"


HOSTILE = {
    "global": forge.zipped(b"\x80\x02cposix\nsystem\nX\x04\x00\x00\x00true\x85R."),
    "outside": forge.zipped(forge.pickled({"x": forge.tensor((1 << 40,))})),
    "truncated": forge.zipped(forge.pickled({"x": forge.tensor()}))[:-40],
    "damaged": forge.zipped(forge.pickled({"x": forge.tensor()})).replace(forge.FLOATS, b"\x01" + forge.FLOATS[1:]),
    "compressed to nothing": forge.zip_entries([("a/data.pkl", b"0" * (2 << 20)), ("a/version", b"3")], 8),
    "bomb": forge.zipped(forge.pickled([forge.tensor((1 << 20, 8), (0, 0))] * 5)),
    "web page": b"<html>not found</html>",
    "empty": b"",
}


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("old", [None, b"mine"], ids=["new", "over"])
def test_hostile_files_are_refused(folder, kind, old):
    (folder / "in.pth").write_bytes(HOSTILE[kind])
    target = folder / "out.safetensors"
    if old is not None:
        target.write_bytes(old)
    result = hub("convert", "in.pth", "out.safetensors", "--force")
    assert result.exit_code == 6
    assert result.stderr.startswith("hub: in.pth was refused: ")
    assert len(result.stderr.splitlines()) == 2  # the sentence and its hint
    left = {p.name for p in folder.iterdir()}
    assert left == {"in.pth"} | ({"out.safetensors"} if old else set())
    assert old is None or target.read_bytes() == old


def test_what_the_new_format_lacks(folder):
    serialization.save({"x": engine.ones(2, dtype=engine.complex128)}, "in.pth")
    result = hub("--json", "convert", "in.pth", "out.safetensors")
    error = json.loads(result.stdout)["error"]
    assert (result.exit_code, error["code"]) == (1, "error")
    assert "dtype complex128, which safetensors lacks" in error["message"]
    assert [p.name for p in folder.iterdir()] == ["in.pth"]


def test_a_full_disk_leaves_nothing(folder, monkeypatch):
    serialization.save(state(), "in.pth")

    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("engine.serialization.formats.write_safetensors", full)
    result = hub("convert", "in.pth", "out.safetensors")
    assert result.exit_code == 1
    assert result.stderr.startswith("hub: No space left on device: ") and "hint: make room there" in result.stderr
    assert [p.name for p in folder.iterdir()] == ["in.pth"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["absent.pth", "out.pth"], "does not exist"),
        (["in.pth", "out.what"], "cannot tell the format from 'out.what'"),
        (["in.pth", "no/where/out.pth"], "there is no folder no/where"),
        (["in.pth", "."], "is a directory"),
    ],
)
def test_usage(arguments, said):
    serialization.save(state(), "in.pth")
    result = hub("convert", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
