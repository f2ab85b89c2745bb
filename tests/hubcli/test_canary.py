"""A repository that leaves a file wherever its code runs: which commands run it, and which never do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from hubcli.terminal import cli
from tests.servers import Repository, git_server

# Every way into the code: the hubconf, a module that it imports, a package, a star import, a
# decorator, a default value, a class body, a metaclass, an f-string in `dependencies`.
HUBCONF = """
open({canary!r}, "a").write("hubconf\\n")
import helpers
from package import *
from helpers import made

dependencies = ["torch", f"{{open({canary!r}, 'a').write(' dependency ')}}"][:1]


class Meta(type):
    def __new__(mcls, *args):
        open({canary!r}, "a").write("metaclass\\n")
        return super().__new__(mcls, *args)


class Model(metaclass=Meta):
    open({canary!r}, "a").write("class\\n")


@made
def net(value=open({canary!r}, "a").write("default\\n")):
    '''A network.'''
    import torch
    open({canary!r}, "a").write("called\\n")
    return torch.nn.Linear(2, 2)
"""
HELPERS = """
open({canary!r}, "a").write("helpers\\n")


def made(function):
    open({canary!r}, "a").write("decorator\\n")
    return function
"""


@pytest.fixture
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """`o/canary` at the tag v1 on a real server, and the file that its code leaves."""
    left = tmp_path / "canary"
    repository = Repository.create(tmp_path / "served", "o/canary")
    text = HELPERS.format(canary=str(left))
    files = {
        "hubconf.py": HUBCONF.format(canary=str(left)),
        "helpers.py": text,
        "package/__init__.py": text + "__all__ = ['made']\n",
        "setup.py": text,
        "conftest.py": text,
        "sitecustomize.py": text,
        "torch.py": text,
    }
    repository.commit(files, tag="v1")
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "http")
    monkeypatch.chdir(tmp_path)
    np.save(tmp_path / "x.npy", np.ones((1, 2), np.float32))
    with git_server(tmp_path / "served") as served:
        monkeypatch.setenv("HUB_GIT_URL", f"{served.url}/{{owner}}/{{repo}}.git")
        yield left


def hub(*arguments: str) -> Result:
    return CliRunner().invoke(cli.hub, ["--json", *arguments])


STATIC = (
    ["pull", "o/canary:v1"],
    ["pull", "o/canary:v1", "--force-reload"],
    ["list", "o/canary:v1"],
    ["list"],
    ["help", "o/canary:v1", "net"],
    ["show", "o/canary:v1"],
    ["deps", "o/canary:v1"],
    ["lock", "o/canary:v1"],
    ["sync"],
    ["outdated"],
    ["cache", "ls"],
    ["cache", "verify"],
    ["trust", "ls"],
    ["env"],
)


def test_reading_commands_execute_nothing(canary: Path) -> None:
    for arguments in STATIC:
        result = hub(*arguments)
        assert result.exit_code == 0, (arguments, result.output)
        assert not canary.exists(), (arguments, canary.read_text())


EXECUTING = (
    ["load", "o/canary:v1", "net"],
    ["load", "o/canary:v1", "net", "--sandbox"],
    ["run", "o/canary:v1", "net", "--input", "x.npy"],
    ["pull", "o/canary:v1", "--weights", "net"],
    ["check", "o/canary:v1"],
    ["check", "o/canary:v1", "--no-sandbox"],
    ["profile", "o/canary:v1", "net", "--input-shape", "1,2"],
    ["list", "o/canary:v1", "--exec"],
    ["help", "o/canary:v1", "net", "--exec"],
)


def test_executing_commands_run_nothing_untrusted(canary: Path) -> None:
    for arguments in EXECUTING:
        result = hub(*arguments)
        assert result.exit_code == 7, (arguments, result.output)
        assert json.loads(result.stdout)["error"]["code"] == "untrusted"
        assert not canary.exists(), (arguments, canary.read_text())


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # it leaves its files open
def test_the_canary_sings_when_it_is_trusted(canary: Path) -> None:
    result = hub("load", "o/canary:v1", "net", "--trust", "once")
    assert result.exit_code == 0, result.output
    sung = canary.read_text().split()
    assert {"hubconf", "helpers", "decorator", "metaclass", "class", "default", "called"} <= {*sung}
