"""hub.lock: its text, what is refused in it, what pins are worth under --locked, what has moved."""

from __future__ import annotations

import base64
import hashlib
import json
import tomllib
from pathlib import Path

import pytest

from hubcli.base import settings
from hubcli.base.request import Request
from hubcli.base.spec import RepoSpec
from hubcli.cache import lockfile, weights
from hubcli.cache.cache import Cache
from hubcli.cache.lockfile import Lock
from hubcli.errors import IntegrityError, LockMismatchError, OfflineError, UsageError
from hubcli.workflows import locking

HEX = "0123456789abcdef0123456789abcdef01234567"
DIGEST = hashlib.sha256(b"").hexdigest()
DIRHASH = "h1:" + base64.b64encode(hashlib.sha256(b"").digest()).decode()
REPO = {
    "spec": "o/r:v1",
    "url": "https://github.com/o/r.git",
    "kind": "tag",
    "ref": "v1",
    "commit": HEX,
    "tree": HEX,
    "dirhash": DIRHASH,
}
WEIGHTS = {
    "url": "https://example.org/net.pth",
    "file": "net.pth",
    "size": 3,
    "sha256": DIGEST,
    "used_by": ["o/r:v1#net"],
}


def toml(name: str, entry: dict[str, object]) -> str:
    def value(one: object) -> str:
        return str(one).replace("'", '"') if isinstance(one, list | int) else f'"{one}"'

    return "\n".join([f"[[{name}]]", *(f"{key} = {value(one)}" for key, one in entry.items()), ""])


def text(*entries: str) -> str:
    return "\n".join(["version = 1", *entries])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "hub.lock"


def test_round_trip(path):
    path.write_text(
        text(
            toml("repo", REPO),
            toml("repo", {"spec": "o/later"}),
            toml("weights", WEIGHTS),
            toml("weights", {"url": "https://example.org/later.pth"}),
        )
    )
    lock = lockfile.read(path)
    assert lock is not None
    assert (lock.repos[0].commit, lock.weights[0].used_by) == (HEX, ("o/r:v1#net",))
    assert (lock.wanted, lock.wanted_weights) == (("o/later",), ("https://example.org/later.pth",))
    written = lockfile.dump(lock)
    assert tomllib.loads(written) == tomllib.loads(path.read_text())
    lockfile.write(lock)
    assert lockfile.read(path) == lock
    assert path.read_text() == written
    assert [one.name for one in path.parent.iterdir() if one.name.startswith(".")] == []


def test_entries_are_sorted_so_that_a_change_is_a_small_diff(path):
    one, other = {**REPO, "spec": "o/a"}, {**REPO, "spec": "o/b"}
    path.write_text(text(toml("repo", one), toml("repo", other)))
    sorted_text = lockfile.dump(lockfile.read(path))
    path.write_text(text(toml("repo", other), toml("repo", one)))
    assert lockfile.dump(lockfile.read(path)) == sorted_text


