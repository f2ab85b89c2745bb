"""`hub check`: every entrypoint in a process of its own, for people, for CI and as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from hubcli.confined import sandbox
from hubcli.terminal import cli
from tests.hubcli.models import Model
from tests.servers import Served, file_server

HUBCONF = '''
import os, time
import torch
from torch import nn
from collections import OrderedDict

dependencies = ["torch"]


def good(width=3):
    """A model."""
    return nn.Sequential(nn.Conv2d(3, width, 3), nn.BatchNorm2d(width), nn.Flatten(1))


def tokens():
    return nn.Embedding(10, 4)


def needs(width):
    return nn.Linear(width, 1)


def raises():
    raise ValueError("no \\x1b[31mluck\\x1b[0m <&>\\x00")


def exits():
    os._exit(0)


def killed():
    os.kill(os.getpid(), 9)


def dies_in_forward():
    model = good()
    model.forward = lambda x: os._exit(7)
    return model


def changes():
    model = good()
    real = model.state_dict
    model.load_state_dict = lambda state: None
    model.state_dict = lambda: {k: v + torch.rand(()) for k, v in real().items() if v.is_floating_point()}
    model.load_state_dict = lambda state: setattr(model, "state_dict", lambda: {})
    return model


def frozen():
    model = good()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    return model


def untrainable():
    model = good()
    model.forward = lambda x: x.detach() + 1
    return model


def a_dict():
    return {"a": 1}


def online():
    import urllib.request
    urllib.request.urlopen("http://example.invalid/")
'''

NETWORK = """
import socket

def _attempt():
    try:
        socket.create_connection(("example.invalid", 80))
    except OSError:
        pass

def after_a_library():
    import requests  # looks whether IPv6 is there
    raise ValueError("mine")

def after_an_attempt():
    _attempt()
    raise ValueError("mine")

def the_file_did_not_come():
    _attempt()
    open("weights.pth")

def in_its_own_words():
    try:
        import urllib.request
        urllib.request.urlopen("http://example.invalid/")
    except Exception as error:
        raise RuntimeError("cannot download") from error

def numeric():
    socket.create_connection(("192.0.2.1", 80), timeout=1)
"""


def hub(*arguments: str) -> Result:
    return CliRunner().invoke(cli.hub, list(arguments))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "mine"
    made.mkdir()
    (made / "hubconf.py").write_text(HUBCONF)
    return made


def statuses(document: dict[str, Any]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in document["results"]:
        found.setdefault(row["entrypoint"], []).append(row["status"])
    return found


P, F, S = "passed", "failed", "skipped"
STAGES = {
    "OrderedDict": [S],
    "a_dict": [P, P, P, S, S, S],
    "changes": [P, P, P, F, S, S],
    "dies_in_forward": [P, P, P, P, F, S],
    "exits": [P, P, F, S, S, S],
    "frozen": [P, P, P, P, P, S],
    "good": [P, P, P, P, P, P],
    "killed": [P, P, F, S, S, S],
    "needs": [P, P, S, S, S, S],
    "online": [P, P, "needs-network", S, S, S],
    "raises": [P, P, F, S, S, S],
    "tokens": [P, P, P, P, F, S],
    "untrainable": [P, P, P, P, P, F],
}


@pytest.mark.long
def test_a_whole_repository(folder, tmp_path) -> None:
    junit = tmp_path / "junit.xml"
    result = hub(
        "--json",
        "check",
        str(folder),
        "--input-shape",
        "2,3,8,8",
        "--backward",
        "--junit",
        str(junit),
        "--jobs",
        "2",
    )
    assert result.exit_code == 1, result.output
    document = json.loads(result.stdout)
    expected = dict(STAGES)
    if document["sandbox"] not in sandbox.reasons():  # nothing here takes the network away
        expected["online"] = [P, P, F, S, S, S]
    assert statuses(document) == expected, result.stdout
    kinds = [row["status"] for row in document["results"]]
    assert document["passed"] == kinds.count("passed")
    assert document["failed"] == kinds.count("failed")
    assert document["skipped"] == kinds.count("skipped") + kinds.count("needs-network")
    _check_what_the_failures_say(document)
    _check_junit(document, junit)


def test_an_error_after_some_socket_is_an_error(tmp_path) -> None:
    (tmp_path / "hubconf.py").write_text(NETWORK)
    result = hub("--json", "check", str(tmp_path), "--sandbox=best-effort")
    document = json.loads(result.stdout)
    if document["sandbox"] not in sandbox.reasons():  # nothing here takes the network away
        pytest.skip("no sandbox here")
    built = {row["entrypoint"]: row["status"] for row in document["results"] if row["stage"] == "build"}
    assert built == {
        "after_a_library": F,
        "after_an_attempt": F,
        "in_its_own_words": "needs-network",
        "numeric": "needs-network",
        "the_file_did_not_come": "needs-network",
    }, result.stdout
    assert result.exit_code == 1


def _check_what_the_failures_say(document: dict[str, Any]) -> None:
    said = {
        row["entrypoint"]: row["error"]
        for row in reversed(document["results"])
        if row["status"] in ("failed", "needs-network")
    }
    assert said["raises"].startswith("hubconf.py:24: ValueError: no [31mluck")
    assert said["exits"] == "the code ended the process with status 0"
    assert said["killed"] == "killed by SIGKILL"
    assert said["dies_in_forward"] == "the code ended the process with status 7"
    assert "loses" in said["changes"]
    assert said["untrainable"] == "no output depends on a parameter: there is nothing to train"
    assert "example.invalid" in said["online"]
    needs = [row for row in document["results"] if row["entrypoint"] == "needs"][2]
    assert "it needs arguments" in needs["error"] and "width" in needs["error"]


def _check_junit(document: dict[str, Any], junit: Path) -> None:
    """What GitHub's reporters and GitLab read: counts, classname, name, time, failure, skipped."""
    root = ElementTree.parse(junit).getroot()
    (suite,) = root
    assert (root.tag, suite.tag, suite.get("name")) == ("testsuites", "testsuite", "mine")
    cases = list(suite)
    assert len(cases) == len(document["results"]) == int(suite.get("tests", 0))
    assert int(suite.get("failures", 0)) == document["failed"] == len(suite.findall(".//failure"))
    assert int(suite.get("skipped", 0)) == document["skipped"] == len(suite.findall(".//skipped"))
    for case, row in zip(cases, document["results"]):
        assert case.get("classname") == f"mine.{row['entrypoint']}"
        assert case.get("name") == f"{row['entrypoint']}: {row['stage']}"
        assert float(case.get("time", -1)) >= 0
    assert len({(case.get("classname"), case.get("name")) for case in cases}) == len(cases)
    text = junit.read_text()
    assert "&lt;&amp;&gt;" in text and "\x1b" not in text and "\x00" not in text


