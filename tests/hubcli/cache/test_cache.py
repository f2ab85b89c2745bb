"""The cache: published trees, look-ups without network, force-reload, races, refusals, removal."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import re
import stat
import sys
import threading
import time
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hubcli.base import paths, settings
from hubcli.base.request import Request
from hubcli.base.spec import RepoSpec
from hubcli.cache import checkouts, locks, trees
from hubcli.cache.cache import Cache
from hubcli.errors import (
    HubError,
    IntegrityError,
    LockTimeoutError,
    NetworkError,
    NotFoundError,
    OfflineError,
    RepositoryCodeError,
)
from hubcli.net.git import remote as git
from tests.servers import Repository, Served, git_server

HUBCONF = "def net():\n    'A net.'\n"


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    repo = Repository.create(tmp_path / "served", "o/r")
    repo.commit({"hubconf.py": HUBCONF, "a.txt": "one"}, tag="v1")
    return repo


@pytest.fixture
def server(tmp_path: Path, repo: Repository, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "https,ssh,http,file")
    with git_server(tmp_path / "served") as served:
        monkeypatch.setenv("HUB_GIT_URL", f"{served.url}/{{owner}}/{{repo}}.git")
        yield served


def spec(text: str) -> RepoSpec:
    return RepoSpec.parse(text)


def snapshot(root: Path) -> dict[str, bytes | str]:
    """What of the cache a later command could see."""
    found: dict[str, bytes | str] = {}
    for folder in ("checkouts", "refs", "db"):
        for path in (root / folder).rglob("*"):
            if path.is_file() and not path.is_symlink():
                found[str(path.relative_to(root))] = path.read_bytes()
    for path in root.glob("*_*"):
        found[path.name] = os.readlink(path)
    return found


def left(root: Path) -> list[str]:
    """What is in partial/ beside the leases of this process."""
    return [path.name for path in (root / "partial").iterdir() if path.suffix != ".use"]


def test_a_published_tree(repo: Repository, server: Served, hub_root: Path) -> None:
    repo.commit({"run.sh": "#!/bin/sh\n", "sub/b.txt": "two"})
    os.chmod(repo.work / "run.sh", 0o755)
    os.symlink("../a.txt", repo.work / "sub" / "link")
    commit = repo.commit({})
    made = Cache.current().checkout(spec("o/r"))
    assert (made.kind, made.ref, made.commit, made.cached) == ("branch", "main", commit, False)
    assert made.tree == repo.git("rev-parse", "HEAD^{tree}")
    assert made.path.name == f"{commit}.1"
    assert made.path.is_relative_to(hub_root / "checkouts" / "github.com" / "o")
    modes = {name: stat.S_IMODE(os.lstat(made.path / name).st_mode) for name in (".", "sub", "a.txt", "run.sh")}
    assert modes == {".": 0o755, "sub": 0o755, "a.txt": 0o444, "run.sh": 0o555}
    assert (made.path / "sub" / "link").read_text() == "one"
    assert not (made.path / ".git").exists()
    marker = json.loads(made.path.with_name(f"{commit}.1.json").read_text())
    assert (marker["commit"], marker["tree"], marker["files"]) == (commit, made.tree, 5)
    assert (hub_root / "CACHEDIR.TAG").read_bytes().startswith(b"Signature: 8a477f597d28d172")
    assert not left(hub_root)


def test_a_tree_is_whole_before_it_is_shown(repo: Repository, server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    repo.commit({"large.bin": os.urandom(5000)}, tag="whole")
    rename, shown = os.rename, []

    def renamed(source: Any, target: Any) -> None:
        if re.search(r"[0-9a-f]{40}\.[0-9]+\Z", str(target)):
            shown.append((trees.identity(Path(source)), checkouts.marker(Path(target)).exists()))
        rename(source, target)

    monkeypatch.setattr(os, "rename", renamed)
    checkout = Cache.current().checkout(RepoSpec.parse("o/r:whole"))
    assert shown == [(checkout.tree, False)]


def test_visible_names_are_torchs(repo: Repository, server: Served, hub_root: Path) -> None:
    repo.git("branch", "feat/x")
    repo.push()
    for text, name in (("o/r", "o_r_main"), ("o/r:v1", "o_r_v1"), ("o/r:feat/x", "o_r_feat_x")):
        made = Cache.current().checkout(spec(text))
        link = hub_root / name
        assert link.is_symlink() and not os.path.isabs(os.readlink(link))
        assert link.resolve() == made.path


def test_a_real_folder_of_the_visible_name_stays(server: Served, hub_root: Path) -> None:
    (hub_root / "o_r_v1").mkdir(parents=True)
    (hub_root / "o_r_v1" / "mine").write_text("x")
    Cache.current().checkout(spec("o/r:v1"))
    Cache.current().checkout(spec("o/r:v1"), Request.current(reload=True))
    assert (hub_root / "o_r_v1" / "mine").read_text() == "x"


def test_a_hit_needs_no_network(server: Served) -> None:
    first = Cache.current().checkout(spec("o/r"))
    server.reset()
    hit = Cache.current().checkout(spec("o/r"))
    assert hit.cached and hit.path == first.path and hit.fetched_at == first.fetched_at
    # the default branch and the ref of that name are the same thing
    assert Cache.current().checkout(spec("o/r:main")).path == first.path
    assert server.requests == []


@pytest.mark.skipif(os.name != "posix", reason="POSIX permissions")
def test_a_hit_works_on_a_read_only_cache(server: Served, hub_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Cache.current().checkout(spec("o/r:v1"))
    folders = [hub_root, *(path for path in hub_root.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    monkeypatch.setattr(os, "utime", _refuse)  # root may write anywhere: refuse here too
    monkeypatch.setattr(paths, "write_atomically", _refuse)
    try:
        assert Cache.current().checkout(spec("o/r:v1")).cached
        assert [found.spec for found in Cache.current().repos()] == ["o/r:v1"]
    finally:
        for folder in folders:
            folder.chmod(0o755)


def _refuse(*_: object, **__: object) -> None:
    raise PermissionError(13, "read-only")


def test_offline(server: Served) -> None:
    Cache.current().checkout(spec("o/r:v1"))
    settings.override(offline=True)
    assert Cache.current().checkout(spec("o/r:v1")).cached
    with pytest.raises(OfflineError, match="o/r:v2 is not in the cache"):
        Cache.current().checkout(spec("o/r:v2"))
    with pytest.raises(OfflineError, match="cannot be reloaded"):
        Cache.current().checkout(spec("o/r:v1"), Request.current(reload=True))


def test_a_branch_stays_until_it_is_reloaded(repo: Repository, server: Served) -> None:
    first = Cache.current().checkout(spec("o/r"))
    commit = repo.commit({"a.txt": "two"})
    assert Cache.current().checkout(spec("o/r")).commit == first.commit
    second = Cache.current().checkout(spec("o/r"), Request.current(reload=True))
    assert (second.commit, second.generation) == (commit, 1)
    assert first.path.is_dir()  # whoever runs from it still can
    assert Cache.current().checkout(spec("o/r:main")).commit == commit


def test_force_reload_repairs_an_unchanged_commit(server: Served, hub_root: Path) -> None:
    first = Cache.current().checkout(spec("o/r:v1"))
    (first.path / "a.txt").unlink()
    second = Cache.current().checkout(spec("o/r:v1"), Request.current(reload=True))
    assert second.generation == 2 and second.commit == first.commit
    assert (second.path / "a.txt").read_text() == "one"
    assert (hub_root / "o_r_v1").resolve() == second.path
    assert Cache.current().checkout(spec("o/r:v1")).path == second.path


def test_a_failed_reload_leaves_the_old_in_use(repo: Repository, server: Served, hub_root: Path) -> None:
    old = Cache.current().checkout(spec("o/r"))
    before = snapshot(hub_root)
    repo.commit({"hubconf.py": "def net(:\n"})
    with pytest.raises(RepositoryCodeError):
        Cache.current().checkout(spec("o/r"), Request.current(reload=True))
    server.credentials = "now private"
    with pytest.raises(NotFoundError):
        Cache.current().checkout(spec("o/r"), Request.current(reload=True))
    after = snapshot(hub_root)
    assert {name: after[name] for name in before if not name.startswith("db/")} == {
        name: before[name] for name in before if not name.startswith("db/")
    }
    assert Cache.current().checkout(spec("o/r")).path == old.path


def test_force_reload_marks_weights_stale(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    from hubcli.cache import weights

    marked: list[str] = []
    monkeypatch.setattr(weights, "mark_stale", marked.append)
    Cache.current().checkout(spec("o/r:v1"))
    assert marked == []
    Cache.current().checkout(spec("o/r:v1"), Request.current(reload=True))
    assert marked == ["o/r:v1"]


def test_a_second_tag_moves_only_the_difference(repo: Repository, server: Served) -> None:
    repo.commit({"big.bin": os.urandom(300_000)}, tag="v2")
    repo.commit({"a.txt": "three"}, tag="v3")
    Cache.current().checkout(spec("o/r:v2"))
    assert server.sent > 300_000
    server.reset()
    made = Cache.current().checkout(spec("o/r:v3"))
    assert server.sent < 20_000
    assert (made.path / "big.bin").stat().st_size == 300_000


def test_a_commit_published_by_another_ref_is_not_fetched_again(repo: Repository, server: Served) -> None:
    first = Cache.current().checkout(spec("o/r"))
    server.reset()
    second = Cache.current().checkout(spec("o/r:v1"))
    assert second.path == first.path and second.kind == "tag"
    assert len(server.requests) == 2  # ls-remote alone


def test_commits(repo: Repository, server: Served) -> None:
    old = repo.git("rev-parse", "HEAD")
    middle = repo.commit({"a.txt": "two"})
    tip = repo.commit({"a.txt": "three"})
    for commit in (tip, middle):
        made = Cache.current().checkout(spec(f"o/r:{commit}"))
        assert (made.kind, made.commit, made.ref) == ("commit", commit, commit)
    assert (made.path / "a.txt").read_text() == "two"
    assert not list(_promisors())
    Cache.current().checkout(spec("o/r:v1"))
    server.reset()
    assert Cache.current().checkout(spec(f"o/r:{old}")).kind == "commit"  # v1 has brought it
    assert server.requests == []


def _promisors() -> Iterator[Path]:
    for config in paths.hub_dir().rglob("config"):
        if "promisor" in config.read_text():
            yield config


def test_a_commits_verdict_is_recorded(repo: Repository, server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    middle = repo.commit({"a.txt": "two"})
    repo.commit({"a.txt": "three"})
    Cache.current().checkout(spec(f"o/r:{middle}"))
    monkeypatch.setattr(git.Remote, "reaches", _refuse)
    assert Cache.current().checkout(spec(f"o/r:{middle}"), Request.current(reload=True)).generation == 2


def test_a_commit_that_only_a_fork_reaches_is_refused(repo: Repository, server: Served, hub_root: Path) -> None:
    repo.git("checkout", "-q", "--orphan", "fork")
    foreign = repo.commit({"a.txt": "evil"})
    repo.git("push", "-q", "origin", "--delete", "fork")
    repo.git("update-ref", "refs/pull/1/head", foreign, cwd=repo.bare)
    with pytest.raises(NotFoundError, match="no branch or tag of o/r reaches"):
        Cache.current().checkout(spec(f"o/r:{foreign}"))
    assert snapshot(hub_root) == {}


def test_an_ambiguous_ref_draws_a_warning(repo: Repository, server: Served, capsys: pytest.CaptureFixture[str]) -> None:
    repo.git("branch", "v1")
    repo.push()
    assert Cache.current().checkout(spec("o/r:v1")).kind == "branch"
    assert "write o/r:refs/tags/v1 for the tag" in capsys.readouterr().err
    assert Cache.current().checkout(spec("o/r:refs/tags/v1")).kind == "tag"


def test_file_urls(repo: Repository, server: Served) -> None:
    made = Cache.current().checkout(spec(f"file://{repo.bare}@v1"))
    assert made.kind == "tag" and (made.path / "a.txt").read_text() == "one"


def test_a_folder_is_used_in_place(repo: Repository, hub_root: Path) -> None:
    made = Cache.current().checkout(spec(str(repo.work)), Request.current(reload=True))
    assert (made.kind, made.path, made.commit) == ("local", repo.work, None)
    assert not hub_root.exists()
    with pytest.raises(NotFoundError, match="does not exist") as caught:
        Cache.current().checkout(spec("./no-such-folder"))
    assert "a repository is written owner/repo" in str(caught.value.hint)


@pytest.mark.parametrize("damage", ["truncated", "missing-object", "stale-lock"])
def test_a_damaged_database_is_replaced(repo: Repository, server: Served, hub_root: Path, damage: str) -> None:
    Cache.current().checkout(spec("o/r:v1"))
    repo.commit({"a.txt": "two"}, tag="v2")
    (db,) = (hub_root / "db").rglob("*.git")
    if damage == "truncated":
        (db / "config").write_text("[core")
    elif damage == "missing-object":
        for pack in (db / "objects" / "pack").iterdir():
            pack.unlink()
    else:
        (db / "shallow.lock").touch()
    made = Cache.current().checkout(spec("o/r:v2"))
    assert (made.path / "a.txt").read_text() == "two"
    assert Cache.current().checkout(spec("o/r:v1"), Request.current(reload=True)).generation == 2
    assert not (db / "shallow.lock").exists()


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"schema": 1, "remotes": {"u": 3}}'])
def test_a_damaged_ref_table_counts_as_empty(server: Served, hub_root: Path, content: bytes) -> None:
    Cache.current().checkout(spec("o/r:v1"))
    (table,) = (hub_root / "refs").rglob("*.json")
    table.write_bytes(content)
    assert Cache.current().lookup(spec("o/r:v1")) is None
    assert Cache.current().checkout(spec("o/r:v1")).generation == 1


def test_a_tree_without_marker_is_nobodys(server: Served) -> None:
    first = Cache.current().checkout(spec("o/r:v1"))
    first.path.with_name(f"{first.path.name}.json").unlink()
    assert Cache.current().lookup(spec("o/r:v1")) is None
    assert Cache.current().checkout(spec("o/r:v1")).generation == 2


def _hostile(kind: str) -> Callable[[Repository], None]:
    def link(target: str) -> Callable[[Repository], None]:
        def make(repo: Repository) -> None:
            (repo.work / "sub").mkdir()
            os.symlink(target, repo.work / "sub" / "link")
            repo.commit({})

        return make

    def chain(repo: Repository) -> None:
        (repo.work / "sub" / "deep").mkdir(parents=True)
        os.symlink("../..", repo.work / "sub" / "deep" / "up")
        os.symlink("sub/deep/up/../outside", repo.work / "link")
        repo.commit({})

    return {
        "absolute link": link("/etc/passwd"),
        "link that leaves": link("../../outside"),
        "link that leaves through another": chain,
    }[kind]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("absolute link", "'sub/link' links to '/etc/passwd', outside the tree"),
        ("link that leaves", "'sub/link' links to '../../outside'"),
        ("link that leaves through another", "'link' links to"),
    ],
)
def test_hostile_content_is_refused(repo: Repository, server: Served, hub_root: Path, kind: str, message: str) -> None:
    _hostile(kind)(repo)
    with pytest.raises(IntegrityError) as caught:
        Cache.current().checkout(spec("o/r"))
    assert message in caught.value.message
    assert caught.value.spec == "o/r"
    assert snapshot(hub_root) == {}


def test_submodules_are_left_out(
    repo: Repository, server: Served, hub_root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their folders are empty, as in the archive that torch.hub downloads; the tree is still that of the commit."""
    head = repo.git("rev-parse", "HEAD")
    for place in ("vendored", "third/party.x", "third/party"):
        repo.git("update-index", "--add", "--cacheinfo", f"160000,{head},{place}")
    (repo.work / "third").mkdir()
    (repo.work / "third" / "party.py").write_text("")
    repo.git("add", "third/party.py")
    repo.git("commit", "-q", "-m", "submodules")
    repo.push()
    made = Cache.current().checkout(spec("o/r"))
    said = " ".join(capsys.readouterr().err.split())
    assert "3 submodules (third/party, third/party.x, vendored) are left out" in said
    assert list((made.path / "vendored").iterdir()) == []
    assert trees.identity(made.path) == repo.git("rev-parse", "HEAD^{tree}")
    trees.require_sound(made)
    assert not Cache.current().verify().problems
    (made.path / "vendored").chmod(0o755)
    (made.path / "vendored" / "planted.py").write_text("")
    assert trees.identity(made.path) != repo.git("rev-parse", "HEAD^{tree}")


