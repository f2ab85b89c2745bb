"""What goes wrong around a cache, with real processes and real disks: nobody loses or sees half a thing.

`tests/torture.py` mixes all of it for minutes; `test_torture` here does so for half a minute.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hubcli.base import paths
from hubcli.base.request import Request
from hubcli.base.spec import RepoSpec
from hubcli.cache import checkouts, leases, locks, ref_table, trees, weights
from hubcli.cache.cache import Cache
from tests.servers import Repository, Served, file_server, git_server
from tests.torture import may_mount

ROOT = Path(locks.__file__).parents[2]
HUBCONF = """
def net():
    import later
    import torch
    return torch.nn.Linear(later.value, 1)


def weighted(url):
    import torch.hub
    return torch.hub.load_state_dict_from_url(url)
"""


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    repo = Repository.create(tmp_path / "served", "o/r")
    repo.commit({"hubconf.py": HUBCONF, "later.py": "value = 1\n"}, tag="v1")
    repo.commit({"large.bin": os.urandom(3_000_000)}, tag="large")
    return repo


@pytest.fixture
def server(tmp_path: Path, repo: Repository, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "http")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with git_server(tmp_path / "served") as served:
        monkeypatch.setenv("HUB_GIT_URL", f"{served.url}/{{owner}}/{{repo}}.git")
        yield served


def spec(text: str) -> RepoSpec:
    return RepoSpec.parse(text)


def on_a_disk_of_its_own(script: str, *arguments: str) -> list[tuple[int, dict]]:
    """Run a shell script that may mount; the status and document of every `hub` in it."""
    hub = 'hub() { "$PYTHON" -m hubcli --json "$@" && s=0 || s=$?; echo "status $s"; }\n'
    result = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-ec", hub + script, "sh", *arguments],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0 and "Traceback" not in result.stderr, result.stderr
    parts = result.stdout.split("status ")
    decoder = json.JSONDecoder()
    return [
        (int(after.split()[0]), decoder.raw_decode(before[before.index("{") :])[0])
        for before, after in itertools.pairwise(parts)
    ]


needs_mounts = pytest.mark.skipif(not may_mount(), reason="this user may not mount")


@pytest.mark.long
@needs_mounts
def test_a_read_only_cache(server: Served, hub_root: Path) -> None:
    Cache.current().checkout(spec("o/r:v1"))
    script = """
        mount --bind "$1" "$1"; mount -o remount,bind,ro "$1"
        hub pull o/r:v1; hub list o/r:v1; hub load o/r:v1 net --trust once
        hub cache ls; hub cache verify; hub --offline show o/r:v1
        hub pull o/r:large; hub pull o/r:v1 --force-reload; hub cache rm o/r --yes; hub cache prune
    """
    answers = on_a_disk_of_its_own(script, str(hub_root))
    assert [status for status, _ in answers] == [0] * 6 + [1] * 4
    for _, document in answers[6:]:
        error = document["error"]
        assert error["code"] != "internal" and "ead-only file system" in error["message"]
    assert [repo.spec for repo in Cache.current().repos()] == ["o/r:v1"]


@pytest.mark.long
@needs_mounts
def test_a_full_disk(server: Served, hub_root: Path, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "net.pth").write_bytes(bytes(4_000_000))
    hub_root.mkdir()
    script = """
        mount -t tmpfs -o size=2m,mode=755 tmpfs "$1"
        hub pull o/r:v1; hub pull o/r:large
        hub load o/r:v1 weighted -k "url=$2" --trust once
        head -c 10000000 /dev/zero > "$1/filler" || true
        hub pull o/r --force-reload; hub cache ls; hub cache verify
        rm "$1/filler"
        hub cache prune; hub cache verify; hub --offline pull o/r:v1
    """
    with file_server(tmp_path / "files") as files:
        url = f"{files.url}/net.pth"
        answers = on_a_disk_of_its_own(script, str(hub_root), url)
    statuses = [status for status, _ in answers]
    assert statuses == [0, 1, 1, 1, 0, 0, 0, 0, 0]
    for number in (1, 2, 3):
        error = answers[number][1]["error"]
        assert "space" in f"{error['message']} {error['hint']}" or "full" in error["hint"]


def test_a_clock_that_was_ahead_does_not_stop_a_reload(
    repo: Repository, server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: now + 4e8)
        old = Cache.current().checkout(spec("o/r"))
    commit = repo.commit({"later.py": "value = 2\n"})
    new = Cache.current().checkout(spec("o/r"), Request.current(reload=True))
    assert (new.commit, new.cached) == (commit, False) and new.path != old.path


def test_whose_a_plain_file_is_does_not_depend_on_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "http")
    for name, content in (("a", b"one"), ("b", b"two")):
        (tmp_path / "files" / name).mkdir(parents=True)
        (tmp_path / "files" / name / "net.pth").write_bytes(content)
    now = time.time()
    with file_server(tmp_path / "files") as files:
        urls = [f"{files.url}/{name}/net.pth" for name in "ab"]
        with monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda: now + 4e8)
            weights.obtain(urls[0], tmp_path / "mine")
        for url, content in zip([*urls[::-1], *urls], (b"two", b"one", b"one", b"two")):
            assert weights.obtain(url, tmp_path / "mine")[1].read_bytes() == content


USER = """
import sys
from hubcli.base.spec import RepoSpec
from hubcli.cache.cache import Cache
print(Cache.current().checkout(RepoSpec.parse("o/r:v1")).path, flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def user() -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process that uses a tree until it is killed or the block ends."""
    command = [sys.executable, "-c", USER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield process, Path(process.stdout.readline().strip())


def test_removal_beside_a_process_that_uses_it(server: Served, hub_root: Path) -> None:
    with user() as (_, tree):
        identity = trees.identity(tree)
        assert leases.held() == {tree}
        assert Cache.current().remove(spec("o/r:v1")).specs == ("o/r:v1",)
        assert Cache.current().lookup(spec("o/r:v1")) is None and Cache.current().repos() == []
        Cache.current().prune(grace=0)
        assert trees.identity(tree) == identity  # it may import what it has not yet imported
    assert leases.held() == set() and tree.is_dir()
    Cache.current().prune(grace=0)
    assert not tree.exists()


def test_a_tree_that_is_found_while_it_is_removed_stays(
    server: Served, hub_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without locks: somebody pulls it again and holds it between the look at the leases and the removal."""
    Cache.current().checkout(spec("o/r:v1"))
    monkeypatch.setattr(locks, "exclusive", lambda *_: contextlib.nullcontext())
    held = leases.held
    with contextlib.ExitStack() as stack:
        found: list[Path] = []

        def late(*_: object) -> set[Path]:
            before = held()
            if not found:
                found.append(stack.enter_context(user())[1])
            return before

        monkeypatch.setattr(leases, "held", late)
        Cache.current().remove(spec("o/r:v1"))
        (tree,) = found
        assert (tree / "later.py").is_file() and checkouts.marker(tree).is_file()
        again = Cache.current().lookup(spec("o/r:v1"))
        assert again is not None and again.path == tree


def test_a_lease_needs_no_room(hub_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, *_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    tree = hub_root / "checkouts" / "x" / "y.1"
    paths.partial(hub_root).mkdir(parents=True)
    leases.hold(tree)
    (lease,) = paths.partial(hub_root).glob("*.use")
    assert leases._read(lease) == "checkouts/x/y.1"


def test_a_lease_of_a_dead_process_holds_nothing(server: Served, hub_root: Path) -> None:
    with user() as (process, tree):
        process.kill()
    assert len(list((hub_root / "partial").glob("*.use"))) == 1 and leases.held() == set()
    Cache.current().remove(spec("o/r:v1"))
    assert not tree.exists()
    Cache.current().prune()
    assert list((hub_root / "partial").iterdir()) == []


WITHOUT_LOCKS = """
import contextlib, sys
from hubcli.terminal import cli; from hubcli.cache import locks
locks.exclusive = lambda *_: contextlib.nullcontext()
cli.hub.main(["--json", *sys.argv[1:]])
"""


def test_many_processes_without_locks(server: Served, hub_root: Path) -> None:
    """As on file systems where locks do nothing: all succeed, and all see one whole tree."""
    command = [sys.executable, "-c", WITHOUT_LOCKS, "pull", "o/r:v1"]
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen(command + ["--force-reload"] * (n % 2), stdout=subprocess.PIPE, text=True)
            )
            for n in range(6)
        ]
        answers = [(process.communicate()[0], process.returncode) for process in processes]
    for out, status in answers:
        assert status == 0, out
        path = Path(json.loads(out)["path"])
        assert trees.identity(path) == json.loads(checkouts.marker(path).read_text())["tree"]
    assert Cache.current().lookup(spec("o/r:v1")) is not None
    assert Cache.current().verify().problems == ()
    (table,) = ref_table.load(next((hub_root / "refs").rglob("*.json"))).values()
    assert set(table.entries) == {"v1"}
    left = [path for path in (hub_root / "partial").iterdir() if not paths.abandoned(path.name)]
    assert left == []


@pytest.mark.long
def test_torture() -> None:
    """Half a minute of `make torture`, in processes of its own."""
    result = subprocess.run(
        [sys.executable, "-m", "tests.torture", "--seconds", "30", "--operations", "120"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-5000:]
    counts = json.loads(result.stdout)
    assert counts["wrong"] == [] and counts["total"] >= 10
    assert counts["statuses"]["0"] > 0 and counts["observed"]["trees"] > 0
