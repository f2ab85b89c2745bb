"""Proxies: which one is taken, by which setting, whom NO_PROXY spares, and what an error says of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hubcli.errors import HubError, NetworkError
from hubcli.net.git import remote as git
from hubcli.net.http import fetch as http
from hubcli.net.http import proxies
from tests.servers import Repository, Scripted, dead_server, file_server, git_server, scripted_server, send

BODY = b"weights"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "https,http")
    monkeypatch.setattr(http.time, "sleep", lambda seconds: None)


@pytest.fixture
def proxy() -> Iterator[Scripted]:
    """A proxy that answers by itself."""
    with scripted_server() as made:
        made.answer = lambda handler, count: send(handler, 200, BODY)
        yield made


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    return tmp_path / "net.pth"


def fails(url: str, beside: Path) -> HubError:
    with pytest.raises(NetworkError) as caught:
        http.fetch(url, beside)
    assert "_Plain" not in str(caught.value) and "_Secure" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("how", ["variable", "file", "one host", "environment"])
def test_a_proxy_serves_weights_whoever_names_it(proxy, beside, how, isolated, monkeypatch):
    if how == "variable":
        monkeypatch.setenv("http_proxy", proxy.url)
    elif how == "environment":
        monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
        monkeypatch.setenv("GIT_CONFIG_KEY_0", "http.proxy")
        monkeypatch.setenv("GIT_CONFIG_VALUE_0", proxy.url)
    else:
        section = "http" if how == "file" else 'http "http://files.invalid"'
        (isolated / ".gitconfig").write_text(f"[{section}]\n proxy = {proxy.url.removeprefix('http://')}\n")
    assert http.fetch("http://files.invalid/net.pth", beside).path.read_bytes() == BODY
    assert proxy.seen[0][0] == "http://files.invalid/net.pth"
    if how == "one host":
        fails("http://other.invalid/net.pth", beside)
        assert len(proxy.seen) == 1


def test_no_proxy_spares_hosts_from_either(proxy, beside, tmp_path, isolated, monkeypatch):
    (tmp_path / "net.pth").write_bytes(BODY)
    (isolated / ".gitconfig").write_text(f"[http]\n proxy = {proxy.url}\n")
    monkeypatch.setenv("NO_PROXY", "elsewhere, 127.0.0.0/8")
    with file_server(tmp_path) as served:
        http.fetch(f"{served.url}/net.pth", tmp_path / "x")
        monkeypatch.setenv("http_proxy", proxy.url)
        http.fetch(f"{served.url}/net.pth", tmp_path / "y")
    assert proxy.seen == []


def test_the_environment_comes_before_git_for_files(proxy, beside, isolated, monkeypatch):
    (isolated / ".gitconfig").write_text("[http]\n proxy = http://nowhere.invalid:1\n")
    monkeypatch.setenv("http_proxy", proxy.url)
    assert http.fetch("http://files.invalid/net.pth", beside).size == len(BODY)


@pytest.mark.parametrize(
    ("no_proxy", "url", "spared"),
    [
        ("::1", "http://[::1]:8080/x", True),
        ("[::1]", "http://[::1]:8080/x", True),
        ("[::1]:8080", "http://[::1]:8080/x", True),
        ("[::1]:81", "http://[::1]:8080/x", False),
        ("0:0:0:0:0:0:0:1", "http://[::1]/x", True),
        ("fd00::/8", "http://[fd12::3]/x", True),
        ("fd00::/8", "http://[fe80::3]/x", False),
        ("*", "http://[::1]/x", True),
        ("", "http://[::1]/x", False),
        ("::1", "http://h/x", False),
    ],
)
def test_ipv6_in_no_proxy(no_proxy, url, spared, monkeypatch):
    monkeypatch.setenv("NO_PROXY", no_proxy)
    assert proxies.bypassed(url) is spared


@pytest.mark.parametrize("how", ["http_proxy", "ALL_PROXY", "http.proxy"])
def test_a_proxy_that_is_not_there_is_named_without_its_password(beside, how, isolated, monkeypatch):
    with dead_server() as dead:
        address = dead.replace("http://", "http://me:pa55word@")
        if how == "http.proxy":
            (isolated / ".gitconfig").write_text(f"[http]\n proxy = {address}\n")
        else:
            monkeypatch.setenv(how, address)
        error = fails("http://files.invalid/net.pth", beside)
        assert f"the proxy {dead} ({how}" in error.message and "refused" in error.message
        with pytest.raises(NetworkError) as caught:
            git.Remote.of("http://files.invalid/o/r.git").resolve(None)
        text = f"{error} {error.hint} {caught.value} {caught.value.hint}"
        assert f"the proxy {dead} ({how}" in str(caught.value.hint)
        assert "pa55word" not in text


@pytest.mark.parametrize("url", ["http://files.invalid/net.pth", "https://files.invalid/net.pth"])
@pytest.mark.parametrize("login", ["", "me:pa55word@"])
def test_a_proxy_that_asks_for_a_password(proxy, beside, url, login, monkeypatch):
    proxy.answer = lambda handler, count: send(handler, 407, b"who?", Proxy_Authenticate='Basic realm="p"')
    monkeypatch.setenv("ALL_PROXY", proxy.url.replace("//", f"//{login}"))
    error = fails(url, beside)
    assert f"the proxy {proxy.url} (ALL_PROXY)" in error.message and "407" in error.message
    assert ("does not accept" if login else "asks for") in error.message
    assert "ALL_PROXY = http://USER:PASSWORD@HOST:PORT" in str(error.hint)
    assert len(proxy.seen) == 1  # what would not pass is not tried again
    with pytest.raises(NetworkError) as caught:
        git.Remote.of(url.replace("net.pth", "o/r.git")).resolve(None)
    assert proxy.url in str(caught.value.hint) and "pa55word" not in f"{error}{error.hint}{caught.value.hint}"


def test_a_proxy_that_refuses_the_host(proxy, beside, monkeypatch):
    proxy.answer = lambda handler, count: send(handler, 403, b"no")
    monkeypatch.setenv("https_proxy", proxy.url)
    error = fails("https://files.invalid/net.pth", beside)
    assert f"the proxy {proxy.url} (https_proxy) does not connect to files.invalid: 403" in error.message
    assert "NO_PROXY" in str(error.hint)


@pytest.mark.parametrize("scheme", ["socks5", "socks5h", "socks4"])
def test_a_socks_proxy_needs_a_package(beside, scheme, monkeypatch):
    try:
        import socks  # noqa: F401
    except ImportError:
        monkeypatch.setenv("ALL_PROXY", f"{scheme}://me:pa55word@127.0.0.1:9")
        error = fails("http://files.invalid/net.pth", beside)
        assert f"the proxy {scheme}://127.0.0.1:9 (ALL_PROXY) is a SOCKS proxy" in error.message
        assert "-m pip install 'requests[socks]'" in str(error.hint)
        assert "pa55word" not in f"{error}{error.hint}"
    else:
        pytest.skip("PySocks is installed")


def test_what_is_no_address_of_a_proxy(beside, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://")
    error = fails("http://files.invalid/net.pth", beside)
    assert "http_proxy" in f"{error.message} {error.hint}"


def test_git_through_a_proxy_of_its_own(tmp_path, proxy, isolated):
    """git takes its own before the environment's; the repository behind it arrives."""
    Repository.create(tmp_path / "git", "o/r").commit({"a": "1"})
    with git_server(tmp_path / "git") as served:  # takes a request with a whole URL, too, as a proxy would
        (isolated / ".gitconfig").write_text(f'[http "http://code.invalid"]\n proxy = {served.url}\n')
        assert git.Remote.of("http://code.invalid/o/r.git").resolve(None).name == "main"
