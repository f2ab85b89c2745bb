"""`hub list`: static, executed, and of the cache."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from hubcli.terminal import cli


def hub(*arguments: str):
    return CliRunner().invoke(cli.hub, list(arguments))


def test_for_people(sample_server):
    result = hub("list", "o/r:v1")
    assert result.exit_code == 0, result.output
    lines = [line.split(None, 1) for line in result.stdout.splitlines()]
    assert ["thing", "Make a thing."] in lines
    assert ["OrderedDict", "(from another package)"] in lines


def test_document(sample_server):
    result = hub("--json", "list", "o/r:v1")
    made = json.loads(result.stdout)
    assert (made["spec"], made["dependencies"], made["dynamic"]) == (
        "o/r:v1",
        ["torch", "json"],
        False,
    )
    assert {
        "name": "thing",
        "summary": "Make a thing.",
        "source": "def",
        "external": False,
    } in made["entrypoints"]
    assert [entry["name"] for entry in made["entrypoints"]] == sorted(entry["name"] for entry in made["entrypoints"])


def test_nothing_runs(sample, sample_server):
    sample.commit({"hubconf.py": "raise SystemExit(9)\ndef net(): pass\n"}, tag="v2")
    result = hub("list", "o/r:v2")
    assert (result.exit_code, result.stdout) == (0, "net\n")


def test_exec_needs_trust(sample, sample_server):
    text = "print('hello')\nexec('a = b = lambda: 1')\n"
    sample.commit({"hubconf.py": text}, tag="v2")
    result = hub("--json", "list", "o/r:v2")
    assert json.loads(result.stdout)["dynamic"] is True
    assert "--exec" in result.stderr
    result = hub("--json", "list", "o/r:v2", "--exec")
    assert (result.exit_code, json.loads(result.stdout)["error"]["code"]) == (7, "untrusted")
    result = hub("--json", "list", "o/r:v2", "--exec", "--trust", "once")
    assert result.exit_code == 0, result.output
    entries = json.loads(result.stdout)["entrypoints"]
    assert [(entry["name"], entry["source"]) for entry in entries] == [("a", "exec"), ("b", "exec")]
    assert "hello" in result.stderr


def test_options_of_exec_alone(sample_server):
    for option in (("--trust", "once"), ("--framework", "engine")):
        assert hub("list", "o/r:v1", *option).exit_code == 2
    assert hub("list", "--exec").exit_code == 2


def test_the_cache(sample_server):
    assert json.loads(hub("--json", "list").stdout) == {"schema_version": 1, "repos": []}
    hub("pull", "o/r:v1")
    (repo,) = json.loads(hub("--json", "list").stdout)["repos"]
    assert set(repo) == {"name", "spec", "path", "commit", "size", "last_used"}
    assert repo["name"] == "o_r_v1"
    assert hub("list").stdout.startswith("o/r:v1  ")


@pytest.mark.parametrize(
    ("spec", "text", "status"),
    [
        ("o/r:v9", None, 3),
        ("o/none", None, 3),
        ("o//r", None, 2),
        ("o/r:v2", "def f(:\n", 70),
        ("o/r:v2", "\0", 70),
    ],
)
def test_failures(sample, sample_server, spec, text, status):
    if text is not None:
        sample.commit({"hubconf.py": text}, tag="v2")
    result = hub("list", spec)
    assert result.exit_code == status
    assert result.stdout == ""
    assert result.stderr.startswith("hub: ")
    assert "hint: " in result.stderr
    result = hub("--json", "list", spec)
    assert result.exit_code == status
    assert json.loads(result.stdout)["error"]["message"]


def test_no_hubconf(sample, sample_server):
    sample.git("rm", "-q", "hubconf.py")
    sample.commit({}, tag="v2")
    result = hub("list", "o/r:v2")
    assert result.exit_code == 3
    assert "no hubconf.py" in result.stderr
