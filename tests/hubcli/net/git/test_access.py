"""Being let in: stale secrets are left out and named, renamed repositories are followed on their own host only."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hubcli.errors import NetworkError, NotFoundError
from hubcli.net.git import process
from hubcli.net.git import remote as git
from hubcli.net.http import api, secret_scope
from hubcli.net.http import fetch as http
from tests.servers import Repository, Served, file_server, git_server

BODY = b"weights"


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "https,http")
    monkeypatch.setattr(http.time, "sleep", lambda seconds: None)


@pytest.fixture
def code(tmp_path: Path) -> Iterator[Served]:
    """A git server with `new/r`."""
    Repository.create(tmp_path / "git", "new/r").commit({"a": "1"}, tag="v1")
    with git_server(tmp_path / "git") as served:
        yield served


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Served]:
    """A file server with `net.pth`."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "net.pth").write_bytes(BODY)
    with file_server(tmp_path / "files") as served:
        yield served


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def refusing(status: int, but: str | None = None) -> Callable[[Any], bool]:
    """Refuse whoever shows a secret, but for one."""

    def fault(handler: Any) -> bool:
        sent = handler.headers.get("Authorization")
        if sent is None or sent == but:
            return False
        handler.answer(status, b"bad credentials", {"WWW-Authenticate": 'Basic realm="x"'} if status == 401 else {})
        return True

    return fault