def without(entry: dict[str, object], key: str) -> dict[str, object]:
    return {name: value for name, value in entry.items() if name != key}


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "version None is not 1"),
        ("version = 2", "version 2 is not 1; a newer hub may know it"),
        ("version = true", "version True is not 1"),
        ('version = "1"', "version '1' is not 1"),
        ("version = 1\nmore = 2", "the file has 'more'"),
        ("version = ", "Invalid value"),
        ("a = " + "[" * 3000, ""),
        (text("repo = 3"), "repo is not a list of tables"),
        (text('repo = ["o/r"]'), "repo is not a list of tables"),
        (text("[weights]\nurl = 'x'"), "weights is not a list of tables"),
        (text(toml("repo", without(REPO, "spec"))), "repo 1: spec is missing"),
        (text("[[repo]]\nspec = 3"), "repo 1: spec is 3"),
        (text(toml("repo", {"spec": "./folder"})), "is not how hub writes a remote spec"),
        (text(toml("repo", {"spec": "o/r:"})), "the ref is empty"),
        (text(toml("repo", {"spec": "o/../r"})), "'..' is not a valid"),
        (text(toml("repo", {"spec": "--upload-pack=x/r"})), "is not a valid owner"),
        (text(toml("repo", REPO), toml("repo", {"spec": "o/r:v1"})), "repo 2: o/r:v1 is there twice"),
        (text(toml("repo", without(REPO, "tree"))), "repo 1: tree is missing"),
        (text(toml("repo", {**REPO, "commit": "../../x"})), "commit '../../x' has not the form"),
        (text(toml("repo", {**REPO, "commit": HEX.upper()})), "has not the form"),
        (text(toml("repo", {**REPO, "dirhash": "h2:x"})), "dirhash 'h2:x' has not the form"),
        (text(toml("repo", {**REPO, "kind": "local"})), "kind 'local' is not branch, tag or commit"),
        (text(toml("repo", {**REPO, "url": "github.com"})), "is not a URL"),
        (text(toml("repo", {**REPO, "ref": r"v\\u001b[2J"})).replace("\\\\", "\\"), "ref is"),
        (text(toml("repo", {**REPO, "evil": "x"})), "repo 1 has 'evil', which this hub"),
        (text(toml("weights", {**WEIGHTS, "file": "../net.pth"})), "is no name for a weight file"),
        (text(toml("weights", {**WEIGHTS, "file": "/etc/passwd"})), "is no name for a weight file"),
        (text(toml("weights", {**WEIGHTS, "size": -1})), "size -1 is not a number of bytes"),
        (text(toml("weights", WEIGHTS)).replace("size = 3", "size = true"), "size True is not"),
        (text(toml("weights", {**WEIGHTS, "sha256": "abc"})), "sha256 'abc' has not the form"),
        (text(toml("weights", {**WEIGHTS, "used_by": ["o/r"]})), "used_by is not a list of"),
        (text(toml("weights", {**WEIGHTS, "used_by": [3]})), "used_by is not a list of"),
        (text(toml("weights", WEIGHTS), toml("weights", WEIGHTS)), "is there twice"),
        (
            text(toml("weights", WEIGHTS), toml("weights", {**WEIGHTS, "sha256": "0" * 64})),
            "is there twice",
        ),
    ],
)
def test_malformed_and_hostile_files_are_refused(path, content, complaint):
    path.write_text(content)
    with pytest.raises(LockMismatchError) as caught:
        lockfile.read(path)
    message = caught.value.message
    assert message.startswith(f"{path} is no lock file that hub can use: ")
    assert complaint in message and "\n" not in message and message.isprintable()
    assert caught.value.status == 9


@pytest.mark.parametrize("content", [b"\xff\xfe", b"#" * ((16 << 20) + 1)])
def test_what_is_no_text_or_too_long(path, content):
    path.write_bytes(content)
    with pytest.raises(LockMismatchError, match="is no lock file"):
        lockfile.read(path)


def test_a_missing_file(path):
    assert lockfile.read(path) is None
    with pytest.raises(LockMismatchError, match="there is no"):
        lockfile.require(path)
    with pytest.raises(UsageError, match="there is no folder"):
        lockfile.write(Lock(path.parent / "nowhere" / "hub.lock"))


def test_locked_needs_every_pin(path):
    path.write_text(text(toml("repo", {"spec": "o/later"})))
    with pytest.raises(LockMismatchError, match="would change: o/later is not pinned yet"):
        lockfile.require(path)


def test_the_digest_of_a_folder_is_gos(tmp_path):
    folder = tmp_path / "tree"
    (folder / "b").mkdir(parents=True)
    (folder / "b" / "x").write_bytes(b"one")
    (folder / "a").write_bytes(b"two")
    lines = f"{hashlib.sha256(b'two').hexdigest()}  a\n{hashlib.sha256(b'one').hexdigest()}  b/x\n"
    expected = base64.b64encode(hashlib.sha256(lines.encode()).digest()).decode()
    assert lockfile.dirhash(folder) == f"h1:{expected}"
    made = {lockfile.dirhash(folder)}
    (folder / "link").symlink_to("b")
    made.add(lockfile.dirhash(folder))
    (folder / "link").unlink()
    (folder / "link").symlink_to("a")
    made.add(lockfile.dirhash(folder))
    (folder / "a\n").write_bytes(b"")
    made.add(lockfile.dirhash(folder))
    assert len(made) == 4


def test_the_digest_is_the_same_with_and_without_git_lfs(tmp_path):
    folder, marker = tmp_path / "tree", tmp_path / "tree.json"
    (folder / "a").mkdir(parents=True)
    oid = hashlib.sha256(b"content").hexdigest()
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize 7\n"
    (folder / "a" / "x").write_text(pointer)
    plain = lockfile.dirhash(folder)
    (folder / "a" / "x").write_bytes(b"content")
    assert lockfile.dirhash(folder) != plain
    marker.write_text(json.dumps({"lfs": {"a/x": pointer}}))
    assert lockfile.dirhash(folder) == plain
    (folder / "a" / "x").write_bytes(b"other")
    assert lockfile.dirhash(folder) != plain


