"""`hub deps`: what is there, by what, and the command for the rest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from hubcli.terminal import cli
from tests.hubcli.wheels import only_these, wheel


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
            {"name": "torch", "satisfied": True, "provided_by": "engine", "declared": True, "note": None},
            {"name": "json", "satisfied": True, "provided_by": "stdlib", "declared": True, "note": None},
        ],
        "install": None,
        "installed": None,
    }


def test_something_is_missing(folder):
    result = hub("deps", folder("torch", "nope"))
    assert result.exit_code == 8
    assert "nope   missing" in result.stdout
    assert result.stdout.endswith("run: python -m pip install nope\n")
    made = json.loads(hub("--json", "deps", folder("nope")).stdout)
    assert made["install"] == "python -m pip install nope"


def test_what_needs_torch(folder):
    result = hub("deps", folder("fairseq"))
    assert result.exit_code == 8
    assert "--framework torch" in result.stderr


def test_imports_count_and_are_named(folder, tmp_path):
    spec = folder("torch")
    (tmp_path / "hubconf.py").write_text("import tabulate_x\ndependencies = ['torch']\n")
    result = hub("deps", spec)
    assert result.exit_code == 8
    assert "imported by hubconf.py:1, but not declared" in result.stdout
    assert result.stdout.endswith("run: python -m pip install tabulate_x\n")


@pytest.fixture
def links(tmp_path, monkeypatch):
    wheel(tmp_path / "links", "wantedpkg", requires=["smallpkg"])
    wheel(tmp_path / "links", "smallpkg")
    only_these(tmp_path / "links", tmp_path / "site", monkeypatch)


@pytest.mark.long
def test_install(folder, links):
    result = hub("--json", "deps", folder("torch", "wantedpkg"), "--install", "--yes")
    assert result.exit_code == 0, result.output
    assert " pip install --constraint " in result.stderr
    document = json.loads(result.stdout)
    assert document["installed"] == ["smallpkg 1.0", "wantedpkg 1.0"]
    assert (document["dependencies"][1]["provided_by"], document["install"]) == ("wantedpkg 1.0", None)
    again = hub("deps", folder("torch", "wantedpkg"), "--install")  # nothing to ask about
    assert (again.exit_code, again.stderr) == (0, "")


@pytest.mark.long
def test_install_fails(folder, links):
    result = hub("deps", folder("smallpkg", "fairseq", "absentpkg"), "--install", "--yes")
    assert result.exit_code == 8
    assert "nothing was installed" in result.stderr and "hint: see what the installer said" in result.stderr


@pytest.mark.long
@pytest.mark.parametrize(
    ("constraint", "status", "version"),
    [("torchvision<=0.29.1", 0, "0.29.1"), ("torchvision==0.29.3", 0, "0.29.3"), ("torchvision<0.15", 8, None)],
)
def test_install_obeys_the_users_constraints(folder, tmp_path, monkeypatch, constraint, status, version):
    for release in ("0.14.0", "0.29.1", "0.29.2", "0.29.3"):
        wheel(tmp_path / "links", "torchvision", release, requires=["torch==2.14"])
    only_these(tmp_path / "links", tmp_path / "site", monkeypatch)
    (tmp_path / "allowed.txt").write_text(constraint + "\n")
    monkeypatch.setenv("PIP_CONSTRAINT", str(tmp_path / "allowed.txt"))
    result = hub("--json", "deps", folder("torch", "torchvision"), "--install", "--yes")
    assert result.exit_code == status, result.output
    if version is not None:
        assert json.loads(result.stdout)["installed"] == [f"torchvision {version}"]
    if version != "0.29.1":
        assert f"refused here: your constraints say {constraint}" in result.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--install"], "there is no terminal"),
        (["--yes"], "--yes is for --install"),
        (["--system"], "--system is for --install"),
        (["--install", "--framework", "torch"], "never installs torch"),
    ],
)
def test_install_is_asked_for(folder, links, options, message):
    result = hub("deps", folder("wantedpkg"), *options)
    assert result.exit_code == 2
    assert message in result.stderr


def test_install_needs_a_virtual_environment(folder, links, monkeypatch):
    monkeypatch.setattr("hubcli.running.installer.in_virtual_environment", lambda: False)
    result = hub("deps", folder("wantedpkg"), "--install", "--yes")
    assert result.exit_code == 2
    assert "is not in a virtual environment; nothing was installed" in result.stderr
    assert "--system" in result.stderr


@pytest.mark.long
@pytest.mark.parametrize(("answer", "status"), [("y\n", 0), ("n\n", 1)])
def test_install_asks_at_a_terminal(folder, links, monkeypatch, answer, status):
    monkeypatch.setattr("hubcli.terminal.commands.deps._is_terminal", lambda: True)
    result = CliRunner().invoke(cli.hub, ["deps", folder("smallpkg"), "--install"], input=answer)
    assert result.exit_code == status, result.output
    assert "$ " in result.stderr and "Run this?" in result.stderr


def test_none(folder):
    result = hub("deps", folder())
    assert (result.exit_code, result.stdout) == (0, "it declares no dependencies\n")