def test_for_people(folder) -> None:
    result = hub("check", str(folder), "good", "raises")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["entrypoint", "stage", "status", "time"]
    assert "ValueError: no" in result.stdout and "\x1b" not in result.stdout
    assert "sandbox: " in result.stderr


def test_all_well_is_status_0(folder, monkeypatch) -> None:
    monkeypatch.chdir(folder)
    result = hub("--json", "check", ".", "good")
    assert result.exit_code == 0, result.output
    made = json.loads(result.stdout)
    assert (made["passed"], made["failed"], made["skipped"]) == (4, 0, 0)
    assert sorted(path.name for path in folder.iterdir()) == ["hubconf.py"]


@pytest.mark.long
def test_what_hangs_is_ended(folder) -> None:
    (folder / "hubconf.py").write_text("import time\ndef f():\n    time.sleep(600)\n")
    result = hub("--json", "check", str(folder), "--timeout", "8")
    assert result.exit_code == 1, result.output
    (row,) = [row for row in json.loads(result.stdout)["results"] if row["status"] == "failed"]
    assert (row["stage"], row["error"]) == ("build", "not done after 8 s (--timeout)")
    assert 7.9 <= row["seconds"] < 60


def test_without_a_sandbox(folder) -> None:
    result = hub("--json", "check", str(folder), "good", "--no-sandbox")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["sandbox"] == "none"
    assert "sandbox" not in result.stderr


def test_arguments_that_no_signature_takes_are_refused_before_anybody_is_asked(model) -> None:
    result = hub("--json", "check", "o/m:v1", "several", "-k", "colour=1")
    error = json.loads(result.stdout)["error"]
    assert (result.exit_code, error["code"]) == (2, "usage"), result.output
    assert error["message"] == "several: got an unexpected keyword argument 'colour'"
    assert error["hint"] == "its signature is several()"


def test_arguments_reach_every_entrypoint(folder) -> None:
    made = json.loads(hub("--json", "check", str(folder), "needs", "-k", "width=2").stdout)
    assert statuses(made)["needs"] == [P, P, P, P]
    result = hub("--json", "check", str(folder), "needs")
    assert (result.exit_code, statuses(json.loads(result.stdout))["needs"][2]) == (1, "failed")


@pytest.mark.parametrize(
    ("text", "stage", "error"),
    [
        ("def f(:\n", "read", "hubconf.py:1"),
        ("x = 1\n", "read", "it defines no entrypoint"),
        ("dependencies = ['nope_nope']\ndef f():\n    pass\n", "dependencies", "nope_nope"),
        ("import nope_nope\ndef f():\n    pass\n", "build", "nope_nope"),
        ("for n in 'a':\n    globals()[n] = lambda: 1 / 0\n", "build", "ZeroDivisionError"),
    ],
)
def test_failures_before_the_model(folder, text, stage, error) -> None:
    (folder / "hubconf.py").write_text(text)
    result = hub("--json", "check", str(folder))
    assert result.exit_code == 1, result.output
    failed = [row for row in json.loads(result.stdout)["results"] if row["status"] == "failed"]
    assert [row["stage"] for row in failed] == [stage]
    assert error in failed[0]["error"]


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--backward"], 2, "--backward needs an input"),
        (["--input-shape", "1,x"], 2, "--input-shape '1,x'"),
        (["--input-shape", "1,2:object"], 2, "--input-shape"),
        (["--input-shape", "99999,99999"], 2, "elements"),
        (["--junit", "nowhere/x.xml"], 2, "there is no folder nowhere"),
        (["nope"], 3, "Cannot find callable nope in hubconf"),
        (["--jobs", "0"], 2, "--jobs"),
    ],
)
def test_usage(folder, arguments, status, message) -> None:
    result = hub("--json", "check", str(folder), *arguments)
    assert result.exit_code == status, result.output
    assert message in json.loads(result.stdout)["error"]["message"]


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


