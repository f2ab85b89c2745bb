"""`hub cache`: documents, sorting, filters, removal with and without consent, statuses."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hubcli.base import output
from hubcli.base.spec import RepoSpec
from hubcli.cache.cache import Cache
from hubcli.terminal import cli
from tests.servers import Repository


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """Two repositories: `o/small:v1`, used long ago, and `o/large` with main and v1."""
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "file")
    monkeypatch.setenv("HUB_GIT_URL", f"file://{tmp_path}/served/{{owner}}/{{repo}}.git")
    small = Repository.create(tmp_path / "served", "o/small")
    small.commit({"hubconf.py": ""}, tag="v1")
    large = Repository.create(tmp_path / "served", "o/large")
    large.commit({"hubconf.py": "", "data.bin": os.urandom(5000)}, tag="v1")
    large.commit({"data.bin": os.urandom(9000)})
    for text in ("o/small:v1", "o/large", "o/large:v1"):
        made = Cache.current().checkout(RepoSpec.parse(text))
        if text == "o/small:v1":
            past = time.time() - 40 * 86400
            os.utime(made.path.with_name(f"{made.path.name}.json"), (past, past))
    return large


def run(*args: str, **options: Any) -> Result:
    return CliRunner().invoke(cli.hub, list(args), **options)


def listed(*args: str) -> list[str]:
    result = run("--json", "cache", "ls", *args)
    assert result.exit_code == 0, result.output
    return [repo["spec"] for repo in json.loads(result.stdout)["repos"]]


def test_dir(hub_root: Path) -> None:
    assert run("cache", "dir").stdout == f"{hub_root}\n"
    assert json.loads(run("--json", "cache", "dir").stdout)["path"] == str(hub_root)


def test_ls_document(cached: Repository, hub_root: Path) -> None:
    made = json.loads(run("--json", "cache", "ls").stdout)
    assert made["schema_version"] == 1 and made["weights"] == []
    first = made["repos"][0]
    assert first["name"] == "o_large_main" and first["spec"] == "o/large:main"
    assert first["commit"] == cached.git("rev-parse", "HEAD") and first["size"] == 9000
    assert first["path"].startswith(str(hub_root)) and first["last_used"] <= time.time()


def test_ls_sorts_and_filters(cached: Repository) -> None:
    assert listed() == ["o/large:main", "o/large:v1", "o/small:v1"]
    assert listed("--sort", "size") == ["o/large:main", "o/large:v1", "o/small:v1"]
    assert listed("--sort", "used")[-1] == "o/small:v1"
    assert listed("--filter", "size>6kB") == ["o/large:main"]
    assert listed("--filter", "size < 6KB") == ["o/large:v1", "o/small:v1"]
    assert listed("--filter", "used>30d") == ["o/small:v1"]
    assert listed("--filter", "used<1h", "--filter", "size<6000") == ["o/large:v1"]
    for wrong in ("size", "size>", "size>1XB", "used>1GB", "name>1", "size>-1"):
        assert run("cache", "ls", "--filter", wrong).exit_code == 2


def test_ls_for_people(cached: Repository, hub_root: Path) -> None:
    lines = run("cache", "ls").stdout.splitlines()
    assert lines[-1].startswith(f"{output.size(on_disk(hub_root))} in {hub_root}: code 1")
    assert "git databases" in lines[-1] and "unfinished downloads" not in lines[-1]
    assert "used 40 days ago" in lines[2] and lines[2].startswith("o/small:v1")


def on_disk(root: Path) -> int:
    """Return the bytes of all files below `root`."""
    found = [Path(at, name) for at, folders, names in os.walk(root) for name in (*folders, *names)]
    return sum(path.lstat().st_size for path in found if path.is_symlink() or path.is_file())


def test_ls_measures_the_whole_folder(cached: Repository, hub_root: Path) -> None:
    (hub_root / "partial").mkdir(exist_ok=True)
    (hub_root / "partial" / "half").write_bytes(b"x" * 70_000)
    (hub_root / "blobs").mkdir()
    (hub_root / "blobs" / "one").write_bytes(b"x" * 90_000)
    (hub_root / "checkpoints").mkdir()
    os.link(hub_root / "blobs" / "one", hub_root / "checkpoints" / "other")  # as where there are no symlinks
    (hub_root / "checkpoints" / "third").symlink_to("other")
    usage = json.loads(run("--json", "cache", "ls").stdout)["usage"]
    assert usage["total"] == on_disk(hub_root) - 90_000 == sum(usage.values()) - usage["total"]
    assert usage["partial"] == 70_000 and usage["weights"] == 90_000 + len("other")
    assert usage["databases"] > 14_000 and usage["code"] > 14_000
    line = run("cache", "ls", "--filter", "size>6kB").stdout.splitlines()[-1]
    assert line.startswith("9.0 kB listed; ") and "unfinished downloads 70.0 kB" in line


def test_ls_of_leftovers_alone(hub_root: Path) -> None:
    (hub_root / "partial").mkdir(parents=True)
    (hub_root / "partial" / "half").write_bytes(b"x" * 70_000)
    assert run("cache", "ls").stdout == (
        f"nothing is cached in {hub_root}\n70.0 kB in {hub_root}: unfinished downloads 70.0 kB\n"
    )
    assert run("-q", "cache", "ls").stdout == ""


def test_ls_quietly_prints_names_alone(cached: Repository) -> None:
    assert run("-q", "cache", "ls").stdout == "o/large:main\no/large:v1\no/small:v1\n"
    assert run("cache", "ls", "-q", "--filter", "used>30d").stdout == "o/small:v1\n"
    assert json.loads(run("-q", "--json", "cache", "ls").stdout)["repos"][0]["spec"] == "o/large:main"
    assert run("list", "-q").stdout == "o/large:main\no/large:v1\no/small:v1\n"


def test_rm_takes_the_conditions_of_ls(cached: Repository) -> None:
    for wrong in ("size", "used>1GB", ""):
        assert run("cache", "rm", "--filter", wrong, "--yes").exit_code == 2
    assert run("cache", "rm", "--yes").exit_code == 2
    both = run("cache", "rm", "o/small", "--filter", "used>30d", "--yes")
    assert both.exit_code == 2 and "not both" in both.stderr
    assert run("cache", "rm", "--filter", "used>30d").exit_code == 2  # it asks, too
    assert len(listed()) == 3
    nothing = json.loads(run("--json", "cache", "rm", "--filter", "size>1TB").stdout)
    assert (nothing["removed"], nothing["freed"]) == ([], 0)
    planned = json.loads(run("--json", "cache", "rm", "--filter", "size>1B", "--filter", "used<1d", "--dry-run").stdout)
    assert planned["removed"] == ["o/large:main", "o/large:v1"] and len(listed()) == 3
    done = json.loads(run("--json", "cache", "rm", "--filter", "used>30d", "--yes").stdout)
    assert done["removed"] == ["o/small:v1"] and listed() == ["o/large:main", "o/large:v1"]


def test_ls_of_nothing(hub_root: Path) -> None:
    assert run("cache", "ls").stdout == f"nothing is cached in {hub_root}\n"
    assert not hub_root.exists()


def test_rm(cached: Repository) -> None:
    result = run("--json", "cache", "rm", "o/large:v1", "o/small", "--dry-run")
    planned = json.loads(result.stdout)
    assert planned["removed"] == ["o/large:v1", "o/small:v1"] and planned["freed"] > 5000
    assert len(listed()) == 3
    done = json.loads(run("--json", "cache", "rm", "o/large:v1", "o/small", "--yes").stdout)
    assert done == planned and listed() == ["o/large:main"]
    result = run("cache", "rm", "o/large", "--yes")
    assert result.exit_code == 0 and "freed" in result.stdout and listed() == []


def test_rm_asks(cached: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run("cache", "rm", "o/large")
    assert result.exit_code == 2 and "add --yes" in result.stderr
    monkeypatch.setattr("hubcli.terminal.commands.cache_rm._is_terminal", lambda: True)
    result = run("cache", "rm", "o/large", input="n\n")
    assert result.exit_code == 1 and "nothing was removed" in result.stderr
    assert len(listed()) == 3
    result = run("cache", "rm", "o/large", input="y\n")
    assert result.exit_code == 0 and listed() == ["o/small:v1"]


def test_rm_of_what_is_not_there(cached: Repository, tmp_path: Path) -> None:
    assert run("cache", "rm", "o/none", "--yes").exit_code == 3
    assert run("cache", "rm", "none.pth", "--yes").exit_code == 3
    assert run("cache", "rm", "o/none:", "--yes").exit_code == 2
    assert run("cache", "rm", "o/large:v9", "--yes").exit_code == 3
    assert run("cache", "rm", str(tmp_path), "--yes").exit_code == 3
    # one that is not there, and nothing goes
    assert run("cache", "rm", "o/small", "o/none", "--yes").exit_code == 3
    assert len(listed()) == 3


def test_verify(cached: Repository) -> None:
    result = run("cache", "verify")
    assert result.exit_code == 0
    assert result.stdout == "3 trees and 0 weight files, 14.0 kB: no problems\n"
    tree = Cache.current().checkout(RepoSpec.parse("o/large:v1")).path
    (tree / "data.bin").unlink()
    result = run("cache", "verify")
    assert result.exit_code == 1 and "--repair" in result.stderr
    assert "o/large:v1: PROBLEM: changed: its tree is" in result.stdout
    assert result.stdout.endswith("14.0 kB: 1 problem\n")
    (problem,) = json.loads(run("--json", "cache", "verify").stdout)["problems"]
    assert (problem["kind"], problem["name"], problem["path"], problem["repaired"]) == (
        "code",
        "o/large:v1",
        str(tree),
        False,
    )
    result = run("cache", "verify", "--repair")
    assert result.exit_code == 0 and "o/large:v1: repaired: changed" in result.stdout
    assert run("cache", "verify").exit_code == 0


def test_prune(cached: Repository, hub_root: Path) -> None:
    assert run("cache", "prune").stdout == "freed 0 B\n"
    result = run("--json", "cache", "prune", "--max-size", "14kB", "--dry-run")
    planned = json.loads(result.stdout)
    assert planned["removed"][0] == "o/small:v1" and len(listed()) == 3
    assert "would free" in run("cache", "prune", "--max-size", "14kB", "--dry-run").stdout
    assert json.loads(run("--json", "cache", "prune", "--max-size", "14kB").stdout) == planned
    assert "o/small:v1" not in listed()
    (hub_root / "partial" / "left").write_text("x")
    assert run("cache", "prune").stdout == "freed 0 B\n"
    assert "partial/left" in run("cache", "prune", "--grace", "0").stdout
    for wrong in (("--max-size", "many"), ("--grace", "5GB"), ("--grace", "-1d")):
        assert run("cache", "prune", *wrong).exit_code == 2