@pytest.mark.parametrize("part", [".git", ".GIT", "git~1", ".", ".."])
def test_names_that_no_tree_may_have(part: str, tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match="has a part"):
        trees.refuse_bad_names(spec("o/r"), [git.Entry("100644", 1, f"sub/{part}/x")], tmp_path)


CLASHING = ["Docs/a.txt", "docs/a.txt", "docs/A.txt", "docs/\u00e9", "docs/e\u0301"]


@pytest.mark.skipif(os.name == "nt" or sys.platform == "darwin", reason="their file systems fold the case of names")
def test_names_that_differ_by_case_are_no_fault_where_they_can_be_told_apart(
    repo: Repository, server: Served, hub_root: Path
) -> None:
    repo.commit({name: name for name in CLASHING})
    made = Cache.current().checkout(spec("o/r"))
    assert [(made.path / name).read_text() for name in CLASHING] == CLASHING
    trees.require_sound(made)
    assert not Cache.current().verify().problems


@pytest.mark.parametrize(
    ("listed", "named"),
    [
        (["hubconf.py", "HUBCONF.PY"], "'hubconf.py' and 'HUBCONF.PY'"),
        (["net/a.py", "Net/b.txt"], "'net' and 'Net'"),
        (["x/net/deep/a.py", "x/NET"], "'x/net' and 'x/NET'"),
    ],
)
def test_names_on_the_way_to_code_are_told_apart_everywhere(tmp_path: Path, listed: list[str], named: str) -> None:
    """What is read here and what is executed on a system that folds the case would be two files."""
    with pytest.raises(IntegrityError) as caught:
        trees.refuse_bad_names(spec("o/r"), [git.Entry("100644", 1, name) for name in listed], tmp_path)
    assert f"{named} differ by case only" in caught.value.message