def test_a_remote_repository_needs_trust_and_gets_its_weights(model, files) -> None:
    result = hub("--json", "check", "o/m:v1", "net")
    assert (result.exit_code, json.loads(result.stdout)["error"]["code"]) == (7, "untrusted")
    given = ("-k", f"url={model.url}", "--trust", "once", "--sandbox=best-effort")
    result = hub("--json", "check", "o/m:v1", "net", "--input-shape", "1,2", *given)
    assert result.exit_code == 0, result.output
    assert len(files.requests) == 1
    junit_name = json.loads(result.stdout)["results"][0]["entrypoint"]
    assert junit_name == "net"


def test_a_remote_repository_without_any_sandbox_is_refused(model, monkeypatch) -> None:
    monkeypatch.setattr(sandbox, "reasons", lambda: {"bubblewrap": "no", "landlock": "none"})
    result = hub("--json", "check", "o/m:v1", "net", "--trust", "once")
    assert result.exit_code == 1
    error = json.loads(result.stdout)["error"]
    assert "this machine has no sandbox" in error["message"]
    assert "--sandbox=best-effort" in error["hint"]


@pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")
def test_list_exec_is_sandboxed(folder, tmp_path) -> None:
    proof = tmp_path / "home" / "ran"
    (folder / "hubconf.py").write_text(
        f"import os\ntry:\n    os.mkdir({str(proof)!r})\nexcept OSError:\n    pass\n"
        "for n in 'ab':\n    globals()[n] = lambda: n\n"
    )
    if all(sandbox.reasons().values()):
        pytest.skip(f"no sandbox here: {sandbox.reasons()}")
    result = hub("--json", "list", str(folder), "--exec")
    assert result.exit_code == 0, result.output
    assert [one["name"] for one in json.loads(result.stdout)["entrypoints"]] == ["a", "b"]
    assert not proof.exists()
    assert hub("list", str(folder), "--exec", "--no-sandbox").exit_code == 0
    assert proof.exists()


def test_load_and_run_in_a_sandbox(model, tmp_path) -> None:
    import numpy as np

    if all(sandbox.reasons().values()):
        pytest.skip(f"no sandbox here: {sandbox.reasons()}")
    np.save(tmp_path / "x.npy", np.ones((1, 2), np.float32))
    given = ["o/m:v1", "net", "-k", f"url={model.url}", "--trust", "once", "--sandbox"]
    loaded = json.loads(hub("--json", "load", *given).stdout)
    assert (loaded["parameters"], loaded["weights"][0]["file"]) == (6, model.weights)
    target = str(tmp_path / "y.npy")
    ran = hub("--json", "run", *given, "--input", str(tmp_path / "x.npy"), "--output", target)
    assert ran.exit_code == 0, ran.output
    assert np.load(target).tolist() == [[1.0, 1.0, 2.0]]
    pulled = hub("pull", "o/m:v1", "--weights", *given[1:])
    assert pulled.exit_code == 0 and f"weights: {model.weights}" in pulled.stderr


@pytest.mark.parametrize("option", ["--sandbox", "--sandbox=best-effort", "--no-sandbox"])
def test_the_option_never_takes_the_spec_for_its_value(folder, option, monkeypatch) -> None:
    monkeypatch.setattr(sandbox, "reasons", lambda: {"bubblewrap": "no", "landlock": "none"})
    result = hub("--json", "load", option, str(folder), "good")
    if option == "--sandbox":
        assert result.exit_code == 1
        assert "this machine has no sandbox" in json.loads(result.stdout)["error"]["message"]
    else:
        assert result.exit_code == 0, result.output
        assert ("best effort" in result.stderr) == ("best" in option)


def test_a_device_that_is_not_there_is_a_failure(tmp_path) -> None:
    import engine

    if engine.cuda.is_available():
        pytest.skip("there is one")
    (tmp_path / "hubconf.py").write_text("from torch import nn\n\n\ndef net():\n    return nn.Linear(2, 2)\n")
    result = CliRunner().invoke(cli.hub, ["--json", "check", str(tmp_path), "--device", "cuda", "--sandbox=off"])
    rows = [row for row in json.loads(result.stdout)["results"] if row["status"] == "failed"]
    assert result.exit_code != 0 and "--device 'cuda': device 'cuda' " in rows[0]["error"]
