"""`hub deps`: what is there, by what, and the command for the rest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from hubcli import cli


def hub(*arguments: str):
    return CliRunner().invoke(cli.hub, list(arguments))


@pytest.fixture
def folder(tmp_path: Path):
    def write(*names: str) -> str:
        (tmp_path / "hubconf.py").write_text(f"dependencies = {list(names)}\nraise SystemExit\n")
        return str(tmp_path)

    return write


def test_all_is_there(folder):
    result = hub("--json", "deps", folder("torch", "json"))
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == {
        "schema_version": 1,
        "dependencies": [
            {"name": "torch", "satisfied": True, "provided_by": "engine"},
            {"name": "json", "satisfied": True, "provided_by": "stdlib"},
        ],
        "install": None,
    }


def test_something_is_missing(folder):
    result = hub("deps", folder("torch", "nope"))
    assert result.exit_code == 8
    assert "nope   missing" in result.stdout
    assert result.stdout.endswith("run: python -m pip install nope\n")
    made = json.loads(hub("--json", "deps", folder("nope")).stdout)
    assert made["install"] == "python -m pip install nope"


def test_what_needs_torch(folder):
    result = hub("deps", folder("torchmetrics"))
    assert result.exit_code == 8
    assert "--framework torch" in result.stderr


def test_none(folder):
    result = hub("deps", folder())
    assert (result.exit_code, result.stdout) == (0, "it declares no dependencies\n")
