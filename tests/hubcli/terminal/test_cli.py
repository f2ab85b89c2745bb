"""The command group: statuses, messages and hints, JSON errors, lazy commands, interruption."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from hubcli import __version__, errors
from hubcli.base import paths, settings
from hubcli.errors import ExitStatus
from hubcli.terminal import cli


def run(*args: str) -> Result:
    return CliRunner().invoke(cli.hub, list(args))


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """Make `hub env` raise what is put in the list."""
    planned: list[BaseException] = []

    @click.command()
    def env() -> None:
        raise planned[0]

    monkeypatch.setattr("hubcli.terminal.commands.env.env", env)
    return planned


def test_version() -> None:
    result = run("--version")
    assert result.stdout == f"hub {__version__}\n" and result.exit_code == 0
    project = Path(__file__).parents[3] / "pyproject.toml"
    assert tomllib.loads(project.read_text())["project"]["version"] == __version__


def test_help_lists_every_command() -> None:
    result = run("--help")
    for name, (_, line) in cli.COMMANDS.items():
        assert f"  {name} " in result.stdout and line in result.stdout


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_help(name: str) -> None:
    result = run(name, "--help")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(f"Usage: hub {name}")


def test_the_statuses_of_all_errors(failing: list[BaseException]) -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    for kind in kinds:
        if issubclass(kind, errors.HubError):
            failing[:] = [kind("it failed", hint="do this", spec="o/r")]
            result = run("env")
            assert result.exit_code == kind.status
            assert (result.stdout, result.stderr) == ("", "hub: it failed\nhint: do this\n")
            result = run("--json", "env")
            assert (result.exit_code, result.stderr) == (kind.status, "")
            body = {"code": kind.code, "message": "it failed", "hint": "do this", "spec": "o/r", "causes": []}
            assert json.loads(result.stdout) == {"schema_version": 1, "error": body}


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (PermissionError(13, "Permission denied", "/x"), 1, "hub: Permission denied: /x"),
        (OSError(28, "No space left on device"), 1, "hub: No space left on device"),
        (KeyError("x"), 1, "hub: KeyError: 'x'\nhint: this is a fault of hub"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (click.Abort(), 130, "interrupted"),
        (click.UsageError("bad"), 2, "hub: bad"),
    ],
)
def test_other_errors(failing: list[BaseException], error: BaseException, status: int, message: str) -> None:
    failing[:] = [error]
    result = run("env")
    assert result.exit_code == status and result.stdout == ""
    assert result.stderr.strip().startswith(message)
    assert "Traceback" not in result.stderr


def test_debug_shows_the_traceback(failing: list[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    failing[:] = [errors.NotFoundError("gone")]
    monkeypatch.setenv("HUB_DEBUG", "1")
    result = run("env")
    assert result.exit_code == 3
    assert "Traceback" in result.stderr and "hub: gone" in result.stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["pul", "o/r"], "No such command 'pul'. Did you mean 'pull'?"),
        (["--bogus"], "No such option"),
        (["pull"], "Missing argument 'SPEC'."),
        (["pull", "--bogus", "o/r"], "No such option"),
        (["pull", "o/r", "--trust", "always"], "'always' is not one of 'once', 'commit', 'repo'"),
        (["pull", "a"], "has 1 part before the ref"),
        (["pull", "o/r", "-k", "x=1"], "arguments are for an entrypoint"),
        (["pull", "o/r", "--sandbox=always"], "'always' is not one of 'on', 'off', 'best-effort'"),
    ],
)
def test_usage_errors(args: list[str], message: str, hub_root: Path) -> None:
    result = run(*args)
    assert result.exit_code == ExitStatus.USAGE and result.stdout == ""
    assert message in result.stderr
    result = run("--json", *args)
    assert result.exit_code == ExitStatus.USAGE and result.stderr == ""
    error = json.loads(result.stdout)["error"]
    assert error["code"] == "usage" and message in error["message"]
    assert not hub_root.exists()


def test_broken_settings_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUB_LOCK_TIMEOUT", "soon")
    result = run("env")
    assert result.exit_code == 2 and "HUB_LOCK_TIMEOUT" in result.stderr
    assert run("--help").exit_code == 0


def test_global_options_last_for_one_command(tmp_path: Path) -> None:
    result = run("--hub-dir", str(tmp_path / "other"), "--offline", "cache", "dir")
    assert result.stdout == f"{tmp_path / 'other'}\n"
    assert paths.hub_dir() != tmp_path / "other" and not settings.current().offline


@pytest.mark.parametrize("name", ["yes", "exec", "save", "output"])
def test_dangerous_options_never_come_from_the_environment(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for prefix in ("HUB", "HUB_CACHE_RM", "HUB_LIST", "HUB_LOAD", "HUB_RUN"):
        monkeypatch.setenv(f"{prefix}_{name.upper()}", "1")
    assert cli.hub.context_settings.get("auto_envvar_prefix") is None
    result = run("cache", "rm", "o/r")
    assert result.exit_code == 3  # not in the cache: it has not got as far as removing


ENVIRONMENT = ("PATH", "HOME", "TORCH_HUB_DIR", "XDG_CONFIG_HOME")


def child(*args: str, **options: object) -> subprocess.Popen[str]:
    environment = {name: os.environ[name] for name in ENVIRONMENT}
    return subprocess.Popen(
        [sys.executable, "-m", "hubcli", *args],
        cwd=Path(__file__).parents[3],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,  # type: ignore[call-overload]
    )


def test_as_a_process() -> None:
    process = child("pull", "a")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, "")
    assert err.startswith("hub: spec 'a' has 1 part") and "hint: write owner/repo" in err


def test_a_reader_that_hangs_up() -> None:
    read, write = os.pipe()
    os.close(read)
    process = subprocess.Popen(
        [sys.executable, "-m", "hubcli", "env"],
        cwd=Path(__file__).parents[3],
        env={name: os.environ[name] for name in ENVIRONMENT},
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(write)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (1, "")


@pytest.mark.skipif(os.name != "posix", reason="POSIX signals")
def test_interrupted_while_it_waits(tmp_path: Path) -> None:
    from tests.servers import silent_server

    with silent_server() as silent:
        environment = {
            **{name: os.environ[name] for name in ENVIRONMENT},
            "HUB_ALLOW_PROTOCOLS": "http",
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "hubcli", "-v", "pull", f"{silent}/o/r"],
            cwd=Path(__file__).parents[3],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        assert process.stderr.readline().startswith("asking")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert err.strip().endswith("interrupted") and "Traceback" not in err


@pytest.mark.parametrize("group", [[], ["cache"], ["trust"]])
def test_a_group_alone_shows_its_help(group: list[str]) -> None:
    result = run(*group)
    assert result.exit_code == 2
    assert result.stderr.startswith("Usage: hub")
    assert "hint:" not in result.stderr


def test_global_options_anywhere(tmp_path: Path) -> None:
    other = tmp_path / "other"
    for args in (["cache", "dir", "--hub-dir", str(other)], ["cache", f"--hub-dir={other}", "dir"]):
        assert run(*args).stdout == f"{other}\n"
    document = json.loads(run("cache", "dir", "-q", "--json").stdout)
    assert document["path"] == str(paths.hub_dir())
    assert run("pull", "o/r", "--offline").exit_code == ExitStatus.OFFLINE
    assert not settings.current().offline
    result = run("pull", "--bogus", "o/r", "--json")
    assert json.loads(result.stdout)["error"]["code"] == "usage" and result.stderr == ""
    result = run("pull", "--", "--json", "o/r")  # behind -- it is a word like others
    assert result.exit_code == ExitStatus.USAGE and result.stdout == ""


def test_the_help_of_commands_does_not_repeat_the_global_options() -> None:
    assert "--hub-dir" in run("--help").stdout
    assert "--hub-dir" not in run("pull", "--help").stdout


@pytest.mark.parametrize("name", cli.ALIASES)
def test_aliases(name: str) -> None:
    long = cli.ALIASES[name]
    assert run(name, "--help").stdout == run(*long, "--help").stdout.replace(f"hub {' '.join(long)}", f"hub {name}")
    assert f"  {name} " not in run("--help").stdout
