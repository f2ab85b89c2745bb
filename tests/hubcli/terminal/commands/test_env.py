"""`hub env`: what a bug report needs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from hubcli import __version__
from hubcli.errors import HubError
from hubcli.net.git import remote as git
from hubcli.terminal import cli
from tests.hubcli.schemas import CALIBRATION, CHECKED_GPU, SCHEMAS, complaints


def test_document(hub_root: Path) -> None:
    result = CliRunner().invoke(cli.hub, ["--json", "env"])
    made = json.loads(result.stdout)
    assert list(made) == [
        "schema_version",
        "hubcli",
        "python",
        "platform",
        "paths",
        "backends",
        "processor",
        "gpu",
        "routes",
        "libraries",
    ]
    assert made["hubcli"] == __version__ and made["paths"]["hub_dir"] == str(hub_root)
    assert made["backends"]["cpu"].startswith("numpy ")
    assert made["backends"]["onednn"].startswith(("oneDNN 3.", "off: "))
    assert made["backends"]["jit"].startswith(("llvmlite ", "off: "))
    found = made["processor"]
    assert (found["onednn"] is not None) == made["backends"]["onednn"].startswith("oneDNN")
    assert found["onednn"] or not found["left_to_numpy"]
    assert made["libraries"]["git"] and made["libraries"]["click"]
    assert not hub_root.exists()


def test_the_mirror_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert json.loads(CliRunner().invoke(cli.hub, ["--json", "env"]).stdout)["paths"]["mirror"] is None
    monkeypatch.setenv("HUB_MIRROR", f"{tmp_path}/")
    assert json.loads(CliRunner().invoke(cli.hub, ["--json", "env"]).stdout)["paths"]["mirror"] == tmp_path.as_uri()


def test_for_people() -> None:
    result = CliRunner().invoke(cli.hub, ["env"])
    assert result.exit_code == 0 and "libraries.click" in result.stdout
    assert "processor.instructions" in result.stdout
    assert "routes.mode" in result.stdout and "routes.onednn" in result.stdout


def test_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.backends import routes

    def found() -> dict:
        return json.loads(CliRunner().invoke(cli.hub, ["--json", "env"]).stdout)["routes"]

    monkeypatch.setenv("ENGINE_ROUTES", "")
    assert found()["mode"] == "kept"
    assert [row["route"] for row in found()["routes"]] == ["onednn", "generated", "calibrated"]
    assert found()["routes"][2]["why"] == "`hub env --calibrate` measures here" and not found()["routes"][2]["serves"]
    monkeypatch.setattr(routes, "stored", lambda: {"add": {7: "numpy"}})
    assert found()["routes"][2] == {"route": "calibrated", "serves": True, "why": "1 op measured on this machine"}
    monkeypatch.setenv("ENGINE_ROUTES", "static")
    assert found()["mode"] == "static" and not found()["routes"][2]["serves"]


def test_a_machine_without_git(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> str:
        raise HubError("git is not installed")

    monkeypatch.setattr(git, "version", fail)
    made = json.loads(CliRunner().invoke(cli.hub, ["--json", "env"]).stdout)
    assert made["libraries"]["git"] is None


def test_check_cuda_without_a_gpu_is_one_sentence() -> None:
    import engine

    if engine.cuda.is_available():
        return
    result = CliRunner().invoke(cli.hub, ["env", "--check", "cuda"])
    assert result.exit_code == 1 and "device 'cuda' " in result.stderr and "Traceback" not in result.stderr


@pytest.mark.cuda
def test_check_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.backends.cuda import routes
    from engine.cuda import selftest
    from tests.engine import standin

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(selftest, "CHECKS", {n: selftest.CHECKS[n] for n in ("pooling", "copies")})
    with standin.running():
        made = json.loads(CliRunner().invoke(cli.hub, ["--json", "env", "--check", "cuda"]).stdout)
        assert [row["verdict"] for row in made["check"]["rows"]] == ["ok", "ok"]
        assert complaints(CHECKED_GPU, made.pop("check")) == complaints(SCHEMAS["hub env"], made) == []
        assert made["gpu"]["routes"] == {}
        routes.keep({"softmax": {"verdict": "ok", "error": 0.0}, "norm": {"verdict": "differs", "error": 1.0}})
        made = json.loads(CliRunner().invoke(cli.hub, ["--json", "env"]).stdout)
        assert made["gpu"]["routes"] == {"cudnn pooling": "on", "norm": "off", "softmax": "on"}
        assert "cublas" in made["gpu"]["libraries"]
        assert "norm off, softmax on" in CliRunner().invoke(cli.hub, ["env"]).stdout
        assert "check.copies" in CliRunner().invoke(cli.hub, ["env", "--check", "cuda"]).stdout

        def broken(where: str) -> list:
            raise RuntimeError("no kernel")

        monkeypatch.setitem(selftest.CHECKS, "pooling", (0.0, lambda w: [] if w == "cpu" else broken(w), ()))
        result = CliRunner().invoke(cli.hub, ["env", "--check", "cuda"])
        assert result.exit_code == 1 and "does not compute what the CPU computes: pooling" in result.stderr


def test_calibrate(monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.backends import routes
    from engine.ops import calibration

    monkeypatch.setenv("ENGINE_ROUTES", "kept")
    monkeypatch.setattr(calibration, "CASES", {n: calibration.CASES[n] for n in ("add", "leaky_relu")})
    seconds = {"numpy": 1e-6, "blocks": 3e-6, "onednn": 2e-6}
    monkeypatch.setattr(calibration, "_measured", lambda name, cases: seconds)
    try:
        made = json.loads(CliRunner().invoke(cli.hub, ["--json", "env", "--calibrate"]).stdout)
        assert complaints(CALIBRATION, made["calibration"]) == []
        assert complaints(SCHEMAS["hub env"], {k: v for k, v in made.items() if k != "calibration"}) == []
        assert {row["name"] for row in made["calibration"]["rows"]} == {"add", "leaky_relu"}
        assert Path(made["calibration"]["file"]).is_file() and set(routes.stored()) == {"add", "leaky_relu"}
        assert made["calibration"]["changed"] == sum(r["static"] != "numpy" for r in made["calibration"]["rows"])
        result = CliRunner().invoke(cli.hub, ["env", "--calibrate"])
        assert "calibration.changed" in result.stdout and "numpy (1.0 us), not" in result.stdout
        monkeypatch.setattr("os.getloadavg", lambda: (99.0, 0, 0))
        monkeypatch.setenv("ENGINE_ROUTES", "static")
        said = CliRunner().invoke(cli.hub, ["env", "--calibrate"]).stderr
        assert "other programs use this machine" in said and "stored, and not used" in said
    finally:
        routes.forget()