@pytest.mark.parametrize(
    ("listed", "named"),
    [
        (CLASHING[:2], "'Docs' and 'docs'"),
        (CLASHING[1:3], "'docs/a.txt' and 'docs/A.txt'"),
        (CLASHING[3:], "'docs/\u00e9' and 'docs/e\u0301'"),
    ],
)
def test_names_that_a_file_system_takes_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: list[str], named: str
) -> None:
    """As on most disks of Windows and macOS."""

    def one(path: str | os.PathLike[str]) -> str:
        return unicodedata.normalize("NFC", os.fspath(path)).casefold()

    make = Path.mkdir
    monkeypatch.setattr(Path, "mkdir", lambda self: make(self.with_name(one(self.name))))
    monkeypatch.setattr(os.path, "samefile", lambda a, b: one(a) == one(b))
    before = sorted(tmp_path.iterdir())
    with pytest.raises(IntegrityError) as caught:
        trees.refuse_bad_names(spec("o/r"), [git.Entry("100644", 1, name) for name in listed], tmp_path)
    assert f"{named} differ by case only" in caught.value.message
    assert sorted(tmp_path.iterdir()) == before


def test_what_is_no_hub_repository_is_not_published(repo: Repository, server: Served, hub_root: Path) -> None:
    repo.git("rm", "-q", "hubconf.py")
    repo.commit({})
    with pytest.raises(NotFoundError, match=r"no hubconf\.py in o/r \(main"):
        Cache.current().checkout(spec("o/r"))
    assert snapshot(hub_root) == {}


