"""Hints that name what is cached."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

import hubcli
from hubcli.base.spec import RepoSpec
from hubcli.cache import suggestions
from hubcli.cache.cache import Cache
from hubcli.errors import RepositoryNotFoundError
from hubcli.terminal import cli


def hub(*arguments: str):
    return CliRunner().invoke(cli.hub, list(arguments))


@pytest.fixture
def cached(sample_server):
    assert hub("pull", "o/r:v1").exit_code == 0


def test_like(cached):
    found = {
        text: suggestions.like(Cache.current().path, RepoSpec.parse(text))
        for text in ("o/r:v2", "p/r", "o/rr", "other/thing")
    }
    assert found == {
        "o/r:v2": "cached of it: o/r:v1",
        "p/r": "did you mean o/r, which is cached?",
        "o/rr": "did you mean o/r, which is cached?",
        "other/thing": None,
    }


def test_in_errors(cached):
    assert "cached of it: o/r:v1" in hub("--offline", "list", "o/r:v2").stderr
    result = hub("list", "p/r")
    assert result.exit_code == 3
    assert "did you mean o/r, which is cached?" in result.stderr
    result = hub("list", "o/r:v2")
    assert result.exit_code == 3
    assert result.stderr.splitlines()[1] == "hint: did you mean v1?"


def test_in_python(cached):
    with pytest.raises(RepositoryNotFoundError) as caught:
        hubcli.load("p/r", "thing", trust_repo=True)
    (note,) = caught.value.__notes__
    assert note.startswith("hint: ") and note.endswith("did you mean o/r, which is cached?")
    with pytest.raises(hubcli.errors.NotFoundError) as missing:
        hubcli.load("o/r:v1", "thingy", trust_repo=True)
    with pytest.raises(hubcli.errors.NotFoundError) as unknown:
        hubcli.help("o/r:v1", "thingy", trust_repo=True)
    for error in (missing.value, unknown.value):
        assert error.__notes__[0].startswith("hint: did you mean thing")


def test_a_folder_that_looks_like_a_repository(tmp_path, monkeypatch):
    (tmp_path / "own" / "net").mkdir(parents=True)
    (tmp_path / "own" / "net" / "hubconf.py").write_text("")
    monkeypatch.chdir(tmp_path)
    assert "the folder here is written ./own/net" in hub("--offline", "list", "own/net").stderr