def test_a_pin_is_for_one_url(path):
    path.write_text(text(toml("repo", REPO)))
    lock = lockfile.require(path)
    assert lock.repo(RepoSpec.parse("o/r:v1")).commit == HEX
    assert lock.repo(RepoSpec.parse(f"o/r:{HEX}")).kind == "commit"
    with pytest.raises(LockMismatchError, match="o/r:v2 is not in") as caught:
        lock.repo(RepoSpec.parse("o/r:v2"))
    assert caught.value.hint == "hub lock o/r:v2"
    elsewhere = settings.overriding(git_url="https://elsewhere.example/{owner}/{repo}")
    with elsewhere, pytest.raises(LockMismatchError, match=r"https://elsewhere\.example/o/r by"):
        lock.repo(RepoSpec.parse("o/r:v1"))


def test_a_signed_url_has_no_place_in_a_lock_file():
    weight = weights.Weight("x", Path("x"), "https://e.org/x?X-Amz-Signature=s&a=b", DIGEST, 3, (), 0, 0, False)
    with pytest.raises(UsageError, match=r"carries X-Amz-Signature=\.\.\.: it is a secret") as caught:
        lockfile.Weights.of(weight)
    assert "=s" not in str(caught.value)


# Under a lock


@pytest.fixture
def locked(sample, sample_server, path):
    """`o/r:v1` and `o/r` in a lock."""
    specs = [RepoSpec.parse(name) for name in ("o/r:v1", "o/r")]
    return locking.lock_repos(Lock(path), [Cache.current().checkout(spec) for spec in specs])


def test_the_locked_commit_is_used_wherever_the_branch_is(locked, sample, sample_server):
    first = sample.git("rev-parse", "HEAD")
    sample.commit({"more.py": ""})
    Cache.current().checkout(RepoSpec.parse("o/r"), Request.current(reload=True))
    with settings.overriding(lock=locked):
        found = Cache.current().checkout(RepoSpec.parse("o/r"))
        assert (found.commit, str(found.spec), found.kind) == (first, "o/r", "branch")
        again = Cache.current().checkout(RepoSpec.parse("o/r"), Request.current(reload=True))
        assert again.commit == first and again.path != found.path
        with pytest.raises(LockMismatchError, match="o/r:v2 is not in"):
            Cache.current().checkout(RepoSpec.parse("o/r:v2"))
    assert Cache.current().checkout(RepoSpec.parse("o/r")).commit != first


def test_a_tree_that_was_changed_on_disk_is_refused(locked):
    spec = RepoSpec.parse("o/r:v1")
    file = Cache.current().checkout(spec).path / "helpers.py"
    file.chmod(0o644)
    file.write_text("import evil")
    with settings.overriding(lock=locked):
        with pytest.raises(LockMismatchError, match=r"dirhash must be h1:.*, is h1:") as caught:
            Cache.current().checkout(spec)
        assert "hub cache verify --repair" in str(caught.value.hint)
        Cache.current().checkout(spec, Request.current(reload=True))
        Cache.current().checkout(spec)


def test_a_tree_that_was_changed_on_disk_is_not_pinned(sample_server, path):
    checkout = Cache.current().checkout(RepoSpec.parse("o/r:v1"))
    file = checkout.path / "helpers.py"
    file.chmod(0o644)
    file.write_text("import evil")
    with pytest.raises(IntegrityError, match=f"its tree must be {checkout.tree}, is") as caught:
        locking.lock_repos(Lock(path), [checkout])
    assert "hub cache verify --repair" in str(caught.value.hint)


@pytest.mark.parametrize("query", ["", "?download=true", "?keyword=a&author=b", "?v=1.2"])
def test_a_lasting_url_has(query):
    url = f"https://e.org/x{query}"
    weight = weights.Weight("x", Path("x"), url, DIGEST, 3, (), 0, 0, False)
    assert lockfile.Weights.of(weight).url == url


def test_what_has_moved(locked, sample, hub_root):
    assert locking.outdated(locked) == ()
    now = sample.commit({"more.py": ""})
    before = sorted(hub_root.rglob("*"))
    (moved,) = locking.outdated(locked)
    assert (moved.spec, moved.kind, moved.current) == ("o/r", "branch", now)
    assert sorted(hub_root.rglob("*")) == before  # nothing was fetched
    sample.git("tag", "-f", "v1")
    sample.push()
    assert [one.kind for one in locking.outdated(locked)] == ["branch", "tag"]
    sample.git("push", "-q", "origin", ":refs/tags/v1")
    assert [one.current for one in locking.outdated(locked)] == [now, None]
    assert locking.outdated(locked, [RepoSpec.parse("o/r:v1")])[0].spec == "o/r:v1"
    with settings.overriding(offline=True), pytest.raises(OfflineError):
        locking.outdated(locked)


def test_changes_are_named(locked):
    nothing = Lock(locked.path)
    assert lockfile.changes(locked, locked) == ()
    assert [line.split(":")[0] for line in lockfile.changes(nothing, locked)] == ["o/r", "o/r"]
    assert lockfile.changes(locked, nothing) == ("o/r: removed", "o/r:v1: removed")
