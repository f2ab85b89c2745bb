"""Hostile repositories and servers through the real command line: refused, cleaned, survived.

What a single module refuses is tested beside it (`test_spec`, `test_git`, `test_http`, `test_partials`,
`test_cache`); here are the ways through all of them.  A canary is a file that hostile content would
make if any of it ran.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hubcli.base import paths
from hubcli.base.spec import RepoSpec
from hubcli.cache.cache import Cache
from hubcli.net.git import access, process
from hubcli.net.http import fetch as http
from hubcli.terminal import cli
from tests.servers import Repository, Served, git_server, scripted_server, send

HUBCONF = "def net():\n    'A net.'\n"


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    repo = Repository.create(tmp_path / "served", "o/r")
    repo.commit({"hubconf.py": HUBCONF, "a.txt": "one"}, tag="v1")
    return repo


@pytest.fixture
def server(tmp_path: Path, repo: Repository, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "https,http")
    with git_server(tmp_path / "served") as served:
        monkeypatch.setenv("HUB_GIT_URL", f"{served.url}/{{owner}}/{{repo}}.git")
        yield served


@pytest.fixture
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file that nobody may make."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "canary"
    yield path
    assert not path.exists()


def run(*args: str) -> Result:
    return CliRunner().invoke(cli.hub, list(args))


def code(result: Result) -> str:
    return json.loads(result.stdout)["error"]["code"]


def published(root: Path) -> list[Path]:
    """What look-ups would find: tables, trees, links."""
    return [*root.glob("refs/**/*.json"), *root.glob("checkouts/*/*/*/*"), *root.glob("*_*_*")]


class TestNames:
    @pytest.mark.parametrize(
        "text",
        [
            "--upload-pack=touch canary/r",
            "o/--upload-pack=touch canary",
            "-o/r",
            "o/r:--upload-pack=touch canary",
            "o/r:-x",
            "ext::sh -c 'touch canary'",
            "ext::sh -c touch% canary/r",
            "ext://sh -c touch canary/r",
            "fd::17/x",
            "https://-oProxyCommand=touch canary/o/r",
            "ssh://-oProxyCommand=touch%20canary/o/r",
            "http://127.0.0.1/o/r@--upload-pack=touch canary",
            "http://127.0.0.1/--upload-pack=touch canary/r",
        ],
    )
    def test_what_looks_like_an_option_or_a_command(self, canary: Path, text: str) -> None:
        for command in ("pull", "list"):
            result = run("--json", command, "--", text)
            assert (result.exit_code, code(result)) == (2, "usage"), result.output

    @pytest.mark.parametrize("name", ["--upload-pack=touch${IFS}canary", "-x", "$(touch${IFS}canary)", "`canary`"])
    def test_what_a_remote_calls_its_branches(self, repo: Repository, server: Served, canary: Path, name: str) -> None:
        """The default branch may have any name that git takes; it is a name and nothing else."""
        commit = repo.git("rev-parse", "HEAD")
        for ref in (repo.bare / "refs" / "heads").iterdir():
            ref.unlink()
        (repo.bare / "refs" / "heads" / name).write_text(f"{commit}\n")
        (repo.bare / "packed-refs").unlink(missing_ok=True)
        (repo.bare / "HEAD").write_text(f"ref: refs/heads/{name}\n")
        result = run("--json", "pull", "o/r")
        assert result.exit_code in (0, 2, 3), result.output
        if result.exit_code == 0:
            document = json.loads(result.stdout)
            assert (document["ref"], document["commit"]) == (name, commit)
            assert run("--json", "cache", "ls").exit_code == 0
            assert run("--json", "cache", "verify").exit_code == 0

    def test_urls_that_settings_make(self, server: Served, canary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Neither HUB_GIT_URL nor HUB_REWRITE nor the user's insteadOf reaches a helper program."""
        for name, value in (
            ("HUB_GIT_URL", "ext::sh -c touch% canary% {owner}% {repo}"),
            ("HUB_REWRITE", f"{server.url}/=ext::sh -c touch% canary% "),
            ("HUB_REWRITE", f"{server.url}/=file:///"),
        ):
            with monkeypatch.context() as patch:
                patch.setenv(name, value)
                assert run("--json", "pull", "o/r").exit_code == 2
        config = Path(os.environ["HOME"]) / ".gitconfig"
        for target in ("ext::sh -c touch% canary% ", "file:///"):
            config.write_text(f'[url "{target}"]\n insteadOf = {server.url}/\n')
            result = run("--json", "pull", "o/r")
            assert (result.exit_code, code(result)) == (2, "usage"), result.output


