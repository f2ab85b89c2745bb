"""git over real HTTP: resolving, fetching, the hardened environment, and what errors say."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hubcli.base import output, settings
from hubcli.errors import IntegrityError, NetworkError, NotFoundError, RepositoryNotFoundError, UsageError
from hubcli.net.git import access, errors, process
from hubcli.net.git import remote as git
from tests.servers import Repository, Served, dead_server, git_server, silent_server


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "served"
    folder.mkdir()
    return folder


@pytest.fixture
def server(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "https,ssh,http")
    with git_server(root) as served:
        yield served


def url(server: Served, name: str = "o/r") -> str:
    return f"{server.url}/{name}.git"


class TestResolve:
    def test_default_branch_is_the_one_that_head_names(self, root: Path, server: Served) -> None:
        repo = Repository.create(root, "o/r", branch="develop")
        commit = repo.commit({"hubconf.py": "x = 1"})
        found = git.Remote.of(url(server)).resolve(None)
        assert (found.kind, found.name, found.commit) == ("branch", "develop", commit)
        assert found.source == "refs/heads/develop"

    @pytest.mark.parametrize("branches", [("master", "main"), ("main",)])
    def test_head_of_a_missing_branch_falls_back(self, root: Path, server: Served, branches: tuple[str, ...]) -> None:
        repo = Repository.create(root, "o/r", branch=branches[0])
        repo.commit({"hubconf.py": ""})
        for name in branches[1:]:
            repo.git("branch", name)
        repo.push()
        repo.git("symbolic-ref", "HEAD", "refs/heads/gone", cwd=repo.bare)
        assert git.Remote.of(url(server)).resolve(None).name == branches[0]

    def test_an_empty_repository_has_no_default_branch(self, root: Path, server: Served) -> None:
        Repository.create(root, "o/r")
        with pytest.raises(NotFoundError, match="no default branch"):
            git.Remote.of(url(server)).resolve(None)

    def test_the_branch_wins_over_the_tag_of_the_same_name(self, root: Path, server: Served) -> None:
        repo = Repository.create(root, "o/r")
        tagged = repo.commit({"a": "1"}, tag="v1")
        repo.git("checkout", "-q", "-b", "v1")
        branched = repo.commit({"a": "2"})
        remote = git.Remote.of(url(server))
        found = remote.resolve("v1")
        assert (found.kind, found.commit, found.ambiguous) == ("branch", branched, True)
        found = remote.resolve("refs/tags/v1")
        assert (found.kind, found.commit, found.ambiguous) == ("tag", tagged, False)

    def test_an_annotated_tag_is_peeled(self, root: Path, server: Served) -> None:
        repo = Repository.create(root, "o/r")
        commit = repo.commit({"a": "1"})
        repo.git("tag", "-a", "-m", "release", "v2")
        repo.push()
        assert git.Remote.of(url(server)).resolve("v2").commit == commit

    def test_one_request_pair_answers_all(self, root: Path, server: Served) -> None:
        Repository.create(root, "o/r").commit({"a": "1"}, tag="v1")
        git.Remote.of(url(server)).resolve("v1")
        assert [request.method for request in server.requests] == ["GET", "POST"]

    def test_a_missing_ref_names_the_close_ones(self, root: Path, server: Served) -> None:
        Repository.create(root, "o/r").commit({"a": "1"}, tag="v1.0")
        with pytest.raises(NotFoundError, match=r"no branch or tag 'v1\.1'") as caught:
            git.Remote.of(url(server)).resolve("v1.1")
        assert caught.value.hint == "did you mean v1.0?"

    def test_a_short_commit_id_is_explained(self, root: Path, server: Served) -> None:
        Repository.create(root, "o/r").commit({"a": "1"})
        with pytest.raises(NotFoundError) as caught:
            git.Remote.of(url(server)).resolve("abc1234")
        assert "full 40 hex digits" in str(caught.value.hint)


class TestWhatIsNoCommit:
    """Tags may name trees and files, in well-known repositories, too."""

    @pytest.mark.parametrize(("kind", "of"), [("tree", "main^{tree}"), ("file", "main:a")])
    @pytest.mark.parametrize("annotated", [False, True])
    def test_a_tag_of_a_tree_or_a_file(
        self, root: Path, server: Served, tmp_path: Path, kind: str, of: str, annotated: bool
    ) -> None:
        repo = Repository.create(root, "o/r")
        repo.commit({"a": "1"})
        name = f"of-a/{kind}"
        repo.git("tag", *(["-a", "-m", "x"] if annotated else []), name, repo.git("rev-parse", of))
        repo.push()
        remote = git.Remote.of(url(server))
        found = remote.resolve(name)
        git.create(tmp_path / "db.git")
        ref = git.ref_in_db(found.kind, found.name)
        remote.fetch(tmp_path / "db.git", f"+{found.source}:{ref}", "--depth=1")
        with pytest.raises(NotFoundError, match=f"tag '{name}' names a {kind}, not a commit"):
            git.identify(tmp_path / "db.git", ref)
        assert "of-a" not in process.run(["for-each-ref"], process.local(tmp_path / "db.git"))


class TestReaches:
    def test_ancestors_are_reached_and_foreign_commits_are_not(
        self, root: Path, server: Served, tmp_path: Path
    ) -> None:
        repo = Repository.create(root, "o/r")
        old = repo.commit({"a": "1"})
        repo.commit({"a": "2"})
        # as in a fork: the object is in the repository, but no branch or tag reaches it
        repo.git("checkout", "-q", "--orphan", "fork")
        foreign = repo.commit({"a": "evil"})
        repo.git("push", "-q", "origin", "--delete", "fork")
        repo.git("update-ref", "refs/pull/1/head", foreign, cwd=repo.bare)
        remote = git.Remote.of(url(server))
        assert remote.reaches(old, tmp_path / "one.git")
        assert not remote.reaches(foreign, tmp_path / "two.git")
        assert not remote.reaches("1" * 40, tmp_path / "three.git")

    def test_a_server_without_filters(self, root: Path, server: Served, tmp_path: Path) -> None:
        repo = Repository.create(root, "o/r")
        repo.git("config", "uploadpack.allowFilter", "false", cwd=repo.bare)
        old = repo.commit({"a": "1"})
        repo.commit({"a": "2"})
        assert git.Remote.of(url(server)).reaches(old, tmp_path / "one.git")


class TestErrors:
    def test_missing_repository(self, server: Served) -> None:
        with pytest.raises(NotFoundError, match="no repository at"):
            git.Remote.of(url(server)).resolve(None)

    def test_credentials_asked(self, root: Path, server: Served) -> None:
        Repository.create(root, "o/r").commit({"a": "1"})
        server.credentials = "s3cret"
        with pytest.raises(NotFoundError, match="does not exist or is private") as caught:
            git.Remote.of(url(server)).resolve(None)
        assert str(caught.value.hint).startswith("set HUB_TOKEN")

    def test_the_token_opens_it(self, root: Path, server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
        Repository.create(root, "o/r").commit({"a": "1"})
        server.credentials = "s3cret"
        monkeypatch.setenv("HUB_TOKEN", "s3cret")
        assert git.Remote.of(url(server)).resolve(None).name == "main"

    def test_a_wrong_token_is_not_shown(self, root: Path, server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
        server.credentials = "s3cret"
        monkeypatch.setenv("HUB_TOKEN", "wr0ng")
        with pytest.raises(NotFoundError) as caught:
            git.Remote.of(url(server)).resolve(None)
        assert "HUB_TOKEN is not accepted" in str(caught.value.hint)
        assert "wr0ng" not in f"{caught.value} {caught.value.hint}"

    def test_the_token_does_not_follow_a_redirect(
        self, root: Path, server: Served, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        Repository.create(root, "o/r").commit({"a": "1"})
        with git_server(root) as elsewhere:
            server.redirect = elsewhere.url
            assert git.Remote.of(url(server)).resolve(None).name == "main"
            elsewhere.reset()
            monkeypatch.setenv("HUB_TOKEN", "s3cret")
            with pytest.raises(NetworkError, match="redirects"):
                git.Remote.of(url(server)).resolve(None)
            assert elsewhere.requests == []

    def test_dead_server(self, server: Served) -> None:
        with dead_server() as dead, pytest.raises(NetworkError, match="cannot reach"):
            git.Remote.of(f"{dead}/o/r.git").resolve(None)

    def test_silent_server(self, server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(access, "LOW_SPEED_SECONDS", 1)
        with silent_server() as silent, pytest.raises(NetworkError, match="cannot reach"):
            git.Remote.of(f"{silent}/o/r.git").resolve(None)

    def test_protocols_are_refused_until_listed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for scheme in ("http", "file"):
            with pytest.raises(UsageError, match=f"protocol {scheme} is not allowed"):
                git.Remote.of(f"{scheme}://127.0.0.1/o/r")

    @pytest.mark.parametrize(
        ("stderr", "kind"),
        [
            ("fatal: unable to access 'https://x/': Could not resolve host: x", NetworkError),
            ("fatal: unable to access 'u': The requested URL returned error: 503", NetworkError),
            ("fatal: unable to access 'u': The requested URL returned error: 403", RepositoryNotFoundError),
            ("fatal: could not read Username for 'https://x': x", RepositoryNotFoundError),
            ("remote: Repository not found.\nfatal: repository 'u' not found", RepositoryNotFoundError),
            (f"error: object {'a' * 40}: gitmodulesUrl: disallowed submodule url", IntegrityError),
            ("fatal: fsck error in packed object", IntegrityError),
            ("error: RPC failed; curl 18\nfatal: early EOF", NetworkError),
            ("fatal: Unable to create 'shallow.lock': File exists.", git.RepositoryError),
        ],
    )
    def test_what_stderr_means(self, stderr: str, kind: type[Exception]) -> None:
        assert type(errors.failure(stderr, "https://host/o/r")) is kind

    def test_stderr_is_cleaned(self) -> None:
        settings.override(token="t0ken")
        error = errors.failure("fatal: \x1b[31mred\x1b[0m \x07https://u:pw@h/ t0ken", "https://h/o/r")
        assert not any(bad in error.message for bad in ("\x1b", "\x07", "pw", "t0ken"))


class TestEnvironment:
    def test_of_the_users_configuration_an_allow_list_passes(self, isolated: Path, server: Served) -> None:
        (isolated / ".gitconfig").write_text(
            "[credential]\n helper = store\n[http]\n proxy = http://p:1\n sslVerify = false\n"
            '[core]\n hooksPath = /tmp\n[url "https://m/"]\n insteadOf = https://g/\n'
            "[alias]\n fetch = !false\n"
        )
        assert process.user_config() == [
            ("credential.helper", "store"),
            ("http.proxy", "http://p:1"),
            ("url.https://m/.insteadof", "https://g/"),
        ]

    def test_instead_of_is_obeyed(self, isolated: Path, root: Path, server: Served) -> None:
        Repository.create(root, "o/r").commit({"a": "1"})
        (isolated / ".gitconfig").write_text(f'[url "{server.url}/"]\n insteadOf = https://nowhere.invalid/\n')
        assert git.Remote.of("https://nowhere.invalid/o/r.git").resolve(None).name == "main"

    def test_rewrites_are_obeyed(self, root: Path, server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
        Repository.create(root, "o/r").commit({"a": "1"})
        monkeypatch.setenv("HUB_REWRITE", f"https://nowhere.invalid/={server.url}/")
        remote = git.Remote.of("https://nowhere.invalid/o/r.git")
        assert remote.url == url(server)
        assert remote.resolve(None).name == "main"

    def test_inherited_variables_do_not_mislead(
        self, root: Path, server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        repo = Repository.create(root, "o/r")
        commit = repo.commit({"a": "1"})
        for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"):
            monkeypatch.setenv(name, str(tmp_path / "elsewhere"))
        monkeypatch.setenv("GIT_NAMESPACE", "x")
        monkeypatch.setenv("GIT_CONFIG_PARAMETERS", "'core.bare=maybe'")
        monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
        monkeypatch.chdir(repo.work)
        db = tmp_path / "db.git"
        git.create(db)
        remote = git.Remote.of(url(server))
        found = remote.resolve("main")
        name = git.ref_in_db(found.kind, found.name)
        remote.fetch(db, f"+{found.source}:{name}", "--depth=1")
        assert git.identify(db, name)[0] == commit
        (tmp_path / "out").mkdir()
        git.checkout(db, commit, tmp_path / "out")
        assert os.listdir(tmp_path / "out") == ["a"]

    def test_a_hostile_gitmodules_is_refused(self, root: Path, server: Served, tmp_path: Path) -> None:
        repo = Repository.create(root, "o/r")
        repo.commit({".gitmodules": '[submodule "x"]\n path = x\n url = -u./payload\n'})
        db = tmp_path / "db.git"
        git.create(db)
        with pytest.raises(IntegrityError, match="refuses as malformed"):
            git.Remote.of(url(server)).fetch(db, "+refs/heads/main:refs/hub/x", "--depth=1")

    def test_contents_come_byte_for_byte(self, root: Path, server: Served, tmp_path: Path) -> None:
        repo = Repository.create(root, "o/r")
        repo.commit({"a.txt": "line\n$Id$\n"})
        commit = repo.commit({".gitattributes": "*.txt text eol=crlf ident\n"})
        db = tmp_path / "db.git"
        git.create(db)
        git.Remote.of(url(server)).fetch(db, "+refs/heads/main:refs/hub/x", "--depth=1")
        (tmp_path / "out").mkdir()
        git.checkout(db, commit, tmp_path / "out")
        assert (tmp_path / "out" / "a.txt").read_bytes() == b"line\n$Id$\n"

    def test_progress_is_told(self, root: Path, server: Served, tmp_path: Path) -> None:
        class Bar:
            seen: list[tuple[float, float | None, str | None]] = []

            def set(self, completed: float, total: float | None, label: str | None = None) -> None:
                self.seen.append((completed, total, label))

        repo = Repository.create(root, "o/r")
        repo.commit({f"f{n}": str(n) for n in range(30)})
        db = tmp_path / "db.git"
        git.create(db)
        remote = git.Remote.of(url(server))
        remote.fetch(db, "+refs/heads/main:refs/hub/x", "--depth=1", progress=Bar())  # type: ignore[arg-type]
        assert any(done == total == 32 and label == "receiving" for done, total, label in Bar.seen)

    @pytest.mark.long
    def test_a_large_object_moves_the_bar(self, root: Path, server: Served, tmp_path: Path) -> None:
        """git counts objects, and says how much has come: a bar at 2 of 3 would stand still for a minute."""
        seen: list[tuple[float, float | None, str]] = []

        class Bar(output.Progress):
            def set(self, completed: float, total: float | None, label: str | None = None) -> None:
                seen.append((completed, total, label or ""))

        class Slow:
            def __init__(self, file: Any) -> None:
                self.file = file

            def write(self, body: bytes) -> None:
                for start in range(0, len(body), 200_000):
                    self.file.write(body[start : start + 200_000])
                    time.sleep(0.3 if len(body) > 1_000_000 else 0)

            def __getattr__(self, name: str) -> Any:
                return getattr(self.file, name)

        def slowly(handler: Any) -> bool:
            handler.wfile = Slow(handler.wfile)
            return False

        repo = Repository.create(root, "o/r")
        repo.commit({"large.bin": os.urandom(2_000_000)})
        server.fault = slowly
        db = tmp_path / "db.git"
        git.create(db)
        git.Remote.of(url(server)).fetch(db, "+refs/heads/main:refs/hub/x", "--depth=1", progress=Bar())
        receiving = [(total, label) for _, total, label in seen if label.startswith("receiving")]
        assert any(total is None and "iB" in label for total, label in receiving)
        assert receiving[-1][0] == 3


BUSY = """#!/bin/sh
while :; do echo "Receiving objects:   1% (1/100)" >&2; done
"""


@pytest.mark.skipif(os.name != "posix", reason="a shell script as git")
def test_an_interruption_has_no_words_but_hubs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """GitPython's readers complained of streams that were closed under them, after "interrupted"."""
    script = tmp_path / "git"
    script.write_text(BUSY)
    script.chmod(0o700)
    monkeypatch.setattr(process.launcher(), "GIT_PYTHON_GIT_EXECUTABLE", str(script))
    before = set(threading.enumerate())

    class Slow(output.Progress):
        def set(self, *args: Any) -> None:
            if threading.main_thread() is not threading.current_thread():
                time.sleep(0.05)  # it is nearly always here, and not in a read, that the end comes
                self.calls = getattr(self, "calls", 0) + 1
                if self.calls == 3:
                    os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        process.stream(["fetch"], {}, Slow())
    gc.collect()  # the process, with its streams
    deadline = time.monotonic() + 60
    while set(threading.enumerate()) - before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert caplog.records == []


@pytest.mark.parametrize(
    "said, again",
    [
        ("fatal: unable to rename temporary '*.pack' file to 'objects/pack/pack-1.pack'", True),
        ("fatal: unable to access 'https://h/o/r/': The requested URL returned error: 503", True),
        ("fatal: repository 'https://h/o/r/' not found", False),
    ],
)
def test_what_may_pass_is_tried_again(monkeypatch: pytest.MonkeyPatch, said: str, again: bool) -> None:
    answers, calls = [(128, "", said), (0, "made", "")], []
    monkeypatch.setattr(process, "stream", lambda *args: calls.append(args) or answers.pop(0))
    monkeypatch.setattr(git.time, "sleep", lambda seconds: None)
    remote = git.Remote("https://h/o/r", {})
    found = remote._tried(["fetch"], {}, None, None)
    assert found == ((0, "made", "") if again else (128, "", said)) and len(calls) == 1 + again
