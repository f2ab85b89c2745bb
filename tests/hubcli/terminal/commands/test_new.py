"""`hub new`: a repository that passes `hub check`, and a workflow that runs it."""

from __future__ import annotations

import json
import os
import re
import subprocess

import pytest
import yaml
from click.testing import CliRunner

from hubcli.base import provenance
from hubcli.errors import HubError
from hubcli.reading import hubconf
from hubcli.terminal import cli
from hubcli.workflows import scaffold


def hub(*arguments: str):
    return CliRunner().invoke(cli.hub, list(arguments))


def test_it_passes_hub_check(tmp_path):
    result = hub("--json", "new", str(tmp_path / "models"))
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["files"] == list(scaffold.FILES)
    result = hub("--json", "check", str(tmp_path / "models"), "--input-shape", "1,3,32,32", "--backward")
    assert result.exit_code == 0, result.output
    made = json.loads(result.stdout)
    assert (made["passed"], made["failed"], made["skipped"]) == (6, 0, 0)


def test_its_workflow_runs_the_check(tmp_path):
    created = scaffold.create(tmp_path / "models")
    text = (created.path / ".github/workflows/hub-check.yml").read_text()
    (command,) = re.findall(r"run: (hub check .*)", text)
    arguments = command.split()[1:]
    assert arguments[:2] == ["check", "."] and "--junit" in arguments
    context = cli.hub.make_context("hub", ["check", "--help"], resilient_parsing=True)
    check = cli.hub.get_command(context, "check")
    check.make_context("check", arguments[1:], parent=context)  # every option exists
    assert "\t" not in text and "{" not in text.replace("${{", "")
    assert text.count("if: ${{ !cancelled()") == 2  # the report is wanted when the check fails


def test_what_it_writes_is_read_statically(tmp_path):
    created = scaffold.create(tmp_path / "my models")
    conf = hubconf.read(created.path)
    assert [entry.name for entry in conf.entrypoints] == ["net"]
    assert not conf.dynamic
    assert (created.path / "README.md").read_text().startswith("# my-models\n")
    assert "{name}" not in (created.path / "README.md").read_text()


def git(folder, *command):
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(["git", *command], cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_it_is_a_repository(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))  # of a hook that hub runs in, say
    monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path))
    made = json.loads(hub("--json", "new", str(tmp_path / "models")).stdout)
    assert made["git"] and not (tmp_path / "elsewhere").exists()
    folder = tmp_path / "models"
    assert git(folder, "rev-parse", "--show-toplevel") == str(folder)
    assert git(folder, "symbolic-ref", "HEAD") == "refs/heads/main"
    assert git(folder, "config", "--get", "core.bare") == "false"
    assert set(git(folder, "ls-files", "-o", "--exclude-standard").split()) == set(scaffold.FILES)


def test_no_repository_in_a_repository(tmp_path):
    git(tmp_path, "init", "-q")
    result = hub("--json", "new", str(tmp_path / "a" / "models"))
    assert not json.loads(result.stdout)["git"] and f"is in the repository {tmp_path}" in result.stderr
    assert not (tmp_path / "a" / "models" / ".git").exists()
    assert not json.loads(hub("--json", "new", str(tmp_path / "plain"), "--no-git").stdout)["git"]


def test_without_git(tmp_path, monkeypatch):
    def fail(*arguments):
        raise HubError("git is not installed")

    monkeypatch.setattr("hubcli.net.git.process.launcher", fail)
    result = hub("--json", "new", str(tmp_path / "models"))
    assert result.exit_code == 0 and not json.loads(result.stdout)["git"]
    assert "no git init: git is not installed" in result.stderr


def test_the_owner_is_filled_in(tmp_path, isolated):
    result = hub("--json", "new", str(tmp_path / "nobody"))
    assert json.loads(result.stdout)["owner"] is None and "say OWNER" in result.stderr
    assert "`OWNER/nobody:v1.0`" in (tmp_path / "nobody" / "README.md").read_text()
    (isolated / ".gitconfig").write_text("[github]\n\tuser = octo-cat\n")
    assert json.loads(hub("--json", "new", str(tmp_path / "mine")).stdout)["owner"] == "octo-cat"
    assert "`octo-cat/mine:v1.0`" in (tmp_path / "mine" / "README.md").read_text()
    assert "github.com/octo-cat/mine/releases" in (tmp_path / "mine" / "hubconf.py").read_text()
    assert hub("new", str(tmp_path / "team"), "--owner", "team").exit_code == 0
    assert "`team/team:v1.0`" in (tmp_path / "team" / "README.md").read_text()
    result = hub("new", str(tmp_path / "bad"), "--owner", "a/../b")
    assert result.exit_code == 2 and "is no owner" in result.stderr and not (tmp_path / "bad").exists()


def test_ci_installs_hub_from_git(tmp_path, monkeypatch):
    """No package index has hub: whoever owns the name there must not run in anybody's CI."""

    def workflow(name, *options):
        assert hub("new", str(tmp_path / name), *options).exit_code == 0
        text = (tmp_path / name / ".github/workflows/hub-check.yml").read_text()
        (line,) = re.findall(r"pip install (.*)", text)
        return line

    assert workflow("a") == f'"hubcli[sandbox] @ {provenance.UNKNOWN}"'
    monkeypatch.setattr(provenance, "source", lambda: "git+https://forge.example/o/hub.git@abc")
    assert workflow("b") == '"hubcli[sandbox] @ git+https://forge.example/o/hub.git@abc"'
    given = "git+https://git.example/hub.git@v1"
    assert workflow("c", "--hub-source", given) == f'"hubcli[sandbox] @ {given}"'
    result = hub("new", str(tmp_path / "d"), "--hub-source", 'git+https://x/y"; rm -rf .')
    assert result.exit_code == 2 and not (tmp_path / "d").exists()


def test_the_workflow_is_yaml_with_a_kept_cache(tmp_path):
    created = scaffold.create(tmp_path / "models")
    document = yaml.safe_load((created.path / ".github/workflows/hub-check.yml").read_text())
    steps = document["jobs"]["check"]["steps"]
    (cache,) = [step for step in steps if step.get("uses", "").startswith("actions/cache@")]
    assert document["env"]["TORCH_HUB_DIR"] == "~/.torch/hub"
    assert cache["with"]["path"] == "${{ env.TORCH_HUB_DIR }}"
    assert steps[0]["with"]["persist-credentials"] is False


def test_an_empty_folder_will_do(tmp_path):
    (tmp_path / "empty").mkdir()
    assert hub("new", str(tmp_path / "empty")).exit_code == 0


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_nothing_is_overwritten(tmp_path, kind):
    taken = tmp_path / "taken"
    if kind == "file":
        taken.write_text("mine")
    else:
        taken.mkdir()
        (taken / ".hidden").write_text("mine")
    result = hub("--json", "new", str(taken))
    assert result.exit_code == 2
    assert str(taken) in json.loads(result.stdout)["error"]["message"]
    if kind == "file":
        assert taken.read_text() == "mine"
    else:
        assert [path.name for path in taken.iterdir()] == [".hidden"]
