"""`hub new`: a repository that passes `hub check`, and a workflow that runs it."""

from __future__ import annotations

import json
import re

import pytest
from click.testing import CliRunner

from hubcli import cli, scaffold
from hubcli.reading import hubconf


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
