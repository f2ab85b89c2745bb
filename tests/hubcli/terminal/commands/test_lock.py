"""`hub lock`, `hub sync`, `hub outdated` and --locked: what they write, fetch, refuse, never run."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hubcli.terminal import cli
from tests.hubcli.models import Model
from tests.servers import Served, file_server, git_server


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Served]:
    (tmp_path / "files").mkdir()
    with file_server(tmp_path / "files") as served:
        yield served


@pytest.fixture
def model(tmp_path: Path, files: Served, monkeypatch: pytest.MonkeyPatch) -> Iterator[Model]:
    """`o/m:v1`; the current folder is an empty one, for hub.lock."""
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "http")
    made = Model.create(tmp_path, files.url)
    with git_server(tmp_path / "served") as served:
        monkeypatch.setenv("HUB_GIT_URL", f"{served.url}/{{owner}}/{{repo}}.git")
        yield made


@pytest.fixture
def locked(model: Model) -> Model:
    """hub.lock pins the code and the weights of `net`."""
    result = lock_net(model)
    assert result.exit_code == 0, result.output
    return model


def hub(*arguments: str) -> Result:
    return CliRunner().invoke(cli.hub, list(arguments))


def lock_net(model: Model, *more: str) -> Result:
    url = ("-k", f"url={model.url}")
    return hub("--json", "lock", "o/m:v1", "--weights", "net", *url, "--trust", "once", *more)


def load(model: Model, *more: str, spec: str = "o/m:v1") -> Result:
    return hub("load", spec, "net", "-k", f"url={model.url}", *more)


def refused(result: Result, status: int, message: str) -> None:
    assert (result.exit_code, result.stdout) == (status, ""), result.output
    assert message in result.stderr and "Traceback" not in result.stderr


def another_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on the machine of the next developer, or in CI."""
    monkeypatch.setenv("TORCH_HUB_DIR", str(tmp_path / "another"))


def lock_file() -> dict[str, Any]:
    return tomllib.loads(Path("hub.lock").read_text())


def test_what_is_locked(locked):
    (repo,) = lock_file()["repo"]
    commit = locked.repository.git("rev-parse", "v1")
    assert (repo["spec"], repo["kind"], repo["ref"]) == ("o/m:v1", "tag", "v1")
    assert repo["commit"] == commit
    assert repo["tree"] == locked.repository.git("rev-parse", "v1^{tree}")
    (weights,) = lock_file()["weights"]
    assert (weights["url"], weights["file"]) == (locked.url, locked.weights)
    assert (weights["used_by"], weights["size"]) == (["o/m:v1#net"], 96)
    again = hub("lock", "o/m:v1", "--locked")
    assert again.exit_code == 0 and "hub.lock is up to date" in again.stderr


def test_nothing_runs_without_weights(model, tmp_path):
    canary = tmp_path / "executed"
    hubconf = f"import pathlib\npathlib.Path({str(canary)!r}).touch()\ndef net():\n    pass\n"
    model.repository.commit({"hubconf.py": hubconf, "sitecustomize.py": hubconf}, tag="v2")
    assert hub("lock", "o/m:v2", "o/m").exit_code == 0
    assert hub("sync").exit_code == hub("sync", "--frozen").exit_code == 0
    assert hub("outdated").exit_code == 0
    assert hub("lock").exit_code == 0
    assert not canary.exists()
    refused(hub("lock", "o/m:v2", "--weights", "net"), 7, "is not trusted")
    assert not canary.exists()
    assert hub("lock", "o/m:v2", "--weights", "net", "--trust", "once").exit_code == 0
    assert canary.exists()  # it would have been noticed


def test_weights_that_are_known_are_locked_without_running(model):
    assert load(model, "--trust", "once").exit_code == 0
    result = hub("lock", "o/m:v1")
    assert result.exit_code == 0 and "weights net-" in result.stderr
    assert [one["url"] for one in lock_file()["weights"]] == [model.url]