def stale(how: str, isolated: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Set up a secret that no server takes; the words by which it is named."""
    if how == "HUB_TOKEN":
        monkeypatch.setenv("HUB_TOKEN", "of-last-year")
        return "HUB_TOKEN"
    (isolated / ".netrc").write_text("machine 127.0.0.1 login me password of-last-year\n")
    (isolated / ".netrc").chmod(0o600)
    return "~/.netrc"


@pytest.mark.parametrize("how", ["HUB_TOKEN", "netrc"])
@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_public_file_comes_without_a_stale_secret(files, tmp_path, how, status, isolated, monkeypatch, capsys):
    named = stale(how, isolated, monkeypatch)
    files.fault = refusing(status)
    for name in ("x", "y"):
        assert http.fetch(f"{files.url}/net.pth", tmp_path / name).path.read_bytes() == BODY
    said = capsys.readouterr().err
    assert said.count("refuses") == 1 and named in said and str(status) in said  # once, not for every file
    assert "of-last-year" not in said


@pytest.mark.parametrize("how", ["HUB_TOKEN", "netrc"])
@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_public_repository_comes_without_a_stale_secret(code, tmp_path, how, status, isolated, monkeypatch, capsys):
    named = stale(how, isolated, monkeypatch)
    code.fault = refusing(status)
    remote = git.Remote.of(f"{code.url}/new/r.git")
    assert remote.resolve("v1").kind == "tag"
    code.reset()
    git.create(tmp_path / "db.git")
    remote.fetch(tmp_path / "db.git", "+refs/tags/v1:refs/hub/tag/v1", "--depth=1")
    assert all("Authorization" not in one.headers for one in code.requests)  # it is not tried again and again
    said = capsys.readouterr().err
    # libcurl shows an entry of netrc only to a server that asks
    assert said.count("refuses") == (how == "HUB_TOKEN") and "of-last-year" not in said
    assert how == "netrc" or named in said


def test_a_helpers_stale_answer_for_a_public_repository(code, isolated, capsys):
    (isolated / ".gitconfig").write_text(
        '[credential]\n helper = "!f() { echo username=me; echo password=of-last-year; }; f"\n'
    )
    refused: list[str] = []

    def fault(handler: Any) -> bool:
        sent = handler.headers.get("Authorization")
        if sent is None and refused:
            return False  # public after all
        refused.extend([sent] if sent else [])
        handler.answer(401, b"", {"WWW-Authenticate": 'Basic realm="x"'})
        return True

    code.fault = fault
    assert git.Remote.of(f"{code.url}/new/r.git").resolve(None).name == "main"
    assert "git's credential helper" in capsys.readouterr().err


def test_the_next_secret_is_tried_before_none(files, tmp_path, isolated, monkeypatch, capsys):
    stale("netrc", isolated, monkeypatch)
    monkeypatch.setenv("HUB_TOKEN", "t0ken")
    files.fault = lambda handler: (
        handler.headers.get("Authorization") is None or refusing(401, basic("me", "of-last-year"))(handler)
    )
    assert http.fetch(f"{files.url}/net.pth", tmp_path / "x").size == len(BODY)
    assert "refuses HUB_TOKEN (401)" in capsys.readouterr().err


def test_what_is_private_stays_an_error_that_names_what_was_tried(files, code, tmp_path, isolated, monkeypatch):
    stale("netrc", isolated, monkeypatch)
    monkeypatch.setenv("HUB_TOKEN", "t0ken")
    files.credentials = code.credentials = "another"
    with pytest.raises(NotFoundError) as caught:
        http.fetch(f"{files.url}/net.pth", tmp_path / "x")
    assert "HUB_TOKEN and ~/.netrc did not help" in str(caught.value.hint)
    with pytest.raises(NotFoundError) as caught:
        git.Remote.of(f"{code.url}/new/r.git").resolve(None)
    assert "HUB_TOKEN and ~/.netrc did not help" in str(caught.value.hint)
    assert "t0ken" not in str(caught.value.hint) and "of-last-year" not in str(caught.value.hint)


@pytest.mark.parametrize("token", ["t0ken\n", "  t0ken", "\tt0ken\r\n"])
def test_white_space_around_a_token_is_not_sent(code, token, monkeypatch):
    code.credentials = "t0ken"
    monkeypatch.setenv("HUB_TOKEN", token)
    assert git.Remote.of(f"{code.url}/new/r.git").resolve(None).name == "main"


def moved(status: int, location: str) -> Callable[[Any], bool]:
    """`old/r` has moved: `location` with {path} for the new path and query."""

    def fault(handler: Any) -> bool:
        if not handler.path.startswith("/old/r.git"):
            return False
        handler.answer(status, b"", {"Location": location.format(path=handler.path.replace("/old/", "/new/", 1))})
        return True

    return fault


@pytest.mark.parametrize("status", [301, 302, 307, 308])
@pytest.mark.parametrize("token", [None, "t0ken"])
@pytest.mark.parametrize("relative", [False, True])
def test_a_renamed_repository_is_followed_on_its_own_host(code, tmp_path, status, token, relative, monkeypatch, capsys):
    if token:
        monkeypatch.setenv("HUB_TOKEN", token)
        code.credentials = token
    code.fault = moved(status, "{path}" if relative else f"{code.url}{{path}}")
    remote = git.Remote.of(f"{code.url}/old/r.git")
    assert remote.resolve("v1").kind == "tag"
    git.create(tmp_path / "db.git")
    remote.fetch(tmp_path / "db.git", "+refs/tags/v1:refs/hub/tag/v1", "--depth=1")
    said = capsys.readouterr().err
    assert said.count("has moved to") == 1 and f"{code.url}/new/r.git" in said
    if token:
        assert git.Remote.of(f"{code.url}/old/r.git").access.url == f"{code.url}/new/r.git"


@pytest.mark.parametrize("token", [None, "t0ken"])
def test_to_another_host_goes_no_secret_and_the_address_is_named(code, tmp_path, token, monkeypatch, capsys):
    if token:
        monkeypatch.setenv("HUB_TOKEN", token)
    with git_server(tmp_path / "git") as elsewhere:
        code.fault = moved(301, f"{elsewhere.url}{{path}}")
        remote = git.Remote.of(f"{code.url}/old/r.git")
        if token is None:
            assert remote.resolve("v1").kind == "tag"
            assert f"{elsewhere.url}/new/r.git" in capsys.readouterr().err
        else:
            with pytest.raises(NetworkError, match="redirects elsewhere") as caught:
                remote.resolve("v1")
            assert f"{elsewhere.url}/new/r.git" in f"{caught.value.message} {caught.value.hint}"
            assert elsewhere.requests == []


@pytest.mark.parametrize("secret", ["netrc", "helper"])
def test_neither_netrc_nor_a_helper_follows_to_another_host(code, tmp_path, secret, isolated):
    """libcurl and git would ask them for whichever host they are led to, which the user has not named."""
    if secret == "netrc":
        (isolated / ".netrc").write_text("machine 127.0.0.1 login me password pa55\n")
    else:
        helper = '"!f() { echo username=me; echo password=pa55; }; f"'
        (isolated / ".gitconfig").write_text(f"[credential]\n helper = {helper}\n")
    with git_server(tmp_path / "git") as elsewhere:
        elsewhere.credentials = "what it asks for"
        code.fault = moved(301, f"{elsewhere.url}{{path}}")
        with pytest.raises(NotFoundError):
            git.Remote.of(f"{code.url}/old/r.git").resolve("v1")
        assert elsewhere.requests and all("Authorization" not in one.headers for one in elsewhere.requests)


def test_a_server_that_asks_before_it_redirects(code, isolated, capsys):
    code.credentials = "pa55"
    (isolated / ".netrc").write_text("machine 127.0.0.1 login x-access-token password pa55\n")
    (isolated / ".netrc").chmod(0o600)

    def fault(handler: Any) -> bool:
        shown = "Authorization" in handler.headers
        return shown and moved(301, "{path}")(handler)

    code.fault = fault
    assert git.Remote.of(f"{code.url}/old/r.git").resolve("v1").kind == "tag"
    assert "/new/r.git" in capsys.readouterr().err


def test_repository_code_gets_no_netrc_for_git(code, isolated):
    code.credentials = "pa55"
    (isolated / ".netrc").write_text("machine 127.0.0.1 login x-access-token password pa55\n")
    (isolated / ".netrc").chmod(0o600)
    assert git.Remote.of(f"{code.url}/new/r.git").resolve(None).name == "main"
    code.reset()
    with secret_scope.naming(frozenset({"elsewhere"})), pytest.raises(NotFoundError):
        git.Remote.of(f"{code.url}/new/r.git").resolve(None)
    assert all("Authorization" not in one.headers for one in code.requests)


@pytest.mark.parametrize("location", ["/login?next=x", "http://[::1/new/r.git/info/refs", "{path}"])
def test_a_redirect_to_no_repository_is_refused(code, location, monkeypatch):
    monkeypatch.setenv("HUB_TOKEN", "t0ken")

    def fault(handler: Any) -> bool:
        handler.answer(302, b"", {"Location": location.format(path=handler.path)})  # the last one goes in a circle
        return True

    code.fault = fault
    with pytest.raises(NetworkError):
        git.Remote.of(f"{code.url}/old/r.git").resolve("v1")


def test_a_lfs_batch_of_a_renamed_repository_is_followed(code, monkeypatch):
    monkeypatch.setenv("HUB_TOKEN", "t0ken")

    def fault(handler: Any) -> bool:
        if handler.path.startswith("/old/"):
            handler.answer(301, b"", {"Location": handler.path.replace("/old/", "/new/")})
        else:
            handler.answer(200, b'{"method": "%s"}' % handler.command.encode(), {})
        return True

    code.fault = fault
    assert api.post_json(f"{code.url}/old/r.git/info/lfs/objects/batch", {}, "x/y") == {"method": "POST"}
    assert all(one.headers["Authorization"] for one in code.requests)


class TestConfiguration:
    """What of git's configuration counts, wherever it stands."""

    @pytest.mark.parametrize("where", ["file", "environment", "command line", "command line of old"])
    def test_instead_of(self, code, where, isolated, monkeypatch):
        key, value = f"url.{code.url}/.insteadOf", "https://nowhere.invalid/"
        if where == "file":
            (isolated / "elsewhere").write_text(f'[url "{code.url}/"]\n insteadOf = {value}\n')
            monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(isolated / "elsewhere"))
        elif where == "environment":
            for name, text in (("COUNT", "1"), ("KEY_0", key), ("VALUE_0", value)):
                monkeypatch.setenv(f"GIT_CONFIG_{name}", text)
        else:
            old = f"'{key}={value}'"
            monkeypatch.setenv("GIT_CONFIG_PARAMETERS", f"'{key}'='{value}'" if where == "command line" else old)
        assert git.Remote.of("https://nowhere.invalid/new/r.git").resolve(None).name == "main"

    def test_the_environment_passes_through_the_same_allow_list(self, tmp_path, monkeypatch):
        settings = [
            ("core.hooksPath", str(tmp_path)),
            ("core.sshCommand", "false"),
            ("http.sslVerify", "false"),
            ("http.https://h/.sslVerify", "false"),
            ("http.extraHeader", "X: y"),  # for whatever host: no
            ("http.proxy", "http://p:1"),
            ("http.https://h/.proxy", "http://q:1"),
        ]
        monkeypatch.setenv("GIT_CONFIG_COUNT", str(len(settings)))
        for number, (key, value) in enumerate(settings):
            monkeypatch.setenv(f"GIT_CONFIG_KEY_{number}", key)
            monkeypatch.setenv(f"GIT_CONFIG_VALUE_{number}", value)
        assert process.user_config() == [("http.proxy", "http://p:1"), ("http.https://h/.proxy", "http://q:1")]

    @pytest.mark.parametrize("value", ["x", "1", "-1", "99999999999"])
    def test_a_wrong_count_is_said_and_left_out(self, code, value, monkeypatch, capsys):
        monkeypatch.setenv("GIT_CONFIG_COUNT", value)
        assert git.Remote.of(f"{code.url}/new/r.git").resolve(None).name == "main"
        assert "your git configuration" in capsys.readouterr().err

    def test_a_header_for_one_server_is_a_secret(self, code, tmp_path, isolated):
        code.credentials = "t0ken"
        header = f"Authorization: {basic('x-access-token', 't0ken')}"
        (isolated / ".gitconfig").write_text(f'[http "{code.url}/"]\n extraHeader = "{header}"\n')
        assert git.Remote.of(f"{code.url}/new/r.git").resolve(None).name == "main"
        with secret_scope.naming(frozenset({"elsewhere"})):  # repository code asks
            assert not any("extraheader" in str(one) for one in git.Remote.of(code.url).environment.values())
            with pytest.raises(NotFoundError):
                git.Remote.of(f"{code.url}/new/r.git").resolve(None)
        with git_server(tmp_path / "git") as elsewhere:
            code.fault = moved(302, f"{elsewhere.url}{{path}}")
            with pytest.raises(NetworkError, match="redirects elsewhere"):
                git.Remote.of(f"{code.url}/old/r.git").resolve(None)
            assert elsewhere.requests == []


@pytest.mark.parametrize("text", ["machine 127.0.0.1 login me pa55word x\n", "pa55word\n", "machine \xff\xfe login"])
def test_a_netrc_that_cannot_be_read_is_named(files, tmp_path, text, isolated, capsys):
    (isolated / ".netrc").write_bytes(text.encode("latin-1"))
    (isolated / ".netrc").chmod(0o600)
    assert http.fetch(f"{files.url}/net.pth", tmp_path / "x").size == len(BODY)
    said = capsys.readouterr().err
    assert ".netrc cannot be read" in said and "pa55word" not in said
