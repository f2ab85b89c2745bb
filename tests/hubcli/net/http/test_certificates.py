"""A private authority: each of the usual settings serves code and weights, and a wrong one is named."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from hubcli.errors import NetworkError, UsageError
from hubcli.net.git import remote as git
from hubcli.net.http import certificates
from hubcli.net.http import fetch as http
from tests.servers import Repository, file_server, git_server

BODY = b"weights"
FILES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO")
FOLDERS = ("SSL_CERT_DIR", "GIT_SSL_CAPATH", "REQUESTS_CA_BUNDLE")

pytestmark = pytest.mark.skipif(not shutil.which("openssl"), reason="no openssl program to make certificates with")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """An authority, the certificate of 127.0.0.1 that it has signed, and another authority."""
    folder = tmp_path_factory.mktemp("authority")

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    for name in ("own", "other"):
        usage = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")  # which Python 3.13 asks of an authority
        files = ("-keyout", f"{name}.key", "-out", f"{name}.pem")
        openssl("req", "-x509", *curve, *usage, *files, "-days", "2", "-subj", "/CN=x")
    openssl("req", *curve, "-keyout", "s.key", "-out", "s.csr", "-subj", "/CN=127.0.0.1")
    (folder / "ext").write_text("subjectAltName=IP:127.0.0.1\nauthorityKeyIdentifier=keyid\n")
    signing = ("-CA", "own.pem", "-CAkey", "own.key", "-CAcreateserial", "-days", "2", "-extfile", "ext")
    openssl("x509", "-req", "-in", "s.csr", "-out", "s.pem", *signing)
    for name in ("own", "other"):
        (folder / f"{name}-folder").mkdir()
        shutil.copy(folder / f"{name}.pem", folder / f"{name}-folder" / "authority.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "s.pem", folder / "s.key")
    return SimpleNamespace(folder=folder, own=folder / "own.pem", other=folder / "other.pem", context=context)


@pytest.fixture
def served(made: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """A git server and a file server with that certificate."""
    monkeypatch.setattr(http.time, "sleep", lambda seconds: None)
    Repository.create(tmp_path / "git", "o/r").commit({"a": "1"})
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "net.pth").write_bytes(BODY)
    with (
        git_server(tmp_path / "git", context=made.context) as code,
        file_server(tmp_path / "files", context=made.context) as files,
    ):
        yield SimpleNamespace(code=f"{code.url}/o/r.git", file=f"{files.url}/net.pth", beside=tmp_path / "x.pth")


def both(served: SimpleNamespace) -> None:
    assert git.Remote.of(served.code).resolve(None).name == "main"
    assert http.fetch(served.file, served.beside).path.read_bytes() == BODY


@pytest.mark.parametrize("name", FILES)
def test_any_variable_that_names_a_file_serves_both(served, made, name, monkeypatch):
    monkeypatch.setenv(name, str(made.own))
    both(served)


@pytest.mark.parametrize("name", FOLDERS)
def test_any_variable_that_names_a_folder_serves_the_weights(served, made, name, monkeypatch):
    monkeypatch.setenv(name, str(made.folder / "own-folder"))
    if name == "GIT_SSL_CAPATH":  # git's own, read by git: only OpenSSL or GnuTLS knows which names it wants
        assert http.fetch(served.file, served.beside).size == len(BODY)
    else:
        both(served)


@pytest.mark.parametrize("section", ["http", "http.https://127.0.0.1/", "http.https://*.0.0.1"])
@pytest.mark.parametrize("where", ["file", "environment", "command line"])
def test_gits_own_configuration_serves_both(served, made, section, where, isolated, monkeypatch):
    server = served.code.removesuffix("/o/r.git")
    key = "http.sslCAInfo" if section == "http" else f"http.{server}.sslCAInfo"
    if section.endswith("*.0.0.1"):
        key = f"http.https://*.0.0.1:{server.rpartition(':')[2]}.sslCAInfo"
    if where == "file":
        name = key.removeprefix("http.").removesuffix("sslCAInfo").rstrip(".")
        head = f'[http "{name}"]' if name else "[http]"
        (isolated / ".gitconfig").write_text(f"{head}\n sslCAInfo = {made.own}\n")
    elif where == "environment":
        monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
        monkeypatch.setenv("GIT_CONFIG_KEY_0", key)
        monkeypatch.setenv("GIT_CONFIG_VALUE_0", str(made.own))
    else:
        monkeypatch.setenv("GIT_CONFIG_PARAMETERS", f"'{key}'='{made.own}'")
    assert git.Remote.of(served.code).resolve(None).name == "main"
    if section == "http":  # the files come from another port
        assert http.fetch(served.file, served.beside).size == len(BODY)


def test_a_setting_of_ones_own_does_not_hide_that_of_others(served, made, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(made.own))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(made.other))
    monkeypatch.setenv("GIT_SSL_CAINFO", str(made.other))
    both(served)


def test_ordinary_authorities_stay_beside_anothers_setting(made, monkeypatch):
    """GIT_SSL_CAINFO for one's own git server must not cut off weights that come from elsewhere."""
    monkeypatch.setenv("GIT_SSL_CAINFO", str(made.own))
    text = Path(str(certificates.for_files("https://h/", {}))).read_bytes()
    assert made.own.read_bytes().strip() in text and text.count(b"BEGIN CERTIFICATE") > 50
    assert certificates.for_files("https://h/", {}) == certificates.for_files("https://other/", {})
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(made.other))  # this one replaces them, as everywhere
    assert Path(str(certificates.for_files("https://h/", {}))).read_bytes().count(b"BEGIN CERTIFICATE") == 2