def test_locking_keeps_what_it_does_not_know_better(locked, tmp_path, monkeypatch):
    before = lock_file()
    another_cache(tmp_path, monkeypatch)
    assert hub("lock", "o/m").exit_code == 0
    assert hub("lock", "o/m:v1").exit_code == 0
    after = lock_file()
    assert after["weights"] == before["weights"] and len(after["repo"]) == 2


def test_weights_that_an_entrypoint_no_longer_loads_go(locked):
    result = hub("lock", "o/m:v1", "--weights", "net", "--trust", "once")
    assert result.exit_code == 0 and "removed" in result.stderr
    assert "weights" not in lock_file()


def test_a_branch_is_locked_where_it_is_now(model):
    assert hub("pull", "o/m").exit_code == 0
    now = model.repository.commit({"more.py": ""})
    refused(hub("--offline", "sync"), 3, "there is no hub.lock")
    assert hub("--offline", "lock", "o/m").exit_code == 0  # as far as the cache knows
    assert lock_file()["repo"][0]["commit"] != now
    assert json.loads(hub("--json", "outdated").stdout)["outdated"][0]["current"] == now
    refused(hub("lock", "--locked"), 9, "would change")
    assert hub("lock").exit_code == 0
    assert lock_file()["repo"][0]["commit"] == now
    assert "nothing has moved" in hub("outdated").stdout


def test_sync_in_another_cache(locked, tmp_path, monkeypatch, files):
    locked.repository.commit({"hubconf.py": "raise SystemExit"})
    another_cache(tmp_path, monkeypatch)
    refused(hub("sync", "--frozen"), 5, "offline")
    made = json.loads(hub("--json", "sync", "--locked").stdout)
    assert made["repos"][0]["commit"] == locked.repository.git("rev-parse", "v1")
    files.reset()
    result = load(locked, "--frozen")
    assert result.exit_code == 0, result.output
    assert files.requests == []
    assert hub("show", "o/m:v1").exit_code == 0
    shown = json.loads(hub("--json", "show", "o/m:v1").stdout)
    assert [one["file"] for one in shown["weights"]] == [locked.weights]


def test_sync_completes_what_is_only_wanted(model):
    Path("hub.lock").write_text(f'version = 1\n[[repo]]\nspec = "o/m:v1"\n[[weights]]\nurl = "{model.url}"\n')
    refused(hub("sync", "--locked"), 9, "hub.lock would change: o/m:v1 is not pinned yet")
    refused(load(model, "--locked"), 9, "is not pinned yet")
    assert hub("sync").exit_code == 0
    made = lock_file()
    assert made["repo"][0]["commit"] == model.repository.git("rev-parse", "v1")
    assert (made["weights"][0]["file"], made["weights"][0]["used_by"]) == (model.weights, [])
    assert hub("sync", "--locked").exit_code == 0
    assert load(model, "--locked").exit_code == 0
    hub("lock", "o/m:v1")
    assert lock_file()["weights"]  # named by hand: locking does not drop it


def test_a_lock_entry_is_trust_for_that_commit_under_locked_only(locked):
    refused(load(locked), 7, "is not trusted")
    assert load(locked, "--locked").exit_code == 0
    assert json.loads(hub("--json", "trust", "ls").stdout)["trusted"] == []
    locked.repository.commit({"more.py": ""}, tag="v2")
    refused(load(locked, "--locked", spec="o/m:v2"), 9, "o/m:v2 is not in hub.lock")


def test_locked_pins_weights_and_nested_loads(locked, files, tmp_path):
    result = hub("load", "o/m:v1", "net", "-k", f"url={files.url}/other.pth", "--locked")
    refused(result, 9, "other.pth are not in hub.lock")
    code = "import torch\ndef outer(spec):\n    return torch.hub.load(spec, 'net', verbose=False, trust_repo=True)\n"
    locked.repository.commit({"hubconf.py": code}, tag="v3")
    assert hub("lock", "o/m:v3").exit_code == 0
    assert hub("load", "o/m:v3", "outer", "-k", "spec=o/m:v1", "--locked").exit_code == 0
    refused(hub("load", "o/m:v3", "outer", "-k", "spec=o/m", "--locked"), 9, "o/m is not in")


