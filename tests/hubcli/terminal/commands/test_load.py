"""`hub load`: build a model, describe it, save it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy
import pytest
from click.testing import CliRunner
from safetensors.numpy import load_file

import hubcli
from hubcli.terminal import cli
from tests.hubcli.models import WEIGHT, Model
from tests.servers import Served, file_server


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Served]:
    (tmp_path / "files").mkdir()
    with file_server(tmp_path / "files") as served:
        yield served


@pytest.fixture
def model(tmp_path: Path, files: Served, monkeypatch: pytest.MonkeyPatch) -> Model:
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "http,file")
    monkeypatch.setenv("HUB_GIT_URL", f"file://{tmp_path}/served/{{owner}}/{{repo}}.git")
    return Model.create(tmp_path, files.url)


def hub(*arguments: str):
    return CliRunner().invoke(cli.hub, list(arguments))


def test_untrusted(model):
    result = hub("--json", "load", "o/m:v1", "net")
    assert result.exit_code == 7
    error = json.loads(result.stdout)["error"]
    assert (error["code"], error["spec"]) == ("untrusted", "o/m:v1")
    commit = model.repository.git("rev-parse", "v1")
    assert f"hub trust add o/m:{commit} " in error["hint"]


def test_document(model):
    result = hub("--json", "load", "o/m:v1", "net", "--trust", "once", "-k", f"url={model.url}")
    assert result.exit_code == 0, result.output
    made = json.loads(result.stdout)
    assert made.pop("seconds") > 0
    (weight,) = made.pop("weights")
    assert (weight["file"], weight["url"]) == (model.weights, model.url)
    assert made == {
        "schema_version": 1,
        "entrypoint": "net",
        "class": "hubconf.Net",
        "parameters": 6,
        "buffers": 0,
        "bytes": 24,
        "device": "cpu",
    }


def test_for_people(model):
    result = hub("load", str(model.folder), "counted")
    assert result.exit_code == 0, result.output
    shown = dict(line.split(None, 1) for line in result.stdout.splitlines())
    assert (shown["class"], shown["parameters"], shown["buffers"]) == ("hubconf.Net", "6", "4")
    assert shown["size"] == "40 B"


@pytest.mark.parametrize("name", ["net.safetensors", "net.pth", "net.pt"])
def test_save(model, tmp_path, name):
    file = tmp_path / name
    result = hub("load", str(model.folder), "net", "--args", json.dumps([model.url]), "--save", str(file))
    assert result.exit_code == 0, result.output
    if name.endswith(".safetensors"):
        assert load_file(file)["weight"].tolist() == WEIGHT.tolist()
    else:
        import engine

        assert engine.load(file)["weight"].numpy().tolist() == WEIGHT.tolist()


@pytest.mark.parametrize("confined", [(), ("--sandbox=best-effort",)])
def test_save_never_overwrites(model, tmp_path, confined):
    file = tmp_path / "x.pt"
    file.write_text("mine")
    arguments = ("load", str(model.folder), "net", "--save", str(file), *confined)
    result = hub(*arguments)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-2:] == [f"hub: --save {str(file)!r} exists", "hint: --force replaces it"]
    assert file.read_text() == "mine"
    result = hub(*arguments, "--force")
    assert result.exit_code == 0, result.output
    assert file.read_bytes()[:2] == b"PK"


def test_force_reload_fetches_weights_anew(model, files):
    arguments = ("load", "o/m:v1", "net", "--trust", "commit", "-k", f"url={model.url}")
    assert hub(*arguments).exit_code == 0
    files.reset()
    assert hub(*arguments).exit_code == 0
    assert files.requests == []
    assert hub(*arguments, "--force-reload").exit_code == 0
    assert len(files.requests) == 1


@pytest.mark.long
@pytest.mark.parametrize(
    "command", [("load",), ("run", "--input", "x.npy"), ("check",), ("check", "--no-sandbox"), ("pull",)]
)
def test_force_reload_of_a_folder_fetches_weights_anew(model, files, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    numpy.save("x.npy", numpy.ones((1, 2), "float32"))
    folder, url = str(model.folder), ("-k", f"url={model.url}")
    named = ("--weights", "net") if command == ("pull",) else ("net",)
    arguments = (command[0], folder, *named, *url, *command[1:])
    assert hub(*arguments).exit_code == 0
    files.reset()
    assert hub(*arguments).exit_code == 0
    assert files.requests == []
    assert hub(*arguments, "--force-reload").exit_code == 0
    assert len(files.requests) == 1
    (tmp_path / "files" / model.weights).write_bytes(b"something else")
    refused = hub(*arguments, "--force-reload")
    assert refused.exit_code == (1 if command[0] == "check" else 6), refused.output


def test_a_reload_by_another_spelling_of_the_spec_fetches_weights_anew(model, files, tmp_path):
    """A weight that is known to be used by `o/m:v1` is not known to be used by its commit."""
    command = [sys.executable, "-m", "hubcli", "load", "o/m:v1", "net", "--trust", "once", "-k", f"url={model.url}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    files.reset()
    command[4] = f"o/m:{model.repository.git('rev-parse', 'v1')}"
    subprocess.run([*command, "--force-reload"], check=True, stdout=subprocess.DEVNULL)
    assert len(files.requests) == 1


def test_python_reloads_the_weights_of_a_folder_at_each_call(model, files):
    for calls in (1, 2):
        hubcli.load(str(model.folder), "net", model.url, source="local", force_reload=True)
        assert len(files.requests) == calls
    hubcli.load(str(model.folder), "net", model.url, source="local")
    assert len(files.requests) == 2


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["net", "--save", "x.bin"], 2, "neither .safetensors nor .pth"),
        (["net", "--save", "nowhere/x.pth"], 2, "there is no folder nowhere"),
        (["net", "-k", "novalue"], 2, "KEY=VALUE"),
        (["several", "-k", "x=1"], 2, "unexpected keyword argument 'x'"),
        (["nope"], 3, "Cannot find callable nope in hubconf"),
        (["nothing", "--save", "x.pth"], 2, "only an nn.Module can be saved"),
        (["nothing", "--device", "cpu"], 2, "only an nn.Module can be moved"),
        (["net", "--device", "nonsense"], 2, "--device 'nonsense'"),
        (["net", "--args", "[3]"], 70, "Error"),
        (["net", "-k", "url=http://127.0.0.1:9/x.pth", "--trust", "once"], 4, "127.0.0.1"),
    ],
)
def test_failures(model, monkeypatch, tmp_path, arguments, status, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("hubcli.net.http.fetch.time.sleep", lambda seconds: None)
    result = hub("--json", "load", str(model.folder), *arguments)
    assert result.exit_code == status, result.output
    assert message in json.loads(result.stdout)["error"]["message"]


@pytest.mark.long
@pytest.mark.parametrize(
    "words",
    [
        ("load",),
        ("profile", "--input-shape", "1,2"),
        ("export", "--input-shape", "1,2", "-o", "x.onnx"),
        ("pull", "--weights"),
        ("lock", "--weights"),
        ("check",),
    ],
)
@pytest.mark.parametrize("name", ["several", "models"])
def test_what_the_signature_refuses_is_refused_before_anybody_is_asked(
    model, files, tmp_path, monkeypatch, words, name
):
    monkeypatch.chdir(tmp_path)
    command, *more = words
    before = sorted(path.name for path in tmp_path.iterdir())
    given = ["o/m:v1", *more, name] if "--weights" in more else ["o/m:v1", name, *more]
    result = hub("--json", command, *given, "--args", "[1, 2]")
    assert result.exit_code == 2, result.output
    error = json.loads(result.stdout)["error"]
    assert (error["message"], error["hint"]) == (f"{name}: too many positional arguments", f"its signature is {name}()")
    assert not files.requests
    assert set(path.name for path in tmp_path.iterdir()) - set(before) <= {"hub"}


def test_a_result_that_is_no_module_draws_a_warning(model):
    result = hub("load", str(model.folder), "nothing")
    assert result.exit_code == 0
    assert "returned a dict, not an nn.Module" in result.stderr
