"""`hub pull`: its document, what it says of cached branches, every failure's status, no execution."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hubcli.terminal import cli
from tests.servers import Repository, Served, dead_server, file_server, git_server

HUBCONF = """
import pathlib
pathlib.Path(__file__).with_name("executed").touch()
dependencies = ["numpy"]

def net(pretrained=False):
    "A net."

def _hidden():
    pass
"""


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    repo = Repository.create(tmp_path / "served", "o/r")
    repo.commit({"hubconf.py": HUBCONF}, tag="v1")
    return repo


@pytest.fixture
def server(tmp_path: Path, repo: Repository, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "https,http,file")
    with git_server(tmp_path / "served") as served:
        monkeypatch.setenv("HUB_GIT_URL", f"{served.url}/{{owner}}/{{repo}}.git")
        yield served


def run(*args: str) -> Result:
    return CliRunner().invoke(cli.hub, list(args))


def document(*args: str) -> dict[str, Any]:
    result = run("--json", *args)
    assert result.exit_code == 0, result.output
    parsed: dict[str, Any] = json.loads(result.stdout)
    return parsed


def test_document(server: Served, repo: Repository, hub_root: Path) -> None:
    made = document("pull", "o/r")
    path = made.pop("path")
    commit = repo.git("rev-parse", "HEAD")
    assert made == {
        "schema_version": 1,
        "spec": "o/r",
        "url": f"{server.url}/o/r.git",
        "ref": "main",
        "kind": "branch",
        "commit": commit,
        "cached": False,
        "entrypoints": ["net"],
    }
    assert os.listdir(path) == ["hubconf.py"]  # nothing was executed
    assert (hub_root / "o_r_main").resolve() == Path(path)
    again = document("pull", "o/r")
    assert again["cached"] and again["path"] == path


def test_for_people(server: Served) -> None:
    result = run("pull", "o/r:v1")
    assert result.exit_code == 0 and result.stderr == ""
    assert "entrypoints  net" in result.stdout and "tag          v1" in result.stdout
    result = run("pull", "o/r:v1")
    assert result.stderr.startswith("cached: tag v1 at ")


def test_a_cached_branch_says_commit_and_age(server: Served, repo: Repository) -> None:
    run("pull", "o/r")
    result = run("pull", "o/r")
    commit = repo.git("rev-parse", "HEAD")[:12]
    assert result.stderr == (
        f"cached: branch main at {commit}, checked less than a minute ago; --force-reload fetches anew\n"
    )
    assert run("-q", "pull", "o/r").stderr == ""


def test_force_reload(server: Served, repo: Repository) -> None:
    document("pull", "o/r")
    commit = repo.commit({"more.py": ""})
    assert document("pull", "o/r")["commit"] != commit
    made = document("pull", "o/r", "--force-reload")
    assert (made["commit"], made["cached"]) == (commit, False)


def test_a_folder(repo: Repository) -> None:
    made = document("pull", str(repo.work))
    assert (made["kind"], made["commit"], made["path"]) == ("local", None, str(repo.work))
    assert not (repo.work / "executed").exists()


def test_processes_pull_at_once(server: Served, hub_root: Path) -> None:
    names = (
        "PATH",
        "HOME",
        "TORCH_HUB_DIR",
        "XDG_CONFIG_HOME",
        "HUB_ALLOW_PROTOCOLS",
        "HUB_GIT_URL",
    )
    children = [
        subprocess.Popen(
            [sys.executable, "-m", "hubcli", "--json", "pull", "o/r:v1"],
            cwd=Path(__file__).parents[4],
            env={name: os.environ[name] for name in names},
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    documents = [json.loads(child.communicate(timeout=60)[0]) for child in children]
    assert [child.returncode for child in children] == [0, 0, 0]
    assert len({made["path"] for made in documents}) == 1
    (trees,) = (hub_root / "checkouts" / "github.com" / "o").iterdir()
    assert sorted(path.suffix for path in trees.iterdir()) == [".1", ".json"]


def test_file_urls_when_allowed(server: Served, repo: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    assert document("pull", f"file://{repo.bare}@v1")["kind"] == "tag"
    monkeypatch.delenv("HUB_ALLOW_PROTOCOLS")
    result = run("pull", f"file://{repo.bare}@main")
    assert result.exit_code == 2
    assert "hint: set HUB_ALLOW_PROTOCOLS=https,ssh,file" in result.stderr


def test_weights_need_trust(server: Served) -> None:
    result = run("pull", "o/r", "--weights", "net")
    assert result.exit_code == 7 and result.stdout == ""
    assert "is not trusted" in result.stderr


def test_weights_call_the_entrypoint(server: Served, repo: Repository, hub_root: Path) -> None:
    repo.commit(
        {
            "hubconf.py": """
import hubcli
print("repository code speaks on stdout")

def net(pretrained=False, size=1, **kwargs):
    assert (pretrained, size) == (True, 3), (pretrained, size)
    return object()

def plain(size):
    assert size == "x"

def bad():
    raise KeyError("boom")
