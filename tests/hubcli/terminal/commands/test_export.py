"""`hub export`, and ONNX files as what `run` and `show` take."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

from hubcli.terminal import cli
from tests.hubcli.models import HUBCONF


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo" / "hubconf.py").write_text(HUBCONF)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)  # as where it is not installed
    np.save("x.npy", np.array([[1.0, 2.0]]))
    return tmp_path


def hub(*arguments: str):
    return CliRunner().invoke(cli.hub, list(arguments))


def export(*more: str, entrypoint: str = "several", shape: str = "1,2"):
    return hub("--json", "export", "./repo", entrypoint, "--input-shape", shape, "-o", "m.onnx", *more)


def test_export_then_show_then_run(folder) -> None:
    result = export("--dynamic", "batch", "--opset", "17")
    assert result.exit_code == 0, result.output
    made = json.loads(result.stdout)
    assert made["opset"] == 17 and made["bytes"] == Path("m.onnx").stat().st_size
    assert made["inputs"] == [{"name": "x", "dtype": "float32", "shape": ["batch", 2]}]
    assert [one["shape"] for one in made["outputs"]] == [["batch", 3], ["batch", 3], []]
    assert made["runtime"] is None and made["difference"] is None
    shown = json.loads(hub("--json", "show", "m.onnx").stdout)
    assert shown["parameters"] >= 6 and shown["inputs"] == made["inputs"]
    assert "MatMul" in hub("show", "m.onnx").stdout or "Gemm" in hub("show", "m.onnx").stdout
    np.save("many.npy", np.ones((4, 2)))
    result = hub("--json", "run", "m.onnx", "--input", "many.npy", "--output", "y.npy")
    assert result.exit_code == 0, result.output
    outputs = json.loads(result.stdout)["outputs"]
    assert [one["shape"] for one in outputs] == [[4, 3], [4, 3], []]
    assert np.load(outputs[0]["file"]).tolist() == [[2.0] * 3] * 4


def test_the_example_may_be_a_file(folder) -> None:
    np.savez("in.npz", arr_0=np.ones((1, 2)), scale=np.float64(2.0))
    result = hub("--json", "export", "./repo", "net", "--input", "in.npz", "-o", "m.onnx")
    assert result.exit_code == 0, result.output
    assert [one["name"] for one in json.loads(result.stdout)["inputs"]] == ["x", "scale"]
    result = hub("--json", "run", "m.onnx", "--input", "in.npz")
    assert result.exit_code == 0 and json.loads(result.stdout)["outputs"][0]["values"] == [[0, 0, 0]]


def test_onnxruntime_checks_and_a_difference_is_status_1(folder, monkeypatch) -> None:
    from engine import from_numpy, onnx

    class Session:
        wrong = 0.0

        def __init__(self, path, options, providers) -> None:
            self.model = onnx.load(path)

        def get_inputs(self):
            return self.model.inputs

        def run(self, _, given):
            made = self.model(**{name: from_numpy(array) for name, array in given.items()})
            return [one.detach().numpy() + self.wrong for one in made]

    fake = SimpleNamespace(__version__="9", SessionOptions=SimpleNamespace, InferenceSession=Session)
    monkeypatch.setitem(sys.modules, "onnxruntime", fake)
    result = export()
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["runtime"] == "onnxruntime 9" and json.loads(result.stdout)["difference"] < 1e-6
    Session.wrong = 0.5
    result = hub("export", "./repo", "several", "--input-shape", "1,2", "-o", "m.onnx", "--force")
    assert result.exit_code == 1 and "differs from the model by more than 0.0001" in result.output


@pytest.mark.parametrize(
    ("more", "status", "why"),
    [
        (["-o", "m.onnx"], 2, "by --input-shape or by --input"),
        (["-o", "m.onnx", "--input-shape", "1,2", "--input", "x.npy"], 2, "by --input-shape or by --input"),
        (["-o", "no/m.onnx", "--input-shape", "1,2"], 2, "no folder"),
        (["-o", "x.npy", "--input-shape", "1,2"], 2, "exists"),
        (["-o", "m.onnx", "--input-shape", "1,2", "--dynamic", "y:0"], 2, "no dim of an input"),
        (["-o", "m.onnx", "--input-shape", "1,2", "--dynamic", "x:7"], 2, "no dim of an input"),
        (["-o", "m.onnx", "--input-shape", "1,2", "--opset", "9"], 2, "--opset"),
        (["-o", "m.onnx", "--input-shape", "1,2", "--sandbox"], 2, "not supported in a sandbox"),
        (["-o", "m.onnx", "--input-shape", "1,2", "--framework", "torch"], 2, "leave out --framework"),
        (["-o", "m.onnx", "--input-shape", "1,5"], 2, "does not take this input"),
        (["-o", "m.onnx", "--input-shape", "1,2", "--dynamic", "x:1=features"], 1, "runs with no other size"),
    ],
)
def test_what_is_refused(folder, more: list[str], status: int, why: str) -> None:
    result = hub("export", "./repo", "net", *more)
    assert result.exit_code == status and why in result.output, result.output
    assert not Path("m.onnx").exists()


def test_broken_files(folder) -> None:
    assert export(entrypoint="net").exit_code == 0
    whole = Path("m.onnx").read_bytes()
    Path("short.onnx").write_bytes(whole[:-20])
    np.save("wide.npy", np.ones((1, 5)))
    for arguments, status, why in (
        (["run", "short.onnx", "--input", "x.npy"], 6, "was refused"),
        (["show", "short.onnx"], 6, "was refused"),
        (["run", "none.onnx", "--input", "x.npy"], 3, "there is no file"),
        (["show", "none.onnx"], 3, "there is no file"),
        (["run", "m.onnx", "--input", "wide.npy"], 2, "does not take this input"),
        (["run", "m.onnx", "--input", "x.npy", "--sandbox"], 2, "holds no code"),
        (["run", "m.onnx", "--input", "x.npy", "--framework", "torch"], 2, "runs on the engine"),
    ):
        result = hub(*arguments)
        assert result.exit_code == status and why in result.output, result.output
        assert "Traceback" not in result.output
