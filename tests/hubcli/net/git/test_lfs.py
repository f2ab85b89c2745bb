"""Git LFS: pointers are said, and fetched when that is asked; what comes is checked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hubcli.base.spec import RepoSpec
from hubcli.cache.cache import Cache
from hubcli.net.git import lfs
from hubcli.net.http import fetch as http
from hubcli.terminal import cli
from tests.servers import Repository, Served, file_server, git_server

LARGE = b"large content " * 10_000
OID = hashlib.sha256(LARGE).hexdigest()
POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{OID}\nsize {len(LARGE)}\n"


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    repo = Repository.create(tmp_path / "served", "o/r")
    repo.commit(
        {
            "hubconf.py": "",
            ".gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text\n",
            "data/one.bin": POINTER,
            "two.bin": POINTER,
        },
        tag="v1",
    )
    return repo


class Batch:
    """The batch API of the git server: answers with `item` for every object asked for."""

    def __init__(self, files: Served) -> None:
        self.asked: list[dict[str, Any]] = []
        self.item: dict[str, Any] = {
            "actions": {
                "download": {
                    "href": f"{files.url}/{OID}?key=1",
                    "header": {"Authorization": "RemoteAuth x", "Range": "bytes=1-2"},
                }
            }
        }

    def __call__(self, handler: Any) -> bool:
        if not handler.path.endswith("/info/lfs/objects/batch"):
            return False
        self.asked.append(json.loads(handler.received))
        objects = [{**one, **self.item} for one in self.asked[-1]["objects"]]
        body = json.dumps({"transfer": "basic", "objects": objects}).encode()
        handler.answer(200, body, {"Content-Type": lfs.MEDIA_TYPE})
        return True


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Served]:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / OID).write_bytes(LARGE)
    with file_server(tmp_path / "files") as served:
        yield served


@pytest.fixture
def batch(tmp_path: Path, repo: Repository, files: Served, monkeypatch: pytest.MonkeyPatch) -> Iterator[Batch]:
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "https,http")
    monkeypatch.setattr(http.time, "sleep", lambda seconds: None)
    with git_server(tmp_path / "served") as served:
        monkeypatch.setenv("HUB_GIT_URL", f"{served.url}/{{owner}}/{{repo}}.git")
        served.fault = made = Batch(files)
        yield made


def run(*args: str) -> Result:
    return CliRunner().invoke(cli.hub, list(args))


def tree() -> Path:
    found = Cache.current().lookup(RepoSpec.parse("o/r:v1"))
    assert found is not None
    return found.path


def test_pointers_are_said_and_nothing_is_asked(batch: Batch, files: Served) -> None:
    result = run("pull", "o/r:v1")
    assert result.exit_code == 0
    assert "2 files in Git LFS, only the pointers came: data/one.bin, two.bin" in result.stderr
    assert "hub pull --lfs" in result.stderr
    assert batch.asked == [] and files.requests == []
    assert (tree() / "two.bin").read_text() == POINTER


def test_contents_come_when_asked_for(batch: Batch, files: Served, hub_root: Path) -> None:
    run("pull", "o/r:v1")
    result = run("--json", "pull", "o/r:v1", "--lfs")
    assert result.exit_code == 0 and "only the pointer" not in result.stderr
    for name in ("data/one.bin", "two.bin"):
        assert (tree() / name).read_bytes() == LARGE
        assert (tree() / name).stat().st_mode & 0o777 == 0o444
    assert batch.asked[0]["objects"] == [{"oid": OID, "size": len(LARGE)}]
    (request,) = files.requests  # one content, however many pointers
    assert request.headers["Authorization"] == "RemoteAuth x" and "Range" not in request.headers
    run("pull", "o/r:v1", "--lfs")
    assert len(batch.asked) == 1
    assert [path for path in (hub_root / "partial").iterdir() if path.suffix != ".use"] == []


def test_verify_knows_them_and_repairs_them(batch: Batch, files: Served) -> None:
    run("pull", "o/r:v1", "--lfs")
    assert Cache.current().verify().problems == ()
    path = tree() / "two.bin"
    path.chmod(0o644)
    path.write_bytes(LARGE[::-1])
    assert run("cache", "verify").exit_code == 1
    assert run("cache", "verify", "--repair").exit_code == 0
    assert (tree() / "two.bin").read_bytes() == LARGE and Cache.current().verify().problems == ()


def test_what_a_server_may_not_do(batch: Batch, files: Served, tmp_path: Path) -> None:
    def ended(status: int, words: str) -> None:
        result = run("--json", "pull", "o/r:v1", "--lfs")
        error = json.loads(result.stdout)["error"]
        assert result.exit_code == status and words in error["message"], result.output
        assert Cache.current().lookup(RepoSpec.parse("o/r:v1")) is None

    good = batch.item
    (tmp_path / "files" / OID).write_bytes(LARGE[:-1] + b"?")
    ended(6, "the LFS server sent sha256")
    (tmp_path / "files" / OID).write_bytes(LARGE)
    batch.item = {"error": {"code": 404, "message": "no \x1b[31mobject"}}
    ended(3, "has no data/one.bin")
    for item in ({}, {"actions": {}}, {"actions": {"download": {}}}, {"oid": "0" * 64}):
        batch.item = item
        ended(4, "none of the LFS batch API")
    for href in ("file:///etc/passwd", "ftp://127.0.0.1/x"):
        batch.item = {"actions": {"download": {"href": href}}}
        ended(2, "is not allowed")
    batch.item = good
    assert run("pull", "o/r:v1", "--lfs", "--size-limit", "100kB").exit_code == 6
    assert run("pull", "o/r:v1", "--lfs").exit_code == 0


def test_the_token_goes_to_the_repositorys_server_only(
    batch: Batch, files: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUB_TOKEN", "s3cret")
    batch.item = {"actions": {"download": {"href": f"{files.url}/{OID}"}}}
    assert run("pull", "o/r:v1", "--lfs").exit_code == 0
    assert "Authorization" not in files.requests[0].headers


def test_only_http_servers_speak_it(repo: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "file")
    result = run("--json", "pull", f"file://{repo.bare}@v1", "--lfs")
    assert result.exit_code == 1 and "over file:// is not supported" in result.stdout


@pytest.mark.parametrize(
    "text",
    [
        POINTER.replace("size ", "size -"),
        POINTER.replace(OID, OID[:-1]),
        POINTER.replace("sha256", "md5"),
        POINTER + "more\n",
        POINTER.replace("spec/v1", "spec/v9"),
        "",
    ],
)
def test_what_is_no_pointer(text: str) -> None:
    assert lfs.parse("x", text.encode()) is None
    found = lfs.parse("x", POINTER.replace("oid", "ext-0-foo sha256:00\noid").encode())
    assert found is not None and (found.oid, found.size) == (OID, len(LARGE))


def test_a_lock_file_pins_contents_by_their_pointers(
    batch: Batch, files: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit pins the pointer, which is a digest: their addresses, which may be signed, stand in no lock file."""
    monkeypatch.chdir(tmp_path)
    assert run("lock", "o/r:v1").exit_code == 0
    result = run("--json", "pull", "o/r:v1", "--lfs", "--locked")
    assert result.exit_code == 0, result.output
    assert Path(json.loads(result.stdout)["path"], "two.bin").read_bytes() == LARGE


