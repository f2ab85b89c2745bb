"""TorchScript archives on the command line: run, shown, converted, bounded."""

from __future__ import annotations

import json
import shutil
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from engine.package import PackageExporter, PackageImporter
from hubcli.terminal import cli
from tests.engine.jit import forge

ARCHIVES = Path(__file__).parents[2] / "engine" / "jit" / "archives" / "2.13.0"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("control_flow", "convnet", "shared", "raising"):
        shutil.copy(ARCHIVES / f"{name}.pt", tmp_path)
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.ones((2, 2), np.float32))
    return tmp_path


def hub(*arguments: str):
    return CliRunner().invoke(cli.hub, list(arguments))


def document(*arguments: str):
    result = hub("--json", *arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_run_takes_inputs_from_files_and_the_rest_from_options(folder):
    first = document("run", "control_flow.pt", "--input", "x.npy", "-k", "n=3")
    assert first["outputs"][0]["shape"] == [2, 2]
    assert document("run", "control_flow.pt", "--input", "x.npy", "--args", "[3]")["outputs"] == first["outputs"]
    np.savez("both.npz", x=np.ones((2, 2), np.float32))
    assert document("run", "./control_flow.pt", "--input", "both.npz", "-k", "n=3")["outputs"] == first["outputs"]


def test_run_calls_another_method(folder):
    whole = document("run", "shared.pt", "--input", "x.npy")["outputs"][0]["values"]
    half = document("run", "shared.pt", "halved", "--input", "x.npy")["outputs"][0]["values"]
    assert np.allclose(whole, 2 * np.array(half))
    result = hub("run", "shared.pt", "nope", "--input", "x.npy")
    assert (result.exit_code, "it has: forward" in result.stderr) == (2, True)


def test_run_needs_no_trust_and_no_repository(folder):
    assert hub("run", "shared.pt", "--input", "x.npy").exit_code == 0
    assert hub("run", "shared.pt", "--input", "x.npy", "--framework", "torch").exit_code == 2


def test_errors_of_a_program_are_told_in_one_line(folder):
    np.save("x3.npy", np.ones((1, 1, 1), np.float32))
    result = hub("run", "raising.pt", "--input", "x3.npy")
    assert result.exit_code == 70
    assert "builtins.ValueError: expected 2 dims, got 3" in result.stderr
    assert "Traceback" not in result.stderr
    result = hub("run", "control_flow.pt", "--input", "x.npy", "-k", "n=text")
    assert result.exit_code == 2
    assert "Expected a value of type 'int' for argument 'n'" in result.stderr
    assert hub("run", "control_flow.pt", "--input", "x.npy").exit_code == 2


def test_hostile_and_other_files_are_refused(folder):
    Path("bad.pt").write_bytes(forge.archive(forge.body("return eval('1')")).getvalue())
    for command in (("run", "bad.pt", "--input", "x.npy"), ("show", "bad.pt"), ("convert", "bad.pt", "y.pth")):
        result = hub(*command)
        assert result.exit_code == 6, result.output
        assert "the archive's code is refused" in result.stderr
    Path("text.pt").write_text("no archive")
    assert hub("run", "text.pt", "--input", "x.npy").exit_code == 2
    assert hub("convert", "convnet.pt", "weights.pth").exit_code == 0
    result = hub("run", "weights.pth", "--input", "x.npy")
    assert (result.exit_code, "a checkpoint holds weights only" in result.stderr) == (2, True)


def test_packages_are_shown_and_never_executed(folder):
    """A torch.package archive carries Python source: no option lets the hub run it."""
    source = "open('ran', 'w').close()\n\n\nclass A:\n    def __call__(self, x):\n        return x\n"
    with PackageExporter("package.pt") as exporter:
        exporter.save_source_string("loud", source)
        exporter.save_binary("model", "model.pkl", b"\x80\x02cloud\nA\n)\x81.")
    shutil.copy("package.pt", "package.zip")
    for options in ((), ("--trust", "repo"), ("--timeout", "60")):
        result = hub("run", "package.pt", "--input", "x.npy", *options)
        assert result.exit_code == 7, result.output
        assert (
            "package.pt is a torch.package archive: it carries Python source, which hub does not execute"
            in result.stderr
        )
    assert hub("run", "package.zip", "model", "--input", "x.npy").exit_code == 7
    assert "torch.package archive" in hub("convert", "package.pt", "y.pth").stderr
    for name in ("package.pt", "package.zip"):
        told = document("show", name)
        assert told["modules"] == [{"name": "loud", "size": len(source)}]
        assert told["pickles"] == [{"file": "model/model.pkl", "names": ["loud.A"]}]
    text = hub("show", "package.pt").output
    assert "Python source, not executed" in text
    assert "loud.A" in text
    with zipfile.ZipFile("package.pt", "a") as archive:  # now a TorchScript archive too, as its names go
        archive.writestr("package/constants.pkl", b"\x80\x02).")
    assert hub("run", "package.pt", "--input", "x.npy").exit_code == 6
    assert hub("show", "package.pt").exit_code == 6
    assert not Path("ran").exists()
    assert PackageImporter("package.zip").load_pickle("model", "model.pkl")(3) == 3
    assert Path("ran").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="the memory of a child is measured by /proc")
@pytest.mark.long
def test_time_and_memory_are_bounded(folder):
    Path("loop.pt").write_bytes(forge.archive(forge.body("while True:", "  pass", "return x")).getvalue())
    result = hub("run", "loop.pt", "--input", "x.npy", "--timeout", "2")
    assert (result.exit_code, "(--timeout)" in result.stderr) == (70, True)
    more = "y = torch.cat([y, torch.ones([10000000])])"
    code = forge.body("y = torch.zeros([1])", "while True:", f"  {more}", "return y")
    Path("large.pt").write_bytes(forge.archive(code).getvalue())
    result = hub("run", "large.pt", "--input", "x.npy", "--max-memory", "600MB")
    assert (result.exit_code, "of memory" in result.stderr) == (70, True)
    bounded = document("run", "shared.pt", "--input", "x.npy", "--timeout", "60", "--max-memory", "4GB")
    assert bounded["outputs"] == document("run", "shared.pt", "--input", "x.npy")["outputs"]


def test_show_tells_methods_and_modules(folder):
    told = document("show", "shared.pt")
    assert told["class"] == "__torch__.Shared"
    assert told["methods"] == [
        {"name": "forward", "schema": "forward(Tensor x) -> Tensor"},
        {"name": "halved", "schema": "halved(Tensor x, int by=2) -> Tensor"},
    ]
    assert [one["name"] for one in told["modules"]] == ["first", "again", "tied"]
    text = hub("show", "shared.pt").output
    assert "halved(Tensor x, int by=2) -> Tensor" in text


def test_convert_keeps_the_weights(folder):
    assert hub("convert", "convnet.pt", "convnet.safetensors").exit_code == 0
    from engine import jit, serialization

    state = jit.load("convnet.pt").state_dict()
    written = serialization.load_safetensors("convnet.safetensors")
    assert list(written) == list(state)
    assert all(bool((written[key] == state[key]).all()) for key in state)
