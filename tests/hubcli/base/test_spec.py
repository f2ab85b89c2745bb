"""The spec grammar: what is accepted, in canonical form, and what each malformed part says."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubcli.base.spec import RepoSpec
from hubcli.errors import NotFoundError, UsageError
from hubcli.net.http import secret_scope

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("text", "canonical", "name", "url"),
    [
        ("o/r", "o/r", "o_r", "https://github.com/o/r.git"),
        ("o/r:v1.0", "o/r:v1.0", "o_r_v1.0", "https://github.com/o/r.git"),
        ("o/r:feat/x", "o/r:feat/x", "o_r_feat_x", "https://github.com/o/r.git"),
        (
            "o/r:refs/tags/v1",
            "o/r:refs/tags/v1",
            "o_r_refs_tags_v1",
            "https://github.com/o/r.git",
        ),
        ("o/r:HEAD", "o/r", "o_r", "https://github.com/o/r.git"),
        ("o/r.git", "o/r", "o_r", "https://github.com/o/r.git"),
        (f"o/r:{COMMIT}", f"o/r:{COMMIT}", f"o_r_{COMMIT}", "https://github.com/o/r.git"),
        ("GitHub.com/o/r", "o/r", "o_r", "https://github.com/o/r.git"),
        ("gitlab.com/o/r:x", "gitlab.com/o/r:x", "o_r_x", "https://gitlab.com/o/r.git"),
        ("https://h.x/a/b/r.git@v1", "https://h.x/a/b/r.git@v1", "a_b_r_v1", None),
        ("https://h.x:8443/o/r", "https://h.x:8443/o/r", "o_r", None),
        ("ssh://git@h.x/o/r@dev", "ssh://git@h.x/o/r@dev", "o_r_dev", None),
        ("http://127.0.0.1:80/r.git", "http://127.0.0.1:80/r.git", "127.0.0.1_80_r", None),
        ("file:///srv/git/r.git@v1", "file:///srv/git/r.git@v1", "git_r_v1", None),
        ("file://localhost/srv/r", "file:///srv/r", "srv_r", None),
        ("HTTPS://H.x/o/r/", "https://h.x/o/r", "o_r", None),
        ("http://[::1]:8080/o/r.git@v1", "http://[::1]:8080/o/r.git@v1", "o_r_v1", None),
        ("https://[2001:DB8:0:0::1]/a/b/r@v1", "https://[2001:db8::1]/a/b/r@v1", "a_b_r_v1", None),
        ("ssh://git@[::1]:22/o/r@dev", "ssh://git@[::1]:22/o/r@dev", "o_r_dev", None),
        ("http://[::1]:80/r.git", "http://[::1]:80/r.git", "__1_80_r", None),
        ("[::1]:8080/o/r:v1", "[::1]:8080/o/r:v1", "o_r_v1", "https://[::1]:8080/o/r.git"),
        ("[0::1]/o/r", "[::1]/o/r", "o_r", "https://[::1]/o/r.git"),
    ],
)
def test_accepted(text: str, canonical: str, name: str, url: str | None) -> None:
    spec = RepoSpec.parse(text)
    assert (str(spec), spec.name, spec.kind) == (canonical, name, "remote")
    assert spec.url == (url or canonical.partition("@v1")[0].removesuffix("@dev"))
    assert RepoSpec.parse(str(spec)) == spec


def test_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isolated: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for text, path in ((".", tmp_path), ("./a:b", tmp_path / "a:b"), ("~/m", isolated / "m")):
        spec = RepoSpec.parse(text)
        assert (spec.kind, spec.path, spec.ref) == ("local", path, None)
        assert RepoSpec.parse(str(spec)) == spec
    assert RepoSpec.parse(tmp_path).path == tmp_path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the spec is empty"),
        ("a", "has 1 part before the ref"),
        ("a/b/c/d", "has 4 parts before the ref"),
        ("localhost:80/o/r", "has 1 part before the ref"),
        ("/r", None),
        ("o/", "the repository is empty"),
        ("o//", "the owner is empty"),
        ("-o/r", "'-o' is not a valid owner"),
        ("o/-r", "'-r' is not a valid repository"),
        ("o/..", "'..' is not a valid repository"),
        ("o/.git", "the repository is empty"),
        ("o/r%2e", "'r%2e' is not a valid repository"),
        ("h_x/o/r", "'h_x' is not a valid host"),
        ("-h/o/r", "'-h' is not a valid host"),
        ("o/r:", "the ref is empty"),
        ("o/r:-x", "'-x' is not a valid branch"),
        ("o/r:--upload-pack=x", "is not a valid branch"),
        ("o/r:a..b", "'a..b' is not a valid branch"),
        ("o/r:a:b", "'a:b' is not a valid branch"),
        ("o/r:a~1", "'a~1' is not a valid branch"),
        ("o/r:a^{}", "is not a valid branch"),
        ("o/r:a*", "is not a valid branch"),
        ("o/r:a@{1}", "is not a valid branch"),
        ("o/r:@", "is not a valid branch"),
        ("o/r:.a", "is not a valid branch"),
        ("o/r:a/.b", "is not a valid branch"),
        ("o/r:a.lock", "is not a valid branch"),
        ("o/r:a/", "is not a valid branch"),
        ("o/r:a//b", "is not a valid branch"),
        ("o/r:" + "a" * 256, "is not a valid branch"),
        ("o/r:refs/pull/1/head", "is neither a branch nor a tag"),
        (" o/r", "spaces or control characters"),
        ("o/r\n", "spaces or control characters"),
        ("o/r:\x1b[31m", "spaces or control characters"),
        ("git@github.com:o/r", "looks like an scp address"),
        ("git://h/o/r", "hub does not speak git://"),
        ("ext::sh -c x", "before the ref"),
        ("https://u:p@h/o/r", "carries credentials"),
        ("https://token@h/o/r", "carries credentials"),
        ("https:///o/r", "the host is empty"),
        ("https://h", "is no repository path"),
        ("https://h/", "is no repository path"),
        ("https://h/o/../r", "path part '..' is not allowed"),
        ("https://h/o/%2e%2e/r", "path part '..' is not allowed"),
        ("https://h/o%2fp/r", "path part 'o/p' is not allowed"),
        ("https://h/-o/r", "path part '-o' is not allowed"),
        ("https://h/o//r", "path part '' is not allowed"),
        ("https://h/o/r?x=1", "a query or fragment"),
        ("https://h/o/r#x", "a query or fragment"),
        ("https://h/o/r@", None),
        ("https://h/o/r@-x", "'-x' is not a valid branch"),
        ("https://h:port/o/r", "spec 'https://h:port/o/r'"),
        ("https://-oProxyCommand=x/o/r", "is not a valid host"),
        ("ssh://-oProxyCommand=x/o/r", "is not a valid host"),
        ("ssh://-x@h/o/r", "is not a valid user"),
        ("file://elsewhere/r", "names the host 'elsewhere'"),
        ("https://h/.git", "names no repository"),
        ("https://[::1/o/r", "Invalid IPv6 URL"),
        ("https://[::1]x/o/r", "spec 'https://[::1]x/o/r'"),
        ("https://[::g]/o/r", "spec 'https://[::g]/o/r'"),
        ("https://[v1.x]/o/r", "is no IPv6 address"),
        ("https://[fe80::1%25eth0]/o/r", "a zone such as"),
        ("https://::1/o/r", "spec 'https://::1/o/r'"),
        ("https://[::1]:port/o/r", "spec 'https://[::1]:port/o/r'"),
        ("[::1/o/r", "has 1 part before the ref"),
        ("[::1]/r", "'[::1]' is not a valid owner"),
        ("[::g]/o/r", "'[::g]' is no IPv6 address"),
        ("git@[::1]:o/r", "looks like an scp address"),
    ],
)
def test_refused(text: str, message: str | None) -> None:
    if text == "/r":
        assert RepoSpec.parse(text).kind == "local"
        return
    with pytest.raises(UsageError) as caught:
        RepoSpec.parse(text)
    assert (message or "the ref is empty") in caught.value.message
    assert "\n" not in caught.value.message
    assert "u:p" not in caught.value.message


def test_credentials_are_not_repeated() -> None:
    with pytest.raises(UsageError) as caught:
        RepoSpec.parse("https://user:pass@h/o/r")
    assert "pass" not in f"{caught.value.message} {caught.value.spec}"


def test_the_host_and_template_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUB_HOST", "git.example")
    monkeypatch.setenv("HUB_GIT_URL", "https://{host}/git/{owner}--{repo}")
    spec = RepoSpec.parse("o/r")
    assert (spec.url, str(spec)) == ("https://git.example/git/o--r", "o/r")
    assert str(RepoSpec.parse("github.com/o/r")) == "github.com/o/r"


def test_at() -> None:
    spec = RepoSpec.parse("o/r:v1").at("main")
    assert (str(spec), spec.text, spec.ref) == ("o/r:main", "o/r:main", "main")
    assert str(spec.at(None)) == "o/r"


@given(st.text(max_size=40))
def test_any_text_is_parsed_or_refused_in_one_line(text: str) -> None:
    try:
        spec = RepoSpec.parse(text)
    except UsageError as error:
        assert "\n" not in error.message
    else:
        assert spec.kind == "local" or not spec.url.startswith("-")
        assert "/" not in spec.name or spec.kind == "local"


def test_an_ipv6_host_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUB_HOST", "[0:0::1]:8443")
    spec = RepoSpec.parse("o/r:v1")
    assert (str(spec), spec.host, spec.url) == ("o/r:v1", "[::1]:8443", "https://[::1]:8443/o/r.git")
    assert RepoSpec.parse("[::1]:8443/o/r:v1") == spec


def test_the_scp_form_of_an_ipv6_address_has_a_good_hint() -> None:
    with pytest.raises(UsageError) as caught:
        RepoSpec.parse("git@[::1]:o/r")
    assert caught.value.hint == "write ssh://git@[::1]/o/r"


@pytest.mark.parametrize(
    ("url", "same"),
    [
        ("https://[::1]/o/r", "https://[0:0:0:0:0:0:0:1]:443/o/r"),
        ("http://[2001:db8::1]:8080/o/r", "http://[2001:0DB8::0001]:8080/o/r"),
    ],
)
def test_consent_is_bound_to_one_spelling_of_an_ipv6_address(url: str, same: str) -> None:
    assert RepoSpec.parse(url).canonical == RepoSpec.parse(same).canonical == url
    assert secret_scope.hosts(url) == secret_scope.hosts(same)
    assert secret_scope.hosts("https://[::1]/x") != secret_scope.hosts("https://[::2]/x")
    assert secret_scope.hosts("https://[::1/x") == frozenset()


def test_a_file_is_no_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").mkdir()
    for name, hint in (
        ("m.gguf", "`hub run m.gguf --prompt TEXT` generates text with it"),
        ("./m.gguf", "`hub run ./m.gguf --prompt TEXT` generates text with it"),
        ("a/m.safetensors", "`hub show a/m.safetensors` describes it"),
        ("net.onnx", "`hub run net.onnx --input FILE` runs it"),
        ("a/config.json", "a repository is owner/repo, a URL or a folder"),
    ):
        (tmp_path / name).write_bytes(b"")
        with pytest.raises(UsageError, match="is a file, not a repository") as raised:
            RepoSpec.parse(name)
        assert hint in str(raised.value.hint)
    with pytest.raises(NotFoundError, match=r"there is no file absent\.gguf"):
        RepoSpec.parse("absent.gguf")
    (tmp_path / "folder.gguf").mkdir()
    assert RepoSpec.parse("folder.gguf").kind == "local"
    assert RepoSpec.parse("owner/net.pt").kind == RepoSpec.parse("owner/net.json:v1").kind == "remote"
