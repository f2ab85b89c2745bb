"""`sys.argv` while repository code runs: the path of its hubconf.py alone, in every command and every process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

import hubcli
from hubcli.base.spec import RepoSpec
from hubcli.cache.cache import Cache
from hubcli.errors import RepositoryCodeError
from hubcli.running import argv, invoke
from hubcli.terminal import cli

HUBCONF = '''
dependencies = ["torch"]
import argparse, os, sys
import torch
from torch import nn

AT_IMPORT = list(sys.argv)


def _options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=3)
    return parser.parse_args()


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, 1)

    def forward(self, x):
        assert _options().width == 3
        return self.layer(x)

    def state_dict(self, *args, **kwargs):
        _options()
        return super().state_dict(*args, **kwargs)


def net():
    """A model whose size comes from a command line."""
    here = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "hubconf.py")]
    assert sys.argv == AT_IMPORT == here, sys.argv
    return Net(_options().width)


def changes():
    sys.argv.append("--more")
    sys.argv = ["other", "words"]
    return net


def needs():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    return parser.parse_args()


def inner(path):
    before = list(sys.argv)
    torch.hub.load(path, "net", source="local")
    assert sys.argv == before, sys.argv
    return Net(3)


def _kept(queue):
    queue.put(sys.argv)


def spawned():
    import torch.multiprocessing as mp

    context = mp.get_context("spawn")
    queue = context.Queue()
    child = context.Process(target=_kept, args=(queue,))
    child.start()
    assert queue.get() == sys.argv
    child.join()
    return Net(3)
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "mine"
    made.mkdir()
    (made / "hubconf.py").write_text(HUBCONF)
    return made


def hub(*words: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own: its arguments are in `sys.argv` as a user's are."""
    root = str(Path(hubcli.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "hubcli", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.long
def test_every_command(folder, tmp_path) -> None:
    import numpy as np

    np.save(tmp_path / "x.npy", np.ones((1, 3), np.float32))
    spec, shape = str(folder), ("--input-shape", "1,3")
    for words in (
        ("load", spec, "net", "--save", str(tmp_path / "s.safetensors")),
        ("run", spec, "net", "--input", str(tmp_path / "x.npy")),
        ("run", spec, "net", "--input", str(tmp_path / "x.npy"), "--max-memory", "20GB"),
        ("check", spec, "net", *shape, "--no-sandbox"),
        ("profile", spec, "net", *shape),
        ("export", spec, "net", *shape, "-o", str(tmp_path / "net.onnx")),
        ("list", spec, "--exec", "--no-sandbox"),
        ("pull", spec, "--weights", "net"),
    ):
        done = hub(*words)
        assert done.returncode == 0, (words, done.stderr)


def test_a_spawned_process_and_a_nested_load(folder, tmp_path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "hubconf.py").write_text(HUBCONF)
    for words in (("spawned",), ("inner", "-k", f"path={other}")):
        done = hub("load", str(folder), *words)
        assert done.returncode == 0, done.stderr


def test_python_gets_its_own_back(folder, monkeypatch) -> None:
    mine = ["train.py", "--lr", "0.1"]
    monkeypatch.setattr(sys, "argv", mine)
    model = hubcli.load(str(folder), "net", source="local")
    assert sys.argv is mine and mine == ["train.py", "--lr", "0.1"]
    hubcli.load(str(folder), "changes", source="local")
    assert sys.argv is mine and mine == ["train.py", "--lr", "0.1"]
    with pytest.raises(SystemExit):
        hubcli.load(str(folder), "needs", source="local")
    assert sys.argv is mine
    with pytest.raises(SystemExit):  # the program's own call: as with torch.hub
        model(hubcli_input())


def hubcli_input():
    import engine

    return engine.ones(1, 3)


def test_calls_that_overlap(monkeypatch) -> None:
    mine = ["own"]
    monkeypatch.setattr(sys, "argv", mine)
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with argv.of(Path("/b/hubconf.py")):
            entered.set()
            leave.wait()

    with argv.of(Path("/a/hubconf.py")):
        thread = threading.Thread(target=other)
        thread.start()
        entered.wait()
    assert sys.argv == [str(Path("/b/hubconf.py"))]  # the first to begin has ended, the other runs on
    leave.set()
    thread.join()
    assert sys.argv is mine


def test_what_argparse_refuses_is_one_sentence(folder) -> None:
    checkout = Cache.current().checkout(RepoSpec.parse(str(folder)))
    with pytest.raises(RepositoryCodeError) as caught:
        invoke.call(checkout, "needs", command=True)
    line = HUBCONF.splitlines().index("    return parser.parse_args()", 45) + 1
    assert str(caught.value) == (
        f"hubconf.py:{line}: SystemExit: the code reads a command line, and there is none here: the following "
        "arguments are required: --data"
    )
    result = CliRunner().invoke(cli.hub, ["--json", "check", str(folder), "needs", "--no-sandbox"])
    failed = [row for row in json.loads(result.stdout)["results"] if row["status"] == "failed"]
    assert result.exit_code == 1 and "reads a command line" in failed[0]["error"]
