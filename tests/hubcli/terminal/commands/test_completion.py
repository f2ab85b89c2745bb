"""`hub completion`: the scripts, and what a shell gets from them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from hubcli.terminal import cli


def hub(*arguments: str):
    return CliRunner().invoke(cli.hub, list(arguments))


@pytest.fixture
def complete(sample_server, monkeypatch):
    """The completions of a word behind others."""
    assert hub("pull", "o/r:v1").exit_code == 0
    assert hub("pull", "o/r").exit_code == 0
    sample_server.reset()
    monkeypatch.setenv("_HUB_COMPLETE", "bash_complete")

    def completions(*words: str) -> list[str]:
        made = ShellComplete(cli.hub, {}, "hub", "_HUB_COMPLETE").get_completions(list(words[:-1]), words[-1])
        assert sample_server.requests == []
        return [one.value if one.type == "plain" else f"({one.type})" for one in made]

    return completions


def test_words(complete):
    assert complete("he") == ["help"]
    assert complete("sea") == ["search"] and complete("imp") == ["import-torch-hub"]
    assert complete("mirror", "--p") == ["--prune"] and complete("mirror", "") == ["(file)"]
    assert complete("completion", "") == ["bash", "zsh", "fish"]
    assert complete("list", "o") == ["o/r", "o/r:main", "o/r:v1"]
    assert complete("cache", "rm", "o/r:") == ["o/r:main", "o/r:v1"]
    assert complete("load", "./") == ["(dir)"]
    assert complete("load", "no/such") == ["(dir)"]
    assert complete("load", "o/r:v1", "st") == ["strict"]
    assert complete("--offline", "help", "o/r:v1", "thi") == ["thing"]
    assert complete("load", "o/r:v9", "st") == []
    assert "--json" not in complete("load", "--")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts(shell):
    result = hub("completion", shell)
    assert result.exit_code == 0
    assert "hub" in result.stdout and f"_HUB_COMPLETE={shell}_complete" in result.stdout
    assert json.loads(hub("--json", "completion", shell).stdout)["script"] == result.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("hub pul", ["pull"]),
        ("hub list o/r:", ["main", "v1"]),  # what stands behind readline's word break
        ("hub list o/r", ["o/r", "o/r:main", "o/r:v1"]),
        ("hub load o/r:v1 str", ["strict"]),
    ],
)
def test_in_bash(complete, tmp_path, line, found):
    (tmp_path / "bin").mkdir(exist_ok=True)
    program = tmp_path / "bin" / "hub"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -c "from hubcli.terminal.cli import main; main()" "$@"\n')
    program.chmod(0o755)
    script = hub_script()
    text = f'{script}\nCOMP_LINE={line!r} COMP_POINT={len(line)}\n_hub_completion\nprintf "%s\\n" "${{COMPREPLY[@]}}"'
    environment = {
        **os.environ,
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(Path(cli.__file__).parents[2]),
    }
    done = subprocess.run(
        ["bash", "--norc", "-c", text], env=environment, capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout.split() == found, done.stderr


def hub_script() -> str:
    environment = {"_HUB_COMPLETE": None}
    return CliRunner(env=environment).invoke(cli.hub, ["completion", "bash"]).stdout
