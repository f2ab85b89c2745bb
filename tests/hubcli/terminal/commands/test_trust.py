"""`hub trust`: list, add, remove."""

from __future__ import annotations

import json

from click.testing import CliRunner

from hubcli.terminal import cli


def hub(*arguments: str):
    return CliRunner().invoke(cli.hub, list(arguments))


def test_add_a_commit_then_run(sample, sample_server):
    assert hub("load", "o/r:v1", "thing").exit_code == 7
    made = json.loads(hub("--json", "trust", "add", "o/r:v1", "--commit").stdout)
    (entry,) = made["trusted"]
    assert set(entry) == {"spec", "url", "commit", "scope", "when"}
    assert (entry["spec"], entry["scope"]) == ("o/r", "commit")
    assert entry["commit"] == sample.git("rev-parse", "v1")
    assert hub("load", "o/r:v1", "thing").exit_code == 0
    sample.commit({"x": "y"}, tag="v2")
    assert hub("load", "o/r:v2", "thing").exit_code == 7


def test_add_a_repository_without_fetching_it(sample_server):
    result = hub("trust", "add", "o/r", "--repo")
    assert result.exit_code == 0, result.output
    assert sample_server.requests == []
    assert "any" in hub("trust", "ls").stdout
    assert hub("load", "o/r:v1", "thing").exit_code == 0


def test_remove(sample_server):
    assert hub("trust", "ls").stdout == "nothing is trusted but your own folders\n"
    assert hub("trust", "rm", "o/r").exit_code == 3
    hub("trust", "add", "o/r:v1")
    hub("trust", "add", "o/r", "--repo")
    assert len(json.loads(hub("--json", "trust", "ls").stdout)["trusted"]) == 2
    assert hub("trust", "rm", "o/r:v1", "--commit").exit_code == 0
    assert len(json.loads(hub("--json", "trust", "ls").stdout)["trusted"]) == 1
    assert hub("trust", "rm", "o/r").exit_code == 0
    assert json.loads(hub("--json", "trust", "ls").stdout)["trusted"] == []
    assert hub("trust", "rm", "o/r:nowhere", "--commit").exit_code == 2


def test_torchs_list_is_imported(sample_server, tmp_path):
    (tmp_path / "trusted_list").write_text("o_r\n")
    result = hub("--json", "trust", "import", str(tmp_path / "trusted_list"))
    assert result.exit_code == 0, result.output
    (entry,) = json.loads(result.stdout)["trusted"]
    assert (entry["spec"], entry["commit"], entry["scope"]) == ("o/r", None, "repo")
    assert hub("load", "o/r:v1", "thing").exit_code == 0
    again = hub("trust", "import", str(tmp_path / "trusted_list"))
    assert again.stdout == "nothing new in it\n"
    assert hub("trust", "import", str(tmp_path / "nowhere")).exit_code == 3


def test_the_command_that_an_error_names_allows_it(sample, sample_server):
    hint = hub("load", "o/r", "thing").stderr.splitlines()[-1]
    command = hint.partition("hub trust add ")[2].partition(" (or")[0]
    sample.commit({"x": "y"})  # the branch moves on; the consent is for what was seen
    assert hub("trust", "add", command).exit_code == 0
    assert hub("load", "o/r", "thing").exit_code == 0
    hub("pull", "o/r", "--force-reload")
    assert hub("load", "o/r", "thing").exit_code == 7


def test_folders_need_none(sample_folder):
    result = hub("trust", "add", str(sample_folder))
    assert result.exit_code == 2
    assert "folder of your own" in result.stderr


def test_a_folder_of_ones_own_needs_no_consent(sample_folder):
    result = hub("trust", "add", str(sample_folder))
    assert result.exit_code == 2 and "its code runs without consent" in result.output
