"""Every exit status, from the real command line in a process of its own; with --json in this one.

What makes each is real too: servers, a clock that runs out, a signal.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from jsonschema import Draft202012Validator

from hubcli.base import paths
from hubcli.cache import locks
from hubcli.errors import ExitStatus
from hubcli.terminal import cli
from tests.hubcli.schemas import SCHEMAS
from tests.servers import Repository, dead_server, git_server, silent_server

ROOT = Path(__file__).parents[2]
PASSED_ON = ("PATH", "HOME", "TORCH_HUB_DIR", "XDG_CONFIG_HOME", "HUB_ALLOW_PROTOCOLS")
HUBCONF = """
dependencies = ["json"]

def net():
    return object()

def broken():
    raise ValueError("no such luck")
"""


@dataclass(frozen=True)
class World:
    """What a case may change before the command runs; `environment` is the command's own."""

    repository: Repository
    hub_dir: Path
    environment: dict[str, str]
    stack: contextlib.ExitStack

    def pulled(self) -> None:
        """`o/r:v1` is in the cache."""
        assert here(self, "pull", "o/r:v1").exit_code == 0


@pytest.fixture
def world(tmp_path: Path, hub_root: Path, monkeypatch: pytest.MonkeyPatch, isolated: Path) -> Iterator[World]:
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "http")
    repository = Repository.create(tmp_path / "served", "o/r")
    repository.commit({"hubconf.py": HUBCONF}, tag="v1")
    with git_server(tmp_path / "served") as served, contextlib.ExitStack() as stack:
        environment = {name: os.environ[name] for name in PASSED_ON}
        environment["HUB_GIT_URL"] = f"{served.url}/{{owner}}/{{repo}}.git"
        environment["PYTHONPATH"] = str(ROOT)
        yield World(repository, hub_root, environment, stack)


def start(world: World, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "hubcli", *arguments],
        cwd=world.hub_dir.parent,
        env=world.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def here(world: World, *arguments: str) -> Result:
    """Run a command in this process, which is quicker."""
    with contextlib.chdir(world.hub_dir.parent):
        return CliRunner().invoke(cli.hub, list(arguments), env=world.environment)


def command(world: World, *arguments: str) -> subprocess.CompletedProcess[str]:
    process = start(world, *arguments)
    out, err = process.communicate(timeout=120)
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


# What happens before the command


def nothing(world: World) -> None:
    pass


def damaged(world: World) -> None:
    world.pulled()
    (file,) = (world.hub_dir / "checkouts").rglob("hubconf.py")
    file.chmod(0o644)
    file.write_text("import evil")


def a_file_in_the_way(world: World) -> None:
    world.environment["TORCH_HUB_DIR"] = str(world.repository.work / "hubconf.py" / "hub")


def unreachable(world: World) -> None:
    url = world.stack.enter_context(dead_server())
    world.environment["HUB_GIT_URL"] = f"{url}/{{owner}}/{{repo}}.git"


def moved(world: World) -> None:
    world.pulled()
    world.repository.commit({"more.py": ""})
    world.repository.git("tag", "-f", "v1")
    world.repository.push()


def needy(world: World) -> None:
    code = HUBCONF.replace('["json"]', '["no_such_package_anywhere"]')
    world.repository.commit({"hubconf.py": code}, tag="v2")


def locked_elsewhere(world: World) -> None:
    assert here(world, "lock", "o/r:v1").exit_code == 0


def busy(world: World) -> None:
    """Another process (this one) works on the list of trusted repositories, and goes on."""
    world.pulled()
    world.environment["HUB_LOCK_TIMEOUT"] = "0.2"
    folder = paths.trust_file().parent
    folder.mkdir(parents=True, exist_ok=True)
    world.stack.enter_context(locks.exclusive("trust", "a test", folder))