@pytest.mark.parametrize("sandbox", [[], ["--sandbox=best-effort"]])
@pytest.mark.long
def test_other_downloads_are_pinned_too(model, files, tmp_path, sandbox):
    code = (
        "import torch\ndef net(url, to):\n"
        "    torch.hub.download_url_to_file(url, to, progress=False)\n"
        "    return torch.nn.Linear(1, 1)\n"
    )
    model.repository.commit({"hubconf.py": code}, tag="v4")
    (tmp_path / "files" / "labels.txt").write_text("one")
    url = f"{files.url}/labels.txt"
    to = "labels.txt" if sandbox else f"{tmp_path}/labels.txt"  # a sandbox has its own folder
    options = ["-k", f"url={url}", "-k", f"to={to}", "--locked", *sandbox]
    Path("hub.lock").write_text('version = 1\n[[repo]]\nspec = "o/m:v4"\n')
    assert hub("sync").exit_code == 0
    refused(hub("load", "o/m:v4", "net", *options), 9, "labels.txt are not in hub.lock")
    with Path("hub.lock").open("a") as file:
        file.write(f'[[weights]]\nurl = "{url}"\n')
    assert hub("sync").exit_code == 0
    result = hub("load", "o/m:v4", "net", *options)
    assert result.exit_code == 0, result.output
    (tmp_path / "files" / "labels.txt").write_text("two")
    assert hub("load", "o/m:v4", "net", *options).exit_code == 0  # the cache has what the lock file says
    assert hub("cache", "rm", "labels.txt", "--yes").exit_code == 0
    refused(hub("load", "o/m:v4", "net", *options), 9, "is not what the lock file says")


@pytest.mark.parametrize("sandbox", ["--no-sandbox", "--sandbox=best-effort"])
@pytest.mark.long
def test_check_is_held_to_it_in_its_own_processes(locked, files, sandbox):
    url = ("-k", f"url={locked.url}")
    result = hub("check", "o/m:v1", "net", *url, "--locked", sandbox)
    assert result.exit_code == 0, result.output
    result = hub("check", "o/m:v1", "net", "-k", f"url={files.url}/x.pth", "--locked", sandbox)
    assert result.exit_code == 1 and "x.pth are not in hub.lock" in result.stdout


def test_weights_are_locked_from_a_sandbox_too(model):
    result = lock_net(model, "--sandbox=best-effort")
    assert result.exit_code == 0, result.output
    assert [one["url"] for one in lock_file()["weights"]] == [model.url]


def test_pull_and_run_take_it_too(locked, tmp_path):
    locked.repository.commit({"hubconf.py": "raise SystemExit"})
    made = json.loads(hub("--json", "pull", "o/m:v1", "--locked").stdout)
    assert made["commit"] == locked.repository.git("rev-parse", "v1")
    Path("hub.lock").rename("other.lock")
    refused(hub("pull", "o/m:v1", "--locked"), 9, "there is no hub.lock")
    assert hub("pull", "o/m:v1", "--locked", "--lock-file", "other.lock").exit_code == 0
    refused(hub("pull", "o/m:v1", "--lock-file", "other.lock"), 2, "--lock-file is for --locked")
    refused(
        hub("pull", "o/m:v1", "--locked", "--lock-file", "other.lock", "--accept-changed"),
        2,
        "exclude each other",
    )


def test_weights_that_changed(locked, files, tmp_path, monkeypatch):
    (tmp_path / "files" / locked.weights).write_bytes(b"other")
    assert load(locked, "--locked").exit_code == 0  # the cache has what is locked
    another_cache(tmp_path, monkeypatch)
    refused(hub("sync"), 9, "is not what the lock file says")
    assert not (tmp_path / "another" / "checkpoints" / locked.weights).exists()


def test_weights_in_the_cache_are_hashed_again(locked, hub_root):
    (blob,) = [path for path in (hub_root / "blobs" / "sha256").rglob("*") if path.is_file()]
    status = blob.stat()
    content = bytearray(blob.read_bytes())
    content[-1] ^= 1
    blob.chmod(0o644)
    blob.write_bytes(content)
    os.utime(blob, ns=(status.st_atime_ns, status.st_mtime_ns))  # as a disk that rots
    refused(load(locked, "--locked"), 9, "is not what the lock file says")


