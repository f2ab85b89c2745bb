"""Tags that move and branches that hide them: refused, with both values and the way to accept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hubcli.base import settings
from hubcli.base.request import Request
from hubcli.base.spec import RepoSpec
from hubcli.cache import first_seen
from hubcli.cache.cache import Cache
from hubcli.errors import IntegrityError
from hubcli.terminal import cli
from tests.servers import Repository


def tag() -> RepoSpec:
    return RepoSpec.parse("o/r:v1")


def hub(*arguments: str) -> Result:
    return CliRunner().invoke(cli.hub, list(arguments))


@pytest.fixture
def moved(sample: Repository, sample_server) -> tuple[str, str]:
    """`v1` has moved after it was pulled: where it was, where it is."""
    first = Cache.current().checkout(tag()).commit
    sample.commit({"more.py": ""})
    sample.git("tag", "-f", "v1")
    sample.push()
    return str(first), sample.git("rev-parse", "HEAD")


def test_a_tag_that_moved_is_refused(moved):
    first, now = moved
    for _ in range(2):  # --force-reload alone never accepts it
        result = hub("pull", "o/r:v1", "--force-reload")
        assert (result.exit_code, result.stdout) == (6, "")
        assert first in result.stderr and now in result.stderr
        assert "to accept it: hub pull o/r:v1 --accept-changed" in result.stderr
    assert Cache.current().checkout(tag()).commit == first  # the old one stays in use


def test_the_record_outlives_the_cache(moved):
    first, now = moved
    assert hub("cache", "rm", "o/r", "--yes").exit_code == 0
    assert hub("cache", "prune", "--grace", "0s").exit_code == 0
    with pytest.raises(IntegrityError, match=f"{first}.*has moved to {now}"):
        Cache.current().checkout(tag())
    assert Cache.current().lookup(tag()) is None
    with pytest.raises(IntegrityError):  # by another name
        Cache.current().checkout(RepoSpec.parse("o/r:refs/tags/v1"))
    assert Cache.current().checkout(RepoSpec.parse(f"o/r:{now}")).commit == now  # a commit is what it is


def test_it_can_be_accepted(moved):
    first, now = moved
    result = hub("--json", "pull", "o/r:v1", "--accept-changed")
    assert json.loads(result.stdout)["commit"] == now
    assert first in result.stderr and "accepted" in result.stderr
    assert hub("pull", "o/r:v1", "--force-reload").exit_code == 0
    assert first_seen.find("tag", tag().url, "v1").value == now


def test_a_moved_tag_is_not_the_trusted_commit(moved):
    first, _ = moved
    assert hub("trust", "add", f"o/r:{first}").exit_code == 0
    assert hub("load", "o/r:v1", "thing").exit_code == 0
    assert hub("pull", "o/r:v1", "--accept-changed").exit_code == 0
    assert hub("load", "o/r:v1", "thing").exit_code == 7


def test_a_branch_does_not_pass_for_the_tag_that_was_seen(sample, sample_server):
    first = Cache.current().checkout(tag()).commit
    sample.git("checkout", "-q", "-b", "v1")
    now = sample.commit({"more.py": ""})
    result = hub("pull", "o/r:v1", "--force-reload")
    assert result.exit_code == 6
    assert f"{first} (seen " in result.stderr and f"a branch of that name is at {now}" in result.stderr
    assert "write o/r:refs/tags/v1 for the tag, o/r:refs/heads/v1 for the branch" in result.stderr
    assert hub("pull", "o/r:refs/tags/v1").exit_code == 0
    assert hub("pull", "o/r:refs/heads/v1").exit_code == 0


def test_branches_move_freely(sample, sample_server):
    Cache.current().checkout(RepoSpec.parse("o/r"))
    for number in range(2):
        now = sample.commit({"more.py": str(number)})
        assert Cache.current().checkout(RepoSpec.parse("o/r"), Request.current(reload=True)).commit == now
        assert Cache.current().checkout(RepoSpec.parse("o/r:main"), Request.current(reload=True)).commit == now


def test_a_name_that_a_shell_would_run_is_quoted(sample, sample_server):
    sample.git("tag", "v1$(date)")
    sample.push()
    spec = RepoSpec.parse("o/r:v1$(date)")
    Cache.current().checkout(spec)
    sample.commit({"more.py": ""})
    sample.git("tag", "-f", "v1$(date)")
    sample.push()
    with pytest.raises(IntegrityError) as caught:
        Cache.current().checkout(spec, Request.current(reload=True))
    assert "hub pull 'o/r:v1$(date)' --accept-changed" in str(caught.value.hint)


@pytest.mark.parametrize("content", ["{", "[]", '{"schema": 9}', '{"schema": 1, "value": 3}'])
def test_a_damaged_record_counts_as_none_and_says_so(moved, content, capsys):
    file: Path = first_seen.file("tag", tag().url, "v1")
    file.write_text(content)
    assert Cache.current().checkout(tag(), Request.current(reload=True)).commit == moved[1]
    assert f"{file} is damaged" in capsys.readouterr().err
    assert first_seen.find("tag", tag().url, "v1").value == moved[1]


def test_seen_twice_is_seen_first(sample_server):
    Cache.current().checkout(tag())
    file = first_seen.file("tag", tag().url, "v1")
    document = json.loads(file.read_text())
    document["when"] = "2026-01-01T00:00:00Z"
    file.write_text(json.dumps(document))
    Cache.current().checkout(tag(), Request.current(reload=True))
    with settings.overriding(accept_changed=True):
        Cache.current().checkout(tag(), Request.current(reload=True))
    assert first_seen.find("tag", tag().url, "v1").when == "2026-01-01T00:00:00Z"
