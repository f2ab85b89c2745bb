"""A cache that others may write to: what they change there is not run, and what cannot be swept stops nothing."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from hubcli import torch_hub
from hubcli.base import paths
from hubcli.base.request import Request
from hubcli.base.spec import RepoSpec
from hubcli.cache import checkouts, ref_table, trees
from hubcli.cache.cache import Cache
from hubcli.cache.checkouts import Checkout
from hubcli.errors import HubError, IntegrityError
from hubcli.net.git import database
from hubcli.net.git import remote as git
from hubcli.trust import gates


@pytest.fixture
def checkout(sample_server) -> Checkout:
    return Cache.current().checkout(RepoSpec.parse("o/r:v1"))


def rewrite(path: Path, content: str) -> None:
    path.chmod(0o644)
    path.write_text(content)


# What lies there is what was committed


@pytest.mark.parametrize("how", ["changed", "added", "marker", "table"])
def test_a_changed_checkout_does_not_run(checkout, how, tmp_path, hub_root):
    planted = f"open({str(tmp_path / 'ran')!r}, 'w')\n"
    if how == "added":
        (checkout.path / "helpers.pyi").write_text("")
    else:
        rewrite(checkout.path / "hubconf.py", planted + "def thing():\n    return 1\n")
    made = trees.identity(checkout.path)
    if how == "marker":
        marker = checkouts.marker(checkout.path)
        marker.write_text(marker.read_text().replace(str(checkout.tree), made))
    elif how == "table":
        (file,) = paths.refs().rglob("*.json")
        file.write_text(file.read_text().replace(str(checkout.tree), made))
    with pytest.raises(IntegrityError, match=f"is not what commit {checkout.commit} holds") as caught:
        gates.require(checkout, "thing", Request.current(trust="once"))
    assert "hub pull o/r:v1 --force-reload" in str(caught.value.hint)
    with pytest.raises(IntegrityError):
        torch_hub.load("o/r:v1", "thing", trust_repo=True, verbose=False)
    assert not (tmp_path / "ran").exists()
    again = Cache.current().checkout(RepoSpec.parse("o/r:v1"), Request.current(reload=True))
    gates.require(again, "thing", Request.current(trust="once"))


def test_a_forged_commit_does_not_help(checkout):
    marker = checkouts.marker(checkout.path)
    marker.write_text(marker.read_text().replace("tree ", "tree 0"))
    with pytest.raises(IntegrityError):
        gates.require(checkout, "thing", Request.current(trust="once"))


def test_a_checkout_of_an_older_hub_is_verified_by_its_database(checkout):
    import json

    marker = checkouts.marker(checkout.path)
    document = json.loads(marker.read_text())
    del document["object"]
    marker.write_text(json.dumps(document))
    gates.require(checkout, "thing", Request.current(trust="once"))
    rewrite(checkout.path / "helpers.py", "")
    trees._require_sound.cache_clear()
    with pytest.raises(IntegrityError):
        gates.require(checkout, "thing", Request.current(trust="once"))


# git starts no program that the cache names


@pytest.mark.parametrize("file", ["config", "config.worktree", "info"])
def test_a_database_names_no_program(checkout, sample, tmp_path, file):
    db = paths.db(ref_table.Table.read(checkout.spec).key)
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path / 'ran'}\n")
    program.chmod(0o755)
    text = (
        f"[core]\n\trepositoryformatversion = 1\n\tbare = true\n\talternateRefsCommand = {program}\n"
        f"\tsshCommand = {program}\n\tfsmonitor = {program}\n[extensions]\n\tworktreeConfig = true\n"
        f'[filter "x"]\n\tsmudge = {program}\n'
    )
    away = tmp_path / "away" / "objects"
    away.mkdir(parents=True)
    (db / "objects" / "info" / "alternates").write_text(f"{away}\n")
    (db / "config").write_text(text)
    if file == "config.worktree":
        (db / "config.worktree").write_text(text)
    sample.commit({"new.txt": "x"}, tag="v2")
    Cache.current().checkout(RepoSpec.parse("o/r:v2"))
    git.changed_files(db, checkout.commit, checkout.commit)
    assert not (tmp_path / "ran").exists()
    assert (db / "config").read_bytes() == database.CONFIG
    assert not (db / "objects" / "info" / "alternates").exists() and not (db / "config.worktree").exists()


# Owner and mode


@pytest.fixture
def seen(monkeypatch, hub_root):
    """Let a folder be seen with another owner or mode, by a user of another number."""
    real, changed = os.stat, {}

    def look(path, *rest, **more):
        found = real(path, *rest, **more)
        mode, uid, gid = changed.get(Path(path) if isinstance(path, str | Path) else None, (None, None, None))
        if mode is None:
            return found
        return os.stat_result((stat.S_IFDIR | mode, 1, 1, 1, uid, gid, 0, 0, 0, 0))

    monkeypatch.setattr(os, "stat", look)
    paths.check_owner.cache_clear()
    hub_root.mkdir()
    yield changed
    paths.check_owner.cache_clear()


@pytest.mark.parametrize(
    ("mode", "uid", "gid", "what"),
    [
        (0o777, 1000, 1000, "others may write to"),
        (0o775, 1000, 2000, "others may write to"),
        (0o1777, 1000, 1000, "others may write to"),
        (0o755, 1001, 1000, "belongs to another user (number 1001)"),
    ],
)
def test_a_cache_that_others_can_write(seen, hub_root, monkeypatch, capsys, mode, uid, gid, what):
    seen[hub_root] = mode, uid, gid
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    for folder in hub_root.parents:
        seen[folder] = 0o755, 1000, 1000
    for _ in range(2):
        paths.check_owner(hub_root)
    assert capsys.readouterr().err.count(what) == 1
    paths.check_owner.cache_clear()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    seen.update({folder: (0o755, 0, 0) for folder in hub_root.parents})
    with pytest.raises(HubError, match="not safe to run as root"):
        paths.check_owner(hub_root)


def test_a_folder_above_counts_too(seen, hub_root, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    seen.update({folder: (0o755, 0, 0) for folder in (hub_root, *hub_root.parents)})
    seen[hub_root.parent] = 0o1777, 0, 0  # as /tmp is
    paths.check_owner(hub_root)
    paths.check_owner.cache_clear()
    seen[hub_root.parent] = 0o777, 0, 0
    with pytest.raises(HubError, match="others may write to"):
        paths.check_owner(hub_root)


@pytest.mark.parametrize(("mode", "gid"), [(0o755, 1000), (0o775, 1000), (0o700, 5)])
def test_a_cache_of_ones_own_is_fine(seen, hub_root, monkeypatch, capsys, mode, gid):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    seen.update({folder: (0o755, 0, 0) for folder in hub_root.parents})
    seen[hub_root] = mode, 1000, gid
    paths.check_owner(hub_root)
    assert capsys.readouterr().err == ""


# Leftovers


def deep(folder: Path, depth: int) -> None:
    """`depth` folders inside each other, which no path can name."""
    here = os.open(".", os.O_RDONLY)
    try:
        folder.mkdir(parents=True)
        os.chdir(folder)
        for _ in range(depth):
            os.mkdir("a")
            os.chdir("a")
        Path("file").write_text("x")
    finally:
        os.fchdir(here)
        os.close(here)


def dead() -> str:
    """A name that a process of this machine has left that is dead."""
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return paths.unique().replace(f"-{os.getpid():x}-", f"-{child:x}-")


def test_folders_of_any_depth_go(hub_root, sample_server):
    paths.ensure_root()
    deep(paths.partial() / f"{dead()}.sandbox", 3_000)
    assert paths.disk_size(paths.partial()) >= 0
    Cache.current().checkout(RepoSpec.parse("o/r:v1"))  # a remote pull sweeps
    left = [path for path in paths.partial().iterdir() if path.suffix != ".use"]
    assert left == []
    deep(paths.partial() / f"{dead()}.sandbox", 3_000)
    assert len(Cache.current().prune().removed) == 1
    assert [path for path in paths.partial().iterdir() if path.suffix != ".use"] == []


def test_a_leftover_that_cannot_be_swept_is_set_aside(hub_root, sample_server, monkeypatch, capsys):
    paths.ensure_root()
    (paths.partial() / f"{dead()}.sandbox").mkdir(parents=True)
    real = paths.delete

    def delete(path: Path) -> None:
        if path.suffix == ".trash":
            raise PermissionError(1, "Operation not permitted")
        real(path)

    monkeypatch.setattr(paths, "delete", delete)
    Cache.current().checkout(RepoSpec.parse("o/r:v1"))
    Cache.current().prune(grace=-1.0)
    assert "cannot be removed: Operation not permitted" in capsys.readouterr().err
    Cache.current().checkout(RepoSpec.parse("o/r:v1"), Request.current(reload=True))
