"""`hub show`: all that is known, without execution."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

import hubcli
from hubcli.errors import NotFoundError
from hubcli.terminal import cli
from tests.servers import Repository

HUBCONF = "dependencies = ['numpy']\nraise SystemExit\ndef net():\n    'A net.'\n"


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "file")
    monkeypatch.setenv("HUB_GIT_URL", f"file://{tmp_path}/served/{{owner}}/{{repo}}.git")
    repo = Repository.create(tmp_path / "served", "o/r")
    repo.commit({"hubconf.py": HUBCONF}, tag="v1")
    return repo


def test_document(repo: Repository) -> None:
    result = CliRunner().invoke(cli.hub, ["--json", "show", "o/r:v1"])
    assert result.exit_code == 0, result.output
    made = json.loads(result.stdout)
    assert made.pop("checked_at") >= made.pop("fetched_at") > 0 and Path(made.pop("path")).is_dir()
    assert made == {
        "schema_version": 1,
        "spec": "o/r:v1",
        "url": f"file://{repo.bare}",
        "ref": "v1",
        "kind": "tag",
        "commit": repo.git("rev-parse", "HEAD"),
        "tree": repo.git("rev-parse", "HEAD^{tree}"),
        "size": len(HUBCONF),
        "entrypoints": ["net"],
        "dependencies": ["numpy"],
        "weights": [],
        "trust": "untrusted",
    }


def test_for_people(repo: Repository) -> None:
    for spec, trust in (("o/r:v1", "untrusted"), (str(repo.work), "local")):
        result = CliRunner().invoke(cli.hub, ["show", spec])
        assert result.exit_code == 0, result.output
        assert f"trust         {trust}" in result.stdout
        assert "entrypoints   net" in result.stdout


def test_a_branch_that_was_not_asked_for_in_a_month(repo: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    repo.commit({"hubconf.py": "def net():\n    pass\n"})
    CliRunner().invoke(cli.hub, ["pull", "o/r"])
    load = lambda *words: CliRunner().invoke(cli.hub, [*words, "load", "o/r", "net", "--trust", "once"]).stderr
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 29 * 86400)
    assert "this copy" not in load()
    monkeypatch.setattr(time, "time", lambda: now + 31 * 86400)
    assert "this copy of branch main was checked 31 days ago, `hub pull o/r --force-reload` fetches it anew" in load()
    assert "this copy" not in load("--offline") and "this copy" not in load("-q")


def test_the_age_of_a_branch(repo: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    repo.commit({"hubconf.py": "def net():\n    pass\n"})
    CliRunner().invoke(cli.hub, ["pull", "o/r"])
    repo.commit({"hubconf.py": "def net():\n    pass\n" + "\n\ndef newer():\n    pass\n"})
    later = time.time() + 3 * 86400 + 60
    monkeypatch.setattr(time, "time", lambda: later)
    shown = CliRunner().invoke(cli.hub, ["show", "o/r"]).stdout
    assert [line.split()[0] for line in shown.splitlines() if "(3 days ago)" in line] == ["fetched_at", "checked_at"]
    listed = CliRunner().invoke(cli.hub, ["list", "o/r"])
    assert listed.stderr.startswith("cached: branch main at ")
    assert "checked 3 days ago; --force-reload fetches anew" in listed.stderr
    assert CliRunner().invoke(cli.hub, ["list", "o/r:v1"]).stderr == ""
    advice = "this copy of branch main was checked 3 days ago, `hub pull o/r --force-reload` fetches it anew"
    commands: list[list[str]] = [
        ["load", "o/r", "newer", "--trust", "once"],
        ["help", "o/r", "newer"],
        ["check", "o/r", "newer", "--trust", "once"],
        ["profile", "o/r", "newer", "--input-shape", "1", "--trust", "once"],
        ["pull", "o/r", "--weights", "newer"],
    ]
    for command in commands:
        result = CliRunner().invoke(cli.hub, command)
        assert (result.exit_code, advice in result.stderr) == (3, True), (command, result.stderr)
    tag = CliRunner().invoke(cli.hub, ["help", "o/r:v1", "newer"])
    assert tag.exit_code == 3 and "--force-reload" not in tag.stderr
    for call in (hubcli.load, hubcli.help):
        with pytest.raises(NotFoundError) as caught:
            call("o/r", "newer", trust_repo=True)
        assert advice in caught.value.hint
    fresh = CliRunner().invoke(cli.hub, ["load", "o/r", "none", "--force-reload", "--trust", "once"])
    assert fresh.exit_code == 3 and "this copy" not in fresh.stderr  # it is what the branch is now