def test_lfs_pointers_are_named(repo: Repository, server: Served, capsys: pytest.CaptureFixture[str]) -> None:
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 12345\n"
    repo.commit({".gitattributes": "*.pth filter=lfs diff=lfs\n", "w.pth": pointer})
    Cache.current().checkout(spec("o/r"))
    assert "1 file in Git LFS, only the pointer came: w.pth" in capsys.readouterr().err


def test_many_threads_publish_one_tree(server: Served, hub_root: Path) -> None:
    found = _at_once(6, lambda: Cache.current().checkout(spec("o/r:v1")).path)
    assert len(set(found)) == 1
    assert sum(request.method == "POST" for request in server.requests) <= 6 + 2


def test_races_without_locks(server: Served, hub_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # as on a file system where flock does nothing
    monkeypatch.setattr(locks, "exclusive", lambda *_: contextlib.nullcontext())
    found = _at_once(4, lambda: Cache.current().checkout(spec("o/r:v1"), Request.current(reload=True)).path)
    assert len(found) == 4
    for path in found:
        assert (path / "a.txt").read_text() == "one" and (path / "hubconf.py").is_file()
    assert Cache.current().lookup(spec("o/r:v1")) is not None
    assert not [path for path in (hub_root / "checkouts").rglob("*.tmp*")]


def _at_once(count: int, work: Callable[[], Path]) -> list[Path]:
    barrier = threading.Barrier(count)
    found: list[Path] = []
    failed: list[BaseException] = []

    def run() -> None:
        barrier.wait()
        try:
            found.append(work())
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    return found


def test_a_held_lock_times_out_and_says_so(server: Served, capsys: pytest.CaptureFixture[str]) -> None:
    settings.override(lock_timeout=0.1)
    with locks.exclusive("x", "o/r"):
        found: list[HubError] = []

        def wait() -> None:
            try:
                with locks.exclusive("x", "o/r"):
                    pass
            except HubError as error:
                found.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        thread.join()
    assert isinstance(found[0], LockTimeoutError)
    assert "waiting for another hub process" in capsys.readouterr().err


def _hold(name: str, ready: object, seconds: float) -> None:
    with locks.exclusive(name, "o/r"):
        ready.set()  # type: ignore[attr-defined]
        time.sleep(seconds)


def test_a_lock_holds_between_processes(server: Served) -> None:
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    holder = context.Process(target=_hold, args=("y", ready, 0.3))
    holder.start()
    assert ready.wait(30)
    settings.override(lock_timeout=20.0)
    with locks.exclusive("y", "o/r"):
        pass
    holder.join()
    assert holder.exitcode == 0


def test_repos_lists_every_ref(repo: Repository, server: Served) -> None:
    Cache.current().checkout(spec("o/r"))
    repo.commit({"a.txt": "longer than before"}, tag="v2")
    Cache.current().checkout(spec("o/r:v2"))
    first, second = Cache.current().repos()
    assert (first.spec, first.name, first.kind) == ("o/r:main", "o_r_main", "branch")
    assert (second.spec, second.name, second.kind) == ("o/r:v2", "o_r_v2", "tag")
    assert second.size == len(HUBCONF) + len("longer than before")
    assert abs(second.last_used - time.time()) < 60


def test_remove_one_ref(repo: Repository, server: Served, hub_root: Path) -> None:
    kept = Cache.current().checkout(spec("o/r:v1"))
    repo.commit({"a.txt": "two"}, tag="v2")
    gone = Cache.current().checkout(spec("o/r:v2"))
    before = snapshot(hub_root)
    planned = Cache.current().remove(spec("o/r:v2"), dry_run=True)
    assert snapshot(hub_root) == before
    done = Cache.current().remove(spec("o/r:v2"))
    assert planned == done and done.specs == ("o/r:v2",) and done.freed > 0
    assert not gone.path.exists() and not (hub_root / "o_r_v2").is_symlink()
    assert kept.path.is_dir() and Cache.current().lookup(spec("o/r:v2")) is None
    assert Cache.current().lookup(spec("o/r:v1")) is not None


def test_remove_keeps_a_tree_that_another_ref_uses(server: Served) -> None:
    Cache.current().checkout(spec("o/r"))
    shared = Cache.current().checkout(spec("o/r:v1"))
    assert Cache.current().remove(spec("o/r:v1")).freed == 0
    assert shared.path.is_dir() and Cache.current().lookup(spec("o/r")) is not None


def test_remove_a_whole_repository(server: Served, hub_root: Path) -> None:
    made = Cache.current().checkout(spec("o/r"))
    Cache.current().checkout(spec("o/r:v1"))
    (made.path / "a.txt").parent.chmod(0o555)
    assert Cache.current().remove(spec("o/r")).specs == ("o/r:main", "o/r:v1")
    assert snapshot(hub_root) == {} and not left(hub_root)
    with pytest.raises(NotFoundError, match="o/r is not in the cache"):
        Cache.current().remove(spec("o/r"))
    Cache.current().checkout(spec("o/r"))


def test_a_dead_server_leaves_nothing(hub_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "http")
    with pytest.raises(NetworkError):
        Cache.current().checkout(spec("http://127.0.0.1:9/o/r"))
    assert not hub_root.exists()


def test_a_repository_of_sha256_names(tmp_path, monkeypatch):
    """It is fetched, verified and pinned like any other, where git knows such names."""
    from hubcli.cache import trees
    from hubcli.net.git import database
    from hubcli.net.git import remote as git

    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "file")
    monkeypatch.setenv("HUB_GIT_URL", f"file://{tmp_path}/git/{{owner}}/{{repo}}.git")
    try:
        repo = Repository.create(tmp_path / "git", "o/new", format="sha256")
    except RuntimeError:
        pytest.skip("this git makes no such repository")
    old = repo.commit({"hubconf.py": "def net():\n    return 1\n", "sub/a": "1"}, tag="v1")
    repo.commit({"hubconf.py": "def net():\n    return 2\n"})
    assert len(old) == 64
    checkout = Cache.current().checkout(RepoSpec.parse("o/new:v1"))
    assert checkout.commit == old
    trees.require_sound(checkout)
    assert Cache.current().checkout(RepoSpec.parse(f"o/new:{old}"), Request.current(reload=True)).commit == old
    db = next((tmp_path / "hub" / "db").rglob("*.git"))
    (db / "config").write_text("[core]\n\tfsmonitor = false\n[extensions]\n\tobjectformat = SHA256\n")
    database.disarm(db)  # somebody has changed it
    assert git.identify(db, git.ref_in_db("tag", "v1"))[0] == old
    (checkout.path / "sub" / "a").chmod(0o600)
    (checkout.path / "sub" / "a").write_text("changed")
    assert trees.identity(checkout.path) != json.loads(checkouts.marker(checkout.path).read_text())["tree"]


def test_a_tag_of_a_tree_changes_nothing(sample, sample_server, hub_root):
    sample.git("tag", "of-a-tree", sample.git("rev-parse", "HEAD^{tree}"))
    sample.push()
    with pytest.raises(NotFoundError, match="names a tree"):
        Cache.current().checkout(RepoSpec.parse("o/r:of-a-tree"))
    assert not list((hub_root / "checkouts").rglob("*.json")) if hub_root.exists() else True
    assert Cache.current().checkout(RepoSpec.parse("o/r:v1")).kind == "tag"
