"""Who signed a tag: keys made for the test, keyrings of the test's own, no network."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hubcli.trust import signature

TAG = b"""object 0123456789abcdef0123456789abcdef01234567
type commit
tag v1
tagger Jane <jane@example.org> 1795261200 +0000

First release.
"""
SAYS = "signed by Jane <jane@example.org>, so the tag says"


def run(*command: str, stdin: bytes = b"", **environment: str) -> bytes:
    done = subprocess.run(command, input=stdin, capture_output=True, env={**os.environ, **environment}, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_unsigned():
    assert signature.describe(b"", "v1", None) == "not signed"
    assert signature.describe(TAG, "v1", None) == "not signed"
    inside = TAG.replace(b"First", b"Not -----BEGIN PGP SIGNATURE----- at a line's start: first")
    assert signature.describe(inside, "v1", None) == "not signed"


def test_x509_and_hosts_without_tools(monkeypatch):
    signed = TAG + b"-----BEGIN SIGNED MESSAGE-----\nx\n"
    assert signature.describe(signed, "v1", None).startswith(f"{SAYS} (X.509); not verified")
    monkeypatch.setenv("PATH", "/nowhere")
    for kind in (b"PGP", b"SSH"):
        signed = TAG + b"-----BEGIN " + kind + b" SIGNATURE-----\nx\n"
        assert "not verified: there is no" in signature.describe(signed, "v1", None)


# OpenPGP


@pytest.fixture(scope="module")
def gnupg() -> Iterator[Path]:
    """A keyring with one key, in a folder whose name is short enough for the agent's socket."""
    if shutil.which("gpg") is None:
        pytest.skip("no gpg")
    home = Path(tempfile.mkdtemp(prefix="gpg"))
    home.chmod(0o700)
    environment = {"GNUPGHOME": str(home), "LC_ALL": "C"}
    quiet = ("gpg", "--batch", "--quiet", "--pinentry-mode=loopback", "--passphrase=")
    try:
        run(*quiet, "--quick-gen-key", "Jane <jane@example.org>", "ed25519", **environment)
        yield home
    finally:
        subprocess.run(["gpgconf", "--kill", "all"], env={**os.environ, **environment}, check=False)
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def signed(gnupg: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    made = run("gpg", "--batch", "--armor", "--detach-sign", stdin=TAG, GNUPGHOME=str(gnupg))
    monkeypatch.setenv("GNUPGHOME", str(gnupg))
    return TAG + made


def test_a_key_of_ones_own(signed):
    phrase = signature.describe(signed, "v1", None)
    assert phrase.startswith("signed by Jane <jane@example.org> (OpenPGP key ")
    assert phrase.endswith("), verified by your keyring")


def test_the_signature_of_another_tag(signed):
    assert signature.describe(signed, "v2", None).endswith("the signature is for a tag named 'v1'")


def test_what_was_not_signed(signed):
    phrase = signature.describe(signed.replace(b"First", b"Other"), "v1", None)
    assert phrase.startswith("BAD SIGNATURE: this is not what Jane <jane@example.org> (OpenPGP")


def test_a_known_key_that_nobody_vouches_for(signed, gnupg, tmp_path, monkeypatch):
    public = run("gpg", "--batch", "--export", GNUPGHOME=str(gnupg))
    home = Path(tempfile.mkdtemp(prefix="gpg"))
    try:
        run("gpg", "--batch", "--quiet", "--import", stdin=public, GNUPGHOME=str(home))
        monkeypatch.setenv("GNUPGHOME", str(home))
        phrase = signature.describe(signed, "v1", None)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    assert phrase.startswith("signed by Jane <jane@example.org> (OpenPGP key ")
    assert "not verified: the key is in your keyring, which does not say" in phrase


def test_an_unknown_key(signed, tmp_path, monkeypatch):
    monkeypatch.setenv("GNUPGHOME", str(tmp_path / "nowhere"))
    phrase = signature.describe(signed, "v1", None)
    assert phrase.startswith(f"{SAYS} (OpenPGP key ")
    assert phrase.endswith("; not verified: the key is not in your keyring")
    assert not (tmp_path / "nowhere").exists()  # gpg would make a keyring of its own


def test_a_broken_signature(tmp_path, monkeypatch):
    monkeypatch.setenv("GNUPGHOME", str(tmp_path / "nowhere"))
    broken = TAG + b"-----BEGIN PGP SIGNATURE-----\n\n!!\n-----END PGP SIGNATURE-----\n"
    assert "not verified" in signature.describe(broken, "v1", None)


# SSH


@pytest.fixture
def key(tmp_path: Path) -> Path:
    if shutil.which("ssh-keygen") is None:
        pytest.skip("no ssh-keygen")
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key"))
    return tmp_path / "key"


def ssh_signed(key: Path) -> bytes:
    return TAG + run("ssh-keygen", "-q", "-Y", "sign", "-n", "git", "-f", str(key), stdin=TAG)


def test_ssh(key, tmp_path):
    made = ssh_signed(key)
    phrase = signature.describe(made, "v1", None)
    assert phrase.startswith(f"{SAYS} (SSH key SHA256:")
    assert phrase.endswith("not verified: git's gpg.ssh.allowedSignersFile names no file")
    allowed = tmp_path / "allowed"
    allowed.write_text("somebody@example.org " + (tmp_path / "key.pub").read_text())
    phrase = signature.describe(made, "v1", str(allowed))
    assert phrase.startswith("signed by somebody@example.org (SSH key SHA256:")
    assert phrase.endswith("verified by your allowed signers")
    changed = made.replace(b"First", b"Other")
    assert signature.describe(changed, "v1", str(allowed)).startswith("BAD SIGNATURE")
    allowed.write_text("")
    assert signature.describe(made, "v1", str(allowed)).endswith("not among your allowed signers")


def test_a_signed_tag_of_a_repository(key, sample, sample_server, isolated, tmp_path):
    from hubcli.base.spec import RepoSpec
    from hubcli.cache.cache import Cache
    from hubcli.trust import gates

    sample.git(
        *("-c", "gpg.format=ssh", "-c", f"user.signingkey={key}"),
        *("-c", "user.name=Jane", "-c", "user.email=j@e.org", "tag", "-s", "-m", "signed", "v3"),
    )
    sample.push()
    checkout = Cache.current().checkout(RepoSpec.parse("o/r:v3"))
    phrase = gates.question(checkout, "thing").signature
    assert phrase is not None and "names no file" in phrase
    allowed = tmp_path / "allowed"
    allowed.write_text("jane " + (tmp_path / "key.pub").read_text())
    (isolated / ".gitconfig").write_text(f'[gpg "ssh"]\n\tallowedSignersFile = {allowed}\n')
    phrase = gates.question(checkout, "thing").signature
    assert phrase is not None and phrase.endswith("verified by your allowed signers")
