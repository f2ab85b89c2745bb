"""Code that writes beside itself: it finds its file, and the checkout stays as its commit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hubcli.base import paths
from hubcli.cache.cache import Cache
from tests.servers import Repository, git_server

HUBCONF = """
import os
import torch
HERE = os.path.dirname(os.path.abspath(__file__))

def net(name="cache.bin"):
    path = os.path.join(HERE, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write("kept")
    assert open(path).read() == "kept"
    return torch.nn.Linear(2, 2)
"""


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    files = {"hubconf.py": HUBCONF, "data/a.txt": "a"}
    Repository.create(tmp_path / "served", "o/r").commit(files, tag="v1")
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "http")
    monkeypatch.setenv("HUB_TRUST", "commit")
    with git_server(tmp_path / "served") as server:
        monkeypatch.setenv("HUB_GIT_URL", f"{server.url}/{{owner}}/{{repo}}.git")
        yield


def hub(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hubcli", *arguments], capture_output=True, text=True, check=False, env=dict(os.environ)
    )


def rows(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(done.stdout)["results"]
    return found


@pytest.mark.long
def test_it_works_again_and_again(served: None) -> None:
    for name in ("cache.bin", "data/b.txt", "new/folder/c.txt", "cache.bin"):
        done = hub("load", "o/r:v1", "net", "-k", f"name={name}")
        assert done.returncode == 0, done.stderr
        top = "new" if name.startswith("new") else name
        assert f"the code wrote '{top}' beside itself" in done.stderr
    (written,) = paths.written("").iterdir()
    assert sorted(str(p.relative_to(written)) for p in written.rglob("*") if p.is_file()) == [
        "cache.bin",
        "data/b.txt",
        "new/folder/c.txt",
    ]
    assert hub("cache", "verify").returncode == 0
    Cache.current().prune()
    assert written.is_dir()
    Cache.current().prune(grace=-1)
    assert not written.exists()


@pytest.mark.long
def test_in_a_process_without_a_sandbox(served: None) -> None:
    for _ in range(2):
        done = hub("--json", "check", "o/r:v1", "net", "--no-sandbox")
        assert done.returncode == 0, done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")
def test_a_sandbox_says_what_to_do(served: None) -> None:
    from hubcli.confined import sandbox

    if all(sandbox.reasons().values()):
        pytest.skip(f"no sandbox on this machine: {sandbox.reasons()}")
    failed = [row for row in rows(hub("--json", "check", "o/r:v1", "net")) if row["status"] == "failed"]
    assert "--no-sandbox lets code write new files beside itself" in failed[0]["error"]


def test_a_folder_of_ones_own_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "hubconf.py").write_text(HUBCONF)
    done = hub("load", str(tmp_path), "net")
    assert done.returncode == 0 and "beside itself" not in done.stderr
    assert (tmp_path / "cache.bin").read_text() == "kept"