@pytest.mark.parametrize("ignored", ["variable", "configuration"])
def test_a_refused_certificate_says_what_to_set_and_what_is_not_obeyed(served, made, ignored, isolated, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(made.other))
    if ignored == "variable":
        monkeypatch.setenv("GIT_SSL_NO_VERIFY", "1")
    else:
        (isolated / ".gitconfig").write_text("[http]\n sslVerify = false\n")
    named = "GIT_SSL_NO_VERIFY" if ignored == "variable" else "http.sslVerify=false"
    for ask in (lambda: git.Remote.of(served.code).resolve(None), lambda: http.fetch(served.file, served.beside)):
        with pytest.raises(NetworkError, match="certificate") as caught:
            ask()
        hint = str(caught.value.hint)
        assert f"SSL_CERT_FILE ({made.other})" in hint and named in hint


@pytest.mark.parametrize("name", [*FILES, "SSL_CERT_DIR", "GIT_SSL_CAPATH", "http.sslCAInfo"])
@pytest.mark.parametrize("kind", ["missing", "empty", "no certificate", "damaged", "wrong kind"])
def test_a_setting_that_names_no_authority_is_named(served, made, name, kind, tmp_path, isolated, monkeypatch):
    path = tmp_path / "named"
    folder = name in ("SSL_CERT_DIR", "GIT_SSL_CAPATH")
    target = path / "x.pem" if folder else path
    if kind == "wrong kind":
        if name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
            pytest.skip("takes either")
        path.write_text("x") if folder else path.mkdir()
    elif kind != "missing":
        if folder:
            path.mkdir()
        text = {"empty": "", "no certificate": "hello\n"}.get(kind) or made.own.read_text().replace("M", "?")
        target.write_text(text)
    if name.startswith("http."):
        (isolated / ".gitconfig").write_text(f"[http]\n sslCAInfo = {path}\n")
    else:
        monkeypatch.setenv(name, str(path))
    for ask in (lambda: git.Remote.of(served.code), lambda: http.fetch(served.file, served.beside)):
        with pytest.raises(UsageError) as caught:
            ask()
        assert name in caught.value.message and str(path) in caught.value.message
    assert http.fetch  # nothing was written
    assert not served.beside.exists()


@pytest.mark.parametrize(
    ("reason", "hint"),
    [
        ("certificate verify failed: certificate has expired", "clock"),
        ("certificate verify failed: IP address mismatch, certificate is not valid for '127.0.0.1'", "another name"),
        ("SSL: certificate subject name 'x' does not match target host name 'y'", "another name"),
        ("certificate verify failed: unable to get local issuer certificate", "SSL_CERT_FILE"),
    ],
)
def test_the_advice_fits_the_reason(reason: str, hint: str) -> None:
    assert hint in certificates.advice({}, reason)
