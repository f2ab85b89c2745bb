"""What commands leave behind and report: after sync, damage, a bad moment of a server, on odd terminals."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hubcli.base import output, paths
from hubcli.base.request import Request
from hubcli.base.spec import RepoSpec
from hubcli.cache.cache import Cache
from hubcli.net.git import remote as git
from hubcli.terminal import cli

BIG = 200_000


def hub(*arguments: str) -> Any:
    return CliRunner().invoke(cli.hub, list(arguments))


# A lock file's specs, offline


@pytest.mark.parametrize("spec", ["o/r:v1", "o/r", "o/r:main"])
def test_what_sync_fetched_can_be_used_offline(sample, sample_server, tmp_path, monkeypatch, spec):
    lock = tmp_path / "hub.lock"
    assert hub("lock", spec, "-o", str(lock)).exit_code == 0
    sample.commit({"hubconf.py": "def later():\n    pass\n"})
    monkeypatch.setenv("TORCH_HUB_DIR", str(tmp_path / "other"))
    assert hub("sync", "--lock-file", str(lock)).exit_code == 0
    sample_server.reset()
    assert "thing" in hub("--offline", "list", spec).stdout
    assert hub("--offline", "help", spec, "thing").exit_code == 0
    assert hub("--offline", "load", spec, "thing", "--trust", "once").exit_code == 0
    assert sample_server.requests == []
    name = RepoSpec.parse(spec).at(RepoSpec.parse(spec).ref or "main").name
    assert (tmp_path / "other" / name).is_symlink()


def test_sync_changes_no_ref_that_is_known(sample, sample_server, tmp_path):
    lock = tmp_path / "hub.lock"
    hub("lock", "o/r", "-o", str(lock))
    commit = sample.commit({"new.txt": "x"})
    assert hub("pull", "o/r", "--force-reload").exit_code == 0
    assert hub("sync", "--lock-file", str(lock)).exit_code == 0
    assert Cache.current().lookup(RepoSpec.parse("o/r")).commit == commit


@pytest.mark.parametrize("command", [["list"], ["help"], ["show"], ["deps"]])
def test_reading_commands_take_a_lock_file(sample, sample_server, tmp_path, command):
    lock = tmp_path / "hub.lock"
    hub("lock", "o/r", "-o", str(lock))
    sample.commit({"hubconf.py": "dependencies = ['nowhere']\n\n\ndef later():\n    pass\n"})
    hub("pull", "o/r", "--force-reload")
    rest = ["thing"] if command == ["help"] else []
    said = hub(*command, "o/r", *rest, "--locked", "--lock-file", str(lock))
    assert said.exit_code == 0, said.output
    assert "nowhere" not in said.stdout and "later" not in said.stdout
    assert hub(*command, "o/other", *rest, "--locked", "--lock-file", str(lock)).exit_code == 9
    assert hub(*command, "o/r", *rest, "--lock-file", str(lock)).exit_code == 2


# Damage


def test_verify_names_every_file(sample_server):
    checkout = Cache.current().checkout(RepoSpec.parse("o/r:v1"))
    for name, content in (("hubconf.py", "x = 1\n"), ("extra.txt", "x")):
        path = checkout.path / name
        path.unlink(missing_ok=True)
        path.write_text(content)
    (checkout.path / "helpers.py").unlink()
    result = hub("--json", "cache", "verify")
    assert result.exit_code == 1
    found = {one["file"]: one["what"] for one in json.loads(result.stdout)["problems"]}
    assert found == {"hubconf.py": "changed", "extra.txt": "extra", "helpers.py": "missing"}
    one = next(one for one in json.loads(result.stdout)["problems"] if one["what"] == "changed")
    assert one["expected"] != one["found"] and one["expected"].startswith("100644 ")
    text = hub("cache", "verify").stdout
    assert "changed: hubconf.py" in text and "extra: extra.txt" in text and "missing: helpers.py" in text


def test_an_old_generation_is_a_warning(sample_server):
    old = Cache.current().checkout(RepoSpec.parse("o/r:v1"))
    Cache.current().checkout(RepoSpec.parse("o/r:v1"), Request.current(reload=True))
    path = old.path / "hubconf.py"
    path.chmod(0o644)
    path.write_text("x = 1\n")
    result = hub("cache", "verify")
    assert result.exit_code == 0 and "superseded" in result.stdout and "no problems" in result.stdout
    assert "warning: old generations were changed" in result.stderr
    (problem,) = Cache.current().verify().problems
    assert problem.superseded


# A server's bad moment


@pytest.mark.parametrize("status", [503, 502, 429])
def test_git_is_asked_again(sample_server, monkeypatch, status):
    waited: list[float] = []
    monkeypatch.setattr(git.time, "sleep", waited.append)
    failures = [True, True]

    def fault(handler: Any) -> bool:
        if failures:
            failures.pop()
            handler.answer(status, b"", {})
            return True
        return False

    sample_server.fault = fault
    assert Cache.current().checkout(RepoSpec.parse("o/r:v1")).commit
    assert len(waited) == 2 and failures == []


def test_git_is_not_asked_for_ever(sample_server, monkeypatch):
    waited: list[float] = []
    monkeypatch.setattr(git.time, "sleep", waited.append)
    sample_server.fault = lambda handler: handler.answer(503, b"", {}) or True
    assert hub("pull", "o/r:v1").exit_code == 4
    assert len(waited) == 3


def test_a_syntax_error_looks_the_same_everywhere(sample, sample_server, tmp_path):
    broken = "def thing(:\n    pass\n"
    sample.commit({"hubconf.py": broken}, tag="broken")
    own = tmp_path / "own"
    own.mkdir()
    (own / "hubconf.py").write_text(broken)
    shapes = []
    for spec in ("o/r:broken", str(own)):
        junit = tmp_path / "report.xml"
        result = hub("--json", "check", spec, "--trust", "once", "--junit", str(junit))
        assert result.exit_code == 1, result.output
        (row,) = json.loads(result.stdout)["results"]
        shapes.append((row["entrypoint"], row["stage"], row["status"], row["error"].partition(":")[0]))
        assert junit.exists()
    assert shapes[0] == shapes[1]


# Odd terminals


@pytest.fixture
def wide(tmp_path: Path) -> Path:
    own = tmp_path / "wide"
    own.mkdir()
    (own / "hubconf.py").write_text(
        f'def net():\n    """Größe → {"x" * BIG}.\n\n    ☃ {"y" * BIG}\n    """\n', encoding="utf-8"
    )
    return own


def run(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": root, **more.pop("env", {})}
    command = [sys.executable, "-m", "hubcli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, **more)


@pytest.mark.parametrize("arguments", [["list"], ["help"]])
def test_a_stdout_that_cannot_say_it(wide, arguments):
    rest = ["net"] if arguments == ["help"] else []
    done = run(*arguments, str(wide), *rest, env={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    assert done.returncode == 0, done.stderr
    assert "Gr\\u00f6\\u00dfe \\u2192" in done.stdout
    made = run("--json", *arguments, str(wide), *rest, env={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    assert "Größe →" in json.dumps(json.loads(made.stdout), ensure_ascii=False)


def test_what_is_too_long_is_cut_for_people(wide):
    listed, helped = hub("list", str(wide)).stdout, hub("help", str(wide), "net").stdout
    assert len(listed) < 400 and "..." in listed
    assert len(helped) < 25_000 and helped.rstrip().endswith("...")
    assert len(json.loads(hub("--json", "help", str(wide), "net").stdout)["doc"]) > BIG


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
@pytest.mark.parametrize("arguments", ["list {wide}", "cache ls", "list nowhere-to-be-found"])
def test_streams_that_are_closed(wide, closed, arguments, tmp_path):
    root = str(Path(__file__).parents[2])
    line = f"exec {sys.executable} -m hubcli {arguments.format(wide=wide)} {closed}"
    done = subprocess.run(
        ["/bin/sh", "-c", line], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": root}
    )
    assert done.returncode == (2 if "nowhere" in arguments else 0), done.stderr
    assert "fault of hub" not in done.stderr and "Traceback" not in done.stderr


def test_encodable():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    assert output.encodable("ä → 🎉", stream) == "ä \\u2192 \\ud83c\\udf89"
    assert json.loads(output.encodable(json.dumps("→🎉", ensure_ascii=False), stream)) == "→🎉"
    assert output.cut("abcdef", 5) == "ab..." and output.cut("abc", 5) == "abc"
    assert paths.hub_dir()
