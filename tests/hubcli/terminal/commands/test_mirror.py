"""`hub mirror` and HUB_MIRROR: what is written where, who is asked, and that a mirror is never believed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hubcli.base.spec import RepoSpec
from hubcli.cache.cache import Cache
from hubcli.terminal import cli
from tests.hubcli.models import Model
from tests.servers import Served, dead_server, file_server, git_server

CLIENTS = 50
# Each client is a process with a cache of its own, all at once; forked after the imports, for two cores must do.
DRIVER = """
import os, sys
from pathlib import Path
from hubcli.base import output, paths, settings
from hubcli.cache import fetching, lockfile, weights
from hubcli.net.git import process
from hubcli.net.http import fetch, sessions
from hubcli.net.storage import mirror
from hubcli.terminal.commands import sync
from hubcli.workflows import locking
import filelock, requests
process.launcher()
root, count = Path(sys.argv[1]), int(sys.argv[2])
lock = lockfile.require(Path("hub.lock"))
children = []
for number in range(count):
    child = os.fork()
    if child == 0:
        status = 1
        try:
            paths.set_dir(root / f"client-{number}")
            settings.override(quiet=True)
            locking.fetch(lock)
            status = 0
        except BaseException as error:
            print(repr(error), file=sys.stderr)
        os._exit(status)
    children.append(child)