@pytest.mark.parametrize("key", ["tree", "dirhash", "size"])
def test_a_lock_file_changed_by_hand(locked, key):
    other = {"tree": "0" * 40, "dirhash": "h1:" + "A" * 43 + "=", "size": "97"}[key]
    lines = Path("hub.lock").read_text().splitlines()
    quote = "" if key == "size" else '"'
    edited = [f"{key} = {quote}{other}{quote}" if line.startswith(key) else line for line in lines]
    Path("hub.lock").write_text("\n".join(edited))
    refused(hub("sync", "--locked"), 9, "the lock file says")
    refused(load(locked, "--locked"), 9, "the lock file says")


def test_outdated_names_a_tag_that_moved(locked):
    assert hub("outdated").exit_code == 0
    locked.repository.commit({"more.py": ""})
    locked.repository.git("tag", "-f", "v1")
    locked.repository.push()
    now = locked.repository.git("rev-parse", "v1")
    result = hub("outdated")
    assert result.exit_code == 6 and now[:12] in result.stdout
    assert "hub pull o/m:v1 --accept-changed && hub lock o/m:v1" in result.stderr
    refused(hub("lock", "o/m:v1"), 6, f"it has moved to {now}")
    assert load(locked, "--locked").exit_code == 0  # what is locked is not touched by that
    assert hub("pull", "o/m:v1", "--accept-changed").exit_code == 0
    assert hub("lock", "o/m:v1").exit_code == 0
    assert hub("outdated").exit_code == 0


def test_usage(model, tmp_path):
    refused(hub("lock"), 2, "there is nothing to lock")
    refused(hub("lock", str(tmp_path / "served")), 2, "has no commit to lock")
    refused(hub("lock", "o/m:v1", "o/m", "--weights", "net"), 2, "exactly one SPEC")
    refused(hub("lock", "o/m:v1", "-k", "a=1"), 2, "add --weights ENTRYPOINT")
    refused(hub("lock", "o/m:v1", "-o", "a", "--lock-file", "b"), 2, "name the same thing")
    refused(hub("lock", "o/m:v1", "-o", "nowhere/hub.lock"), 2, "there is no folder nowhere")
    refused(hub("outdated"), 9, "there is no hub.lock")
    refused(hub("sync", "--locked"), 9, "there is no hub.lock")
    Path("hub.lock").write_text("version = [")
    for command in (["sync"], ["outdated"], ["lock", "o/m:v1"], ["pull", "o/m:v1", "--locked"]):
        refused(hub(*command), 9, "hub.lock is no lock file that hub can use")
    assert Path("hub.lock").read_text() == "version = ["


def test_newer_tags_are_told(model):
    assert hub("lock", "o/m:v1", "o/m").exit_code == 0
    assert "nothing has moved" in hub("outdated").stdout
    model.repository.git("tag", "v1.0.1-rc1")
    model.repository.git("tag", "nightly-9")
    model.repository.git("tag", "v0.9")
    model.repository.push()
    assert "nothing has moved" in hub("outdated").stdout
    for tag in ("v1.9", "v1.10", "v1.2"):
        model.repository.git("tag", "-a", "-m", "annotated", tag)
    model.repository.push()
    result = hub("--json", "outdated")
    assert result.exit_code == 0 and not result.stderr
    (one,) = json.loads(result.stdout)["outdated"]
    assert (one["spec"], one["newer"]) == ("o/m:v1", "v1.10") and one["current"] == one["locked"]
    assert hub("outdated").stdout.split() == ["o/m:v1", "tag", one["locked"][:12], "newer:", "v1.10"]
    model.repository.git("tag", "-f", "v1", model.repository.commit({"more.py": ""}))
    model.repository.push()
    result = hub("outdated", "o/m:v1")
    assert result.exit_code == 6 and "newer: v1.10" in result.stdout and "should stay" in result.stderr