Before = Callable[[World], None]
# status, what happens before, the command, what it says
CASES: list[tuple[ExitStatus, Before, list[str], str]] = [
    (ExitStatus.OK, nothing, ["pull", "o/r:v1"], ""),
    (ExitStatus.OK, World.pulled, ["--offline", "list", "o/r:v1"], ""),
    (ExitStatus.FAILURE, damaged, ["cache", "verify"], "hub cache verify --repair"),
    (ExitStatus.FAILURE, a_file_in_the_way, ["pull", "o/r:v1"], "Not a directory"),
    (ExitStatus.USAGE, nothing, ["pull", "nonsense"], "has 1 part before the ref"),
    (ExitStatus.USAGE, nothing, ["pull", "o/r:v1", "--no-such-option"], "No such option"),
    (
        ExitStatus.USAGE,
        World.pulled,
        ["load", "o/r:v1", "net", "--trust=once", "-k", "a=1"],
        "unexpected keyword argument 'a'",
    ),
    (ExitStatus.NOT_FOUND, nothing, ["pull", "o/r:v9"], "no branch or tag 'v9'"),
    (ExitStatus.NOT_FOUND, nothing, ["pull", "o/nowhere"], "no repository at"),
    (ExitStatus.NOT_FOUND, World.pulled, ["help", "o/r:v1", "nett"], "did you mean net"),
    (ExitStatus.NETWORK, unreachable, ["pull", "o/r:v1"], "cannot reach"),
    (ExitStatus.OFFLINE, nothing, ["--offline", "pull", "o/r:v1"], "is not in the cache offline"),
    (ExitStatus.INTEGRITY, moved, ["pull", "o/r:v1", "--force-reload"], "has moved to"),
    (ExitStatus.UNTRUSTED, nothing, ["load", "o/r:v1", "net"], "is not trusted to run code"),
    (ExitStatus.DEPENDENCIES, needy, ["load", "o/r:v2", "net", "--trust=once"], "no_such_package_anywhere"),
    (ExitStatus.LOCK_MISMATCH, nothing, ["load", "o/r:v1", "net", "--locked"], "there is no"),
    (ExitStatus.LOCK_MISMATCH, locked_elsewhere, ["load", "o/r", "net", "--frozen"], "o/r is not in hub.lock"),
    (ExitStatus.LOCK_TIMEOUT, busy, ["trust", "add", "o/r:v1"], "for more than 0.2 s"),
    (
        ExitStatus.REPOSITORY_CODE,
        nothing,
        ["load", "o/r:v1", "broken", "--trust=once"],
        "hubconf.py:8: ValueError: no such luck",
    ),
]


@pytest.mark.parametrize(
    ("status", "before", "arguments", "message"),
    CASES,
    ids=[f"{case[0].value}-{case[1].__name__}-{case[2][0].lstrip('-')}" for case in CASES],
)
def test_status(world, status, before, arguments, message):
    before(world)
    result = command(world, *arguments)
    assert result.returncode == status, result.stderr
    assert message in result.stderr and "Traceback" not in result.stderr
    if status is not ExitStatus.OK and arguments != ["cache", "verify"]:
        assert result.stdout == ""
        assert re.search(r"^hub: .*\n(hint: .*\n)?\Z", result.stderr, re.M)
        told = here(world, "--json", *arguments)
        assert told.exit_code == status
        document = json.loads(told.stdout)
        Draft202012Validator(SCHEMAS["error"]).validate(document)
        assert message in f"{document['error']['message']} {document['error']['hint']}"


def test_interrupted(world):
    url = world.stack.enter_context(silent_server())
    world.environment["HUB_GIT_URL"] = f"{url}/{{owner}}/{{repo}}.git"
    process = start(world, "-v", "pull", "o/r:v1")
    assert process.stderr is not None
    assert process.stderr.readline().startswith("asking")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (ExitStatus.INTERRUPTED, "")
    assert err.strip().endswith("interrupted") and "Traceback" not in err


def test_no_status_is_missing():
    produced = {case[0] for case in CASES} | {ExitStatus.INTERRUPTED}
    assert produced == set(ExitStatus)
    page = (ROOT / "docs" / "reference" / "exit_status.md").read_text()
    documented = {int(number) for number in re.findall(r"^\| (\d+) \| \w", page, re.M)}
    assert documented == {int(status) for status in ExitStatus}