"""
        }
    )
    made = document("pull", "o/r", "--weights", "net", "-k", "size=3", "--trust", "once")
    assert made["entrypoints"] == ["bad", "net", "plain"]
    assert run("pull", "o/r", "--weights", "plain", "--args", '["x"]', "--trust", "once").exit_code == 0
    result = run("pull", "o/r", "--weights", "bad", "--trust", "once")
    assert result.exit_code == 70 and result.stdout == "" and "boom" in result.stderr
    result = run("pull", "o/r", "--weights", "nothing", "--trust", "once")
    assert result.exit_code == 3 and "Cannot find callable nothing" in result.stderr


def failure(result: Result, status: int, message: str) -> None:
    assert (result.exit_code, result.stdout) == (status, ""), result.output
    lines = result.stderr.splitlines()
    assert len(lines) == 2 and message in lines[0] and lines[1].startswith("hint: "), lines


def test_failures(server: Served, repo: Repository, hub_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failure(run("pull", "o/r:v2"), 3, "no branch or tag 'v2'")
    failure(run("pull", "o/nothing"), 3, "no repository at")
    failure(run("--offline", "pull", "o/r"), 5, "o/r is not in the cache offline")
    failure(run("pull", f"{'1' * 3}/{'2' * 3}/3/4"), 2, "has 4 parts")
    server.credentials = "secret"
    failure(run("pull", "o/r"), 3, "does not exist or is private")
    server.credentials = None
    repo.commit({"hubconf.py": "def net(:\n"})
    failure(run("pull", "o/r"), 70, "hubconf.py")
    repo.git("rm", "-q", "hubconf.py")
    repo.commit({})
    failure(run("pull", "o/r"), 3, "no hubconf.py in o/r")
    with dead_server() as dead:
        monkeypatch.setenv("HUB_GIT_URL", f"{dead}/{{owner}}/{{repo}}")
        failure(run("pull", "o/r"), 4, "cannot reach")
    for folder in ("checkouts", "refs", "db"):
        assert not [path for path in (hub_root / folder).rglob("*") if path.is_file()]


def test_json_failures_name_the_spec(server: Served) -> None:
    result = run("--json", "pull", "o/r:v2")
    assert result.exit_code == 3 and result.stderr == ""
    error = json.loads(result.stdout)["error"]
    assert (error["code"], error["spec"]) == ("not_found", "o/r:v2")


class TestDryRun:
    """Sizes before the download; nothing is kept, nobody is asked whom the code names before it is trusted."""

    @pytest.fixture
    def weights(self, tmp_path, sample, sample_server):
        (tmp_path / "files").mkdir()
        (tmp_path / "files" / "net.pth").write_bytes(b"x" * 1234)
        with file_server(tmp_path / "files") as served:
            code = f"A = '{served.url}/net.pth'\nB = \"{served.url}/missing.pth\"\nC = 'https://x/page.html'\n"
            sample.commit({"weights.py": code, "large.bin": b"y" * 300_000, "data/small.txt": "z"}, tag="v2")
            yield served

    def look(self, *more: str) -> dict:
        result = CliRunner().invoke(cli.hub, ["--json", "pull", "o/r:v2", "--dry-run", *more])
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def test_what_it_tells(self, weights, sample, hub_root):
        made = self.look()
        assert (made["kind"], made["ref"], made["cached"]) == ("tag", "v2", False)
        assert made["commit"] == sample.git("rev-parse", "v2")
        sizes = {name: len((sample.work / name).read_bytes()) for name in sample.git("ls-files").split()}
        assert (made["files"], made["larger"]) == (len(sizes) - 1, 1)
        assert made["size"] == sum(sizes.values()) - 300_000
        assert [(one["url"].rpartition("/")[2], one["size"]) for one in made["weights"]] == [
            ("net.pth", None),
            ("missing.pth", None),
        ]
        assert weights.requests == [] and not hub_root.exists()

    def test_sizes_of_weights_are_asked_of_trusted_code(self, weights, hub_root):
        assert [one["size"] for one in self.look("--trust", "once")["weights"]] == [1234, None]
        assert weights.sent < 200_000 and not (hub_root / "checkpoints").exists()
        assert not any("Authorization" in request.headers for request in weights.requests)

    def test_what_is_cached(self, weights, sample_server):
        assert CliRunner().invoke(cli.hub, ["pull", "o/r:v2"]).exit_code == 0
        sample_server.reset()
        made = self.look()
        assert made["cached"] and made["larger"] == 0 and made["size"] > 300_000 and len(made["weights"]) == 2
        assert sample_server.requests == []

    def test_a_server_without_filters(self, weights, sample):
        sample.git("config", "uploadpack.allowFilter", "false", cwd=sample.bare)
        made = self.look()
        assert made["larger"] == 0 and made["size"] > 300_000

    def test_what_it_does_not_go_with(self, weights):
        for option in (["--weights", "thing"], ["--lfs"], ["--force-reload"], ["--accept-changed"]):
            result = CliRunner().invoke(cli.hub, ["pull", "o/r:v2", "--dry-run", *option])
            assert result.exit_code == 2 and "--dry-run goes with" in result.stderr
        assert CliRunner().invoke(cli.hub, ["--offline", "pull", "o/r:v2", "--dry-run"]).exit_code == 5