class TestContent:
    def test_hooks_do_not_run(self, repo: Repository, server: Served, canary: Path, hub_root: Path) -> None:
        """Not from the user's templates, nor from a database that somebody has tampered with."""
        hook = f"#!/bin/sh\ntouch {canary}\n"
        home = Path(os.environ["HOME"])
        names = ("post-checkout", "reference-transaction", "post-merge", "post-index-change")
        for name in names:
            path = home / "templates" / "hooks" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(hook)
            path.chmod(0o755)
        (home / ".gitconfig").write_text(
            f"[init]\n templateDir = {home}/templates\n[core]\n hooksPath = {home}/templates/hooks\n"
            f" fsmonitor = touch {canary}\n"
        )
        assert run("pull", "o/r").exit_code == 0
        (db,) = (hub_root / "db").rglob("*.git")
        (db / "hooks").mkdir()
        for name in names:
            (db / "hooks" / name).write_text(hook)
            (db / "hooks" / name).chmod(0o755)
        repo.commit({"a.txt": "two"})
        assert run("pull", "o/r", "--force-reload").exit_code == 0

    def test_filters_do_not_run(self, repo: Repository, server: Served, canary: Path, hub_root: Path) -> None:
        """A repository names filters; the user's configuration, or the database's, has them."""
        repo.commit({".gitattributes": "*.txt filter=evil diff=evil merge=evil eol=crlf ident\n"})
        program = f"sh -c 'touch {canary}; cat'"
        evil = f'[filter "evil"]\n smudge = {program}\n clean = {program}\n required = true\n'
        (Path(os.environ["HOME"]) / ".gitconfig").write_text(evil)
        assert run("pull", "o/r").exit_code == 0
        (db,) = (hub_root / "db").rglob("*.git")
        with (db / "config").open("a") as config:
            config.write(evil)
        repo.commit({"a.txt": "two\n"})
        result = run("--json", "pull", "o/r", "--force-reload")
        assert result.exit_code == 0
        path = Path(json.loads(result.stdout)["path"])
        assert (path / "a.txt").read_bytes() == b"two\n"

    @pytest.mark.parametrize("kind", ["symlink", "submodule", "case", "hubconf"])
    def test_trees_that_are_refused(
        self, repo: Repository, server: Served, canary: Path, hub_root: Path, kind: str
    ) -> None:
        if kind == "symlink":
            os.symlink("../../../../../../etc", repo.work / "data")
        elif kind == "hubconf":
            (repo.work / "hubconf.py").unlink()
            os.symlink("/etc/passwd", repo.work / "hubconf.py")
        elif kind == "submodule":
            url = f"ext::sh -c touch% {canary}"
            (repo.work / ".gitmodules").write_text(
                f'[submodule "x"]\n path = x\n url = {url}\n update = !touch {canary}\n'
            )
            head = repo.git("rev-parse", "HEAD")
            repo.git("update-index", "--add", "--cacheinfo", f"160000,{head},x")
        else:
            blob = repo.git("rev-parse", "HEAD:a.txt")
            repo.git("update-index", "--add", "--cacheinfo", f"100644,{blob},HUBCONF.PY")
            repo.git("commit", "-q", "-m", "case")
        if kind == "submodule":
            repo.git("add", ".gitmodules")
            repo.git("commit", "-q", "-m", "submodule")
            repo.push()
        elif kind == "case":
            repo.push()
        else:
            repo.commit({})
        result = run("--json", "pull", "o/r")
        assert (result.exit_code, code(result)) == (6, "integrity"), result.output
        assert published(hub_root) == []

    def test_a_submodule_is_no_hubconf(self, repo: Repository, server: Served, hub_root: Path) -> None:
        repo.git("rm", "-q", "hubconf.py")
        repo.git("update-index", "--add", "--cacheinfo", f"160000,{repo.git('rev-parse', 'HEAD')},hubconf.py")
        repo.git("commit", "-q", "-m", "submodule")
        repo.push()
        result = run("--json", "list", "o/r")
        assert code(result) == "not_found" and "no hubconf.py in o/r" in result.stdout, result.output
        assert published(hub_root) == []

    def test_a_bomb_is_refused_before_it_unfolds(self, repo: Repository, server: Served, hub_root: Path) -> None:
        repo.commit({"zeros.bin": bytes(6_000_000)})
        result = run("--json", "pull", "o/r", "--size-limit", "1MB")
        assert (result.exit_code, code(result)) == (6, "integrity"), result.output
        assert "its files have 6.0 MB" in result.stdout
        assert server.sent < 100_000 and published(hub_root) == []
        assert paths.disk_size(hub_root) < 200_000

    def test_a_large_repository_is_not_fetched_to_its_end(
        self, repo: Repository, server: Served, hub_root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(process, "_CHECK_SECONDS", 0.01)
        repo.commit({"large.bin": os.urandom(2_000_000)})
        result = run("--json", "pull", "o/r", "--size-limit", "500kB")
        assert (result.exit_code, code(result)) == (6, "integrity"), result.output
        assert "larger than the limit of 500.0 kB" in result.stdout
        assert published(hub_root) == [] and paths.disk_size(hub_root) < 200_000
        assert run("pull", "o/r", "--size-limit", "50MB").exit_code == 0

    def test_permissions_are_ours(self, repo: Repository, server: Served) -> None:
        """No set-uid bit, nothing that others may write, whatever the umask of the publisher."""
        repo.commit({"run.sh": "#!/bin/sh\n"})
        os.chmod(repo.work / "run.sh", 0o4777)
        repo.commit({})
        path = Path(json.loads(run("--json", "pull", "o/r").stdout)["path"])
        assert stat.S_IMODE((path / "run.sh").stat().st_mode) == 0o555


class TestTerminal:
    HOSTILE = "\x1b]0;owned\x07\x1b[2J\u202eevil\x9b31m"

    def test_what_a_repository_says(self, repo: Repository, server: Served) -> None:
        doc = self.HOSTILE.encode("unicode_escape").decode()
        repo.commit({"hubconf.py": f'def net():\n    "{doc}"\n'})
        for command in (["list", "o/r"], ["help", "o/r", "net"], ["show", "o/r"], ["pull", "o/r"]):
            for options in ([], ["--json"]):
                result = run(*options, *command)
                assert result.exit_code == 0, result.output
                shown = (result.stdout + result.stderr).replace("\n", "").replace("\t", "")
                assert shown.isprintable()
        assert json.loads(run("--json", "help", "o/r", "net").stdout)["doc"] == self.HOSTILE

    def test_what_a_git_server_says(self, canary: Path, monkeypatch: pytest.MonkeyPatch, hub_root: Path) -> None:
        monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "http")
        monkeypatch.setenv("HUB_TOKEN", "s3cret-token")
        said = f"ERR {self.HOSTILE} s3cret-token https://user:pa55@host/\n".encode()
        with scripted_server() as scripted:
            monkeypatch.setenv("HUB_GIT_URL", f"{scripted.url}/{{owner}}/{{repo}}.git")
            body = b"%04x%s" % (len(said) + 4, said)
            kind = "application/x-git-upload-pack-advertisement"
            scripted.answer = lambda handler, count: send(handler, 200, body, Content_Type=kind)
            for options in ([], ["--json"]):
                result = run(*options, "pull", "o/r")
                assert result.exit_code in (1, 3, 4), result.output
                shown = result.stdout + result.stderr
                assert shown.replace("\n", "").isprintable()
                assert "s3cret-token" not in shown and "pa55" not in shown
                assert "evil" in shown  # cleaned, not hidden

    def test_the_token_is_nowhere_on_disk(
        self, repo: Repository, server: Served, hub_root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        server.credentials = "s3cret-token"
        monkeypatch.setenv("HUB_TOKEN", "s3cret-token")
        result = run("-v", "pull", "o/r")
        assert result.exit_code == 0 and "s3cret-token" not in result.output
        for path in hub_root.rglob("*"):
            if path.is_file():
                assert b"s3cret-token" not in path.read_bytes()


class TestServers:
    @pytest.mark.parametrize("cut", [0, 1, 50, 3000, 40_000])
    def test_a_git_server_that_hangs_up(self, repo: Repository, server: Served, hub_root: Path, cut: int) -> None:
        repo.commit({"big.bin": os.urandom(100_000)})
        server.fault = lambda handler: cut if handler.command == "POST" else False
        result = run("--json", "pull", "o/r")
        assert result.exit_code == 4 or cut == 3000, result.output  # the refs fit into that
        assert published(hub_root) == []
        server.fault = None
        assert run("pull", "o/r").exit_code == 0
        assert run("cache", "verify").exit_code == 0

    def test_a_git_server_that_drips(
        self, repo: Repository, server: Served, hub_root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(access, "LOW_SPEED_SECONDS", 1)

        def drip(handler) -> bool:
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
            for _ in range(50):
                handler.wfile.write(b"0")
                handler.wfile.flush()
                REAL_SLEEP(0.1)
            return True

        server.fault = drip
        result = run("--json", "pull", "o/r")
        assert (result.exit_code, code(result)) == (4, "network"), result.output
        assert published(hub_root) == []

    def test_a_git_server_that_redirects(self, server: Served, canary: Path) -> None:
        for target in ("file:///", "ext::sh -c touch% canary%20", "ftp://127.0.0.1"):
            server.redirect = target
            result = run("--json", "pull", "o/r")
            assert result.exit_code in (3, 4), result.output

    def test_a_ref_that_moves_between_question_and_fetch(self, repo: Repository, server: Served) -> None:
        """What is published is what was fetched, under its own commit."""

        def move(handler) -> bool:
            if b"fetch" in handler.path.encode() or handler.command == "POST":
                server.fault = None
                repo.commit({"a.txt": "moved"})
            return False

        server.fault = move
        document = json.loads(run("--json", "pull", "o/r").stdout)
        made = Cache.current().lookup(RepoSpec.parse("o/r"))
        assert made is not None and document["commit"] == made.commit
        assert run("cache", "verify").exit_code == 0

    def test_an_answer_that_is_no_git(self, hub_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "http")
        with scripted_server() as scripted:
            monkeypatch.setenv("HUB_GIT_URL", f"{scripted.url}/{{owner}}/{{repo}}.git")
            for body, kind in (
                (b"<html>log in</html>", "text/html"),
                (b"\x00" * 5000, "application/x-git-upload-pack-advertisement"),
                (b"ffff" + b"x" * 70_000, "application/x-git-upload-pack-advertisement"),
                (b"", "application/x-git-upload-pack-advertisement"),
            ):
                scripted.answer = lambda handler, count, body=body, kind=kind: send(
                    handler, 200, body, Content_Type=kind
                )
                result = run("--json", "pull", "o/r")
                assert result.exit_code in (1, 3, 4, 6), result.output
                assert code(result) != "internal"
        assert published(hub_root) == []


REAL_SLEEP = http.time.sleep