# With a mirror


@pytest.fixture
def mirror(batch: Batch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    (tmp_path / "mirror").mkdir()
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    assert run("lock", "o/r:v1").exit_code == 0
    with file_server(tmp_path / "mirror") as served:
        yield served


def test_a_mirror_has_them_when_asked_for(batch: Batch, files: Served, mirror: Served, tmp_path: Path) -> None:
    folder = tmp_path / "mirror"
    result = run("mirror", str(folder))
    assert result.exit_code == 0 and "--lfs" in result.stderr and not list(folder.glob("sha256/*/*"))
    result = run("--json", "mirror", str(folder), "--lfs")
    assert result.exit_code == 0, result.output
    (content,) = folder.glob("sha256/*/*")
    assert content.name == OID and content.read_bytes() == LARGE
    _, item, same = json.loads(result.stdout)["files"]
    assert item["name"] == "o/r:v1 data/one.bin" and item["size"] == len(LARGE) and item["written"]
    assert same == {**item, "name": "o/r:v1 two.bin", "written": False}
    index = json.loads((folder / "index.json").read_text())["files"]
    assert index[item["file"]]["names"] == ["o/r:v1 data/one.bin", "o/r:v1 two.bin"]
    asked = len(batch.asked)
    again = json.loads(run("--json", "mirror", str(folder), "--lfs").stdout)
    assert again["written"] == 0 and len(batch.asked) == asked
    # a run that does not ask for them forgets none of them
    assert run("mirror", str(folder)).exit_code == 0
    assert json.loads((folder / "index.json").read_text())["files"] == index
    # the lock file names their commit, so that they stay until it does not
    pruned = json.loads(run("--json", "mirror", str(folder), "--prune").stdout)
    assert pruned["removed"] == 0 and content.exists()
    Path("hub.lock").write_text("version = 1\n")
    pruned = json.loads(run("--json", "mirror", str(folder), "--prune").stdout)
    assert pruned["removed"] == 2 and not content.exists()


def test_what_the_mirror_has_is_asked_of_no_server(
    batch: Batch, files: Served, mirror: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("mirror", str(tmp_path / "mirror"), "--lfs").exit_code == 0
    monkeypatch.setenv("TORCH_HUB_DIR", str(tmp_path / "another"))
    monkeypatch.setenv("HUB_MIRROR", mirror.url)
    files.reset(), batch.asked.clear()
    result = run("--json", "pull", "o/r:v1", "--lfs", "--locked")
    assert result.exit_code == 0, result.output
    path = Path(json.loads(result.stdout)["path"])
    assert (path / "data/one.bin").read_bytes() == (path / "two.bin").read_bytes() == LARGE
    assert batch.asked == [] and files.requests == []


@pytest.mark.parametrize("lie", [True, False])
def test_a_mirror_without_them_or_with_others(
    batch: Batch, files: Served, mirror: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: bool
) -> None:
    assert run("mirror", str(tmp_path / "mirror"), "--lfs").exit_code == 0
    (content,) = (tmp_path / "mirror").glob("sha256/*/*")
    content.write_bytes(b"?" * len(LARGE)) if lie else content.unlink()
    monkeypatch.setenv("TORCH_HUB_DIR", str(tmp_path / "another"))
    monkeypatch.setenv("HUB_MIRROR", mirror.url)
    result = run("--json", "pull", "o/r:v1", "--lfs", "--locked")
    assert result.exit_code == 0, result.output
    assert ("left alone" in result.stderr) == lie
    assert Path(json.loads(result.stdout)["path"], "two.bin").read_bytes() == LARGE and len(batch.asked) == 2
