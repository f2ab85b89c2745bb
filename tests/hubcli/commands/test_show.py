"""`hub show`: all that is known, without execution."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from hubcli import cli
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
    assert made.pop("fetched_at") > 0 and Path(made.pop("path")).is_dir()
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