sys.exit(sum(os.waitpid(child, 0)[1] != 0 for child in children))
"""


@dataclass
class World:
    """A locked model `o/m:v1`, the servers of its code and weights, and a mirror of it at `mirror.url`."""

    model: Model
    git: Served
    files: Served
    mirror: Served
    folder: Path
    tmp: Path

    def origin(self) -> int:
        """How many requests have reached the origins."""
        return len(self.git.requests) + len(self.files.requests)

    def reset(self) -> None:
        for served in (self.git, self.files, self.mirror):
            served.reset()

    def another_cache(self, monkeypatch: pytest.MonkeyPatch, name: str = "another") -> None:
        """As on another machine, of somebody who uses the mirror."""
        monkeypatch.setenv("TORCH_HUB_DIR", str(self.tmp / name))
        monkeypatch.setenv("HUB_MIRROR", self.mirror.url)
        self.reset()

    def pack(self) -> Path:
        (pack,) = self.folder.glob("git/*/*.pack")
        return pack

    def blob(self) -> Path:
        (blob,) = self.folder.glob("sha256/*/*")
        return blob


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "http")
    for name in ("files", "mirror", "project"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "project")
    with file_server(tmp_path / "files") as files, file_server(tmp_path / "mirror") as served:
        model = Model.create(tmp_path, files.url)
        with git_server(tmp_path / "served") as git:
            monkeypatch.setenv("HUB_GIT_URL", f"{git.url}/{{owner}}/{{repo}}.git")
            made = World(model, git, files, served, tmp_path / "mirror", tmp_path)
            url = ("-k", f"url={model.url}")
            done(hub("lock", "o/m:v1", "--weights", "net", *url, "--trust", "once"))
            yield made


@pytest.fixture
def mirrored(world: World) -> World:
    done(hub("mirror", str(world.folder)))
    return world


def hub(*arguments: str) -> Result:
    return CliRunner().invoke(cli.hub, list(arguments))


def done(result: Result) -> Result:
    assert result.exit_code == 0, result.output
    return result


def refused(result: Result, status: int, message: str) -> None:
    assert (result.exit_code, result.stdout) == (status, ""), result.output
    assert message in result.stderr and "Traceback" not in result.stderr and "hint: " in result.stderr


def warnings(result: Result) -> list[str]:
    return [line for line in result.stderr.splitlines() if line.startswith("warning: ")]


# Writing


def test_what_is_written(world):
    made = json.loads(done(hub("--json", "mirror", str(world.folder))).stdout)
    commit = world.model.repository.git("rev-parse", "v1")
    pack, blob = world.pack(), world.blob()
    assert pack.name == f"{commit}.pack" and blob.name.startswith(world.model.weights[4:12])
    assert [one["file"] for one in made["files"]] == [str(one.relative_to(world.folder)) for one in (pack, blob)]
    assert made["written"] == pack.stat().st_size + 96 and all(one["written"] for one in made["files"])
    index = json.loads((world.folder / "index.json").read_text())
    assert index["schema"] == 1 and set(index["files"]) == {one["file"] for one in made["files"]}
    assert index["files"][made["files"][0]["file"]]["names"] == ["o/m:v1"]
    assert {path.name for path in world.folder.iterdir()} == {"git", "sha256", "index.json"}
    assert not world.folder.joinpath("git").stat().st_mode & 0o022 and pack.stat().st_mode & 0o444 == 0o444


def test_a_pack_has_no_history(world, tmp_path, monkeypatch):
    world.model.repository.commit({"large.bin": os.urandom(100_000)})
    (world.model.folder / "large.bin").unlink()
    commit = world.model.repository.commit({"more.py": ""}, tag="v2")
    done(hub("lock", "o/m:v2", "-o", "v2.lock"))
    done(hub("mirror", str(world.folder), "--lock-file", "v2.lock"))
    assert world.pack().stat().st_size < 20_000
    world.another_cache(monkeypatch)
    done(hub("sync", "--locked", "--lock-file", "v2.lock"))
    assert world.origin() == 0 and Cache.current().lookup(RepoSpec.parse("o/m:v2")).commit == commit


def test_a_second_run_writes_what_is_new(mirrored):
    before = {path: path.stat().st_mtime_ns for path in mirrored.folder.rglob("*")}
    made = json.loads(done(hub("--json", "mirror", str(mirrored.folder))).stdout)
    assert made["written"] == 0 and not any(one["written"] for one in made["files"])
    assert before == {path: path.stat().st_mtime_ns for path in mirrored.folder.rglob("*")}
    mirrored.model.repository.commit({"more.py": ""}, tag="v2")
    done(hub("lock", "o/m:v2", "-o", "v2.lock"))
    made = json.loads(done(hub("--json", "mirror", str(mirrored.folder), "--lock-file", "v2.lock")).stdout)
    assert [one["written"] for one in made["files"]] == [True]
    assert len(list(mirrored.folder.glob("git/*/*.pack"))) == 2 and mirrored.blob()


def test_a_run_that_was_killed_is_gone_on_with(mirrored):
    (mirrored.folder / "index.json").unlink()
    mirrored.pack().write_bytes(b"half")  # a server that does not write atomically
    kept = mirrored.blob().stat().st_mtime_ns
    (mirrored.folder / "sha256" / ".x.tmp").write_text("of another machine")
    made = json.loads(done(hub("--json", "mirror", str(mirrored.folder))).stdout)
    assert [one["written"] for one in made["files"]] == [True, False]
    assert mirrored.blob().stat().st_mtime_ns == kept and mirrored.pack().read_bytes()[:4] == b"PACK"


def test_prune_takes_the_rest_away(mirrored):
    mirrored.model.repository.commit({"more.py": ""}, tag="v2")
    done(hub("lock", "o/m:v2", "-o", "v2.lock"))
    made = json.loads(done(hub("--json", "mirror", str(mirrored.folder), "--lock-file", "v2.lock", "--prune")).stdout)
    assert made["removed"] == 2 and not list(mirrored.folder.glob("sha256/*/*"))
    assert mirrored.pack().name in made["files"][0]["file"]


def test_a_database_that_is_gone_is_fetched_again(world, hub_root):
    shutil.rmtree(hub_root / "db")
    done(hub("mirror", str(world.folder)))
    assert world.pack().is_file()


def test_what_is_no_mirror_is_left_alone(world, tmp_path):
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "thesis.txt").write_text("mine")
    refused(hub("mirror", str(taken)), 2, "has other things in it, such as 'thesis.txt'")
    refused(hub("mirror", str(taken / "thesis.txt")), 2, "is a file")
    for content in ("[]", "{", '{"schema": 1, "files": {"../x": {"size": 1}}}', '{"schema": 9, "files": {}}'):
        (taken / "index.json").write_text(content)
        refused(hub("mirror", str(taken)), 6, "index.json is none that hub has written")
    assert sorted(path.name for path in taken.iterdir()) == ["index.json", "thesis.txt"]


def test_what_cannot_be_a_target(world):
    refused(hub("mirror", "ftp://host/x"), 2, "no mirror is written there")
    refused(hub("mirror", "https://me:pa55@host/x"), 2, "carries credentials")
    refused(hub("--offline", "mirror", "http://host/x"), 5, "cannot be written offline")
    refused(hub("mirror", "somewhere", "--lock-file", "none.lock"), 9, "there is no none.lock")
    assert not Path("somewhere").exists()


def test_offline_it_is_written_from_the_cache(world):
    world.reset()
    done(hub("--offline", "mirror", str(world.folder)))
    assert world.origin() == 0 and world.pack() and world.blob()


def test_by_put(world, monkeypatch, isolated):
    refused(hub("mirror", world.mirror.url), 4, "405")
    world.mirror.writable = True
    failures = iter([True])

    def busy_once(handler):
        if handler.command == "PUT" and next(failures, False):
            handler.answer(503, b"", {})
            return True
        return False

    world.mirror.fault = busy_once
    (isolated / ".netrc").write_text("machine 127.0.0.1 login me password pa55\n")
    monkeypatch.setenv("HUB_TOKEN", "s3cret-token")
    assert "trying again" in done(hub("mirror", world.mirror.url)).stderr
    made = json.loads(done(hub("--json", "mirror", world.mirror.url)).stdout)
    assert made["written"] == 0
    monkeypatch.delenv("HUB_TOKEN")
    world.another_cache(monkeypatch)
    done(hub("sync", "--locked"))
    assert world.origin() == 0
    world.model.repository.commit({"more.py": ""}, tag="v2")
    done(hub("lock", "o/m:v2", "-o", "v2.lock"))
    made = json.loads(done(hub("--json", "mirror", world.mirror.url, "--lock-file", "v2.lock", "--prune")).stdout)
    assert made["removed"] == 2 and not list(world.folder.glob("sha256/*/*"))


# Reading


@pytest.mark.skipif(not hasattr(os, "fork"), reason="clients are forked")
@pytest.mark.long
def test_fifty_clients_and_no_request_reaches_the_origin(mirrored, tmp_path, monkeypatch):
    mirrored.another_cache(monkeypatch)
    ran = subprocess.run(
        [sys.executable, "-c", DRIVER, str(tmp_path), str(CLIENTS)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert mirrored.origin() == 0
    assert len(mirrored.mirror.requests) == 2 * CLIENTS
    for number in range(CLIENTS):
        assert len(list((tmp_path / f"client-{number}" / "blobs" / "sha256").glob("*/*"))) == 1
        assert len(list((tmp_path / f"client-{number}" / "checkouts").rglob("hubconf.py"))) == 1


def test_a_locked_load_needs_no_origin(mirrored, monkeypatch):
    mirrored.another_cache(monkeypatch)
    url = ("-k", f"url={mirrored.model.url}")
    done(hub("load", "o/m:v1", "net", *url, "--locked"))
    assert mirrored.origin() == 0
    done(hub("load", "o/m:v1", "net", *url, "--frozen"))
    done(hub("sync", "--frozen"))
    done(hub("--offline", "list", "o/m:v1"))
    assert hub("cache", "verify").exit_code == 0 and mirrored.origin() == 0


def test_a_sandboxed_load_asks_the_mirror_too(mirrored, monkeypatch):
    """By the process outside: the one inside has no network."""
    mirrored.another_cache(monkeypatch)
    url = ("-k", f"url={mirrored.model.url}")
    done(hub("load", "o/m:v1", "net", *url, "--locked", "--sandbox=best-effort"))
    assert mirrored.origin() == 0 and len(mirrored.mirror.requests) == 2


def test_without_a_lock_the_origin_says_what_a_tag_means(mirrored, monkeypatch):
    mirrored.another_cache(monkeypatch)
    done(hub("pull", "o/m:v1"))
    assert all("upload-pack" in request.path for request in mirrored.git.requests)
    assert [Path(request.path).suffix for request in mirrored.mirror.requests] == [".pack"]
    moved = mirrored.model.repository.commit({"more.py": ""})
    done(hub("pull", "o/m"))  # into the same database, and from the origin, for the mirror has no such commit
    assert Cache.current().lookup(RepoSpec.parse("o/m")).commit == moved
    assert hub("cache", "verify").exit_code == 0


def test_a_commit_that_the_origin_does_not_reach_is_refused_without_a_lock(mirrored, monkeypatch):
    repository = mirrored.model.repository
    commit = repository.git("rev-parse", "v1")
    repository.commit({"more.py": ""})
    repository.git("checkout", "-q", "--orphan", "other")
    repository.git("commit", "-q", "-m", "other")
    repository.git("branch", "-f", "main")
    repository.git("tag", "-d", "v1")
    for ref in ("main", "v1", "other"):
        repository.git("update-ref", "-d", f"refs/heads/{ref}", cwd=repository.bare)
        repository.git("update-ref", "-d", f"refs/tags/{ref}", cwd=repository.bare)
    repository.push()
    mirrored.another_cache(monkeypatch)
    refused(hub("pull", f"o/m:{commit}"), 3, "reaches commit")
    done(hub("sync", "--locked"))


def test_weights_that_were_seen_before_come_from_the_mirror(mirrored, monkeypatch):
    done(hub("cache", "rm", mirrored.model.weights, "--yes"))
    mirrored.reset()
    monkeypatch.setenv("HUB_MIRROR", mirrored.mirror.url)
    url = ("-k", f"url={mirrored.model.url}")
    done(hub("load", "o/m:v1", "net", *url, "--trust", "once"))
    assert mirrored.origin() == 0
    done(hub("load", "o/m:v1", "net", *url, "--trust", "once", "--force-reload"))
    assert len(mirrored.files.requests) == 1  # the question is what the URL has now


def test_what_the_mirror_lacks_comes_from_the_origin(world, monkeypatch):
    world.another_cache(monkeypatch)
    result = done(hub("sync", "--locked"))
    assert world.origin() > 0 and not warnings(result)
    assert len(world.mirror.requests) == 2


@pytest.mark.long
@pytest.mark.parametrize("lie", ["weights", "another commit", "no pack", "half a pack", "page", "endless"])
def test_a_mirror_that_lies(mirrored, monkeypatch, lie):
    if lie == "weights":
        mirrored.blob().write_bytes(b"x" * 96)
    elif lie == "another commit":
        mirrored.model.repository.commit({"hubconf.py": "evil = print"}, tag="v2")
        done(hub("lock", "o/m:v2", "-o", "v2.lock"))
        ours = mirrored.pack()
        done(hub("mirror", str(mirrored.folder), "--lock-file", "v2.lock"))
        (other,) = (pack for pack in mirrored.folder.glob("git/*/*.pack") if pack != ours)
        shutil.copyfile(other, ours)
    elif lie == "page":
        mirrored.pack().write_bytes(b"<!doctype html><title>Log in</title>")
    elif lie == "endless":
        mirrored.mirror.fault = lambda handler: handler.answer(200, b"", {"Content-Length": str(1 << 60)}) or True
    else:
        mirrored.pack().write_bytes(b"no pack" if lie == "no pack" else mirrored.pack().read_bytes()[:-30])
    mirrored.another_cache(monkeypatch)
    url = ("-k", f"url={mirrored.model.url}")
    result = done(hub("load", "o/m:v1", "net", *url, "--locked"))
    (warning,) = warnings(result)
    assert f"the mirror {mirrored.mirror.url} is left alone from now on" in warning
    assert mirrored.files.requests if lie == "weights" else mirrored.git.requests
    got = Cache.current().lookup(RepoSpec.parse(f"o/m:{mirrored.model.repository.git('rev-parse', 'v1')}"))
    assert "evil" not in (got.path / "hubconf.py").read_text()
    assert hub("cache", "verify").exit_code == 0


def test_a_mirror_that_is_down_is_asked_once(mirrored, monkeypatch):
    mirrored.another_cache(monkeypatch)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with dead_server() as url:
        monkeypatch.setenv("HUB_MIRROR", url)
        result = done(hub("sync", "--locked"))
    (warning,) = warnings(result)
    assert f"the mirror {url} is left alone" in warning and mirrored.origin() > 0


def test_a_broken_transfer_is_gone_on_with(mirrored, monkeypatch):
    cuts = iter([50])
    mirrored.mirror.fault = lambda handler: next(cuts, False) if "/sha256/" in handler.path else False
    mirrored.another_cache(monkeypatch)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    assert not warnings(done(hub("sync", "--locked")))
    assert mirrored.origin() == 0
    assert [request.headers.get("Range") for request in mirrored.mirror.requests][-1] == "bytes=50-"


def test_no_token_goes_to_the_mirror(mirrored, monkeypatch, isolated):
    mirrored.another_cache(monkeypatch)
    monkeypatch.setenv("HUB_TOKEN", "s3cret-token")
    done(hub("sync", "--locked"))
    assert mirrored.mirror.requests
    assert not any("Authorization" in request.headers for request in mirrored.mirror.requests)
    (isolated / ".netrc").write_text("machine 127.0.0.1 login me password pa55\n")  # the user's own word
    mirrored.another_cache(monkeypatch, "third")
    monkeypatch.delenv("HUB_TOKEN")
    done(hub("sync", "--locked"))
    assert all("Authorization" in request.headers for request in mirrored.mirror.requests)


def test_offline_no_mirror_is_asked(mirrored, monkeypatch):
    mirrored.another_cache(monkeypatch)
    refused(hub("sync", "--frozen"), 5, "is not in the cache offline")
    assert not mirrored.mirror.requests


def test_a_folder_is_a_mirror_too(mirrored, monkeypatch):
    mirrored.another_cache(monkeypatch)
    monkeypatch.setenv("HUB_MIRROR", str(mirrored.folder))
    done(hub("sync", "--locked"))
    assert mirrored.origin() == 0 and not mirrored.mirror.requests


def test_consent_is_for_the_origin(mirrored, monkeypatch):
    mirrored.another_cache(monkeypatch)
    done(hub("sync", "--locked"))
    refused(hub("load", "o/m:v1", "net"), 7, "is not trusted")
    done(hub("trust", "add", "o/m:v1"))
    done(hub("load", "o/m:v1", "net"))
    monkeypatch.delenv("HUB_MIRROR")
    done(hub("load", "o/m:v1", "net"))
    assert Cache.current().lookup(RepoSpec.parse("o/m:v1")).url == f"{mirrored.git.url}/o/m.git"


def test_http_is_for_those_who_allow_it(mirrored, monkeypatch):
    mirrored.another_cache(monkeypatch)
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "https,file")
    monkeypatch.setenv("HUB_GIT_URL", f"file://{mirrored.tmp}/served/{{owner}}/{{repo}}.git")
    refused(hub("pull", "o/m:v1"), 2, "protocol http is not allowed")
